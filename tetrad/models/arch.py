"""Models, architectures: what a file of `models/architectures/` says, and how it is found by its
name in GGUF.

Receives the name that a model file gives; returns an `Architecture`, loaded from the file of that
name. `decoder` and `encoder` have what most of them share; nothing here knows of caches, positions
that turn, or windows.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from enum import Enum
from typing import Any, Generic, TypeVar

import numpy as np

from tetrad.core import lazy
from tetrad.core.dtypes import DType
from tetrad.core.errors import SettingError, UnsupportedError
from tetrad.core.record import record, replace
from tetrad.core.types import ArrayType
from tetrad.models.config import Config, Metadata
from tetrad.models.folder.spelling import FolderNames
from tetrad.models.shapes import Expected
from tetrad.models.weights import Factors
from tetrad.tracing.array import Array

C = TypeVar("C", bound=Config)  # the config of the architecture
Weights = Mapping[str, Array]
Arrays = tuple[Array, ...]
PRECISIONS = ("f32", "bf16", "int8")  # of products, where a caller asks for one
FOLDER = os.path.join(os.path.dirname(__file__), "architectures")


class Keeps(Enum):
    """What a model keeps of a sequence between steps."""

    TOKENS = "every token in a place of its own: any beginning of a sequence can be used again"
    LAST = "what all tokens so far have left: a sequence goes on from its end, or begins anew"
    NOTHING = "nothing: a sequence is evaluated whole, in one step"


@record
class ModelState(Generic[C]):
    """The arrays that steps hand on, each [layer, slot, ...]; those of Keeps.TOKENS are [layer,
    slot, head, position or sixteen of them, ...]. `types` receives slots, positions of each and the
    element type that was asked for."""

    keeps: Keeps
    types: Callable[[C, int, int, DType], tuple[ArrayType, ...]]


@record
class TokenBatch:
    """The tokens of a step side by side: token t is number `position[t]` of the sequence in
    `slot[t]`.

    Where the state keeps the last token only, a position below zero is filling, which must change
    nothing."""

    tokens: Array  # i32[T]
    slot: Array  # i32[T]; of an encoder i32[texts + 1], where in the batch texts begin
    position: Array  # i32[T]
    types: Array | None = None  # i32[T]: of an encoder, which part of a text a token is of


@record
class BlockInputs:
    """What a block is given besides its weights and the stream."""

    slot: Array  # as in `TokenBatch`
    position: Array  # i32[T]
    layer: Array  # i32[]: the number of the block
    kind: Any  # its element of `kinds`
    shared: Arrays  # what `shared` has made for blocks of that kind
    state: Arrays

    def with_state(self, state: Iterable[Array]) -> BlockInputs:
        return replace(self, state=tuple(state))


def as_they_came(c: Any, weights: dict[str, Array], dtype: str) -> dict[str, Array]:
    if dtype:
        raise SettingError("dtype", f"none for {c.arch}: only encoders take one", dtype)
    return weights


@record
class Architecture(Generic[C]):
    """What there is to say of one kind of model; a step is `inputs`, the blocks, `output`, and
    where asked for `head`.

    Blocks of one kind are compiled once. Every function works on arrays that are being traced.
    """

    name: str  # general.architecture of the file
    config: Callable[[Metadata, int, Factors], C]
    outer: Callable[[C], Iterable[Expected]]  # the tensors outside the blocks
    shapes: Callable[[C], Iterable[Expected]]  # those of a block, by their short names
    state: ModelState[C]
    # f32[T, width]: the stream that enters the first block
    inputs: Callable[[C, Weights, TokenBatch], Array]
    # of each block what tells it from others besides its weights
    kinds: Callable[[C], Sequence[Hashable]]
    # computed once a step for all blocks of a kind, from the weights outside them
    shared: Callable[[Any, TokenBatch, Weights], Arrays]
    block: Callable[[C, Weights, Array, BlockInputs], tuple[Array, BlockInputs]]
    output: Callable[[C, Weights, Array], Array]  # hidden states from what leaves the last block
    # logits from hidden states; None: it has none
    head: Callable[[C, Weights, Array], Array] | None
    order: Callable[[C, str], np.ndarray | None]  # of a tensor's rows, None for that of the file
    folder: FolderNames | None = None  # how a Hugging Face folder spells it; None: not read
    # what ranks texts: logits from the states that stand for texts
    classify: Callable[[C, Weights, Array], Array] | None = None
    # the weights of a block as its function wants them, from those of the file; "" or one of
    # PRECISIONS says in what products are computed
    prepare: Callable[[C, dict[str, Array], str], dict[str, Array]] = as_they_came

    def functions(self) -> list[Any]:
        """What a step is traced from."""
        return [
            self.inputs,
            self.kinds,
            self.shared,
            self.block,
            self.output,
            *filter(None, [self.head, self.classify]),
        ]


ARCHITECTURES: dict[str, Architecture[Any]] = {}


def register(architecture: Architecture[Any]) -> None:
    ARCHITECTURES[architecture.name] = architecture


def architecture_named(name: object, path: str) -> Architecture[Any]:
    """The one of that name; its file, called like it, is loaded when it is first asked for."""
    known = known_names()
    if not isinstance(name, str) or name not in known:
        raise UnsupportedError(
            f"{path}: the architecture {name!r} is not known", hint=f"known: {', '.join(known)}"
        )
    if name not in ARCHITECTURES:
        lazy.module(f"tetrad.models.architectures.{name.replace('-', '_')}")
    return ARCHITECTURES[name]


def known_names() -> list[str]:
    """Those registered, and those with a file, which is called like the architecture with _ for
    -."""
    files = [
        name.removesuffix(".py")
        for name in os.listdir(FOLDER)
        if name.endswith(".py") and name[0] != "_"
    ]
    return sorted({*ARCHITECTURES, *(name.replace("_", "-") for name in files)})


def all_alike(c: Config) -> list[None]:
    """The `kinds` of a model whose blocks differ in their weights only."""
    return [None] * c.layers


def nothing_shared(kind: Hashable, batch: TokenBatch, weights: Weights) -> Arrays:
    return ()


def as_in_the_file(c: Config, name: str) -> None:
    return None
