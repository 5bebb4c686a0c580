"""Transforms, checkpoints: the reverse derivative of a scan that keeps few states and computes the
others again.

Receives a scan with a strategy; returns its results and tangents whose transpose is given: one scan
over the actions of the plan (`transforms.checkpoint_plans`). States wait in the rows of a buffer
that is changed in place; each action is either a step ahead or a step of the derivative, so every
strategy does the same arithmetic and gives the same gradients.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tetrad.core.errors import UnsupportedError
from tetrad.core.record import record
from tetrad.core.types import ArrayType
from tetrad.graph.build import (
    filled,
    fresh_like,
    make_constant,
    make_graph,
    make_parameter,
    spliced,
)
from tetrad.graph.custom import make_linear
from tetrad.graph.effects import without_effects
from tetrad.graph.loops import make_scan, make_switch
from tetrad.graph.nodes import Graph, Node
from tetrad.ops.calculus import expand, run, sliced, where, zeros_like
from tetrad.ops.dynamic.op import starts_of
from tetrad.transforms.checkpoint_plans import ADVANCE, LEAF, CheckpointPlan, plan
from tetrad.transforms.forward import Both, Tangent, instantiate
from tetrad.transforms.jvp import Flags, jvp, present
from tetrad.transforms.linearize import Linear, linearize
from tetrad.transforms.scan_operands import ScanOperands, settings, spread_reached
from tetrad.transforms.transpose import transpose

AGAIN = "checkpoint= computes steps again for the derivative"


def checkpointed_scan(
    node: Node, primals: Sequence[Node], changes: Sequence[Tangent], flags: Flags
) -> Both:
    """Results of the scan, and tangents that are only ever transposed (or computed forward)."""
    length, body = node.param("length"), node.param("body")
    if not isinstance(length, int):
        message = f"scan: checkpoints need a length that is known, it is {length}"
        raise UnsupportedError(
            message, source=node.source, hint="drop checkpoint=, or fix the size"
        )
    whole = CheckpointedScan(
        node,
        plan(length, node.param("checkpoint")),
        linearize(body, flags),
        ScanOperands.of(node, flags),
    )
    results, stored = whole.forward(primals)
    found = iter(
        make_linear(
            whole.tangents(len(stored)), whole.backward(len(stored)), [*primals, *stored],
            present(changes),
            whole.gives(), node.source,
        )
    )  # fmt: skip
    return results, tuple(next(found) if flag else None for flag in whole.moves)


def row_of(x: Node, at: Node) -> Node:
    """One row of a buffer."""
    result: Node = run("gather", x, at, axis=0)
    return result


def with_row(buffer: Node, row: Node, at: Node) -> Node:
    """The buffer with one row replaced, where it lies."""
    result: Node = run(
        "dynamic_update_slice", buffer, expand(row, (1, *row.type.shape)), starts_of(buffer, at)
    )
    return result


def rows_type(kind: ArrayType, count: int) -> ArrayType:
    return kind.with_shape((count, *kind.shape))


def table(values: Sequence[int]) -> Node:
    return make_constant(np.asarray(values, np.int32))


@record(eq=False)
class CheckpointedScan:
    """One checkpointed scan: its plan, the derivative of one step, and which operands change."""

    node: Node
    plan: CheckpointPlan
    linear: Linear
    flags: ScanOperands

    @property
    def body(self) -> Graph:
        body: Graph = self.node.param("body")
        return body

    @property
    def count(self) -> int:
        count: int = self.node.param("carries")
        return count

    @property
    def moves(self) -> Flags:
        """Which results change: carries as settled, ys as the derivative of a step says."""
        return (*self.flags.carries, *self.linear.changes[self.count :])

    def gives(self) -> tuple[ArrayType, ...]:
        return tuple(kind for kind, flag in zip(self.node.types, self.moves, strict=True) if flag)

    def row(self, step: int) -> int:
        """The row of xs and ys that a step works on."""
        return self.plan.length - 1 - step if self.node.param("reverse") else step

    # -- forward -----------------------------------------------------------------------------------

    def forward(self, primals: Sequence[Node]) -> tuple[tuple[Node, ...], tuple[Node, ...]]:
        """The results, and one buffer of stored states for each carry."""
        values = ScanOperands.of(self.node, primals)
        kept = len(self.plan.stored)
        extra = [filled(0, rows_type(c.type, kept + 1)) for c in values.carries] if kept else []
        places = [kept] * self.plan.length
        for slot, step in enumerate(self.plan.stored):
            places[self.row(step)] = slot
        made = make_scan(
            self.storing_body(extra),
            values.consts,
            [*values.carries, *extra],
            [*values.xs, *([table(places)] if kept else [])],
            reverse=self.node.param("reverse"), **settings(self.node),
        )  # fmt: skip
        end = self.count + len(extra)
        return (*made[: self.count], *made[end:]), tuple(made[self.count : end])

    def storing_body(self, buffers: Sequence[Node]) -> Graph:
        """A step that also writes its state into the row it is told; the last row is for states
        nobody wants."""
        if not buffers:
            return self.body
        values, held = ScanOperands.of(self.node, fresh_like(self.body.inputs)), fresh_like(buffers)
        place = make_parameter(ArrayType(table([0]).type.dtype, ()), -1, fresh=True)
        outputs = spliced(self.body, values.all)
        written = [with_row(b, c, place) for b, c in zip(held, outputs[: self.count], strict=True)]
        inputs = [*values.consts, *values.carries, *held, *values.xs, place]
        return make_graph(
            self.body.name, inputs, [*outputs[: self.count], *written, *outputs[self.count :]]
        )

    def tangents(self, stored: int) -> Graph:
        """The forward derivative: operands, buffers (not used), tangents -> tangents of the results
        that change."""
        inputs = fresh_like(self.node.inputs)
        values = ScanOperands.of(self.node, inputs)
        results = make_scan(
            self.body, values.consts, values.carries, values.xs, reverse=self.node.param("reverse"),
            **settings(self.node),
        )  # fmt: skip
        made = jvp(make_graph(self.body.name, inputs, results), self.flags.all)
        outer = fresh_like(made.graph.inputs)
        _, changes = made.split(spliced(made.graph, outer))
        spare = fresh_like(self.buffers(stored))
        found = [
            instantiate(t, r.type)
            for t, r, flag in zip(changes, results, self.moves, strict=True)
            if flag
        ]
        width = len(inputs)
        made_graph = make_graph(
            f"{self.body.name}.tangent", [*outer[:width], *spare, *outer[width:]], found
        )
        return without_effects(made_graph, AGAIN)

    def buffers(self, stored: int) -> list[Node]:
        carries = ScanOperands.of(self.node, self.node.inputs).carries
        return (
            [filled(0, rows_type(c.type, len(self.plan.stored) + 1)) for c in carries]
            if stored
            else []
        )

    # -- backward ----------------------------------------------------------------------------------

    def backward(self, stored: int) -> Graph:
        """operands, buffers, cotangents of the results that change -> cotangents of the operands
        that change."""
        inputs, held = fresh_like(self.node.inputs), fresh_like(self.buffers(stored))
        seeds = [make_parameter(kind, -1, fresh=True) for kind in self.gives()]
        values = ScanOperands.of(self.node, inputs)
        moving = sum(self.flags.carries)
        ends, rows = seeds[:moving], seeds[moving:]
        start = self.start(values, held, ends)
        swept = make_scan(
            self.action_body(values, rows), [*values.consts, *values.xs, *rows], start.all,
            self.tables(),
            length=len(self.plan.actions), source=self.node.source,
        )  # fmt: skip
        done = start.like(swept)
        by_row = [sliced(x, 0, 0, self.plan.length) for x in done.by_row]
        found = [*done.sums, *done.cotangents, *by_row]
        made = make_graph(f"{self.body.name}.backward", [*inputs, *held, *seeds], found)
        return without_effects(made, AGAIN)

    def start(
        self, values: ScanOperands, held: Sequence[Node], ends: Sequence[Node]
    ) -> BackwardState:
        chosen = [x for x, flag in zip(values.xs, self.flags.xs, strict=True) if flag]
        summed = [c for c, flag in zip(values.consts, self.flags.consts, strict=True) if flag]
        length = self.plan.length
        return BackwardState(
            tuple(values.carries),
            tuple(
                self.first_slots(c, held[i] if held else None) for i, c in enumerate(values.carries)
            ),
            tuple(ends),
            tuple(zeros_like(c) for c in summed),
            tuple(filled(0, x.type.with_shape((length + 1, *x.type.shape[1:]))) for x in chosen),
        )

    def first_slots(self, carry: Node, buffer: Node | None) -> Node:
        """Slot 0 holds the first state, then come the stored ones; the last row is for states
        nobody wants."""
        kept = len(self.plan.stored)
        parts = [expand(carry, (1, *carry.type.shape))]
        if buffer is not None:
            parts.append(sliced(buffer, 0, 0, kept))
        parts.append(filled(0, rows_type(carry.type, self.plan.slots - kept)))
        result: Node = run("concat", *parts, axis=0)
        return result

    def tables(self) -> list[Node]:
        """What each action loads, does, works on, saves, and where its cotangents of xs go."""
        actions, plan_ = self.plan.actions, self.plan
        columns = [
            [a.load for a in actions],
            [a.kind - ADVANCE for a in actions],
            [self.row(a.step) for a in actions],
            [plan_.slots if a.save < 0 else a.save for a in actions],
            [self.row(a.step) if a.kind == LEAF else plan_.length for a in actions],
        ]
        return [table(column) for column in columns]

    def action_body(self, values: ScanOperands, seeds: Sequence[Node]) -> Graph:
        """One action of the plan: load a state or keep the one at hand; advance it or pull back
        through it; save it."""
        consts, xs, rows = fresh_like(values.consts), fresh_like(values.xs), fresh_like(seeds)
        start = self.start(values, self.buffers(len(self.plan.stored)), self.end_types())
        state = start.like(fresh_like(start.all))
        load, kind, at, save, out = fresh_like(
            [filled(0, ArrayType(table([0]).type.dtype, ()))] * 5
        )
        is_loaded = run("greater_equal", load, 0)
        index = where(is_loaded, load, 0)
        current = [
            where(expand(is_loaded, w.type.shape), row_of(slots, index), w)
            for w, slots in zip(state.work, state.slots, strict=True)
        ]
        operands = [
            *consts, *current, *(row_of(x, at) for x in xs), *state.cotangents, *state.sums,
            *(row_of(r, at) for r in rows),
        ]  # fmt: skip
        branches = [self.branch(operands, is_leaf) for is_leaf in (False, True)]
        found = iter(make_switch(kind, operands, branches, self.node.source))
        work = [next(found) for _ in state.work]
        cotangents = [next(found) for _ in state.cotangents]
        sums = [next(found) for _ in state.sums]
        by_row = [with_row(b, next(found), out) for b in state.by_row]
        slots = [with_row(s, w, save) for s, w in zip(state.slots, work, strict=True)]
        after = BackwardState(
            tuple(work), tuple(slots), tuple(cotangents), tuple(sums), tuple(by_row)
        )
        inputs = [*consts, *xs, *rows, *state.all, load, kind, at, save, out]
        return make_graph(f"{self.body.name}.action", inputs, list(after.all))

    def end_types(self) -> list[Node]:
        kinds = self.gives()[: sum(self.flags.carries)]
        return [filled(0, kind) for kind in kinds]

    def branch(self, operands: Sequence[Node], is_leaf: bool) -> Graph:
        """consts, state, rows, cotangents of the state, sums, cotangents of ys -> state,
        cotangents, sums, of rows."""
        inputs = fresh_like(operands)
        width = len(self.body.inputs)
        values = ScanOperands.of(self.node, inputs[:width])
        moving, summed = sum(self.flags.carries), sum(self.flags.consts)
        cotangents, rest = inputs[width : width + moving], inputs[width + moving :]
        sums, seeds = rest[:summed], rest[summed:]
        if not is_leaf:
            ahead = spliced(self.body, values.all)[: self.count]
            by_row = [
                zeros_like(x) for x, flag in zip(values.xs, self.flags.xs, strict=True) if flag
            ]
            return make_graph(
                f"{self.body.name}.ahead", inputs, [*ahead, *cotangents, *sums, *by_row]
            )
        back, added, by_row = self.step_back(values, cotangents, sums, seeds)
        return make_graph(
            f"{self.body.name}.back", inputs, [*values.carries, *back, *added, *by_row]
        )

    def step_back(
        self,
        values: ScanOperands,
        cotangents: Sequence[Node],
        sums: Sequence[Node],
        seeds: Sequence[Node],
    ) -> tuple[list[Node], list[Node], list[Node]]:
        """One step of the derivative, its residuals computed on the spot."""
        linear = self.linear
        outputs = spliced(linear.primal, values.all)
        kept = linear.residual_values(values.all, outputs)
        given = self.seeds_of_step(cotangents, seeds)
        marked = [flag for flag in self.flags.all if flag]
        flags = (False,) * len(kept) + (True,) * len(marked)
        made = transpose(linear.tangent, flags, tuple(g is not None for g in given))
        found = iter(spliced(made.graph, [*kept, *present(given)]))
        reached = spread_reached(made.reached, tuple(marked))
        chosen = [v for v, flag in zip(values.all, self.flags.all, strict=True) if flag]
        each = [
            next(found) if flag else zeros_like(v) for flag, v in zip(reached, chosen, strict=True)
        ]
        a, b = len(sums), len(sums) + len(cotangents)
        added = [total + part for total, part in zip(sums, each[:a], strict=True)]
        return each[a:b], added, each[b:]

    def seeds_of_step(self, cotangents: Sequence[Node], seeds: Sequence[Node]) -> list[Tangent]:
        """One for each tangent that a step gives: of a carry that a step leaves unchanged there is
        none."""
        carried, stacked = iter(cotangents), iter(seeds)
        of_carries = [next(carried) if flag else None for flag in self.flags.carries]
        pairs = zip(of_carries, self.linear.changes[: self.count], strict=True)
        found: list[Tangent] = [c for c, changes in pairs if changes]
        return found + [next(stacked) for flag in self.linear.changes[self.count :] if flag]


@record(eq=False)
class BackwardState:
    """What the way back carries from action to action."""

    work: tuple[Node, ...]  # the state at hand, one for each carry
    slots: tuple[Node, ...]  # the buffers of states
    cotangents: tuple[Node, ...]
    sums: tuple[Node, ...]  # cotangents of constants
    by_row: tuple[Node, ...]  # cotangents of xs

    @property
    def all(self) -> tuple[Node, ...]:
        return (*self.work, *self.slots, *self.cotangents, *self.sums, *self.by_row)

    def like(self, values: Sequence[Node]) -> BackwardState:
        rest = iter(values)
        groups = (self.work, self.slots, self.cotangents, self.sums, self.by_row)
        return BackwardState(*(tuple(next(rest) for _ in group) for group in groups))
