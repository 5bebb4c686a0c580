"""Optim, settings: numbers that steps and schedules are made with are checked when they are made.

Receives a value and its bounds, returns nothing; what is wrong is a `SettingError` with the step,
the setting and the user's line. Arrays pass, as their values may not be known yet.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from numbers import Real
from typing import Any

from tetrad.core.errors import SettingError
from tetrad.core.source import user_source
from tetrad.tracing.array import Array


def check_number(
    step: str, name: str, value: Any, low: float = -math.inf, high: float = math.inf
) -> None:
    """A finite number, at least `low` and at most `high`."""
    _check(step, name, value, f"a number{bounds(low, high)}", lambda x: low <= x <= high)


def check_rate(step: str, value: Any) -> None:
    """A learning rate that is no schedule."""
    hint = (
        "a number such as 1e-3, or a schedule: a function from the number of the step to the rate"
    )
    _check(step, "learning_rate", value, "a number", lambda x: True, hint)


def check_decay(step: str, name: str, value: Any) -> None:
    """The weight of what was before: not yet 1."""
    _check(step, name, value, "a number of at least 0 and below 1", lambda x: 0 <= x < 1)


def check_positive(step: str, name: str, value: Any) -> None:
    _check(step, name, value, "a number above 0", lambda x: x > 0)


def bounds(low: float, high: float) -> str:
    if math.isinf(low):
        return ""
    return f" of at least {low:g}" if math.isinf(high) else f" from {low:g} to {high:g}"


def _check(
    step: str,
    name: str,
    value: Any,
    expected: str,
    is_good: Callable[[Any], bool],
    hint: str | None = None,
) -> None:
    if isinstance(value, Array):
        return
    if (
        isinstance(value, bool)
        or not isinstance(value, Real)
        or not math.isfinite(value)
        or not is_good(value)
    ):
        raise SettingError(f"{step}: {name}", expected, value, source=user_source(), hint=hint)
