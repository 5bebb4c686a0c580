"""The public namespace `td.random`, generators: which function of a key makes the words.

Philox is ours: any element of a draw is computed alone. Threefry is JAX's: with it keys, words and
what is drawn from them are those that JAX has for the same seed (`random.threefry`). The setting
`random_bits` of `td.config` chooses; functions that differ are marked `switchable`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar, cast

from tetrad.core import lazy
from tetrad.core.config import LOCAL

F = TypeVar("F", bound=Callable[..., Any])


def is_threefry() -> bool:
    return bool(LOCAL.view.values["random_bits"] == "threefry")


def switchable(function: F) -> F:
    """The function, or the one of its name in `random.threefry`, as the setting says."""

    @functools.wraps(function)
    def chosen(*args: Any, **settings: Any) -> Any:
        if not is_threefry():
            return function(*args, **settings)
        other = getattr(lazy.module("tetrad.random.threefry"), function.__name__)
        return other(*args, **settings)

    return cast(F, chosen)
