"""Transforms, branches: `switch` and `while_loop`, differentiated and batched.

A branch is chosen by data, so all branches must give the same: what only one of them needs is zeros
in the others. A loop of unknown length has a forward derivative, but nothing to walk back along.
Importing this fills the tables.
"""

from __future__ import annotations

from collections.abc import Sequence

from tetrad.core.errors import DerivativeError
from tetrad.graph.build import fresh_like, make_graph, spliced
from tetrad.graph.build import results as results_of
from tetrad.graph.effects import without_effects
from tetrad.graph.loops import make_switch, make_while, switch, while_loop
from tetrad.graph.nodes import Graph, Node
from tetrad.ops.calculus import full_like, run, spread, where, zeros_like
from tetrad.transforms import batch as batching
from tetrad.transforms import jvp as forward
from tetrad.transforms import linearize as linearizing
from tetrad.transforms import transpose as transposing
from tetrad.transforms.batch import Axis, Many, batch, with_axis
from tetrad.transforms.forward import Both, Tangent, instantiate, is_differentiable
from tetrad.transforms.jvp import Flags, flags_of, jvp, present
from tetrad.transforms.linearize import Linear, linearize
from tetrad.transforms.scan_operands import spread_reached
from tetrad.transforms.transpose import Cotangents, transpose


def any_of(rows: Sequence[Flags]) -> Flags:
    return tuple(map(any, zip(*rows, strict=True)))


# -- switch ----------------------------------------------------------------------------------------


def jvp_switch(node: Node, primals: Sequence[Node], tangents: Sequence[Tangent]) -> Both:
    branches: tuple[Graph, ...] = node.param("branches")
    flags = flags_of(tangents[1:])
    made = [jvp(branch, flags) for branch in branches]
    changes = any_of([m.changes for m in made])
    graphs = []
    for m, branch in zip(made, branches, strict=True):
        inputs = fresh_like(m.graph.inputs)
        outputs, moves = m.split(spliced(m.graph, inputs))
        filled = [
            instantiate(t, o.type)
            for t, o, flag in zip(moves, outputs, changes, strict=True)
            if flag
        ]
        graphs.append(make_graph(f"{branch.name}.jvp", inputs, [*outputs, *filled]))
    results = make_switch(primals[0], [*primals[1:], *present(tangents)], graphs, node.source)
    rest = iter(results[len(changes) :])
    return tuple(results[: len(changes)]), tuple(next(rest) if flag else None for flag in changes)


def linearize_switch(node: Node, primals: Sequence[Node], tangents: Sequence[Tangent]) -> Both:
    branches: tuple[Graph, ...] = node.param("branches")
    made = [linearize(branch, flags_of(tangents[1:])) for branch in branches]
    changes, count = any_of([m.changes for m in made]), len(branches[0].outputs)
    extras = [m.primal.outputs[count:] for m in made]
    results = make_switch(
        primals[0],
        primals[1:],
        [with_extras(m, k, extras) for k, m in enumerate(made)],
        node.source,
    )
    if not any(changes):
        return tuple(results[:count]), (None,) * count
    moving = present(tangents)
    graphs = [
        tangent_branch(m, k, extras, [*primals[1:], *results, *moving], changes)
        for k, m in enumerate(made)
    ]
    found = iter(make_switch(primals[0], [*primals[1:], *results, *moving], graphs, node.source))
    return tuple(results[:count]), tuple(next(found) if flag else None for flag in changes)


def with_extras(linear: Linear, k: int, extras: Sequence[Sequence[Node]]) -> Graph:
    """A branch that gives, beside its results, a place for the residuals of every branch."""
    graph = linear.primal
    count = len(linear.changes)
    filled = [
        n if k == other else zeros_like(n) for other, group in enumerate(extras) for n in group
    ]
    return make_graph(graph.name, graph.inputs, [*graph.outputs[:count], *filled])


def tangent_branch(
    linear: Linear,
    k: int,
    extras: Sequence[Sequence[Node]],
    operands: Sequence[Node],
    changes: Flags,
) -> Graph:
    """operands, results, residuals of every branch, tangents -> the tangents that any branch
    gives."""
    inputs = fresh_like(operands)
    width, count = len(linear.primal.inputs), len(linear.changes)
    skipped = sum(len(group) for group in extras[:k])
    total = sum(map(len, extras))
    results = inputs[width : width + count + total]
    own = [*results[:count], *results[count + skipped :][: len(extras[k])]]
    kept = linear.residual_values(inputs[:width], own)
    moves = linear.spread(spliced(linear.tangent, [*kept, *inputs[width + count + total :]]))
    outputs = [
        instantiate(t, o.type)
        for t, o, f in zip(moves, linear.primal.outputs, changes, strict=False)
        if f
    ]
    return make_graph(linear.tangent.name, inputs, outputs)


