"""Compiled kernels for the tests of code generation: any program, on any target the processor can
run, beside the evaluator. Buffers lie in memory of their own, between stretches that must stay as
they were."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from functools import cache

import numpy as np

from tetrad.backends.cpu.isa import LEVELS, host_target, missing_features
from tetrad.backends.cpu.llvm import Library, compile_object, load_object
from tetrad.backends.llvm.module import emit_module
from tetrad.backends.llvm.target import Target
from tetrad.core.dtypes import DType
from tetrad.core.sizes import bind
from tetrad.kernel import nodes as n
from tetrad.kernel.evaluate import evaluate
from tetrad.kernel.verify import verify

Arrays = Mapping[str, np.ndarray]
Grid = tuple[int, int, int]
ZONE = 256  # bytes before and after every buffer
PATTERN = 0x5C


@cache
def host() -> Target:
    return host_target()


def runnable() -> list[Target]:
    """Every level this processor reaches, and the processor itself: there LLVM has more
    instructions to choose from."""
    return [*(t for t in LEVELS.values() if not missing_features(t)), host()]


def compiled(programs: Sequence[n.Program], target: Target, check: str = "plain") -> list[int]:
    """The address of each program's code."""
    symbols = {f"kernel{i}": program for i, program in enumerate(programs)}
    library = load_object(
        compile_object(emit_module(symbols, target, check), target), tuple(symbols)
    )
    _kept.append(library)
    return [library.address[symbol] for symbol in symbols]


_kept: list[Library] = []  # code lives as long as its library


class Trap(Exception):
    """The status words of a launch that trapped."""

    def __init__(self, code: int, value: int) -> None:
        super().__init__(code, value)
        self.code, self.value = code, value


class Zoned:
    """A copy of an array that stands between two patterns."""

    def __init__(self, array: np.ndarray) -> None:
        self.raw = np.full(array.nbytes + 2 * ZONE + 64, PATTERN, np.uint8)
        start = -self.raw.ctypes.data % 64 + ZONE
        self.array = self.raw[start : start + array.nbytes].view(array.dtype)
        self.array[...] = array
        self.around = (self.raw[:start], self.raw[start + array.nbytes :])

    @property
    def address(self) -> int:
        return self.array.ctypes.data

    def is_intact(self) -> bool:
        return all(bool((zone == PATTERN).all()) for zone in self.around)


def run(
    address: int,
    program: n.Program,
    arrays: Arrays,
    args: Mapping[str, int],
    grid: Grid = (1, 1, 1),
) -> dict[str, np.ndarray]:
    """The arrays after the launch; the ones given stay as they are."""
    storage = [b for b in program.buffers if not b.is_scratch]
    memory = {b.name: Zoned(arrays[b.name]) for b in storage}
    counts = [bind(b.count, args) if b.count is not None else arrays[b.name].size for b in storage]
    offsets, scratch = scratch_of(program, args)
    numbers = [*offsets, *(args[name] for name in program.args), grid[0], grid[1], *counts, 3]
    words = (ctypes.c_int64 * 64)(*(memory[b.name].address for b in storage), *numbers)
    status = (ctypes.c_int64 * (n.STOP_WORD + 1))()
    call = ctypes.CFUNCTYPE(
        None, *[ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p, ctypes.c_void_p]
    )
    groups = grid[0] * grid[1] * grid[2]
    call(address)(ctypes.addressof(words), 0, groups, scratch.address, ctypes.addressof(status))
    assert scratch.is_intact(), "wrote outside its scratch"
    assert all(m.is_intact() for m in memory.values()), "wrote outside its buffers"
    if status[0]:
        raise Trap(status[0], status[1])
    return {name: m.array.copy() for name, m in memory.items()}


def scratch_of(program: n.Program, args: Mapping[str, int]) -> tuple[list[int], Zoned]:
    offsets, total = [], 0
    for b in program.buffers:
        if b.is_scratch and b.count is not None:
            offsets.append(total)
            total += -(-bind(b.count, args) * b.dtype.nbytes // 64) * 64
    return offsets, Zoned(np.full(total, 0xA5, np.uint8))


def assert_same_as_evaluator(
    program: n.Program,
    arrays: Arrays,
    args: Mapping[str, int],
    grid: Grid = (1, 1, 1),
    *,
    checks: tuple[str, ...] = ("plain", "mask", "trap"),
) -> None:
    """The same bits in every buffer, on every target, in every mode of checking."""
    want = evaluated(program, arrays, args, grid)
    for target in runnable():
        for check in checks:
            (address,) = compiled([program], target, check)
            assert_same_arrays(
                run(address, program, arrays, args, grid),
                want,
                f"{program.name} on {target.name}, {check}",
            )


def evaluated(
    program: n.Program, arrays: Arrays, args: Mapping[str, int], grid: Grid
) -> dict[str, np.ndarray]:
    verify(program)
    want = {name: a.copy() for name, a in arrays.items()}
    evaluate(program, want, args, grid, races=True)
    return want


def assert_same_arrays(got: Arrays, want: Arrays, where: str) -> None:
    for name, expected in want.items():
        assert_same_bits(got[name], expected, f"{where}: {name}")


def assert_same_bits(got: np.ndarray, want: np.ndarray, where: str) -> None:
    words = np.dtype(f"u{got.dtype.itemsize}")
    differs = got.view(words) != want.view(words)
    if got.dtype.kind not in "iub":
        with np.errstate(invalid="ignore"):  # isnan of bfloat16 complains of signalling NaNs
            differs &= ~(np.isnan(got) & np.isnan(want))
    if differs.any():
        i = int(np.argmax(differs))
        raise AssertionError(
            f"{where}[{i}] is {got[i]!r}, should be {want[i]!r} ({int(differs.sum())} of "
            f"{differs.size})"
        )


def random_array(rng: np.random.Generator, dtype: DType, size: int) -> np.ndarray:
    """Any bit pattern of the type; bools are 0 or 1."""
    if dtype.short_name == "bool":
        return rng.integers(0, 2, size).astype(np.bool_)
    return rng.integers(0, 256, size * dtype.nbytes, dtype=np.uint8).view(dtype.np)
