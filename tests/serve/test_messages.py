"""Anthropic's messages: bodies in, content blocks and named events out."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest

from tetrad.serve.anthropic.messages import MessagesBody, as_chat
from tetrad.serve.schema import body_as

ASKED: dict[str, Any] = {
    "model": "tiny",
    "max_tokens": 6,
    "temperature": 0,
    "messages": [{"role": "user", "content": "Hello"}],
}


def events_of(text: str) -> list[tuple[str, dict[str, Any]]]:
    found = []
    for part in text.strip().split("\n\n"):
        if part.startswith(":"):
            continue
        name, data = part.split("\n")
        found.append((name.removeprefix("event: "), json.loads(data.removeprefix("data: "))))
    return found


def test_a_message_is_answered(client: httpx.Client) -> None:
    made = client.post("/v1/messages", json=ASKED).raise_for_status().json()
    assert made["type"] == "message" and made["role"] == "assistant"
    assert made["stop_reason"] == "max_tokens" and made["stop_sequence"] is None
    assert made["usage"]["output_tokens"] == 6
    assert [block["type"] for block in made["content"]] == ["text"]


def test_a_stream_joined_is_the_whole(client: httpx.Client) -> None:
    whole = client.post("/v1/messages", json=ASKED).json()
    text = client.post("/v1/messages", json=ASKED | {"stream": True}).text
    events = events_of(text)
    assert all(name == data["type"] for name, data in events)
    names = [name for name, _ in events]
    assert names[:2] == ["message_start", "content_block_start"]
    assert names[-3:] == ["content_block_stop", "message_delta", "message_stop"]
    joined = "".join(d["delta"]["text"] for n, d in events if n == "content_block_delta")
    assert joined == whole["content"][0]["text"]
    assert events[-2][1]["delta"] == {"stop_reason": "max_tokens", "stop_sequence": None}
    assert events[-2][1]["usage"]["output_tokens"] == 6


def test_a_stop_sequence_is_told(client: httpx.Client) -> None:
    text = client.post("/v1/messages", json=ASKED).json()["content"][0]["text"]
    made = client.post("/v1/messages", json=ASKED | {"stop_sequences": [text[1]]}).json()
    assert (made["stop_reason"], made["stop_sequence"]) == ("stop_sequence", text[1])


def test_tokens_are_counted(client: httpx.Client) -> None:
    asked = {name: ASKED[name] for name in ("model", "messages")}
    counted = client.post("/v1/messages/count_tokens", json=asked).json()["input_tokens"]
    usage = client.post("/v1/messages", json=ASKED).json()["usage"]
    assert counted == usage["input_tokens"] + usage["cache_read_input_tokens"]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"max_tokens": None}, "max_tokens is needed"),
        ({"temperature": 2}, "temperature"),
        ({"messages": []}, "messages"),
        ({"messages": [{"role": "system", "content": "x"}]}, "messages[0].role"),
        ({"messages": [{"role": "user", "content": [{"type": "image"}]}]}, "text alone"),
        ({"wrong": 1}, "wrong"),
        ({"tool_choice": {"type": "some"}}, "tool_choice"),
    ],
)
def test_a_mistake_is_named_in_its_shape(
    client: httpx.Client, change: dict[str, Any], said: str
) -> None:
    answer = client.post("/v1/messages", json=ASKED | change)
    body = answer.json()
    assert answer.status_code == 400
    assert body["type"] == "error" and body["error"]["type"] == "invalid_request_error"
    assert said in body["error"]["message"]


def test_calls_and_their_results_become_a_chat() -> None:
    body = body_as(
        MessagesBody,
        {
            "model": "m",
            "system": [{"type": "text", "text": "Be brief."}],
            "max_tokens": 9,
            "tools": [{"name": "f", "input_schema": {"type": "object"}}],
            "tool_choice": {"type": "any", "disable_parallel_tool_use": True},
            "thinking": {"type": "enabled", "budget_tokens": 64},
            "messages": [
                {"role": "user", "content": "Hi"},
                {
                    "role": "assistant",
                    "content": [
                        {"type": "thinking", "thinking": "Hm", "signature": ""},
                        {"type": "text", "text": "See"},
                        {"type": "tool_use", "id": "t1", "name": "f", "input": {"a": "ä"}},
                    ],
                },
                {
                    "role": "user",
                    "content": [
                        {"type": "tool_result", "tool_use_id": "t1", "content": "42"},
                        {"type": "text", "text": "And?"},
                    ],
                },
            ],
        },
    )
    chat = as_chat(body)
    assert chat["tool_choice"] == "required" and chat["parallel_tool_calls"] is False
    assert chat["reasoning_budget"] == 64
    assert [m["role"] for m in chat["messages"]] == ["system", "user", "assistant", "tool", "user"]
    call = chat["messages"][2]
    assert call["reasoning_content"] == "Hm"
    assert call["tool_calls"][0]["function"] == {"name": "f", "arguments": '{"a": "ä"}'}
    assert chat["messages"][3] == {"role": "tool", "tool_call_id": "t1", "content": "42"}
