"""Serve, Anthropic, messages: POST /v1/messages and /v1/messages/count_tokens. JSON in; content
blocks, whole or as a stream of named events, out.

A body becomes the one that OpenAI's chat would have had, and goes the same way from there.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct

from tetrad.models.decoding.generation import Completion
from tetrad.serve.app import ApiCall, Response, Route, json_response
from tetrad.serve.blocks import AnswerBlock, BlockChange, BlockRow
from tetrad.serve.conversation import AnswerEnd, Answers, answering, prompt_length
from tetrad.serve.errors import ApiError, invalid
from tetrad.serve.openai.chat import chat_request
from tetrad.serve.openai.shapes import Json, fresh_name
from tetrad.serve.prompt import ChatRequest
from tetrad.serve.schema import ChatBody, body_as, split_settings
from tetrad.serve.sse import EventStream, named_event

KINDS = {  # of errors, by their status
    400: "invalid_request_error", 401: "authentication_error", 403: "permission_error",
    404: "not_found_error", 405: "invalid_request_error", 413: "request_too_large",
    429: "rate_limit_error", 503: "overloaded_error", 504: "timeout_error",
}  # fmt: skip
CHOICES = {"auto": "auto", "any": "required", "none": "none"}
IGNORED = ("metadata", "service_tier", "container", "mcp_servers", "betas", "cache_control",
           "context_management")  # fmt: skip


class MessageTool(Struct):
    name: str
    input_schema: dict[str, Any]
    description: str = ""
    type: Literal["custom"] | None = None
    cache_control: dict[str, Any] | None = None
    strict: bool | None = None


class MessageChoice(Struct, forbid_unknown_fields=True):
    type: Literal["auto", "any", "tool", "none"]
    name: str | None = None
    disable_parallel_tool_use: bool = False


class Thinking(Struct, forbid_unknown_fields=True):
    type: Literal["enabled", "disabled", "adaptive"]
    budget_tokens: Annotated[int, Meta(ge=1)] | None = None


class MessagesBody(Struct, forbid_unknown_fields=True, kw_only=True):
    model: str
    messages: Annotated[list[dict[str, Any]], Meta(min_length=1)]
    max_tokens: Annotated[int, Meta(ge=1)] | None = None
    system: str | list[dict[str, Any]] | None = None
    stop_sequences: list[str] | None = None
    stream: bool = False
    temperature: Annotated[float, Meta(ge=0, le=1)] | None = None
    top_k: Annotated[int, Meta(ge=0)] | None = None
    top_p: Annotated[float, Meta(ge=0, le=1)] | None = None
    tools: list[MessageTool] | None = None
    tool_choice: MessageChoice | None = None
    thinking: Thinking | None = None


def anthropic_error(error: ApiError) -> bytes:
    return msgspec.json.encode(error_body(error))


def error_body(error: ApiError) -> Json:
    kind = KINDS.get(error.status, "api_error")
    return {"type": "error", "error": {"type": kind, "message": error.message}}


# -- in --------------------------------------------------------------------------------------------


async def message_request(call: ApiCall) -> tuple[MessagesBody, ChatRequest]:
    data = {name: value for name, value in (await call.data()).items() if name not in IGNORED}
    body = body_as(MessagesBody, data)
    settings, rest = split_settings(as_chat(body))
    return body, chat_request(body_as(ChatBody, rest), settings, call)


def as_chat(body: MessagesBody) -> Json:
    """The body that asks OpenAI's chat for the same."""
    system = [{"role": "system", "content": plain_text(body.system, "system")}]
    found: Json = {
        "model": body.model,
        "messages": [*(system if body.system else ()), *as_messages(body.messages)],
        "max_tokens": body.max_tokens,
        "stop": body.stop_sequences,
        "temperature": body.temperature,
        "top_k": body.top_k,
        "top_p": body.top_p,
    }
    if body.tools:
        found["tools"] = [as_tool(tool) for tool in body.tools]
    return found | as_choice(body.tool_choice) | as_effort(body.thinking)


