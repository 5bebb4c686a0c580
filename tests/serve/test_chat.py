"""POST /v1/chat/completions: whole, streamed, several choices, mistakes."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest

from tests.serve.running import Running

PATH = "/v1/chat/completions"
ASKED: dict[str, Any] = {
    "messages": [{"role": "user", "content": "the world"}],
    "max_tokens": 12,
    "seed": 5,
}


def ask(client: httpx.Client, **more: Any) -> dict[str, Any]:
    found = client.post(PATH, json=ASKED | more)
    assert found.status_code == 200, found.text
    return found.json()  # type: ignore[no-any-return]


def parts(client: httpx.Client, path: str = PATH, **more: Any) -> list[dict[str, Any]]:
    """The events of a stream, without the last."""
    with client.stream("POST", path, json=ASKED | more | {"stream": True}) as answer:
        assert answer.status_code == 200
        assert answer.headers["content-type"].startswith("text/event-stream")
        lines = [line for line in answer.iter_lines() if line]
    assert lines[-1] == "data: [DONE]"
    return [json.loads(line.removeprefix("data: ")) for line in lines[:-1]]


def joined(events: list[dict[str, Any]], index: int = 0) -> str:
    chosen = [c for e in events for c in e["choices"] if c["index"] == index]
    return "".join(choice["delta"].get("content") or "" for choice in chosen)


def test_an_answer_is_that_of_the_engine(server: Running, client: httpx.Client) -> None:
    found = ask(client)
    model = next(iter(server.app.store.loaded.values())).model
    done = model.chat(ASKED["messages"], max_tokens=12, seed=5)
    assert found["choices"][0]["message"] == {
        "role": "assistant",
        "content": done.text,
        "refusal": None,
    }
    assert found["choices"][0]["finish_reason"] == done.finish_reason
    assert found["usage"]["completion_tokens"] == len(done.tokens)
    assert found["object"] == "chat.completion" and found["model"] == "tiny"


def test_a_stream_joined_is_the_whole_answer(client: httpx.Client) -> None:
    whole = ask(client, n=2, stop=["zzz"])
    events = parts(client, n=2, stop=["zzz"], stream_options={"include_usage": True})
    assert [joined(events, i) for i in range(2)] == [
        choice["message"]["content"] for choice in whole["choices"]
    ]
    assert events[0]["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    assert events[-1]["choices"] == [] and all(e["usage"] is None for e in events[:-1])
    for name in ("prompt_tokens", "completion_tokens", "total_tokens"):
        assert events[-1]["usage"][name] == whole["usage"][name]
    reasons = {c["index"]: c["finish_reason"] for e in events for c in e["choices"]}
    assert reasons == {c["index"]: c["finish_reason"] for c in whole["choices"]}


def test_the_seed_gives_the_answer_again(client: httpx.Client) -> None:
    first, second = (ask(client, n=3)["choices"] for _ in range(2))
    assert first == second
    # the second of several choices has the next seed
    assert ask(client, seed=6)["choices"][0]["message"] == first[1]["message"]


def test_log_probabilities(client: httpx.Client) -> None:
    found = ask(client, logprobs=True, top_logprobs=3)["choices"][0]["logprobs"]["content"]
    assert len(found) == 12 and all(len(one["top_logprobs"]) == 3 for one in found)
    streamed = parts(client, logprobs=True, top_logprobs=3)
    tables = [c["logprobs"] for e in streamed for c in e["choices"] if c["logprobs"]]
    assert [one for table in tables for one in table["content"]] == found
    bare = ask(client, logprobs=True)["choices"][0]["logprobs"]["content"]
    assert [one["logprob"] for one in bare] == [one["logprob"] for one in found]
    assert all(one["top_logprobs"] == [] for one in bare)


def test_a_bias_forces_a_token(server: Running, client: httpx.Client) -> None:
    tokenizer = next(iter(server.app.store.loaded.values())).model.tokenizer
    token = tokenizer.encode("w", add_special=False)[0]
    for bias in ({str(token): 100}, [[token, 100.0]]):
        assert (
            ask(client, logit_bias=bias, max_tokens=3)["choices"][0]["message"]["content"] == "www"
        )


@pytest.mark.parametrize(
    "wanted",
    [
        {"response_format": {"type": "json_object"}},
        {"response_format": {"type": "json_schema", "json_schema": {"name": "a", "strict": True,
         "schema": {"type": "object", "properties": {"a": {"type": "boolean"}},
                    "required": ["a"], "additionalProperties": False}}}},
        {"json_schema": {"type": "array", "items": {"type": "boolean"}, "maxItems": 2}},
        {"grammar": 'root ::= "[" [0-9] "]"'},
    ],
    ids=["object", "schema", "llama schema", "grammar"],
)  # fmt: skip
def test_an_answer_keeps_to_its_form(client: httpx.Client, wanted: dict[str, Any]) -> None:
    found = ask(client, max_tokens=200, **wanted)["choices"][0]
    json.loads(found["message"]["content"])
    assert found["finish_reason"] == "stop"


def test_parts_of_text_and_a_developer(client: httpx.Client) -> None:
    plain = [{"role": "system", "content": "a"}, {"role": "user", "content": "b\nc"}]
    spelt = [
        {"role": "developer", "content": [{"type": "text", "text": "a"}]},
        {"role": "user", "content": [{"type": "text", "text": "b"}, {"type": "text", "text": "c"}]},
    ]
    first, second = (ask(client, messages=m)["choices"] for m in (plain, spelt))
    assert first == second


USER = {"role": "user", "content": "a"}
MISTAKES: list[tuple[dict[str, Any], int, str | None]] = [
    ({"messages": []}, 400, "messages"),
    ({"messages": "hello"}, 400, "messages"),
    ({"messages": [{"role": "alien", "content": "a"}]}, 400, "messages[0].role"),
    ({"messages": [{"role": "user"}]}, 400, "messages[0].content"),
    ({"messages": [{"role": "user", "content": 3}]}, 400, "messages[0].content"),
    ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, 400,
     "messages[0].content[0]"),
    ({"temperature": "hot"}, 400, "temperature"),
    ({"temperature": -0.1}, 400, "temperature"),
    ({"top_p": 1.5}, 400, "top_p"),
    ({"top_k": 1.5}, 400, "top_k"),
    ({"mirostat": 3}, 400, "mirostat"),
    ({"repeat_penalty": 0}, 400, "repeat_penalty"),
    ({"presence_penalty": -1e308}, 400, "presence_penalty"),
    ({"frequency_penalty": -1e38}, 400, "frequency_penalty"),
    ({"presence_penalty": -1e30, "frequency_penalty": -1e30}, 200, None),
    ({"presence_penalty": 1e30, "frequency_penalty": 1e30}, 200, None),
    ({"seed": 1 << 63}, 200, None),
    ({"seed": "a"}, 400, "seed"),
    ({"n": 0}, 400, "n"),
    ({"n": 1000}, 400, "n"),
    ({"max_tokens": -2}, 400, "max_tokens"),
    ({"max_completion_tokens": 1.5}, 400, "max_completion_tokens"),
    ({"stop": [1]}, 400, "stop[0]"),
    ({"stop": ["a"] * 65}, 400, "stop"),
    ({"stream": "yes"}, 400, "stream"),
    ({"stream_options": {"include_usag": True}}, 400, "stream_options.include_usag"),
    ({"top_logprobs": 21, "logprobs": True}, 400, "top_logprobs"),
    ({"top_logprobs": 2}, 400, "top_logprobs"),
    ({"logit_bias": {"a": 1}}, 400, "logit_bias"),
    ({"logit_bias": {"999999": 1}}, 400, "logit_bias"),
    ({"ignore_eos": 1}, 400, "ignore_eos"),
    ({"response_format": {"type": "yaml"}}, 400, "response_format.type"),
    ({"response_format": {"type": "json_schema"}}, 400, "response_format.json_schema"),
    ({"grammar": "root ::= ("}, 400, "grammar"),
    ({"grammar": 'root ::= "a"', "json_schema": {}}, 400, "json_schema"),
    ({"grammar": "a" * 70_000}, 400, "grammar"),
    ({"chat_template_kwargs": {"messages": []}}, 400, "chat_template_kwargs"),
    ({"chat_template_kwargs": 3}, 400, "chat_template_kwargs"),
    ({"temprature": 1}, 400, "temprature"),
    ({"max_tokens": None, "stop": None, "n": None, "user": "me", "store": True}, 200, None),
    ({"messages": [{"role": "user", "content": "the world " * 400}]}, 400, "messages"),
]  # fmt: skip


@pytest.mark.parametrize(("change", "status", "param"), MISTAKES, ids=lambda v: str(v)[:40])
def test_mistakes_are_named(
    client: httpx.Client, change: dict[str, Any], status: int, param: str | None
) -> None:
    found = client.post(PATH, json={"messages": [USER], "max_tokens": 2} | change)
    assert found.status_code == status, found.text
    if status != 200:
        error = found.json()["error"]
        assert error["type"] == "invalid_request_error" and error["param"] == param
        assert error.keys() == {"message", "type", "param", "code"} and error["message"]


def test_a_prompt_that_is_too_long_says_by_how_much(client: httpx.Client) -> None:
    found = client.post(PATH, json={"messages": [{"role": "user", "content": "the world " * 400}]})
    error = found.json()["error"]
    assert (
        error["code"] == "context_length_exceeded" and "the context holds 512" in error["message"]
    )


BODIES = [
    (b"", "empty"),
    (b"{", "no JSON"),
    (b"[]", "object"),
    (b'{"a": 1, "a": 2}', "twice"),
    (b'{"a": NaN}', "NaN"),
    (b'{"a": 1e999}', "too large"),
    (b'{"a": ' + b"1" * 20 + b"}", "19 digits"),
    (b'{"a": ' + b"[" * 40 + b"]" * 40 + b"}", "nested"),
    (b'{"a": ' + b"[" * 100_000 + b"]" * 100_000 + b"}", "nested"),
    (b'{"a": "\xff"}', "UTF-8"),
    (b'{"a": "\\ud800"}', "Unicode"),
]


@pytest.mark.parametrize(("body", "said"), BODIES, ids=[said for _, said in BODIES])
def test_what_is_no_plain_json_is_refused(client: httpx.Client, body: bytes, said: str) -> None:
    found = client.post(PATH, content=body)
    assert found.status_code == 400 and said in found.json()["error"]["message"]


def test_brackets_in_texts_are_no_nesting(client: httpx.Client) -> None:
    ask(client, messages=[{"role": "user", "content": '[[{"\\' * 40}], max_tokens=1)
