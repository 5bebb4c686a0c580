"""OpenAI's responses: items in, items and numbered events out; read by the package `openai`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import openai
import pytest

from tests.serve.running import Running
from tetrad.serve.openai.responses import ResponsesBody, as_chat
from tetrad.serve.schema import body_as

SAME: dict[str, Any] = {"model": "tiny", "max_output_tokens": 20, "temperature": 0}


@pytest.fixture(scope="module")
def api(server: Running) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0) as found:
        yield found


def test_a_response_is_text_and_usage(api: openai.OpenAI) -> None:
    made = api.responses.create(input="Hello", instructions="Be brief.", **SAME)
    assert made.status == "incomplete"
    assert made.incomplete_details is not None
    assert made.incomplete_details.reason == "max_output_tokens"
    assert made.usage is not None and made.usage.output_tokens == 20
    assert made.output_text and made.output[0].type == "message"


def test_a_stream_joined_is_the_whole(api: openai.OpenAI) -> None:
    whole = api.responses.create(input="Hello", **SAME)
    events = list(api.responses.create(input="Hello", stream=True, **SAME))
    assert [event.sequence_number for event in events] == list(range(len(events)))
    kinds = [event.type for event in events]
    assert kinds[:4] == [
        "response.created", "response.in_progress", "response.output_item.added",
        "response.content_part.added",
    ]  # fmt: skip
    assert kinds[-4:] == [
        "response.output_text.done", "response.content_part.done", "response.output_item.done",
        "response.incomplete",
    ]  # fmt: skip
    joined = "".join(e.delta for e in events if e.type == "response.output_text.delta")
    last: Any = events[-1]
    assert joined == whole.output_text == last.response.output_text


@pytest.mark.parametrize(
    ("change", "param"),
    [
        ({"previous_response_id": "resp_1"}, "previous_response_id"),
        ({"input": [{"type": "computer_call"}]}, "input[0].type"),
        ({"tools": [{"type": "web_search"}]}, "tools[0].type"),
        ({"temperature": -1.0}, "temperature"),
        ({"text": {"format": {"type": "json_schema", "name": "x"}}}, "text.format.schema"),
    ],
)
def test_a_mistake_names_its_param(api: openai.OpenAI, change: dict[str, Any], param: str) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        api.responses.create(**({"input": "Hello"} | SAME | change))
    assert caught.value.param == param


def test_calls_and_their_results_become_a_chat() -> None:
    body = body_as(
        ResponsesBody,
        {
            "input": [
                {"role": "user", "content": [{"type": "input_text", "text": "Hi"}]},
                {"type": "reasoning", "summary": []},
                {"type": "function_call", "call_id": "c1", "name": "f", "arguments": "{}"},
                {"type": "function_call_output", "call_id": "c1", "output": "42"},
            ],
            "tools": [{"type": "function", "name": "f", "parameters": {"type": "object"}}],
            "tool_choice": {"type": "function", "name": "f"},
            "text": {"format": {"type": "json_schema", "name": "n", "schema": {"type": "object"}}},
        },
    )
    chat = as_chat(body)
    assert [message["role"] for message in chat["messages"]] == ["user", "assistant", "tool"]
    assert chat["tools"][0]["function"]["name"] == "f"
    assert chat["tool_choice"] == {"type": "function", "function": {"name": "f"}}
    assert chat["response_format"]["json_schema"]["schema"] == {"type": "object"}
