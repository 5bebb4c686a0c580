"""Command line, a model here: the partner of a chat that is loaded into this process."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from typing import TYPE_CHECKING, Any

from tetrad.cli.talk.parts import AnswerCost, AnswerPart, Turns
from tetrad.text.tools import AnswerEvent, AnswerParser, Reasoning, ReasoningDelta
from tetrad.text.tools.reasoning import reasoning_in, reasoning_marks

if TYPE_CHECKING:
    from tetrad.models.decoding.generation import Completion, Piece
    from tetrad.models.model import Model


class LocalPartner:
    """A loaded model. Turns that have no room are dropped where the settings allow it."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self.length = 0  # tokens of the last prompt

    @property
    def name(self) -> str:
        return self.model.name

    def answer(
        self, told: Turns, turns: Turns, settings: dict[str, Any]
    ) -> tuple[Turns, Iterator[AnswerPart]]:
        settings = dict(settings)
        variables = settings.pop("template", None) or {}
        tokens = self.model.chat_tokens([*told, *turns], **variables)
        if settings.get("shift"):
            turns, tokens = self.with_room(told, turns, tokens, variables)
            settings["keep"] = self.kept(told, tokens, settings.get("keep", 0), variables)
        thinks = reasoning_of(self.model, [*told, *turns], variables)
        return turns, self.complete(tokens, settings, thinks)

    def complete(
        self, tokens: list[int], settings: dict[str, Any], thinks: Reasoning | None
    ) -> Iterator[AnswerPart]:
        """The answer to a prompt; `thinks` says how it begins."""
        self.length = len(tokens)
        stream = self.model.generate(tokens, stream=True, **settings)
        parser = AnswerParser(None, frozenset(), thinks)
        return parts_of(stream, parser, settings.get("max_tokens", -1), self.model.context)

    def with_room(
        self, told: Turns, turns: Turns, tokens: list[int], variables: dict[str, Any]
    ) -> tuple[Turns, list[int]]:
        """The turns and their tokens; where the context is full, without the oldest: a quarter is
        left for the answer."""
        context, left = self.model.context, turns
        if len(tokens) < context:
            return turns, tokens
        while len(tokens) > context * 3 // 4 and (fewer := without_oldest(left)):
            left = fewer
            tokens = self.model.chat_tokens([*told, *left], **variables)
        # else the last message alone is too long: nothing is forgotten for it
        return (left if len(tokens) <= context else turns), tokens

    def kept(self, told: Turns, tokens: list[int], least: int, variables: dict[str, Any]) -> int:
        """Tokens that a long answer may not push out of the context: what the system says, or more
        if asked for."""
        if least < 0 or not told:
            return least
        begin = self.model.chat_tokens([*told, {"role": "user", "content": ""}], **variables)
        common = (i for i, (a, b) in enumerate(zip(begin, tokens, strict=False)) if a != b)
        return max(least, next(common, min(len(begin), len(tokens))))

    def waiting(self) -> str:
        slots = self.model.engine.slots
        done = max((slot.length for slot in slots if slot.sequence is not None), default=0)
        return f"reading the prompt: {done} of {self.length} tokens"

    def topics(self) -> dict[str, Callable[[], str]]:
        template = self.model.metadata.get("tokenizer.chat_template", "ChatML: the model has none")
        return {"template": lambda: str(template), "info": self.info}

    def info(self) -> str:
        c = self.model.config
        return (
            f"{self.model.name}\n"
            f"{c.arch}, {c.layers} layers of width {c.width}, context {c.context}\n"
            f"{self.model.path}"
        )


MARKS = Reasoning("<think>", "</think>")  # of models whose templates know none


def reasoning_of(model: Model, messages: Turns, variables: dict[str, Any]) -> Reasoning | None:
    """How an answer begins: with a thought, in the middle of one, or (None) after it."""
    marks = reasoning_marks(str(model.metadata.get("tokenizer.chat_template", "")))
    if marks is None:
        return MARKS
    return reasoning_in(marks, model.template.render(messages, **variables))


def parts_of(stream: Any, parser: AnswerParser, limit: int, context: int) -> Iterator[AnswerPart]:
    """Pieces of a model as parts; the first of a piece has what was written for all."""
    with closing(stream) as pieces:
        for piece in pieces:
            found = parser.feed(piece.text)
            if piece.completion is not None:
                found += parser.finish()
            yield from raw_first(found, piece, limit, context)


def raw_first(
    found: Sequence[AnswerEvent], piece: Piece, limit: int, context: int
) -> Iterator[AnswerPart]:
    raw = piece.text
    for event in found:
        yield AnswerPart(getattr(event, "text", ""), isinstance(event, ReasoningDelta), raw)
        raw = ""
    if piece.completion is not None:
        note = full_context(piece.completion, limit, context)
        yield AnswerPart("", False, raw, cost_of(piece.completion), note)
    elif raw:
        yield AnswerPart("", False, raw)


def cost_of(completion: Completion) -> AnswerCost:
    t = completion.timings
    spent = t.prompt_n, t.prompt_ms, t.predicted_n, t.predicted_ms
    guesses = completion.drafted, completion.accepted
    return AnswerCost(*spent, completion.cached_tokens, completion.seed, *guesses)


def full_context(completion: Completion, limit: int, context: int) -> str | None:
    """What is said of an answer that neither the model nor `limit` has ended."""
    if completion.finish_reason != "length" or len(completion.tokens) == limit:
        return None
    return (
        f"note: the context of {context} tokens is full, the answer ends: -c N holds more, "
        "--context-shift goes on"
    )


def without_oldest(turns: Turns) -> Turns:
    """Without the first question and its answer; what a system said stays. Empty: there is only one
    question."""
    asked = [i for i, turn in enumerate(turns) if turn["role"] == "user"]
    if len(asked) < 2:
        return []
    return [*(turn for turn in turns[: asked[1]] if turn["role"] == "system"), *turns[asked[1] :]]
