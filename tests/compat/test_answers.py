"""compat.answers: the dictionaries, field by field, as the OpenAI API documents them."""

from __future__ import annotations

from typing import Any, cast

from tetrad.compat.answers import (
    chat_chunks,
    chat_completion,
    completion,
    completion_chunks,
    legacy_logprobs,
    top_named,
    usage,
)
from tetrad.core.record import replace
from tetrad.models.decoding.generation import Completion, Logprob, Piece, Timings
from tetrad.models.decoding.openai_shapes import chat_logprobs
from tetrad.models.decoding.sampling import Chance
from tetrad.text.tokenizer import Tokenizer
from tetrad.text.tools import AnswerParser, CallArguments, CallBegins, ReasoningDelta, ToolCall

HEAD = {"id": "cmpl-1", "object": "kind", "created": 5, "model": "m"}
DONE = Completion("Hi!", [7, 8], "stop", 1, 3, 0, Timings(3, 1.0, 2, 1.0))
NAMES = {7: b"Hi", 8: b"!", 9: b"\xff", 10: b"\xfe"}


class Names:
    """A tokeniser that knows only what its tokens are called."""

    def token_bytes(self, token: int) -> bytes:
        return NAMES[token]


TOKENS = cast(Tokenizer, Names())
PIECES = [
    Piece("Hi", 7, -0.5, (Chance(7, -0.5), Chance(9, -2.0))),
    Piece("!", 8),
    Piece("", completion=DONE),
]


def choice(**fields: Any) -> list[dict[str, Any]]:
    return [{"index": 0, "logprobs": None, "finish_reason": None} | fields]


def test_tokens_are_counted() -> None:
    assert usage(DONE) == {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5}


def test_a_completion() -> None:
    assert completion("Hi", {"tokens": []}, "length") == {
        "choices": choice(text="Hi", logprobs={"tokens": []}, finish_reason="length")
    }


def test_chunks_of_a_completion() -> None:
    table = {
        "tokens": ["Hi"],
        "text_offset": [2],
        "token_logprobs": [-0.5],
        "top_logprobs": [{"Hi": -0.5}],
    }
    assert list(completion_chunks(TOKENS, HEAD, "Oh", 2, PIECES, 1)) == [
        HEAD | {"choices": choice(text="Oh")},
        HEAD | {"choices": choice(text="Hi", logprobs=table)},
        HEAD | {"choices": choice(text="!")},
        HEAD | {"choices": choice(text="", finish_reason="stop")},
    ]


def test_offsets_go_on_from_chunk_to_chunk() -> None:
    pieces = [Piece("Hi", 7, -0.5), Piece("!", 8, -0.25)]
    chunks = completion_chunks(TOKENS, HEAD, "", 4, pieces, 0)
    assert [chunk["choices"][0]["logprobs"]["text_offset"] for chunk in chunks] == [[4], [6]]


def test_the_first_token_of_a_text_has_no_chance() -> None:
    assert legacy_logprobs(TOKENS, 0, [7, Logprob(8, -1.0, (Chance(7, -0.1),))], 1) == {
        "tokens": ["Hi", "!"],
        "text_offset": [0, 2],
        "token_logprobs": [None, -1.0],
        "top_logprobs": [None, {"Hi": -0.1, "!": -1.0}],
    }


def test_of_tokens_with_one_name_the_likeliest_keeps_it() -> None:
    # parts of characters: both are called �
    top = Chance(9, -0.5), Chance(10, -1.5), Chance(7, -2.0)
    assert list(top_named(TOKENS, Logprob(8, -3.0, top), 3).items()) == [
        ("�", -0.5),
        ("Hi", -2.0),
        ("!", -3.0),
    ]
    assert list(top_named(TOKENS, Logprob(8, -3.0, top), 1)) == ["�", "!"]


def test_an_answer_of_a_chat() -> None:
    assert chat_completion(HEAD, DONE, None, False) == HEAD | {
        "choices": choice(message={"role": "assistant", "content": "Hi!"}, finish_reason="stop"),
        "usage": usage(DONE),
    }


def test_a_tool_that_was_called() -> None:
    function = {"name": "add", "arguments": '{"x": 1}'}
    call = {"id": "c1", "type": "function", "function": function}
    done = replace(DONE, content="", tool_calls=(ToolCall("c1", "add", '{"x": 1}'),))
    message = {
        "role": "assistant",
        "content": None,
        "function_call": function,
        "tool_calls": [call],
    }
    made = chat_completion(HEAD, done, None, True)
    assert made["choices"] == choice(message=message, finish_reason="tool_calls")


def test_an_answer_that_could_have_called_a_tool_has_its_reasoning_apart() -> None:
    done = replace(DONE, content="Hi!", reasoning="Hm.")
    said = chat_completion(HEAD, done, None, True)["choices"][0]["message"]
    assert said == {"role": "assistant", "content": "Hi!", "reasoning_content": "Hm."}


def test_chunks_of_a_chat() -> None:
    table = chat_logprobs(TOKENS, [Logprob(7, -0.5, (Chance(7, -0.5), Chance(9, -2.0)))])
    assert list(chat_chunks(TOKENS, HEAD, PIECES, None)) == [
        HEAD | {"choices": choice(delta={"role": "assistant"})},
        HEAD | {"choices": choice(delta={"content": "Hi"}, logprobs=table)},
        HEAD | {"choices": choice(delta={"content": "!"})},
        HEAD | {"choices": choice(delta={}, finish_reason="stop")},
    ]
    assert table["refusal"] is None
    assert table["content"] == [
        {"token": "Hi", "logprob": -0.5, "bytes": [72, 105], "top_logprobs": [
            {"token": "Hi", "logprob": -0.5, "bytes": [72, 105]}, {"token": "�", "logprob": -2.0,
            "bytes": [255]},
        ]},
    ]  # fmt: skip


class Calls:
    """A parser that finds a call in every answer."""

    def feed(self, text: str) -> list[Any]:
        return [ReasoningDelta("Hm."), CallBegins(0, "c1", "add")] if text else []

    def finish(self) -> list[Any]:
        return [CallArguments(0, "{}")]


def test_chunks_of_a_call() -> None:
    parser = cast(AnswerParser, Calls())
    made = [chunk["choices"] for chunk in chat_chunks(TOKENS, HEAD, PIECES[1:], parser)][1:]
    call = {"id": "c1", "type": "function", "function": {"name": "add", "arguments": ""}}
    more = {"index": 0, "type": "function", "function": {"arguments": "{}"}}
    assert made == [
        choice(delta={"reasoning_content": "Hm."}),
        choice(delta={"tool_calls": [{"index": 0, **call}]}),
        choice(delta={"tool_calls": [more]}),
        choice(delta={}, finish_reason="tool_calls"),
    ]
