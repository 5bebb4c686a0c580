"""Soaking a server: thousands of requests of every dialect, streamed or not, some of whose clients
leave; whoever stays gets the answer that the same question has alone.

`questions()` are the kinds; `Soak` asks each alone first, then all of them at random.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from tests.serve.link import Link, NoAnswer, request
from tests.serve.process import ServerProcess

Json = dict[str, Any]
CLIENTS = 16  # at a time, four times as many as there are slots: most wait in the queue
LEAVING, QUEUED = 0.2, 0.1  # shares that leave at a random moment, and before it is their turn
SCHEMA = {
    "type": "object",
    "properties": {"a": {"type": "integer", "maximum": 99}, "b": {"enum": ["x", "yy"]}},
    "required": ["a", "b"],
    "additionalProperties": False,
}
TOOL = {"name": "look", "description": "Looks.", "parameters": SCHEMA}


@dataclass(frozen=True)
class Question:
    """Where it goes, what it says, and how its answer is read."""

    path: str
    body: Json
    read: Callable[[bytes, bool], Any]
    streams: str = "stream"

    def bytes_of(self, is_streamed: bool) -> bytes:
        body = {**self.body, self.streams: is_streamed}
        return request("POST", self.path, json.dumps(body).encode())


# -- what an answer says, whole or streamed --------------------------------------------------------


def events(body: bytes) -> list[Json]:
    """The JSON of a stream of events."""
    lines = [line[6:] for line in body.split(b"\n") if line.startswith(b"data: ")]
    return [json.loads(line) for line in lines if line != b"[DONE]"]


def checked(parts: list[Json]) -> list[Json]:
    if any("error" in part or part.get("type") == "error" for part in parts):
        raise NoAnswer(f"an error in the middle: {parts[-1]}")
    return parts


def read_chat(body: bytes, is_streamed: bool) -> Any:
    """Of each choice: text, calls, the end."""
    if not is_streamed:
        return [
            (
                choice["message"]["content"] or "",
                [call["function"] for call in choice["message"].get("tool_calls", ())],
                choice["finish_reason"],
            )
            for choice in json.loads(body)["choices"]
        ]
    if not body.endswith(b"data: [DONE]\n\n"):
        raise NoAnswer(f"no end: {body[-100:]!r}")
    found: dict[int, list[Any]] = {}
    for part in checked(events(body)):
        for choice in part["choices"]:
            one = found.setdefault(choice["index"], ["", [], None])
            add_delta(one, choice["delta"])
            one[2] = choice["finish_reason"] or one[2]
    return [tuple(found[index]) for index in sorted(found)]


def add_delta(one: list[Any], delta: Json) -> None:
    one[0] += delta.get("content") or ""
    for call in delta.get("tool_calls", ()):
        function = call["function"]
        if "name" in function:
            one[1].append({"name": function["name"], "arguments": ""})
        one[1][-1]["arguments"] += function.get("arguments", "")


def read_completion(body: bytes, is_streamed: bool) -> Any:
    parts = checked(events(body)) if is_streamed else [json.loads(body)]
    texts: dict[int, str] = {}
    ends: dict[int, str] = {}
    for choice in (choice for part in parts for choice in part["choices"]):
        texts[choice["index"]] = texts.get(choice["index"], "") + choice["text"]
        ends[choice["index"]] = choice["finish_reason"] or ends.get(choice["index"], "")
    return [(texts[index], ends[index]) for index in sorted(texts)]


def read_messages(body: bytes, is_streamed: bool) -> Any:
    if not is_streamed:
        data = json.loads(body)
        return "".join(block.get("text", "") for block in data["content"]), data["stop_reason"]
    parts = checked(events(body))
    texts = [
        part["delta"].get("text", "") for part in parts if part["type"].endswith("block_delta")
    ]
    ends = [part["delta"]["stop_reason"] for part in parts if part["type"] == "message_delta"]
    return "".join(texts), ends[-1]


def read_responses(body: bytes, is_streamed: bool) -> Any:
    data = checked(events(body))[-1]["response"] if is_streamed else json.loads(body)
    texts = [part["text"] for item in data["output"] for part in item.get("content", ())]
    return "".join(texts), data["status"]


def read_ollama(body: bytes, is_streamed: bool) -> Any:
    parts = checked([json.loads(line) for line in body.splitlines()])
    texts = [
        part.get("response", "") + part.get("message", {}).get("content", "") for part in parts
    ]
    return "".join(texts), parts[-1]["done_reason"]


# -- the kinds -------------------------------------------------------------------------------------


def said(text: str) -> list[Json]:
    return [{"role": "user", "content": text}]


def questions(count: int = 4) -> Iterator[Question]:
    """So many of each kind, all with seeds of their own."""
    for seed in range(count):
        draw = {"seed": seed, "temperature": 1.0, "max_tokens": 4 + 9 * seed % 40}
        text = f"tell me {seed} things " * (1 + seed * 7 % 5)
        chat = {"messages": said(text), **draw}
        yield Question("/v1/chat/completions", chat, read_chat)
        yield Question("/v1/chat/completions", {**chat, "n": 2 + seed % 2}, read_chat)
        yield Question("/v1/chat/completions", {**chat, "stop": ["e", "\n"]}, read_chat)
        yield Question("/v1/chat/completions", {**chat, "cache_prompt": False}, read_chat)
        form = {"type": "json_schema", "json_schema": {"name": "s", "schema": SCHEMA}}
        yield Question(
            "/v1/chat/completions", {**chat, "max_tokens": 60, "response_format": form}, read_chat
        )
        tools = {"tools": [{"type": "function", "function": TOOL}], "tool_choice": "required"}
        yield Question("/v1/chat/completions", {**chat, "max_tokens": 90, **tools}, read_chat)
        plain = {"prompt": [text, "and"], **draw, "speculate": 4 * (seed % 2)}
        yield Question("/v1/completions", plain, read_completion)
        greedy = {"model": "tiny", "messages": said(text), "max_tokens": 20, "temperature": 0}
        yield Question("/v1/messages", greedy, read_messages)
        asked = {"input": text, "max_output_tokens": 12, "temperature": 0}
        yield Question("/v1/responses", asked, read_responses)
        options = {"num_predict": 16, "seed": seed}
        ollama = {"model": "tiny", "options": options}
        yield Question("/api/chat", {**ollama, "messages": said(text)}, read_ollama)
        yield Question("/api/generate", {**ollama, "prompt": text}, read_ollama)


# -- asking ----------------------------------------------------------------------------------------


class Soak:
    """All kinds of questions, first alone, then many at a time."""

    def __init__(self, server: ServerProcess, seed: int = 0, kinds: int = 4) -> None:
        self.server, self.rng = server, random.Random(seed)
        self.questions = [*questions(kinds)]
        self.expected: dict[int, Any] = {}
        self.counts: Counter[str] = Counter()
        self.wrong: list[str] = []

    async def alone(self) -> None:
        """The answers to compare with: each question by itself; streamed it says the same."""
        for number, question in enumerate(self.questions):
            both = [await self.answer(question, is_streamed) for is_streamed in (False, True)]
            if both[0] != both[1]:
                self.wrong.append(f"{question}: streamed {both[1]}, whole {both[0]}")
            self.expected[number] = both[0]

    async def run(self, count: int) -> None:
        numbers = iter(range(count))
        await asyncio.gather(*(self.client(numbers) for _ in range(CLIENTS)))

    async def client(self, numbers: Iterator[int]) -> None:
        """Asks one after the other; who leaves comes back."""
        for _ in numbers:
            kind = self.rng.random()
            if kind < LEAVING + QUEUED:
                await self.leave(is_queued=kind < QUEUED)
            else:
                await self.stay()

    async def stay(self) -> None:
        number = self.rng.randrange(len(self.questions))
        try:
            found = await self.answer(self.questions[number], self.rng.random() < 0.5)
        except NoAnswer as error:
            self.wrong.append(f"{self.questions[number]}: {error}")
            return
        self.counts["answered"] += 1
        if found != self.expected[number]:
            expected = self.expected[number]
            self.wrong.append(f"{self.questions[number]}: {found} instead of {expected}")

    async def answer(self, question: Question, is_streamed: bool) -> Any:
        link = await Link.open(self.server.port)
        try:
            link.send(question.bytes_of(is_streamed))
            found = await link.answer("POST")
            if found.status != 200:
                raise NoAnswer(f"status {found.status}: {found.body!r:.300}")
            return question.read(found.body, is_streamed)
        finally:
            await link.close()

    async def leave(self, is_queued: bool) -> None:
        """Closes at once, while it most likely waits, or after a random part of the answer."""
        question = self.rng.choice(self.questions)
        link = await Link.open(self.server.port)
        link.send(question.bytes_of(self.rng.random() < 0.7))
        self.counts["left"] += 1
        if not is_queued:
            with suppress(TimeoutError, asyncio.IncompleteReadError):
                async with asyncio.timeout(self.rng.choice((0.002, 0.02, 0.1))):
                    await link.reader.readexactly(self.rng.choice((1, 300, 1000, 3000)))
        if self.rng.random() < 0.5:
            link.abort()
        await link.close()


def grown(before: Json, after: Json, memory: int) -> list[str]:
    """What there is more of after than before."""
    none = ("slots", "queued", "users", "running", "links", "reading")
    found = [f"{name}: {after[name]} are left" for name in none if after[name]]
    found += [
        f"{name}: {after[name]} instead of {before[name]}"
        for name in ("tasks", "files", "threads")
        if after[name] > before[name]
    ]
    more = after["memory"] - before["memory"]
    return found + ([f"memory: {more >> 20} MiB more"] if more > memory else [])


# -- one answer ------------------------------------------------------------------------------------

SAME = {
    "messages": said("what is it that never changes, though all around it does?"),
    "max_tokens": 24, "seed": 7, "temperature": 1.0,
}  # fmt: skip


async def same_answers(server: ServerProcess, count: int, seed: int = 0) -> Counter[str]:
    """The answers to one question, asked so often, cold and with its prefix known, streamed and
    not, among as many random others."""
    soak = Soak(server, seed, kinds=2)
    found: Counter[str] = Counter()
    numbers = iter(range(count))

    async def client() -> None:
        for number in numbers:
            body = {**SAME, "cache_prompt": number % 2 == 0}
            question = Question("/v1/chat/completions", body, read_chat)
            found[repr(await soak.answer(question, soak.rng.random() < 0.5))] += 1
            other = soak.rng.choice(soak.questions)
            await (soak.leave(is_queued=False) if number % 5 == 0 else soak.answer(other, True))

    await asyncio.gather(*(client() for _ in range(CLIENTS)))
    return found
