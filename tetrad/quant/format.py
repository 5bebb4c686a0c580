"""Block formats: what a format is, and the registry of all of them.

A format file makes one `Format` and registers it (`quant.lanes.register`); everything else asks the
format. Receives bytes and gives numbers (`unpack`), or the other way round (`pack`); for kernels it
also gives the parts every format of codes is made of: codes, scales, mins. All lengths and values
are checked here, so format files only say where things lie and how they round.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from tetrad.core import lazy
from tetrad.core.dtypes import LATER, as_dtype
from tetrad.core.errors import DtypeError, ShapeError, UnsupportedError
from tetrad.core.floats import guarded
from tetrad.core.record import record
from tetrad.core.source import user_source
from tetrad.quant.fields import F32, U8, Factor, Levels, Plane, SixBitPairs

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

T = TypeVar("T", bound=np.generic)
CHUNK = 1 << 16  # elements worked on at a time: they stay in cache, and memory stays bounded
# codes u8[n, block], and the bytes of every other field by where it starts
Parts = tuple[U8, dict[int, U8]]


@record(eq=False)
class Format:
    """How `block` numbers lie in `nbytes` bytes.

    A format of codes means `scale * (code - offset) - min`, or, with a code book, `scale *
    table[code]`. There is one scale (and one min, where the format has them) for each `sub_block`
    elements: a factor of the block, times a level of the sub-block where the format has levels. A
    float format has no codes, only `decode`.
    """

    name: str  # lower case, as GGUF spells it
    number: int  # of the format in GGUF files
    block: int  # elements
    nbytes: int  # of one block
    bits: int  # of a code; of the element in a float format
    # RMS error over the range the codes span, on normal numbers; docs/quant.md compares it with
    # theory
    budget: float
    encode: Callable[[F32], Parts]  # f32[n, block], finite, to what a block holds
    sub_block: int = 1
    offset: int = 0
    planes: tuple[Plane, ...] = ()
    # bits of the stored code that are inverted: 0x80 turns two's complement into code = q + 128
    flip: int = 0
    table: tuple[int, ...] = ()  # the code book: for each code of 4 bits a number from -128 to 127
    factors: tuple[Factor, ...] = ()  # of the scales and, where there are any, of the mins
    levels: Levels | SixBitPairs | None = None
    adds_mins: bool = False  # the file adds its second factor, so the min is that number negated
    # bytes that say nothing new: where they start, how many; kept as they are
    rest: tuple[int, int] = (0, 0)
    decode: Callable[[U8], F32] | None = None  # float formats only: u8[n, nbytes] to f32[n, block]

    @property
    def is_integer(self) -> bool:
        """Does it have codes?"""
        return bool(self.planes)

    @property
    def has_mins(self) -> bool:
        return len(self.factors) > 1

    @property
    def sub_blocks(self) -> int:
        return self.block // self.sub_block

    def codes(self, packed: U8) -> U8:
        """The unsigned codes: u8[..., blocks * nbytes] to u8[..., blocks * block]."""
        self._need_codes("codes")
        return self._each(packed, self._read_codes, self.block, np.uint8)

    def integers(self, packed: U8) -> NDArray[np.int16]:
        """What the codes stand for before they are scaled, code - offset or table[code]: i16[...,
        blocks * block]."""
        return self.integers_of(self.codes(packed))

    def scales(self, packed: U8) -> F32:
        """One scale per sub-block, the exact product where a block holds it in two parts: f32[...,
        sub-blocks]."""
        self._need_codes("scales")
        return self._each(packed, self._read_scales, self.sub_blocks, np.float32)

    def mins(self, packed: U8) -> F32 | None:
        """One min per sub-block, also exact, or None where the format has none."""
        self._need_codes("mins")
        return (
            self._each(packed, self._read_mins, self.sub_blocks, np.float32)
            if self.has_mins
            else None
        )

    @guarded
    def unpack(self, packed: U8) -> F32:
        """The numbers: u8[..., blocks * nbytes] to f32[..., blocks * block]."""
        return self._each(packed, self.decode or self._decode_codes, self.block, np.float32)

    @guarded
    def pack(self, array: ArrayLike) -> U8:
        """The nearest this format comes to the array: [..., k] to u8[..., k / block * nbytes]."""
        x = np.asarray(array)
        self._check_numbers(x)
        rows = x.reshape(x.size // self.block, self.block)
        out = np.empty((len(rows), self.nbytes), np.uint8)
        with np.errstate(all="ignore"):  # what overflows is found by _check_fit and reported
            for part in _chunks(len(rows), self.block):
                numbers = np.ascontiguousarray(rows[part], np.float32)
                out[part] = self._assemble(len(numbers), *self.encode(numbers))
                self._check_fit(numbers, out[part])
        return out.reshape(*x.shape[:-1], x.shape[-1] // self.block * self.nbytes)

    def packed_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """The shape of the bytes that hold an array of `shape`: rows of whole blocks."""
        if not shape or min(shape) < 0 or shape[-1] % self.block:
            raise ShapeError(
                f"{self.name}: rows of whole blocks of {self.block} elements expected, got shape "
                f"{list(shape)}",
                source=user_source(),
                hint=f"the last axis must be a multiple of {self.block}",
            )
        return (*shape[:-1], shape[-1] // self.block * self.nbytes)

    # -- whole arrays ------------------------------------------------------------------------------

    def _each(
        self, packed: U8, read: Callable[[U8], NDArray[T]], per_block: int, dtype: type[T]
    ) -> NDArray[T]:
        """`read` over all blocks of an array of bytes, some of them at a time."""
        self._check_bytes(packed)
        blocks = packed.reshape(packed.size // self.nbytes, self.nbytes)
        out = np.empty((len(blocks), per_block), dtype)
        # inf and nan in a scale are the file's business: they give inf and nan
        with np.errstate(all="ignore"):
            for part in _chunks(len(blocks), self.block):
                out[part] = read(np.ascontiguousarray(blocks[part]))
        return out.reshape(*packed.shape[:-1], packed.shape[-1] // self.nbytes * per_block)

    # -- some blocks -------------------------------------------------------------------------------

    def _read_codes(self, blocks: U8) -> U8:
        codes = self.planes[0].read(blocks)
        for plane in self.planes[1:]:
            codes |= plane.read(blocks)
        return codes ^ np.uint8(self.flip) if self.flip else codes

    def integers_of(self, codes: U8) -> NDArray[np.int16]:
        if self.table:
            return np.array(self.table, np.int16)[codes]
        return codes.astype(np.int16) - np.int16(self.offset)

    def _decode_codes(self, blocks: U8) -> F32:
        integers = self.integers_of(self._read_codes(blocks))
        numbers = integers.astype(np.float32).reshape(len(blocks), self.sub_blocks, self.sub_block)
        numbers *= self._read_scales(blocks)[..., None]
        if self.has_mins:
            numbers -= self._read_mins(blocks)[..., None]
        return numbers.reshape(len(blocks), self.block)

    def _read_scales(self, blocks: U8) -> F32:
        return self._side(blocks, 0)

    def _read_mins(self, blocks: U8) -> F32:
        return -self._side(blocks, 1) if self.adds_mins else self._side(blocks, 1)

    def _side(self, blocks: U8, side: int) -> F32:
        """The products of a factor with its levels, f32[n, sub-blocks]: side 0 has the scales, side
        1 the mins."""
        factor = self.factors[side].read(blocks)
        if self.levels is None:
            return np.repeat(factor, self.sub_blocks, axis=1)
        levels = self.levels.read(blocks)[:, side * self.sub_blocks : (side + 1) * self.sub_blocks]
        return factor * levels.view(np.int8 if self.levels.has_signs else np.uint8).astype(
            np.float32
        )

    def _assemble(self, n: int, codes: U8, fields: dict[int, U8]) -> U8:
        blocks = np.empty((n, self.nbytes), np.uint8)
        for plane in self.planes:
            plane.write(blocks, codes ^ np.uint8(self.flip))
        for start, field in fields.items():
            blocks[:, start : start + field.shape[1]] = field
        return blocks

    # -- checks ------------------------------------------------------------------------------------

    def _need_codes(self, what: str) -> None:
        if not self.is_integer:
            raise UnsupportedError(
                f"{self.name}: a float format has no {what}",
                source=user_source(),
                hint="unpack gives its numbers",
            )

    def _check_bytes(self, packed: U8) -> None:
        if packed.dtype != np.uint8:
            raise DtypeError(
                f"{self.name}: packed bytes are u8, got {packed.dtype}", source=user_source()
            )
        if packed.ndim == 0 or packed.shape[-1] % self.nbytes:
            raise ShapeError(
                f"{self.name}: rows of whole blocks of {self.nbytes} bytes expected, got shape "
                f"{list(packed.shape)}",
                source=user_source(),
                hint=f"{self.nbytes} bytes hold {self.block} elements; is it another format, or "
                "cut short?",
            )

    def _check_numbers(self, x: NDArray[np.generic]) -> None:
        if as_dtype(x.dtype).kind in "bc":
            raise DtypeError(f"{self.name}: numbers expected, got {x.dtype}", source=user_source())
        self.packed_shape(x.shape)

    def _check_fit(self, numbers: F32, blocks: U8) -> None:
        """Every finite number came out finite; an integer format holds no others."""
        finite = np.isfinite(numbers)
        if self.is_integer and not finite.all():
            raise DtypeError(
                f"{self.name}: holds finite numbers only, got {numbers[~finite][0]}",
                source=user_source(),
                hint="look for the nan or inf before packing; f32, f16 and bf16 can hold it",
            )
        if not np.isfinite((self.decode or self._decode_codes)(blocks))[finite].all():
            largest = np.abs(numbers[finite]).max()
            raise DtypeError(
                f"{self.name}: numbers as large as {largest:.6g} do not fit",
                source=user_source(),
                hint="scale the array down, or pack it as bf16 or f32",
            )


def _chunks(rows: int, width: int) -> Iterator[slice]:
    step = max(1, CHUNK // width)
    return (slice(start, start + step) for start in range(0, rows, step))


EVERY = "tetrad.quant.every"  # the module that imports all of them
FORMATS: lazy.Filled[Format] = lazy.Filled(EVERY)  # `quant.lanes.register` adds to it
LATER.append(FORMATS.load)


def format_named(name: str) -> Format:
    """The format GGUF calls `name`.

    >>> format_named("q4_k").nbytes
    144
    """
    if name not in FORMATS:
        known = ", ".join(sorted(FORMATS))
        raise UnsupportedError(
            f"unknown block format {name!r}", source=user_source(), hint=f"known formats: {known}"
        )
    return FORMATS[name]
