"""Which nodes share a kernel: what is computed at many indices gets memory, so that kernels stay
small."""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np
import pytest

import tetrad as td
from tetrad.backends.cpu.isa import current_target
from tetrad.compiler.pipeline import lower_graph, optimise
from tetrad.lower.lower import Lowerer
from tetrad.passes import fuse as fuse_module
from tetrad.passes.fuse import MAP_WORK, ROW_WORK, TILE_WORK, TRIES, _Fusion, fuse
from tetrad.passes.questions import weight
from tetrad.schedule.nodes import programs_of

Program = Callable[[td.Array], td.Array]


def kept(x: td.Array) -> td.Array:
    return x - td.exp(td.max(x, axis=-1, keepdims=True))


def kept_over_two_axes(x: td.Array) -> td.Array:
    return x / td.sqrt(td.sum(x * x, axis=(1, 2), keepdims=True))


KINDS = [
    (lambda x: td.tanh(x) * x + 1, ["map"]),
    (kept, ["rows"]),
    (kept_over_two_axes, ["rows"]),
    (lambda x: td.exp(td.sum(x, axis=-1)), ["rows"]),
    (lambda x: td.sum(x, axis=0), ["columns"]),
    (lambda x: td.permute_dims(x, (0, 2, 1)), ["transpose"]),
    (lambda x: td.nn.relu(x @ x.mT + 1), ["matmul"]),
]


@pytest.mark.parametrize(("function", "kinds"), KINDS)
def test_kinds_of_groups(function: Program, kinds: list[str]) -> None:
    graph = optimise(td.trace(function)(td.Spec((4, 100, 100))))
    assert [group.kind for group in fuse(graph)] == kinds


def dense(x: td.Array, w: td.Array, b: td.Array) -> td.Array:
    return td.nn.gelu(x @ w + b) + x


@pytest.mark.parametrize("rows", [6, td.Dim("rows", max=64)])
def test_a_batch_of_rows_is_multiplied_with_its_epilogue(rows: td.Dim | int) -> None:
    """A product of all rows at once is regrouped behind the work on it, not before."""
    shapes = (rows, 8, 100), (100, 100), (100,)
    graph = optimise(td.trace(dense)(*map(td.Spec, shapes)))
    schedule = lower_graph(graph, Lowerer(current_target().machine))
    assert [step.name for step in schedule.steps] == ["matmul_add_gelu_tanh"]


def test_an_optimiser_has_a_kernel_of_its_own() -> None:
    """A product that updated a weight and its moments would touch short pieces of many rows."""

    def momentum(w: td.Array, m: td.Array, v: td.Array, x: td.Array) -> tuple[td.Array, ...]:
        gradient = x.T @ x
        m, v = m + gradient, v + gradient * gradient
        return w - m / td.sqrt(v), m, v

    shape = td.Spec((100, 100))
    three = fuse(optimise(td.trace(momentum)(shape, shape, shape, td.Spec((64, 100)))))
    assert [group.kind for group in three] == ["matmul", "map"]
    one = fuse(optimise(td.trace(lambda w, x: w - x.T @ x)(shape, td.Spec((64, 100)))))
    assert [group.kind for group in one] == ["matmul"]


def test_a_norm_after_a_product_of_a_batch_is_one_kernel() -> None:
    def normed(x: td.Array, w: td.Array) -> td.Array:
        return td.nn.layer_norm(x @ w + x)

    graph = optimise(td.trace(normed)(td.Spec((6, 8, 100)), td.Spec((100, 100))))
    schedule = lower_graph(graph, Lowerer(current_target().machine))
    assert len(schedule.steps) == 2


