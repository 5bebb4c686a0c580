"""Tracing, switches: settings for debugging, as they are asked where something runs.

`disable_jit` runs compiled functions as they are written, `debug_nans` and `debug_infs` look at
every result. The key of the settings is 0 as long as none of them is set, so that asking costs one
look.
"""

from __future__ import annotations

from typing import Any

from tetrad.core.config import LOCAL, Setting, config, declare
from tetrad.core.errors import SettingError
from tetrad.core.flags import flag_words


def switch(name: str, help: str) -> Setting:
    def check(value: Any) -> bool:
        if not isinstance(value, bool):
            raise SettingError(name, "True or False", value)
        return value

    return Setting(name, False, check, help, changes_programs=True)


declare(switch("disable_jit", "compiled functions and loops run as they are written, op by op"))
declare(switch("debug_nans", "a nan in a result is an error that names the op and the line"))
declare(switch("debug_infs", "an infinity in a result is an error that names the op and the line"))


def jit_is_disabled() -> bool:
    view = LOCAL.view
    return bool(view.key and view.values["disable_jit"])


def checked_values() -> tuple[str, ...]:
    """Which numbers are errors now: "nan", "inf"."""
    view = LOCAL.view
    if not view.key:
        return ()
    settings = (("nan", "debug_nans"), ("inf", "debug_infs"))
    return tuple(value for value, name in settings if view.values[name])


def read_flags() -> None:
    """TETRAD_CHECK=nan and inf set them for the process."""
    for value, name in (("nan", "debug_nans"), ("inf", "debug_infs")):
        if value in flag_words("TETRAD_CHECK"):
            config.update(name, True)
