"""Custom derivatives, checkpoints and stopped gradients: published cases, both modes, and wrong
rules."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tetrad as td
from tetrad.core.errors import TraceError, UnsupportedError
from tetrad.graph.nested import innermost_first


def close(got: Any, want: Any, within: float = 1e-6) -> None:
    np.testing.assert_allclose(np.asarray(got), want, rtol=0, atol=within)


def doubled() -> Any:
    """The identity, with twice its derivative."""
    f = td.custom_vjp(lambda x: x)
    f.defvjp(lambda x: (x, None), lambda _, ct: (2 * ct,))
    return f


def product() -> Any:
    f = td.custom_vjp(lambda a, b: a * b)
    f.defvjp(lambda a, b: (a * b, (a, b)), lambda kept, ct: (kept[1] * ct, kept[0] * ct))
    return f


def test_a_custom_function_computes_what_it_says() -> None:
    f = td.custom_vjp(lambda x: x + 1)
    f.defvjp(lambda x: (x + 1, None), lambda _, ct: (ct,))
    for g in (f, td.jit(f)):
        close(g(td.asarray([10.0, 20.0, 30.0])), [11, 21, 31], 0)


def test_a_vjp_rule_replaces_the_derivative_even_when_it_is_wrong() -> None:
    for f in (td.value_and_grad(doubled()), td.jit(td.value_and_grad(doubled()))):
        value, gradient = f(7.0)
        close(value, 7)
        close(gradient, 2)


def test_several_arguments() -> None:
    value, (by_a, by_b) = td.value_and_grad(product(), argnums=(0, 1))(3.0, 5.0)
    close([value, by_a, by_b], [15, 5, 3])


def test_a_jvp_rule_serves_both_modes() -> None:
    f = td.custom_jvp(lambda x: x)
    f.defjvp(lambda primals, tangents: (f(*primals), 2 * tangents[0]))
    close(td.jvp(f, (7.0,), (1.0,)), [7, 2])
    close(td.grad(f)(7.0), 2)
    close(td.jit(td.grad(f))(7.0), 2)
    close(td.vmap(td.grad(f))(td.asarray([1.0, 2.0])), [2, 2])
    close(td.grad(lambda x: td.sum(td.vmap(f)(x)))(td.asarray([1.0, 2.0])), [2, 2])


def test_a_rule_for_each_argument() -> None:
    f = td.custom_jvp(lambda x, y: x * y)
    f.defjvps(lambda t, z, x, y: 3 * t * y, None)
    close(td.grad(f, argnums=(0, 1))(2.0, 5.0), [15, 0])


def test_rules_for_each_argument_of_a_function_with_several_results() -> None:
    f = td.custom_jvp(lambda x, y: {"sum": x + y, "product": x * y})
    f.defjvps(
        lambda t, z, x, y: {"sum": t, "product": 3 * t * y},
        lambda t, z, x, y: {"sum": 2 * t, "product": 5 * t * x},
    )
    _, change = td.jvp(f, (2.0, 5.0), (1.0, 10.0))
    close(change["sum"], 21)
    close(change["product"], 115)


def test_without_any_rule_nothing_changes_even_at_infinity() -> None:
    f = td.custom_jvp(lambda x: (x * td.inf, x))
    f.defjvps(None)
    value, change = td.jvp(f, (2.0,), (1.0,))
    assert float(value[0]) == td.inf and [float(c) for c in change] == [0, 0]
    assert float(td.grad(lambda x: f(x)[0])(2.0)) == 0


def test_several_results_of_different_types() -> None:
    f = td.custom_vjp(lambda x: (x * x, td.astype(2 * x, td.float64), td.asarray(3)))
    f.defvjp(lambda x: (f(x), x), lambda x, ct: (100 * x * ct[0] + td.astype(ct[1], td.float32),))
    squares, doubles, three = f(td.asarray([1.0, 2.0, 3.0]))
    close(squares, [1, 4, 9])
    close(doubles, [2, 4, 6])
    assert int(three) == 3
    assert doubles.dtype is td.float64
    close(td.grad(lambda x: f(x)[0])(2.0), 200)
    close(td.grad(lambda x: td.astype(f(x)[1], td.float32))(2.0), 1)


def test_settings_that_are_not_differentiated() -> None:
    f = td.custom_vjp(lambda g, x: g(x), nondiff_argnums=(0,))
    f.defvjp(lambda g, x: (g(x), x), lambda g, x, ct: (5 * ct,))
    close(td.grad(lambda x: f(td.sin, x))(1.0), 5)


def test_trees_in_and_out() -> None:
    f = td.custom_vjp(lambda p: {"y": p["a"] * p["b"][0]})
    f.defvjp(lambda p: (f(p), p), lambda p, ct: ({"a": ct["y"], "b": [2 * ct["y"]]},))
    found = td.grad(lambda p: f(p)["y"])({"a": 1.0, "b": [2.0]})
    close(found["a"], 1)
    close(found["b"][0], 2)


def test_rows_of_a_batch() -> None:
    f = product()
    rows = td.asarray([1.0, 2.0])
    per_row = td.vmap(td.grad(f, argnums=(0, 1)), in_axes=(0, None))(rows, 5.0)
    close(per_row[0], [5, 5])
    close(per_row[1], [1, 2])
    by_rows, by_shared = td.grad(
        lambda a, b: td.sum(td.vmap(f, in_axes=(0, None))(a, b)), argnums=(0, 1)
    )(rows, 5.0)
    close(by_rows, [5, 5])
    close(by_shared, 3)


def test_second_derivatives_go_through_the_rules() -> None:
    f = td.custom_jvp(lambda x: td.sin(x))
    f.defjvp(lambda p, t: (f(*p), td.cos(p[0]) * t[0]))
    close(td.grad(td.grad(f))(0.5), -np.sin(0.5))
    g = td.custom_vjp(lambda x: td.sin(x))
    g.defvjp(lambda x: (td.sin(x), x), lambda x, ct: (td.cos(x) * ct,))
    close(td.grad(td.grad(g))(0.5), -np.sin(0.5))


def test_a_vjp_rule_alone_has_no_forward_derivative() -> None:
    with pytest.raises(UnsupportedError, match="custom vjp, so it has no forward derivative"):
        td.jvp(doubled(), (1.0,), (1.0,))


def test_a_function_without_a_rule() -> None:
    with pytest.raises(TraceError, match=r"f has no rule yet(.|\n)*defvjp"):

        @td.custom_vjp
        def f(x: Any) -> Any:
            return x

        td.grad(f)(1.0)


@pytest.mark.parametrize(
    ("bwd", "message"),
    [
        (
            lambda _, ct: ct,
            r"a tuple of 2, one for each argument, it returned f32\[\](.|\n)*for one",
        ),
        (lambda _, ct: [ct], r"a tuple of 2, one for each argument, it returned a list of 1"),
        (lambda _, ct: (ct,), r"a tuple of 2, one for each argument, it returned 1"),
        (lambda _, ct: (ct, [ct]), r"must return the tree of argument 1"),
        (
            lambda _, ct: (td.ones(3), ct),
            r"returned f32\[3\] for an argument leaf that is f32\[\](.|\n)*td.sum",
        ),
        (
            lambda _, ct: (ct.astype(td.float64), ct),
            r"returned f64\[\] for an argument leaf that is f32(.|\n)*astype",
        ),
    ],
)
def test_backward_rules_of_the_wrong_form(bwd: Any, message: str) -> None:
    f = td.custom_vjp(lambda a, b: a * b)
    f.defvjp(lambda a, b: (a * b, None), bwd)
    with pytest.raises(TraceError, match=message):
        td.grad(f)(1.0, 2.0)


def test_forward_rules_of_the_wrong_form() -> None:
    f = td.custom_vjp(lambda a: a)
    f.defvjp(lambda a: a, lambda _, ct: (ct,))
    with pytest.raises(
        TraceError, match=r"forward rule of .* must return a pair .*, it returned f32"
    ) as caught:
        td.grad(f)(1.0)
    assert caught.value.hint == "return value, None if it needs nothing"
    g = td.custom_jvp(lambda a: a)
    g.defjvp(lambda p, t: (p[0], td.ones(2)))
    with pytest.raises(
        TraceError, match=r"returned a tangent of f32\[2\], it must be f32\[\](.|\n)*a tangent has"
    ):
        td.grad(g)(1.0)


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        (
            lambda p, t: p[0],
            r"must return a pair \(value, tangent\), it returned f32\[\](.|\n"
            r")*return value, tangent",
        ),
        (lambda p, t: None, r"must return a pair \(value, tangent\), it returned a NoneType"),
        (lambda p, t: (p[0], t[0], t[0]), r"must return a pair \(value, tangent\), it returned 3"),
        (
            lambda p, t: (p[0], t[0].astype(td.float64)),
            r"a tangent of f64\[\], it must be f32(.|\n)*astype",
        ),
        (
            lambda p, t: (p[0], t),
            r"a tangent with the tree of what <lambda> returns, \*, it returned \(\*,\)",
        ),
    ],
)
def test_forward_derivatives_of_the_wrong_form(rule: Any, message: str) -> None:
    f = td.custom_jvp(lambda a: a)
    f.defjvp(rule)
    with pytest.raises(TraceError, match=rf"custom_jvp: the rule of <lambda> .*{message}"):
        td.jvp(f, (1.0,), (1.0,))


def test_a_forward_rule_may_call_its_function_in_a_batch() -> None:
    f = td.custom_vjp(lambda x, k: td.sin(x) * k)
    f.defvjp(
        lambda x, k: (f(x, k), (td.cos(x), k)),
        lambda kept, ct: (3 * ct * kept[0] * kept[1], td.sum(ct) * 5),
    )

    def loss(rows: Any, k: Any) -> Any:
        return td.sum(td.vmap(td.vmap(lambda x: f(x, k)))(rows))

    rows = np.linspace(-1, 1, 12, dtype=np.float32).reshape(2, 3, 2)
    for g in (td.grad(loss, argnums=(0, 1)), td.jit(td.grad(loss, argnums=(0, 1)))):
        by_rows, by_k = g(td.asarray(rows), 2.0)
        close(by_rows, 6 * np.cos(rows))
        close(by_k, 5 * rows.size, 1e-4)


def test_rules_get_arguments_by_place_with_defaults() -> None:
    f = td.custom_vjp(named_product)
    f.defvjp(lambda a, b: (a * b, b), lambda b, ct: (10 * b * ct, None))
    g = td.custom_jvp(named_product)
    g.defjvp(lambda p, t: (p[0] * p[1], 10 * p[1] * t[0]))
    for h in (f, g):
        close(td.grad(h)(1.0), 20)
        close(td.grad(lambda x, h=h: h(b=3.0, a=x))(1.0), 30)


def named_product(a: Any, b: Any = 2.0) -> Any:
    return a * b


# -- computed again, or not at all -----------------------------------------------------------------


def test_checkpoints_change_no_value() -> None:
    def f(x: Any, w: Any) -> Any:
        return td.sum(td.tanh(td.sin(x @ w) @ w))

    x, w = td.asarray(np.ones((2, 3), np.float32)), td.asarray(np.full((3, 3), 0.25, np.float32))
    for g in (td.grad(f, argnums=(0, 1)), td.jit(td.grad(td.checkpoint(f), argnums=(0, 1)))):
        for got, want in zip(g(x, w), td.grad(td.checkpoint(f), argnums=(0, 1))(x, w), strict=True):
            close(got, np.asarray(want))

    def twice(f: Any) -> Any:
        return td.grad(td.grad(f))(0.5)

    close(twice(td.checkpoint(lambda x: td.sin(td.sin(x)))), twice(lambda x: td.sin(td.sin(x))))
    close(td.vmap(td.grad(td.checkpoint(td.sin)))(td.asarray([0.0, 1.0])), np.cos([0.0, 1.0]))
    close(td.jvp(td.checkpoint(td.sin), (0.5,), (1.0,)), [np.sin(0.5), np.cos(0.5)])


def test_checkpoint_keeps_only_the_arguments() -> None:
    def deep(x: Any) -> Any:
        return td.sin(td.sin(td.sin(td.sin(x))))

    assert np.asarray(td.vjp(td.checkpoint(deep), 0.5)[1](1.0)[0]) == pytest.approx(
        float(td.grad(deep)(0.5)), abs=1e-6
    )
    with pytest.raises(
        TraceError, match=r"there is no policy 'dots'(.|\n)*test_custom.py(.|\n)*dots_saveable"
    ):
        td.checkpoint(deep, policy="dots")


def products(graph: Any) -> int:
    """Matrix products in a graph and in the graphs it calls, each as often as it is called."""
    inner = [
        node.param("graph") for node in graph.nodes() if node.op.name in ("call", "checkpoint_call")
    ]
    return sum(node.op.name == "matmul" for node in graph.nodes()) + sum(map(products, inner))


def test_policies_keep_products() -> None:
    def f(x: Any, w: Any) -> Any:
        inner = td.jit(lambda x: td.sin(x @ w))  # a call inside is looked into
        return td.sum(td.tanh(inner(x) @ w) ** 2)

    x, w = (
        td.asarray(np.linspace(-1, 1, 6).reshape(2, 3)),
        td.asarray(np.linspace(0, 1, 9).reshape(3, 3)),
    )
    wanted = [np.asarray(g) for g in td.grad(f, argnums=(0, 1))(x, w)]
    counts = {}
    policies = [p for p in vars(td.checkpoint_policies).values() if isinstance(p, str)]
    for policy in (None, *policies):
        kept = td.value_and_grad(td.checkpoint(f, policy=policy), argnums=(0, 1))
        counts[policy] = products(td.trace(kept)(x, w))
        for run in (kept, td.jit(kept)):
            for got, want in zip(run(x, w)[1], wanted, strict=True):
                close(got, want)
    plain = products(td.trace(td.value_and_grad(f, argnums=(0, 1)))(x, w))
    assert counts["everything_saveable"] == counts["dots_saveable"] == plain
    assert counts[None] == counts["nothing_saveable"] == plain + 2
    batched = td.vmap(lambda x, w: f(x, w), (0, 0))
    rows = td.stack([x, x + 1]), td.stack([w, w * 2])
    found = []
    for policy in ("everything_saveable", "dots_saveable", "dots_with_no_batch_dims_saveable"):
        kept = td.value_and_grad(
            lambda x, w, p=policy: td.sum(td.checkpoint(batched, policy=p)(x, w))
        )
        found.append(products(td.trace(kept)(*rows)))
    assert found == [found[0], found[0], found[0] + 2]
    twice = td.hessian(td.checkpoint(lambda x: f(x, w), policy="dots_saveable"))
    close(twice(x), np.asarray(td.hessian(lambda x: f(x, w))(x)))
    rowwise = td.vmap(td.grad(td.checkpoint(f, policy="dots_saveable")), (0, None))(
        td.stack([x, x + 1]), w
    )
    close(rowwise, np.stack([np.asarray(td.grad(f)(row, w)) for row in (x, x + 1)]))


@pytest.mark.parametrize(
    "name", ["grad", "value_and_grad", "vmap", "checkpoint", "jacfwd", "jacrev", "hessian", "jit"]
)
def test_what_is_no_function_is_refused_at_once(name: str) -> None:
    with pytest.raises(TraceError, match=r"expected a function, got an? int(.|\n)*test_custom.py"):
        getattr(td, name)(3)


def test_bodies_that_are_no_functions_are_refused() -> None:
    x = td.zeros(2)
    for call in (
        lambda: td.scan(3, 0.0, x), lambda: td.cond(True, 3, 4), lambda: td.while_loop(3, 4, x),
        lambda: td.fori_loop(0, 2, 3, x), lambda: td.custom_vjp(3), lambda: td.custom_jvp(3),
        lambda: td.wirtinger(3),
    ):  # fmt: skip
        with pytest.raises(
            TraceError, match=r"expected a function, got an int(.|\n)*test_custom.py"
        ):
            call()


def test_stopped_gradients() -> None:
    def f(x: Any) -> Any:
        return td.sum(x * td.stop_gradient(x))

    for g in (td.value_and_grad(f), td.jit(td.value_and_grad(f))):
        value, gradient = g(td.asarray([1.0, 2.0, 3.0]))
        close(value, 14)
        close(gradient, [1, 2, 3])
    assert td.stop_gradient({"a": td.asarray(1, dtype=td.int8)})["a"].dtype is td.int8
    close(td.jvp(f, (td.asarray([1.0]),), (td.asarray([1.0]),)), [1, 1])


@pytest.mark.parametrize("way", [lambda f: f, td.jit], ids=["eager", "jit"])
def test_forward_rules_that_ask_what_changes(way: Any) -> None:
    seen = []

    @td.custom_vjp
    def scaled(x: Any, count: Any) -> Any:
        return x["a"] * count

    def forward(x: Any, count: Any) -> Any:
        seen.append((x["a"].perturbed, count.perturbed))
        return scaled({"a": x["a"].value}, count.value), count.value

    scaled.defvjp(forward, lambda count, ct: ({"a": 10.0 * ct}, None), symbolic_zeros=True)
    close(
        way(td.grad(lambda a: td.sum(scaled({"a": a}, td.asarray(3)))))(td.asarray([1.0, 2.0])),
        [10, 10],
    )
    assert set(seen) == {(True, False)}


def doubling(kind: str, factor: Any) -> Any:
    """x * factor, whose derivative is said to be twice as large; the factor comes from outside."""
    if kind == "jvp":
        f = td.custom_jvp(lambda x: x * factor)
        f.defjvp(lambda p, t: (f(*p), 2 * t[0] * factor))
        return f
    g = td.custom_vjp(lambda x: x * factor)
    g.defvjp(lambda x: (g(x), None), lambda _, ct: (2 * ct * factor,))
    return g


@pytest.mark.parametrize("kind", ["jvp", "vjp"])
@pytest.mark.parametrize("count", [3, 5000])  # a constant in the graph, or memory of its own
def test_custom_functions_use_arrays_from_outside(kind: str, count: int) -> None:
    x, factor = td.ones(count), td.arange(count, dtype=td.float32)
    slope = td.grad(lambda x: td.sum(doubling(kind, factor)(x)))
    for found in (slope(x), td.jit(slope)(x), td.vmap(slope)(td.stack([x, x]))[1]):
        close(found, 2 * factor)
    close(
        td.grad(
            lambda x: td.sum(td.scan(lambda c, _: (doubling(kind, factor)(c), 0), x, None, 2)[0])
        )(x),
        4 * factor**2,
    )


@pytest.mark.parametrize("kind", ["jvp", "vjp"])
def test_custom_functions_use_traced_values_from_outside(kind: str) -> None:
    x, s = td.asarray([1.0, 2.0]), td.asarray([3.0, 5.0])

    def slope(x: Any, s: Any) -> Any:
        return td.grad(lambda x: td.sum(doubling(kind, s)(x)))(x)

    close(td.jit(slope)(x, s), [6, 10])
    close(td.vmap(slope)(x, s), [6, 10])
    close(td.vmap(td.vmap(slope, (0, None)), (None, 0))(x, s), [[6, 6], [10, 10]])
    close(td.grad(td.jit(lambda x, s: td.sum(doubling(kind, s)(x))))(x, s), [6, 10])

    def steps(x: Any, s: Any) -> Any:
        return td.sum(td.scan(lambda c, r: (doubling(kind, r)(c), None), x, s)[0])

    for way in (td.grad(steps), td.jit(td.grad(steps))):
        close(way(x, td.stop_gradient(s)), [60, 60])


@pytest.mark.parametrize("kind", ["jvp", "vjp"])
def test_values_from_outside_that_change_are_refused(kind: str) -> None:
    x, s = td.asarray([1.0, 2.0]), td.asarray([3.0, 5.0])
    with pytest.raises(
        td.errors.UnsupportedError,
        match=r"from outside that changes too(.|\n)*test_custom\.py(.|\n)*argument",
    ):
        td.grad(lambda s: td.sum(doubling(kind, s)(x)))(s)

    @td.custom_jvp
    def f(x: Any) -> Any:
        return 2 * x

    f.defjvp(lambda p, t: (f(*p), 2 * t[0] * hidden[0]))
    hidden: list[Any] = []

    def run(x: Any, s: Any) -> Any:
        hidden[:] = [s]
        return td.grad(lambda x: td.sum(f(x)))(x)

    with pytest.raises(
        TraceError,
        match=r"the rule of f uses a traced value from outside(.|\n)*pass it as an argument",
    ):
        td.jit(run)(x, s)


@pytest.mark.parametrize(
    "settings", [{"nondiff_argnums": -1}, {"nondiff_argnames": "how"}, {"nondiff_argnums": [1]}]
)
def test_settings_by_place_from_the_end_and_by_name(settings: Any) -> None:
    f = td.custom_vjp(lambda x, how: how(x), **settings)
    f.defvjp(lambda x, how: (how(x), x), lambda how, x, ct: (10 * how(x) * ct,))
    close(td.grad(f)(0.5, td.sin), 10 * np.sin(0.5))
    g = td.custom_jvp(lambda x, how: how(x), **settings)
    g.defjvp(lambda how, primals, tangents: (how(*primals), 10 * how(*primals) * tangents[0]))
    close(td.jit(td.grad(lambda x: g(x, how=td.sin)))(0.5), 10 * np.sin(0.5))


def test_settings_that_are_no_arguments() -> None:
    with pytest.raises(
        TraceError, match="nondiff_argnums has 5, there are 1 positional parameters"
    ):
        td.custom_vjp(lambda x: x, nondiff_argnums=5)
    with pytest.raises(TraceError, match="static_argnums has 7, there are 1 positional parameters"):
        td.checkpoint(lambda x: x, static_argnums=7)


def test_a_static_argument_that_is_not_passed_is_no_other() -> None:
    """Its place was once counted from the end, so that the array in front of it became static."""
    f = td.checkpoint(lambda x, n=2: td.sin(x) ** n, static_argnums=1)
    close(td.grad(f)(0.5), 2 * np.sin(0.5) * np.cos(0.5))
    close(td.grad(f)(0.5, 3), 3 * np.sin(0.5) ** 2 * np.cos(0.5))
    assert td.checkpoint_policies.checkpoint_dots == td.checkpoint_policies.dots_saveable


@pytest.mark.parametrize("zeros", [None, {"w": None, "b": None}, {"w": None, "b": (None, 0.0)}])
def test_none_stands_for_zeros_of_any_part(zeros: Any) -> None:
    f = td.custom_vjp(lambda p, x: p["w"] * x + p["b"][0])
    f.defvjp(lambda p, x: (p["w"] * x + p["b"][0], None), lambda _, ct: (zeros, ct))
    two = td.asarray(2.0, dtype=td.float64)
    gradient, by_x = td.grad(f, argnums=(0, 1))({"w": two, "b": (two, two)}, two)
    assert (td.tree.leaves(gradient), by_x.item()) == ([0, 0, 0], 1)
    assert gradient["b"][1].dtype == td.float64


def test_rules_return_numbers_and_lists() -> None:
    f = td.custom_jvp(lambda x, y: x * y)
    f.defjvp(lambda primals, tangents: [f(*primals), 0.0])
    two = td.asarray(2.0, dtype=td.float64)
    assert td.jvp(f, (two, 3.0), (two / 2, 1.0))[1].dtype == td.float64
    f.defjvps(lambda t, value, x, y: t)
    with pytest.raises(
        TraceError, match="defjvps got 1 rules, <lambda> was called with 2 arguments"
    ):
        td.grad(f)(1.0, 2.0)


def test_a_cotangent_of_another_tree_shows_both() -> None:
    f = td.custom_vjp(lambda p: p["w"])
    f.defvjp(lambda p: (p["w"], None), lambda _, ct: ([ct],))
    with pytest.raises(
        TraceError, match=r"the tree of argument 0, \{'w': \*\}, it returned \[\*\]"
    ):
        td.grad(f)({"w": 1.0})


def test_arguments_that_are_no_arrays_are_told_where_to_go() -> None:
    f = td.custom_jvp(lambda x, how: x)
    f.defjvp(lambda primals, tangents: (primals[0], tangents[0]))
    with pytest.raises(
        TraceError, match=r"the argument how is a str(.|\n)*nondiff_argnums or nondiff_argnames"
    ):
        td.grad(lambda x: f(x, "relu"))(1.0)
    with pytest.raises(
        TraceError, match=r"the argument how is a str(.|\n)*list it in static_argnums$"
    ):
        td.grad(lambda x: td.checkpoint(lambda x, how: x)(x, "relu"))(1.0)


@pytest.mark.parametrize(
    ("policy", "sines"),
    [
        (td.checkpoint_policies.save_only_these_names("first"), 3),
        (td.checkpoint_policies.save_only_these_names("first", "second"), 2),
        (td.checkpoint_policies.save_only_these_names("other"), 4),
        (td.checkpoint_policies.save_any_names_but_these("second"), 3),
        (td.checkpoint_policies.save_any_names_but_these(), 2),
    ],
)
def test_values_with_names_are_kept(policy: str, sines: int) -> None:
    """Each value that is not kept is computed again for the derivative."""

    def f(x: td.Array) -> td.Array:
        y = td.checkpoint_name(td.sin(x), "first")
        return td.sum(td.exp(td.checkpoint_name(td.sin(y), "second")) ** 2)

    x = td.asarray([0.1, 0.2])
    gradient = td.grad(td.checkpoint(f, policy=policy))
    graph = td.trace(td.value_and_grad(td.checkpoint(f, policy=policy)))(x)
    inside = (n for part in innermost_first(graph) for n in part.nodes())
    assert sum(n.op.name == "sin" for n in inside) == sines
    for run in (gradient, td.jit(gradient)):
        close(run(x), td.grad(f)(x))
    rows = td.vmap(gradient)(td.stack([x, x + 1]))
    close(rows[0], td.grad(f)(x))
    with pytest.raises(TraceError, match="a name is a text without commas"):
        td.checkpoint_name(x, "a,b")


def by_sign() -> Any:
    """A function and a rule that ask for values: x, with 10 and 20 times x as its derivative."""
    f = td.custom_vjp(lambda x: 2 * x if x > 0 else 3 * x)

    def backward(x: td.Array, ct: td.Array) -> tuple[td.Array]:
        return (ct * (10.0 if x > 0 else 20.0) * float(x),)

    f.defvjp(lambda x: (f(x), x), backward)
    return f


def test_a_rule_may_ask_for_values_where_there_are_some() -> None:
    f = by_sign()
    for x, value, slope in [(1.0, 2.0, 10.0), (-1.5, -4.5, -30.0)]:
        close(td.value_and_grad(f)(x), [value, slope], 0)
        y, back = td.vjp(f, td.asarray(x))
        close([y, back(td.asarray(2.0))[0]], [value, 2 * slope], 0)
    close(td.grad(lambda x: f(-x * x) + x)(1.0), 41)

    g = td.custom_jvp(lambda x: x * x if x > 0 else -x * x)

    @g.defjvp
    def g_jvp(primals: Any, tangents: Any) -> Any:
        (x,) = primals
        return g(x), (2 * x if x > 0 else -2 * x) * tangents[0]

    for x in (1.0, -2.0):
        close([td.grad(g)(x), td.jvp(g, (x,), (1.0,))[1]], [2 * abs(x)] * 2, 0)
        close(td.grad(td.grad(g))(x), 2 * np.sign(x), 0)


def test_a_rule_gets_no_values_where_there_are_none_or_they_would_be_lost() -> None:
    f = by_sign()
    for run, x in ((td.jit(td.grad(f)), 2.0), (td.vmap(td.grad(f)), [2.0])):
        with pytest.raises(TraceError, match="asked for its truth value"):
            run(td.asarray(x))
    with pytest.raises(TraceError, match="is being differentiated"):
        td.grad(td.grad(f))(2.0)
    with pytest.raises(TraceError, match="is being differentiated"):  # y changes, further out
        td.grad(lambda y: td.grad(lambda x, y: x * x * float(y))(3.0, y))(td.asarray(2.0))


def test_what_a_function_with_a_rule_prints_is_printed_once(capsys: Any) -> None:
    f = td.custom_vjp(lambda x: td.debug.print("at {}", x) or x)
    f.defvjp(lambda x: (f(x), None), lambda _, ct: (ct,))
    close(td.grad(f)(1.0), 1, 0)
    assert capsys.readouterr().out == "at 1.0\n"