def test_products_that_meet_in_other_shapes_regroup_once() -> None:
    def both(x: td.Array, w: td.Array, z: td.Array) -> td.Array:
        return td.tanh(x @ w) * td.reshape(z @ w, (4, 6, 8)) + td.reshape(x @ w, (2, 12, 8)).sum()

    shapes = (4, 6, 8), (8, 8), (24, 8)
    optimise(td.trace(both)(*map(td.Spec, shapes)))  # ends
    arrays = [np.random.default_rng(i).standard_normal(s) for i, s in enumerate(shapes)]
    np.testing.assert_allclose(td.jit(both)(*arrays), both(*map(td.asarray, arrays)), rtol=1e-9)


def test_halves_of_an_array_that_meet_again_do_not_double_the_code() -> None:
    """A product is differentiated in pairs; read where it is needed, its last element would be
    computed 512 times."""
    graph = td.trace(td.grad(td.prod))(td.Spec((512,)))
    programs = programs_of(lower_graph(graph, Lowerer(current_target().machine)))
    assert 2 < len(programs) < 40
    assert max(len(str(p)) for p in programs) < 30_000


def test_a_little_work_is_done_twice_rather_than_kept() -> None:
    def neighbours(x: td.Array) -> td.Array:
        y = x * 2 + 1
        return y[1:] - y[:-1]

    graph = td.trace(neighbours)(td.Spec((100,)))
    assert len(programs_of(lower_graph(graph, Lowerer(current_target().machine)))) == 1


def test_chains_whose_steps_read_each_other_twice_take_no_longer() -> None:
    """There are 2 to the power of 60 ways from the product down to its operand."""

    def deep(x: td.Array, w: td.Array) -> td.Array:
        for _ in range(60):
            x = x * x + x
        return x @ w

    started = time.perf_counter()
    fuse(td.trace(deep)(td.Spec((8, 8)), td.Spec((8, 8))))
    assert time.perf_counter() - started < 5


def unrolled(x: td.Array) -> td.Array:
    for _ in range(100):
        x = td.tanh(x) * x + 0.1
    return x


def row_after_row(x: td.Array) -> td.Array:
    for _ in range(12):
        x = td.exp(x - td.max(x, axis=1, keepdims=True))
        x = x / td.sum(x, axis=1, keepdims=True)
    return x


def on_a_product(x: td.Array) -> td.Array:
    return unrolled(x @ td.ones((64, 64)))


def before_a_sum(x: td.Array) -> td.Array:
    return td.sum(unrolled(x), axis=1)


def added_up(x: td.Array) -> td.Array:
    return sum((td.sin(x * (i + 0.5)) for i in range(20)), start=td.zeros(()))


def two_at_a_time(x: td.Array) -> td.Array:
    y = x + 1
    for _ in range(300):
        x, y = y, x * 0.5 + y * 0.5
    return x


LONG = (unrolled, row_after_row, on_a_product, before_a_sum, added_up, two_at_a_time)


@pytest.mark.parametrize("function", LONG, ids=lambda f: f.__name__)
def test_no_kernel_holds_more_work_than_compiles_quickly(function: Program) -> None:
    graph = optimise(td.trace(function)(td.Spec((8, 64))))
    groups = fuse(graph)
    most = {"map": MAP_WORK, "rows": ROW_WORK, "matmul": TILE_WORK}
    assert len(groups) > 1
    for group in groups:
        assert sum(weight(m) for m in group.members if m.op.name != "matmul") <= most[group.kind]
    for program in programs_of(lower_graph(graph, Lowerer(current_target().machine))):
        assert len(str(program)) < 150_000


@pytest.mark.parametrize(
    "function", [unrolled, row_after_row, before_a_sum, two_at_a_time], ids=lambda f: f.__name__
)
def test_the_cuts_change_nothing(function: Program) -> None:
    x = td.asarray(np.random.default_rng(1).random((8, 64), np.float32))
    np.testing.assert_allclose(td.jit(function)(x), function(x), rtol=2e-5)


def test_equal_pieces_of_a_long_chain_are_one_kernel() -> None:
    graph = optimise(td.trace(unrolled)(td.Spec((8, 64))))
    lowered = lower_graph(graph, Lowerer(current_target().machine))
    assert len(lowered.steps) > 2 * len(set(programs_of(lowered)))


