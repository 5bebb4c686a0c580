"""Back ends: the table of them. A name in, a `Backend` that works here out, or an error that lists
what there is.

A back end is a folder beside this file and a line here. It is loaded when it is first asked for.
"""

from __future__ import annotations

from collections.abc import Callable

from tetrad.core import lazy
from tetrad.core.backend import UNSUPPORTED, Backend
from tetrad.core.errors import BackendError

BACKENDS: dict[str, Callable[[], Backend]] = {
    "cpu": lambda: lazy.module("tetrad.backends.cpu.backend").CPU,
    "cuda": lambda: lazy.module("tetrad.backends.cuda.backend").CUDA,
}


def backend_named(name: str, asker: str) -> Backend:
    """The back end; `asker` is named in the error if it is not there."""
    if name not in BACKENDS:
        raise BackendError(
            f"{asker}: there is no back end {name!r}", code=UNSUPPORTED, hint=there_are()
        )
    found = BACKENDS[name]()
    lacking = found.available()
    if lacking is not None:
        raise BackendError(
            f"{asker}: back end {name!r} cannot be used here: {lacking.reason}",
            code=UNSUPPORTED,
            hint=f"{lacking.remedy}; {there_are()}",
        )
    return found


def there_are() -> str:
    return "back ends: " + ", ".join(BACKENDS)


def target_names() -> tuple[str, ...]:
    """All that TETRAD_TARGET may name beside the host."""
    return tuple(target for make in BACKENDS.values() for target in make().targets)
