"""Compat, steps: one sequence token by token, with the methods of llama-cpp-python: eval, sample,
generate, states.

Receives tokens; returns logits and tokens. `compat.llama` has what makes whole answers.
"""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Generator, Sequence
from itertools import chain
from typing import Any

import numpy as np

from tetrad.compat.arguments import (
    SAMPLE,
    TOKENS,
    as_criterion,
    as_processor,
    settings_alike,
    takes,
)
from tetrad.compat.llama_file import RANDOM_SEED, Opened
from tetrad.compat.states import LlamaState, common_length
from tetrad.core.errors import SettingError
from tetrad.models.decoding.sampling import RowChooser, Sampler
from tetrad.models.decoding.settings import Processor, Settings, checked
from tetrad.tracing.array import Array

# Settings of single steps that llama.cpp has given up, and grammars, which need whole answers.
GIVEN_UP: dict[str, tuple[Any, ...]] = {"tfs_z": (1.0,), "penalize_nl": (True,), "grammar": (None,)}


class Steps(Opened):
    """The sequence that was evaluated last, and what may follow it."""

    @property
    def n_tokens(self) -> int:
        """Tokens that were evaluated since the last reset."""
        return len(self._tokens)

    @property
    def input_ids(self) -> np.ndarray:
        return np.array(self._tokens, np.intc)

    @property
    def eval_tokens(self) -> deque[int]:
        return deque(self._tokens, maxlen=self.n_ctx())

    @property
    def scores(self) -> np.ndarray:
        """f32[n_tokens, vocabulary]: the logits after every token; without `logits_all` they are
        evaluated now."""
        if len(self._rows) != len(self._tokens):
            self._rows = list(self._free.logits(self._tokens)) if self._tokens else []
        return np.array(self._rows, np.float32).reshape(-1, self.n_vocab())

    _input_ids, _scores = input_ids, scores

    @property
    def eval_logits(self) -> deque[list[float]]:
        """The logits after the last token; with `logits_all` those after every one."""
        if self._keeps_all:
            return deque(self.scores.tolist(), maxlen=self.n_ctx())
        return deque([] if not self._tokens else [self._last().tolist()], maxlen=1)

    def eval(self, tokens: Sequence[int]) -> None:
        """Evaluates more tokens of a sequence; `eval_logits` are those after the last."""
        start, whole = len(self._tokens), [*self._tokens, *(int(t) for t in tokens)]
        if self._keeps_all:
            rows = [*self.scores, *chain.from_iterable(self._free.logits_parts(whole, start))]
            self._tokens, self._rows, self._row = whole, rows, rows[-1]
            return
        self._row = np.asarray(self._free.logits(whole, last=True)).reshape(-1)
        self._tokens, self._rows = whole, []

    def _last(self) -> np.ndarray:
        if not self._tokens:
            raise SettingError("sample", "tokens that were evaluated", "none")
        if self._row is None:
            self._row = np.asarray(self._free.logits(self._tokens, last=True)).reshape(-1)
        return self._row

    @takes(SAMPLE, GIVEN_UP, subjects=0)
    def sample(self, chosen: dict[str, Any]) -> int:
        """A token to follow what was evaluated, or its first `idx` + 1 tokens."""
        settings, idx = self._settings(chosen), chosen["idx"]
        row, tokens = (
            (self._last(), self._tokens)
            if idx is None
            else (self.scores[idx], self._tokens[: idx + 1])
        )
        sampler = Sampler(settings, self.n_vocab(), (), self.n_ctx())  # a new one, as there
        sampler.index = len(tokens)  # every place has a draw of its own
        return self._chosen(
            sampler, as_processor("logits_processor", chosen["logits_processor"]), tokens, row
        )

    def _settings(self, chosen: dict[str, Any]) -> Settings:
        seed = None if self.seed in (RANDOM_SEED, -1) else self.seed
        return checked(**settings_alike(chosen), seed=seed, repeat_last_n=self.last_n_tokens_size)

    def _chosen(
        self, sampler: Sampler, processor: Processor | None, tokens: list[int], row: np.ndarray
    ) -> int:
        if processor is not None:
            row = np.asarray(processor(np.array(tokens, np.intc), row.copy()), np.float32)
        rows = Array.from_numpy(np.ascontiguousarray(row[None]))
        token = RowChooser(self.n_vocab()).choose([sampler], rows)[0].token
        sampler.remember(token)
        return token

    @takes(TOKENS, GIVEN_UP)
    def generate(
        self, tokens: Sequence[int], chosen: dict[str, Any]
    ) -> Generator[int, Sequence[int] | None, None]:
        """Tokens one after another, without end; tokens that are sent to it come after the last
        one."""
        settings = self._settings(chosen)
        if chosen["reset"]:
            self.reset()
        processor = as_processor("logits_processor", chosen["logits_processor"])
        stops = as_criterion(chosen["stopping_criteria"])
        sampler = Sampler(settings, self.n_vocab(), (), self.n_ctx())  # penalties count its answer
        pending = [int(token) for token in tokens]
        while True:
            self.eval(pending)
            if stops is not None and stops(self.input_ids, self._last().copy()):
                return
            token = self._chosen(sampler, processor, self._tokens, self._last())
            pending = [token, *((yield token) or ())]

    def save_state(self) -> LlamaState:
        """The sequence that was evaluated, with its keys and values: `load_state` goes on from it
        at once."""
        engine, row = self._free.engine, self._last()
        sequence = engine.start(self._tokens)
        try:
            engine.step([(sequence, self._tokens[sequence.length :])])
            held = self._mark() + engine.held(sequence)
        finally:
            engine.free(sequence)
        return LlamaState(
            self.input_ids, row[None].copy(), self.n_tokens, held, len(held), self.seed
        )

    def load_state(self, state: LlamaState) -> None:
        mark, held = state.llama_state[: len(self._mark())], state.llama_state[len(self._mark()) :]
        if mark != self._mark():
            raise SettingError(
                "state",
                "one that a Llama of this model, with the same type_k, has saved",
                "another",
            )
        engine, tokens = self._free.engine, [int(token) for token in state.input_ids]
        sequence = engine.start(tokens)
        try:
            engine.put(sequence, tokens, held)
        finally:
            engine.free(sequence)
        self.reset()
        self._tokens, self._row, self.seed = tokens, state.scores[-1].copy(), state.seed

    def _mark(self) -> bytes:
        """What tells states of this model from those of others."""
        kinds = [str(memory.kind.dtype) for memory in self._model.engine.caches]
        said = [sorted(self.metadata.items()), str(self._model.config), kinds]
        return hashlib.sha256(repr(said).encode()).digest()

    @staticmethod
    def logits_to_logprobs(logits: Any, axis: int = -1) -> np.ndarray:
        values = np.asarray(logits, np.float32)
        shift = values - values.max(axis=axis, keepdims=True)
        return np.asarray(
            shift - np.log(np.exp(shift).sum(axis=axis, keepdims=True, dtype=np.float32))
        )

    @staticmethod
    def longest_token_prefix(a: Sequence[int], b: Sequence[int]) -> int:
        return common_length(a, b)