def as_tool(tool: MessageTool) -> Json:
    function = {
        "name": tool.name,
        "description": tool.description,
        "parameters": tool.input_schema,
    }
    return {"type": "function", "function": function}


def as_choice(choice: MessageChoice | None) -> Json:
    if choice is None:
        return {}
    named = {"type": "function", "function": {"name": choice.name}}
    return {
        "tool_choice": named if choice.type == "tool" else CHOICES[choice.type],
        "parallel_tool_calls": not choice.disable_parallel_tool_use,
    }


def as_effort(thinking: Thinking | None) -> Json:
    """Without a word about it a model thinks as its template has it."""
    if thinking is None:
        return {}
    if thinking.type == "disabled":
        return {"reasoning_effort": "none"}
    return {} if thinking.budget_tokens is None else {"reasoning_budget": thinking.budget_tokens}


def as_messages(given: Iterable[Mapping[str, Any]]) -> Iterator[Json]:
    for at, message in enumerate(given):
        role, content, place = message.get("role"), message.get("content"), f"messages[{at}]"
        if role not in ("user", "assistant"):
            raise invalid(
                f"{place}.role: expected user or assistant, got {role!r:.40}", f"{place}.role"
            )
        if isinstance(content, str):
            yield {"role": role, "content": content}
        elif isinstance(content, list):
            yield from as_turn(role, content, f"{place}.content")
        else:
            raise invalid(f"{place}.content: expected text or blocks", f"{place}.content")


def as_turn(role: str, blocks: list[Any], place: str) -> Iterator[Json]:
    """Results of tools are messages of their own, before what else a user says."""
    texts, calls, thoughts = [], [], []
    for i, block in enumerate(blocks):
        kind = block.get("type") if isinstance(block, dict) else None
        if kind == "tool_result" and role == "user":
            content = plain_text(block.get("content") or "", f"{place}[{i}].content")
            yield {"role": "tool", "tool_call_id": block.get("tool_use_id"), "content": content}
        elif kind == "tool_use" and role == "assistant":
            calls.append(as_call(block, f"{place}[{i}]"))
        elif kind == "thinking" and role == "assistant":
            thoughts.append(str(block.get("thinking") or ""))
        elif kind != "redacted_thinking":
            texts.append(plain_text([block], f"{place}[{i}]"))
    if texts or calls:
        more: Json = {"tool_calls": calls} if calls else {}
        if thoughts:
            more["reasoning_content"] = "".join(thoughts)
        yield {"role": role, "content": "\n".join(texts)} | more


def as_call(block: Mapping[str, Any], place: str) -> Json:
    name, given = block.get("name"), block.get("input")
    if not isinstance(name, str) or not isinstance(given, dict):
        raise invalid(f"{place}: a tool_use has a name, and an object as input", place)
    function = {"name": name, "arguments": json.dumps(given, ensure_ascii=False)}
    return {"id": block.get("id"), "type": "function", "function": function}


def plain_text(content: Any, place: str) -> str:
    """Text, or blocks that are all text."""
    if content is None or isinstance(content, str):
        return content or ""
    texts = []
    for part in content if isinstance(content, list) else [content]:
        kind, text = (part.get("type"), part.get("text")) if isinstance(part, dict) else (None, 0)
        if kind != "text" or not isinstance(text, str):
            said = f"{place}: expected text, got {kind!r:.40}: models here read text alone"
            raise invalid(said, place)
        texts.append(text)
    return "\n".join(texts)


# -- out -------------------------------------------------------------------------------------------


async def messages(call: ApiCall) -> Response | None:
    body, request = await message_request(call)
    if body.max_tokens is None:
        raise invalid("max_tokens is needed, and missing", "max_tokens")
    async with answering(call.store, request) as answer:
        call.notes |= {"model": answer.name, "prompt_tokens": answer.prompt_tokens}
        if body.stream:
            await stream(call, answer)
            return None
        return json_response(await whole(answer))


