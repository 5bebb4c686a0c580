"""Bench, kernel library: products with weights in groups of four bits, and their quantisers,
against memory, PyTorch, bitsandbytes and NumPy on two threads.

    python bench/kernels.py [--only matvec] [--quick]

ratio = their time / our time; of a matrix-vector product our share of the bandwidth that the
quickest of two plain reads reaches in turns with it. Needs torch and bitsandbytes beside Tetrad.
bitsandbytes has no INT4: its other type of four bits, FP4, stands against ours.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from common import QUICK, THREADS, Function, Options, Report, Row, measure, options
from dispatch import dispatch_row

import tetrad as td
from tetrad.backends.cuda.assembler import assemble, ptxas
from tetrad.core.errors import CompileError

WIDTH = 4096  # of weights, both ways
ROTATING = 26  # weights: more than 200 MB, so that none of them waits in a cache
READ = 64 << 20  # numbers of f32 that plain reads go over
MANY = 64 << 20  # weights that are quantised
GROUPS = {"int4": 128, "nf4": 64}
ARCHITECTURES = ("sm_75", "sm_80", "sm_90", "sm_100", "sm_120")
PATHS = {"8-bit activations": "int8", "float": None}


def normal(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape, dtype=np.float32)


def product(name: str, activations: str | None) -> Callable[..., Any]:
    """A compiled product of x with the parts of a weight."""

    def run(x: Any, *parts: Any) -> Any:
        weight = td.quant.from_parts(*parts, scheme=name, group=GROUPS[name])
        return td.quant.matmul(x, weight, activations=activations)

    return td.jit(run)


def is_near(found: Any, want: np.ndarray, activations: str | None) -> bool:
    """Within what rounding to 8 bits, or of a sum of floats, allows."""
    off = np.abs(np.asarray(found) - want).max() / np.abs(want).max()
    return bool(off < (0.02 if activations else 1e-5))


# -- from memory -----------------------------------------------------------------------------------


def matvecs(chosen: Options) -> Iterator[Row]:
    """All weights one after the other, each with one row."""
    wanted = {"int4": {"8-bit activations": 0.8}, "nf4": {"8-bit activations": 0.6}}
    for name, group in GROUPS.items():
        rows = {path: f"{name}-g{group} matvec, {path}" for path in PATHS}
        if not any(chosen.wants(row) for row in rows.values()):
            continue
        weights = [
            td.quant.quantize(normal(WIDTH, WIDTH, seed=i), name, group=group)
            for i in range(ROTATING)
        ]
        for path, activations in PATHS.items():
            if chosen.wants(rows[path]):
                goal = wanted[name].get(path)
                yield matvec(rows[path], weights, product(name, activations), activations, goal,
                             chosen)  # fmt: skip


def matvec(
    title: str, weights: list[Any], run: Callable[..., Any], activations: str | None,
    goal: float | None, chosen: Options,
) -> Row:  # fmt: skip
    x, parts = td.asarray(normal(1, WIDTH, seed=99)), [w.parts for w in weights]
    is_right = all(
        is_near(run(x, *w.parts), np.asarray(x) @ np.asarray(w.dequantize()).T, activations)
        for w in weights[:2]
    )

    def sweep() -> None:
        for each in parts:
            run(x, *each)

    timing = measure({"ours": sweep, **reads()}, chosen.budget)
    moved = sum(w.nbytes for w in weights)
    speed = moved / timing.best["ours"]
    peer = min(("our read", "NumPy read"), key=lambda name: timing.best[name])
    roof = 4 * READ / timing.best[peer]
    return Row(title, speed, "B/s", speed / roof, goal, peer, roof, timing.foreign, is_right)


def reads() -> Mapping[str, Function]:
    """Plain reads of more memory than caches hold: a sum of ours, the maximum of NumPy."""
    numbers = td.asarray(np.ones(READ, np.float32))
    values, total = np.asarray(numbers), td.jit(td.sum)
    return {"our read": lambda: total(numbers), "NumPy read": lambda: values.max()}


# -- linear layers ---------------------------------------------------------------------------------


def linears(chosen: Options) -> Iterator[Row]:
    goals = {(64, "8-bit activations"): 3.0, (64, "float"): 1.0}
    for rows in (64, 1):
        for path, activations in PATHS.items():
            title = f"int4-g128 linear {rows}x{WIDTH}x{WIDTH}, {path}"
            if chosen.wants(title):
                yield linear(title, rows, activations, goals.get((rows, path), 4.0), chosen)


def linear(title: str, rows: int, activations: str | None, goal: float, chosen: Options) -> Row:
    weight = td.quant.quantize(normal(WIDTH, WIDTH), "int4", group=GROUPS["int4"])
    x, run = td.asarray(normal(rows, WIDTH, seed=1)), product("int4", activations)
    numbers, parts = np.array(weight.dequantize()), weight.parts
    their_x, their_weight = (torch().from_numpy(np.array(a)) for a in (np.asarray(x), numbers))
    theirs = torch().nn.functional.linear
    is_right = is_near(run(x, *parts), theirs(their_x, their_weight).numpy(), activations)
    contestants = {
        "ours": lambda: run(x, *parts),
        "PyTorch f32": lambda: theirs(their_x, their_weight),
    }
    timing = measure(contestants, chosen.budget)
    ours, other = timing.best["ours"], timing.best["PyTorch f32"]
    return Row(title, ours, "s", other / ours, goal, "PyTorch f32", other, timing.foreign, is_right)


def torch() -> Any:
    import torch as found

    found.set_num_threads(THREADS)
    return found


# -- quantisers ------------------------------------------------------------------------------------


def quantisers(chosen: Options) -> Iterator[Row]:
    """64 M weights, groups of 64, to codes and back."""
    for name, their_name in (("int4", "fp4"), ("nf4", "nf4")):
        for direction in ("quantise", "dequantise"):
            for peer, goal in (("bitsandbytes", 2.0), ("NumPy", 10.0)):
                title = f"{direction} 64 M to {name}, {peer}"
                if chosen.wants(title):
                    make = bitsandbytes_pair if peer == "bitsandbytes" else numpy_pair
                    used = their_name if peer == "bitsandbytes" else name
                    yield quantiser(title, name, direction, make(used, direction), peer, goal,
                                    chosen)  # fmt: skip


def quantiser(
    title: str, name: str, direction: str, theirs: Function, peer: str, goal: float,
    chosen: Options,
) -> Row:  # fmt: skip
    x = td.asarray(normal(MANY))
    q = td.quant.quantize(x, name)
    scale = np.repeat(np.asarray(q.scale), q.group)
    off = np.abs(np.asarray(q.dequantize()) - np.asarray(x))
    is_right = bool((off <= scale * (0.153 if name == "nf4" else 1.0)).all())
    ours: Function = q.dequantize
    if direction == "quantise":
        ours = partial(td.quant.quantize, x, name)
    timing = measure({"ours": ours, peer: theirs}, chosen.budget)
    best, other = timing.best["ours"], timing.best[peer]
    return Row(title, best, "s", other / best, goal, peer, other, timing.foreign, is_right)


def bitsandbytes_pair(name: str, direction: str) -> Function:
    import bitsandbytes.functional as functional

    x = torch().from_numpy(normal(MANY))
    if direction == "quantise":
        return lambda: functional.quantize_4bit(x, blocksize=64, quant_type=name)
    codes, state = functional.quantize_4bit(x, blocksize=64, quant_type=name)
    return lambda: functional.dequantize_4bit(codes, state)


def numpy_pair(name: str, direction: str) -> Function:
    """Plainly written, in pieces that stay in the cache."""
    pieces = normal(MANY).reshape(-1, 1024, 64)
    if direction == "quantise":
        return lambda: [numpy_codes(piece, name) for piece in pieces]
    packed = [numpy_codes(piece, name) for piece in pieces]
    return lambda: [numpy_numbers(*one, name) for one in packed]


def numpy_codes(x: np.ndarray, name: str) -> tuple[np.ndarray, ...]:
    from tetrad.quant.groups import MIDPOINTS

    if name == "nf4":
        scale = np.abs(x).max(axis=1, keepdims=True)
        codes = np.searchsorted(np.float32(MIDPOINTS), x / scale).astype(np.uint8)
        return codes[:, ::2] | codes[:, 1::2] << 4, scale
    low, high = np.minimum(x.min(axis=1, keepdims=True), 0), x.max(axis=1, keepdims=True)
    scale = (high - low) / np.float32(15)
    zero = np.rint(-low / scale)
    codes = np.clip(np.rint(x / scale) + zero, 0, 15).astype(np.uint8)
    return codes[:, ::2] | codes[:, 1::2] << 4, scale, zero


def numpy_numbers(packed: np.ndarray, scale: np.ndarray, *rest: Any) -> np.ndarray:
    from tetrad.quant.groups import NF4

    *zero, name = rest
    codes = np.empty((len(packed), 64), np.uint8)
    codes[:, ::2], codes[:, 1::2] = packed & 15, packed >> 4
    if name == "nf4":
        return np.float32(NF4)[codes] * scale
    return (codes.astype(np.float32) - zero[0]) * scale


# -- 4-bit linear layers ---------------------------------------------------------------------------


def linear_4bit_rows(chosen: Options) -> Iterator[Row]:
    """The grouped 4-bit linear layer on one thread; with rows in 8 bits for information."""
    name = "4-bit linear 256x4096 g64, one thread"
    if not chosen.wants(name):
        return
    command = [sys.executable, str(Path(__file__).parent / "linear_4bit.py")]
    one_thread = {**os.environ, "TETRAD_THREADS": "1"}
    words = ["quick"] if chosen.budget is QUICK else []
    done = subprocess.run(command + words, env=one_thread, check=True, stdout=subprocess.PIPE)
    told = json.loads(done.stdout)
    for key, label, goal in (("ours", name, 4.0), ("int8", "the same, rows in 8 bits", None)):
        yield Row(
            label, told[key], "s", told["theirs"] / told[key], goal, "plain C", told["theirs"],
            foreign=told["foreign"], is_right=told["is_right"],
        )  # fmt: skip


# -- launches and GPU code -------------------------------------------------------------------------


def launches(chosen: Options) -> Iterator[Row]:
    if chosen.wants("dispatch of a small resident program"):
        yield dispatch_row(chosen.budget)


def gpu_code(chosen: Options) -> Iterator[Row]:
    """Every registered program for every architecture: how many assemble, and what those of the
    INT4 family spill."""
    name, found = "PTX that assembles, all entries", list(td.kernel.registry.entries())
    if not chosen.wants(name) or ptxas() is None:
        return
    failed, spilled = [], 0
    for entry in found:
        for arch in ARCHITECTURES:
            try:
                used = assemble(td.kernel.ptx(entry.build(), arch=arch), arch)
            except CompileError as error:
                failed.append(f"{entry.id} {arch}: {error}")
                continue
            spilled += (used.spill_stores + used.spill_loads) * ("4" in entry.id)
    total = len(found) * len(ARCHITECTURES)
    told = f"{spilled} bytes spilled by the INT4 family" + "".join(f"; {one}" for one in failed)
    yield Row(
        name, total - len(failed), "", (total - len(failed)) / total, 1.0, "all", total,
        is_right=not spilled, bound=told,
    )  # fmt: skip


# -- all of them -----------------------------------------------------------------------------------

SECTIONS: tuple[Callable[[Options], Iterator[Row]], ...] = (
    matvecs, linears, quantisers, linear_4bit_rows, launches, gpu_code,
)  # fmt: skip


def main() -> int:
    # bitsandbytes asks for a package that has the name of this file
    sys.path[:] = [path for path in sys.path if Path(path).resolve() != Path(__file__).parent]
    chosen = options("kernel library: products and quantisers of four bits")
    report = Report("kernels of the library")
    for section in SECTIONS:
        for row in section(chosen):
            report.add(row)
    return report.finish(chosen)


if __name__ == "__main__":
    sys.exit(main())
