"""Models, model: what `td.load` gives. Prompts, messages and settings in; text, logits or vectors
out.

A request is checked here, then it is a `Generation`, which gives a `Completion`, or an iterator of
`Piece`s whose last one brings it. Requests from several threads share batches; each has the bits it
would have alone.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, Unpack

import numpy as np

from tetrad.core import lazy
from tetrad.core.errors import (
    ContextError,
    FileFormatError,
    SettingError,
    TextError,
    UnsupportedError,
)
from tetrad.core.floats import guarded
from tetrad.core.visible import one_line
from tetrad.models.config import Config
from tetrad.models.constraints import Grammars
from tetrad.models.damage import are_wrong, described, no_numbers
from tetrad.models.dry import Heads, breaker_heads
from tetrad.models.embedding import TextEncoder, every_row, pooled, ranked
from tetrad.models.engine import Engine
from tetrad.models.generation import Generation, Request, Stream
from tetrad.models.load import ModelParts, load_parts
from tetrad.models.settings import Settings, checked, takes_settings

if TYPE_CHECKING:
    from tetrad.text.chat import ChatTemplate
    from tetrad.text.tokenizer import Tokenizer

POOLINGS = {1: "mean", 2: "first", 3: "last"}  # pooling_type of the file
# keys of settings that whoever made the file recommends; of those, by other names here:
SAMPLING = "general.sampling."
RECOMMENDED = {"temp": "temperature", "penalty_last_n": "repeat_last_n",
"penalty_repeat": "repeat_penalty"} | {
    name: name
    for name in (
        "top_k", "top_p", "min_p", "xtc_probability", "xtc_threshold", "mirostat", "mirostat_tau",
        "mirostat_eta",
    )
}  # fmt: skip
Prompt = str | Sequence[int]


NAMED_POOLINGS = {"mean": "mean", "cls": "first", "first": "first", "last": "last"}


def pooling_named(name: object) -> str:
    if not isinstance(name, str) or name not in NAMED_POOLINGS:
        raise SettingError("pooling", "mean, cls or last", name)
    return NAMED_POOLINGS[name]


@guarded
def load(
    path: str | os.PathLike[str],
    *,
    context: int = 0,
    slots: int = 1,
    kv: str = "f16",
    patience: float = math.inf,
    overrides: Mapping[str, object] | None = None,
    dtype: str = "",
    quantize: str = "",
) -> Model:
    """A model from a GGUF file, or from a Hugging Face folder (config.json, model.safetensors or
    its shards, tokenizer.json). `context` 0 is what the model was trained for; `slots` sequences
    can run at a time.

    `overrides` take the place of metadata: {"rope.scaling.type": "yarn", "rope.scaling.factor":
    4.0}; keys that begin with `rope.` are those of the model's architecture.

    With `dtype` "bf16" or "int8" an encoder computes its products in these types, quicker and less
    exactly; docs/models.md says how much.

    With `quantize` ("q4_k_m", "q5_k_m", "q6_k", "q8_0") the matrices of a model in floats are
    packed in fewer bits while it is loaded, in the mixes that llama.cpp has under these names.

    With `patience`, evaluating a long prompt lets others have their turn, and looks whether it was
    cancelled, about so often (in seconds).
    """
    parts = load_parts(path, context=context, overrides=overrides, dtype=dtype, quantize=quantize)
    model = Model(parts, context=context, slots=slots, kv=kv, patience=patience)
    model.recipe = partial(
        load,
        os.path.abspath(path),
        context=context,
        slots=slots,
        kv=kv,
        patience=patience,
        overrides=overrides,
        dtype=dtype,
        quantize=quantize,
    )
    return model


class Model:
    """A language model, ready to run. Threads may share it."""

    def __init__(
        self,
        parts: ModelParts,
        *,
        context: int = 0,
        slots: int = 1,
        kv: str = "f16",
        patience: float = math.inf,
    ) -> None:
        self.parts = parts
        self.path, self.metadata = parts.path, parts.metadata
        self.config: Config = parts.config
        self.tokenizer: Tokenizer = parts.tokenizer
        self.name = str(parts.metadata.get("general.name") or os.path.basename(parts.path))
        self.engine = Engine(parts.programs, slots=slots, context=context, kv=kv, patience=patience)
        self.recipe: Callable[[], Model] | None = None  # makes it again
        self._breakers: dict[tuple[str, ...], Heads] = {}

    @property
    def template(self) -> ChatTemplate:
        return self.parts.template

    @property
    def context(self) -> int:
        """Tokens a sequence can have."""
        return self.engine.context

    @cached_property
    def recommended(self) -> dict[str, Any]:
        """Settings of `generate` that the file recommends: model.generate(prompt,
        **model.recommended)."""
        said = {name: self.metadata.get(SAMPLING + short) for short, name in RECOMMENDED.items()}
        found: dict[str, Any] = {name: value for name, value in said.items() if value is not None}
        try:
            checked(**found)
        except SettingError as error:
            raise FileFormatError(str(error), file=self.path, part=f"keys {SAMPLING}*") from None
        return found

    @cached_property
    def grammars(self) -> Grammars:
        return Grammars(self.tokenizer, self.config.vocab)

    def breakers(self, texts: Sequence[str]) -> Heads:
        """Where texts that break sequences begin among the tokens; it takes a walk over the
        vocabulary, once."""
        key = tuple(texts)
        if key not in self._breakers:
            self._breakers = {key: breaker_heads(self.tokenizer, key)}
        return self._breakers[key]

    def __reduce__(self) -> tuple[Callable[[], Model], tuple[()]]:
        """Pickled by the place of its file: whoever takes it up, such as another process, loads
        that again."""
        if self.recipe is None:
            raise UnsupportedError(
                "a model made of parts is not pickled", hint="td.load(path) gives one that is"
            )
        return self.recipe, ()

    def __repr__(self) -> str:
        shown = one_line(f"{self.name}: {self.config.arch}")
        return f"<model {shown}, {self.config.layers} layers, context {self.context}>"

    # -- text --------------------------------------------------------------------------------------

    @takes_settings
    # Completion, or with stream=True Stream
    def generate(self, prompt: Prompt, **settings: Unpack[Settings]) -> Any:
        """Continue a prompt (text or tokens) by at most `max_tokens` tokens (-1 or None: as many as
        fit).

        It ends with a token that ends a turn (unless `ignore_eos`), a stop string, or at the limit.
        `grammar` and `json_schema` restrict what may come. With `shift` the older half of the
        tokens makes room when the context is full, but not the first `keep` of the prompt (-1: all
        of it). `temperature_first` divides by the temperature before the filters. `speculate`
        tokens are drafted from what came before and checked in one step: the same answer, sooner.
        `logits_processor` gets all tokens so far and a copy of the logits after them, and returns
        those to choose from; `stopping_criteria` gets the same and ends the answer before the next
        token where it returns True. What the other settings mean is told in docs/decoding.md.
        """
        self.parts.programs.check_predicts("generate")
        chosen = checked(**settings)
        constraint = self.grammars.constraint(chosen["grammar"], chosen["json_schema"])
        request = Request(self.prompt_tokens(prompt), chosen, constraint)
        pieces = Stream(Generation(self, request))
        if chosen["stream"]:
            return pieces
        with closing(pieces):  # whatever happens, the slot is free again
            *_, last = pieces
        return last.completion

    @takes_settings
    def chat(
        self,
        messages: Sequence[Mapping[str, object]],
        *,
        tools: Any = None,
        template: Mapping[str, Any] | None = None,
        **settings: Unpack[Settings],
    ) -> Any:
        """The next message of a conversation; the settings are those of `generate`.

        `tools` and `template` (a mapping of further variables) go to the chat template.
        """
        self.parts.programs.check_predicts("chat")
        variables = template or {}
        if not isinstance(variables, Mapping) or not all(
            isinstance(name, str) for name in variables
        ):
            raise SettingError("template", "a mapping of variables", variables)
        return self.generate(
            self.chat_tokens(messages, **{"tools": tools, **variables}), **settings
        )

    def chat_tokens(
        self, messages: Sequence[Mapping[str, object]], /, **variables: Any
    ) -> list[int]:
        """The tokens of a conversation; `variables` go to the chat template.

        What users and tools wrote stays text there, even if it looks like a control token: it
        cannot end a turn.
        """
        template = self.parts.tool_template if variables.get("tools") else self.template
        messages, guard = lazy.module("tetrad.text.chat").guarded_messages(messages, self.tokenizer)
        return self.tokenizer.encode(template.render(messages, **variables), guard=guard)

    def prompt_tokens(self, prompt: Prompt) -> list[int]:
        """The tokens of a prompt, with BOS where the model wants it; an empty one is BOS alone."""
        if isinstance(prompt, bytes) or not isinstance(prompt, str | Sequence | np.ndarray):
            raise TextError(
                f"prompt: expected text or a list of token ids, got {type(prompt).__name__}"
            )
        tokens = self.tokenizer.encode(prompt) if isinstance(prompt, str) else [*prompt]
        if not tokens:
            if self.tokenizer.bos is None:
                raise TextError(
                    "the prompt is empty, and the model has no token to begin with",
                    hint="give some text",
                )
            tokens = [self.tokenizer.bos]
        self.engine.checked(tokens)
        if len(tokens) > self.context:
            hint = "load with a larger context, or shorten the prompt"
            raise ContextError(
                "the prompt is too long", tokens=len(tokens), context=self.context, hint=hint
            )
        return tokens

    # -- numbers -----------------------------------------------------------------------------------

    @guarded
    def logits(self, tokens: Sequence[int], *, last: bool = False) -> np.ndarray:
        """f32[tokens, vocabulary]: what is predicted after every token; f32[vocabulary] after the
        last one only.

        NaN or infinity among them is an error; -inf is a token that cannot come.
        """
        self.parts.programs.check_predicts("logits")
        if last:
            sequence = self.engine.start(tokens)
            try:
                row = np.asarray(self.engine.step([(sequence, tokens[sequence.length :])])[0])
                self._check_numbers(row[None], are_wrong(row[None]), len(tokens) - 1)
                return row
            finally:
                self.engine.free(sequence)
        parts = list(self.logits_parts(tokens))
        return parts[0] if len(parts) == 1 else np.concatenate(parts)

    def logits_parts(self, tokens: Sequence[int], start: int = 0) -> Iterator[np.ndarray]:
        """The same a few rows at a time: all of a long text would not be small; from that of token
        `start` on."""
        self.parts.programs.check_predicts("logits_parts")
        for part in every_row(self.engine, tokens, start):
            self._check_numbers(part, are_wrong(part), start)
            yield part
            start += len(part)

    def _check_numbers(
        self, rows: np.ndarray, wrong: np.ndarray, first: int, name: str = "logits"
    ) -> None:
        """An error where one of the rows, which are after the tokens from `first` on, has something
        wrong."""
        which = wrong.any(axis=1)
        if which.any():
            at = int(which.argmax())
            raise no_numbers(self.parts.programs.step, described(rows[at], name), first + at)

    def _finite(self, parts: Iterable[np.ndarray]) -> Iterator[np.ndarray]:
        """The hidden states of a text, or an error that says where one is no number."""
        first = 0
        for part in parts:
            self._check_numbers(part, ~np.isfinite(part), first, "hidden states")
            yield part
            first += len(part)

    @cached_property
    def states(self) -> Engine:
        """Evaluates a decoder to hidden states, in a state of its own."""
        return Engine(self.parts.programs.without_head(), context=self.context)

    @cached_property
    def encoder(self) -> TextEncoder:
        """Evaluates whole texts to hidden states."""
        return TextEncoder(self.parts.programs)

    def text_states(self, texts: Sequence[Sequence[int]]) -> Iterator[Iterable[np.ndarray]]:
        """The hidden states of each text, in parts."""
        if not self.parts.programs.is_encoder:
            return (every_row(self.states, tokens) for tokens in texts)
        rows = self.encoder.states([np.asarray(tokens, np.int32) for tokens in texts])
        return ([states] for states in rows)

    @property
    def pooling(self) -> int:
        """How a vector is made of the states of tokens, as the file numbers it: 1 the mean, 2 the
        first, 3 the last."""
        kind = self.metadata.get(key := f"{self.config.arch}.pooling_type", 1)
        if isinstance(kind, int) and kind in (0, *POOLINGS):
            return kind or 1  # none is said to be the mean
        shown = ", ".join(f"{number} ({name})" for number, name in POOLINGS.items())
        raise FileFormatError(
            f"expected one of {shown}, got {kind!r:.40}", file=self.path, part=f"key {key}"
        )

    @guarded
    def embed(
        self,
        texts: str | Sequence[Prompt],
        *,
        normalize: bool | None = None,
        pooling: str | None = None,
        truncate: bool = False,
    ) -> np.ndarray:
        """f32[texts, width]: the mean of the last hidden states (or as the model's own files say),
        of length 1.

        A text may also be a list of tokens, in a list of texts.

        normalize   of length 1; None: as the model says, yes if it says nothing
        pooling     "mean", "cls" (the first state) or "last"; None: as the model says
        truncate    cut texts that are longer than the model takes, in place of an error
        """
        chosen = POOLINGS[self.pooling] if pooling is None else pooling_named(pooling)
        normalize = self.normalizes if normalize is None else normalize
        if not isinstance(texts, str | Sequence):
            raise TextError(f"texts: expected text or a list of texts, got {type(texts).__name__}")
        if isinstance(texts, str):
            texts, is_one = [texts], True
        else:
            is_one = False
        found = np.zeros((len(texts), self.config.width), np.float32)
        tokens = [self.text_tokens(text, truncate) for text in texts]
        for i, states in enumerate(self.text_states(tokens)):
            found[i] = pooled(self._finite(states), chosen)
        if normalize:
            wide = found.astype(np.float64)  # squares of large values are none in f32
            found = (wide / np.maximum(np.linalg.norm(wide, axis=1, keepdims=True), 1e-12)).astype(
                np.float32
            )
        return found[0] if is_one else found

    @guarded
    def rerank(self, query: str, texts: Sequence[str], *, truncate: bool = False) -> np.ndarray:
        """f32[texts]: how well each text answers the query, in the order they were given.

        For cross-encoders, which read query and text together. What the number means is the
        model's: between 0 and 1, or any size, where the folder says so.

        truncate   cut texts (the longer of the two first), in place of an error
        """
        programs = self.parts.programs
        if not programs.is_ranking:
            raise UnsupportedError(
                f"rerank: {self.name} has nothing that ranks texts",
                hint="cross-encoders do (folders of ...ForSequenceClassification, one label); "
                "vectors of model.embed are compared by their products",
            )
        if isinstance(texts, str) or not isinstance(texts, Sequence):
            raise TextError(f"texts: expected a list of texts, got {type(texts).__name__}")
        return self.scores([self.pair_tokens(query, text, truncate) for text in texts])

    def pair_tokens(self, query: str, text: str, truncate: bool) -> tuple[list[int], list[int]]:
        """The tokens of two texts together, and which part of the input each is of."""
        most = self.longest_text if truncate else None
        tokens, types = self.tokenizer.encode_pair(query, text, most)
        if len(tokens) > self.context:
            hint = "truncate=True cuts texts"
            raise ContextError(
                "query and text are too long", tokens=len(tokens), context=self.context, hint=hint
            )
        return tokens, types

    def scores(self, pairs: Sequence[tuple[Sequence[int], Sequence[int]]]) -> np.ndarray:
        """The scores of inputs that are tokens already."""
        arch, rows = self.config.arch, np.zeros((len(pairs), self.config.width), np.float32)
        how = "mean" if self.metadata.get(f"{arch}.classifier_pooling") == "mean" else "first"
        tokens, types = ([np.asarray(pair[i], np.int32) for pair in pairs] for i in (0, 1))
        for i, states in enumerate(self.encoder.states(tokens, types)):
            rows[i] = pooled(self._finite([states]), how)
        found = ranked(self.parts.programs, rows)
        if self.metadata.get(f"{arch}.score_activation") == "identity":
            return found
        return (1 / (1 + np.exp(-found.astype(np.float64)))).astype(np.float32)

    def text_tokens(self, text: Prompt, truncate: bool) -> list[int]:
        """The tokens of a text to embed; a long one is cut where that is asked for, and keeps the
        tokens behind it that the model expects."""
        if not isinstance(text, str):
            return self.prompt_tokens(text)
        tokens, most = self.tokenizer.encode(text), self.longest_text
        if not truncate and len(tokens) > self.context:
            raise ContextError(
                "a text is too long", tokens=len(tokens), context=self.context,
                hint="truncate=True cuts texts",
            )  # fmt: skip
        if not truncate or len(tokens) <= most:
            return self.prompt_tokens(tokens or text)
        bare = self.tokenizer.encode(text, add_special=False)
        around = len(tokens) - len(bare)
        return self.prompt_tokens(self.tokenizer.framed(bare[: max(most - around, 0)]))

    @property
    def longest_text(self) -> int:
        """Tokens of a text that is not cut: as the model's files say, at most the context."""
        said = self.metadata.get(f"{self.config.arch}.longest_text")
        return min(said, self.context) if isinstance(said, int) else self.context

    @property
    def normalizes(self) -> bool:
        """Have vectors length 1 where nothing else is asked for?"""
        return self.metadata.get(f"{self.config.arch}.normalize") is not False
