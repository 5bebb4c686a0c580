"""Serve, conversation: a question in the terms of no API in particular in; events of its answer
out.

`answering` prepares the prompt off the event loop, hands each choice to the model's scheduler and
gives what comes back; leaving it, also because the client has left, cancels whatever still runs.
Dialects (OpenAI's and others) make `ChatRequest`s of JSON, and JSON of the events.
"""

from __future__ import annotations

import os
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from tetrad.core.errors import Cancelled, ClosedError
from tetrad.core.record import record
from tetrad.models.decoding.generation import Completion, Logprob, Piece
from tetrad.serve.bridge import Channel, Item
from tetrad.serve.errors import invalid, unavailable
from tetrad.serve.prompt import ChatRequest, Prepared, prepare
from tetrad.serve.store import LoadedModel, ModelStore
from tetrad.text.tools import AnswerEvent, CallBegins, TextDelta

if TYPE_CHECKING:
    from tetrad.models.model import Model


@record
class Said:
    """More of an answer: what has become certain since the last time, and how likely its tokens
    were."""

    choice: int
    events: Sequence[AnswerEvent]
    chances: Sequence[Logprob]


@record
class AnswerEnd:
    """The end of an answer: why, and what it took."""

    choice: int
    reason: str  # stop, length or tool_calls
    completion: Completion


Event = Said | AnswerEnd


class Answers:
    """The answers to one request, on their way."""

    def __init__(self, store: ModelStore, loaded: LoadedModel, prepared: Prepared) -> None:
        self.store, self.loaded = store, loaded
        self.requests, self.parsers = prepared.requests, prepared.parsers
        self.calling: set[int] = set()  # choices that call a tool
        self.channel = Channel(store.mailbox, store.limits.pieces)
        self.left = len(self.requests)
        self.begin = self.last = time.monotonic()

    @property
    def model(self) -> Model:
        return self.loaded.model

    @property
    def name(self) -> str:
        return self.loaded.name

    @property
    def prompt_tokens(self) -> int:
        return sum(len(request.tokens) for request in self.requests)

    def submit(self, request: ChatRequest) -> None:
        """Hands all choices to the scheduler, or none."""
        scheduler = self.loaded.scheduler
        if scheduler is None:
            raise invalid(f"{self.name} embeds texts; it does not write any", "model")
        seconds = request.seconds or self.store.limits.request_seconds
        deadline = time.monotonic() + seconds if seconds else None
        # keys and values are shared by those of one tenant: one that nobody else is shares none
        tenant = request.tenant if request.shares else f"{request.tenant}/{os.urandom(8).hex()}"
        for choice, one in enumerate(self.requests):
            job = scheduler.submit(
                one, self.channel.listener(choice), tenant=tenant,
                priority=request.priority, deadline=deadline,
            )  # fmt: skip
            self.channel.jobs.append(job)

    async def batches(self) -> AsyncIterator[list[Event]]:
        """What comes, as much at a time as there is; ends when every choice has ended."""
        while self.left:
            yield self.events(await self.channel.take())

    def events(self, items: list[tuple[int, Item]]) -> list[Event]:
        found: list[Event] = []
        for choice, pieces in by_choice(items).items():
            self.note_time(pieces)
            chances = [
                Logprob(piece.token, piece.logprob, piece.top)
                for piece in pieces
                if piece.token is not None and piece.logprob is not None
            ]
            done = pieces[-1].completion
            said = self.said(choice, "".join(piece.text for piece in pieces), done is not None)
            if said or chances:
                found.append(Said(choice, said, chances))
            if done is not None:
                self.left -= 1
                found.append(AnswerEnd(choice, self.reason(choice, done), done))
        return found

    def reason(self, choice: int, done: Completion) -> str:
        """A call that the limit has cut is no call."""
        is_whole = done.finish_reason == "stop"
        return "tool_calls" if is_whole and choice in self.calling else done.finish_reason

    def said(self, choice: int, text: str, is_last: bool) -> Sequence[AnswerEvent]:
        """What more text of a choice turns out to be."""
        parser = self.parsers[choice]
        if parser is None:
            return (TextDelta(text),) if text else ()
        events = [*(parser.feed(text) if text else ()), *(parser.finish() if is_last else ())]
        if any(isinstance(event, CallBegins) for event in events):
            self.calling.add(choice)
        return events

    def note_time(self, pieces: list[Piece]) -> None:
        now, metrics = time.monotonic(), self.store.metrics
        if self.last == self.begin:
            metrics.first_token.add(now - self.begin)
        else:
            metrics.between_tokens.add((now - self.last) / len(pieces))
        self.last = now


def by_choice(items: list[tuple[int, Item]]) -> dict[int, list[Piece]]:
    """Pieces of each choice in their order. An error of one ends all."""
    if len(items) == 1 and isinstance(items[0][1], Piece):
        return {items[0][0]: [items[0][1]]}
    found: dict[int, list[Piece]] = {}
    for choice, item in items:
        if not isinstance(item, Piece):
            raise ended_by(item)
        found.setdefault(choice, []).append(item)
    return found


def ended_by(error: Exception) -> Exception:
    """What a client is told when its answer ends early; it did not end it itself."""
    if isinstance(error, Cancelled | ClosedError):
        return unavailable("the server is shutting down")
    return error


@asynccontextmanager
async def answering(store: ModelStore, request: ChatRequest) -> AsyncIterator[Answers]:
    """The answers to a request, from the moment when all of them wait for their turn."""
    async with store.using(request.model) as loaded:
        prepared = await store.in_thread(prepare, loaded, request, store.variables)
        answer = Answers(store, loaded, prepared)
        try:
            answer.submit(request)
            yield answer
        finally:
            answer.channel.cancel()


async def prompt_length(store: ModelStore, request: ChatRequest) -> int:
    """Tokens of a prompt that is not answered."""
    async with store.using(request.model) as loaded:
        prepared = await store.in_thread(prepare, loaded, request, store.variables)
        return len(prepared.requests[0].tokens)
