"""Serve, OpenAI, responses: POST /v1/responses. Items in; items, whole or as a stream of numbered
events, out.

A body becomes the one that a chat would have had, and goes the same way from there. Nothing is
kept: a conversation that goes on is sent again, `previous_response_id` is refused.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

from tetrad.serve.app import ApiCall, Response, Route, json_response
from tetrad.serve.blocks import AnswerBlock, BlockChange, BlockRow
from tetrad.serve.conversation import AnswerEnd, Answers, answering
from tetrad.serve.errors import ApiError, invalid
from tetrad.serve.openai.chat import chat_request
from tetrad.serve.openai.shapes import Json, fresh_name
from tetrad.serve.schema import IGNORED, SAMPLING, ChatBody, body_as, split_settings
from tetrad.serve.sse import EventStream, named_event

KEPT = ("previous_response_id", "conversation", "background", "prompt")  # need a memory of ours
PASSED_OVER = ("include", "truncation", "max_tool_calls", "stream_options")
PARTS = ("input_text", "output_text", "text", "refusal")


class TextFormat(Struct):
    type: Literal["text", "json_object", "json_schema"] = "text"
    name: str = ""
    schema: dict[str, Any] | None = None
    strict: bool | None = None
    description: str | None = None


class TextOptions(Struct):
    format: TextFormat | None = None
    verbosity: str | None = None


class ReasoningOptions(Struct):
    effort: str | None = None
    summary: str | None = None


class ResponsesBody(Struct, forbid_unknown_fields=True, kw_only=True):
    input: str | list[dict[str, Any]]
    model: str | None = None
    instructions: str | None = None
    max_output_tokens: Annotated[int, Meta(ge=1)] | None = None
    stream: bool = False
    text: TextOptions | None = None
    reasoning: ReasoningOptions | None = None
    tools: list[dict[str, Any]] | None = None
    tool_choice: str | dict[str, Any] | None = None
    parallel_tool_calls: bool = True
    top_logprobs: Annotated[int, Meta(ge=0, le=20)] | None = None


# -- in --------------------------------------------------------------------------------------------


def read_body(data: Json) -> tuple[ResponsesBody, Json]:
    """(the body, settings that draw tokens)."""
    for name in KEPT:
        if data.get(name):
            said = f"{name} is not supported: nothing is kept here, send the whole conversation"
            raise invalid(said, name, "unsupported_parameter")
    own = {n: v for n, v in data.items() if n not in (*SAMPLING, *PASSED_OVER, *IGNORED)}
    return body_as(ResponsesBody, own), {n: v for n, v in data.items() if n in SAMPLING}


def as_chat(body: ResponsesBody) -> Json:
    """The body that asks the chat endpoint for the same."""
    system = [{"role": "system", "content": body.instructions}] if body.instructions else []
    found: Json = {
        "model": body.model,
        "messages": [*system, *as_messages(body.input)],
        "max_completion_tokens": body.max_output_tokens,
        "parallel_tool_calls": body.parallel_tool_calls,
        "reasoning_effort": None if body.reasoning is None else body.reasoning.effort,
        "response_format": as_format(body.text.format if body.text else None),
        "tool_choice": as_choice(body.tool_choice),
    }
    if body.tools:
        found["tools"] = [as_tool(tool, f"tools[{i}]") for i, tool in enumerate(body.tools)]
    return found


def as_format(wanted: TextFormat | None) -> Json | None:
    if wanted is None or wanted.type == "text":
        return None
    if wanted.type == "json_object":
        return {"type": "json_object"}
    if wanted.schema is None:
        raise invalid("text.format.schema is needed, and missing", "text.format.schema",
                      "missing_required_parameter")  # fmt: skip
    schema = {"name": wanted.name, "schema": wanted.schema, "strict": wanted.strict}
    return {"type": "json_schema", "json_schema": schema}


def as_choice(choice: str | Mapping[str, Any] | None) -> Any:
    if isinstance(choice, Mapping) and choice.get("type") == "function" and "name" in choice:
        return {"type": "function", "function": {"name": choice["name"]}}
    return choice


def as_tool(tool: Mapping[str, Any], place: str) -> Json:
    """Functions alone: what else OpenAI's own servers do (searching, running code) is not here."""
    if tool.get("type") != "function":
        said = f"{place}.type: expected function, got {tool.get('type')!r:.40}"
        raise invalid(said, f"{place}.type", "invalid_value")
    return {"type": "function", "function": {k: v for k, v in tool.items() if k != "type"}}


