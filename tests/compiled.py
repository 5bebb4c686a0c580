"""Running compiled programs under suspicion: poisoned memory, red zones around every array, any
number of threads.

Shared by conformance tests and the fuzzer. `run` gives the results of machine code,
`run_on_evaluator` those of the kernel evaluator; the two must agree to the bit (the payload and
sign of a NaN are free).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from tetrad.backends.cpu.executable import BoundCall, Executable
from tetrad.backends.cpu.isa import current_target
from tetrad.backends.cpu.memory import Storage, size_class
from tetrad.compiler.pipeline import lower_graph
from tetrad.core.sizes import bind
from tetrad.graph.nodes import Graph
from tetrad.lower.lower import Lowerer
from tetrad.schedule.evaluate import evaluate as evaluate_schedule
from tetrad.schedule.nodes import Schedule
from tetrad.schedule.parse import parse
from tetrad.schedule.text import to_text
from tetrad.schedule.verify import verify

RED_ZONE = 64  # bytes after the arguments; after results it is what is left of their block
RED = 0xC3


def bound(compiled: Executable, dims: Mapping[str, int]) -> BoundCall:
    return compiled.bound(tuple(dims[name] for name in compiled.dims))


def run(
    compiled: Executable,
    arrays: Sequence[np.ndarray],
    dims: Mapping[str, int] | None = None,
    threads: int = 1,
    poison: int = 0xFF,
) -> list[np.ndarray]:
    """The results of machine code. Arena and results hold `poison` before, what lies behind them is
    watched."""
    values = dims or {}
    check_schedule(compiled.schedule)
    runner = bound(compiled, values)
    arguments = [fenced(a) for a in arrays]
    for slot in compiled.schedule.outputs:
        if slot.kind == "constant":
            compiled.constants.address(slot)  # else its memory would come from the poisoned blocks
    runner.arenas.idle[:] = [filled(runner.encoded.arena_bytes, poison)]
    taken = {"input": lambda i: arrays[i].nbytes, "fresh": int, "constant": int}
    dirty = [filled(taken[kind](detail), poison) for kind, detail in runner.plan if kind in taken]
    dirty += [filled(arrays[i].nbytes, poison) for i in runner.copied]
    # back to the pool: the results, and copies of arguments that are changed in place, get these
    # blocks
    del dirty
    results = runner.run(arguments, threads=threads)
    for i, (storage, array) in enumerate(zip(arguments, arrays, strict=True)):
        after = block_bytes(storage.owner)
        assert after[: array.nbytes].tobytes() == array.tobytes(), f"argument {i} was written to"
        fence = after[array.nbytes : array.nbytes + RED_ZONE]
        assert (fence == RED).all(), f"the bytes after argument {i} were written to"
    shapes = [tuple(bind(n, values) for n in kind.shape) for kind in compiled.outputs]
    for i, (storage, (kind, detail)) in enumerate(zip(results, runner.plan, strict=True)):
        if kind == "fresh":
            tail = block_bytes(storage)[detail:]
            assert (tail == poison).all(), f"the bytes after result {i} were written to"
    pairs = zip(results, compiled.outputs, shapes, strict=True)
    return [storage.as_numpy(kind.dtype.np, shape).copy() for storage, kind, shape in pairs]


def check_schedule(schedule: Schedule) -> None:
    """It keeps the rules of the language, and parsing what is printed prints the same."""
    verify(schedule)
    text = to_text(schedule, sources=False)
    assert to_text(parse(text)) == text


def block_bytes(storage: Storage) -> np.ndarray:
    """Every byte of the storage's block, those beyond its size too."""
    whole = Storage(storage.ptr, size_class(storage.nbytes), storage)
    return whole.as_numpy(np.dtype(np.uint8), (whole.nbytes,))


def fenced(array: np.ndarray) -> Storage:
    """The array's bytes in memory of our own, red after the end."""
    block = Storage.allocate(array.nbytes + RED_ZONE)
    raw = block_bytes(block)
    raw[:] = RED
    raw[: array.nbytes] = np.frombuffer(array.tobytes(), np.uint8)
    return Storage(block.ptr, array.nbytes, block)


def filled(nbytes: int, byte: int) -> Storage:
    storage = Storage.allocate(nbytes)
    block_bytes(storage)[:] = byte
    return storage


def run_on_evaluator(
    compiled: Executable, arrays: Sequence[np.ndarray], dims: Mapping[str, int] | None = None
) -> list[np.ndarray]:
    return evaluate_schedule(compiled.schedule, arrays, dims or {})


def evaluate_lowered(
    graph: Graph, arrays: Sequence[np.ndarray], dims: Mapping[str, int] | None = None
) -> list[np.ndarray]:
    """The graph optimised, lowered and run on the kernel evaluator; no machine code is made."""
    schedule = lower_graph(graph, Lowerer(current_target().machine))
    check_schedule(schedule)
    return evaluate_schedule(schedule, arrays, dims or {})


def difference(got: np.ndarray, want: np.ndarray) -> str | None:
    """What differs in the bits of two arrays, or None; NaN equals NaN."""
    if got.dtype != want.dtype or got.shape != want.shape:
        return f"got {got.dtype} {list(got.shape)}, want {want.dtype} {list(want.shape)}"
    if got.tobytes() == want.tobytes():
        return None
    if got.dtype.kind == "c":
        return difference(parts_of(got), parts_of(want))
    same = bits_of(got) == bits_of(want)
    if got.dtype.kind not in "biu":
        same |= np.isnan(got) & np.isnan(want)
    if same.all():
        return None
    place = tuple(int(i) for i in np.argwhere(~same)[0])
    count = int((~same).sum())
    return (
        f"{count} of {got.size} elements differ, first at {list(place)}: got {got[place]!r}, "
        "want "
        f"{want[place]!r}"
    )


def parts_of(array: np.ndarray) -> np.ndarray:
    """Real and imaginary parts, along a new last axis."""
    return np.ascontiguousarray(array).reshape(*array.shape, 1).view(array.real.dtype)


def bits_of(array: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(array).view(f"u{array.dtype.itemsize}").reshape(array.shape)
