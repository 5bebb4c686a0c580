"""The order of groups: what frees memory runs as soon as it can."""

from __future__ import annotations

from typing import Any

import tetrad as td
from tetrad.backends.cpu.isa import current_target
from tetrad.compiler.pipeline import lower_graph, optimise
from tetrad.lower.lower import Lowerer
from tetrad.passes.fuse import fuse
from tetrad.schedule.nodes import Schedule
from tetrad.schedule.outputs import donations
from tetrad.schedule.plan import lifetimes, plan

LAYERS, ROWS, WIDTH = 8, 512, 64
ARRAY = 4 * ROWS * WIDTH


def lowered(function: Any, *args: Any) -> Schedule:
    return lower_graph(td.trace(function)(*args), Lowerer(current_target().machine))


def arena(schedule: Schedule) -> int:
    return plan(lifetimes(schedule, {}, {})[1]).total


def loss(weights: list[td.Array], biases: list[td.Array], x: td.Array) -> td.Array:
    for w, b in zip(weights, biases, strict=True):
        x = td.nn.gelu(x @ w + b)
    return td.sum(x)


def test_gradients_of_weights_do_not_wait_for_the_end() -> None:
    """The way forward keeps two arrays a layer; the way back adds a few, not one a layer."""
    weights, biases = [td.Spec((WIDTH, WIDTH))] * LAYERS, [td.Spec((WIDTH,))] * LAYERS
    step = td.grad(loss, argnums=(0, 1))
    found = arena(lowered(step, weights, biases, td.Spec((ROWS, WIDTH))))
    assert 2 * LAYERS * ARRAY <= found < (2 * LAYERS + 4) * ARRAY


def test_a_sum_runs_before_more_is_made() -> None:
    """Each array is summed before the next is made, though the sums are used last."""

    def sums(x: td.Array) -> td.Array:
        found = []
        for _ in range(6):
            x = td.sort(x, axis=-1, descending=len(found) % 2 == 0)
            found.append(td.sum(x, axis=0))
        return td.sum(td.stack(found) ** 2)

    assert arena(lowered(sums, td.Spec((ROWS, WIDTH)))) < 4 * ARRAY


def test_every_group_comes_after_those_it_reads() -> None:
    step = td.grad(loss, argnums=(0, 1))
    weights, biases = [td.Spec((WIDTH, WIDTH))] * LAYERS, [td.Spec((WIDTH,))] * LAYERS
    graph = optimise(td.trace(step)(weights, biases, td.Spec((ROWS, WIDTH))))
    groups = fuse(graph)
    made = {o for g in groups for o in g.outputs}
    seen: set[Any] = set()
    for group in groups:
        assert {i for m in group.members for i in m.inputs if i in made} <= seen | set(
            group.members
        )
        seen.update(group.outputs)


def update_step(params: Any, state: Any, x: td.Array) -> Any:
    optimiser = td.optim.adam(1e-3)
    found = td.grad(lambda p: loss(p[0], p[1], x))(params)
    updates, state = optimiser.update(found, state, params)
    return td.optim.apply_updates(params, updates), state


def update_schedule() -> tuple[Schedule, int]:
    """The schedule of a step of Adam, and how many arrays it is given to change."""
    weights, biases = [td.Spec((WIDTH, WIDTH))] * LAYERS, [td.Spec((WIDTH,))] * LAYERS
    params = (weights, biases)
    state = td.optim.adam(1e-3).init(td.tree.map(lambda s: td.zeros(s.shape), params))
    given = td.tree.leaves((params, state))
    return lowered(update_step, params, state, td.Spec((ROWS, WIDTH))), len(given)


def test_an_update_comes_right_after_its_gradient() -> None:
    """Though all updates wait for numbers that the step counts: no two gradients of weights are
    held at once."""
    schedule, _ = update_schedule()
    size = 4 * WIDTH * WIDTH
    made: dict[Any, int] = {}
    spans = []
    for i, step in enumerate(schedule.steps):
        for slot in step.reads:
            if slot in made:
                spans.append(i - made.pop(slot))
        made |= {s: i for s in step.writes if s.kind == "temp" and s.type.nbytes == size}
    assert len(spans) == LAYERS and max(spans) <= 3


def test_an_update_waits_until_its_weights_have_been_read() -> None:
    """So that results may live where the weights and moments were, every one of them."""
    schedule, given = update_schedule()
    assert len(donations(schedule, tuple(range(given)))) == given
