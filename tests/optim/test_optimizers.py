"""Optimisers step by step against formulas written by hand in float64, outside jit and inside."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tetrad as td
from tetrad.core.tree import flatten, tree_map

Vector = np.ndarray
Step = Callable[[Vector, Vector], Vector]  # gradient, parameter -> what to add
RATE, STEPS = 0.1, 6
FEW_ULPS = 4 * np.finfo(np.float32).eps  # of parameters around 1, after a few steps
RNG = np.random.default_rng(0)
PARAMS = {"w": RNG.standard_normal((3, 4)), "b": [RNG.standard_normal(5)]}
GRADIENTS = [tree_map(lambda p: RNG.standard_normal(p.shape), PARAMS) for _ in range(STEPS)]


# -- by hand ---------------------------------------------------------------------------------------


def sgd_by_hand(momentum: float = 0.0, nesterov: bool = False) -> Step:
    total: Any = 0.0

    def step(g: Vector, p: Vector) -> Vector:
        nonlocal total
        total = g + momentum * total
        return -RATE * (g + momentum * total if nesterov else total)

    return step


def adam_by_hand(
    b1: float = 0.9,
    b2: float = 0.999,
    eps: float = 1e-8,
    root: float = 0.0,
    decay: float = 0.0,
    nesterov: bool = False,
) -> Step:
    m: Any = 0.0
    v: Any = 0.0
    t = 0

    def step(g: Vector, p: Vector) -> Vector:
        nonlocal m, v, t
        t += 1
        m, v = b1 * m + (1 - b1) * g, b2 * v + (1 - b2) * g * g
        mean = m / (1 - b1**t)
        if nesterov:
            mean = b1 * m / (1 - b1 ** (t + 1)) + (1 - b1) * g / (1 - b1**t)
        return -RATE * (mean / (np.sqrt(v / (1 - b2**t) + root) + eps) + decay * p)

    return step


def lion_by_hand(decay: float) -> Step:
    m: Any = 0.0

    def step(g: Vector, p: Vector) -> Vector:
        nonlocal m
        sign = np.sign(0.9 * m + 0.1 * g)
        m = 0.99 * m + 0.01 * g
        return -RATE * (sign + decay * p)

    return step


def rmsprop_by_hand(
    centered: bool = False,
    momentum: float = 0.0,
    nesterov: bool = False,
    inside: bool = True,
    start: float = 0.0,
) -> Step:
    m: Any = 0.0
    v: Any = start
    total: Any = 0.0

    def step(g: Vector, p: Vector) -> Vector:
        nonlocal m, v, total
        m, v = 0.9 * m + 0.1 * g, 0.9 * v + 0.1 * g * g
        spread = v - m * m if centered else v
        scaled = -RATE * g / (np.sqrt(spread + 1e-8) if inside else np.sqrt(spread) + 1e-8)
        total = scaled + momentum * total
        return scaled + momentum * total if nesterov else total

    return step


def adagrad_by_hand() -> Step:
    total: Any = 0.1

    def step(g: Vector, p: Vector) -> Vector:
        nonlocal total
        total = total + g * g
        return -RATE * g / np.sqrt(total + 1e-7)

    return step


optim = td.optim
NO_DECAY_OF_B = {"w": True, "b": [False]}
CASES: dict[str, tuple[Any, Callable[[str], Step]]] = {
    "sgd": (optim.sgd(RATE), lambda _: sgd_by_hand()),
    "sgd momentum": (optim.sgd(RATE, 0.9), lambda _: sgd_by_hand(0.9)),
    "sgd nesterov": (optim.sgd(RATE, 0.9, nesterov=True), lambda _: sgd_by_hand(0.9, True)),
    "adam": (optim.adam(RATE), lambda _: adam_by_hand()),
    "adam eps": (optim.adam(RATE, 0.8, 0.9, 0.1, 0.2), lambda _: adam_by_hand(0.8, 0.9, 0.1, 0.2)),
    "adam without mean": (optim.adam(RATE, b1=0.0), lambda _: adam_by_hand(b1=0.0)),
    "adam nesterov": (optim.adam(RATE, nesterov=True), lambda _: adam_by_hand(nesterov=True)),
    "adamw": (optim.adamw(RATE), lambda _: adam_by_hand(decay=1e-4)),
    "adamw mask": (
        optim.adamw(RATE, weight_decay=0.3, mask=NO_DECAY_OF_B),
        lambda name: adam_by_hand(decay=0.3 if name == "['w']" else 0.0),
    ),
    "adamw mask by shape": (
        optim.adamw(RATE, weight_decay=0.3, mask=lambda params: tree_map(lambda p: len(p.shape) > 1,
        params)),
        lambda name: adam_by_hand(decay=0.3 if name == "['w']" else 0.0),
    ),
    "lion": (optim.lion(RATE), lambda _: lion_by_hand(1e-3)),
    "rmsprop": (optim.rmsprop(RATE), lambda _: rmsprop_by_hand()),
    "rmsprop eps outside": (
        optim.rmsprop(RATE, eps_in_sqrt=False, initial_scale=1.0),
        lambda _: rmsprop_by_hand(inside=False, start=1.0),
    ),
    "rmsprop centred, momentum": (
        optim.rmsprop(RATE, centered=True, momentum=0.9),
        lambda _: rmsprop_by_hand(True, 0.9),
    ),
    "rmsprop nesterov": (
        optim.rmsprop(RATE, momentum=0.9, nesterov=True),
        lambda _: rmsprop_by_hand(momentum=0.9, nesterov=True),
    ),
    "adagrad": (optim.adagrad(RATE), lambda _: adagrad_by_hand()),
}  # fmt: skip


def by_hand(make: Callable[[str], Step]) -> list[list[Vector]]:
    """The parameters after each step, leaf by leaf."""
    leaves, shape = flatten(PARAMS)
    steps = [make(name) for name in shape.leaf_names()]
    found = []
    for gradient in GRADIENTS:
        each = zip(steps, flatten(gradient)[0], leaves, strict=True)
        leaves = [p + step(g, p) for step, g, p in each]
        found.append(leaves)
    return found


def one_step(optimiser: Any) -> Callable[..., Any]:
    def step(params: Any, state: Any, gradients: Any) -> Any:
        updates, state = optimiser.update(gradients, state, params)
        return td.optim.apply_updates(params, updates), state

    return step


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize(
    ("dtype", "tolerance"), [(td.float64, 1e-12), (td.float32, 3e-6)], ids=["f64", "f32"]
)
@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "jit"])
def test_steps(name: str, dtype: Any, tolerance: float, compiled: bool) -> None:
    optimiser, make = CASES[name]
    step = one_step(optimiser)
    if compiled:
        step = td.jit(step, donate_argnums=(0, 1))
    params = tree_map(lambda p: td.astype(p, dtype), PARAMS)
    state = optimiser.init(params)
    for gradient, want in zip(GRADIENTS, by_hand(make), strict=True):
        params, state = step(params, state, tree_map(lambda g: td.astype(g, dtype), gradient))
        for got, wanted in zip(flatten(params)[0], want, strict=True):
            assert got.dtype is dtype
            np.testing.assert_allclose(np.asarray(got), wanted, rtol=tolerance, atol=tolerance)


def test_the_first_steps_of_adam_are_exact_in_f32() -> None:
    """1 - 0.999**t by subtraction would be wrong in the fifth digit."""
    optimiser = td.optim.adam(1.0)
    gradient, state = td.asarray([3.0]), optimiser.init(td.asarray([0.0]))
    for _ in range(3):
        updates, state = optimiser.update(gradient, state)
        np.testing.assert_allclose(np.asarray(updates), [-1.0], rtol=3e-7)


@pytest.mark.parametrize("dtype", [td.float32, td.bfloat16, td.float16], ids=str)
def test_state_has_the_dtype_of_the_parameters(dtype: Any) -> None:
    params = {"w": td.zeros((2, 3), dtype=dtype), "b": td.zeros(3, dtype=dtype)}
    gradients = tree_map(td.ones_like, params)
    for optimiser, _ in CASES.values():
        if optimiser in (CASES["adamw mask"][0], CASES["adamw mask by shape"][0]):
            continue
        state = optimiser.init(params)
        updates, after = td.jit(optimiser.update)(gradients, state, params)
        kinds = [leaf.type for leaf in flatten(state)[0]]
        assert [leaf.type for leaf in flatten(after)[0]] == kinds
        assert {leaf.dtype for leaf in flatten(updates)[0]} == {dtype}
        assert all(kind.dtype is (dtype if kind.shape else td.int32) for kind in kinds)


def test_moments_in_another_dtype() -> None:
    params = td.zeros(3)
    for optimiser in (
        td.optim.adam(1.0, mu_dtype="bfloat16"),
        td.optim.lion(1.0, mu_dtype=td.bfloat16),
    ):
        state = optimiser.init(params)
        updates, after = optimiser.update(td.ones(3), state, params)
        assert state[0].mu.dtype is after[0].mu.dtype is td.bfloat16
        assert updates.dtype is td.float32
    state = td.optim.sgd(1.0, 0.9, accumulator_dtype=td.float64).init(params)
    assert state[0].trace.dtype is td.float64


def test_parameters_keep_their_dtype_when_updates_are_wider() -> None:
    params = td.optim.apply_updates({"w": td.ones(2, dtype=td.bfloat16)}, {"w": td.ones(2)})
    assert params["w"].dtype is td.bfloat16 and params["w"].tolist() == [2, 2]


def test_a_rate_may_be_a_schedule_or_a_traced_array() -> None:
    halving = td.optim.sgd(td.optim.exponential_decay(1.0, 1, 0.5))
    state, found = halving.init(td.zeros(1)), []
    for _ in range(4):
        updates, state = halving.update(td.ones(1), state)
        found.append(float(updates[0]))
    assert found == [-1, -0.5, -0.25, -0.125]

    @td.jit
    def step(rate: Any, gradient: Any) -> Any:
        optimiser = td.optim.sgd(rate)
        return optimiser.update(gradient, optimiser.init(gradient))[0]

    assert step(0.5, td.ones(2)).tolist() == [-0.5, -0.5] and step(2.0, td.ones(2)).tolist() == [
        -2,
        -2,
    ]
    assert step.compiles == 1


# -- the training step -----------------------------------------------------------------------------


def loss(params: Any, x: Any, y: Any) -> Any:
    hidden = td.tanh(x @ params["w1"] + params["b1"])
    return td.mean(td.square(hidden @ params["w2"] - y))


def layers() -> Any:
    rng = np.random.default_rng(1)
    shapes = {"w1": (8, 32), "b1": (32,), "w2": (32, 4)}
    return {
        name: td.asarray(0.3 * rng.standard_normal(shape, np.float32))
        for name, shape in shapes.items()
    }


BATCH = (
    RNG.standard_normal((16, 8)).astype(np.float32),
    RNG.standard_normal((16, 4)).astype(np.float32),
)
RATES = optim.warmup_cosine_decay_schedule(0.0, 0.05, 5, 60)
TRAINED = optim.chain(optim.clip_by_global_norm(1.0), optim.adamw(RATES, weight_decay=1e-3))


def training_step(params: Any, state: Any, x: Any, y: Any) -> Any:
    value, gradients = td.value_and_grad(loss)(params, x, y)
    updates, state = TRAINED.update(gradients, state, params)
    return td.optim.apply_updates(params, updates), state, value


def test_training_is_one_program_that_works_in_place() -> None:
    step = td.jit(training_step, donate_argnums=(0, 1))
    params = layers()
    state = TRAINED.init(params)
    params, state, first = step(params, state, *BATCH)  # now every leaf is memory of ours
    places = [leaf._storage.ptr for leaf in flatten((params, state))[0]]
    for _ in range(60):
        before = flatten((params, state))[0]
        params, state, last = step(params, state, *BATCH)
        assert all(leaf.is_deleted for leaf in before)
    assert [leaf._storage.ptr for leaf in flatten((params, state))[0]] == places
    assert step.compiles == 1
    assert float(last) < 0.5 * float(first)


def test_training_eagerly_agrees_with_the_compiled_step() -> None:
    eager = compiled = (layers(), TRAINED.init(layers()))
    step = td.jit(training_step)
    for _ in range(3):
        *eager, _ = training_step(*eager, *BATCH)
        *compiled, _ = step(*compiled, *BATCH)
    for got, want in zip(flatten(compiled)[0], flatten(eager)[0], strict=True):
        np.testing.assert_allclose(np.asarray(got), np.asarray(want), rtol=1e-5, atol=FEW_ULPS)


def test_state_has_names() -> None:
    state = td.optim.adam(1.0).init({"w": td.zeros(2)})
    assert list(flatten(state)[1].leaf_names("state")) == [
        "state[0].count",
        "state[0].mu['w']",
        "state[0].nu['w']",
    ]
    assert isinstance(state[0], td.optim.AdamState) and math.prod(state[0].count.shape) == 1


def test_a_whole_training_run_is_one_scan() -> None:
    """State is a tree of arrays that keep their types, so it can be carried."""
    steps = 5

    def run(params: Any, x: Any, y: Any) -> Any:
        def body(carry: Any, _: None) -> Any:
            *carry, value = training_step(*carry, x, y)
            return tuple(carry), value

        return td.scan(body, (params, TRAINED.init(params)), length=steps)

    (params, state), values = td.jit(run)(layers(), *BATCH)
    expected: Any = (layers(), TRAINED.init(layers()))
    step = td.jit(training_step)
    for i in range(steps):
        *expected, value = step(*expected, *BATCH)
        assert float(values[i]) == pytest.approx(float(value), rel=1e-5)
    for got, want in zip(flatten((params, state))[0], flatten(tuple(expected))[0], strict=True):
        np.testing.assert_allclose(np.asarray(got), np.asarray(want), rtol=1e-5, atol=FEW_ULPS)


def test_many_models_train_at_once() -> None:
    """vmap over parameters and state: each model takes the step it would take alone."""
    rates = np.array([0.01, 0.1, 1.0], np.float32)

    def step(rate: Any, params: Any, gradient: Any) -> Any:
        optimiser = td.optim.adam(rate)
        updates, state = optimiser.update(gradient, optimiser.init(params), params)
        return td.optim.apply_updates(params, updates), state

    params, gradients = RNG.standard_normal((2, 3, 4)).astype(np.float32)
    got, state = td.jit(td.vmap(step))(rates, params, gradients)
    for i, rate in enumerate(rates):
        want, _ = step(rate, params[i], gradients[i])
        np.testing.assert_allclose(np.asarray(got[i]), np.asarray(want), rtol=1e-6)
    assert state[0].mu.shape == (3, 4) and state[0].count.shape == (3,)


def centered(rate: Any) -> Any:
    return optim.rmsprop(rate, centered=True)


@pytest.mark.parametrize("make", [optim.adam, optim.rmsprop, centered, optim.adagrad])
def test_complex_parameters_move_against_their_gradient(make: Any) -> None:
    params = {"z": td.asarray(np.array([1j, 2 - 1j, -3], np.complex64))}
    optimiser = make(0.5)
    for update in (optimiser.update, td.jit(optimiser.update)):
        updates, _ = update(params, optimiser.init(params), params)
        turned = np.asarray(updates["z"]) / np.asarray(params["z"])
        assert np.all(turned.real < 0)
        np.testing.assert_allclose(turned.imag, 0, atol=1e-6)
    norm = optim.global_norm(params)
    np.testing.assert_allclose(np.asarray(norm), np.linalg.norm(np.asarray(params["z"])), rtol=1e-6)
    assert norm.dtype is td.float32
