"""Kernels on the simulator: a program and its data in, the bytes that a device should give out."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from tests.backends.cuda.simulator import Grid, simulate
from tetrad.backends.cuda.ptx import Emission, emission
from tetrad.backends.cuda.targets import architecture_named
from tetrad.core.sizes import bind, dims_of
from tetrad.kernel import nodes as n
from tetrad.kernel.evaluate import KernelTrap


def run(
    program: n.Program,
    arrays: Mapping[str, np.ndarray],
    args: Mapping[str, int],
    grid: Grid = (1, 1, 1),
    arch: str = "sm_90",
    check: str = "mask",
) -> dict[str, np.ndarray]:
    """The arrays after the launch; a trap is raised as the evaluator raises it."""
    made = emission(program, architecture_named(arch), check)
    return launch(made, program, arrays, args, grid)


def launch(
    made: Emission,
    program: n.Program,
    arrays: Mapping[str, np.ndarray],
    args: Mapping[str, int],
    grid: Grid,
) -> dict[str, np.ndarray]:
    buffers, numbers, status = {}, {}, ""
    for p in made.layout.parameters:
        if p.role == "pointer":
            buffers[p.name] = arrays[p.of]
        elif p.role == "argument":
            numbers[p.name] = args[p.of]
        elif p.role == "length":
            numbers[p.name] = length(program, p.of, arrays[p.of], args)
        else:
            buffers[p.name], status = np.zeros(2, np.int64), p.name
    after = simulate(made.text, buffers, numbers, grid, made.layout.dynamic_bytes(args))
    if status and after[status][0]:
        code, value = (int(word) for word in after[status])
        raise KernelTrap(program.name, code, value)
    named = {p.name: p.of for p in made.layout.parameters if p.role == "pointer"}
    return {named[name]: array for name, array in after.items() if name in named}


def length(program: n.Program, name: str, array: np.ndarray, args: Mapping[str, int]) -> int:
    """As dispatch has it: what the program states, else what there is."""
    count = next(b.count for b in program.buffers if b.name == name)
    known = count is not None and {d.name for d in dims_of(count)} <= args.keys()
    return bind(count, args) if known and count is not None else array.size
