"""Models, DRY: tokens that would go on repeating what was said before, and what is taken off their
logits.

Receives the tokens of a prompt and an answer as they come; returns penalties that grow with the
length of what is being repeated. A text that breaks sequences (a new line, a quotation mark) ends
what counts as one.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from tetrad.models.decoding.settings import Settings
    from tetrad.text.tokenizer import Tokenizer

BREAKERS = ("\n", ":", '"', "*")
LONGEST_TAIL = 20  # tokens of a breaker after its first
LARGEST = 88.7228391  # the logarithm of the largest f32

# a token in which a breaker begins, and the tokens that complete it
Heads = Mapping[int, Sequence[tuple[int, ...]]]


class Dry:
    """What was said, and for every place how many tokens up to there are also the last ones."""

    def __init__(self, settings: Settings, heads: Heads, context: int) -> None:
        self.settings, self.heads = settings, heads
        self.window = (
            context
            if settings["dry_penalty_last_n"] < 0
            else min(settings["dry_penalty_last_n"], context)
        )
        self.tokens, self.same = (np.zeros(2 * self.window + 2, np.int32) for _ in range(2))
        self.count = 0
        self.longest_tail = max(
            (len(tail) for tails in heads.values() for tail in tails), default=0
        )

    def add(self, token: int) -> None:
        if self.count == len(self.tokens):  # what left the window is forgotten
            for held in (self.tokens, self.same):
                held[: self.window] = held[-self.window :]
            self.count = self.window
        n = self.count
        goes_on = self.tokens[:n] == token
        self.same[1:n] = np.where(goes_on[1:], self.same[: max(n - 1, 0)] + 1, 0)
        self.same[: min(n, 1)] = goes_on[:1]
        self.tokens[n] = token
        self.count += 1

    def penalties(self) -> dict[int, float]:
        """Tokens and what is added to their logits: minus multiplier x base ^ (tokens repeated -
        allowed length)."""
        start, allowed = max(0, self.count - self.window), self.settings["dry_allowed_length"]
        before = self.same[start : max(self.count - 1, 0)]
        lengths = np.minimum(before, np.arange(1, len(before) + 1))
        if not lengths.size or lengths.max() < allowed:
            return {}
        lengths = np.minimum(lengths, self._since_breaker(int(lengths.max())))
        longest = dict[int, int]()
        for at in np.flatnonzero(lengths >= allowed).tolist():
            follows = int(self.tokens[start + at + 1])
            if () not in self.heads.get(follows, ()):  # a breaker may always come
                longest[follows] = max(longest.get(follows, 0), int(lengths[at]))
        return {token: -self._penalty(length) for token, length in longest.items()}

    def _penalty(self, length: int) -> float:
        base, power = self.settings["dry_base"], float(length - self.settings["dry_allowed_length"])
        if base > 1.000001:
            power = min(power, math.floor(LARGEST / math.log(base)))
        return float(self.settings["dry_multiplier"] * base**power)

    def _since_breaker(self, most: int) -> int:
        """Tokens after the last breaker, where they are fewer than `most`."""
        last = self.tokens[: self.count][::-1]
        for i in range(min(len(last), most + self.longest_tail)):
            tails = self.heads.get(int(last[i]), ())
            fits = [
                len(t)
                for t in tails
                if len(t) <= i and np.array_equal(last[i - len(t) : i][::-1], t)
            ]
            if fits:
                return i - max(fits)
        return most


def breaker_heads(
    tokenizer: Tokenizer, breakers: Sequence[str]
) -> dict[int, list[tuple[int, ...]]]:
    """For every token that holds a breaker or ends with the beginning of one, what completes it."""
    found = dict[int, list[tuple[int, ...]]]()
    texts = tokenizer.every_bytes()
    for breaker in breakers:
        whole = breaker.encode()
        tails = {whole[:i]: tail_of(tokenizer, whole[i:]) for i in range(1, len(whole))}
        for token, text in enumerate(texts):
            if whole in text:
                found.setdefault(token, []).append(())
            else:
                ends = [tail for begin, tail in tails.items() if text.endswith(begin)]
                for tail in ends:
                    found.setdefault(token, []).append(tail)
    return found


def tail_of(tokenizer: Tokenizer, rest: bytes) -> tuple[int, ...]:
    text = rest.decode(errors="replace")
    return tuple(tokenizer.encode(text, add_special=False, parse_special=False)[:LONGEST_TAIL])
