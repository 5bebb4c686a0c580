"""Serve, meter: how much of the memory's bandwidth a model uses. What its scheduler has counted in;
bytes a second out.

A step reads the weights once, however many requests are in it, and what it attends to of their keys
and values; the first is what is counted here.
"""

from __future__ import annotations

import time
from pathlib import Path

from tetrad.core import lazy
from tetrad.core.errors import TetradError
from tetrad.models.decoding.scheduler import SchedulerStats

SHORTEST = 0.5  # seconds over which a rate is told


class Meter:
    """The rate since it was last asked for; 0 while nothing runs."""

    def __init__(self) -> None:
        self.roof: float | None = None  # what the machine gives, once it was measured
        self.weights: int | None = None  # bytes that a step reads, once they were counted
        self.moment, self.steps, self.seconds, self.last = 0.0, 0, 0.0, 0.0

    def rate(self, stats: SchedulerStats) -> float:
        now, seconds = time.monotonic(), stats.prompt_seconds + stats.predicted_seconds
        if now - self.moment >= SHORTEST:
            steps, spent = stats.steps - self.steps, seconds - self.seconds
            self.last = steps * (self.weights or 0) / spent if steps and spent > 0 else 0.0
            self.moment, self.steps, self.seconds = now, stats.steps, seconds
        return self.last


def weight_bytes(path: Path) -> int:
    """Bytes of the weights of a model; 0 where its files do not say."""
    try:
        found: int = lazy.module("tetrad.hub.describe").describe(str(path)).weight_bytes
    except TetradError:
        return 0
    return found
