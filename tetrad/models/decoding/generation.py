"""Models, generation: one request on its way from a prompt to an answer: sampler, grammar and stop
strings put together, and nothing that evaluates.

Receives a `Request`, checked by `models.model`, and the tokens chosen one after another; says which
tokens to evaluate next, with a draft of those that may follow, and gives `Piece`s, the last with
the `Completion`. `decoding.batcher` carries it on.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Literal

import numpy as np

from tetrad.core.errors import BoundsError, SettingError, TetradError
from tetrad.core.record import record
from tetrad.models.checks import check_count
from tetrad.models.damage import are_wrong, described, no_numbers
from tetrad.models.decoding.constraints import Constraint
from tetrad.models.decoding.sampling import Chance, Choice, Sampler, is_dry
from tetrad.models.decoding.settings import MOST_DRAFTED, Processor, Settings
from tetrad.text.stream import StopStrings, StreamDecoder
from tetrad.tracing.array import Array

if TYPE_CHECKING:
    from tetrad.models.model import Model
    from tetrad.text.tools import ToolCall

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
    content: str | None = None  # of a chat: what the text holds besides reasoning and calls
    reasoning: str = ""
    tool_calls: tuple[ToolCall, ...] = ()


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


class Generation:
    """One request on its way, without anything that evaluates: what has been chosen, what may be
    shown, and which tokens come next.

    Whoever carries it on calls `begin`, evaluates `pending` after the first `length` tokens of the
    sequence and says so with `evaluated`. Once `is_choosing`, the logits after the last tokens are
    there, one row for each of the `guesses` and one before them: for row `row` it calls `edited`,
    chooses, and calls `take`, until there is a `reason` to end or more is pending.
    """

    def __init__(self, model: Model, request: Request, context: int = 0) -> None:
        self.model, self.request = model, request
        self.context = min(context, model.context) if context else model.context
        vocab, tokens = model.config.vocab, request.tokens
        self.settings = settings = request.settings
        heads = model.breakers(settings["dry_sequence_breakers"]) if is_dry(settings) else None
        counted = tokens if settings["penalize_prompt"] else ()
        self.sampler = Sampler(settings, vocab, counted, model.context, heads)
        self.words = model.tokenizer.vocab_size
        continues = not model.tokenizer.is_special(tokens[-1]) if tokens[-1] < self.words else True
        shown = settings["preserved_tokens"]
        self.decoder = StreamDecoder(model.tokenizer, continues=continues, shown=shown)
        self.stops = StopStrings(request.stop)
        self.ends = frozenset() if settings["ignore_eos"] else model.tokenizer.stop_ids
        self.limit, self.constraint = request.limit, request.constraint
        self.processor, self.stopping = settings["logits_processor"], settings["stopping_criteria"]
        # rows after a draft can be chosen from together: nothing of one depends on another
        edits = self.constraint or self.processor or self.stopping
        self.is_plain = not (edits or self.sampler.has_memory or self.sampler.is_warm_first)
        self.can_guess = model.engine.can_rewind
        self.tokens: list[int] = []
        self.shown: list[str] = []
        self.logprobs: list[Logprob] = []
        self.drafted = self.accepted = self.sampled = self.cached = 0
        self.vocab, self.dropped = vocab, 0  # rows of logits; how often room was made
        # what a draft model would choose may well be right
        self.takes_drafts = not edits and self.sampler.may_join and settings["draft_max"] > 0
        self.reason: Literal["stop", "length"] | None = "length" if self.limit == 0 else None
        self.sequence = [*tokens]  # all that is certain, as far as the context holds it
        self.length, self.pending, self.guesses = 0, self.sequence, 0
        self.is_choosing = self.is_taking = False
        self.row = 0
        self.mask: np.ndarray | None = None

    # -- what is to be evaluated -------------------------------------------------------------------

    def begin(self, length: int) -> None:
        """The first `length` tokens of the sequence are evaluated; also where it has to go back."""
        self.length, self.pending, self.guesses = length, self.sequence[length:], 0
        self.is_choosing = False

    def evaluated(self, count: int) -> None:
        """So many of the pending tokens are. After the last the logits are there."""
        self.length += count
        if count == len(self.pending):
            self.is_choosing, self.row = self.reason is None, 0
            self.drafted += self.guesses
        else:
            self.pending = self.pending[count:]

    def guess(self, draft: list[int]) -> None:
        """Evaluate these behind the pending token: they may come next."""
        self.pending = [self.pending[0], *draft]
        self.guesses = len(draft)

    @property
    def room(self) -> int:
        """Tokens that a draft may have."""
        left = min(self.limit - len(self.tokens), self.context - self.length) - 1
        return max(0, left) if self.can_guess and len(self.pending) == 1 else 0

    # -- choosing ----------------------------------------------------------------------------------

    def edited(self, logits: Array) -> Array | None:
        """The logits to choose from, with `mask`, or None: the answer ends here."""
        self.mask = None if self.constraint is None else self.constraint.mask()
        is_complete = self.constraint is not None and self.mask is None
        if is_complete or self._is_stopped(logits):
            self.reason = "stop"
            return None
        return logits if self.processor is None else self.processed(logits, self.processor)

    def _is_stopped(self, logits: Array) -> bool:
        stopping = self.stopping
        return stopping is not None and bool(stopping(self.so_far(), logits.memory[0].copy()))

    def so_far(self) -> np.ndarray:
        """All tokens, those of the prompt included."""
        return np.array([*self.request.tokens, *self.tokens], np.int32)

    def processed(self, logits: Array, processor: Processor) -> Array:
        """What somebody else makes of the logits."""
        found = np.asarray(processor(self.so_far(), logits.memory[0].copy()), np.float32)
        if found.shape != logits.memory[0].shape:
            raise SettingError(
                "logits_processor", f"{logits.memory.shape[1]} logits", f"shape {found.shape}"
            )
        return Array.from_numpy(found[None])

    def unchosen(self, error: BoundsError, logits: np.ndarray) -> TetradError:
        """What is wrong where no token could be chosen."""
        if not are_wrong(logits).any():
            return error
        position = len(self.request.tokens) + len(self.tokens) - 1
        return no_numbers(self.model.parts.programs.step, described(logits), position)

    def take(self, choice: Choice) -> Piece | None:
        """The token after row `row` is chosen. What it makes certain is to be shown; None for one
        that ends the answer."""
        token, self.is_taking = choice.token, True
        self.sampled += 1
        if token in self.ends:
            self.reason, self.is_choosing, self.is_taking = "stop", False, False
            return None
        self.sampler.remember(token)
        if self.constraint is not None:
            self.constraint.accept(token)
        self.tokens.append(token)
        if choice.logprob is not None:
            self.logprobs.append(Logprob(token, choice.logprob, choice.top))
        if len(self.tokens) == self.limit:
            self.reason = "length"
        # models may have more rows than their tokeniser has tokens; those are no text
        text = self.show(self.decoder.feed(token) if token < self.words else "")
        self._go_on(token)
        self.is_taking = False
        return Piece(text, token, choice.logprob, choice.top)

    def _go_on(self, token: int) -> None:
        """To the next row, if the draft had the token as well; or more is to be evaluated."""
        self.sequence.append(token)
        if self.reason is None and self.row < self.guesses:
            self.row += 1
            if token == self.pending[self.row]:
                self.accepted += 1
                return
        self.is_choosing, self.guesses = False, 0
        self.length, self.pending = len(self.sequence) - 1, [token]
        if self.reason is None and self.length == self.context:
            self._make_room()
        elif self.reason is None and (self.constraint is not None or self.settings["speculate"]):
            self._draft()

    def _make_room(self) -> None:
        """Of a full context the older half of the tokens after those to keep is dropped, and the
        others are evaluated at their new places."""
        if not self.settings["shift"]:
            self.reason = "length"
            return
        keep = min(self.kept(), self.length // 2)
        self.dropped += 1
        del self.sequence[keep : keep + -(-(self.length - keep) // 2)]
        self.begin(keep)

    def kept(self) -> int:
        """Tokens of the prompt that stay when the context is full: a token that begins every text
        does in any case."""
        tokens, keep = self.request.tokens, self.settings["keep"]
        return (
            len(tokens)
            if keep < 0
            else max(min(keep, len(tokens)), int(tokens[0] == self.model.tokenizer.bos))
        )

    def _draft(self) -> None:
        """What a grammar forces, or what followed the same tokens before: checked like any other. A
        model that would have to evaluate a sequence again, to take back a guess, makes none."""
        if not (room := self.room):
            return
        forced = [] if self.constraint is None else self.constraint.forced()
        if forced or not self.settings["speculate"]:
            self.guess(forced[: min(room, MOST_DRAFTED)])
        else:
            self.guess(self._guessed(room))

    def _guessed(self, room: int) -> list[int]:
        guess, tokens = self.settings["speculate"], np.array(self.sequence, np.intc)
        if not callable(guess):
            return drafted(tokens, min(guess, room))
        found = [int(token) for token in guess(tokens)][: min(room, MOST_DRAFTED)]
        for token in found:
            check_count(
                "speculate: a token that was guessed", token, 0, self.model.config.vocab - 1
            )
        return found

    # -- showing -----------------------------------------------------------------------------------

    def show(self, text: str) -> str:
        if self.stops.stops:
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

    def last(self, prompt: float, predicted: float) -> Piece:
        """The last piece, with the answer; how many seconds it took to read the prompt and to
        write."""
        text = self.rest()
        seed, evaluated = self.settings["seed"], len(self.request.tokens) - self.cached
        assert self.reason is not None and seed is not None
        completion = Completion(
            text="".join(self.shown),
            tokens=self.tokens,
            finish_reason=self.reason,
            seed=seed,
            prompt_tokens=len(self.request.tokens),
            cached_tokens=self.cached,
            timings=Timings(evaluated, prompt * 1e3, self.sampled, predicted * 1e3),
            logprobs=self.logprobs if self.settings["logprobs"] else None,
            stop=self.stops.reached,
            drafted=self.drafted,
            accepted=self.accepted,
        )
        return Piece(text, completion=completion)


def drafted(tokens: np.ndarray, count: int, sizes: Iterable[int] = PATTERNS) -> list[int]:
    """What followed the last tokens when they came before: the longest pattern, its last place."""
    if count < 1:
        return []
    for size in sizes:
        if len(tokens) <= size:
            continue
        same = np.ones(len(tokens) - size, bool)
        for i in range(size):
            same &= tokens[i : len(tokens) - size + i] == tokens[len(tokens) - size + i]
        places = np.flatnonzero(same)
        if places.size:
            start = int(places[-1]) + size
            return [int(found) for found in tokens[start : start + count]]
    return []
