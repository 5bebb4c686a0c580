"""Models, Mirostat: a cut through the likely tokens that follows how surprising the answer has been
so far.

Receives logits after bias, mask and penalties, and a number drawn; returns a token. Version 1
estimates from the likeliest tokens how many to keep, version 2 drops those that are too surprising.
The filters have no part in it.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from tetrad.models.decoding.settings import Settings

LIKELIEST = 100  # from which version 1 estimates how fast chances fall


class Mirostat:
    """`limit` is the surprise, in bits, that is allowed now; it moves so that the mean comes near
    `mirostat_tau`."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.limit = 2.0 * settings["mirostat_tau"]

    def choose(self, logits: np.ndarray, drawn: float) -> int:
        """`drawn` is a number from 0 to 1."""
        shift = (logits.astype(np.float64) - logits.max()) / self.settings["temperature"]
        weights = np.exp(shift)
        kept = self._likeliest(shift) if self.settings["mirostat"] == 1 else self._expected(weights)
        sums = np.cumsum(weights[kept])
        token = int(kept[min(np.searchsorted(sums, drawn * sums[-1], side="right"), len(kept) - 1)])
        surprise = math.log2(sums[-1] / weights[token])
        self.limit -= self.settings["mirostat_eta"] * (surprise - self.settings["mirostat_tau"])
        return token

    def _expected(self, weights: np.ndarray) -> np.ndarray:
        """Version 2: tokens whose surprise is within the limit, at least the likeliest."""
        kept = np.flatnonzero(
            (weights > 0) & (weights >= weights.sum() * 2.0 ** -min(self.limit, 1e3))
        )
        return kept if kept.size else np.array([weights.argmax()])

    def _likeliest(self, shift: np.ndarray) -> np.ndarray:
        """Version 1: so many of the likeliest that their surprise is about the limit, were chances
        a power of rank."""
        order = np.argsort(-shift, kind="stable")[: np.isfinite(shift).sum()]
        top = shift[order[:LIKELIEST]]
        ratios = np.log(np.arange(2, len(top) + 1) / np.arange(1, len(top)))
        slope = float(ratios @ (top[:-1] - top[1:]) / (ratios @ ratios)) if len(top) > 1 else 0.0
        return np.sort(order[: self._count(max(slope, 1e-9), len(shift))])

    def _count(self, slope: float, vocab: int) -> int:
        excess, size = slope - 1.0, math.log(vocab)
        # excess / (1 - vocab ** -excess), which is 1 / log(vocab) where the slope is 1
        share = (
            1 / max(size, 1e-9)
            if abs(excess * size) < 1e-9
            else excess / -math.expm1(-excess * size)
        )
        count = (math.log(share) + self.limit * math.log(2)) / slope
        return max(1, int(math.exp(min(count, size))))
