"""Core: settings that a program may change while it runs, for a process or for one block.

Modules declare settings; `config` reads them, `update` sets one for the process, `context` for this
thread until a block ends. `config.key` names the values that results depend on: it is part of what
a compiled program is chosen by.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import Any
from weakref import WeakSet

from tetrad.core.errors import SettingError, UnknownSettingError
from tetrad.core.locks import process_lock
from tetrad.core.record import record


@record
class Setting:
    """One setting. `check` returns the value as it is kept, or raises a `SettingError`."""

    name: str
    default: Any
    check: Callable[[Any], Any]
    help: str
    # do traced programs depend on it? Then equal calls under other values are other programs
    changes_programs: bool = False


class SettingsView:
    """The settings as one thread sees them: its own over those of the process."""

    __slots__ = ("__weakref__", "key", "own", "values")

    def __init__(self, own: Mapping[str, Any]) -> None:
        self.own = dict(own)
        self.values: dict[str, Any] = {}
        self.key = 0

    def refresh(self) -> None:
        """Read the settings of the process anew."""
        self.values = PROCESS.own | self.own
        # Only what differs from the default: settings that are declared later change no key.
        told = tuple(
            (name, self.values[name])
            for name, setting in sorted(SETTINGS.items())
            if setting.changes_programs and self.values[name] != setting.default
        )
        self.key = KEYS.setdefault(told, len(KEYS))


class ThreadSettings(threading.local):
    """This thread's view. The class holds that of the process, so that one look finds either."""

    view: SettingsView


SETTINGS: dict[str, Setting] = {}
# the values that programs depend on -> a number; the defaults have 0
KEYS: dict[tuple[tuple[str, Any], ...], int] = {(): 0}
PROCESS = SettingsView({})
LOCAL = ThreadSettings()
ThreadSettings.view = PROCESS
VIEWS: WeakSet[SettingsView] = WeakSet()  # of the threads that are inside a `context`
LOCK = process_lock()


class ProcessSettings:
    """The settings, as attributes: `td.config`.

    >>> import tetrad as td
    >>> td.config.default_float
    f32
    >>> with td.config.context(default_float="float64"):
    ...     td.asarray([1.0]).dtype, (td.arange(3) / 2).dtype
    (f64, f64)
    """

    __slots__ = ()

    def __getattr__(self, name: str) -> Any:
        try:
            return LOCAL.view.values[name]
        except KeyError:
            raise AttributeError(f"there is no setting {name!r}; {known()}") from None

    def __setattr__(self, name: str, value: Any) -> None:
        self.update(name, value)

    def __dir__(self) -> list[str]:
        return [*object.__dir__(self), *SETTINGS]

    def __repr__(self) -> str:
        shown = ", ".join(f"{name}={value!r}" for name, value in LOCAL.view.values.items())
        return f"config({shown})"

    @property
    def key(self) -> int:
        """A number for the values that traced programs depend on; equal values have one number."""
        return LOCAL.view.key

    def update(self, name: str, value: Any) -> None:
        """Set one setting, for every thread of the process that is not inside a `context` of it.

        >>> import tetrad as td
        >>> td.config.update("default_float", "float64")
        >>> td.ones(2)
        Array([1., 1.], float64)
        >>> td.config.update("default_float", "float32")
        """
        checked = check(name, value)
        with LOCK:
            PROCESS.own[name] = checked
            for view in (PROCESS, *VIEWS):
                view.refresh()

    @contextmanager
    def context(self, **settings: Any) -> Iterator[None]:
        """These settings, on this thread, until the block ends."""
        checked = {name: check(name, value) for name, value in settings.items()}
        before = LOCAL.view
        with LOCK:
            made = SettingsView(before.own | checked if before is not PROCESS else checked)
            VIEWS.add(made)
            made.refresh()
        LOCAL.view = made
        try:
            yield
        finally:
            if before is PROCESS:  # the class has it
                LOCAL.__dict__.pop("view", None)
            else:
                LOCAL.view = before


config = ProcessSettings()


def standard() -> AbstractContextManager[None]:
    """Every setting that programs depend on has its default, on this thread, until the block
    ends."""
    return config.context(**{s.name: s.default for s in SETTINGS.values() if s.changes_programs})


def declare(setting: Setting) -> None:
    """Add a setting; modules do so when they are loaded."""
    with LOCK:
        if setting.name in SETTINGS:
            raise ValueError(f"setting {setting.name} is declared twice")
        SETTINGS[setting.name] = setting
        PROCESS.own[setting.name] = setting.default
        for view in (PROCESS, *VIEWS):
            view.refresh()


def check(name: str, value: Any) -> Any:
    if name not in SETTINGS:
        raise UnknownSettingError(f"config: there is no setting {name!r}", hint=known())
    return SETTINGS[name].check(value)


def known() -> str:
    return f"settings: {', '.join(SETTINGS)}"


# -- conventions in which other libraries differ ---------------------------------------------------


def any_of(name: str, *allowed: Any) -> Callable[[object], Any]:
    """The check of a setting that is one of these values."""

    def check(value: object) -> Any:
        if value not in allowed:
            raise SettingError(name, " or ".join(map(repr, allowed)), value)
        return allowed[allowed.index(value)]

    return check


declare(
    Setting(
        "out_of_range",
        "error",
        any_of("out_of_range", "error", "nearest"),
        'what x[i] is where i is out of range: "error", or "nearest": the nearest element; '
        "x.at[i] then leaves such an element out",
        changes_programs=True,
    )
)
declare(
    Setting(
        "random_bits",
        "philox",
        any_of("random_bits", "philox", "threefry"),
        'what random words are made by: "philox", or "threefry", with which keys and numbers are '
        "those of JAX",
        changes_programs=True,
    )
)
declare(
    Setting(
        "linalg_failure",
        "raise",
        any_of("linalg_failure", "raise", "nan"),
        "what a matrix without an answer (singular, not positive definite, with NaN) leads to: "
        '"raise": an error, or "nan": its results are NaN',
        changes_programs=True,
    )
)


def takes_nearest() -> bool:
    """Does an index out of range take the nearest element?"""
    return bool(LOCAL.view.values["out_of_range"] == "nearest")
