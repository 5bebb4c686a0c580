"""A random program as plain data: leaves (inputs, constants), steps (ops on earlier items),
outputs.

Receives nothing but itself: values come from seeds, so that a program prints as a few lines of
Python that anybody can paste (`source`), and shrinks by dropping or changing items. `build` makes
the graph, `values` the arguments.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from tetrad.core.dtypes import DType, bool_
from tetrad.core.op import REGISTRY
from tetrad.core.sizes import Shape, Size, SizeExpr, bind, dims_of
from tetrad.core.types import ArrayType
from tetrad.graph.build import make_call, make_constant, make_graph, make_item, make_parameter
from tetrad.graph.infer import dims_in
from tetrad.graph.nodes import Graph, Node
from tetrad.ops.cases import exact_array, random_array, random_indices

NUMBERS = (0, 1, 2, -1, -0.0, 0.5, 4, 3, float("nan"), float("inf"), 0.1)
# from wild to tame, the order in which shrinking tries them
FILLS = ("random", "small", "iota", "ones", "zeros")


@dataclass(frozen=True)
class Leaf:
    """An input or a constant. `fill`: one of FILLS, "number" (one value everywhere), "index" (below
    `below`), "ties" (next to where halves round up or down), or "case:op:i", operand i of the case
    that the op draws from the seed."""

    dtype: DType
    shape: Shape
    seed: int = 0
    fill: str = "random"
    special: float = 0.0
    below: Size = 1
    constant: bool = False


@dataclass(frozen=True)
class Step:
    """An op on earlier items. Neighbouring steps of one `group` become a sub-graph that is
    called."""

    op: str
    operands: tuple[int, ...]
    params: dict[str, Any] = field(default_factory=dict)
    group: int = 0  # 0: none


Item = Leaf | Step
Dims = Mapping[str, int]


@dataclass(frozen=True)
class Program:
    items: tuple[Item, ...]
    outputs: tuple[int, ...]
    bindings: tuple[dict[str, int], ...] = ({},)  # sizes of the Dims, one run for each
    seed: int = 0
    via_jit: bool = False  # also called through jit, with strided arrays
    transform: str = ""  # also differentiated or batched: one of fuzz.transforms.TRANSFORMS

    @property
    def types(self) -> list[ArrayType]:
        """The type of every item; raises what the op's rule raises."""
        found: list[ArrayType] = []
        for item in self.items:
            if isinstance(item, Leaf):
                found.append(ArrayType(item.dtype, item.shape))
            else:
                found.append(
                    REGISTRY[item.op].type(*(found[i] for i in item.operands), **item.params)
                )
        return found

    @property
    def inputs(self) -> list[int]:
        return [
            i for i, item in enumerate(self.items) if isinstance(item, Leaf) and not item.constant
        ]


# -- values ----------------------------------------------------------------------------------------


def values(program: Program, dims: Dims) -> list[np.ndarray]:
    """The arguments of the program at these sizes."""
    return [value(program.items[i], dims) for i in program.inputs]  # type: ignore[arg-type]


def value(leaf: Leaf, dims: Dims) -> np.ndarray:
    rng, shape, dtype = (
        np.random.default_rng(leaf.seed),
        tuple(bind(n, dims) for n in leaf.shape),
        leaf.dtype,
    )
    if leaf.fill == "number":
        return np.full(shape, number(leaf), dtype.np)
    if leaf.fill == "index":
        return random_indices(rng, dtype, shape, bind(leaf.below, dims))
    if leaf.fill.startswith("case:"):
        _, name, operand = leaf.fill.split(":")
        return np.asarray(REGISTRY[name].cases(rng).args[int(operand)])  # type: ignore[misc]
    if leaf.fill == "ties":
        return ties(rng, dtype, shape)
    if leaf.fill == "random":
        return random_array(rng, dtype, shape, leaf.special)
    if leaf.fill == "small":
        return exact_array(rng, dtype, shape)
    count = int(np.prod(shape))
    plain = {"iota": np.arange(count) % 100, "ones": np.ones(count), "zeros": np.zeros(count)}[
        leaf.fill
    ]
    return plain.reshape(shape).astype(dtype.np)


