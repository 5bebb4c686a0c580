"""Transforms, scans: loops with a state, differentiated and batched. Each result is a scan again,
so all of it nests.

    forward    carries and their tangents side by side in one scan
    linear     a scan that also stacks what the tangents need, and a scan of the tangents alone
    transpose  the tangents' scan walked backwards: cotangents of carries are its carries, sums for
               every constant beside them, and one row a step for every xs; one sweep for all
    batch      rows in every carry that comes to depend on the batch

Importing this module fills the tables of the four.
"""

from __future__ import annotations

from collections.abc import Sequence

from tetrad.core.sizes import Size
from tetrad.graph.build import fresh_like, make_graph, make_parameter, rebuild, spliced
from tetrad.graph.loops import make_scan, scan
from tetrad.graph.nodes import Graph, Node
from tetrad.ops.calculus import expand, moved, reshape, run, sliced, zeros_like
from tetrad.ops.matmul.op import is_plain
from tetrad.transforms import batch as batching
from tetrad.transforms import effect_rules  # noqa: F401
from tetrad.transforms import jvp as forward
from tetrad.transforms import linearize as linearizing
from tetrad.transforms import transpose as transposing
from tetrad.transforms.batch import Axis, Many, batch, with_axis
from tetrad.transforms.checkpoints import checkpointed_scan
from tetrad.transforms.forward import Both, Tangent, instantiate
from tetrad.transforms.jvp import Flags, flags_of, jvp, present
from tetrad.transforms.linearize import Linear, depends_on, linearize
from tetrad.transforms.scan_operands import (
    ScanOperands,
    instantiated,
    settings,
    settled,
    spread_reached,
)
from tetrad.transforms.transpose import Cotangents, transpose

# -- forward ---------------------------------------------------------------------------------------


def jvp_scan(node: Node, primals: Sequence[Node], tangents: Sequence[Tangent]) -> Both:
    """One scan whose steps compute results and their tangents side by side."""
    body, count = node.param("body"), node.param("carries")
    values, changes = ScanOperands.of(node, primals), ScanOperands.of(node, tangents)
    flags = settled(
        ScanOperands.of(node, flags_of(tangents)), lambda f: jvp(body, f.all).changes[:count]
    )
    changes = instantiated(changes, flags, values)
    made, ys = both_body(body, flags, node)
    results = make_scan(
        made,
        [*values.consts, *present(changes.consts)],
        [*values.carries, *present(changes.carries)],
        [*values.xs, *present(changes.xs)],
        reverse=node.param("reverse"), checkpoint=node.param("checkpoint"), **settings(node),
    )  # fmt: skip
    moving = sum(flags.carries)
    end, total = count + moving, len(body.outputs)
    carried, stacked = iter(results[count:end]), iter(results[end + total - count :])
    primal_results = (*results[:count], *results[end : end + total - count])
    tangent_results = (
        *(next(carried) if flag else None for flag in flags.carries),
        *(next(stacked) if flag else None for flag in ys),
    )
    return primal_results, tangent_results


def both_body(body: Graph, flags: ScanOperands, node: Node) -> tuple[Graph, Flags]:
    """consts, tangents; carries, tangents; rows, tangents -> carries, tangents; ys, tangents. And
    which ys change."""
    made, count = jvp(body, flags.all), node.param("carries")
    values = ScanOperands.of(node, fresh_like(body.inputs))
    moving = ScanOperands.of(
        node,
        [t if flag else None for t, flag in zip(fresh_like(body.inputs), flags.all, strict=True)],
    )
    outputs, changes = made.split(spliced(made.graph, [*values.all, *present(moving.all)]))
    carried = [
        instantiate(t, o.type)
        for t, o, f in zip(changes, outputs, flags.carries, strict=False)
        if f
    ]
    groups = zip(
        (values.consts, values.carries, values.xs),
        (moving.consts, moving.carries, moving.xs),
        strict=True,
    )
    inputs = [p for group, moves in groups for p in (*group, *present(moves))]
    stacked = present(changes[count:])
    graph = make_graph(
        f"{body.name}.jvp", inputs, [*outputs[:count], *carried, *outputs[count:], *stacked]
    )
    return graph, flags_of(changes[count:])


# -- linear ----------------------------------------------------------------------------------------