def as_messages(given: str | list[dict[str, Any]]) -> Iterator[Json]:
    if isinstance(given, str):
        yield {"role": "user", "content": given}
        return
    for at, item in enumerate(given):
        yield from as_message(item, f"input[{at}]")


def as_message(item: Mapping[str, Any], place: str) -> Iterator[Json]:
    kind = item.get("type", "message")
    if kind == "message":
        yield {"role": item.get("role"), "content": content_text(item.get("content"), place)}
    elif kind == "function_call":
        function = {"name": item.get("name"), "arguments": item.get("arguments")}
        call = {"id": item.get("call_id"), "type": "function", "function": function}
        yield {"role": "assistant", "content": None, "tool_calls": [call]}
    elif kind == "function_call_output":
        content = content_text(item.get("output"), place)
        yield {"role": "tool", "tool_call_id": item.get("call_id"), "content": content}
    elif kind != "reasoning":  # what a model thought before is not shown to it again
        raise invalid(f"{place}.type: {kind!r:.40} is not known here", f"{place}.type")


def content_text(content: Any, place: str) -> str:
    if isinstance(content, str):
        return content
    texts = []
    for part in content if isinstance(content, list) else [content]:
        kind = part.get("type") if isinstance(part, dict) else None
        text = part.get("refusal" if kind == "refusal" else "text") if kind in PARTS else None
        if not isinstance(text, str):
            said = f"{place}.content: expected text, got {kind!r:.40}: models here read text alone"
            raise invalid(said, f"{place}.content", "invalid_value")
        texts.append(text)
    return "\n".join(texts)


# -- out -------------------------------------------------------------------------------------------


async def responses(call: ApiCall) -> Response | None:
    body, settings = read_body(await call.data())
    sampling, rest = split_settings(as_chat(body) | settings)
    request = chat_request(body_as(ChatBody, rest), sampling, call)
    async with answering(call.store, request) as answer:
        call.notes |= {"model": answer.name, "prompt_tokens": answer.prompt_tokens}
        made = ResponseObject(body, settings, answer)
        if body.stream:
            await stream(call, answer, made)
            return None
        async for batch in answer.batches():
            for event in batch:
                if isinstance(event, AnswerEnd):
                    made.end(event)
                else:
                    _ = [*made.row.feed(event.events)]
        return json_response(made.shown())


class ResponseObject:
    """A response, as far as it has come."""

    def __init__(self, body: ResponsesBody, settings: Json, answer: Answers) -> None:
        self.row, self.ended = BlockRow(), None  # type: tuple[BlockRow, AnswerEnd | None]
        self.ids: list[str] = []
        self.head = self._head(body, settings, answer.name)

    def _head(self, body: ResponsesBody, settings: Json, model: str) -> Json:
        wanted = body.text.format if body.text and body.text.format else TextFormat()
        return {
            "id": fresh_name("resp"), "object": "response", "created_at": int(time.time()),
            "model": model, "status": "in_progress", "error": None, "incomplete_details": None,
            "instructions": body.instructions, "max_output_tokens": body.max_output_tokens,
            "output": [], "parallel_tool_calls": body.parallel_tool_calls,
            "previous_response_id": None, "store": False, "truncation": "disabled",
            "reasoning": {"effort": body.reasoning and body.reasoning.effort, "summary": None},
            "temperature": settings.get("temperature"), "top_p": settings.get("top_p"),
            "text": {"format": {"type": wanted.type}}, "tool_choice": body.tool_choice or "auto",
            "tools": body.tools or [], "usage": None, "user": None, "metadata": {},
        }  # fmt: skip

    def end(self, event: AnswerEnd) -> None:
        self.ended = event

    def item_id(self, block: AnswerBlock) -> str:
        names = {"text": "msg", "reasoning": "rs", "call": "fc"}
        while len(self.ids) <= block.index:
            self.ids.append(fresh_name(names[self.row.blocks[len(self.ids)].kind]))
        return self.ids[block.index]

    def item(self, block: AnswerBlock, *, is_done: bool = True) -> Json:
        status = "completed" if is_done else "in_progress"
        head = {"id": self.item_id(block), "status": status}
        if block.kind == "call":
            arguments = block.text if is_done else ""
            return head | {"type": "function_call", "call_id": block.call_id, "name": block.name,
                           "arguments": arguments}  # fmt: skip
        content = [part(block, block.text)] if is_done else []
        if block.kind == "reasoning":
            return head | {"type": "reasoning", "summary": [], "content": content}
        return head | {"type": "message", "role": "assistant", "content": content}

    def shown(self) -> Json:
        """The whole; of one that has not ended, what is known of it."""
        if self.ended is None:
            return self.head
        output = [self.item(block) for block in self.row.blocks]
        is_cut = self.ended.reason == "length"
        return self.head | {
            "status": "incomplete" if is_cut else "completed",
            "incomplete_details": {"reason": "max_output_tokens"} if is_cut else None,
            "output": output,
            "usage": self.usage(self.ended),
        }

    def usage(self, ended: AnswerEnd) -> Json:
        done = ended.completion
        prompt, written = done.prompt_tokens, len(done.tokens)
        return {
            "input_tokens": prompt, "output_tokens": written, "total_tokens": prompt + written,
            "input_tokens_details": {"cached_tokens": done.cached_tokens},
            "output_tokens_details": {"reasoning_tokens": 0},
        }  # fmt: skip


