"""A program with data, and the shapes of workgroups that cases are made for."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np

from tests.backends.llvm.machine import Grid
from tetrad.core.dtypes import DType
from tetrad.kernel import nodes as n
from tetrad.kernel.build import KernelBuilder, Val

SCALAR, FULL, MASKED = 1, 16, 12  # lanes of a workgroup
SHAPES = (SCALAR, FULL, MASKED)
PURE = (SCALAR, FULL)  # for what a mask cannot change


@dataclass(frozen=True)
class Case:
    program: n.Program
    arrays: Mapping[str, np.ndarray]
    args: Mapping[str, int] = field(default_factory=dict)
    grid: Grid = (1, 1, 1)

    @property
    def name(self) -> str:
        return self.program.name


def elementwise(
    name: str, width: int, f: Callable[..., Val], *columns: tuple[DType, np.ndarray]
) -> Case:
    """y[i] = f(x0[i], ...); columns are repeated until they fill the last workgroup."""
    k = KernelBuilder(f"{name} x{width}", workgroup=width)
    inputs = [k.buffer(f"x{i}", dtype) for i, (dtype, _) in enumerate(columns)]
    result = f(k, *(k.load(x, k.global_id()) for x in inputs))
    k.store(k.buffer("y", result.dtype, "write"), k.global_id(), result)
    groups = -(-len(columns[0][1]) // width)
    arrays = {f"x{i}": np.resize(column, groups * width) for i, (_, column) in enumerate(columns)}
    return Case(
        k.finish(), {**arrays, "y": np.zeros(groups * width, result.dtype.np)}, {}, (groups, 1, 1)
    )
