"""The hub, extras: packages that only some commands need, imported when one does."""

from __future__ import annotations

import importlib
from typing import Any

from tetrad.core.errors import UnsupportedError


def extra(module: str, purpose: str) -> Any:
    """The module, or an error that says what to install."""
    try:
        return importlib.import_module(module)
    except ImportError:
        package = module.partition(".")[0]
        raise UnsupportedError(
            f"{purpose} needs the package {package}, which is not installed", hint="pip install 'tetrad[lm]'"
        ) from None