def part(block: AnswerBlock, text: str) -> Json:
    if block.kind == "reasoning":
        return {"type": "reasoning_text", "text": text}
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}


class ResponseEvents:
    """The events of a stream, in their order and numbered."""

    def __init__(self, made: ResponseObject) -> None:
        self.made, self.number = made, 0

    def event(self, kind: str, **fields: Any) -> bytes:
        data = {"type": kind, "sequence_number": self.number, **fields}
        self.number += 1
        return named_event(kind, data)

    def first(self) -> Iterator[bytes]:
        for kind in ("response.created", "response.in_progress"):
            yield self.event(kind, response=self.made.head)

    def changed(self, change: BlockChange) -> Iterator[bytes]:
        block = change.block
        where = {"item_id": self.made.item_id(block), "output_index": block.index}
        if block.kind != "call":
            where["content_index"] = 0
        if change.what == "opened":
            yield from self.opened(block, where)
        elif change.what == "grew":
            more: Json = {"logprobs": []} if block.kind == "text" else {}
            yield self.event(f"{STEMS[block.kind]}.delta", **where, delta=change.text, **more)
        else:
            yield from self.closed(block, where)

    def opened(self, block: AnswerBlock, where: Json) -> Iterator[bytes]:
        item = self.made.item(block, is_done=False)
        yield self.event("response.output_item.added", output_index=block.index, item=item)
        if block.kind != "call":
            yield self.event("response.content_part.added", **where, part=part(block, ""))

    def closed(self, block: AnswerBlock, where: Json) -> Iterator[bytes]:
        name = "arguments" if block.kind == "call" else "text"
        more: Json = {"logprobs": []} if block.kind == "text" else {}
        if block.kind == "call":
            more["name"] = block.name
        yield self.event(f"{STEMS[block.kind]}.done", **where, **{name: block.text}, **more)
        if block.kind != "call":
            yield self.event("response.content_part.done", **where, part=part(block, block.text))
        item = self.made.item(block)
        yield self.event("response.output_item.done", output_index=block.index, item=item)

    def last(self) -> bytes:
        shown = self.made.shown()
        return self.event(f"response.{shown['status']}", response=shown)

    def failed(self, error: ApiError) -> bytes:
        said = {"code": error.code or "server_error", "message": error.message}
        return self.event(
            "response.failed", response=self.made.head | {"status": "failed", "error": said}
        )


STEMS = {
    "text": "response.output_text",
    "reasoning": "response.reasoning_text",
    "call": "response.function_call_arguments",
}


async def stream(call: ApiCall, answer: Answers, made: ResponseObject) -> None:
    shape = ResponseEvents(made)
    with EventStream(call.reply, call.headers, call.app.limits.quiet_seconds) as events:
        await events.send(b"".join(shape.first()))
        try:
            async for batch in answer.batches():
                for one in batch:
                    if isinstance(one, AnswerEnd):
                        changes = [*made.row.close()]
                        made.end(one)
                        call.notes["completion_tokens"] = len(one.completion.tokens)
                    else:
                        changes = [*made.row.feed(one.events)]
                    parts = [data for change in changes for data in shape.changed(change)]
                    await events.send(b"".join(parts))
        except Exception as error:
            await events.send(shape.failed(call.app.told(call, error)))
            return
        await events.send(shape.last())


ROUTES = [Route("POST", "/v1/responses", responses)]
