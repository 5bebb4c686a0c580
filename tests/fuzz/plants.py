"""Defects planted on purpose, by name: each breaks one station of the compiler the way such code
really breaks.

`python -m tests.fuzz --plant NAME` installs one in every child; the fuzzer has to notice
(`test_planted.py`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

from tetrad.backends.cpu import compile as kernels
from tetrad.backends.cpu import encode as schedule
from tetrad.backends.cpu.isa import FAMILIES
from tetrad.backends.cpu.table import KernelEntry
from tetrad.backends.llvm import convert, rules
from tetrad.backends.llvm.emitter import Codegen, Emitted
from tetrad.core.dtypes import DType, bool_, index
from tetrad.core.sizes import Size
from tetrad.graph.nodes import Node
from tetrad.kernel import nodes as n
from tetrad.kernel.build import KernelBuilder, Val
from tetrad.ops.movement import At, Reader, pad, slice_, transpose
from tetrad.ops.reduce import MAX
from tetrad.ops.scatter import kernel as scatter
from tetrad.passes.simplify import simplify
from tetrad.schedule.plan import Life, Plan, plan

PLANTS: dict[str, Callable[[], None]] = {}


def plant(function: Callable[[], None]) -> Callable[[], None]:
    PLANTS[function.__name__] = function
    return function


# -- machine code ----------------------------------------------------------------------------------


def edit_llvm(pattern: str, replacement: str) -> None:
    emit = kernels.emit_module

    def emit_wrong(programs: dict[str, n.Program], *rest: Any) -> str:
        return re.sub(pattern, replacement, emit(programs, *rest))

    kernels.emit_module = emit_wrong


@plant
def tail_mask_one_too_wide() -> None:
    """The last vector of a row writes one element past its end."""
    edit_llvm(r"icmp slt (<16 x i32> <i32 0, )", r"icmp sle \1")


@plant
def maximum_drops_nan() -> None:
    """maxnum is the C library's fmax: it ignores a NaN."""

    def wrong(cg: Codegen, op: str, dtype: DType, a: str, b: str) -> str:
        return cg.elementwise(f"llvm.{op}num", cg.vector_type(dtype), a, b)

    for family in FAMILIES.values():
        object.__setattr__(family.isa, "extremum", wrong)


@plant
def fma_rounds_twice() -> None:
    def emit_fma(cg: Codegen, node: n.Fma) -> Emitted:
        varying = cg.is_varying(node)
        kind = cg.type(node.dtype, varying)
        a, b, c = (cg.operand(x, varying) for x in (node.a, node.b, node.c))
        product = cg.new(f"fmul {kind} {a}, {b}")
        return Emitted(cg.new(f"fadd {kind} {product}, {c}"), rules.form(varying))

    rules.rules.table[n.Fma] = emit_fma


@plant
def cast_does_not_saturate() -> None:
    cast = convert.cast

    def wrong(cg: Codegen, x: str, source: DType, goal: DType, varying: bool) -> str:
        if source.kind == "f" and source.bits >= 32 and goal.is_integer:
            word = "fptosi" if goal.is_signed else "fptoui"
            made = cg.new(f"{word} {cg.type(source, varying)} {x} to {cg.type(goal, varying)}")
            return cg.new(f"freeze {cg.type(goal, varying)} {made}")
        return cast(cg, x, source, goal, varying)

    convert.cast = wrong


@plant
def unsigned_numbers_compared_as_signed() -> None:
    edit_llvm(r"icmp u(lt|le|gt|ge) <16 x i(8|32|64)>", r"icmp s\1 <16 x i\2>")


# -- lowering --------------------------------------------------------------------------------------


@plant
def negative_index_scatters_to_the_front() -> None:
    """Negative indices are not counted from the end; the bounds check is gone too."""

    def unwrapped(k: KernelBuilder, given: Val, size: Size, value_of: Any) -> tuple[Val, Val]:
        raw = k.cast(given, index)
        return k.select(raw < 0, k.index(0), raw), k.const(False, bool_)

    scatter.narrow_index = unwrapped


