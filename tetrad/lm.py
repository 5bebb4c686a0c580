"""The public name `load`, by itself: a model whose programs are on disk needs none of the array functions.

Receives nothing, has `load`. What it needs beyond the core packages is missed here, with the way to install it.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from tetrad.core.errors import UnsupportedError
from tetrad.core.flags import check_environment

if TYPE_CHECKING:
    from tetrad.models.model import load

__all__ = ["load"]

check_environment()

try:
    load = importlib.import_module("tetrad.models.model").load
except ModuleNotFoundError as missing:
    message = f"td.load needs the package {missing.name}, which is not installed"
    raise UnsupportedError(message, hint="pip install 'tetrad[lm]'") from None
