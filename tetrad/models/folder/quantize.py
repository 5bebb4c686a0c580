"""Models, folders, quantise: the tensors of a model in fewer bits, made while they are loaded.

Receives an open model and the name of a mix; returns the same model with some tensors in other
formats. The mixes are those that llama.cpp makes under the same names: matrices in one format, with
more bits where errors cost most (the output, half of the values and down projections).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import partial

import numpy as np

from tetrad.core.errors import SettingError
from tetrad.core.jobs import JOBS
from tetrad.core.record import replace
from tetrad.formats.gguf import FORMATS, Tensor
from tetrad.formats.pin import Pin
from tetrad.models.weights import FLOATS, ModelFile, read_floats
from tetrad.quant import pack

ROWS = 1 << 18  # elements that are packed at a time
Choose = Callable[[str, int], str]  # the format of a matrix, by its name and the number of blocks


def more_bits(i: int, layers: int) -> bool:
    """Blocks whose values and down projections have more bits: the first and last eighth, and every
    third between."""
    eighth = layers // 8
    return i < eighth or i >= 7 * layers // 8 or (i - eighth) % 3 == 2


def k_mix(usual: str, stacked: str) -> Choose:
    """`stacked` is the format of queries, keys and values in one matrix."""

    def choose(name: str, layers: int) -> str:
        if not name.startswith("blk."):
            return usual if name == "token_embd.weight" else "q6_k"
        _, number, part, _ = name.split(".")
        if part == "attn_qkv":
            return stacked
        is_costly = part in ("attn_v", "ffn_down") and more_bits(int(number), layers)
        return "q6_k" if is_costly else usual

    return choose


MIXES: Mapping[str, Choose] = {
    "q4_k_m": k_mix("q4_k", "q5_k"),
    "q5_k_m": k_mix("q5_k", "q6_k"),
    "q6_k": k_mix("q6_k", "q6_k"),
    "q8_0": lambda name, layers: "q8_0",
}
# where rows are no multiple of a block of 256
SHORT_ROWS = {"q4_k": "q5_0", "q5_k": "q5_1", "q6_k": "q8_0"}


def check_mix(name: object) -> None:
    if not isinstance(name, str) or name.lower() not in MIXES:
        raise SettingError("quantize", f"one of {', '.join(MIXES)}", name)


class QuantizedFile:
    """A model whose matrices are in fewer bits. Each is packed when it is asked for."""

    def __init__(self, file: ModelFile, mix: str, layers: int) -> None:
        check_mix(mix)
        self.file, self.choose, self.layers = file, MIXES[mix.lower()], layers
        self.path, self.metadata = file.path, file.metadata
        self.pins: Mapping[str, Pin] = file.pins
        self.tensors: dict[str, Tensor] = {
            name: self.described(tensor) for name, tensor in file.tensors.items()
        }
        self.packed: dict[str, np.ndarray] = {}

    def described(self, tensor: Tensor) -> Tensor:
        """A tensor in the format that the mix has for it; what is no large matrix stays."""
        is_matrix = len(tensor.shape) == 2 and tensor.format in FLOATS and min(tensor.shape) > 1
        if not is_matrix:
            return tensor
        # an embedding that is the output too counts as that
        is_both = tensor.name == "token_embd.weight" and "output.weight" not in self.file.tensors
        name = "output.weight" if is_both else tensor.name
        format = fitting(self.choose(name, self.layers), tensor.shape[1])
        if format is None:
            return tensor
        nbytes = math.prod(tensor.shape) // FORMATS[format].block * FORMATS[format].nbytes
        return replace(tensor, format=format, nbytes=nbytes, file=tensor.name, offset=0)

    def is_packed(self, name: str) -> bool:
        return self.tensors[name] is not self.file.tensors[name]

    def data(self, name: str) -> np.ndarray:  # u8[nbytes]
        if not self.is_packed(name):
            return self.file.data(name)
        if name not in self.packed:
            values = read_floats(self.file, name)
            self.packed[name] = packed_rows(values, self.tensors[name].format)
            self.file.release(name)
        return self.packed[name]

    def contents(self, file: str) -> np.ndarray:
        """The bytes that `offset` of a tensor counts from: those of a packed one are by
        themselves."""
        return self.data(file) if file in self.tensors else self.file.contents(file)

    def check(self) -> None:
        self.file.check()

    def release(self, name: str) -> None:
        if self.packed.pop(name, None) is None:
            self.file.release(name)

    def close(self) -> None:
        self.file.close()


def fitting(format: str, columns: int) -> str | None:
    """The format, or one with smaller blocks where rows need it; None where none fits."""
    for name in (format, SHORT_ROWS.get(format, format)):
        if columns % FORMATS[name].block == 0:
            return name
    return None


def packed(values: np.ndarray, format: str) -> np.ndarray:
    return pack(values.astype(np.float32), format)


def packed_rows(values: np.ndarray, format: str) -> np.ndarray:
    """The bytes of a matrix, some rows at a time, on all processors."""
    step = max(1, ROWS // values.shape[1])
    parts = [values[i : i + step] for i in range(0, len(values), step)]
    jobs = [JOBS.submit(partial(packed, part, format)) for part in parts]
    return np.concatenate([job.result().reshape(-1) for job in jobs])