def ties(rng: np.random.Generator, dtype: DType, shape: tuple[int, ...]) -> np.ndarray:
    """Numbers in the middle of two neighbours in f16 or bf16, and as little beside it as the type
    can say."""
    bits = rng.choice((8, 11), shape)
    middle = (np.exp2(bits) + rng.integers(0, 100, shape) * 2 + 1) * np.exp2(
        rng.integers(-12, 30, shape)
    )
    nudge = np.exp2(-52.0 if dtype.bits == 64 else -23.0) * rng.integers(-1, 2, shape)
    with np.errstate(all="ignore"):
        return np.asarray(middle * (1 + nudge)).astype(dtype.np)


def number(leaf: Leaf) -> Any:
    wanted = NUMBERS[leaf.seed % len(NUMBERS)]
    if leaf.dtype.real.is_float:
        return wanted
    whole = int(wanted) if np.isfinite(wanted) else 5
    return whole if leaf.dtype.is_signed else abs(whole) % (2 if leaf.dtype is bool_ else 256)


# -- graphs ----------------------------------------------------------------------------------------


def build(program: Program, *, calls: bool = True, every_step: bool = False) -> Graph:
    """The graph. `calls` False: groups are inlined; `every_step`: each step is an output, after the
    program's own."""
    nodes: list[Node | None] = [None] * len(program.items)
    for position, i in enumerate(program.inputs):
        leaf = program.items[i]
        nodes[i] = make_parameter(ArrayType(leaf.dtype, leaf.shape), position, fresh=True)  # type: ignore[union-attr]
    i = 0
    while i < len(program.items):
        stop = group_end(program, i) if calls else i + 1
        if stop > i + 1:
            build_call(program, i, stop, nodes)
        else:
            build_item(program, i, nodes)
        i = stop
    outputs = list(program.outputs) + (steps_of(program) if every_step else [])
    return make_graph("fuzzed", [nodes[i] for i in program.inputs], [nodes[i] for i in outputs])  # type: ignore[misc]


def steps_of(program: Program) -> list[int]:
    return [i for i, item in enumerate(program.items) if isinstance(item, Step)]


def build_item(program: Program, i: int, nodes: list[Node | None]) -> None:
    item = program.items[i]
    if isinstance(item, Step):
        nodes[i] = applied(item, [nodes[o] for o in item.operands])  # type: ignore[misc]
    elif item.constant:
        nodes[i] = make_constant(value(item, {}))


def applied(step: Step, operands: list[Node]) -> Node:
    return REGISTRY[step.op](*operands, **step.params)  # type: ignore[no-any-return]


def group_end(program: Program, start: int) -> int:
    """Where the run of items of one group that begins here ends; constants in between belong to
    it."""
    first = program.items[start]
    if not isinstance(first, Step) or not first.group:
        return start + 1
    stop = start + 1
    while stop < len(program.items) and belongs(program.items[stop], first.group):
        stop += 1
    return stop


def belongs(item: Item, group: int) -> bool:
    return item.group == group if isinstance(item, Step) else item.constant


def build_call(program: Program, start: int, stop: int, nodes: list[Node | None]) -> None:
    """items[start:stop] as a graph of its own, called on what it needs from outside."""
    inside = range(start, stop)
    steps = [i for i in inside if isinstance(program.items[i], Step)]
    needed = sorted({o for i in steps for o in program.items[i].operands if o < start})  # type: ignore[union-attr]
    inner: list[Node | None] = [None] * len(program.items)
    for position, outer in enumerate(needed):
        inner[outer] = make_parameter(nodes[outer].type, position, fresh=True)  # type: ignore[union-attr]
    for i in inside:
        build_item(program, i, inner)
        if isinstance(program.items[i], Leaf):
            nodes[i] = inner[i]
    later = {
        o for item in program.items[stop:] if isinstance(item, Step) for o in item.operands
    } | set(program.outputs)
    results = [i for i in steps if i in later]
    if not results:
        return
    body = make_graph("layer", [inner[i] for i in needed], [inner[i] for i in results])  # type: ignore[misc]
    if not dims_in(body) <= {
        d for p in body.inputs for size in p.type.shape for d in dims_of(size)
    }:
        for i in inside:  # a graph gets its Dims from its arguments: this one cannot stand alone
            build_item(program, i, nodes)
        return
    call = make_call(body, [nodes[i] for i in needed])  # type: ignore[misc]
    for position, i in enumerate(results):
        nodes[i] = make_item(call, position)


