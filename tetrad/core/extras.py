"""Core: optional packages.

Receives the name of a package and its purpose; returns the module, or raises an error that says how
to install it. An optional package is imported when it is first needed, not before.
"""

from __future__ import annotations

import importlib.util
from typing import Any

from tetrad.core import lazy
from tetrad.core.errors import UnsupportedError

MODELS = "'tetrad[lm]'"  # what pip is asked for


def extra(module: str, purpose: str, wanted: str = MODELS) -> Any:
    try:
        return lazy.module(module)
    except ImportError:
        raise missing(module.partition(".")[0], purpose, wanted) from None


def check_extra(package: str, purpose: str) -> None:
    """Check that the package is installed without importing it: it is imported later, after work
    that would be lost."""
    if importlib.util.find_spec(package) is None:
        raise missing(package, purpose)


def missing(package: str, purpose: str, wanted: str = MODELS) -> UnsupportedError:
    """
    >>> print(missing("tokenizers", "tetrad run"))
    tetrad run needs the package tokenizers, which is not installed
      hint: pip install 'tetrad[lm]'
    """
    said = f"{purpose} needs the package {package}, which is not installed"
    return UnsupportedError(said, hint=f"pip install {wanted}")
