"""The public name `load`, by itself: a model whose programs are on disk needs none of the array
functions.

Receives nothing, has `load`.
"""

from __future__ import annotations

from tetrad.core.flags import check_environment
from tetrad.models.model import load

__all__ = ["load"]

check_environment()
