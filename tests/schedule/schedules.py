"""Schedules built by hand, which tests of the language share."""

from __future__ import annotations

from tetrad.core.dtypes import bool_, f32, i32
from tetrad.core.sizes import Dim
from tetrad.core.types import ArrayType
from tetrad.kernel.build import KernelBuilder
from tetrad.kernel.nodes import Program
from tetrad.schedule.build import ScheduleBuilder
from tetrad.schedule.nodes import Schedule

LANES = 4
SEQ = Dim("seq", max=64)
FOUR = ArrayType(f32, (4,))
INDEX = ArrayType(i32, ())
FLAG = ArrayType(bool_, ())


def doubling(name: str = "double") -> Program:
    """y = x + x, four elements a workgroup."""
    k = KernelBuilder(name, LANES)
    x, y = k.buffer("x", f32), k.buffer("y", f32, "write")
    value = k.load(x, k.global_id())
    k.store(y, k.global_id(), value + value)
    return k.finish()


def adding() -> Program:
    """y += x, in place."""
    k = KernelBuilder("add", LANES)
    x, y = k.buffer("x", f32), k.buffer("y", f32, "readwrite")
    i = k.global_id()
    k.store(y, i, k.load(x, i) + k.load(y, i))
    return k.finish()


def comparing() -> Program:
    """y = x[0] < 100."""
    k = KernelBuilder("less", 1)
    x, y = k.buffer("x", f32), k.buffer("y", bool_, "write")
    k.store(y, k.group_id(), k.load(x, k.group_id()) < 100)
    return k.finish()


def doubled(name: str = "f") -> Schedule:
    b = ScheduleBuilder(name)
    b.launch(doubling(), b.input(FOUR), b.output(FOUR), groups=1)
    return b.finish()


def is_small() -> Schedule:
    b = ScheduleBuilder("small")
    b.launch(comparing(), b.input(FOUR), b.output(FLAG), groups=1)
    return b.finish()
