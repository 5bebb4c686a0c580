"""Explain: see inside. `tetrad.explain(f)(x)` tells the story of one call; `bisect` finds the first
wrong station.

The folder is itself the function: otherwise `td.explain` would mean one thing before the first
import, another after.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

from tetrad.explain.story import Explanation, explain


class _Explain(ModuleType):
    def __call__(self, function: Callable[..., Any]) -> Callable[..., Explanation]:
        return explain(function)


sys.modules[__name__].__class__ = _Explain

__all__ = ["Explanation", "explain"]
