"""Models, generation: one request on its way from a prompt to an answer. Engine, sampler and stop
strings put together.

Receives a `Request`, checked by `models.model`; gives `Piece`s, the last with the `Completion`. A
token is chosen from logits, shown as far as its text is certain, and evaluated, with a draft of
those that may follow, for the next ones.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Generator, Iterator
from typing import TYPE_CHECKING, Literal

import numpy as np

from tetrad.core.errors import BoundsError, SettingError
from tetrad.core.floats import guarded
from tetrad.core.record import record
from tetrad.models.constraints import Constraint
from tetrad.models.damage import are_wrong, described, no_numbers
from tetrad.models.engine import Cancelled
from tetrad.models.engine import Sequence as Held
from tetrad.models.sampling import Chance, Choice, Sampler, is_dry
from tetrad.models.settings import MOST_DRAFTED, Processor, Settings
from tetrad.text.stream import StopStrings, StreamDecoder
from tetrad.tracing.array import Array

if TYPE_CHECKING:
    from tetrad.models.model import Model

PATTERNS = (4, 3, 2)  # lengths of the last tokens that are looked up


@record
class Timings:
    """Tokens evaluated and generated, and how long that took: the names of llama.cpp's server."""

    prompt_n: int
    prompt_ms: float
    predicted_n: int
    predicted_ms: float

    @property
    def prompt_per_second(self) -> float:
        return 1e3 * self.prompt_n / self.prompt_ms if self.prompt_ms else 0.0

    @property
    def predicted_per_second(self) -> float:
        return 1e3 * self.predicted_n / self.predicted_ms if self.predicted_ms else 0.0


@record
class Logprob:
    """How likely a token of the answer was, before any setting, and which were the most likely."""

    token: int
    logprob: float
    top: tuple[Chance, ...]


@record
class Completion:
    """An answer. `seed` gives it again."""

    text: str
    tokens: list[int]
    finish_reason: Literal["stop", "length"]
    seed: int
    prompt_tokens: int
    cached_tokens: int  # of the prompt, that were in the cache
    timings: Timings
    logprobs: list[Logprob] | None = None
    stop: str | None = None  # the stop string that ended it
    drafted: int = 0  # tokens that speculation proposed, and how many of them were right
    accepted: int = 0


@record
class Piece:
    """Text that has become certain with one more token. The last piece has the whole answer."""

    text: str
    token: int | None = None
    logprob: float | None = None
    top: tuple[Chance, ...] = ()
    completion: Completion | None = None


@record
class Request:
    """One generation: the tokens of its prompt and all that was asked for, checked."""

    tokens: list[int]
    settings: Settings
    constraint: Constraint | None

    @property
    def limit(self) -> int:
        """Tokens of the answer at most."""
        limit = self.settings["max_tokens"]
        return 1 << 62 if limit is None or limit < 0 else limit

    @property
    def stop(self) -> tuple[str, ...]:
        stop = self.settings["stop"]
        return (stop,) if isinstance(stop, str) else tuple(stop or ())


class Stream:
    """The pieces of an answer, as they come. `close` (in the same thread) or `cancel` (in any) ends
    it early."""

    def __init__(self, generation: Generation) -> None:
        self.generation = generation
        self.pieces = generation.pieces()

    def __iter__(self) -> Stream:
        return self

    @guarded
    def __next__(self) -> Piece:
        try:
            return next(self.pieces)
        except Cancelled:
            raise StopIteration from None

    def close(self) -> None:
        """Frees the slot; there are no more pieces."""
        self.pieces.close()

    def cancel(self) -> None:
        """Whoever iterates gets no more pieces, after the step that is running now."""
        self.generation.cancel.set()
        self.generation.engine.wake()


