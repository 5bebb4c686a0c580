"""Core: element types (dtypes).

Defines one `DType` object per element type (`f32`, `i64`, ...) and the NumPy dtype of each. A
`DType` says what it may be used for: arithmetic, storage only, or addresses. `core.promotion` says
which dtype results when two meet.
"""

from __future__ import annotations

import builtins
import re
from collections.abc import Callable
from typing import Any

import numpy as np

from tetrad.core import lazy
from tetrad.core.config import LOCAL, Setting, any_of, declare
from tetrad.core.errors import DtypeError, SettingError
from tetrad.core.record import record

# By name; filled in on demand, because NumPy's bf16 is loaded late.
HASHES: dict[str, int] = {"index": hash("index")}


@record(eq=False)
class DType:
    """An element type. There is one object per type, so two DTypes are equal if they are identical.
    A DType also equals the NumPy dtype and the name of the same type, and has the hash of that
    NumPy dtype."""

    short_name: str  # as the IR prints it: f32
    name: str  # as NumPy and the array API spell it: float32
    kind: str  # f float, c complex, i signed, u unsigned, b bool, x index, q quantised in blocks
    bits: int
    storage_only: bool = False  # loaded, stored and cast, never computed with
    block: int = 1  # kind q: elements of a block along the last axis ...
    block_bytes: int = 0  # ... and its bytes
    rows: int = 1  # kind q: rows that lie interleaved; their number is padded to a multiple

    @property
    def nbytes(self) -> int:
        return max(1, self.bits // 8)

    @property
    def is_quantized(self) -> bool:
        return self.kind == "q"

    @property
    def is_nibble(self) -> bool:
        """Is it an integer of four bits, two of them in a byte?"""
        return self.short_name in ("uint4", "int4")

    @property
    def is_float8(self) -> bool:
        """Is it a float of eight bits, a byte to NumPy?"""
        return self.short_name in FLOAT8_NAMES

    @property
    def is_narrow(self) -> bool:
        """Is it moved and converted as bytes, and never computed with? Four or eight bits."""
        return self.is_nibble or self.is_float8

    @property
    def is_float(self) -> bool:
        return self.kind == "f"

    @property
    def is_complex(self) -> bool:
        return self.kind == "c"

    @property
    def real(self) -> DType:
        """The dtype of each part of a complex number; a dtype that is not complex is its own."""
        return PARTS.get(self.short_name, self)

    @property
    def complex(self) -> DType:
        """The complex type whose parts hold numbers of this float type."""
        return self if self.is_complex else c128 if self is f64 else c64

    @property
    def computing(self) -> DType:
        """The dtype of arithmetic: storage types are widened before an op and rounded or wrapped
        after it."""
        return COMPUTED_IN.get(self.short_name, self)

    @property
    def is_signed(self) -> bool:
        return self.kind in "ix"

    @property
    def is_integer(self) -> bool:
        return self.kind in "iux"

    @property
    def dtype(self) -> np.dtype:
        """NumPy reads this attribute where it expects a dtype, so `np.zeros(3, x.dtype)` works. For
        floats of eight bits it is that of ml_dtypes."""
        if not self.is_float8:
            return self.np
        found: np.dtype = np.dtype(getattr(lazy.module("ml_dtypes"), self.short_name))
        return found

    @property
    def itemsize(self) -> int:
        """Bytes of an element, as NumPy's dtypes say it."""
        return self.nbytes

    @property
    def type(self) -> builtins.type[np.generic]:
        """NumPy's class of a scalar of this type."""
        return self.dtype.type

    @property
    def char(self) -> str:
        """NumPy's letter for this type."""
        return self.dtype.char

    def __call__(self, value: Any = 0, /) -> Any:
        """An array of this type: `td.float32(3)`."""
        return lazy.provided("methods of arrays").asarray(value, dtype=self)

    @property
    def np(self) -> np.dtype:
        """The NumPy dtype of the elements in memory; blocks of a quantised type are bytes."""
        return NUMPY[u8.short_name if self.kind == "q" else self.short_name]

    def __eq__(self, other: object) -> bool:
        return self is other or (type(other) is not DType and is_alike(self, other))

    def __hash__(self) -> int:
        found = HASHES.get(self.short_name)
        return HASHES.setdefault(self.short_name, hash(self.dtype)) if found is None else found

    def __repr__(self) -> str:
        return self.short_name

    def __reduce__(self) -> tuple[object, ...]:
        return (named, (self.short_name,))


f16 = DType("f16", "float16", "f", 16, storage_only=True)
bf16 = DType("bf16", "bfloat16", "f", 16, storage_only=True)
f32 = DType("f32", "float32", "f", 32)
f64 = DType("f64", "float64", "f", 64)
i8 = DType("i8", "int8", "i", 8, storage_only=True)
i16 = DType("i16", "int16", "i", 16, storage_only=True)
i32 = DType("i32", "int32", "i", 32)
i64 = DType("i64", "int64", "i", 64)
u8 = DType("u8", "uint8", "u", 8)
u16 = DType("u16", "uint16", "u", 16, storage_only=True)
u32 = DType("u32", "uint32", "u", 32)
u64 = DType("u64", "uint64", "u", 64)
bool_ = DType("bool", "bool", "b", 1)
# Real and imaginary part side by side in memory. Kernels have no complex type: `passes.split`
# turns a complex node into two real ones.
c64 = DType("c64", "complex64", "c", 64)
c128 = DType("c128", "complex128", "c", 128)
# Two in a byte, the even element in the low half, in the order of the flat array: bytes to NumPy.
# (Their short names would be those of four bytes in NumPy.)
u4 = DType("uint4", "uint4", "q", 4, storage_only=True, block=2, block_bytes=1)
i4 = DType("int4", "int4", "q", 4, storage_only=True, block=2, block_bytes=1)
# A byte each, to NumPy too. e4m3: 4 bits of exponent, 3 of fraction; fn: no infinities; uz: no
# negative zero.
FLOAT8_NAMES = ("float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz")
FLOAT8 = tuple(DType(name, name, "q", 8, storage_only=True, block_bytes=1) for name in FLOAT8_NAMES)
float8_e4m3fn, float8_e5m2, float8_e4m3fnuz, float8_e5m2fnuz = FLOAT8
index = DType("index", "index", "x", 64)  # addresses and loop counters: 64 bits, must not wrap

DTYPES = (f16, bf16, f32, f64, i8, i16, i32, i64, u8, u16, u32, u64, bool_, index, c64, c128)


class Numpy(dict[str, np.dtype]):
    """The NumPy dtype of each type, by name. That of bf16 comes from ml_dtypes, which is imported
    when it is first needed."""

    def __missing__(self, name: str) -> np.dtype:
        if name != bf16.short_name:
            raise KeyError(name)
        found: np.dtype = np.dtype(lazy.module("ml_dtypes").bfloat16)
        self[name] = found
        _BY_NUMPY[found] = bf16
        return found


NUMPY = Numpy(
    {d.short_name: np.dtype("int64" if d is index else d.name) for d in DTYPES if d is not bf16}
)
PARTS = {"c64": f32, "c128": f64}  # by name, as the next
COMPUTED_IN = {"f16": f32, "bf16": f32, "i8": i32, "i16": i32, "u16": u32}  # storage types
ARRAY_DTYPES = tuple(d for d in DTYPES if d is not index)
REAL_DTYPES = tuple(d for d in ARRAY_DTYPES if not d.is_complex)  # what kernels hold
COMPILED_DTYPES: tuple[DType, ...] = (
    f32,
    f64,
    i32,
    i64,
    u8,
    u32,
    bool_,
    f16,
    bf16,
    i8,
    i16,
    u16,
    u64,
    c64,
    c128,
)

NIBBLES = (u4, i4)
HASHES |= {d.short_name: hash(d.short_name) for d in NIBBLES}
_NAMED = (*DTYPES, *NIBBLES, *FLOAT8)
_BY_NAME = {d.short_name: d for d in _NAMED} | {d.name: d for d in _NAMED}
_BY_NUMPY = {NUMPY[d.short_name]: d for d in ARRAY_DTYPES if d is not bf16}
TWO_MEANINGS = frozenset({"i8", "u8"})  # bits here, bytes in NumPy
LETTERS = re.compile(r"[<=|]?([fiuc][0-9]+|b1|[?bBhHiIlLqQefdFD])")  # NumPy's: "f4", "<i8", "d"
# what declares more types, once a name is asked for that is none yet
LATER: list[Callable[[], None]] = []


# -- defaults: the dtypes of Python's numbers ------------------------------------------------------


def one_of(name: str, allowed: tuple[DType, ...]) -> Callable[[object], DType]:
    """The check of a setting that is one of these dtypes."""

    def check(value: object) -> DType:
        for dtype in allowed:
            if value is dtype or is_alike(dtype, value):
                return dtype
        names = " or ".join(repr(dtype.name) for dtype in allowed)
        raise SettingError(name, names, value)

    return check


class PythonDtypes(dict[int, "dict[type, DType]"]):
    """The dtypes of Python's numbers under each `config.key`, made when first asked for."""

    def __missing__(self, key: int) -> dict[type, DType]:
        values = LOCAL.view.values
        real = values["default_float"]
        made = {bool: bool_, int: values["default_int"], float: real, complex: real.complex}
        return self.setdefault(key, made)


PYTHON_DTYPES = PythonDtypes()
declare(
    Setting(
        "default_float",
        f32,
        one_of("default_float", (f32, f64)),
        "what Python floats become where they meet no float: float32 or float64",
        changes_programs=True,
    )
)
declare(
    Setting(
        "default_int",
        i32,
        one_of("default_int", (i32, i64)),
        "what Python ints become where they meet no number, and the dtype of indices",
        changes_programs=True,
    )
)


NARROW = {"f64": f32, "i64": i32, "u64": u32, "c128": c64}  # by name: what takes their place


declare(
    Setting(
        "wide_types",
        True,
        any_of("wide_types", True, False),
        "are 64-bit types kept? Else types of 32 bits take their place, in what is asked for and "
        "in what NumPy hands over",
        changes_programs=True,
    )
)


def canonical(dtype: DType) -> DType:
    """The dtype itself, or the one of 32 bits that takes its place.

    >>> import tetrad as td
    >>> with td.config.context(wide_types=False):
    ...     td.zeros(2, dtype="float64").dtype
    f32
    """
    return dtype if keeps_wide() else NARROW.get(dtype.short_name, dtype)


def keeps_wide() -> bool:
    """Are 64-bit types kept?"""
    return bool(LOCAL.view.values["wide_types"])


def python_dtypes() -> dict[type, DType]:
    """The dtype of each of Python's types of numbers, where one meets no array: the defaults.

    >>> python_dtypes()[float]
    f32
    """
    return PYTHON_DTYPES[LOCAL.view.key]


def default_float() -> DType:
    return PYTHON_DTYPES[LOCAL.view.key][float]


def default_int() -> DType:
    """Also the dtype of indices: of `argmax` and its like."""
    return PYTHON_DTYPES[LOCAL.view.key][int]


def default_complex() -> DType:
    return PYTHON_DTYPES[LOCAL.view.key][complex]


PYTHON_NUMBERS = frozenset({bool, int, float, complex})


def declare_quantized(name: str, block: int, block_bytes: int, rows: int = 1) -> DType:
    """A type of quantised blocks: `block` elements of the last axis in `block_bytes` bytes; `rows`
    rows interleaved."""
    made = DType(name, name, "q", 8 * block_bytes // block, True, block, block_bytes, rows)
    if name in _BY_NAME:
        raise ValueError(f"dtype {name} is declared twice")
    _BY_NAME[name] = made
    HASHES[name] = hash(name)
    return made


def named(name: str) -> DType:
    """The dtype called `name` (either spelling)."""
    if name not in _BY_NAME:
        for declare in LATER:
            declare()
    try:
        return _BY_NAME[name]
    except KeyError:
        known = ", ".join(d.name for d in ARRAY_DTYPES)
        raise DtypeError(f"unknown dtype {name!r}", hint=f"known dtypes: {known}") from None


ABSTRACT = frozenset({
    np.generic, np.number, np.integer, np.signedinteger, np.unsignedinteger, np.inexact,
    np.floating,
    np.complexfloating, np.flexible, np.character,
})  # fmt: skip


def is_alike(dtype: DType, other: object) -> bool:
    """Does `other` name this dtype, in our spelling or NumPy's? Of Python's types only bool does:
    `float` is f64 to NumPy."""
    if isinstance(other, str) and (other in _BY_NAME or (other := numpy_named(other)) is None):
        return _BY_NAME.get(other or "") is dtype
    if other is bool:
        return dtype is bool_
    if isinstance(other, type) and issubclass(other, np.generic) and other not in ABSTRACT:
        other = np.dtype(other)
    if isinstance(other, np.dtype) and dtype.is_float8:
        return other.name == dtype.short_name
    if not isinstance(other, np.dtype) or dtype is index or dtype.is_quantized:
        return False
    # the name first: bf16 need not be loaded
    return other.name == dtype.name and bool(dtype.np == other)


def numpy_named(name: str) -> np.dtype | None:
    """The NumPy dtype of a name that is not one of ours: "<f4", "single"."""
    try:
        return np.dtype(name)
    except (TypeError, ValueError, SyntaxError):
        return None


def spelt(name: str) -> DType:
    """The dtype that a user calls `name`: our spelling, or NumPy's, as a letter and bytes. What
    stands for one type there and for another here is refused.

    >>> spelt("f4"), spelt("i2"), spelt("int8")
    (f32, i16, i8)
    """
    if name in TWO_MEANINGS:
        numpys, ours = np.dtype(name).name, _BY_NAME[name].name
        message = f"dtype {name!r} may mean two types: {numpys} in NumPy, {ours} as graphs print it"
        raise DtypeError(message, hint=f"write {numpys!r} or {ours!r}")
    if name not in _BY_NAME and LETTERS.fullmatch(name):
        found = numpy_named(name)
        if found in _BY_NUMPY:
            return _BY_NUMPY[found]
    return named(name)


def as_dtype(like: object) -> DType:
    """A `DType` from a DType, a NumPy dtype, a name or a Python type.

    >>> as_dtype("float32"), as_dtype(np.int64), as_dtype(bool), as_dtype("<f4")
    (f32, i64, bool, f32)
    """
    if isinstance(like, DType):
        return like
    if isinstance(like, str):
        return spelt(like)
    if isinstance(like, type) and like in PYTHON_NUMBERS:
        return python_dtypes()[like]
    if not isinstance(like, type) and hasattr(like, "__array_namespace__"):
        hint = "x.dtype is the dtype of an array; several arrays stand in one list: [x, y]"
        raise DtypeError("expected a dtype, got an array", hint=hint)
    try:
        found = np.dtype(like)  # type: ignore[call-overload]
        if found.name in FLOAT8_NAMES:
            return _BY_NAME[found.name]
        if found not in _BY_NUMPY:
            bf16.np  # noqa: B018  it is known from now on, in case this is it
        return _BY_NUMPY[found]
    except (KeyError, TypeError):
        known = ", ".join(d.name for d in ARRAY_DTYPES)
        raise DtypeError(f"no dtype for {like!r}", hint=f"known dtypes: {known}") from None