def linearize_scan(node: Node, primals: Sequence[Node], tangents: Sequence[Tangent]) -> Both:
    """Two scans: one computes results and keeps what tangents need, the other, linear, computes the
    tangents."""
    body, count = node.param("body"), node.param("carries")
    flags = settled(
        ScanOperands.of(node, flags_of(tangents)), lambda f: linearize(body, f.all).changes[:count]
    )
    values = ScanOperands.of(node, primals)
    changes = instantiated(ScanOperands.of(node, tangents), flags, values)
    if node.param("checkpoint") is not None and node.param("length") != 0:
        return checkpointed_scan(node, primals, changes.all, flags.all)
    linear = linearize(body, flags.all)
    kept = Residuals(linear, node, values)
    results = make_scan(
        kept.primal_body(),
        values.consts,
        values.carries,
        values.xs,
        reverse=node.param("reverse"),
        **settings(node),
    )
    consts, rows = kept.found(results)
    made, ys = tangent_body(linear, kept, flags, node)
    moved_results = make_scan(
        made,
        [*consts, *present(changes.consts)],
        present(changes.carries),
        [*rows, *present(changes.xs)],
        reverse=node.param("reverse"), **settings(node),
    ) if any(flags.carries) or any(ys) else ()  # fmt: skip
    rest = iter(moved_results)
    spread = (next(rest) if flag else None for flag in (*flags.carries, *ys))
    return tuple(results[: len(body.outputs)]), tuple(spread)


class Residuals:
    """What the tangents of a step need, and where the loop keeps it: constants once, everything
    else a row a step."""

    def __init__(self, linear: Linear, node: Node, values: ScanOperands) -> None:
        self.node, self.values, self.linear = node, values, linear
        self.graph = linear.primal
        self.inputs = ScanOperands.of(node, self.graph.inputs)
        varying = depends_on(self.graph.outputs, {*self.inputs.carries, *self.inputs.xs})
        self.nodes = [
            (self.graph.inputs if kind == "input" else self.graph.outputs)[i]
            for kind, i in linear.residuals
        ]
        self.is_const = [n not in varying for n in self.nodes]
        self.shown = len(node.param("body").outputs)
        carries = node.param("carries")
        self.stacked: dict[Node, int] = {}  # node -> its place among the stacked results
        for i, y in enumerate(self.graph.outputs[carries : self.shown]):
            self.stacked.setdefault(y, i)
        self.extra: list[Node] = []
        for n, is_const in zip(self.nodes, self.is_const, strict=True):
            if not is_const and n not in self.inputs.xs:
                self.keep(self.after(n))

    def after(self, n: Node) -> Node:
        """Of a carry as a step finds it, the one it leaves: the rows of the two are shifted by
        one."""
        return self.graph.outputs[self.inputs.carries.index(n)] if n in self.inputs.carries else n

    def keep(self, n: Node) -> None:
        if n not in self.stacked:
            self.stacked[n] = self.shown - self.node.param("carries") + len(self.extra)
            self.extra.append(n)

    def primal_body(self) -> Graph:
        body: Graph = self.node.param("body")
        return make_graph(
            body.name, self.graph.inputs, [*self.graph.outputs[: self.shown], *self.extra]
        )

    def found(self, results: Sequence[Node]) -> tuple[list[Node], list[Node]]:
        """Residuals that are constants, and those that are rows, as nodes outside the loop."""
        ys = results[self.node.param("carries") :]
        outside = dict(zip(self.inputs.consts, self.values.consts, strict=True))
        consts = rebuild([n for n, c in zip(self.nodes, self.is_const, strict=True) if c], outside)
        return consts, [
            self.rows(n, ys) for n, c in zip(self.nodes, self.is_const, strict=True) if not c
        ]

    def rows(self, n: Node, ys: Sequence[Node]) -> Node:
        if n in self.inputs.xs:
            row: Node = self.values.xs[self.inputs.xs.index(n)]
            return row
        stack = ys[self.stacked[self.after(n)]]
        if n not in self.inputs.carries:
            return stack
        first = self.values.carries[self.inputs.carries.index(n)]
        return shifted(first, stack, self.node.param("length"), self.node.param("reverse"))

    @property
    def order(self) -> list[int]:
        """Positions of the residuals: constants first, then rows."""
        return sorted(range(len(self.nodes)), key=lambda i: not self.is_const[i])


