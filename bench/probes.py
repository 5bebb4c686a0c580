"""Bench, probes: can the emitter and the runtime reach the hardware? One thread, as a share of a
roof of the same run.

    python bench/probes.py [--only attention] [--quick]

Each probe is a kernel in the kernel language (`kernels.py`), checked against the evaluator bit for
bit, then timed beside its roof. Run it after every change of an emitter.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from importlib.util import find_spec

import core
import numpy as np
import probe_kernels as kernels
from common import Budget, Function, Report, Row, bound_by, measure, options, show
from hand import hand_q4
from native import (
    SPAN,
    Roof,
    aligned,
    dot_peak,
    entry_of,
    fma_peak,
    hand_launcher,
    launcher,
    read_program,
    repeated,
    runner,
    same_as_evaluator,
)

import tetrad as td
from tetrad.backends.cpu.isa import current_target
from tetrad.backends.cpu.memory import Storage
from tetrad.backends.cpu.pool import run
from tetrad.backends.cpu.table import Table
from tetrad.compiler.driver import compile_graph
from tetrad.core.dtypes import f32
from tetrad.core.machine import RegisterTile
from tetrad.kernel.build import KernelBuilder
from tetrad.kernel.nodes import Program

Array = np.ndarray
Probe = Callable[[Budget], Iterator[Row]]


def random(seed: int) -> np.random.Generator:
    return np.random.default_rng(seed)


@dataclass(frozen=True, slots=True)
class Share:
    """What a probe should reach: so much of the work per second of that roof."""

    name: str
    roof: str
    unit: str
    at_least: float


def compare(
    goal: Share,
    ours: Roof,
    roof: Roof,
    is_right: bool,
    budget: Budget,
    limits: Mapping[str, Roof] | None = None,
) -> Row:
    """Our rate beside that of the roof. `limits`: what else may bound us, in units of the work of
    one call of ours."""
    timing = measure(
        {"ours": ours.run, "roof": roof.run, **{n: r.run for n, r in (limits or {}).items()}},
        budget,
    )
    rate, limit = ours.work / timing.best["ours"], roof.work / timing.best["roof"]
    needed = {name: timing.best[name] / other.work for name, other in (limits or {}).items()}
    bound = bound_by(needed, timing.best["ours"])
    return Row(
        goal.name,
        rate,
        goal.unit,
        rate / limit,
        goal.at_least,
        goal.roof,
        limit,
        timing.foreign,
        is_right,
        bound,
    )


# -- low-bit products ------------------------------------------------------------------------------


def lowbit_data(rows: int, columns: int, tokens: int) -> dict[str, Array]:
    """Random weights in blocks, x as signed bytes, and per block of x its scale and its scaled
    sum."""
    g, blocks = random(1), columns // kernels.BLOCK
    groups = rows // kernels.LANES
    words = aligned(groups * blocks * kernels.BLOCK_WORDS, np.uint32)
    packed = words.reshape(-1, kernels.BLOCK_WORDS)
    packed[:, 16:] = g.integers(0, 1 << 32, packed[:, 16:].shape, np.uint32)
    packed.view(np.float16)[:, :32] = g.uniform(-1, 1, (len(packed), 32))
    x, xs, y = (
        aligned(tokens * columns // 4, np.uint32),
        aligned(tokens * blocks * 2),
        aligned(tokens * rows),
    )
    x.view(np.int8)[:] = g.integers(-128, 128, tokens * columns)
    scales = g.uniform(0.5, 1, (tokens, blocks)).astype(np.float32)
    sums = x.view(np.int8).reshape(tokens, blocks, -1).sum(-1) * scales
    xs[:] = np.stack([scales, sums], -1).ravel()
    return {"words": words, "halves": words.view(np.float16), "x": x, "xs": xs, "y": y}


def lowbit_reference(data: dict[str, Array], rows: int, columns: int, tokens: int) -> Array:
    """The same product in f64 from decoded weights."""
    blocks = columns // kernels.BLOCK
    packed = data["words"].reshape(rows // 16, blocks, kernels.BLOCK_WORDS)
    halves = packed.view(np.float16).astype(np.float64)
    scale, low = halves[..., :16, None], halves[..., 16:32, None]
    raw = packed[..., 16:].reshape(rows // 16, blocks, 4, 16, 1).view(np.uint8)
    nibbles = np.stack([raw & 15, raw >> 4], -2)  # group, block, word, row, half, column
    weights = nibbles.transpose(0, 1, 3, 2, 4, 5).reshape(rows // 16, blocks, 16, 32) * scale + low
    matrix = weights.transpose(0, 2, 1, 3).reshape(rows, columns)
    scales = data["xs"].reshape(tokens, blocks, 2)[..., :1].astype(np.float64)
    x = data["x"].view(np.int8).reshape(tokens, blocks, 32) * scales
    return x.reshape(tokens, columns) @ matrix.T


def lowbit_is_right(program: Program, tokens: int) -> bool:
    """Bits against the evaluator, values against decoded weights in f64."""
    rows, columns = 48, 160
    data, args = (
        lowbit_data(rows, columns, tokens),
        {"blocks": columns // 32, "rows": rows, "count": tokens},
    )
    launcher(program, data, args, rows // 16)()
    want = lowbit_reference(data, rows, columns, tokens)
    close = np.allclose(
        data["y"].reshape(tokens, rows), want, rtol=1e-4, atol=1e-4 * np.abs(want).max()
    )
    return close and same_as_evaluator(program, data, args, rows // 16)


def q4_matvec(budget: Budget) -> Iterator[Row]:
    """Weights stay in cache, so the instructions count, not the memory."""
    text = hand_q4(current_target())
    if text is None:
        print(
            f"  no hand-written kernel for {current_target().dot4}: the 4-bit matvec has no roof "
            "here"
        )
        return
    rows, columns, trips = 1024, 512, 32
    program, data = kernels.lowbit(1), lowbit_data(rows, columns, 1)
    args = {"blocks": columns // 32, "rows": rows, "count": 1}
    hand_y = aligned(rows)
    words = [data[name].ctypes.data for name in ("words", "x", "xs")] + [
        hand_y.ctypes.data,
        columns // 32,
    ]
    work = float(data["words"].nbytes) * trips
    ours = Roof(launcher(program, data, args, rows // 16, trips), work)
    hand = Roof(hand_launcher(text, "hand_q4", words, rows // 16, trips), work)
    ours.run()
    hand.run()
    is_right = data["y"].tobytes() == hand_y.tobytes() and lowbit_is_right(program, 1)
    goal = Share("4-bit matvec, from cache", "hand LLVM", "B/s", 0.9)
    yield compare(
        goal, ours, hand, is_right, budget, matvec_limits(data["words"], rows * columns, trips)
    )


def matvec_limits(words: Array, products: int, trips: int) -> dict[str, Roof]:
    """Reading the same words, and doing the same dot products."""
    x, dots = words.view(np.float32), dot_peak()
    groups = x.size // SPAN
    reading = launcher(read_program(), {"x": x, "y": aligned(16 * groups)}, {}, groups, trips)
    limits = {"cache": Roof(reading, groups * SPAN / x.size)}
    return (
        limits
        if dots is None
        else limits | {"dot products": Roof(dots.run, dots.work / (products * trips))}
    )


def lowbit_tile(budget: Budget) -> Iterator[Row]:
    roof = dot_peak()
    if roof is None:
        print(
            f"  no byte dot product in {current_target().name}: the low-bit tile has no roof here"
        )
        return
    tokens, rows, columns, trips = 8, 512, 512, 16
    program = kernels.lowbit(min(tokens, current_target().machine.lowbit_tokens))
    data, args = (
        lowbit_data(rows, columns, tokens),
        {"blocks": columns // 32, "rows": rows, "count": tokens},
    )
    ours = Roof(
        launcher(program, data, args, rows // 16, trips), float(tokens * rows * columns * trips)
    )
    name = f"4-bit tile, {tokens} tokens ({program.name.rpartition('_')[2]} a tile)"
    yield compare(
        Share(name, "int8 peak", "mac/s", 0.6), ours, roof, lowbit_is_right(program, tokens), budget
    )


# -- float products --------------------------------------------------------------------------------


def matmul_data(tile: RegisterTile, groups: int, depth: int, panels: int) -> dict[str, Array]:
    g, width = random(2), tile.vectors * kernels.LANES
    data = {
        "a": aligned(groups * tile.rows * depth),
        "b": aligned(panels * depth * width),
        "c": aligned(groups * tile.rows * panels * width),
    }
    for name in ("a", "b"):
        data[name][:] = g.standard_normal(data[name].size)
    return data


def matmul_is_right(program: Program, tile: RegisterTile) -> bool:
    groups, depth, panels = 2, 32, 3
    data, width = matmul_data(tile, groups, depth, panels), tile.vectors * kernels.LANES
    launcher(program, data, {"depth": depth, "panels": panels}, groups)()
    a = (
        data["a"]
        .reshape(groups, depth, tile.rows)
        .transpose(0, 2, 1)
        .reshape(-1, depth)
        .astype(np.float64)
    )
    b = data["b"].reshape(panels, depth, width).transpose(1, 0, 2).reshape(depth, -1)
    close = np.allclose(data["c"].reshape(groups * tile.rows, -1), a @ b, atol=1e-4)
    return close and same_as_evaluator(program, data, {"depth": depth, "panels": panels}, groups)


def matmul_tile(budget: Budget) -> Iterator[Row]:
    tile, depth, panels, groups, trips = current_target().machine.f32_tile, 256, 4, 24, 16
    program, data = kernels.matmul(tile), matmul_data(tile, groups, depth, panels)
    work = 2.0 * data["c"].size * depth * trips
    ours = Roof(launcher(program, data, {"depth": depth, "panels": panels}, groups, trips), work)
    name = f"matmul tile {tile.rows}x{tile.vectors * kernels.LANES} f32"
    yield compare(
        Share(name, "fma peak", "flop/s", 0.9),
        ours,
        fma_peak(),
        matmul_is_right(program, tile),
        budget,
    )


# -- attention -------------------------------------------------------------------------------------

CHANNELS = 64


def attention_data(rows: int, length: int) -> dict[str, Array]:
    g, channels = random(3), CHANNELS
    data = {
        name: aligned(n * channels, kind)
        for name, n, kind in (
            ("q", rows, np.float32),
            ("keys", length, np.float16),
            ("values", length, np.float16),
            ("out", rows, np.float32),
        )
    }
    data["q"][:] = g.standard_normal(data["q"].size) / 2
    for name in ("keys", "values"):
        data[name][:] = g.standard_normal(data[name].size)
    return data


def attention_reference(data: dict[str, Array], length: int) -> Array:
    q = data["q"].reshape(-1, CHANNELS).astype(np.float64)
    keys = (
        data["keys"]
        .reshape(length // 16, CHANNELS, 16)
        .transpose(0, 2, 1)
        .reshape(length, CHANNELS)
        .astype(np.float64)
    )
    scores = q @ keys.T
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return (
        weights
        / weights.sum(-1, keepdims=True)
        @ data["values"].reshape(length, CHANNELS).astype(np.float64)
    )


def attention_is_right(program: Program, rows: int) -> bool:
    length = 2 * kernels.KEYS
    data = attention_data(rows, length)
    launcher(program, data, {"blocks": 2}, 1)()
    close = np.allclose(data["out"].reshape(rows, -1), attention_reference(data, length), atol=1e-5)
    return close and same_as_evaluator(program, data, {"blocks": 2}, 1)


def attention(budget: Budget) -> Iterator[Row]:
    tile, length, groups, trips = current_target().machine.f32_tile, 2048, 4, 4
    program, data = (
        kernels.Attention(tile, CHANNELS).program(),
        attention_data(groups * tile.rows, length),
    )
    work = 4.0 * groups * tile.rows * length * CHANNELS * trips
    ours = Roof(launcher(program, data, {"blocks": length // kernels.KEYS}, groups, trips), work)
    goal = Share(
        f"attention, {groups * tile.rows} queries x {length} f16 keys", "fma peak", "flop/s", 0.6
    )
    yield compare(goal, ours, fma_peak(), attention_is_right(program, tile.rows), budget)


# -- whole calls, on two threads -------------------------------------------------------------------


def softmax(budget: Budget) -> Iterator[Row]:
    if find_spec("jax") is None:
        print("  no JAX in this environment (make peers): softmax has no peer here")
        return
    yield core.run_case(core.CASES["softmax 4096x1024"], budget)


# -- the runtime -----------------------------------------------------------------------------------


def nothing() -> Program:
    """A kernel that stores one vector."""
    k = KernelBuilder("nothing")
    k.store(k.buffer("y", f32, "write"), k.group_id() * 16 + k.lane(), k.const(1.0, f32))
    return k.finish()


def barrier(budget: Budget) -> Iterator[Row]:
    """Kernels that do nothing, one after another: what is left is the schedule loop and its
    barriers."""
    count, trips = 32, 32
    y = aligned(32)
    table = repeated(Table([entry_of(nothing(), {"y": y}, {}, 2)] * count), trips)
    timing = measure({"two": runner(table, 2, y), "one": runner(table, 1, y)}, budget)
    two, one = (timing.best[name] / (count * trips) for name in ("two", "one"))
    bound = f"{show(one, 's')} of it is the kernel and the table"
    yield Row(
        "kernel and barrier, two threads",
        two,
        "s",
        200e-9 / two,
        1.0,
        "limit",
        200e-9,
        timing.foreign,
        bool(np.all(y == 1)),
        bound,
    )


def call_path(budget: Budget) -> Iterator[Row]:
    """x + 1 on 16 floats, layer by layer: each contains the one before."""
    x = td.asarray(np.zeros(16, np.float32))
    jitted = td.jit(lambda x: x + 1)
    is_right = bool(np.all(np.asarray(jitted(x)) == 1))
    compiled = compile_graph(jitted.trace(x).graph)
    storages, out = [Storage.from_numpy(np.zeros(16, np.float32))], Storage.allocate(64)
    table = compiled.bound().table
    bases = [storages[0].ptr, out.ptr, Storage.allocate(64).ptr]
    native = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_int)(("abs", ctypes.CDLL(None)))
    layers: dict[str, Function] = {
        "call path: one ctypes call": lambda: native(1),
        "call path: + table on native code": lambda: run(table, bases),
        "call path: + memory for the result": lambda: compiled.run(storages),
        "call path: + jit wrapper = a call": lambda: jitted(x),
    }
    timing = measure(layers, budget)
    for name, seconds in timing.best.items():
        yield Row(name, seconds, "s", foreign=timing.foreign, is_right=is_right)


PROBES: dict[str, Probe] = {
    "4-bit matvec": q4_matvec,
    "matmul tile": matmul_tile,
    "4-bit tile": lowbit_tile,
    "softmax": softmax,
    "attention": attention,
    "barrier": barrier,
    "call path": call_path,
}


def main() -> int:
    chosen = options(__doc__ or "")
    report = Report("probes of one thread")
    for name, probe in PROBES.items():
        if chosen.wants(name):
            for row in probe(chosen.budget):
                report.add(row)
    return report.finish(chosen)


if __name__ == "__main__":
    sys.exit(main())