class Generation:
    """One request on its way: what has been chosen, what may be shown, what it took."""

    def __init__(self, model: Model, request: Request) -> None:
        self.model, self.request, self.engine = model, request, model.engine
        vocab, tokens = model.config.vocab, request.tokens
        self.settings = settings = request.settings
        heads = model.breakers(settings["dry_sequence_breakers"]) if is_dry(settings) else None
        self.sampler = Sampler(settings, vocab, tokens, self.engine.context, heads)
        continues = (
            not model.tokenizer.is_special(tokens[-1])
            if tokens[-1] < model.tokenizer.vocab_size
            else True
        )
        self.decoder = StreamDecoder(model.tokenizer, continues=continues)
        self.stops = StopStrings(request.stop)
        self.ends = frozenset() if settings["ignore_eos"] else model.tokenizer.stop_ids
        self.limit, self.processor = request.limit, settings["logits_processor"]
        self.stopping = settings["stopping_criteria"]
        self.cancel = threading.Event()
        self.tokens: list[int] = []
        self.shown: list[str] = []
        self.logprobs: list[Logprob] = []
        self.drafted = self.accepted = self.sampled = 0
        self.reason: Literal["stop", "length"] | None = None

    def pieces(self) -> Generator[Piece, None, None]:
        """Every token as it comes, then the end. Closing the iterator frees the slot."""
        begin = time.perf_counter()
        sequence = self.engine.start(self.request.tokens, cancel=self.cancel)
        try:
            logits = self.engine.step([(sequence, self.request.tokens[sequence.length :])])
            ready = time.perf_counter()
            yield from self.answer(sequence, rows_of(logits))
        finally:
            self.engine.free(sequence)
        yield Piece(
            self.rest(),
            completion=self.completion(sequence, ready - begin, time.perf_counter() - ready),
        )

    def answer(self, sequence: Held, rows: list[Array]) -> Iterator[Piece]:
        """`rows` are the logits after the last token that is certain, and after each of the draft
        that follows it."""
        draft: list[int] = []
        if self.limit == 0:
            self.reason = "length"
        while self.reason is None:
            for i, logits in enumerate(rows):
                token = yield from self.take(logits)
                if self.reason is not None or i == len(draft) or token != draft[i]:
                    break
                self.accepted += 1
            if self.reason is None:
                self.engine.rewind(sequence, sequence.length - (len(draft) - i))
                rows, draft = self.advance(sequence, token)

    def take(self, logits: Array) -> Generator[Piece, None, int]:
        """Choose a token and show what it makes certain; sets the reason when the answer ends with
        it."""
        request, processor, stopping = self.request, self.processor, self.stopping
        mask = None if request.constraint is None else request.constraint.mask()
        if request.constraint is not None and mask is None:
            self.reason = "stop"
            return -1
        if stopping is not None and stopping(self.so_far(), logits.view[0].copy()):
            self.reason = "stop"
            return -1
        if processor is not None:
            logits = self.processed(logits, processor)
        choice = self.choose(logits, mask)
        self.sampled += 1
        if choice.token in self.ends:
            self.reason = "stop"
            return choice.token
        if request.constraint is not None:
            request.constraint.accept(choice.token)
        self.tokens.append(choice.token)
        if choice.logprob is not None:
            self.logprobs.append(Logprob(choice.token, choice.logprob, choice.top))
        if len(self.tokens) == self.limit:
            self.reason = "length"
        yield Piece(self.show(self.text_of(choice.token)), choice.token, choice.logprob, choice.top)
        return choice.token

    def so_far(self) -> np.ndarray:
        """All tokens, those of the prompt included."""
        return np.array([*self.request.tokens, *self.tokens], np.int32)

    def processed(self, logits: Array, processor: Processor) -> Array:
        """What somebody else makes of the logits."""
        found = np.asarray(processor(self.so_far(), logits.view[0].copy()), np.float32)
        if found.shape != logits.view[0].shape:
            raise SettingError(
                "logits_processor", f"{logits.view.shape[1]} logits", f"shape {found.shape}"
            )
        return Array.from_numpy(found[None])

    def choose(self, logits: Array, mask: np.ndarray | None) -> Choice:
        try:
            return self.sampler.choose(logits, mask)
        except BoundsError:
            position = len(self.request.tokens) + len(self.tokens) - 1
            if not are_wrong(logits.view).any():
                raise
        raise no_numbers(self.model.parts.programs.step, described(logits.view), position)

    def text_of(self, token: int) -> str:
        """Models may have more rows than their tokeniser has tokens; those are no text."""
        return self.decoder.feed(token) if token < self.model.tokenizer.vocab_size else ""

    def show(self, text: str) -> str:
        if self.request.stop:
            released = self.stops.feed(text)
            text = released.text
            if released.stop is not None:
                self.reason = "stop"
        self.shown.append(text)
        return text

    def rest(self) -> str:
        """What was held back, now that nothing follows. A character that the limit has cut in two
        is left out."""
        text = self.show(self.decoder.flush()) if self.reason == "stop" else ""
        if self.stops.reached is None:
            self.shown.append(held := self.stops.flush())
            text += held
        return text

    def advance(self, sequence: Held, token: int) -> tuple[list[Array], list[int]]:
        """Evaluate a chosen token, and a draft of those that may follow."""
        if sequence.length == self.engine.context:
            if not self.settings["shift"]:
                self.reason = "length"
                return [], []
            self.engine.shift(sequence, keep=self.kept())
        room = min(self.limit - len(self.tokens), self.engine.context - sequence.length) - 1
        draft = self.draft(sequence, token, room)
        self.drafted += len(draft)
        if draft:
            return rows_of(self.engine.step_every(sequence, [token, *draft])), draft
        return [self.engine.advance(sequence, token)], draft

    def kept(self) -> int:
        """Tokens of the prompt that stay when the context is full: a token that begins every text
        does in any case."""
        tokens, keep = self.request.tokens, self.settings["keep"]
        return (
            len(tokens)
            if keep < 0
            else max(min(keep, len(tokens)), int(tokens[0] == self.model.tokenizer.bos))
        )

    def draft(self, sequence: Held, token: int, room: int) -> list[int]:
        """What a grammar forces, or what followed the same tokens before: checked like any other. A
        model that would have to evaluate a sequence again, to take back a guess, makes none."""
        if not self.engine.can_rewind:
            return []
        forced = [] if self.request.constraint is None else self.request.constraint.forced()
        if forced or not self.settings["speculate"]:
            return forced[: max(0, min(room, MOST_DRAFTED))]
        return drafted(sequence.tokens, token, min(self.settings["speculate"], room))

    def completion(self, sequence: Held, prompt: float, predicted: float) -> Completion:
        evaluated = len(self.request.tokens) - sequence.cached
        seed = self.settings["seed"]
        assert self.reason is not None and seed is not None
        return Completion(
            text="".join(self.shown),
            tokens=self.tokens,
            finish_reason=self.reason,
            seed=seed,
            prompt_tokens=len(self.request.tokens),
            cached_tokens=sequence.cached,
            timings=Timings(evaluated, prompt * 1e3, self.sampled, predicted * 1e3),
            logprobs=self.logprobs if self.settings["logprobs"] else None,
            stop=self.stops.reached,
            drafted=self.drafted,
            accepted=self.accepted,
        )


def rows_of(logits: np.ndarray) -> list[Array]:
    return [Array.from_numpy(logits[i : i + 1]) for i in range(len(logits))]


def drafted(tokens: np.ndarray, token: int, count: int) -> list[int]:
    """What followed the last tokens, `token` included, when they came before: the longest pattern,
    its last place."""
    if count < 1:
        return []
    whole = np.append(tokens, np.int32(token))
    for size in PATTERNS:
        if len(whole) <= size:
            continue
        same = np.ones(len(whole) - size, bool)
        for i in range(size):
            same &= whole[i : len(whole) - size + i] == whole[len(whole) - size + i]
        places = np.flatnonzero(same)
        if places.size:
            start = int(places[-1]) + size
            return [int(found) for found in whole[start : start + count]]
    return []