def shifted(first: Node, rows: Node, length: Size, reverse: bool) -> Node:
    """What every step found: `first`, then what the step before it left."""
    if length == 0:
        return rows
    head = expand(first, (1, *first.type.shape))
    if length == 1:
        return head
    rest = sliced(rows, 0, 1 if reverse else 0, length - 1)
    result: Node = (
        run("concat", rest, head, axis=0) if reverse else run("concat", head, rest, axis=0)
    )
    return result


def tangent_body(
    linear: Linear, kept: Residuals, flags: ScanOperands, node: Node
) -> tuple[Graph, Flags]:
    """residual constants, tangents; tangents of carries; residual rows, tangents -> tangents. And
    which ys change."""
    count = node.param("carries")
    inputs = fresh_like(linear.tangent.inputs)
    residuals, moving = inputs[: len(kept.nodes)], iter(inputs[len(kept.nodes) :])
    tangents = ScanOperands.of(node, [next(moving) if flag else None for flag in flags.all])
    changes = linear.spread(spliced(linear.tangent, inputs))
    outputs = linear.primal.outputs
    carried = [
        instantiate(t, o.type)
        for t, o, f in zip(changes, outputs, flags.carries, strict=False)
        if f
    ]
    consts = [residuals[i] for i in kept.order if kept.is_const[i]]
    rows = [residuals[i] for i in kept.order if not kept.is_const[i]]
    order = [
        *consts,
        *present(tangents.consts),
        *present(tangents.carries),
        *rows,
        *present(tangents.xs),
    ]
    graph = make_graph(
        f"{node.param('body').name}.tangent", order, [*carried, *present(changes[count:])]
    )
    return graph, flags_of(changes[count:])


# -- transpose -------------------------------------------------------------------------------------


def transpose_scan(node: Node, cotangents: Cotangents, linear: Flags) -> Cotangents:
    """One sweep from the last step to the first."""
    sweep = BackwardScan(node, cotangents, linear)
    swept = make_scan(
        sweep.body(), sweep.fixed_consts, [*sweep.ends, *(zeros_like(s) for s in sweep.sums)],
        [*sweep.fixed_xs, *sweep.seeds], reverse=not node.param("reverse"), **settings(node),
    )  # fmt: skip
    count, end = len(sweep.ends), len(sweep.ends) + len(sweep.sums)
    return sweep.results(swept[:count], swept[count:end], swept[end:])


