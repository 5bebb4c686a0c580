"""Single steps: clipping, norms, chains, masks, and what they say when trees do not match."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tetrad as td
from tetrad.core.errors import DtypeError, SettingError, ShapeError, TraceError
from tetrad.core.tree import flatten, tree_map

optim = td.optim


def updated(step: Any, updates: Any, params: Any = None) -> Any:
    """The updates, once at once and once compiled: the same."""
    state = step.init(updates if params is None else params)
    eager, compiled = (
        step.update(updates, state, params)[0],
        td.jit(step.update)(updates, state, params)[0],
    )
    for a, b in zip(flatten(eager)[0], flatten(compiled)[0], strict=True):
        np.testing.assert_allclose(np.asarray(a, np.float64), np.asarray(b, np.float64), rtol=1e-6)
    return eager


def test_clip() -> None:
    assert updated(optim.clip(1.0), td.asarray([-3.0, 0.5, 2.0])).tolist() == [-1, 0.5, 1]


@pytest.mark.parametrize("length", [0.0, 0.5, 1.0, 1.5, 10.0, 1e20])
def test_clip_by_global_norm(length: float) -> None:
    tree = {
        "w": td.asarray([[0.6 * length]], dtype=td.float64),
        "b": td.asarray([0.8 * length], dtype=td.float64),
    }
    got = updated(optim.clip_by_global_norm(1.0), tree)
    factor = 1.0 if length <= 1 else 1 / length
    np.testing.assert_allclose(np.asarray(got["w"]), [[0.6 * length * factor]], rtol=1e-14)
    np.testing.assert_allclose(np.asarray(got["b"]), [0.8 * length * factor], rtol=1e-14)


def test_below_the_bound_nothing_changes_not_even_a_bit() -> None:
    x = np.random.default_rng(0).standard_normal(1000).astype(np.float32)
    for scaled in (x, 0 * x):
        got = updated(optim.clip_by_global_norm(100.0), td.asarray(scaled))
        assert np.asarray(got).tobytes() == scaled.tobytes()


def test_global_norm() -> None:
    rng = np.random.default_rng(0)
    tree = {
        "a": rng.standard_normal((7, 3)),
        "b": [rng.standard_normal(5), rng.standard_normal(())],
    }
    want = math.sqrt(sum(float((x**2).sum()) for x in (tree["a"], *tree["b"])))
    assert float(optim.global_norm(tree)) == pytest.approx(want, rel=1e-14)
    assert float(optim.global_norm({})) == 0
    # its squares are beyond f16
    assert float(optim.global_norm(td.full(4, 300.0, dtype=td.float16))) == 600


def test_not_a_number_stays_not_a_number() -> None:
    got = updated(optim.clip_by_global_norm(1.0), td.asarray([1.0, math.nan]))
    assert np.isnan(np.asarray(got)).all()


def test_scale_keeps_dtypes() -> None:
    tree = {"h": td.ones(2, dtype=td.float16), "d": td.ones(2, dtype=td.float64)}
    for step in (
        optim.scale(0.5),
        optim.scale(td.asarray(0.5)),
        optim.scale_by_schedule(lambda count: 0.5 + 0 * count),
    ):
        got = updated(step, tree)
        assert got["h"].dtype is td.float16 and got["d"].dtype is td.float64
        assert got["h"].tolist() == got["d"].tolist() == [0.5, 0.5]


def test_signs_of_the_learning_rate() -> None:
    x = td.ones(1)
    assert updated(optim.scale_by_learning_rate(0.5), x).tolist() == [-0.5]
    assert updated(optim.scale_by_learning_rate(0.5, flip_sign=False), x).tolist() == [0.5]
    assert updated(optim.scale_by_learning_rate(optim.constant_schedule(0.5)), x).tolist() == [-0.5]


def test_identity_and_an_empty_chain() -> None:
    x = {"w": td.asarray([1.0, 2.0])}
    for step in (optim.identity(), optim.chain(), optim.chain(optim.identity(), optim.chain())):
        assert updated(step, x)["w"].tolist() == [1, 2]


def test_the_count_does_not_wrap() -> None:
    step = optim.scale_by_schedule(lambda count: count)
    top = 2**31 - 1
    _, state = step.update(td.ones(1), optim.ScheduleState(td.asarray(top - 1)))
    assert int(state.count) == top
    _, state = step.update(td.ones(1), state)
    assert int(state.count) == top


def test_rss_is_zero_where_nothing_was_seen() -> None:
    step = optim.scale_by_rss(initial_accumulator_value=0.0)
    assert updated(step, td.asarray([0.0, 2.0])).tolist() == pytest.approx([0, 1], rel=1e-6)


# -- masks -----------------------------------------------------------------------------------------


PARAMS = {"layer": {"w": td.ones((2, 2)), "b": td.ones(2)}, "norm": [td.ones(2), td.ones(3)]}


@pytest.mark.parametrize(
    ("mask", "chosen"),
    [
        (True, 4),
        (False, 0),
        ({"layer": True, "norm": False}, 2),
        ({"layer": {"w": True, "b": False}, "norm": [False, True]}, 2),
        (lambda tree: tree_map(lambda leaf: leaf.ndim > 1, tree), 1),
    ],
)  # fmt: skip
def test_masked_leaves_pass_unchanged_and_have_no_state(mask: Any, chosen: int) -> None:
    step = optim.masked(optim.trace(0.5), mask)
    state = step.init(PARAMS)
    assert len(flatten(state)[0]) == chosen
    updates, state = step.update(PARAMS, state)
    updates, _ = step.update(updates, state)
    assert flatten(updates)[1] is flatten(PARAMS)[1]
    found = sorted(float(td.max(leaf)) for leaf in flatten(updates)[0])
    assert found == [1] * (4 - chosen) + [1.5] * chosen


def test_masks_that_do_not_fit() -> None:
    with pytest.raises(TraceError, match="the mask has other containers or keys"):
        optim.masked(optim.scale(1.0), {"layer": True}).init(PARAMS)
    with pytest.raises(TraceError, match="a mask is a tree of bools, it has an int"):
        optim.masked(optim.scale(1.0), 1).init(PARAMS)


# -- errors ----------------------------------------------------------------------------------------


def test_trees_that_do_not_match() -> None:
    optimiser = optim.adam(1.0)
    state = optimiser.init({"w": td.zeros(2), "b": td.zeros(2)})
    with pytest.raises(
        TraceError,
        match=r"scale_by_adam: gradients have the leaves tree\['w'\]; .* tree\['b'\], tree",
    ):
        optimiser.update({"w": td.zeros(2)}, state)
    with pytest.raises(TraceError, match="apply_updates"):
        optim.apply_updates([td.zeros(2)], (td.zeros(2),))
    expected = r"apply_updates: parameters have the leaves tree\['w'\]; updates have tree\['b'\]"
    with pytest.raises(TraceError, match=expected) as error:
        optim.apply_updates({"w": td.zeros(2)}, {"b": td.zeros(2)})
    assert "apply_updates(params, updates)" in str(error.value)


def test_decay_needs_parameters() -> None:
    optimiser = optim.adamw(1.0)
    with pytest.raises(TraceError, match="add_decayed_weights needs the parameters") as error:
        optimiser.update(td.zeros(2), optimiser.init(td.zeros(2)))
    assert "update(gradients, state, params)" in str(error.value)


def test_a_state_of_another_chain() -> None:
    with pytest.raises(TraceError, match="chain: the state is not one of 2 steps"):
        optim.adam(1.0).update(td.zeros(2), optim.sgd(1.0).init(td.zeros(2)))


WRONG: list[tuple[Callable[[], Any], str]] = [
    (lambda: td.optim.adam(None), r"adam: learning_rate: expected a number, got None"),  # type: ignore[arg-type]
    (lambda: td.optim.adam("a"), "learning_rate: expected a number, got 'a'"),  # type: ignore[arg-type]
    (lambda: td.optim.sgd(float("nan")), "sgd: learning_rate: expected a number, got nan"),
    (lambda: td.optim.adamw("1e-3"), "adamw: learning_rate: .*(.|\n)*or a schedule"),  # type: ignore[arg-type]
    (
        lambda: td.optim.scale_by_learning_rate([]),
        "scale_by_learning_rate: learning_rate: .*(.|\n)*or a schedule",
    ),  # type: ignore[arg-type]
    (
        lambda: td.optim.sgd(0.1, momentum=2.0),
        r"decay \(momentum\): expected a number from 0 to 1, got 2.0",
    ),
    (
        lambda: td.optim.adam(1e-3, b1=1.5),
        "scale_by_adam: b1: expected a number of at least 0 and below 1, got 1.5",
    ),
    (lambda: td.optim.adamw(1e-3, b2=-0.1), "b2: expected .* got -0.1"),
    (lambda: td.optim.adam(1e-3, eps=-1), "eps: expected a number of at least 0, got -1"),
    (
        lambda: td.optim.adamw(1e-3, weight_decay=-1.0),
        "weight_decay: expected a number of at least 0",
    ),
    (lambda: td.optim.lion(0.1, b2=1), "scale_by_lion: b2: .* below 1, got 1"),
    (lambda: td.optim.rmsprop(0.1, decay=1.5), "scale_by_rms: decay"),
    (
        lambda: td.optim.rmsprop(0.1, centered=True, initial_scale=-1),
        "scale_by_stddev: initial_scale",
    ),
    (lambda: td.optim.adagrad(0.1, initial_accumulator_value=-1), "initial_accumulator_value"),
    (lambda: td.optim.clip(0), "clip: max_delta: expected a number above 0, got 0"),
    (lambda: td.optim.clip_by_global_norm(-1.0), "max_norm: expected a number above 0"),
    (lambda: td.optim.scale(True), "step_size: expected a number, got True"),
    (lambda: td.optim.polynomial_schedule(1.0, 0.0, -1.0, 10), "power: expected a number above 0"),
    (lambda: td.optim.piecewise_constant_schedule(0.1, {5: "a"}), "scale at 5: expected"),  # type: ignore[dict-item]
]


@pytest.mark.parametrize("case", WRONG, ids=lambda case: case[1][:40])
def test_settings_are_checked_when_a_step_is_made(case: tuple[Callable[[], Any], str]) -> None:
    with pytest.raises(SettingError, match=case[1]) as caught:
        case[0]()
    assert caught.value.source is not None and caught.value.source.file == __file__


def test_rates_that_are_arrays_or_negative_are_fine() -> None:
    up = td.optim.sgd(-0.5)
    assert up.update(td.ones(1), up.init(td.ones(1)))[0].tolist() == [0.5]
    moved = td.jit(
        lambda rate: td.optim.sgd(rate).update(td.ones(1), td.optim.sgd(rate).init(td.ones(1)))[0]
    )
    assert moved(td.asarray(0.25)).tolist() == [-0.25]


def test_leaves_of_other_shapes_and_other_steps_are_errors() -> None:
    optimiser, params = td.optim.adam(0.1), {"w": td.ones(3)}
    with pytest.raises(
        ShapeError, match=r"scale_by_adam: tree\['w'\] is f32\[1\] .* f32\[3\](.|\n)*test_steps.py"
    ):
        optimiser.update({"w": td.ones(1)}, optimiser.init(params), params)
    with pytest.raises(
        ShapeError,
        match=r"apply_updates: tree\['w'\] is f32\[3\] in one tree and f32\[\] in another",
    ):
        td.optim.apply_updates(params, {"w": td.ones(())})
    with pytest.raises(TraceError, match="chain: step 1 is an int"):
        td.optim.chain(td.optim.scale(1.0), 2)  # type: ignore[arg-type]
    with pytest.raises(ShapeError, match="boundaries must ascend"):
        td.optim.join_schedules([td.optim.constant_schedule(1.0)] * 3, [5, 2])
    with pytest.raises(ShapeError, match="transition_steps must be positive, got 'a'"):
        td.optim.linear_schedule(0.0, 1.0, "a")  # type: ignore[arg-type]


def test_adam_rounds_its_mean_only_for_the_state() -> None:
    """With mu_dtype=bf16 the update of this step is that of f32; only what the next one finds has
    fewer digits."""
    gradients = [td.asarray([1.2345678, -0.3333333]), td.asarray([0.7654321, 0.1111111])]
    narrow, wide = optim.scale_by_adam(mu_dtype=td.bfloat16), optim.scale_by_adam()
    first, state = narrow.update(gradients[0], narrow.init(gradients[0]))
    assert first.tolist() == wide.update(gradients[0], wide.init(gradients[0]))[0].tolist()
    assert state.mu.dtype == td.bfloat16
    found = narrow.update(gradients[1], state)[0]
    mean = 0.9 * np.asarray(state.mu, np.float64) + 0.1 * np.asarray(gradients[1], np.float64)
    squares = (
        0.999 * np.asarray(state.nu, np.float64) + 0.001 * np.asarray(gradients[1], np.float64) ** 2
    )
    wanted = mean / (1 - 0.9**2) / (np.sqrt(squares / (1 - 0.999**2)) + 1e-8)
    np.testing.assert_allclose(np.asarray(found), wanted, rtol=1e-6)


@pytest.mark.parametrize("centred", [False, True])
def test_corrected_root_mean_squares(centred: bool) -> None:
    by = optim.scale_by_stddev if centred else optim.scale_by_rms
    step = by(0.8, 1e-3, 0.0, False, True)
    rows = np.random.default_rng(0).standard_normal((4, 3))
    state = step.init(td.asarray(rows[0]))
    mean = squares = np.zeros(3)
    for count, row in enumerate(rows, 1):
        updates, state = step.update(td.asarray(row), state)
        mean, squares = 0.8 * mean + 0.2 * row, 0.8 * squares + 0.2 * row**2
        start = 1 - 0.8**count
        spread = squares / start - (mean / start) ** 2 if centred else squares / start
        wanted = row / (np.sqrt(np.maximum(spread, 0)) + 1e-3)
        # the first spread is a difference of equals
        np.testing.assert_allclose(
            np.asarray(updates), wanted, rtol=1e-4 if centred and count == 1 else 1e-12
        )


@pytest.mark.parametrize("name", ["adam", "adamw", "lion", "rmsprop", "adagrad"])
def test_moments_of_integers_are_refused(name: str) -> None:
    """Kept as integers they would be 0, and a step of adam ten million long."""
    with pytest.raises(DtypeError, match=r"moments are floats, got a parameter i32\[2\]"):
        getattr(td.optim, name)(0.1).init({"w": td.asarray([1, 2])})
