"""Models, steps: the compiled steps of one model. Weights in, functions from tokens to logits
out.

One program serves chunks of any length (a Dim), one a single token; both are the same Python
function, and each layer is a call, so equal layers are compiled once. Weights are constants of the
programs: they lie where they were loaded.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any

import numpy as np

from tetrad.backends.cpu.memory import Storage
from tetrad.compiler.named_function import NamedFunction
from tetrad.core import lazy
from tetrad.core.dtypes import DType, f16
from tetrad.core.errors import UnsupportedError
from tetrad.core.sizes import Dim, plain
from tetrad.core.types import ArrayType
from tetrad.formats.gguf import Pin
from tetrad.models.arch import Architecture, BlockInputs, Keeps, TokenBatch
from tetrad.models.config import Config
from tetrad.models.library import td
from tetrad.models.turns import FairTurns
from tetrad.tracing.array import Array, array_type

CHUNK = 512  # tokens of one step, at most
MOST_RANKED = 1 << 20  # texts that are ranked together
TEXT_TILE = 8  # the tokens of an encoder's step are a multiple of this
DONATED = tuple(range(4, 12))  # arguments of a step that are its state, if it has so many


class Step:
    """The function that is compiled, and what it closes over. `layers[i]` are the weights of block
    i by short names.

    It knows nothing of the programs made of it: with the last reference to those the weights go,
    without a search for cycles.
    """

    def __init__(
        self,
        arch: Architecture[Any],
        config: Config,
        outer: Mapping[str, Array],
        layers: list[dict[str, Array]],
        has_head: bool = True,
    ) -> None:
        self.arch, self.config, self.outer, self.layers, self.has_head = (
            arch,
            config,
            outer,
            layers,
            has_head,
        )

    @cached_property
    def block(self) -> Any:
        jit = lazy.module("tetrad.compiler.jit").jit
        return jit(block_function(self.arch, self.config), static_argnames=("kind",))

    def name(self) -> str | None:
        """Everything that `step` depends on besides the arrays; None for what others have added
        to."""
        functions = [
            f"{function.__module__}.{function.__qualname__}" for function in self.arch.functions()
        ]
        if type(self) is not Step or not all(
            name.startswith("tetrad.models.") for name in functions
        ):
            return None
        names = [
            *self.outer,
            *(f"{i} {short}" for i, weights in enumerate(self.layers) for short in weights),
        ]
        return f"{functions} {self.config!r} {self.has_head} {names}"

    def arrays(self) -> list[Array]:
        """The weights, in the order of their names."""
        return [
            *self.outer.values(),
            *(weight for weights in self.layers for weight in weights.values()),
        ]

    def step(
        self, tokens: Array, slot: Array, position: Array, rows: Array, *state: Array
    ) -> tuple[Array, ...]:
        """Logits (without a head: hidden states) after the tokens numbered `rows` of the batch, and
        the state that includes all tokens."""
        arch, c, batch = self.arch, self.config, TokenBatch(tokens, slot, position)
        kinds = arch.kinds(c)
        x = arch.inputs(c, self.outer, batch)
        shared = {kind: arch.shared(kind, batch, self.outer) for kind in dict.fromkeys(kinds)}
        for i, (kind, weights) in enumerate(zip(kinds, self.layers, strict=True)):
            x, state = self.block(
                weights, x, slot, position, state, np.int32(i), shared[kind], kind=kind
            )
        x = arch.output(c, self.outer, td.take(x, rows, axis=0))
        return arch.head(c, self.outer, x) if self.has_head and arch.head else x, *state

    def encode(self, tokens: Array, position: Array, types: Array, starts: Array) -> Array:
        """The hidden states of whole texts, which begin with the tokens numbered `starts` of the
        batch; its last element is their number."""
        arch, c, batch = self.arch, self.config, TokenBatch(tokens, starts, position, types)
        kinds = arch.kinds(c)
        x = arch.inputs(c, self.outer, batch)
        shared = {kind: arch.shared(kind, batch, self.outer) for kind in dict.fromkeys(kinds)}
        for i, (kind, weights) in enumerate(zip(kinds, self.layers, strict=True)):
            x, _ = self.block(
                weights, x, starts, position, (), np.int32(i), shared[kind], kind=kind
            )
        return arch.output(c, self.outer, x)

    def classify(self, rows: Array) -> Array:
        """Numbers that rank texts, from the states that stand for them."""
        assert self.arch.classify is not None
        return self.arch.classify(self.config, self.outer, rows)

    def classify_name(self) -> str | None:
        name = self.name()
        return None if name is None else f"classify {name}"


def block_function(arch: Architecture[Any], config: Config) -> Callable[..., Any]:
    """A block as a function of its weights: all layers share what is compiled of it."""

    def run_block(
        weights: Any,
        x: Any,
        slot: Any,
        position: Any,
        state: Any,
        layer: Any,
        shared: Any,
        *,
        kind: Any,
    ) -> Any:
        at = BlockInputs(slot, position, layer, kind, shared, state)
        x, at = arch.block(config, weights, x, at)
        return x, at.state

    return run_block


class Programs:
    """The step of a model, compiled when first used. `files` are those that weights are still read
    from, in place."""

    def __init__(
        self, step: Step, files: tuple[Pin, ...] = (), turns: FairTurns | None = None
    ) -> None:
        self.step, self.config, self.files, self.arch = step, step.config, files, step.arch
        # whatever runs steps of these weights takes turns: each uses the whole machine
        self.turns = turns or FairTurns()

    def close(self) -> None:
        """Lets go of the weights and of all that was compiled around them."""
        for name in ("chunks", "singles", "texts", "ranks"):
            self.__dict__.pop(name, None)
        self.step.outer, self.step.layers, self.files = {}, [], ()

    @cached_property
    def chunks(self) -> NamedFunction:
        """The step for any number of tokens of a chunk."""
        count = {0: Dim("tokens", max=CHUNK)}
        dims = {0: count, 1: count, 2: count, 3: {0: Dim("rows", max=CHUNK)}}
        return NamedFunction(
            self.step.step, self.step.name, self.step.arrays, donated=DONATED, dims=dims
        )

    @cached_property
    def singles(self) -> NamedFunction:
        """The same for one token."""
        return NamedFunction(self.step.step, self.step.name, self.step.arrays, donated=DONATED)

    @cached_property
    def texts(self) -> NamedFunction:
        """The step of an encoder: any number of texts, which cannot be cut, of any length."""
        most = max(2 * CHUNK, self.config.context) + TEXT_TILE
        count = {0: Dim("tokens", max=most)}
        dims = {0: count, 1: count, 2: count, 3: {0: Dim("starts", max=most + 2)}}
        return NamedFunction(self.step.encode, self.step.name, self.step.arrays, dims=dims)

    @cached_property
    def ranks(self) -> NamedFunction:
        """Numbers that rank texts, of any number of states that stand for one each."""
        step, count = self.step, {0: Dim("texts", max=MOST_RANKED)}
        return NamedFunction(step.classify, step.classify_name, step.arrays, dims={0: count})

    @property
    def is_ranking(self) -> bool:
        """It has what ranks texts."""
        return self.arch.classify is not None and "cls.output.weight" in self.outer

    @property
    def chunk(self) -> Any:
        """logits, *state = chunk(tokens, slot, position, rows, *state) for any number of tokens."""
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

    @property
    def is_encoder(self) -> bool:
        """It gives hidden states, and no logits to choose tokens from."""
        return self.arch.head is None

    def check_predicts(self, what: str) -> None:
        if self.is_encoder:
            message = (
                f"{what}: {self.config.arch} is an encoder, it has no output that predicts tokens"
            )
            raise UnsupportedError(
                message, hint="model.embed(texts) or `tetrad embed` give the vectors of texts"
            )

    def without_head(self) -> Programs:
        """The same model, whose steps give hidden states in place of logits."""
        step = self.step
        bare = Step(step.arch, step.config, step.outer, step.layers, has_head=False)
        return Programs(bare, self.files, self.turns)

    def check_files(self) -> None:
        """Raises if weights that lie in a file may have changed with it."""
        for file in self.files:
            file.check()

    def state(self, slots: int, context: int, dtype: DType = f16) -> tuple[Array, ...]:
        """A state of zeros; pages of memory come when they are first written."""
        kinds = self.arch.state.types(self.config, slots, context, dtype)
        try:
            return tuple(zeros(kind) for kind in kinds)
        except MemoryError:
            sizes = [plain(kind.nbytes) for kind in kinds]
            what = "keys and values" if self.arch.state.keeps is Keeps.TOKENS else "the state"
            message = f"{sum(sizes) / 2**30:.2f} GiB for {what}, {context} tokens a sequence"
            hint = "\n  hint: load with a smaller context=, or with kv='q8_0'"
            raise MemoryError(f"tetrad: cannot allocate {message}{hint}") from None


def zeros(kind: ArrayType) -> Array:
    """An array of zeros in memory that compiled code may take over."""
    nbytes = plain(kind.nbytes)
    raw = np.zeros(nbytes + 64, np.uint8)
    start = raw.__array_interface__["data"][0]
    return Array.from_storage(
        array_type(kind.dtype, kind.shape), Storage(start + -start % 64, nbytes, raw)
    )
