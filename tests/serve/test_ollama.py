"""ollama's API, read by the package `ollama`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx
import ollama
import pytest

from tests.serve.running import Running, running, tiny_place, until
from tetrad.serve.ollama.generate import CallJoiner, as_messages
from tetrad.text.tools import CallArguments, CallBegins, TextDelta

OPTIONS: dict[str, Any] = {"temperature": 0, "num_predict": 12, "seed": 3}
ASKED = [{"role": "user", "content": "Hello"}]


@pytest.fixture(scope="module")
def api(server: Running) -> Iterator[ollama.Client]:
    with ollama.Client(host=server.url) as found:
        yield found


def test_a_stream_joined_is_the_whole(api: ollama.Client) -> None:
    whole = api.chat("tiny", ASKED, options=OPTIONS)
    parts = list(api.chat("tiny", ASKED, options=OPTIONS, stream=True))
    assert "".join(part.message.content or "" for part in parts) == whole.message.content
    assert [part.done for part in parts] == [*[False] * (len(parts) - 1), True]
    assert whole.done_reason == "length" and whole.eval_count == 12
    assert whole.prompt_eval_count and whole.eval_duration


def test_a_prompt_is_a_chat_of_one_message(api: ollama.Client) -> None:
    whole = api.generate("tiny", "Hello", options=OPTIONS)
    assert whole.response == api.chat("tiny", ASKED, options=OPTIONS).message.content
    raw = api.generate("tiny", "Hello", raw=True, options=OPTIONS)
    assert raw.prompt_eval_count and whole.prompt_eval_count
    assert raw.prompt_eval_count < whole.prompt_eval_count


def test_a_format_is_followed(api: ollama.Client) -> None:
    schema = {"type": "object", "properties": {"a": {"type": "boolean"}}, "required": ["a"],
              "additionalProperties": False}  # fmt: skip
    said = api.chat("tiny", ASKED, format=schema, options={"num_predict": 200}).message.content
    assert set(json.loads(said or "")) == {"a"}


def test_models_are_listed_and_described(api: ollama.Client) -> None:
    (model,) = api.list().models
    assert model.model == "tiny" and model.details and model.details.family == "llama"
    shown = api.show("tiny")
    assert shown.modelinfo and shown.modelinfo["general.architecture"] == "llama"
    assert shown.capabilities is not None and "completion" in shown.capabilities


def test_vectors_come_in_order(api: ollama.Client) -> None:
    both = api.embed("tiny", ["a", "bc"]).embeddings
    assert list(both[1]) == list(api.embed("tiny", "bc").embeddings[0])
    assert list(api.embeddings("tiny", "a").embedding) == list(both[0])


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({"options": {"temperature": -1}}, "temperature"),
        ({"options": {"wrong": 1}}, "options.wrong"),
        ({"options": {"num_ctx": 1 << 20}}, "num_ctx"),
        ({"format": "xml"}, "format"),
        ({"keep_alive": "soon"}, "keep_alive"),
        ({"messages": [{"role": "user", "content": "x", "images": ["aaaa"]}]}, "images"),
        ({"messages": [{"role": "user", "content": "x", "tool_calls": 5}]}, "tool_calls"),
    ],
)
def test_a_mistake_is_told_as_ollama_does(
    client: httpx.Client, body: dict[str, Any], said: str
) -> None:
    answer = client.post("/api/chat", json={"model": "tiny", "messages": ASKED, **body})
    assert answer.status_code == 400
    assert set(answer.json()) == {"error"} and said in answer.json()["error"]


def test_models_load_stay_and_go() -> None:
    with running(tiny_place()) as server, ollama.Client(host=server.url) as api:
        assert api.ps().models == []
        assert api.generate("tiny:latest", keep_alive="10m").done_reason == "load"
        (model,) = api.ps().models
        assert model.context_length == 512 and model.expires_at is not None
        assert api.chat("tiny", [], keep_alive=0).done_reason == "unload"
        assert api.ps().models == []
        api.chat("tiny", ASKED, options=OPTIONS, keep_alive=0)
        until(lambda: api.ps().models == [])


def test_calls_are_held_back_until_they_are_whole() -> None:
    calls = CallJoiner()
    assert calls.feed([TextDelta("a"), CallBegins(0, "i", "f"), CallArguments(0, '{"x"')]) == [
        TextDelta("a")
    ]
    again = calls.feed([CallArguments(0, ":1}"), CallBegins(1, "j", "g")])
    assert again == [CallBegins(0, "i", "f"), CallArguments(0, '{"x":1}')]
    assert calls.finish() == [CallBegins(1, "j", "g"), CallArguments(1, "{}")]
    assert calls.feed([CallBegins(2, "k", "h"), CallArguments(2, '{"cut')]) == calls.finish() == []


def test_calls_and_results_are_numbered() -> None:
    call = {"function": {"name": "f", "arguments": {"a": 1}}}
    made = list(
        as_messages(
            [
                {"role": "assistant", "tool_calls": [call, call], "content": ""},
                {"role": "tool", "content": "1", "tool_name": "f"},
                {"role": "tool", "content": "2", "tool_name": "f"},
            ]
        )
    )
    assert [c["id"] for c in made[0]["tool_calls"]] == ["call_0", "call_1"]
    assert [m["tool_call_id"] for m in made[1:]] == ["call_0", "call_1"]
    assert made[0]["tool_calls"][0]["function"]["arguments"] == '{"a": 1}'
