"""Models, settings: every setting of a generation once: name, type, default and range.

`Settings` is what `generate` takes as keywords; the options of the commands and the arguments of
the shims are made from it. Receives what a caller gave; returns all settings, checked, with
defaults in the place of those not given.
"""

import inspect
import math
import os
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Annotated, Any, TypedDict, TypeVar, Unpack

import numpy as np

from tetrad.core import lazy
from tetrad.core.errors import SettingError, UnknownSettingError
from tetrad.core.record import record
from tetrad.models.checks import check_count, check_number, check_texts
from tetrad.models.decoding.dry import BREAKERS

MOST_LOGPROBS = 20
MOST_DRAFTED = 64
LARGEST_SEED = 2**64 - 1
WORD = 0xFFFFFFFF
SMALLEST = 1e-30  # a logit divided by less is no number in f32
MOST_PENALTY = 1e30  # taken off a logit once for every token of a context it is finite in f32
# tokens so far, the logits after them -> logits, or whether to end
Processor = Callable[[np.ndarray, np.ndarray], Any]
Guess = Callable[[np.ndarray], Any]  # tokens so far -> those that may follow

# -- what a value may be ---------------------------------------------------------------------------


@record
class Number:
    default: float
    least: float = -math.inf
    most: float = math.inf

    def check(self, name: str, value: object) -> None:
        check_number(name, value, self.least, self.most)


@record
class Positive:
    """A number above 0."""

    default: float

    def check(self, name: str, value: object) -> None:
        check_number(name, value, 0.0)
        if value < SMALLEST:  # type: ignore[operator]
            raise SettingError(name, "a number above 0", value)


@record
class Count:
    """A whole number; None where that is the default, or `is_optional`."""

    default: int | None
    least: int
    most: float = math.inf
    is_optional: bool = False

    def check(self, name: str, value: object) -> None:
        if value is not None or not (self.is_optional or self.default is None):
            check_count(name, value, self.least, self.most)


@record
class Texts:
    """Texts that are not empty."""

    default: Sequence[str]

    def check(self, name: str, value: object) -> None:
        check_texts(name, value)


@record
class Ends:
    """Texts that are not empty, or one such text, or None."""

    default: Sequence[str]

    def check(self, name: str, value: object) -> None:
        given = (value,) if isinstance(value, str) else () if value is None else value
        if not isinstance(given, Sequence) or not all(
            isinstance(one, str) and one for one in given
        ):
            raise SettingError(name, "text, or a list of texts that are not empty", value)


@record
class Free:
    """Checked by what takes it, which knows more: the vocabulary, or the language of grammars."""

    default: Any = None

    def check(self, name: str, value: object) -> None:
        pass


@record
class Guesses:
    """How many tokens are guessed from those before, or a function that guesses."""

    default: int
    least: int
    most: int

    def check(self, name: str, value: object) -> None:
        if not callable(value):
            check_count(name, value, self.least, self.most)


Rule = Number | Positive | Count | Texts | Ends | Free | Guesses
WHOLE = (Count, Guesses)  # rules of numbers without a fraction

# -- the settings ----------------------------------------------------------------------------------


