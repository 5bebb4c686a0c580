"""Command line, a server elsewhere: the partner of a chat that answers by the OpenAI API.

Receives messages and the settings that somebody has chosen; the server decides the others. Gives
the same parts as a model in this process.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from typing import Any

from tetrad.cli.talk.client import RemoteError, RemoteServer
from tetrad.cli.talk.parts import AnswerCost, AnswerPart, Turns

BEGIN, END = "<think>", "</think>"  # around thoughts, in a pipe
BANNED = -100.0  # the bias that means never
HERE = ("shift", "keep", "speculate", "temperature_first")  # decided by who runs the model


class RemotePartner:
    """A model of a server, by its name there."""

    def __init__(self, server: RemoteServer, model: str | None) -> None:
        self.server, self.model = server, model or only_model(server)

    @property
    def name(self) -> str:
        return self.model

    def answer(
        self, told: Turns, turns: Turns, settings: dict[str, Any]
    ) -> tuple[Turns, Iterator[AnswerPart]]:
        body = {"messages": [*told, *turns], **body_of(settings)}
        return turns, self.parts("/v1/chat/completions", body)

    def complete(self, prompt: str, settings: dict[str, Any]) -> Iterator[AnswerPart]:
        """Plain text, continued."""
        return self.parts("/v1/completions", {"prompt": prompt, **body_of(settings)})

    def parts(self, path: str, body: dict[str, Any]) -> Iterator[AnswerPart]:
        asked = {"model": self.model, "stream": True, "stream_options": {"include_usage": True}}
        reader = AnswerReader("max_tokens" in body)
        for found in self.server.stream(path, {**asked, **body}):
            yield from reader.read(found)
        yield reader.end()

    def waiting(self) -> str:
        return f"waiting for {self.server.address}"

    def topics(self) -> dict[str, Callable[[], str]]:
        return {"info": lambda: f"{self.model}\n{self.server.address}"}


def only_model(server: RemoteServer) -> str:
    """The one model that a server has; of several, one must be named."""
    found = server.get("/v1/models")
    listed = found.get("data") if isinstance(found, dict) else None
    names = [str(m.get("id")) for m in listed or () if isinstance(m, dict)]
    if len(names) != 1:
        said = f"which model? It has {', '.join(names)}" if names else "it has no model"
        raise RemoteError(f"{server.address}: {said}", hint="name MODEL as the server does")
    return names[0]


def body_of(settings: dict[str, Any]) -> dict[str, Any]:
    """Settings of `generate` by the names of the API.

    >>> body_of({"temperature": 0, "max_tokens": -1, "stop": ("a",), "logit_bias": {7: -math.inf}})
    {'temperature': 0, 'stop': ['a'], 'logit_bias': {'7': -100.0}}
    >>> body_of({"template": {"enable_thinking": False}, "json_schema": {"type": "object"}})
    {'chat_template_kwargs': {'enable_thinking': False}, 'response_format': {'type': 'json_object'}}
    """
    found: dict[str, Any] = {}
    for name, value in settings.items():
        if value is None or value == () or name in HERE or (name, value) == ("max_tokens", -1):
            continue
        if name == "logit_bias":
            found[name] = {str(k): v if math.isfinite(v) else BANNED for k, v in value.items()}
        elif name == "json_schema":
            found["response_format"] = response_format(value)
        elif name == "template":
            found |= {"chat_template_kwargs": value} if value else {}
        else:
            found[name] = list(value) if isinstance(value, tuple) else value
    return found


def response_format(schema: Any) -> dict[str, Any]:
    if schema == {"type": "object"}:
        return {"type": "json_object"}
    return {"type": "json_schema", "json_schema": {"name": "answer", "schema": schema}}


class AnswerReader:
    """The events of one answer, as parts, and what it cost: as the server says, or as it was seen
    from here."""

    def __init__(self, has_limit: bool) -> None:
        self.has_limit, self.in_thought, self.reason = has_limit, False, ""
        self.began = self.first = time.perf_counter()
        self.has_begun = False
        self.timings: dict[str, Any] = {}
        self.usage: dict[str, Any] = {}

    def read(self, found: dict[str, Any]) -> Iterator[AnswerPart]:
        self.timings = table(found.get("timings")) or self.timings
        self.usage = table(found.get("usage")) or self.usage
        choices = found.get("choices")
        for choice in choices[:1] if isinstance(choices, list) else ():
            choice = table(choice)
            self.reason = str(choice.get("finish_reason") or self.reason)
            delta = table(choice.get("delta"))
            thought = delta.get("reasoning_content") or delta.get("reasoning")
            yield from self.part(thought, True)
            yield from self.part(delta.get("content") or choice.get("text"), False)

    def part(self, text: Any, is_thought: bool) -> Iterator[AnswerPart]:
        if not isinstance(text, str) or not text:
            return
        if not self.has_begun:
            self.first, self.has_begun = time.perf_counter(), True
        yield AnswerPart(text, is_thought, self.mark(is_thought) + text)

    def mark(self, is_thought: bool) -> str:
        if is_thought == self.in_thought:
            return ""
        self.in_thought = is_thought
        return f"{BEGIN}\n" if is_thought else f"\n{END}\n\n"

    def end(self) -> AnswerPart:
        note = None
        if self.reason == "length" and not self.has_limit:
            note = "note: the context of the server is full, the answer ends"
        return AnswerPart("", raw=self.mark(False), cost=self.cost(), note=note)

    def cost(self) -> AnswerCost:
        now = time.perf_counter()
        seen = {
            "prompt_n": number(self.usage.get("prompt_tokens")),
            "prompt_ms": 1e3 * (self.first - self.began),
            "predicted_n": number(self.usage.get("completion_tokens")),
            "predicted_ms": 1e3 * (now - self.first),
        }
        cached = number(table(self.usage.get("prompt_tokens_details")).get("cached_tokens"))
        seen["prompt_n"] -= min(cached, seen["prompt_n"])
        told = {name: number(self.timings.get(name), seen[name]) for name in seen}
        cached = number(self.timings.get("cache_n"), cached)
        return AnswerCost(
            int(told["prompt_n"]),
            told["prompt_ms"],
            int(told["predicted_n"]),
            told["predicted_ms"],
            int(cached),
            drafted=int(number(self.timings.get("draft_n"))),
            accepted=int(number(self.timings.get("draft_n_accepted"))),
        )


def table(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def number(value: Any, otherwise: float = 0) -> float:
    is_one = isinstance(value, int | float) and math.isfinite(value) and value >= 0
    return value if is_one else otherwise