@plant
def transpose_reads_the_inverse() -> None:
    """perm and its inverse are the same for two axes, so small tests pass."""

    def wrong(k: KernelBuilder, at: At, x: Reader, *, perm: tuple[int, ...]) -> Val:
        return x(tuple(at[p] for p in perm))

    transpose.read_rule = wrong


@plant
def slice_forgets_its_step() -> None:
    def wrong(
        k: KernelBuilder, at: At, x: Reader, *, starts: Any, sizes: Any, steps: Sequence[int]
    ) -> Val:
        cuts = zip(at, starts, steps, strict=True)
        return x(tuple(i * (1 if step > 0 else -1) + x.value_of(start) for i, start, step in cuts))

    slice_.read_rule = wrong


@plant
def maximum_starts_from_zero() -> None:
    object.__setattr__(MAX, "init", lambda dtype: 0)


@plant
def padding_ends_too_early() -> None:
    """The last element along the last axis is taken for padding."""

    def wrong(k: KernelBuilder, at: At, x: Reader, *, low: Any, high: Any, value: float) -> Val:
        filled = k.local(k.const(x.dtype.np.type(value).item(), x.dtype))
        inner = tuple(i - x.value_of(size) for i, size in zip(at, low, strict=True))
        inside = k.const(True, bool_)
        for axis, i in enumerate(inner):
            end = x.size(axis) - (1 if axis == len(inner) - 1 else 0)
            inside = k.binary("and", inside, k.binary("and", i >= 0, i < end))
        with k.when(inside):
            filled.set(x(inner))
        return filled.get()

    pad.read_rule = wrong


# -- passes ----------------------------------------------------------------------------------------


def replace_rule(name: str, action: Callable[..., Any]) -> None:
    """Another function behind a rule of the pipeline."""
    (rule,) = [r for r in simplify.rules if r.name == name]
    object.__setattr__(rule, "action", action)


@plant
def composed_slices_lose_a_stride() -> None:
    """The start of the second slice is not scaled by the step of the first."""

    def wrong(inner: Node, starts: Any, sizes: Any, steps: Any) -> Node | None:
        strides = inner.param("steps")
        first = tuple(a + b for a, b in zip(inner.param("starts"), starts, strict=True))
        every = tuple(a * b for a, b in zip(strides, steps, strict=True))
        try:
            return slice_(inner.inputs[0], starts=first, sizes=sizes, steps=every)
        except Exception:
            return None

    replace_rule("layout.compose_slices", wrong)


@plant
def composed_transposes_in_the_wrong_order() -> None:
    def wrong(x: Node, p: Sequence[int], q: Sequence[int]) -> Node:
        return transpose(x, perm=tuple(q[axis] for axis in p))  # type: ignore[no-any-return]

    replace_rule("layout.compose_transposes", wrong)


# -- memory and schedule ---------------------------------------------------------------------------


@plant
def two_live_buffers_share_memory() -> None:
    """The planner forgets that a buffer is read one step longer."""

    def short(lives: Sequence[Life]) -> Plan:
        return plan(
            [Life(b.name, b.nbytes, b.first, max(b.first, b.last - 1), b.reuse) for b in lives]
        )

    schedule.plan = short


@plant
def barriers_are_missing() -> None:
    """A kernel starts before the one it reads from has ended."""
    entry = schedule.KernelEntry

    def hasty(*args: Any, **fields: Any) -> KernelEntry:
        return entry(*args, **{**fields, "barrier": False})

    schedule.KernelEntry = hasty


@plant
def arena_is_not_written_before_it_is_read() -> None:
    """Every other launch of a program is left out."""
    build = schedule.TableEncoder.kernel_entry

    def forgetful(self: Any, launch: Any, *rest: Any) -> Any:
        made = build(self, launch, *rest)
        return None if any(slot.kind == "temp" for slot in launch.writes) else made

    schedule.TableEncoder.kernel_entry = forgetful
