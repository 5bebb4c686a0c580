"""Models, checks: settings of a caller that are not what they should be. Receives a name and a
value; raises or not."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from tetrad.core.errors import SettingError


def check_number(
    name: str, value: object, least: float = -math.inf, most: float = math.inf
) -> None:
    if (
        isinstance(value, bool)
        or not isinstance(value, int | float | np.number)
        or not math.isfinite(value)
    ):
        raise SettingError(name, "a number", value)
    if not least <= value <= most:
        between = f"from {least:g} to {most:g}" if math.isfinite(most) else f"of at least {least:g}"
        raise SettingError(name, f"a number {between}", value)


def check_count(name: str, value: object, least: int, most: float = math.inf) -> None:
    if (
        isinstance(value, bool)
        or not isinstance(value, int | np.integer)
        or not least <= value <= most
    ):
        between = f"from {least} to {most}" if math.isfinite(most) else f"of at least {least}"
        raise SettingError(name, f"a whole number {between}", value)


def check_texts(name: str, value: object) -> None:
    if (
        isinstance(value, str)
        or not isinstance(value, Sequence)
        or not all(isinstance(t, str) and t for t in value)
    ):
        raise SettingError(name, "a list of texts that are not empty", value)