class BackwardScan:
    """The way back of a linear scan.

    A step's cotangent of a constant is added to a sum, unless it is a product of thin matrices (of
    a column and a row, say): then the factors are stacked, and one product over all steps does the
    work of both.
    """

    def __init__(self, node: Node, cotangents: Cotangents, linear: Flags) -> None:
        body, count = node.param("body"), node.param("carries")
        marks, self.values = (
            ScanOperands.of(node, linear).with_carries((True,) * count),
            ScanOperands.of(node, node.inputs),
        )
        self.ends = [
            instantiate(ct, c.type)
            for ct, c in zip(cotangents[:count], self.values.carries, strict=True)
        ]
        self.seeds, self.length = present(cotangents[count:]), node.param("length")
        made = transpose(body, marks.all, (True,) * count + flags_of(cotangents[count:]))
        self.reached, self.name = (
            ScanOperands.of(node, spread_reached(made.reached, marks.all)),
            made.graph.name,
        )
        self.fixed_consts = unmarked(self.values.consts, marks.consts)
        self.fixed_xs = unmarked(self.values.xs, marks.xs)
        self.fixed, self.carried = fresh_like(self.fixed_consts), fresh_like(self.ends)
        self.rows = [row_parameter(x) for x in (*self.fixed_xs, *self.seeds)]
        split = len(self.fixed_xs)
        found = iter(
            spliced(
                made.graph, [*self.fixed, *self.rows[:split], *self.carried, *self.rows[split:]]
            )
        )
        self.by_const = [next(found) for flag in self.reached.consts if flag]
        pairs = zip(self.reached.carries, self.carried, strict=True)
        self.by_carry = [next(found) if flag else zeros_like(c) for flag, c in pairs]
        self.by_row = [next(found) for flag in self.reached.xs if flag]
        self.is_stacked = [is_thin_product(c) for c in self.by_const]

    @property
    def sums(self) -> list[Node]:
        """The constants whose cotangents are added step by step."""
        return [c for c, stacked in zip(self.by_const, self.is_stacked, strict=True) if not stacked]

    @property
    def factors(self) -> list[Node]:
        """Factors of stacked products that only the loop knows; the others follow from rows that
        are at hand."""
        found = [
            f
            for c, stacked in zip(self.by_const, self.is_stacked, strict=True)
            if stacked
            for f in c.inputs
        ]
        return [f for f in dict.fromkeys(found) if not self.follows_from_rows(f)]

    def follows_from_rows(self, node: Node) -> bool:
        return not depends_on([node], set(self.carried)) & {node}

    def body(self) -> Graph:
        """consts; cotangents of carries, sums; rows, cotangents of ys -> cotangents, sums; of rows,
        factors."""
        totals = fresh_like(self.sums)
        added = [total + part for total, part in zip(totals, self.sums, strict=True)]
        inputs = [*self.fixed, *self.carried, *totals, *self.rows]
        return make_graph(
            f"{self.name}.sweep", inputs, [*self.by_carry, *added, *self.by_row, *self.factors]
        )

    def results(
        self, carried: Sequence[Node], sums: Sequence[Node], stacked: Sequence[Node]
    ) -> Cotangents:
        split = len(self.by_row)
        factors = dict(zip(self.factors, stacked[split:], strict=True))
        totals, by_row = iter(sums), iter(stacked[:split])
        consts = iter(
            self.product(c, factors) if is_stacked else next(totals)
            for c, is_stacked in zip(self.by_const, self.is_stacked, strict=True)
        )
        return (
            *(next(consts) if flag else None for flag in self.reached.consts),
            *carried,
            *(next(by_row) if flag else None for flag in self.reached.xs),
        )

    def product(self, node: Node, stacks: dict[Node, Node]) -> Node:
        """The sum over all steps of a product: one product, the steps along the inner axis."""
        left, right = (stacks[f] if f in stacks else self.outside(f) for f in node.inputs)
        (_, m, k), n = left.type.shape, right.type.shape[2]
        inner = self.length * k
        result: Node = run(
            "matmul", reshape(moved(left, 1, 0), (m, inner)), reshape(right, (inner, n))
        )
        return result

    def outside(self, factor: Node) -> Node:
        """A factor for all steps at once, from the rows of all steps."""
        graph = make_graph(self.name, [*self.fixed, *self.rows], [factor])
        flags = (False,) * len(self.fixed) + (True,) * len(self.rows)
        made = batch(graph, flags, Axis(self.length), (True,))
        return spliced(made.graph, [*self.fixed_consts, *self.fixed_xs, *self.seeds])[0]


def unmarked(values: Sequence[Node], marks: Sequence[bool]) -> list[Node]:
    return [v for v, mark in zip(values, marks, strict=True) if not mark]


def row_parameter(x: Node) -> Node:
    return make_parameter(x.type.with_shape(x.type.shape[1:]), -1, fresh=True)


def is_thin_product(node: Node) -> bool:
    """A product of matrices that together are not larger than it: cheaper kept than added up."""
    if not is_plain(node) or node.type.rank != 2:
        return False
    (m, k), (_, n) = (i.type.shape for i in node.inputs)
    return all(isinstance(size, int) for size in (m, n, k)) and k * (m + n) <= m * n  # type: ignore[operator]


# -- batch -----------------------------------------------------------------------------------------


def batch_scan(node: Node, inputs: Sequence[Node], batched: Flags, axis: Axis) -> Many:
    body, count = node.param("body"), node.param("carries")
    flags = settled(
        ScanOperands.of(node, batched), lambda f: batch(body, f.all, axis).batched[:count]
    )
    rest = (False,) * (len(body.outputs) - count)
    made = batch(body, flags.all, axis, flags.carries + rest)
    values = ScanOperands.of(node, inputs)
    before = ScanOperands.of(node, batched)
    carries = [
        with_axis(c, was, axis) if flag else c
        for c, was, flag in zip(values.carries, before.carries, flags.carries, strict=True)
    ]
    xs = [moved(x, 0, 1) if flag else x for x, flag in zip(values.xs, flags.xs, strict=True)]
    results = make_scan(
        made.graph, values.consts, carries, xs, reverse=node.param("reverse"),
        checkpoint=node.param("checkpoint"),
        **settings(node),
    )  # fmt: skip
    ys = [
        moved(y, 1, 0) if flag else y
        for y, flag in zip(results[count:], made.batched[count:], strict=True)
    ]
    return (*results[:count], *ys), made.batched


forward.NESTED[scan] = jvp_scan
linearizing.NESTED[scan] = linearize_scan
transposing.NESTED[scan] = transpose_scan
batching.NESTED[scan] = batch_scan
