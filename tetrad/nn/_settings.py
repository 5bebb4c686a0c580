"""Neural networks, settings: what a setting cannot be, said with the user's line."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NoReturn

import numpy as np

from tetrad.core.errors import SettingError
from tetrad.core.source import user_source


def refuse(function: str, setting: str, expected: str, got: object, hint: str = "") -> NoReturn:
    name = f"{function}: {setting}"
    raise SettingError(name, expected, got, source=user_source(), hint=hint or None) from None


def check_choice(function: str, setting: str, choices: tuple[str, ...], got: object) -> None:
    if got not in choices:
        *first, last = choices
        refuse(function, setting, f"{', '.join(first)} or {last}", got)


def listed(given: Any) -> list[Any]:
    """The entries of a setting: those of a list, or the one that it is. Whole numbers of NumPy are
    Python's here.

    >>> listed((1, np.int64(2))), listed(3), listed(1.5)
    ([1, 2], [3], [1.5])
    """
    entries = list(given) if isinstance(given, Sequence | np.ndarray) else [given]
    return [e.item() if isinstance(e, np.integer) else e for e in entries]


def is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
