"""Models, architectures: what a file of `models/` says about one, and the list of those known."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from tetrad.core.errors import UnsupportedError
from tetrad.core.record import record
from tetrad.models.config import Config, Metadata
from tetrad.models.shapes import Expected
from tetrad.models.weights import Factors
from tetrad.tracing.array import Array

if TYPE_CHECKING:
    from tetrad.models.layers import Place, Weights

Tables = tuple[Array, Array]  # cos and sin of the tokens' positions


@record
class Architecture:
    """`config` reads the numbers; `shapes` lists the tensors of a block by their short names; `block` is one layer:
    stream in, stream and caches out."""

    name: str  # general.architecture of the file
    config: Callable[[Metadata, int, Factors], Config]
    shapes: Callable[[Config], Iterable[Expected]]
    block: Callable[[Config, Weights, Array, Place, Array, Tables, int], tuple[Array, Place]]


ARCHITECTURES: dict[str, Architecture] = {}


def register(architecture: Architecture) -> None:
    ARCHITECTURES[architecture.name] = architecture


def architecture_named(name: object, path: str) -> Architecture:
    if not isinstance(name, str) or name not in ARCHITECTURES:
        known = ", ".join(sorted(ARCHITECTURES))
        raise UnsupportedError(f"{path}: the architecture {name!r} is not known", hint=f"known: {known}")
    return ARCHITECTURES[name]