async def count_tokens(call: ApiCall) -> Response:
    _, request = await message_request(call)
    return json_response({"input_tokens": await prompt_length(call.store, request)})


def head(answer: Answers) -> Json:
    """A message of which nothing has been said."""
    return {
        "id": fresh_name("msg"), "type": "message", "role": "assistant", "model": answer.name,
        "content": [], "stop_reason": None, "stop_sequence": None,
        "usage": usage(answer.prompt_tokens, 0, 0),
    }  # fmt: skip


def usage(prompt: int, cached: int, written: int) -> Json:
    """Tokens that were in the cache are counted apart."""
    return {
        "input_tokens": prompt - cached, "cache_read_input_tokens": cached,
        "cache_creation_input_tokens": 0, "output_tokens": written,
    }  # fmt: skip


def usage_of(done: Completion) -> Json:
    return usage(done.prompt_tokens, done.cached_tokens, len(done.tokens))


def ending(end: AnswerEnd) -> Json:
    """Why an answer ended."""
    reasons = {"length": "max_tokens", "tool_calls": "tool_use"}
    if end.completion.stop is not None:
        return {"stop_reason": "stop_sequence", "stop_sequence": end.completion.stop}
    return {"stop_reason": reasons.get(end.reason, "end_turn"), "stop_sequence": None}


async def whole(answer: Answers) -> Json:
    row, end = BlockRow(), None
    async for batch in answer.batches():
        for event in batch:
            if isinstance(event, AnswerEnd):
                end = event
            else:
                _ = [*row.feed(event.events)]
    assert end is not None
    content = [shown_block(block) for block in row.blocks]
    return head(answer) | {"content": content, "usage": usage_of(end.completion)} | ending(end)


def shown_block(block: AnswerBlock) -> Json:
    if block.kind == "text":
        return {"type": "text", "text": block.text}
    if block.kind == "reasoning":
        return {"type": "thinking", "thinking": block.text, "signature": ""}
    return {"type": "tool_use", "id": block.call_id, "name": block.name, "input": block.arguments}


EMPTY = {
    "text": {"type": "text", "text": ""},
    "reasoning": {"type": "thinking", "thinking": "", "signature": ""},
}
DELTAS = {
    "text": ("text_delta", "text"),
    "reasoning": ("thinking_delta", "thinking"),
    "call": ("input_json_delta", "partial_json"),
}


def changed(change: BlockChange) -> bytes:
    """One change of a block, as an event."""
    block = change.block
    if change.what == "opened":
        call = {"type": "tool_use", "id": block.call_id, "name": block.name, "input": {}}
        return event("content_block_start", index=block.index,
                     content_block=EMPTY.get(block.kind, call))  # fmt: skip
    if change.what == "closed":
        return event("content_block_stop", index=block.index)
    kind, name = DELTAS[block.kind]
    return event("content_block_delta", index=block.index, delta={"type": kind, name: change.text})


def event(kind: str, **fields: Any) -> bytes:
    return named_event(kind, {"type": kind, **fields})


async def stream(call: ApiCall, answer: Answers) -> None:
    row = BlockRow()
    with EventStream(call.reply, call.headers, call.app.limits.quiet_seconds) as events:
        await events.send(event("message_start", message=head(answer)))
        try:
            async for batch in answer.batches():
                for one in batch:
                    if isinstance(one, AnswerEnd):
                        parts = [*map(changed, row.close()), *last_events(one)]
                        call.notes["completion_tokens"] = len(one.completion.tokens)
                    else:
                        parts = [*map(changed, row.feed(one.events))]
                    if parts:
                        await events.send(b"".join(parts))
        except Exception as error:
            await events.send(named_event("error", error_body(call.app.told(call, error))))


def last_events(end: AnswerEnd) -> Iterator[bytes]:
    yield event("message_delta", delta=ending(end), usage=usage_of(end.completion))
    yield event("message_stop")


ROUTES = [
    Route("POST", "/v1/messages", messages, shape=anthropic_error),
    Route("POST", "/v1/messages/count_tokens", count_tokens, shape=anthropic_error),
]