def test_a_long_chain_is_fused_in_no_time() -> None:
    def steps(x: td.Array) -> td.Array:
        for i in range(1000):
            x = x * 1.0001 + i
        return x

    graph = td.trace(steps)(td.Spec((100,)))
    started = time.perf_counter()
    assert len(fuse(graph)) < 8
    assert time.perf_counter() - started < 5


class Asked:
    """Members that count how often it is asked whether a node is one of them."""

    def __init__(self) -> None:
        self.times = 0

    def __contains__(self, node: object) -> bool:
        self.times += 1
        return False


def lattice(x: td.Array) -> list[td.Array]:
    """Numbers that are mixed with their neighbours, over and over."""
    ys = [x[i] for i in range(20)]
    for _ in range(30):
        ys = [ys[i] * 0.5 + ys[(i + 1) % 20] for i in range(20)]
    return ys


def test_what_runs_together_is_asked_together() -> None:
    graph = optimise(td.trace(lattice)(td.Spec((20,))))
    fusion = _Fusion(graph)
    groups = fusion.groups()
    asked = Asked()
    assert not fusion.wait(graph.outputs, asked, -1)
    alone = [node for node in graph.nodes() if node not in fusion.whole]
    edges = sum(len(part.inputs) for part in (*set(fusion.whole.values()), *alone))
    assert len(groups) < 10
    assert asked.times <= edges + len(graph.outputs)


def crossed(x: td.Array) -> tuple[td.Array, td.Array]:
    """The second product could end with what waits for the first, and the first with what waits for
    the second."""
    first = x @ x.mT
    turned = td.permute_dims(td.tanh(first) @ x, (1, 0))
    second = x @ (x + 1)
    return turned + second, first + td.permute_dims((second * x) @ x, (1, 0))


def test_groups_do_not_wait_for_each_other() -> None:
    x = np.linspace(-1, 1, 64).reshape(8, 8)
    for got, want in zip(td.jit(crossed)(x), crossed(td.asarray(x)), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-12)


def test_maps_that_have_nothing_in_common_are_not_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[object] = []
    monkeypatch.setattr(fuse_module, "can_merge", lambda *_: compared.append(_) or False)
    graph = td.trace(lambda *xs: [td.exp(x) for x in xs])(*[td.Spec((8,))] * 50)
    assert len(fuse(optimise(graph))) == 50 and not compared


class Counted(dict[object, int]):
    """A table that counts how often it is asked."""

    asked = 0

    def __getitem__(self, key: object) -> int:
        self.asked += 1
        return super().__getitem__(key)


def steps_of_fusion(layers: int) -> int:
    """For the change of a gradient of a network: four chains of products that read each other."""

    def loss(weights: list[td.Array], x: td.Array) -> td.Array:
        for w in weights:
            x = td.tanh(x @ w)
        return td.sum(x)

    def change(weights: list[td.Array], x: td.Array) -> list[td.Array]:
        changed: list[td.Array] = td.jvp(lambda w: td.grad(loss)(w, x), (weights,), (weights,))[1]
        return changed

    fusion = _Fusion(optimise(td.trace(change)([td.Spec((8, 8))] * layers, td.Spec((4, 8)))))
    fusion.until = Counted(fusion.until)  # type: ignore[assignment]
    fusion.groups()
    return fusion.until.asked  # type: ignore[attr-defined]


def test_chains_that_read_each_other_are_not_walked_to_their_beginning() -> None:
    assert steps_of_fusion(40) < 20_000


def test_a_map_is_compared_with_few_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """All read x, and none is computed with another."""
    compared: list[object] = []
    monkeypatch.setattr(fuse_module, "can_merge", lambda *_: compared.append(_) or False)
    graph = td.trace(lambda x: [td.exp(x * i) for i in range(2, 102)])(td.Spec((8,)))
    assert len(fuse(optimise(graph))) == 100 and len(compared) <= 100 * TRIES
