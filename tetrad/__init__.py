"""Tetrad: an ML compiler and runtime in Python.

The public names are those of `tetrad.names`, which is loaded when the first of them is used: a
command that prints its help does not wait for NumPy.
"""

from __future__ import annotations

from tetrad.core import lazy
from tetrad.core.version import __version__ as __version__

# for type checkers it is true; to import `typing` for it would take longer than all else here
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from tetrad import debug as debug
    from tetrad import explain as explain
    from tetrad import fft as fft
    from tetrad import linalg as linalg
    from tetrad import nn as nn
    from tetrad import optim as optim
    from tetrad import quant as quant
    from tetrad import random as random
    from tetrad import special as special
    from tetrad import stats as stats
    from tetrad.arrays.functions import *  # noqa: F403
    from tetrad.models.lm import load as load
    from tetrad.names import *  # noqa: F403

lazy.PROVIDERS.update(
    {
        "the public namespace": "tetrad",
        "linear algebra": "tetrad.linalg",
        "methods of arrays": "tetrad.arrays.functions",
        "packed nibbles": "tetrad.arrays.int4",
        "quantised arrays": "tetrad.arrays.quantized",
        "compiled functions": "tetrad.compiler.jit",
        "costs of programs": "tetrad.explain.story",
        "compiled graphs": "tetrad.compiler.run_graphs",
        "running kernels": "tetrad.compiler.run_kernels",
        "suggestions": "tetrad.arrays.suggestions",
        "x.at": "tetrad.arrays.indexed_update",
        "bad values": "tetrad.compiler.bad_values",
        "targets": "tetrad.backends",
        "ptx": "tetrad.backends.cuda.ptx",
        "kernel launches": "tetrad.compiler.dispatch",
        "models by name": "tetrad.hub.by_name",
    }
)

MODULES = ("errors", "kernel")  # names that `tetrad.names` itself imports


def __getattr__(name: str) -> Any:
    with lazy.module("tetrad.core.floats").own_floats():  # modules compute constants as they load
        return found(name)


def found(name: str) -> Any:
    if name in MODULES:
        return lazy.module(f"tetrad.{name}")
    home = "tetrad.models.lm" if name == "load" else "tetrad.names"
    globals()[name] = value = getattr(lazy.module(home), name)
    return value


def __dir__() -> list[str]:
    return ["__version__", *dir(lazy.module("tetrad.names"))]
