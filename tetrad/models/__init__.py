"""Language models: one file per architecture, and what turns a model file into something that generates.

`layers`, and with it every op, is loaded when a step is traced first: a model whose step is recalled needs neither.
"""

import importlib

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from tetrad.models import layers as layers


def __getattr__(name: str) -> "Any":
    if name == "layers":
        return importlib.import_module("tetrad.models.layers")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
