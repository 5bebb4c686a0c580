"""Compat, answers: the dictionaries of the OpenAI API that the methods of `Llama` return, whole or
chunk by chunk.

Receives what a model said (`Completion`, `Piece`, `Logprob`) and the head of the answer: its id,
kind, time and model.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tetrad.models.decoding.generation import Completion, Logprob, Piece

if TYPE_CHECKING:
    from tetrad.text.tokenizer import Tokenizer

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


def chat_completion(
    head: Json, done: Completion, table: Json | None, tool: Mapping[str, Any] | None
) -> Json:
    """The answer, or with a `tool` that had to be called the arguments of the call."""
    said: Json = {"content": done.text}
    if tool is not None:
        call = tool_call(head, tool, done.text)
        # the first: its older name
        said = {"content": None, "function_call": call["function"], "tool_calls": [call]}
    reason = done.finish_reason if tool is None else "tool_calls"
    choice = {
        "index": 0,
        "message": {"role": "assistant", **said},
        "logprobs": table,
        "finish_reason": reason,
    }
    return head | {"choices": [choice], "usage": usage(done)}


def chat_chunks(
    tokenizer: Tokenizer, head: Json, pieces: Iterable[Piece], tool: Mapping[str, Any] | None
) -> Iterator[Json]:
    def chunk(delta: Json, reason: str | None = None, table: Json | None = None) -> Json:
        return head | {
            "choices": [{"index": 0, "delta": delta, "logprobs": table, "finish_reason": reason}]
        }

    yield chunk({"role": "assistant"})
    if tool is not None:
        yield chunk({"tool_calls": [{"index": 0, **tool_call(head, tool, "")}]})
    for piece in pieces:
        chances = piece_logprobs(piece)
        table = chat_logprobs(tokenizer, chances) if chances else None
        if piece.text or table:
            more = {"tool_calls": [{"index": 0, "function": {"arguments": piece.text}}]}
            yield chunk({"content": piece.text} if tool is None else more, table=table)
        if piece.completion is not None:
            yield chunk({}, piece.completion.finish_reason if tool is None else "tool_calls")


def chat_logprobs(tokenizer: Tokenizer, choices: Sequence[Logprob]) -> Json:
    def entry(token: int, logprob: float) -> Json:
        data = tokenizer.token_bytes(token)
        return {"token": data.decode(errors="replace"), "logprob": logprob, "bytes": list(data)}

    content = [
        entry(choice.token, choice.logprob)
        | {"top_logprobs": [entry(c.token, c.logprob) for c in choice.top]}
        for choice in choices
    ]
    return {"content": content, "refusal": None}


def tool_call(head: Json, tool: Mapping[str, Any], arguments: str) -> Json:
    called = {"name": tool["name"], "arguments": arguments}
    return {"id": f"call__0_{tool['name']}_{head['id']}", "type": "function", "function": called}