def transpose_switch(node: Node, cotangents: Cotangents, linear: Flags) -> Cotangents:
    branches: tuple[Graph, ...] = node.param("branches")
    marks, given = linear[1:], flags_of(cotangents)
    made = [transpose(branch, marks, given) for branch in branches]
    reached = any_of([spread_reached(m.reached, marks) for m in made])
    fixed = [i for i, flag in zip(node.inputs[1:], marks, strict=True) if not flag]
    kinds = [i.type for i in node.inputs[1:]]
    graphs = []
    for m, branch in zip(made, branches, strict=True):
        inputs = fresh_like(m.graph.inputs)
        found = iter(spliced(m.graph, inputs))
        own = spread_reached(m.reached, marks)
        outputs = [
            instantiate(next(found) if o else None, t)
            for o, t, r in zip(own, kinds, reached, strict=True)
            if r
        ]
        graphs.append(make_graph(f"{branch.name}.transposed", inputs, outputs))
    results = iter(make_switch(node.inputs[0], [*fixed, *present(cotangents)], graphs, node.source))
    return (None, *(next(results) if flag else None for flag in reached))


def batch_switch(node: Node, inputs: Sequence[Node], batched: Flags, axis: Axis) -> Many:
    """An index for each row: all branches, and of each row the one it chose."""
    branches: tuple[Graph, ...] = node.param("branches")
    flags = any_of([batch(branch, batched[1:], axis).batched for branch in branches])
    if not batched[0]:
        made = [batch(branch, batched[1:], axis, flags).graph for branch in branches]
        return tuple(make_switch(inputs[0], inputs[1:], made, node.source)), flags
    everywhere = (True,) * len(flags)
    results: list[Node] = []
    for k, branch in reversed(list(enumerate(branches))):
        operands, marks = guarded(
            inputs[1:], batched[1:], rows_of(inputs[0], k, len(branches)), axis
        )
        column = spliced(batch(branch, marks, axis, everywhere).graph, operands)
        upto = run("less_equal", inputs[0], full_like(inputs[0], k))
        results = (
            [along(upto, x, y) for x, y in zip(column, results, strict=True)]
            if results
            else list(column)
        )
    return tuple(results), everywhere


def rows_of(index: Node, k: int, count: int) -> Node:
    """The rows that take branch k: an index below the first takes the first, one above the last
    takes the last."""
    compare = "less_equal" if k == 0 else "greater_equal" if k == count - 1 else "equal"
    made: Node = run(compare, index, full_like(index, k))
    return made


def guarded(
    operands: Sequence[Node], batched: Flags, chosen: Node, axis: Axis
) -> tuple[list[Node], Flags]:
    """Operands through which no cotangent comes back from rows that did not choose the branch.

    Such a row has the cotangent 0, but 0 times an infinite derivative is NaN. What all rows share
    is repeated for this if it is a number or a vector; a matrix is not, because products with it
    would become products with many.
    """
    made, flags = [], []
    for x, flag in zip(operands, batched, strict=True):
        guards = is_differentiable(x.type) and (flag or x.type.rank <= 1)
        whole = with_axis(x, flag, axis) if guards else x
        made.append(along(chosen, whole, run("stop_gradient", whole)) if guards else x)
        flags.append(flag or guards)
    return made, tuple(flags)


def along(chosen: Node, x: Node, y: Node) -> Node:
    """x for the rows that are chosen, y for the others."""
    return where(spread(chosen, range(1, x.type.rank), x.type.shape), x, y)


# -- while -----------------------------------------------------------------------------------------


def split_while(node: Node, values: Sequence[Node]) -> tuple[list[Node], list[Node], list[Node]]:
    a = node.param("condition_consts")
    b = a + node.param("body_consts")
    return list(values[:a]), list(values[a:b]), list(values[b:])


