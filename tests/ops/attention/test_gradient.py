"""The gradient of attention over arrays: the vectors of the specification, finite differences, what
is hidden, transforms of it, and the same bits however it is put together."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tetrad as td
from tests.compiled import difference, run, run_on_evaluator
from tests.ops.attention.test_dense import WAYS, K, Q, V, operands
from tetrad.backends.cpu.isa.x86_64 import BASELINE, V3, V4
from tetrad.compiler.driver import compile_graph
from tetrad.compiler.pipeline import lower_graph
from tetrad.core.dtypes import DType, as_dtype, bf16, f16, f32, f64
from tetrad.core.errors import SettingError, ShapeError
from tetrad.core.record import replace
from tetrad.core.sizes import plain
from tetrad.core.types import ArrayType
from tetrad.graph.build import make_graph, make_parameter
from tetrad.graph.nodes import Graph
from tetrad.kernel.verify import verify
from tetrad.lower.lower import Lowerer
from tetrad.nn import dot_product_attention
from tetrad.ops.attention.gradient import WRT, attention_gradient
from tetrad.ops.attention.op import attention
from tetrad.schedule.evaluate import evaluate as evaluate_schedule
from tetrad.schedule.nodes import programs_of

Array = np.ndarray
BOTH = pytest.mark.parametrize("way", [lambda f: f, td.jit], ids=["eager", "compiled"])


def settled(settings: dict[str, Any]) -> dict[str, Any]:
    return {"layout": "bsnh", "scale": 0.25, **settings}


def with_residuals(arrays: list[Array], settings: dict[str, Any], seed: int = 1) -> list[Array]:
    """The operands of the gradient: those of attention, lse, delta and a cotangent."""
    out, lse = attention(*arrays, **settled(settings))
    ct = np.random.default_rng(seed).standard_normal(out.shape).astype(out.dtype)
    delta = (out.astype(lse.dtype) * ct.astype(lse.dtype)).sum(-1)
    return [*arrays, lse, delta, ct]


def graph_of(arrays: list[Array], settings: dict[str, Any], wrt: tuple[str, ...] = WRT) -> Graph:
    kinds = [ArrayType(as_dtype(a.dtype), a.shape) for a in arrays]
    inputs = [make_parameter(kind, i, fresh=True) for i, kind in enumerate(kinds)]
    made = attention_gradient(*inputs, wrt=wrt, **settled(settings))
    return make_graph("gradient", inputs, made if isinstance(made, tuple) else [made])


@BOTH
def test_the_specification(way: Any) -> None:
    ct = np.float32([[1, 0], [0, 1], [1, -1]]).reshape(1, 3, 1, 2)
    want = {
        False: (
            [[0, -0.567258], [-0.117268, -0.109273], [0, 0]],
            [[-0.567258, -0.343809], [0, 0.117268], [0.567258, 0.226541]],
            [[0.802224, -0.117117], [0.598888, 0.174863], [0.598888, -0.057747]],
        ),
        True: (
            [[0, 0], [-0.312797, 0.312797], [0, 0]],
            [[0, -0.312797], [0, 0.312797], [0, 0]],
            [[1.401112, -0.070874], [0.401112, 0.268649], [0.197776, -0.197776]],
        ),
    }
    for is_causal, meant in want.items():

        def weighted(q: Any, k: Any, v: Any, is_causal: bool = is_causal) -> Any:
            return td.sum(dot_product_attention(q, k, v, is_causal=is_causal) * ct)

        for got, one in zip(way(td.grad(weighted, argnums=(0, 1, 2)))(Q, K, V), meant, strict=True):
            np.testing.assert_allclose(np.asarray(got).reshape(3, 2), one, atol=1e-6)


# -- the op ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [f32, f64, f16, bf16], ids=str)
@pytest.mark.parametrize("name", WAYS)
def test_compiled_is_its_meaning(name: str, dtype: DType) -> None:
    settings = WAYS[name]
    arrays = operands((2, 21, 290, 4, 2, 8, 5), dtype, settings.get("given", ()))
    arrays = with_residuals(arrays, settings)
    got = run(compile_graph(graph_of(arrays, settings)), arrays, {}, 2)
    want = attention_gradient(*arrays, wrt=WRT, **settled(settings))
    eps = {f32: 2.0**-23, f64: 2.0**-52, f16: 2.0**-11, bf16: 2.0**-8}[dtype]
    for found, meant in zip(got, want, strict=True):
        wide = meant.astype(np.float64)
        np.testing.assert_allclose(
            found.astype(np.float64), wide, rtol=2 * eps, atol=256 * eps * np.abs(wide).max()
        )


@pytest.mark.parametrize("name", ["causal", "all"])
def test_machine_code_is_the_evaluator(name: str) -> None:
    """Which looks for races, too."""
    settings = WAYS[name]
    arrays = operands((1, 5, 258, 2, 1, 3, 18), f32, settings.get("given", ()))
    arrays = with_residuals(arrays, settings)
    program = compile_graph(graph_of(arrays, settings))
    for each in programs_of(program.schedule):
        verify(each)
    pairs = zip(run(program, arrays, {}, 2), run_on_evaluator(program, arrays), strict=True)
    for got, want in pairs:
        assert difference(got, want) is None


@pytest.mark.parametrize("wrt", [(name,) for name in WRT] + [("q", "v")], ids=str)
def test_what_is_asked_for_does_not_change_it(wrt: tuple[str, ...]) -> None:
    settings = {"causal": "top_left", "softcap": 2.0}
    arrays = with_residuals(operands((1, 70, 70, 2, 1, 4, 4)), settings)
    every = dict(zip(WRT, run(compile_graph(graph_of(arrays, settings)), arrays), strict=True))
    found = run(compile_graph(graph_of(arrays, settings, wrt)), arrays)
    for name, got in zip(wrt, found, strict=True):
        assert difference(got, every[name]) is None


def test_batches_and_levels_give_the_same_bits() -> None:
    settings = {"causal": "top_left"}
    arrays = with_residuals(operands((2, 67, 20, 1, 1, 2, 3)), settings)
    whole = run(compile_graph(graph_of(arrays, settings)), arrays, {}, 2)
    one = [x[:1] for x in arrays]
    graph = graph_of(one, settings)
    found = [
        evaluate_schedule(lower_graph(graph, Lowerer(level.machine)), one, {})
        for level in (BASELINE, V3, V4)
    ]
    for other in (run(compile_graph(graph_of(one, settings)), one), *found):
        for got, want in zip(other, whole, strict=True):
            assert difference(got, want[:1]) is None


@pytest.mark.parametrize("name", ["causal", "all"])
def test_work_is_shared_out_with_the_same_bits(name: str) -> None:
    """One kernel that has a kv head, or two that have a key block and a row block."""
    settings = WAYS[name]
    arrays = operands((1, 67, 258, 1, 1, 2, 3), f32, settings.get("given", ()))
    arrays = with_residuals(arrays, settings)
    graph = graph_of(arrays, settings)
    machines = [replace(V4.machine, parallel_groups=n) for n in (1, 8)]
    lowered = [lower_graph(graph, Lowerer(machine)) for machine in machines]
    assert [len(each.steps) for each in lowered] == [1, 2]
    one, other = (evaluate_schedule(each, arrays, {}) for each in lowered)
    for got, want in zip(other, one, strict=True):
        assert difference(got, want) is None


def test_a_key_gets_nothing_from_queries_that_do_not_see_it() -> None:
    """More queries that see nothing of a key, before and behind, do not change its gradient."""
    arrays = operands((1, 300, 300, 1, 1, 4, 4))
    settings = {"before": 5, "after": 5}
    every = with_residuals(arrays, settings)
    few = [x.copy() for x in every]
    few[-1][:, :130] = np.nan  # cotangents of queries that see other keys
    found = [run(compile_graph(graph_of(x, settings)), x) for x in (every, few)]
    for got, want in zip(found[1][1:3], found[0][1:3], strict=True):
        assert difference(got[:, 140:], want[:, 140:]) is None
        assert np.isnan(got[:, :120]).all()


def test_memory_is_linear_in_the_number_of_keys() -> None:
    def largest(length: int) -> int:
        x = ArrayType(f32, (1, length, 2, 16))
        inputs = [make_parameter(x, i, fresh=True) for i in range(3)]
        graph = td.trace(
            td.grad(
                lambda q, k, v: td.sum(dot_product_attention(q, k, v, is_causal=True)),
                argnums=(0, 1, 2),
            )
        )(*(td.zeros(plain_shape(i.type)) for i in inputs))
        programs = programs_of(compile_graph(graph).schedule)
        return max(plain(b.count) * b.dtype.nbytes for p in programs for b in p.buffers if b.count)

    assert largest(4096) <= 2 * largest(2048)


def plain_shape(kind: ArrayType) -> tuple[int, ...]:
    return tuple(plain(n) for n in kind.shape)


def test_what_does_not_fit() -> None:
    arrays = with_residuals(operands((1, 3, 4, 2, 1, 2, 2)), {})
    with pytest.raises(SettingError, match="wrt"):
        graph_of(arrays, {}, ("v", "q"))
    with pytest.raises(ShapeError, match="do not fit"):
        graph_of([*arrays[:-1], arrays[-1][:, :2]], {})


# -- transforms ------------------------------------------------------------------------------------

SMALL = (2, 5, 7, 4, 2, 3, 2)
SOME = ("plain", "window", "both sides", "softcap", "all")


def slope(f: Any, arrays: list[Array], directions: list[Array], h: float = 1e-6) -> float:
    moved = [[x + s * h * d for x, d in zip(arrays, directions, strict=True)] for s in (1, -1)]
    return (float(f(*moved[0])) - float(f(*moved[1]))) / (2 * h)


def loss_of(name: str) -> tuple[Any, list[Array]]:
    """A function of the floats among the operands, to which the logarithms belong too."""
    settings = WAYS[name]
    given = settings.get("given", ())
    arrays = operands(SMALL, f64, given)
    count = 4 if "bias" in given else 3
    rng = np.random.default_rng(5)
    out, lse = attention(*arrays, **settled(settings))
    weights = [rng.standard_normal(x.shape) for x in (out, lse)]

    def loss(*floats: Any) -> Any:
        found, logs = attention(*floats, *arrays[count:], **settled(settings))
        kept = td.where(np.isfinite(lse), logs, 0)
        return td.sum(found * weights[0]) + td.sum(kept * weights[1])

    return loss, arrays[:count]


@BOTH
@pytest.mark.parametrize("name", SOME)
def test_first_and_second_derivatives(way: Any, name: str) -> None:
    loss, arrays = loss_of(name)
    rng = np.random.default_rng(6)
    directions = [rng.standard_normal(x.shape) for x in arrays]
    every = tuple(range(len(arrays)))

    def total(*floats: Any) -> Any:
        return sum(td.sum(g * g * g) for g in td.grad(loss, argnums=every)(*floats))

    for f in (loss, total):
        want = slope(f, arrays, directions)
        gradients = way(td.grad(f, argnums=every))(*arrays)
        pairs = zip(gradients, directions, strict=True)
        got = sum(float(np.sum(np.asarray(g) * d)) for g, d in pairs)
        np.testing.assert_allclose(got, want, rtol=1e-6, atol=1e-6)
        _, moved = way(lambda *xs, f=f: td.jvp(f, xs, tuple(directions)))(*arrays)
        np.testing.assert_allclose(float(moved), want, rtol=1e-6, atol=1e-6)


@BOTH
@pytest.mark.parametrize("name", ["causal", "mask", "lengths", "bias"])
def test_vmap_is_a_loop(way: Any, name: str) -> None:
    settings = settled(WAYS[name])
    rows = [operands(SMALL, f64, settings.get("given", ()), seed) for seed in range(3)]
    stacked = [np.stack(column) for column in zip(*rows, strict=True)]

    def gradient(q: Any, k: Any, v: Any, *rest: Any) -> Any:
        def loss(*xs: Any) -> Any:
            return td.sum(td.sin(attention(*xs, *rest, **settings)[0]))

        return td.grad(loss, argnums=(0, 1, 2))(q, k, v)

    together = way(td.vmap(gradient))(*stacked)
    for i, row in enumerate(rows):
        for got, want in zip(together, gradient(*row), strict=True):
            np.testing.assert_allclose(np.asarray(got)[i], np.asarray(want), rtol=0, atol=1e-12)
    axes = (0, None, None, *(None for _ in rows[0][3:]))
    shared = way(td.vmap(gradient, in_axes=axes))(stacked[0], *rows[0][1:])
    for i in range(3):
        alone = gradient(stacked[0][i], *rows[0][1:])
        for got, want in zip(shared, alone, strict=True):
            np.testing.assert_allclose(np.asarray(got)[i], np.asarray(want), rtol=0, atol=1e-12)


@BOTH
def test_a_query_that_sees_nothing_has_no_gradient(way: Any) -> None:
    q, k, v = operands((1, 4, 5, 2, 1, 3, 3))
    q[:, 2] = np.nan
    mask = np.ones((1, 1, 4, 1), bool)
    mask[:, :, 2] = False
    bias = np.zeros((1, 1, 4, 5), np.float32)
    bias[:, :, 1] = -np.inf

    def loss(q: Any, k: Any, v: Any, bias: Any) -> Any:
        return td.sum(dot_product_attention(q, k, v, bias, mask) ** 2)

    dq, dk, dv, dbias = way(td.grad(loss, argnums=(0, 1, 2, 3)))(q, k, v, bias)
    for found in (dq, dk, dv, dbias):
        assert np.isfinite(np.asarray(found)).all()
    assert not np.asarray(dq)[:, 1:3].any() and not np.asarray(dbias)[:, :, 1:3].any()
