"""Optim, schedules: functions from the count of steps so far to a number. Names and formulas are
those of optax.

Receives a count (a number or an int32 array, also one that is being traced), returns an array of
f32. For a count in f64 it is one of f64: `rate_at` counts so where updates are in f64.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from numbers import Real
from typing import Any

from tetrad.arrays import functions as td
from tetrad.core.dtypes import f32, f64
from tetrad.core.errors import SettingError, ShapeError
from tetrad.optim.settings import check_number, check_positive
from tetrad.tracing.array import Array, fail
from tetrad.tracing.operands import as_array

Schedule = Callable[[Any], Any]


def as_float(count: Any) -> Array:
    return td.astype(count, f64 if as_array(count).dtype is f64 else f32)


def counts_in_floats(schedule: Schedule) -> Schedule:
    """Marks a schedule that takes a count in f64 as well as integers; one of a user's may look it
    up in a table."""
    schedule.counts_in_floats = True  # type: ignore[attr-defined]
    return schedule


def takes_floats(schedule: Schedule) -> bool:
    return getattr(schedule, "counts_in_floats", False)


def rate_at(schedule: Schedule, count: Array, is_wide: bool) -> Any:
    """What a schedule says, in f64 if that is wanted and it can."""
    return schedule(td.astype(count, f64) if is_wide and takes_floats(schedule) else count)


def check_steps(name: str, what: str, steps: int) -> None:
    if isinstance(steps, bool) or not isinstance(steps, Real) or not steps > 0:
        fail(ShapeError, f"{name}: {what} must be positive, got {steps!r}")


def constant_schedule(value: float) -> Schedule:
    """The same number at every step."""
    return counts_in_floats(lambda count: td.full((), value, dtype=as_float(count).dtype))


def polynomial_schedule(
    init_value: float,
    end_value: float,
    power: float,
    transition_steps: int,
    transition_begin: int = 0,
) -> Schedule:
    """From init_value to end_value in transition_steps, along a power of the part that remains."""
    check_steps("polynomial_schedule", "transition_steps", transition_steps)
    check_positive("polynomial_schedule", "power", power)

    def schedule(count: Any) -> Any:
        gone = td.clip(as_float(count) - transition_begin, 0, transition_steps)
        left = 1 - gone / transition_steps
        return (init_value - end_value) * (left if power == 1 else left**power) + end_value

    return counts_in_floats(schedule)


def linear_schedule(
    init_value: float, end_value: float, transition_steps: int, transition_begin: int = 0
) -> Schedule:
    """From init_value to end_value in transition_steps, evenly.

    >>> halfway = linear_schedule(1.0, 0.0, 10)(5)
    >>> float(halfway)
    0.5
    """
    return polynomial_schedule(init_value, end_value, 1, transition_steps, transition_begin)


def exponential_decay(
    init_value: float,
    transition_steps: int,
    decay_rate: float,
    transition_begin: int = 0,
    staircase: bool = False,
    end_value: float | None = None,
) -> Schedule:
    """init_value times decay_rate for every transition_steps that are gone, in between too or in
    whole steps only."""
    check_steps("exponential_decay", "transition_steps", transition_steps)

    def schedule(count: Any) -> Any:
        gone = as_float(count) - transition_begin
        times = gone / transition_steps
        decayed = init_value * decay_rate ** (td.floor(times) if staircase else times)
        value = td.where(gone <= 0, init_value, decayed)
        if end_value is None:
            return value
        return td.maximum(value, end_value) if decay_rate < 1 else td.minimum(value, end_value)

    return counts_in_floats(schedule)


def cosine_decay_schedule(
    init_value: float, decay_steps: int, alpha: float = 0.0, exponent: float = 1.0
) -> Schedule:
    """From init_value to alpha * init_value along half a wave of the cosine.

    >>> [round(float(cosine_decay_schedule(1.0, 4)(step)), 3) for step in (0, 1, 2, 4, 9)]
    [1.0, 0.854, 0.5, 0.0, 0.0]
    """
    check_steps("cosine_decay_schedule", "decay_steps", decay_steps)

    def schedule(count: Any) -> Any:
        part = td.minimum(as_float(count), decay_steps) / decay_steps
        wave = 0.5 * (1 + td.cos(math.pi * part))
        return init_value * ((1 - alpha) * (wave if exponent == 1 else wave**exponent) + alpha)

    return counts_in_floats(schedule)


def warmup_cosine_decay_schedule(
    init_value: float,
    peak_value: float,
    warmup_steps: int,
    decay_steps: int,
    end_value: float = 0.0,
    exponent: float = 1.0,
) -> Schedule:
    """Evenly up to peak_value, then down along a cosine; decay_steps counts both parts."""
    if warmup_steps:
        check_steps("warmup_cosine_decay_schedule", "warmup_steps", warmup_steps)
    check_steps(
        "warmup_cosine_decay_schedule", "decay_steps - warmup_steps", decay_steps - warmup_steps
    )
    alpha = 0.0 if peak_value == 0 else end_value / peak_value
    down = cosine_decay_schedule(peak_value, decay_steps - warmup_steps, alpha, exponent)
    if warmup_steps == 0:
        return down
    return join_schedules(
        [linear_schedule(init_value, peak_value, warmup_steps), down], [warmup_steps]
    )


def piecewise_constant_schedule(
    init_value: float, boundaries_and_scales: Mapping[int, float] | None = None
) -> Schedule:
    """init_value, multiplied at each boundary by its scale from there on.

    >>> steps = piecewise_constant_schedule(1.0, {2: 0.5, 4: 0.1})
    >>> [round(float(steps(i)), 3) for i in range(6)]
    [1.0, 1.0, 0.5, 0.5, 0.05, 0.05]
    """
    values, bounds = [init_value], sorted(boundaries_and_scales or {})
    for bound in bounds:
        check_number(
            "piecewise_constant_schedule",
            f"scale at {bound}",
            (boundaries_and_scales or {})[bound],
            0,
        )
        values.append(values[-1] * (boundaries_and_scales or {})[bound])
    return join_schedules([constant_schedule(value) for value in values], bounds)


def join_schedules(schedules: Sequence[Schedule], boundaries: Sequence[int]) -> Schedule:
    """One schedule after the other; each begins at count 0 when its boundary is reached."""
    if len(boundaries) != len(schedules) - 1:
        fail(
            ShapeError,
            f"join_schedules: {len(schedules)} schedules have one boundary less, got "
            f"{len(boundaries)}",
        )

    if sorted(boundaries) != list(boundaries):
        fail(ShapeError, f"join_schedules: boundaries must ascend, got {list(boundaries)}")

    def schedule(count: Any) -> Any:
        value = td.astype(schedules[0](count), as_float(count).dtype)
        for bound, after in zip(boundaries, schedules[1:], strict=True):
            value = td.where(td.asarray(count) < bound, value, after(count - bound))
        return value

    return counts_in_floats(schedule) if all(takes_floats(s) for s in schedules) else schedule


def warmup_constant_schedule(init_value: float, peak_value: float, warmup_steps: int) -> Schedule:
    """Evenly up to peak_value, where it stays."""
    return linear_schedule(init_value, peak_value, warmup_steps)


def warmup_exponential_decay_schedule(
    init_value: float,
    peak_value: float,
    warmup_steps: int,
    transition_steps: int,
    decay_rate: float,
    transition_begin: int = 0,
    staircase: bool = False,
    end_value: float | None = None,
) -> Schedule:
    """Evenly up to peak_value, then down by `exponential_decay`."""
    down = exponential_decay(
        peak_value, transition_steps, decay_rate, transition_begin, staircase, end_value
    )
    if warmup_steps == 0:
        return down
    return join_schedules(
        [linear_schedule(init_value, peak_value, warmup_steps), down], [warmup_steps]
    )


def sgdr_schedule(cosine_kwargs: Iterable[Mapping[str, Any]]) -> Schedule:
    """Several `warmup_cosine_decay_schedule`, one after the other (Loshchilov and Hutter 2017)."""
    schedules, bounds, step = [], [], 0
    for settings in cosine_kwargs:
        schedules.append(warmup_cosine_decay_schedule(**settings))
        step += settings["decay_steps"]
        bounds.append(step)
    return join_schedules(schedules, bounds[:-1])


def piecewise_interpolate_schedule(
    interpolate_type: str,
    init_value: float,
    boundaries_and_scales: Mapping[int, float] | None = None,
) -> Schedule:
    """From init_value to its multiple at each boundary, along a line ("linear") or half a wave of
    the cosine ("cosine")."""
    if interpolate_type not in ("linear", "cosine"):
        name = "piecewise_interpolate_schedule: interpolate_type"
        raise SettingError(name, "'linear' or 'cosine'", interpolate_type)
    bounds, values = [0], [init_value]
    for bound, factor in sorted((boundaries_and_scales or {}).items()):
        check_number("piecewise_interpolate_schedule", f"scale at {bound}", factor, 0)
        bounds.append(bound)
        values.append(values[-1] * factor)

    def schedule(count: Any) -> Any:
        now = as_float(count)
        value = 0.0 * now + values[-1]
        for i in reversed(range(len(bounds) - 1)):
            part = (now - bounds[i]) / max(bounds[i + 1] - bounds[i], 1)
            if interpolate_type == "cosine":
                part = 0.5 - 0.5 * td.cos(math.pi * part)
            between = values[i] + (values[i + 1] - values[i]) * part
            value = td.where(now < bounds[i + 1], between, value)
        return td.where(now < 0, 0.0, value)

    return counts_in_floats(schedule)


def linear_onecycle_schedule(
    transition_steps: int,
    peak_value: float,
    pct_start: float = 0.3,
    pct_final: float = 0.85,
    div_factor: float = 25.0,
    final_div_factor: float = 1e4,
) -> Schedule:
    """Up to peak_value, down to where it began, and on to nearly nothing, along lines (Smith and
    Topin 2018)."""
    check_steps("linear_onecycle_schedule", "transition_steps", transition_steps)
    bounds = {
        int(pct_start * transition_steps): div_factor,
        int(pct_final * transition_steps): 1.0 / div_factor,
        transition_steps: 1.0 / final_div_factor,
    }
    return piecewise_interpolate_schedule("linear", peak_value / div_factor, bounds)


def cosine_onecycle_schedule(
    transition_steps: int,
    peak_value: float,
    pct_start: float = 0.3,
    div_factor: float = 25.0,
    final_div_factor: float = 1e4,
) -> Schedule:
    """Up to peak_value and down to nearly nothing, along halves of waves."""
    check_steps("cosine_onecycle_schedule", "transition_steps", transition_steps)
    bounds = {
        int(pct_start * transition_steps): div_factor,
        int(transition_steps): 1.0 / (div_factor * final_div_factor),
    }
    return piecewise_interpolate_schedule("cosine", peak_value / div_factor, bounds)
