"""Models, support: can a model run, from its header alone?

Receives metadata and descriptions of tensors, of a file that need not be on this machine; returns
what stands in the way, empty if nothing does. The checks are those of `load`, but for the bytes of
tensors.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from tetrad.core.errors import TetradError
from tetrad.formats.gguf import Tensor
from tetrad.formats.pin import Pin
from tetrad.models.arch import architecture_named, known_names
from tetrad.models.config import Metadata
from tetrad.models.load import read_config
from tetrad.models.shapes import check_shapes
from tetrad.models.weights import FLOATS
from tetrad.quant.lanes import LANES
from tetrad.text.pretokenizers import PRE_TOKENIZERS
from tetrad.text.vocabulary import MODELS

LONG = 300  # characters of a reason that are shown


class Header:
    """A model file without the bytes of its tensors: those that are asked for are ones."""

    def __init__(
        self, path: str, metadata: Mapping[str, object], tensors: Mapping[str, Tensor]
    ) -> None:
        self.path, self.metadata, self.tensors = path, metadata, tensors
        self.pins: dict[str, Pin] = {}

    def data(self, name: str) -> np.ndarray:  # u8[nbytes]
        tensor = self.tensors[name]
        return np.ones(tensor.shape, FLOATS[tensor.format].np).reshape(-1).view(np.uint8)

    def contents(self, file: str) -> np.ndarray:
        return np.empty(0, np.uint8)

    def check(self) -> None:
        """Nothing is mapped that could change."""

    def release(self, name: str) -> None:
        """Nothing is held."""

    def close(self) -> None:
        """Nothing is open."""


def problems(header: Header) -> list[str]:
    """Why it cannot run here, each reason a phrase."""
    found = [*unknown_architecture(header), *unknown_formats(header), *unknown_tokens(header)]
    return found or [reason[:LONG] for reason in wrong_structure(header)]


def unknown_architecture(header: Header) -> Iterator[str]:
    name = header.metadata.get("general.architecture")
    if name not in known_names():
        yield f"the architecture {name!a:.60} is not known"


def unknown_formats(header: Header) -> Iterator[str]:
    formats = {tensor.format for tensor in header.tensors.values()} - FLOATS.keys() - LANES.keys()
    if formats:
        kind = "type" if len(formats) == 1 else "types"
        yield f"the tensor {kind} {', '.join(sorted(formats))} is not supported"


def unknown_tokens(header: Header) -> Iterator[str]:
    """A folder has its tokeniser in a file of its own, which says nothing here."""
    model = header.metadata.get("tokenizer.ggml.model")
    pre = header.metadata.get("tokenizer.ggml.pre")
    if model is not None and model not in MODELS:
        yield f"the tokeniser {model!a:.60} is not known"
    if model == "gpt2" and pre is not None and pre not in PRE_TOKENIZERS:
        yield f"the pre-tokeniser {pre!a:.60} is not known"


def wrong_structure(header: Header) -> Iterator[str]:
    """Numbers and shapes against what the architecture wants."""
    try:
        arch = architecture_named(header.metadata.get("general.architecture"), header.path)
        config = read_config(header, Metadata(header.metadata, header.path, arch.name), arch)
        check_shapes(header, arch.outer(config), arch.shapes(config), config.layers)
    except TetradError as error:
        yield error.message.removeprefix(f"{header.path}: ")


def runs_quant(quant: str) -> bool:
    """Is what files call this kind of weights made of formats that run here?

    >>> runs_quant("Q4_K_M"), runs_quant("UD-Q5_K_XL"), runs_quant("IQ2_XXS")
    (True, True, False)
    """
    name = quant.lower().removeprefix("ud-")
    return any(name.startswith(format) for format in (*FLOATS, *LANES))
