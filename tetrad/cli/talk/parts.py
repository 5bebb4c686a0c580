"""Command line, parts of an answer: what every partner gives and the display shows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Protocol

from tetrad.core.record import record

Turns = list[dict[str, str]]


@record
class AnswerCost:
    """What an answer took: the names of llama.cpp's server."""

    prompt_n: int
    prompt_ms: float
    predicted_n: int
    predicted_ms: float
    cached: int = 0  # tokens of the prompt that had been read before
    seed: int | None = None  # gives the answer again
    drafted: int = 0  # tokens that were guessed, and how many of them were right
    accepted: int = 0

    @property
    def prompt_per_second(self) -> float:
        return 1e3 * self.prompt_n / self.prompt_ms if self.prompt_ms else 0.0

    @property
    def predicted_per_second(self) -> float:
        return 1e3 * self.predicted_n / self.predicted_ms if self.predicted_ms else 0.0


@record
class AnswerPart:
    """Text that has become certain. `raw` is what the model wrote for it, marks and all, which goes
    into pipes; the last part has the cost, if it is known, and a note, if there is one."""

    text: str
    is_thought: bool = False
    raw: str = ""
    cost: AnswerCost | None = None
    note: str | None = None


class Partner(Protocol):
    """Who answers in a chat."""

    @property
    def name(self) -> str: ...

    def answer(
        self, told: Turns, turns: Turns, settings: dict[str, Any]
    ) -> tuple[Turns, Iterator[AnswerPart]]:
        """The turns that are left where not all have room, and the answer to the last of them."""
        ...

    def waiting(self) -> str:
        """What is said while nothing has come yet."""
        ...

    def topics(self) -> dict[str, Callable[[], str]]:
        """What `/show` can tell of it."""
        ...
