"""Serve, OpenAI, completions: POST /v1/completions. Prompts, as text or tokens, in; their
continuations, whole or as a stream, out.

Choices are numbered as OpenAI does: the `n` of the first prompt, then those of the second. A part
of a stream that is only text is put together from bytes that are made once a choice.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from tetrad.compat.answers import legacy_logprobs
from tetrad.models.decoding.generation import Completion, Logprob
from tetrad.models.decoding.sampling import Chance
from tetrad.serve.app import ApiCall, Response, Route, json_response
from tetrad.serve.conversation import AnswerEnd, Answers, Event, Said, answering
from tetrad.serve.errors import invalid
from tetrad.serve.openai.shapes import Json, answer_head, timings, usage
from tetrad.serve.prompt import ChatRequest, Prompt
from tetrad.serve.schema import CompletionBody, answer_settings, body_as, split_settings
from tetrad.serve.sse import DONE, EventStream, event_of
from tetrad.text.tools import TextDelta

if TYPE_CHECKING:
    from tetrad.models.model import Model

DEFAULT_TOKENS = 16  # as OpenAI has it
encode = msgspec.json.encode


async def complete(call: ApiCall) -> Response | None:
    settings, rest = split_settings(await call.data())
    body = body_as(CompletionBody, rest)
    request = completion_request(body, settings, call)
    async with answering(call.store, request) as answer:
        call.notes |= {"model": answer.name, "prompt_tokens": answer.prompt_tokens}
        before = await echoes(call, body, answer)
        choices = [Continuation(i, body, answer, one) for i, one in enumerate(before)]
        head = answer_head("text_completion", "cmpl", answer.name)
        if body.stream:
            await stream(call, body, answer, choices, head)
            return None
        return json_response(await whole(call, body, answer, choices, head))


def completion_request(
    body: CompletionBody, settings: dict[str, Any], call: ApiCall
) -> ChatRequest:
    if body.suffix:
        raise invalid("suffix is not supported: models here continue a text", "suffix")
    if body.best_of not in (None, 1, body.n):
        raise invalid("best_of is not supported; n gives several answers", "best_of")
    limits, prompts = call.app.limits, prompts_of(body.prompt)
    if len(prompts) * body.n > limits.choices:
        raise invalid(f"at most {limits.choices} answers, prompts times n", "n")
    chosen = answer_settings(body, settings, limits)
    asked = body.n_predict if body.max_tokens is None else body.max_tokens
    chosen["max_tokens"] = DEFAULT_TOKENS if asked is None else asked
    if body.logprobs is not None:
        chosen["logprobs"] = max(1, body.logprobs)
    return ChatRequest(
        model=body.model,
        settings=chosen,
        prompts=prompts,
        n=body.n,
        tenant=call.tenant,
        shares=body.cache_prompt,
    )


def prompts_of(given: str | list[Any]) -> list[Prompt]:
    """
    >>> prompts_of("a"), prompts_of(["a", "b"]), prompts_of([1, 2]), prompts_of([[1], [2]])
    (['a'], ['a', 'b'], [[1, 2]], [[1], [2]])
    """
    if isinstance(given, str):
        return [given]
    if given and all(type(one) is int for one in given):
        return [given]
    if not given or not all(is_prompt(one) for one in given):
        raise invalid(
            "prompt: expected a string, strings, tokens, or lists of tokens", "prompt",
            "invalid_type",
        )  # fmt: skip
    return list(given)


def is_prompt(one: object) -> bool:
    is_tokens = isinstance(one, list) and bool(one) and all(type(token) is int for token in one)
    return isinstance(one, str) or is_tokens


# -- what was asked, said again --------------------------------------------------------------------


class Echo:
    """A prompt that stands before its answer, and how likely its tokens were."""

    def __init__(self, text: str = "", chances: list[Logprob | int] | None = None) -> None:
        self.text, self.chances = text, chances or []


async def echoes(call: ApiCall, body: CompletionBody, answer: Answers) -> list[Echo]:
    """One for every choice; empty where none was asked for."""
    if not body.echo:
        return [Echo() for _ in answer.requests]
    firsts = [request.tokens for request in answer.requests[:: body.n]]
    made = await call.store.compute(
        answer.loaded, lambda: [echo(answer.model, tokens, body.logprobs) for tokens in firsts]
    )
    return [one for one in made for _ in range(body.n)]


def echo(model: Model, tokens: list[int], count: int | None) -> Echo:
    shown = tokens[1:] if tokens[0] == model.tokenizer.bos else tokens
    chances = (
        [] if count is None else prompt_chances(model, tokens, len(tokens) - len(shown), count)
    )
    return Echo(model.tokenizer.decode(shown), chances)


def prompt_chances(
    model: Model, tokens: list[int], skipped: int, count: int
) -> list[Logprob | int]:
    """How likely each token of a prompt was; nothing is known of the first, unless a token that
    begins every text stands before it."""
    found: list[Logprob | int] = []
    rows = chain.from_iterable(model.logits_parts(tokens)) if len(tokens) > 1 else ()
    for row, token in zip(rows, tokens[1:], strict=False):  # nothing follows the last
        chances = row - np.logaddexp.reduce(row.astype(np.float64))
        top = np.argsort(-chances, kind="stable")[:count]
        likeliest = tuple(Chance(int(i), float(chances[i])) for i in top)
        found.append(Logprob(token, float(chances[token]), likeliest))
    return found if skipped else [tokens[0], *found]


# -- answers ---------------------------------------------------------------------------------------


class Continuation:
    """One choice, as far as it has come."""

    def __init__(self, index: int, body: CompletionBody, answer: Answers, before: Echo) -> None:
        self.index, self.body, self.before = index, body, before
        self.tokenizer = answer.model.tokenizer
        self.text: list[str] = []
        self.chances: list[Logprob] = []
        self.shown = len(before.text)  # characters that parts of a stream have told
        self.completion: Completion | None = None
        self.reason: str | None = None

    def add(self, event: Event) -> None:
        if isinstance(event, AnswerEnd):
            self.completion, self.reason = event.completion, event.reason
            return
        self.chances.extend(event.chances)
        self.text.append(text_of(event))

    def table(self, chances: list[Logprob | int], start: int) -> Json | None:
        if self.body.logprobs is None:
            return None
        return legacy_logprobs(self.tokenizer, start, chances, self.body.logprobs)

    def whole(self) -> Json:
        table = self.table([*self.before.chances, *self.chances], 0)
        text = self.before.text + "".join(self.text)
        return self.choice(text, table, self.reason)

    def first(self) -> Json:
        return self.choice(self.before.text, self.table(self.before.chances, 0), None)

    def part(self, event: Event) -> Json:
        """A part of a stream."""
        if isinstance(event, AnswerEnd):
            self.add(event)
            return self.choice("", None, self.reason)
        text = text_of(event)
        table = self.table(list(event.chances), self.shown)
        self.shown += len(text)
        return self.choice(text, table, None)

    def choice(self, text: str, table: Json | None, reason: str | None) -> Json:
        return {"index": self.index, "text": text, "logprobs": table, "finish_reason": reason}


def text_of(event: Said) -> str:
    return "".join(part.text for part in event.events if isinstance(part, TextDelta))


def completions_of(choices: list[Continuation]) -> list[Completion]:
    return [choice.completion for choice in choices if choice.completion is not None]


async def whole(
    call: ApiCall, body: CompletionBody, answer: Answers, choices: list[Continuation], head: Json
) -> Json:
    async for batch in answer.batches():
        for event in batch:
            choices[event.choice].add(event)
    done = completions_of(choices)
    call.notes["completion_tokens"] = sum(len(one.tokens) for one in done)
    shown = [choice.whole() for choice in choices]
    return head | {"choices": shown, "usage": usage(done, body.n), "timings": timings(done[0])}


async def stream(
    call: ApiCall, body: CompletionBody, answer: Answers, choices: list[Continuation], head: Json
) -> None:
    parts = [Parts(choice, head) for choice in choices]
    with EventStream(call.reply, call.headers, call.app.limits.quiet_seconds) as events:
        if body.echo:
            await events.send(b"".join(event_of(head | {"choices": [c.first()]}) for c in choices))
        try:
            async for batch in answer.batches():
                await events.send(b"".join([parts[event.choice].part(event) for event in batch]))
        except Exception as error:
            await events.send(event_of(call.app.told(call, error).body()))
            return
        await events.send(b"".join(last_parts(head, body, completions_of(choices))))
    call.notes["completion_tokens"] = sum(len(one.tokens) for one in completions_of(choices))


class Parts:
    """The parts of a streamed choice as bytes."""

    def __init__(self, choice: Continuation, head: Json) -> None:
        self.choice, self.head = choice, head
        around = event_of(head | {"choices": [choice.choice("\0", None, None)]})
        self.before, self.after = around.split(encode("\0"))

    def part(self, event: Event) -> bytes:
        if isinstance(event, AnswerEnd):
            more = {"timings": timings(event.completion)}
            return event_of(self.head | {"choices": [self.choice.part(event)]} | more)
        if self.choice.body.logprobs is None:
            return b"".join((self.before, encode(text_of(event)), self.after))
        return event_of(self.head | {"choices": [self.choice.part(event)]})


def last_parts(head: Json, body: CompletionBody, done: list[Completion]) -> Iterator[bytes]:
    if body.stream_options is not None and body.stream_options.include_usage:
        yield event_of(head | {"choices": [], "usage": usage(done, body.n)})
    yield DONE


ROUTES = [Route("POST", "/v1/completions", complete), Route("POST", "/completions", complete)]