class AnswerSettings(TypedDict, total=False):
    """Settings of an answer. Names and defaults are those of llama.cpp; docs/decoding.md tells what
    they mean."""

    temperature: Annotated[float, Number(0.8, 0.0)]
    top_k: Annotated[int, Count(40, -1)]
    top_p: Annotated[float, Number(0.95, 0.0, 1.0)]
    min_p: Annotated[float, Number(0.05, 0.0, 1.0)]
    repeat_penalty: Annotated[float, Positive(1.0)]
    repeat_last_n: Annotated[int, Count(64, -1)]
    penalize_prompt: Annotated[bool, Free(True)]
    presence_penalty: Annotated[float, Number(0.0, -MOST_PENALTY, MOST_PENALTY)]
    frequency_penalty: Annotated[float, Number(0.0, -MOST_PENALTY, MOST_PENALTY)]
    top_n_sigma: Annotated[float, Number(0.0)]
    typical_p: Annotated[float, Number(1.0, 0.0, 1.0)]
    xtc_probability: Annotated[float, Number(0.0, 0.0, 1.0)]
    xtc_threshold: Annotated[float, Number(0.1, 0.0, 1.0)]
    temperature_first: Annotated[bool, Free(False)]
    dynatemp_range: Annotated[float, Number(0.0, 0.0)]
    dynatemp_exponent: Annotated[float, Number(1.0, 0.0)]
    dry_multiplier: Annotated[float, Number(0.0, 0.0)]
    dry_base: Annotated[float, Number(1.75, 1.0)]
    dry_allowed_length: Annotated[int, Count(2, 0)]
    dry_penalty_last_n: Annotated[int, Count(-1, -1)]
    dry_sequence_breakers: Annotated[Sequence[str], Texts(BREAKERS)]
    mirostat: Annotated[int, Count(0, 0, 2)]
    mirostat_tau: Annotated[float, Number(5.0, 0.0)]
    mirostat_eta: Annotated[float, Number(0.1, 0.0)]
    logits_processor: Annotated[Processor | None, Free()]
    stopping_criteria: Annotated[Processor | None, Free()]
    logit_bias: Annotated[Mapping[int, float] | None, Free()]
    seed: Annotated[int | None, Count(None, -1, LARGEST_SEED)]
    max_tokens: Annotated[int | None, Count(128, -1, is_optional=True)]
    stop: Annotated[str | Sequence[str] | None, Ends(())]
    ignore_eos: Annotated[bool, Free(False)]
    grammar: Annotated[str | Mapping[str, str] | None, Free()]
    json_schema: Annotated[Any, Free()]
    logprobs: Annotated[int, Count(0, 0, MOST_LOGPROBS)]
    shift: Annotated[bool, Free(False)]
    keep: Annotated[int, Count(0, -1)]
    preserved_tokens: Annotated[Sequence[str], Texts(())]
    reasoning_budget: Annotated[int, Count(-1, -1)]
    speculate: Annotated[int | Guess, Guesses(0, 0, MOST_DRAFTED)]
    draft_max: Annotated[int, Count(16, 0, MOST_DRAFTED)]
    draft_min: Annotated[int, Count(0, 0, MOST_DRAFTED)]
    draft_p_min: Annotated[float, Number(0.75, 0.0, 1.0)]


class Settings(AnswerSettings, total=False):
    """Settings of `generate`: those of the answer, and how it comes."""

    stream: Annotated[bool, Free(False)]


RULES: dict[str, Rule] = {
    name: hint.__metadata__[0] for name, hint in Settings.__annotations__.items()
}
DEFAULTS = {name: rule.default for name, rule in RULES.items()}


def checked(**given: Unpack[Settings]) -> Settings:
    """All settings, those given checked. A seed that was not chosen is drawn: the same seed gives
    the same answer.

    >>> checked(temperature=0.5, seed=7)["temperature"], checked()["top_k"]
    (0.5, 40)
    """
    for name, value in given.items():
        if name not in RULES:
            raise unknown_setting(name)
        RULES[name].check(name, value)
    chosen: Settings = {**DEFAULTS, **given}  # type: ignore[typeddict-item]
    if chosen["seed"] is None or chosen["seed"] == -1:
        chosen["seed"] = 1 + int.from_bytes(os.urandom(16)) % WORD
    return chosen


def unknown_setting(name: str) -> UnknownSettingError:
    close = lazy.module("difflib").get_close_matches(name, RULES, n=1)  # a start needs none of it
    hint = f"did you mean {close[0]}?" if close else f"settings: {', '.join(RULES)}"
    return UnknownSettingError(f"there is no setting {name!r}", hint=hint)


F = TypeVar("F", bound=Callable[..., Any])


def takes_settings(function: F) -> F:
    """The function, which shows the settings as its keywords to whoever asks for its signature."""
    found = inspect.signature(function)
    kept = [p for p in found.parameters.values() if p.kind is not inspect.Parameter.VAR_KEYWORD]
    function.__signature__ = found.replace(parameters=[*kept, *keywords()])  # type: ignore[attr-defined]
    return function


@cache
def keywords() -> tuple[inspect.Parameter, ...]:
    return tuple(
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=DEFAULTS[name])
        for name in RULES
    )
