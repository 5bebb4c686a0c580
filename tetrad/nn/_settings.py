"""Neural networks, settings: what a setting cannot be, said with the user's line."""

from __future__ import annotations

from typing import NoReturn

from tetrad.core.errors import SettingError
from tetrad.core.source import user_source


def refuse(function: str, setting: str, expected: str, got: object, hint: str = "") -> NoReturn:
    name = f"{function}: {setting}"
    raise SettingError(name, expected, got, source=user_source(), hint=hint or None) from None


def check_choice(function: str, setting: str, choices: tuple[str, ...], got: object) -> None:
    if got not in choices:
        *first, last = choices
        refuse(function, setting, f"{', '.join(first)} or {last}", got)