def jvp_while(
    node: Node, primals: Sequence[Node], tangents: Sequence[Tangent], is_again: bool = False
) -> Both:
    """One loop that carries tangents beside values; the condition looks at the values alone.
    `is_again`: what happens in the loop happens elsewhere."""
    body: Graph = node.param("body")
    condition: Graph = node.param("condition")
    if is_again:
        why = "a while_loop is walked through twice for its derivative"
        body, condition = without_effects(body, why), without_effects(condition, why)
    asked, consts, carries = split_while(node, primals)
    _, const_moves, carry_moves = split_while(node, tangents)  # type: ignore[arg-type]
    fixed, moving = flags_of(const_moves), flags_of(carry_moves)
    while (
        after := tuple(map(any, zip(moving, jvp(body, fixed + moving).changes, strict=True)))
    ) != moving:
        moving = after
    made = jvp(body, fixed + moving)
    inputs = fresh_like(made.graph.inputs)
    outputs, moves = made.split(spliced(made.graph, inputs))
    changed = [
        instantiate(t, o.type) for t, o, flag in zip(moves, outputs, moving, strict=True) if flag
    ]
    order = grouped(inputs, len(consts), len(carries), sum(fixed))
    step = make_graph(f"{body.name}.jvp", order, [*outputs, *changed])
    starts = [
        instantiate(t, c.type)
        for t, c, flag in zip(carry_moves, carries, moving, strict=True)
        if flag
    ]
    tested = fresh_like(condition.inputs)
    test = make_graph(condition.name, [*tested, *fresh_like(starts)], spliced(condition, tested))
    results = make_while(
        test, step, asked, [*consts, *present(const_moves)], [*carries, *starts], node.source
    )
    rest = iter(results[len(carries) :])
    return tuple(results[: len(carries)]), tuple(next(rest) if flag else None for flag in moving)


def grouped(inputs: Sequence[Node], consts: int, carries: int, moved_consts: int) -> list[Node]:
    """consts, carries, tangents of both  ->  consts and theirs, carries and theirs."""
    values, moves = inputs[: consts + carries], inputs[consts + carries :]
    return [*values[:consts], *moves[:moved_consts], *values[consts:], *moves[moved_consts:]]


def linearize_while(node: Node, primals: Sequence[Node], tangents: Sequence[Tangent]) -> Both:
    """The change walks forward in a loop that computes the values again: it may be asked for, or
    stopped behind it."""
    return results_of(node), jvp_while(node, primals, tangents, is_again=True)[1]


def transpose_while(node: Node, cotangents: Cotangents, linear: Flags) -> Cotangents:
    raise DerivativeError(
        "while_loop has no reverse derivative: how many steps it takes is only known afterwards",
        source=node.source,
        hint="use td.scan, or td.fori_loop with bounds that are Python ints; td.jvp and td.jacfwd "
        "work",
    )


def batch_while(node: Node, inputs: Sequence[Node], batched: Flags, axis: Axis) -> Many:
    """While any row goes on; rows that are done keep what they have."""
    condition: Graph = node.param("condition")
    body: Graph = node.param("body")
    asked, consts, carries = split_while(node, inputs)
    asked_flags, const_flags = batched[: len(asked)], batched[len(asked) : len(asked) + len(consts)]
    before = batched[len(asked) + len(consts) :]
    flags, everywhere = before, (True,) * len(before)
    while (after := any_of([flags, batch(body, const_flags + flags, axis).batched])) != flags:
        flags = after
    if batch(condition, asked_flags + flags, axis).batched[0]:
        flags = everywhere
    test = batch(condition, asked_flags + flags, axis)
    starts = [
        with_axis(c, was, axis) if flag else c
        for c, was, flag in zip(carries, before, flags, strict=True)
    ]
    step = batch(body, const_flags + flags, axis, flags).graph
    if not test.batched[0]:
        return tuple(make_while(test.graph, step, asked, consts, starts, node.source)), flags
    outer = fresh_like(test.graph.inputs)
    any_row = make_graph(
        condition.name, outer, [run("reduce_any", spliced(test.graph, outer)[0], axes=(0,))]
    )
    guarded = guarded_step(test.graph, step, asked, consts, starts)
    return tuple(make_while(any_row, guarded, asked, [*asked, *consts], starts, node.source)), flags


def guarded_step(
    test: Graph, step: Graph, asked: Sequence[Node], consts: Sequence[Node], carries: Sequence[Node]
) -> Graph:
    """A step for the rows whose condition holds."""
    tested, fixed, state = fresh_like(asked), fresh_like(consts), fresh_like(carries)
    (goes_on,) = spliced(test, [*tested, *state])
    after = spliced(step, [*fixed, *state])
    kept = [along(goes_on, new, old) for new, old in zip(after, state, strict=True)]
    return make_graph(f"{step.name}.guarded", [*tested, *fixed, *state], kept)


forward.NESTED |= {switch: jvp_switch, while_loop: jvp_while}
linearizing.NESTED |= {switch: linearize_switch, while_loop: linearize_while}
transposing.NESTED |= {switch: transpose_switch, while_loop: transpose_while}
batching.NESTED |= {switch: batch_switch, while_loop: batch_while}
