"""Models, model: what `td.load` gives. Prompts, messages and settings in; text, logits or vectors
out.

A request is checked here, then a `Batcher` carries it on, which gives a `Completion`, or an
iterator of `Piece`s whose last one brings it. Requests from several threads share batches; each has
the bits it would have alone.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, Literal, Unpack, overload

import numpy as np

from tetrad.backends.cpu.pool import use_threads
from tetrad.core import lazy
from tetrad.core.errors import (
    ContextError,
    FileFormatError,
    SettingError,
    TextError,
    UnsupportedError,
)
from tetrad.core.extras import check_extra
from tetrad.core.floats import guarded
from tetrad.core.visible import one_line
from tetrad.models.checks import check_count
from tetrad.models.config import Config
from tetrad.models.damage import are_wrong, described, no_numbers
from tetrad.models.decoding.batcher import Batcher
from tetrad.models.decoding.constraints import Constraint, Grammars
from tetrad.models.decoding.drafts import check_alike
from tetrad.models.decoding.dry import Heads, breaker_heads
from tetrad.models.decoding.generation import Completion, Generation, Request
from tetrad.models.decoding.reasoning import ReasoningBudget
from tetrad.models.decoding.settings import (
    LARGEST_SEED,
    AnswerSettings,
    Settings,
    checked,
    takes_settings,
)
from tetrad.models.decoding.stream import Stream, answers
from tetrad.models.embedding import TextEncoder, every_row, pooled, ranked
from tetrad.models.engine import Engine
from tetrad.models.load import ModelParts, load_parts

if TYPE_CHECKING:
    from tetrad.models.chatting import ChatTurn
    from tetrad.text.chat import ChatTemplate
    from tetrad.text.tokenizer import Tokenizer
    from tetrad.text.tools import ToolDialect

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
Messages = Sequence[Mapping[str, object]]


class ChatSettings(AnswerSettings, total=False):
    """What `Model.chat` takes besides messages."""

    tools: Any
    tool_choice: Any
    parallel_tool_calls: bool
    think: bool | None
    template: Mapping[str, Any] | None


NAMED_POOLINGS = {"mean": "mean", "cls": "first", "first": "first", "last": "last"}


def pooling_named(name: object) -> str:
    if not isinstance(name, str) or name not in NAMED_POOLINGS:
        raise SettingError("pooling", "mean, cls or last", name)
    return NAMED_POOLINGS[name]


def are_prompts(prompt: object) -> bool:
    """Several prompts, each text or tokens."""
    return isinstance(prompt, list | tuple) and any(
        isinstance(one, str | Sequence | np.ndarray) for one in prompt
    )


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
    threads: int = 0,
    draft: str | os.PathLike[str] | None = None,
) -> Model:
    """A model from a GGUF file, from a Hugging Face folder (config.json, model.safetensors or its
    shards, tokenizer.json), or by name: `smollm2`, `qwen3:4b`, `org/repo:Q8_0`, an address of the
    hub. What a name means is fetched if it is not on this machine. `context` 0 is what the model
    was trained for; `slots` sequences can run at a time.

    `overrides` take the place of metadata: {"rope.scaling.type": "yarn", "rope.scaling.factor":
    4.0}; keys that begin with `rope.` are those of the model's architecture.

    With `dtype` "bf16" or "int8" an encoder computes its products in these types, quicker and less
    exactly; docs/models.md says how much.

    With `quantize` ("q4_k_m", "q5_k_m", "q6_k", "q8_0") the matrices of a model in floats are
    packed in fewer bits while it is loaded, in the mixes that llama.cpp has under these names.

    With `patience`, evaluating a long prompt lets others have their turn, and looks whether it was
    cancelled, about so often (in seconds).

    `draft` is a small model of the same vocabulary, which guesses what this one says next: the same
    answers, sooner (`draft_max`, `draft_min` and `draft_p_min` of `generate`).

    `threads` is how many compute, in the whole process: the last one said counts. 0 leaves that as
    it is: TETRAD_THREADS, or as many as there are cores.
    """
    check_count("threads", threads, 0)
    if threads:
        use_threads(threads)
    path = located(path)
    parts = load_parts(path, context=context, overrides=overrides, dtype=dtype, quantize=quantize)
    model = Model(parts, context=context, slots=slots, kv=kv, patience=patience)
    if draft is not None:
        model.use_draft(load(draft, context=model.context, slots=slots))
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
        threads=threads,
        draft=draft,
    )
    return model


def located(path: str | os.PathLike[str]) -> str | os.PathLike[str]:
    """The path; of a text that is none, the one of the model that is called so."""
    if not isinstance(path, str) or os.path.exists(path):
        return path
    check_extra("tokenizers", "td.load")  # before anything is fetched in vain
    found: str = lazy.provided("models by name").path_of(path)
    return found


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
        self.draft: Model | None = None  # a small one that guesses what this one says
        self.recipe: Callable[[], Model] | None = None  # makes it again
        self._breakers: dict[tuple[str, ...], Heads] = {}
        self._dialects: dict[str, ToolDialect] = {}

    def __enter__(self) -> Model:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def use_draft(self, draft: Model) -> None:
        """Have a small model guess what this one says; it needs as many slots."""
        for model in (self, draft):
            if not model.engine.can_rewind:
                name = model.config.arch
                raise SettingError("draft", "models that can take tokens back", name)
        check_alike(self.tokenizer, draft.tokenizer, draft.path)
        self.draft = draft
        self.__dict__.pop("batcher", None)

    def close(self) -> None:
        """Gives weights, keys and values back. Requests that still run end with a `ClosedError`,
        and so does whatever is asked for later."""
        self.engine.close()
        for name in ("states", "encoder", "batcher"):
            self.__dict__.pop(name, None)
        self.parts.programs.close()
        if self.draft is not None:
            self.draft.close()

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

    @overload
    def generate(
        self, prompt: Prompt, *, stream: Literal[True], **settings: Unpack[AnswerSettings]
    ) -> Stream: ...

    @overload
    def generate(
        self, prompt: Prompt, *, n: int, **settings: Unpack[AnswerSettings]
    ) -> list[Completion]: ...

    @overload
    def generate(
        self, prompt: Prompt, *, stream: Literal[False] = False, **settings: Unpack[AnswerSettings]
    ) -> Completion: ...

    @overload
    def generate(
        self, prompt: list[str] | list[list[int]], **settings: Unpack[AnswerSettings]
    ) -> list[Completion]: ...

    @takes_settings
    def generate(self, prompt: Any, *, n: int | None = None, **settings: Any) -> Any:
        """Continue a prompt (text or tokens) by at most `max_tokens` tokens (-1 or None: as many as
        fit).

        It ends with a token that ends a turn (unless `ignore_eos`), a stop string, or at the limit.
        A list of prompts is answered side by side, as many at a time as the model has slots; so are
        `n` answers of one prompt, whose seeds are `seed`, `seed` + 1 and so on: each is the one
        that its seed gives alone. Both give a list. With `stream` the pieces come as they are made.
        `grammar` and `json_schema` restrict what may come. With `shift` the older half of the
        tokens makes room when the context is full, but not the first `keep` of the prompt (-1: all
        of it). `temperature_first` divides by the temperature before the filters. `speculate`
        tokens are drafted from what came before and checked in one step: the same answer, sooner.
        `logits_processor` gets all tokens so far and a copy of the logits after them, and returns
        those to choose from; `stopping_criteria` gets the same and ends the answer before the next
        token where it returns True. What the other settings mean is told in docs/decoding.md.
        """
        is_many = are_prompts(prompt)
        if (is_many or n is not None) and settings.get("stream"):
            raise SettingError("stream", "False for several answers", True)
        if is_many and n is not None:
            raise SettingError("n", "one prompt", f"{len(prompt)} prompts")
        if is_many:
            requests = [self.request(one, **settings) for one in prompt]
        else:
            requests = self.numbered(prompt, 1 if n is None else n, **settings)
        begun = [Generation(self, request) for request in requests]
        if settings.get("stream"):
            return Stream(self.batcher, begun[0])
        found = answers(self.batcher, begun)
        return found if is_many or n is not None else found[0]

    def numbered(self, prompt: Prompt, n: int, **settings: Unpack[Settings]) -> list[Request]:
        """Requests for `n` answers of one prompt, whose seeds follow each other."""
        check_count("n", n, 1)
        first = self.request(prompt, **settings)
        seed = first.settings["seed"] or 0
        more = [{**settings, "seed": (seed + i) % (LARGEST_SEED + 1)} for i in range(1, n)]
        return [first, *[self.request(first.tokens, **one) for one in more]]  # type: ignore[arg-type]

    def request(self, prompt: Prompt, **settings: Unpack[Settings]) -> Request:
        """What `generate` was asked for, checked: for a `Scheduler`, which carries many on."""
        self.parts.programs.check_predicts("generate")
        chosen, tokens = checked(**settings), self.prompt_tokens(prompt)
        return Request(tokens, chosen, self._constraint(tokens, chosen))

    @cached_property
    def batcher(self) -> Batcher:
        """What carries on the requests of those who call `generate`."""
        draft = None if self.draft is None else self.draft.engine
        return Batcher(self.engine, patience=self.engine.patience, draft=draft)

    def _constraint(self, tokens: list[int], settings: Settings) -> Constraint | None:
        """What restricts an answer to these tokens: a grammar, a bound on reasoning."""
        found = self.grammars.constraint(settings["grammar"], settings["json_schema"])
        budget = settings["reasoning_budget"]
        if budget < 0:
            return found
        known = [token for token in tokens[-16:] if token < self.tokenizer.vocab_size]
        reasoning = self.dialect(self.template.source).reasoning(self.tokenizer.decode(known))
        if reasoning is None:
            return found
        return ReasoningBudget(found, self.tokenizer, self.config.vocab, reasoning, budget)

    def dialect(self, template: str) -> ToolDialect:
        """How the model calls tools and thinks, as a chat template of it shows."""
        if template not in self._dialects:
            tools = lazy.module("tetrad.text.tools")
            self._dialects = {template: tools.dialect_of(template, self.tokenizer)}
        return self._dialects[template]

    @overload
    def chat(
        self, messages: Messages, *, stream: Literal[True], **settings: Unpack[ChatSettings]
    ) -> Stream: ...

    @overload
    def chat(
        self, messages: Messages, *, n: int, **settings: Unpack[ChatSettings]
    ) -> list[Completion]: ...

    @overload
    def chat(
        self,
        messages: Messages,
        *,
        stream: Literal[False] = False,
        **settings: Unpack[ChatSettings],
    ) -> Completion: ...

    @takes_settings
    def chat(
        self,
        messages: Messages,
        *,
        tools: Any = None,
        tool_choice: Any = None,
        parallel_tool_calls: bool = True,
        think: bool | None = None,
        template: Mapping[str, Any] | None = None,
        n: int | None = None,
        **settings: Any,
    ) -> Any:
        """The next message of a conversation, or `n` of them; the settings are those of `generate`.

        The completion has `content`, `reasoning` and `tool_calls` apart; pieces of a stream are
        text as the model writes it. What the other arguments mean is told at `turn`.
        """
        self.parts.programs.check_predicts("chat")
        turn = self.turn(
            messages,
            tools=tools,
            tool_choice=tool_choice,
            parallel_tool_calls=parallel_tool_calls,
            think=think,
            template=template,
            grammar=settings.get("grammar"),
            json_schema=settings.get("json_schema"),
        )
        wanted: Any = {**settings, **turn.settings, **({} if n is None else {"n": n})}
        found: Any = self.generate(turn.tokens, **wanted)
        if isinstance(found, Stream):
            return found.then(turn.completed)
        if isinstance(found, list):
            return [turn.completed(one) for one in found]
        return turn.completed(found)

    def turn(self, messages: Sequence[Mapping[str, Any]], **given: Any) -> ChatTurn:
        """A conversation ready to be answered: tokens and settings for `generate`, and a parser.

        tools                 as in the OpenAI API; the chat template tells the model of them
        tool_choice           "auto", "none", "required", or one by name
        parallel_tool_calls   may an answer call several?
        think                 True or False: reasoning on or off; None: as the template has it
        template              further variables of the chat template
        grammar, json_schema  of what is said besides reasoning and calls
        chat_template         a `ChatTemplate` in the place of the model's own
        """
        turn: ChatTurn = lazy.module("tetrad.models.chatting").chat_turn(self, messages, **given)
        return turn

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
        self.engine.check_open()
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
            hint = f"load with context={len(tokens)} or more, or shorten the prompt"
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
            finite = np.isfinite(part)
            if not finite.all():
                self._check_numbers(part, ~finite, first, "hidden states")
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
