"""Serve, ollama, generate: POST /api/generate and /api/chat. JSON in; lines of JSON, or one object,
out.

A body becomes the one that OpenAI's chat would have had. A chat without messages, or a prompt that
is not there, loads the model; with `keep_alive` 0 it lets go of it.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from msgspec import Struct

from tetrad.serve.app import ApiCall, Response, Route, json_response
from tetrad.serve.conversation import AnswerEnd, Answers, Said, answering
from tetrad.serve.errors import invalid
from tetrad.serve.ollama.shapes import (
    LINES,
    format_as_chat,
    line,
    named,
    now,
    ollama_error,
    options_as_chat,
    seconds_of,
    spent,
    think_as_chat,
)
from tetrad.serve.openai.chat import chat_request
from tetrad.serve.openai.shapes import Json
from tetrad.serve.prompt import ChatRequest
from tetrad.serve.schema import ChatBody, body_as, split_settings
from tetrad.text.tools import AnswerEvent, CallArguments, CallBegins, ReasoningDelta, TextDelta


class OllamaBody(Struct, forbid_unknown_fields=True, kw_only=True):
    model: str
    stream: bool = True
    format: str | dict[str, Any] | None = None
    options: dict[str, Any] | None = None
    keep_alive: str | int | float | None = None
    think: bool | str | None = None
    logprobs: bool = False
    top_logprobs: int | None = None


class OllamaChat(OllamaBody, kw_only=True):
    messages: list[dict[str, Any]] = []
    tools: list[dict[str, Any]] | None = None


class OllamaPrompt(OllamaBody, kw_only=True):
    prompt: str = ""
    system: str | None = None
    suffix: str | None = None
    template: str | None = None
    raw: bool = False
    images: list[str] | None = None
    context: list[int] | None = None  # an old way to go on; the cache finds the same by itself


async def chat(call: ApiCall) -> Response | None:
    body = body_as(OllamaChat, await call.data())
    if not body.messages:
        return await only_load(call, body, is_chat=True)
    tools = {"tools": body.tools} if body.tools else {}
    asked = {"messages": [*as_messages(body.messages)], **tools}
    return await answered(call, body, asked, AnswerLines(body.model, said_in_chat))


async def generate(call: ApiCall) -> Response | None:
    body = body_as(OllamaPrompt, await call.data())
    check_prompt(body)
    if not body.prompt:
        return await only_load(call, body, is_chat=False)
    system = [{"role": "system", "content": body.system}] if body.system else []
    asked: Json = {"messages": [*system, {"role": "user", "content": body.prompt}]}
    return await answered(call, body, asked, AnswerLines(body.model, said_to_prompt))


def check_prompt(body: OllamaPrompt) -> None:
    for name in ("suffix", "template", "images"):
        if getattr(body, name):
            raise invalid(f"{name} is not supported here", name)


def as_messages(given: list[dict[str, Any]]) -> Iterator[Json]:
    """Arguments of calls are text in a chat; calls and their results have no ids here, so they are
    numbered: the n-th result is that of the n-th call."""
    calls = results = 0
    for at, message in enumerate(given):
        if message.get("images"):
            raise invalid(f"messages[{at}].images: models here read text alone", "messages")
        kept = {k: v for k, v in message.items() if k in ("role", "content") and v is not None}
        if message.get("thinking"):
            kept["reasoning_content"] = message["thinking"]
        if made := calls_of(message, at):
            kept["tool_calls"] = [as_call(call, f"call_{calls + i}") for i, call in enumerate(made)]
            calls += len(made)
        if message.get("role") == "tool":
            kept |= {"tool_call_id": f"call_{results}", "name": message.get("tool_name")}
            results += 1
        yield {"content": "", **kept}


def calls_of(message: Mapping[str, Any], at: int) -> list[Any]:
    made = message.get("tool_calls") or []
    if not isinstance(made, list):
        raise invalid(f"messages[{at}].tool_calls: expected an array", "messages")
    return made


def as_call(call: Any, name: str) -> Json:
    function = call.get("function") if isinstance(call, dict) else None
    if not isinstance(function, dict):
        raise invalid("messages: a call of a tool has a function", "messages")
    given = function.get("arguments") or {}
    text = given if isinstance(given, str) else json.dumps(given, ensure_ascii=False)
    return {
        "id": name,
        "type": "function",
        "function": {"name": function.get("name"), "arguments": text},
    }


# -- loading ---------------------------------------------------------------------------------------


async def only_load(call: ApiCall, body: OllamaBody, *, is_chat: bool) -> Response:
    """Nothing is asked: the model is loaded, or let go."""
    store, name, keep = call.store, named(body.model), seconds_of(body.keep_alive)
    if keep == 0:
        store.let_go(name)
        reason = "unload"
    else:
        async with store.using(name) as loaded:
            loaded.keep_alive = keep
        reason = "load"
    said: Json = {"message": {"role": "assistant", "content": ""}} if is_chat else {"response": ""}
    done = {"done": True, "done_reason": reason}
    return json_response({"model": body.model, "created_at": now(), **said, **done})


# -- answering -------------------------------------------------------------------------------------


def prepared(
    call: ApiCall, body: OllamaBody, asked: Mapping[str, Any], context: int | None
) -> ChatRequest:
    found: Json = {"model": named(body.model), **asked}
    found |= options_as_chat(body.options, context)
    found |= format_as_chat(body.format) | think_as_chat(body.think)
    settings, rest = split_settings(found)
    request = chat_request(body_as(ChatBody, rest), settings, call)
    if isinstance(body, OllamaPrompt) and body.raw:
        return request.completing(body.prompt)
    return request


async def answered(
    call: ApiCall, body: OllamaBody, asked: Mapping[str, Any], lines: AnswerLines
) -> Response | None:
    async with call.store.using(named(body.model)) as loaded:
        if (keep := seconds_of(body.keep_alive)) is not None:
            loaded.keep_alive = keep
        request = prepared(call, body, asked, loaded.model.context)
        async with answering(call.store, request) as answer:
            call.notes |= {"model": answer.name, "prompt_tokens": answer.prompt_tokens}
            if body.stream:
                await stream(call, answer, lines)
                return None
            return json_response(await whole(call, answer, lines))


async def whole(call: ApiCall, answer: Answers, lines: AnswerLines) -> Json:
    events: list[AnswerEvent] = []
    last: Json = {}
    async for batch in answer.batches():
        for event in batch:
            if isinstance(event, Said):
                events.extend(event.events)
            else:
                last = lines.last(event, time.monotonic() - call.begin)
    return last | lines.said([*whole_calls(events)])


async def stream(call: ApiCall, answer: Answers, lines: AnswerLines) -> None:
    call.reply.begin(200, (*call.headers, *LINES))
    calls = CallJoiner()
    try:
        async for batch in answer.batches():
            for event in batch:
                if isinstance(event, AnswerEnd):
                    rest = lines.part(calls.finish())
                    last = lines.last(event, time.monotonic() - call.begin)
                    call.reply.write(rest + line(last))
                else:
                    call.reply.write(lines.part(calls.feed(event.events)))
            await call.reply.drain()
    except Exception as error:
        call.reply.write(ollama_error(call.app.told(call, error)) + b"\n")
    call.reply.end()


def whole_calls(events: list[AnswerEvent]) -> list[AnswerEvent]:
    calls = CallJoiner()
    return [*calls.feed(events), *calls.finish()]


class CallJoiner:
    """Holds calls back until they are whole: ollama shows their arguments as an object."""

    def __init__(self) -> None:
        self.call: CallBegins | None = None
        self.arguments: list[str] = []

    def feed(self, events: Any) -> list[AnswerEvent]:
        found: list[AnswerEvent] = []
        for event in events:
            if isinstance(event, CallArguments):
                self.arguments.append(event.text)
                continue
            found.extend(self.finish())
            if isinstance(event, CallBegins):
                self.call = event
            else:
                found.append(event)
        return found

    def finish(self) -> list[AnswerEvent]:
        """The call that was open, then its arguments in one; nothing where the limit of the answer
        has cut them."""
        if self.call is None:
            return []
        call, text = self.call, "".join(self.arguments) or "{}"
        self.call, self.arguments = None, []
        return [call, CallArguments(call.index, text)] if is_json(text) else []


def is_json(text: str) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True


class AnswerLines:
    """An answer as ollama shows it; `said` has what a chat and a prompt show differently."""

    def __init__(self, model: str, said: Callable[[list[AnswerEvent]], Json]) -> None:
        self.model, self.said = model, said

    def head(self) -> Json:
        return {"model": self.model, "created_at": now()}

    def part(self, events: list[AnswerEvent]) -> bytes:
        return line(self.head() | self.said(events) | {"done": False}) if events else b""

    def last(self, end: AnswerEnd, seconds: float) -> Json:
        reason = "length" if end.reason == "length" else "stop"
        done = {"done": True, "done_reason": reason}
        return self.head() | self.said([]) | done | spent(end.completion, seconds)


def texts_of(events: list[AnswerEvent]) -> tuple[str, str]:
    """(what is said, what is thought)."""
    said = "".join(event.text for event in events if isinstance(event, TextDelta))
    return said, "".join(event.text for event in events if isinstance(event, ReasoningDelta))


def said_in_chat(events: list[AnswerEvent]) -> Json:
    text, thought = texts_of(events)
    message: Json = {"role": "assistant", "content": text}
    if thought:
        message["thinking"] = thought
    begun = [event for event in events if isinstance(event, CallBegins)]
    given = [event.text for event in events if isinstance(event, CallArguments)]
    if begun:
        message["tool_calls"] = [
            {"function": {"name": call.name, "arguments": json.loads(text)}}
            for call, text in zip(begun, given, strict=True)
        ]
    return {"message": message}


def said_to_prompt(events: list[AnswerEvent]) -> Json:
    text, thought = texts_of(events)
    return {"response": text} | ({"thinking": thought} if thought else {})


ROUTES = [
    Route("POST", "/api/chat", chat, shape=ollama_error),
    Route("POST", "/api/generate", generate, shape=ollama_error),
]
