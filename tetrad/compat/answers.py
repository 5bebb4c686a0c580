"""Compat, answers: the dictionaries of the OpenAI API that the methods of `Llama` return, whole or
chunk by chunk.

Receives what a model said (`Completion`, `Piece`, `Logprob`) and the head of the answer: its id,
kind, time and model.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from tetrad.models.decoding.generation import Completion, Logprob, Piece
from tetrad.models.decoding.openai_shapes import call_of, chat_logprobs
from tetrad.text.tools.events import (
    AnswerEvent,
    CallArguments,
    CallBegins,
    ReasoningDelta,
    TextDelta,
)

if TYPE_CHECKING:
    from tetrad.text.tokenizer import Tokenizer
    from tetrad.text.tools import AnswerParser

Json = dict[str, Any]


def usage(done: Completion) -> Json:
    prompt, written = done.prompt_tokens, len(done.tokens)
    return {"prompt_tokens": prompt, "completion_tokens": written, "total_tokens": prompt + written}


def piece_logprobs(piece: Piece) -> list[Logprob]:
    """Of the one token that a piece stands for, where it has a chance."""
    if piece.token is None or piece.logprob is None:
        return []
    return [Logprob(piece.token, piece.logprob, piece.top)]


def token_text(tokenizer: Tokenizer, token: int) -> str:
    return str(tokenizer.token_bytes(token).decode(errors="replace"))


# -- completions -----------------------------------------------------------------------------------


def completion(text: str, table: Json | None = None, reason: str | None = None) -> Json:
    return {"choices": [{"text": text, "index": 0, "logprobs": table, "finish_reason": reason}]}


def completion_chunks(
    tokenizer: Tokenizer, head: Json, shown: str, start: int, pieces: Iterable[Piece], count: int
) -> Iterator[Json]:
    """A prompt that is echoed (`shown`) comes first; `start` is where in the whole text the answer
    begins."""
    if shown:
        yield head | completion(shown)
    for piece in pieces:
        chances = piece_logprobs(piece)
        table = legacy_logprobs(tokenizer, start, chances, count) if chances else None
        start += len(piece.text)
        reason = None if piece.completion is None else piece.completion.finish_reason
        yield head | completion(piece.text, table, reason)


def legacy_logprobs(
    tokenizer: Tokenizer, start: int, choices: Sequence[Logprob | int], count: int
) -> Json:
    """The four lists of the old completion API, with `count` of the likeliest. A token alone, the
    first of a text, has None for a chance."""
    tokens = [choice if isinstance(choice, int) else choice.token for choice in choices]
    texts = [token_text(tokenizer, token) for token in tokens]
    return {
        "tokens": texts,
        "text_offset": [start + sum(map(len, texts[:i])) for i in range(len(texts))],
        "token_logprobs": [
            None if isinstance(choice, int) else choice.logprob for choice in choices
        ],
        "top_logprobs": [
            None if isinstance(c, int) else top_named(tokenizer, c, count) for c in choices
        ],
    }


def top_named(tokenizer: Tokenizer, choice: Logprob, count: int) -> dict[str, float]:
    """Text and chance of the likeliest and of the token itself. Parts of characters have no text:
    one name."""
    likeliest = reversed(choice.top[:count])  # of tokens with one name the likeliest keeps it
    named = {token_text(tokenizer, chance.token): chance.logprob for chance in likeliest}
    return dict(reversed(named.items())) | {token_text(tokenizer, choice.token): choice.logprob}


# -- chat ------------------------------------------------------------------------------------------


def chat_completion(head: Json, done: Completion, table: Json | None, tools: bool) -> Json:
    """The answer. Where `tools` could be called, reasoning and calls stand apart."""
    said: Json = {"content": done.text}
    calls = [call_of(call.id, call.name, call.arguments) for call in done.tool_calls]
    if tools:
        said = {"content": done.content}
        if done.reasoning:
            said["reasoning_content"] = done.reasoning
    if calls:  # the first by its older name, too
        said |= {"content": done.content or None, "tool_calls": calls}
        said["function_call"] = calls[0]["function"]
    choice = {
        "index": 0,
        "message": {"role": "assistant", **said},
        "logprobs": table,
        "finish_reason": "tool_calls" if calls else done.finish_reason,
    }
    return head | {"choices": [choice], "usage": usage(done)}


def chat_chunks(
    tokenizer: Tokenizer, head: Json, pieces: Iterable[Piece], parser: AnswerParser | None
) -> Iterator[Json]:
    """The answer chunk by chunk. A `parser` takes reasoning and calls apart; without one all is
    text."""

    def chunk(delta: Json, reason: str | None = None, table: Json | None = None) -> Json:
        return head | {
            "choices": [{"index": 0, "delta": delta, "logprobs": table, "finish_reason": reason}]
        }

    yield chunk({"role": "assistant"})
    has_called = False
    for piece in pieces:
        chances = piece_logprobs(piece)
        table = chat_logprobs(tokenizer, chances) if chances else None
        for event in events_of(piece, parser) or ([TextDelta("")] if table else []):
            has_called |= isinstance(event, CallBegins)
            yield chunk(delta_of(event), table=table)
            table = None
        if piece.completion is not None:
            yield chunk({}, "tool_calls" if has_called else piece.completion.finish_reason)


def events_of(piece: Piece, parser: AnswerParser | None) -> list[AnswerEvent]:
    if parser is None:
        return [TextDelta(piece.text)] if piece.text else []
    return parser.feed(piece.text) + (parser.finish() if piece.completion is not None else [])


def delta_of(event: AnswerEvent) -> Json:
    match event:
        case TextDelta(text):
            return {"content": text}
        case ReasoningDelta(text):
            return {"reasoning_content": text}
        case CallBegins(index, name_of_call, name):
            return {"tool_calls": [{"index": index, **call_of(name_of_call, name, "")}]}
        case CallArguments(index, text):
            more = {"index": index, "type": "function", "function": {"arguments": text}}
            return {"tool_calls": [more]}
