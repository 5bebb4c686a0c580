"""Models, programs: the compiled steps of one model. Weights in, functions from tokens to logits out.

One program serves chunks of any length (a Dim), one a single token; both are the same Python function, and each layer
is a call, so equal layers are compiled once. Weights are constants of the programs: they lie where they were loaded.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any

import numpy as np

import tetrad as td
from tetrad import models
from tetrad.core.dtypes import DType, f16
from tetrad.core.sizes import Dim, plain
from tetrad.core.types import ArrayType
from tetrad.formats.gguf import Pin
from tetrad.known import Known
from tetrad.models.arch import Architecture
from tetrad.models.caches import cache_types
from tetrad.models.config import Config
from tetrad.runtime.memory import Storage
from tetrad.tracing.array import Array, array_type

CHUNK = 512  # tokens of one step, at most
DONATED = (4, 5, 6, 7)  # arguments of a step that are caches


class Step:
    """The function that is compiled, and what it closes over. `layers[i]` are the weights of block i by short names.

    It knows nothing of the programs made of it: with the last reference to those the weights go, without a search for
    cycles.
    """

    def __init__(
        self,
        arch: Architecture,
        config: Config,
        outer: Mapping[str, Array],
        layers: list[dict[str, Array]],
        has_head: bool = True,
    ) -> None:
        self.arch, self.config, self.outer, self.layers, self.has_head = arch, config, outer, layers, has_head

    @cached_property
    def block(self) -> Any:
        return td.jit(block_function(self.arch, self.config), static_argnames=("window",))

    def name(self) -> str | None:
        """Everything that `step` depends on besides the arrays; None for what others have added to."""
        ours = type(self) is Step and self.arch.block.__module__.startswith("tetrad.models.")
        block = f"{self.arch.block.__module__}.{self.arch.block.__qualname__}"
        names = [*self.outer, *(f"{i} {short}" for i, weights in enumerate(self.layers) for short in weights)]
        return f"{block} {self.config!r} {self.has_head} {names}" if ours else None

    def arrays(self) -> list[Array]:
        """The weights, in the order of their names."""
        return [*self.outer.values(), *(weight for weights in self.layers for weight in weights.values())]

    def step(self, tokens: Array, slot: Array, position: Array, rows: Array, *caches: Array) -> tuple[Array, ...]:
        """Logits after the tokens numbered `rows` of the batch, and the caches with all tokens in them."""
        c, layers = self.config, models.layers
        x = layers.embedding(self.outer["token_embd.weight"], tokens)
        if c.embedding_scale != 1.0:
            x = x * c.embedding_scale
        tables = {rope: layers.rope_tables(rope, position) for rope in {c.rope_of(i) for i in range(c.layers)}}
        for i, weights in enumerate(self.layers):
            layer = np.int32(i)
            x, caches = self.block(
                weights, x, slot, position, caches, layer, tables[c.rope_of(i)], window=c.window_of(i)
            )
        x = layers.rms_norm(td.take(x, rows, axis=0), self.outer["output_norm.weight"], c.epsilon)
        if not self.has_head:
            return x, *caches
        logits = layers.head(x, self.outer.get("output.weight", self.outer["token_embd.weight"]))
        if c.logit_cap:
            logits = c.logit_cap * td.tanh(logits / c.logit_cap)
        return logits, *caches


def block_function(arch: Architecture, config: Config) -> Callable[..., Any]:
    """A block as a function of its weights: all layers share what is compiled of it."""

    def run_block(
        weights: Any, x: Any, slot: Any, position: Any, caches: Any, layer: Any, tables: Any, *, window: int
    ) -> Any:
        place = models.layers.Place(slot, position, caches)
        x, place = arch.block(config, weights, x, place, layer, tables, window)
        return x, place.caches

    return run_block


class Programs:
    """The step of a model, compiled when first used. `files` are those that weights are still read from, in place."""

    def __init__(self, step: Step, files: tuple[Pin, ...] = ()) -> None:
        self.step, self.config, self.files = step, step.config, files

    @cached_property
    def chunks(self) -> Known:
        """The step for any number of tokens."""
        count = {0: Dim("tokens", max=CHUNK)}
        dims = {0: count, 1: count, 2: count, 3: {0: Dim("rows", max=CHUNK)}}
        return Known(self.step.step, self.step.name, self.step.arrays, donated=DONATED, dims=dims)

    @cached_property
    def singles(self) -> Known:
        """The same for one token."""
        return Known(self.step.step, self.step.name, self.step.arrays, donated=DONATED)

    @property
    def chunk(self) -> Any:
        """logits, *caches = chunk(tokens, slot, position, rows, *caches) for any number of tokens."""
        return self.chunks.jitted

    @property
    def single(self) -> Any:
        """The same for one token."""
        return self.singles.jitted

    @property
    def layers(self) -> list[dict[str, Array]]:
        return self.step.layers

    @property
    def outer(self) -> Mapping[str, Array]:
        return self.step.outer

    def without_head(self) -> Programs:
        """The same model, whose steps give hidden states in place of logits."""
        step = self.step
        return Programs(Step(step.arch, step.config, step.outer, step.layers, has_head=False), self.files)

    def check_files(self) -> None:
        """Raises if weights that lie in a file may have changed with it."""
        for file in self.files:
            file.check()

    def caches(self, slots: int, context: int, dtype: DType = f16) -> tuple[Array, ...]:
        """Zeroed caches; pages of memory come when they are first written. Of i8: codes, then their scales."""
        kinds = cache_types(self.config, slots, context, dtype)
        try:
            return tuple(zeros(kind) for kind in kinds)
        except MemoryError:
            sizes = [plain(kind.nbytes) for kind in kinds]
            message = f"{sum(sizes) / 2**30:.2f} GiB for keys and values, {context} tokens a sequence"
            hint = "\n  hint: load with a smaller context, or kv='q8_0'"
            raise MemoryError(f"tetrad: cannot allocate {message}{hint}") from None


def zeros(kind: ArrayType) -> Array:
    """An array of zeros in memory that compiled code may take over."""
    nbytes = plain(kind.nbytes)
    raw = np.zeros(nbytes + 64, np.uint8)
    start = raw.__array_interface__["data"][0]
    return Array.from_storage(array_type(kind.dtype, kind.shape), Storage(start + -start % 64, nbytes, raw))