def replay(program: Program) -> Any:
    """The program as a Python function of all its leaves. Constants are arguments too: what depends
    on them alone would be computed by NumPy while tracing, within the declared error of the op and
    not to the bit."""

    def fuzzed(*arrays: Any) -> tuple[Any, ...]:
        made: list[Any] = []
        leaves = iter(arrays)
        for item in program.items:
            if isinstance(item, Step):
                made.append(REGISTRY[item.op](*(made[o] for o in item.operands), **item.params))
            else:
                made.append(next(leaves))
        return tuple(made[i] for i in program.outputs)

    return fuzzed


# -- changing --------------------------------------------------------------------------------------


def pruned(program: Program) -> Program:
    """Without the items no output needs."""
    needed: set[int] = set(program.outputs)
    for i in range(len(program.items) - 1, -1, -1):
        item = program.items[i]
        if i in needed and isinstance(item, Step):
            needed.update(item.operands)
    kept = sorted(needed)
    place = {old: new for new, old in enumerate(kept)}
    items = tuple(renumbered(program.items[i], place) for i in kept)
    return replace(program, items=items, outputs=tuple(place[o] for o in program.outputs))


def renumbered(item: Item, place: Mapping[int, int]) -> Item:
    return (
        replace(item, operands=tuple(place[o] for o in item.operands))
        if isinstance(item, Step)
        else item
    )


def dims_of_program(program: Program) -> dict[str, int]:
    """Name and bound of every Dim."""
    return {d.name: d.max for kind in program.types for size in kind.shape for d in dims_of(size)}


# -- text ------------------------------------------------------------------------------------------


def source(program: Program, why: str) -> str:
    """A Python file that runs the program again and says what is wrong with it."""
    lines = [f'"""{why.replace(chr(34) * 3, "")}"""', ""]
    lines += ["# ruff: noqa: F401, F403, F405", "from numpy import inf, nan", ""]
    lines += [
        "from tests.fuzz.check import check",
        "from tests.fuzz.program import Leaf, Program, Step",
    ]
    lines += ["from tetrad.core.dtypes import *", "from tetrad.core.sizes import Dim", ""]
    lines += [
        f"{name} = Dim({name!r}, max={most})" for name, most in dims_of_program(program).items()
    ]
    lines += ["PROGRAM = Program(", "    items=("]
    lines += [f"        {shown(item)},  # {i}" for i, item in enumerate(program.items)]
    lines += [f"    ), outputs={program.outputs}, bindings={program.bindings},"]
    transform = f" transform={program.transform!r}," if program.transform else ""
    lines += [f"    seed={program.seed}, via_jit={program.via_jit},{transform}"]
    lines += [")", "", 'if __name__ == "__main__":', '    print(check(PROGRAM) or "right")', ""]
    return "\n".join(lines)


def shown(item: Item) -> str:
    if isinstance(item, Step):
        params = ", ".join(f"{name!r}: {shown_value(v)}" for name, v in item.params.items())
        group = f", group={item.group}" if item.group else ""
        return f"Step({item.op!r}, {item.operands}, {{{params}}}{group})"
    parts = [dtype_name(item.dtype), shown_value(item.shape), str(item.seed), repr(item.fill)]
    parts += [f"special={item.special}"] if item.special else []
    parts += [f"below={shown_value(item.below)}"] if item.below != 1 else []
    parts += ["constant=True"] if item.constant else []
    return f"Leaf({', '.join(parts)})"


def shown_value(v: Any) -> str:
    if isinstance(v, tuple):
        return f"({', '.join(map(shown_value, v))}{',' if len(v) == 1 else ''})"
    if isinstance(v, DType):
        return dtype_name(v)
    return str(v) if isinstance(v, SizeExpr) else repr(v)


def dtype_name(dtype: DType) -> str:
    return "bool_" if dtype is bool_ else dtype.short_name
