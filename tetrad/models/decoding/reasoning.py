"""Models, reasoning: a bound on how many tokens a model thinks before it answers.

Receives the constraint of a request, if it has one, and the marks around reasoning; is a constraint
itself. Where the budget is used up, nothing may come but the mark that ends reasoning.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import numpy as np

from tetrad.models.decoding.constraints import Constraint
from tetrad.models.decoding.sampling import mask_words
from tetrad.text.stream import StreamDecoder

if TYPE_CHECKING:
    from tetrad.text.tokenizer import Tokenizer
    from tetrad.text.tools import Reasoning


class ReasoningBudget:
    """Follows an answer through its reasoning, and ends that after `budget` tokens."""

    def __init__(
        self,
        inner: Constraint | None,
        tokenizer: Tokenizer,
        vocab: int,
        reasoning: Reasoning,
        budget: int,
    ) -> None:
        self.inner, self.reasoning, self.left = inner, reasoning, budget
        self.end = tokenizer.encode(reasoning.end, add_special=False)
        self.decoder = StreamDecoder(tokenizer, skip_special=False, continues=True)
        self.words = tokenizer.vocab_size
        self.place: Literal["before", "inside", "after"] = (
            "inside" if reasoning.opened else "before"
        )
        self.tail = ""  # the end of the text so far
        self.ended = 0  # tokens of the end mark that have come
        bits = np.arange(mask_words(vocab) * 32) < vocab
        self.every = np.packbits(bits, bitorder="little").view(np.uint32)[None]

    @property
    def is_ending(self) -> bool:
        """Must the end mark come now? Not in the middle of a character."""
        is_cut = bool(self.decoder.utf8.getstate()[0])
        return self.place == "inside" and self.left <= 0 and not is_cut

    def mask(self) -> np.ndarray | None:
        allowed = self.every if self.inner is None else self.inner.mask()
        if allowed is None or not self.is_ending:
            return allowed
        word, bit = divmod(self.end[self.ended], 32)
        if not allowed[0, word] >> np.uint32(bit) & np.uint32(1):
            return allowed  # a grammar that knows nothing of reasoning
        only = np.zeros_like(allowed)
        only[0, word] = np.uint32(1) << np.uint32(bit)
        return only

    def accept(self, token: int) -> None:
        was_ending = self.is_ending
        if self.inner is not None:
            self.inner.accept(token)
        self.tail += self.decoder.feed(token) if token < self.words else ""
        if self.place == "before":
            self._begin()
        elif self.place == "inside":
            self.left -= 1
            self.ended += was_ending and token == self.end[self.ended]
            self._finish()

    def _begin(self) -> None:
        """Does the answer begin with reasoning?"""
        said, mark = self.tail.lstrip(), self.reasoning.begin
        if said.startswith(mark):
            self.place, self.tail = "inside", said[len(mark) :]
        elif not mark.startswith(said):
            self.place = "after"

    def _finish(self) -> None:
        mark = self.reasoning.end
        if mark in self.tail or self.ended == len(self.end):
            self.place = "after"
        self.tail = self.tail[-len(mark) :]

    def forced(self) -> list[int]:
        """Tokens that must come; a draft."""
        if self.is_ending:
            return self.end[self.ended :]
        return [] if self.inner is None else self.inner.forced()
