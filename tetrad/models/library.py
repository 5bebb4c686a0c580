"""Models, library: what architectures are written with: array functions (`td`), `nn` and `layers`.

All are loaded when a step is traced first: a model whose step is recalled from the disk needs none
of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tetrad.core import lazy

if TYPE_CHECKING:
    from tetrad import nn as nn
    from tetrad.arrays import functions as td
    from tetrad.models import layers as layers
else:
    td = lazy.later("tetrad.arrays.functions")
    nn = lazy.later("tetrad.nn")
    layers = lazy.later("tetrad.models.layers")

__all__ = ["layers", "nn", "td"]
