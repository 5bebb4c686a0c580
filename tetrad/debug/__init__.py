"""`td.debug`: to look into programs while they run.

`print`, `log` and `callback` show values from inside compiled functions, `breakpoint` stops there;
`nans` and `infs` make such results errors.
"""

from __future__ import annotations

from tetrad.debug.modes import infs, nans
from tetrad.debug.printing import breakpoint, callback, log, print

__all__ = ["breakpoint", "callback", "infs", "log", "nans", "print"]


def __dir__() -> list[str]:
    return sorted(__all__)
