"""Further optimisers, wrappers and schedules: the trajectories of optax, kept in golden.json."""

from __future__ import annotations

import json

import numpy as np
import pytest

import tetrad as td
from tests.optim.golden import FILE, OPTIMIZERS, SCHEDULES, trajectory

GOLDEN = json.loads(FILE.read_text())
# these keep something in f32 by default, of gradients or of settings
NARROW = ("adafactor", "adafactor plain", "injected", "multi steps", "multi steps, sums")
COMPILED = ("amsgrad", "sm3", "adafactor", "multi steps", "if finite", "partition", "injected")


def bound(name: str) -> float:
    return 1e-6 if name in NARROW else 1e-10


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_trajectories_are_those_of_optax(name: str) -> None:
    got = trajectory(td.optim, name, td.asarray, lambda f: f)
    np.testing.assert_allclose(got, GOLDEN["paths"][name], rtol=bound(name), atol=bound(name))


@pytest.mark.parametrize("name", COMPILED)
def test_compiled_steps_are_the_same(name: str) -> None:
    got = trajectory(td.optim, name, td.asarray, td.jit)
    np.testing.assert_allclose(got, GOLDEN["paths"][name], rtol=bound(name), atol=bound(name))


@pytest.mark.parametrize("name", SCHEDULES)
def test_schedules_are_those_of_optax(name: str) -> None:
    schedule = SCHEDULES[name](td.optim)
    got = [float(schedule(step)) for step in range(25)]
    np.testing.assert_allclose(got, GOLDEN["schedules"][name], rtol=2e-6, atol=1e-7)


def test_lookahead() -> None:
    optimiser = td.optim.lookahead(td.optim.sgd(1.0), 2, 0.5)
    params = td.optim.LookaheadParams.init_synced(td.asarray([0.0]))
    state = optimiser.init(params)
    for fast, slow in ((-1.0, 0.0), (-1.0, -1.0), (-2.0, -1.0), (-2.0, -2.0)):
        updates, state = optimiser.update(td.asarray([1.0]), state, params)
        params = td.optim.apply_updates(params, updates)
        assert params.fast.tolist() == [fast] and params.slow.tolist() == [slow]
    with pytest.raises(td.errors.TraceError, match="LookaheadParams"):
        optimiser.update(td.asarray([1.0]), state, td.asarray([1.0]))


def test_multi_steps_skip_what_is_told() -> None:
    def skips(updates: td.Array, step: td.Array, params: td.Array) -> tuple[td.Array, tuple[()]]:
        return ~td.all(td.isfinite(updates)), ()

    steps = td.optim.MultiSteps(td.optim.sgd(1.0), 2, should_skip_update_fn=skips)
    state = steps.init(td.zeros(1))
    given = []
    for value in (1.0, np.nan, 3.0):
        updates, state = steps.update(td.asarray([value]), state, td.zeros(1))
        given.append(updates.tolist()[0])
    assert given == [0.0, 0.0, -2.0] and bool(steps.has_updated(state))


def test_noise_has_the_variance_it_should() -> None:
    noise = td.optim.add_noise(4.0, 0.5, key=3)
    nothing = td.zeros(4000)
    drawn, state = noise.update(nothing, noise.init(nothing))
    again, _ = noise.update(nothing, state)
    assert abs(float(td.std(drawn)) - 2.0) < 0.1
    assert abs(float(td.std(again)) - 2.0 / 2**0.25) < 0.1


def test_means_of_trees() -> None:
    new, old = {"a": td.asarray([2.0])}, {"a": td.asarray([0.0])}
    assert td.optim.incremental_update(new, old, 0.25)["a"].tolist() == [0.5]
    assert td.optim.periodic_update(new, old, 4, 2)["a"].tolist() == [2.0]
    assert td.optim.periodic_update(new, old, 5, 2)["a"].tolist() == [0.0]


def test_errors_say_what_is_missing() -> None:
    with pytest.raises(td.errors.TraceError, match="there is no optimiser for 'x'"):
        td.optim.partition({"a": td.optim.sgd(0.1)}, {"w": "x"}).init({"w": td.zeros(1)})
    ratio = td.optim.scale_by_trust_ratio()
    with pytest.raises(td.errors.TraceError, match="needs the parameters"):
        ratio.update(td.zeros(1), ratio.init(None))
    with pytest.raises(td.errors.SettingError, match="apply_every"):
        td.optim.apply_every(0)
