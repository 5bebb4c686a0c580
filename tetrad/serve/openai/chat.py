"""Serve, OpenAI, chat: POST /v1/chat/completions. JSON in; an answer, whole or as a stream, out.

A part of a stream that is only text, as nearly all are, is put together from bytes that are made
once a choice.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from tetrad.models.decoding.generation import Completion, Logprob
from tetrad.models.decoding.openai_shapes import call_of, chat_logprobs
from tetrad.serve.app import ApiCall, Response, Route, json_response
from tetrad.serve.conversation import AnswerEnd, Answers, Event, Said, answering
from tetrad.serve.errors import invalid
from tetrad.serve.openai.shapes import Json, answer_head, timings, usage
from tetrad.serve.prompt import ChatRequest
from tetrad.serve.schema import ChatBody, answer_settings, body_as, split_settings
from tetrad.serve.sse import DONE, EventStream, event_of
from tetrad.text.tools import (
    AnswerEvent,
    CallArguments,
    CallBegins,
    ReasoningDelta,
    TextDelta,
    joined,
)

encode = msgspec.json.encode


async def chat(call: ApiCall) -> Response | None:
    settings, rest = split_settings(await call.data())
    body = body_as(ChatBody, rest)
    request = chat_request(body, settings, call)
    async with answering(call.store, request) as answer:
        call.notes |= {"model": answer.name, "prompt_tokens": answer.prompt_tokens}
        if body.stream:
            await stream(call, body, answer)
            return None
        return json_response(await whole(call, body, answer))


def chat_request(body: ChatBody, settings: dict[str, Any], call: ApiCall) -> ChatRequest:
    """What a body asks for, in the terms of no API."""
    chosen = answer_settings(body, settings, call.app.limits)
    limits = [body.max_completion_tokens, body.max_tokens, body.n_predict]
    chosen["max_tokens"] = next((limit for limit in limits if limit is not None), -1)
    if body.top_logprobs and not body.logprobs:
        raise invalid("top_logprobs is for logprobs: true", "top_logprobs")
    if body.logprobs:
        chosen["logprobs"] = max(1, body.top_logprobs)
    return ChatRequest(
        model=body.model,
        settings=chosen,
        messages=[message(one, i) for i, one in enumerate(body.messages)],
        tools=body.tools,
        tool_choice=body.tool_choice,
        parallel=body.parallel_tool_calls,
        think=thinking(body, settings),
        apart=body.reasoning_format != "none",
        variables=variables(body),
        n=body.n,
        tenant=call.tenant,
        shares=body.cache_prompt,
    )


def thinking(body: ChatBody, settings: Mapping[str, Any]) -> bool | None:
    """Whether the model is asked to think; None: nothing was said."""
    if body.reasoning_effort == "none" or settings.get("reasoning_budget") == 0:
        return False
    return None if body.reasoning_effort is None else True


def variables(body: ChatBody) -> dict[str, Any]:
    """Those of the template that a body sets; some templates know degrees of effort."""
    effort = {} if body.reasoning_effort in (None, "none") else {
        "reasoning_effort": body.reasoning_effort
    }  # fmt: skip
    return effort | (body.chat_template_kwargs or {})


ROLES = ("system", "developer", "user", "assistant", "tool", "function")
TEXT_PARTS = ("text", "input_text", "refusal")


def message(given: Mapping[str, Any], at: int) -> Mapping[str, Any]:
    """A message that templates can take: its parts are text, a developer speaks as the system."""
    place, role, content = f"messages[{at}]", given.get("role"), given.get("content")
    if role not in ROLES:
        said = f"{place}.role: expected one of {', '.join(ROLES)}, got {role!r:.40}"
        raise invalid(said, f"{place}.role", "invalid_value")
    if isinstance(content, list):
        content = "\n".join(
            part_text(part, f"{place}.content[{i}]") for i, part in enumerate(content)
        )
    elif content is not None and not isinstance(content, str):
        said = f"{place}.content: expected a string or an array of parts"
        raise invalid(said, f"{place}.content", "invalid_type")
    if content is None and not (role == "assistant" and given.get("tool_calls")):
        said = f"{place}.content is needed, and missing"
        raise invalid(said, f"{place}.content", "missing_required_parameter")
    return {**given, "role": "system" if role == "developer" else role, "content": content}


def part_text(part: Any, place: str) -> str:
    kind = part.get("type") if isinstance(part, dict) else None
    text = part.get(kind if kind == "refusal" else "text") if isinstance(part, dict) else None
    if kind not in TEXT_PARTS or not isinstance(text, str):
        said = (
            f"{place}: expected a part of type text, got {kind!r:.40}: models here read text alone"
        )
        raise invalid(said, place, "invalid_value")
    return text


# -- whole -----------------------------------------------------------------------------------------


class ChatChoice:
    """One answer, as far as it has come."""

    def __init__(self) -> None:
        self.events: list[AnswerEvent] = []
        self.chances: list[Logprob] = []
        self.ended: AnswerEnd | None = None

    def add(self, event: Event) -> None:
        if isinstance(event, AnswerEnd):
            self.ended = event
            return
        self.events.extend(event.events)
        self.chances.extend(event.chances)

    def message(self) -> Json:
        """Content is null where there are only calls."""
        said = joined(self.events)
        calls = [call_of(call.id, call.name, call.arguments) for call in said.tool_calls]
        found: Json = {"role": "assistant", "content": said.content, "refusal": None}
        if said.reasoning:
            found["reasoning_content"] = said.reasoning
        if calls:
            found |= {"content": said.content or None, "tool_calls": calls}
        return found


async def whole(call: ApiCall, body: ChatBody, answer: Answers) -> Json:
    choices = [ChatChoice() for _ in answer.requests]
    async for batch in answer.batches():
        for event in batch:
            choices[event.choice].add(event)
    done = [choice.ended.completion for choice in choices if choice.ended is not None]
    call.notes["completion_tokens"] = sum(len(one.tokens) for one in done)
    head = answer_head("chat.completion", "chatcmpl", answer.name)
    shown = [shown_choice(i, choice, body, answer) for i, choice in enumerate(choices)]
    return head | {"choices": shown, "usage": usage(done, body.n), "timings": timings(done[0])}


def shown_choice(index: int, choice: ChatChoice, body: ChatBody, answer: Answers) -> Json:
    table = None
    if body.logprobs:
        table = chat_logprobs(answer.model.tokenizer, choice.chances, body.top_logprobs)
    return {
        "index": index,
        "message": choice.message(),
        "logprobs": table,
        "finish_reason": None if choice.ended is None else choice.ended.reason,
    }


# -- a stream --------------------------------------------------------------------------------------


async def stream(call: ApiCall, body: ChatBody, answer: Answers) -> None:
    shape = ChatStream(body, answer)
    with EventStream(call.reply, call.headers, call.app.limits.quiet_seconds) as events:
        await events.send(b"".join(shape.first()))
        try:
            async for batch in answer.batches():
                if parts := b"".join(shape.part(event) for event in batch):
                    await events.send(parts)
        except Exception as error:
            await events.send(event_of(call.app.told(call, error).body()))
            return
        await events.send(b"".join(shape.last()))
    call.notes["completion_tokens"] = sum(len(one.tokens) for one in shape.done)


class ChatStream:
    """The parts of a streamed answer as bytes."""

    def __init__(self, body: ChatBody, answer: Answers) -> None:
        self.body, self.answer = body, answer
        self.tokenizer = answer.model.tokenizer
        self.head = answer_head("chat.completion.chunk", "chatcmpl", answer.name)
        self.tells_usage = body.stream_options is not None and body.stream_options.include_usage
        self.ended: dict[int, Completion] = {}
        around = [
            self.chunk(i, {"content": "\0"}).split(encode("\0"))
            for i in range(len(answer.requests))
        ]
        self.before, self.after = zip(*around, strict=True)

    def chunk(
        self, index: int, delta: Json, reason: str | None = None, table: Json | None = None,
        more: Json | None = None,
    ) -> bytes:  # fmt: skip
        choice = {"index": index, "delta": delta, "logprobs": table, "finish_reason": reason}
        data = self.head | {"choices": [choice]} | (more or {})
        if self.tells_usage:
            data["usage"] = None
        return event_of(data)

    def first(self) -> Iterator[bytes]:
        for index in range(len(self.answer.requests)):
            yield self.chunk(index, {"role": "assistant", "content": ""})

    def part(self, event: Event) -> bytes:
        if isinstance(event, AnswerEnd):
            self.ended[event.choice] = event.completion
            return self.chunk(
                event.choice, {}, event.reason, more={"timings": timings(event.completion)}
            )
        if len(event.events) == 1 and isinstance(event.events[0], TextDelta) and not event.chances:
            i = event.choice
            return b"".join((self.before[i], encode(event.events[0].text), self.after[i]))
        return b"".join(self.parts(event))

    def parts(self, event: Said) -> Iterator[bytes]:
        """A part for each event; how likely the tokens were stands in the first."""
        table = None
        if event.chances:
            table = chat_logprobs(self.tokenizer, event.chances, self.body.top_logprobs)
        for one in event.events or (TextDelta(""),):
            yield self.chunk(event.choice, delta_of(one), table=table)
            table = None

    @property
    def done(self) -> list[Completion]:
        return [self.ended[choice] for choice in sorted(self.ended)]

    def last(self) -> Iterator[bytes]:
        if self.tells_usage:
            data = self.head | {"choices": [], "usage": usage(self.done, self.body.n)}
            yield event_of(data)
        yield DONE


def delta_of(event: AnswerEvent) -> Json:
    match event:
        case TextDelta(text):
            return {"content": text}
        case ReasoningDelta(text):
            return {"reasoning_content": text}
        case CallBegins(index, id, name):
            return {"tool_calls": [{"index": index, **call_of(id, name, "")}]}
        case CallArguments(index, text):
            return {"tool_calls": [{"index": index, "function": {"arguments": text}}]}


ROUTES = [Route("POST", "/v1/chat/completions", chat), Route("POST", "/chat/completions", chat)]
