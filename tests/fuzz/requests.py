"""Fuzzing requests: hostile clients, several at a time, at a server in a process of its own.

A seed is one visit: eight connections with some hundred requests, among them bytes that are no
request, bodies with wrong fields, clients that leave, wait, do not read or ask ahead. The process
must live, whatever is a whole request must be answered with a status that fits, and after the visit
the server must hold no more than before.
"""

from __future__ import annotations

import asyncio
import atexit
import random
import socket
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import ExitStack, asynccontextmanager
from functools import cache
from pathlib import Path

from tests.fuzz.request_bodies import BodyCase, body_case
from tests.fuzz.request_wire import REFUSED, garbage, odd_place, vector
from tests.serve.link import Answer, Link, NoAnswer, request
from tests.serve.process import ServerProcess, process
from tetrad.serve.schema import SPELT

CONNECTIONS, REQUESTS = 8, 40  # of a visit, and of each of its connections
QUICK = {"head_seconds": 1.0, "body_seconds": 1.0, "stall_seconds": 1.0, "linger_seconds": 0.3}
MOST_GROWTH = 192 << 20  # bytes of memory, from after the first visit on
LONG = b'{"prompt": "hello", "max_tokens": 300, "ignore_eos": true, "stream": true}'


class Failure(Exception):
    """What went wrong, and what is needed to see it again."""


class Visit:
    """What one connection does, one thing after the other."""

    def __init__(self, server: ServerProcess, seed: int) -> None:
        self.server, self.rng = server, random.Random(seed)
        self.link: Link | None = None
        self.count = 0

    async def run(self) -> int:
        try:
            while self.count < REQUESTS:
                await self.rng.choices(ACTS, WEIGHTS)[0](self)
        finally:
            await self.leave()
        return self.count

    async def connected(self) -> Link:
        if self.link is None:
            self.link = await Link.open(self.server.port)
        return self.link

    async def fresh(self) -> Link:
        await self.leave()
        return await self.connected()

    @asynccontextmanager
    async def alone(self) -> AsyncIterator[Link]:
        """A connection for one request."""
        link = await Link.open(self.server.port)
        self.count += 1
        try:
            yield link
        finally:
            await link.close()

    async def leave(self) -> None:
        if self.link is not None:
            await self.link.close()
            self.link = None

    async def answer(self, sent: bytes, method: str = "POST") -> Answer:
        """The next answer on this connection, which is then used no more if it says so."""
        self.count += 1
        link = await self.connected()
        try:
            found = await link.answer(method)
        except NoAnswer as error:
            raise Failure(f"{error}\n  sent {sent[:2000]!r}") from None
        if found.status >= 500 and not is_full(found):
            raise Failure(f"status {found.status}: {found.body!r:.300}\n  sent {sent[:2000]!r}")
        if found.closes:
            await self.leave()
        return found

    async def ask(self, sent: bytes, method: str = "POST") -> Answer:
        (await self.connected()).send(sent)
        return await self.answer(sent, method)


def is_full(answer: Answer) -> bool:
    return answer.status == 503 and "too m" in answer.message


def expect(fits: bool, said: str, sent: bytes) -> None:
    if not fits:
        raise Failure(f"{said}\n  sent {sent[:2000]!r}")


# -- what a client may do --------------------------------------------------------------------------


async def send_body(visit: Visit) -> None:
    case = body_case(visit.rng)
    sent = request("POST", case.endpoint.path, case.body)
    found = await visit.ask(sent)
    shown = f"status {found.status}: {found.body!r:.300}"
    expect(found.status in (200, 400, 404, 413, 429), shown, sent)
    expect(found.status != 200 or not case.is_refused, f"taken: {shown}", sent)
    if found.status == 400 and names_field(case):
        expect(any(name in found.body.decode() for name in told(case)), f"no field: {shown}", sent)


def names_field(case: BodyCase) -> bool:
    return not case.is_refused and bool(case.names) and case.endpoint.tells_fields


def told(case: BodyCase) -> list[str]:
    """Names that an error of the case may tell: settings have names of our own, more tokens than
    there is room for are of the prompt."""
    own = [SPELT.get(name, name) for name in case.names]
    return [*case.names, *own, "context", "messages", "prompt", "input"]


async def send_in_chunks(visit: Visit) -> None:
    case, rng = body_case(visit.rng), visit.rng
    head = b"POST %b HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
    sent = head % case.endpoint.path.encode()
    body = case.body[:4000]
    while body:
        size = rng.randint(1, 1 + len(body) // 2)
        sent, body = sent + b"%x\r\n%b\r\n" % (size, body[:size]), body[size:]
    found = await visit.ask(sent + b"0\r\n\r\n")
    expect(found.status in (200, 400, 404, 429), f"status {found.status}", sent)


async def smuggle(visit: Visit) -> None:
    """Refused, closed, and nothing that came behind is answered."""
    case = vector(visit.rng)
    async with visit.alone() as link:
        link.send(case.data)
        try:
            found = await link.answer()
        except NoAnswer as error:
            raise Failure(f"{case.name}: {error}") from None
        expect(found.status in REFUSED and found.closes, f"{case.name}: {found}", case.data)
        expect(await link.is_over(), f"{case.name}: more was answered", case.data)


async def send_garbage(visit: Visit) -> None:
    """The server may wait for more of it: then the client leaves."""
    case = garbage(visit.rng)
    async with visit.alone() as link:
        link.send(case.data)
        link.half_close()
        try:
            found = await link.answer()
            expect(found.status < 500, f"status {found.status}", case.data)
        except NoAnswer as error:
            expect("ended early" in str(error), f"{case.name}: {error}", case.data)


async def go_astray(visit: Visit) -> None:
    method, sent = odd_place(visit.rng)
    found = await visit.ask(sent, method)
    expect(found.status < 500, f"status {found.status}", sent)


async def pipeline(visit: Visit) -> None:
    """Answers come in the order of the questions."""
    link, words = await visit.fresh(), [f"word {i} {visit.rng.random()}" for i in range(8)]
    parts = [request("POST", "/tokenize", b'{"content": "%b"}' % word.encode()) for word in words]
    link.send(b"".join(parts))
    for word, sent in zip(words, parts, strict=True):
        found = await visit.answer(sent)
        tokens = found.data["tokens"]
        again = await asyncio.to_thread(
            visit.server.ask, "POST", "/detokenize", {"tokens": tokens}
        ) if visit.rng.random() < 0.1 else {"content": word}  # fmt: skip
        expect(again["content"] == word, f"{again} instead of {word}", sent)


async def leave_early(visit: Visit) -> None:
    """Gone at a random moment: with half of a request sent, while it waits, or while it is
    answered."""
    rng = visit.rng
    sent = request("POST", "/v1/completions", LONG)
    async with visit.alone() as link:
        link.send(sent[: rng.randint(1, len(sent))] if rng.random() < 0.5 else sent)
        await asyncio.sleep(rng.choice((0.0, 0.002, 0.02)))
        if rng.random() < 0.5:
            link.abort()


async def stay_silent(visit: Visit) -> None:
    """A request that does not end is answered with 408, or the connection just ends."""
    sent = request("POST", "/tokenize", b'{"content": "hello"}')
    cut = visit.rng.randint(0, len(sent) - 1)
    async with visit.alone() as link:
        link.send(sent[:cut])
        try:
            found = await link.answer()
            expect(found.status == 408, f"status {found.status}", sent[:cut])
        except NoAnswer as error:
            expect(not cut and "ended early" in str(error), str(error), sent[:cut])


async def dribble(visit: Visit) -> None:
    """A few bytes at a time: answered, or told that it takes too long."""
    rng = visit.rng
    sent = request("POST", "/tokenize", b'{"content": "hello"}')
    link = await visit.fresh()
    for at in range(0, len(sent), 16):
        link.send(sent[at : at + 16])
        await asyncio.sleep(rng.choice((0.0, 0.001, 0.05)))
    found = await visit.answer(sent)
    expect(found.status in (200, 408), f"status {found.status}", sent)


async def read_nothing(visit: Visit) -> None:
    """Asks for much and does not read it."""
    with socket.socket() as quiet:
        quiet.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        quiet.connect(("127.0.0.1", visit.server.port))
        for _ in range(4):
            quiet.send(request("POST", "/v1/completions", LONG))
        visit.count += 4
        await asyncio.sleep(visit.rng.choice((0.05, 0.3)))


Act = Callable[[Visit], Awaitable[None]]
SHARES: dict[Act, float] = {
    send_body: 60, send_in_chunks: 4, smuggle: 12, send_garbage: 8, go_astray: 10, pipeline: 0.5,
    leave_early: 3, stay_silent: 0.1, dribble: 0.5, read_nothing: 0.1,
}  # fmt: skip
ACTS, WEIGHTS = [*SHARES], [*SHARES.values()]


# -- one visit -------------------------------------------------------------------------------------


class Guest:
    """A server, and what it held when its first visitors had left."""

    def __init__(self, server: ServerProcess) -> None:
        self.server = server
        self.requests = self.read = 0  # bytes of the log, besides
        asyncio.run(visited(server, -1))
        self.before = server.settled()

    def check(self, seed: int) -> str | None:
        try:
            self.requests += asyncio.run(visited(self.server, seed))
        except Failure as failure:
            return str(failure)
        except OSError as error:
            return f"the server cannot be reached: {error}, {self.log()[-1000:]}"
        return self.grown()

    def grown(self) -> str | None:
        """What there is more of than before."""
        now = self.server.settled()
        for name in ("slots", "queued", "users", "running", "links", "reading"):
            if now[name]:
                return f"{name}: {now[name]} are left"
        for name in ("tasks", "files", "threads"):
            if now[name] > self.before[name]:
                return f"{name}: {now[name]} instead of {self.before[name]}"
        if now["memory"] > self.before["memory"] + MOST_GROWTH:
            return f"memory: {now['memory'] >> 20} MiB instead of {self.before['memory'] >> 20}"
        return self.told()

    def told(self) -> str | None:
        """What the log has of faults since the last time."""
        text = self.log()
        at = text.find("internal error", self.read)
        self.read = len(text)
        return None if at < 0 else text[at : at + 3000]

    def log(self) -> str:
        return self.server.log.read_text(errors="replace")


async def visited(server: ServerProcess, seed: int) -> int:
    """All connections of a visit at once; how many requests they made."""
    visits = [Visit(server, seed * CONNECTIONS + i) for i in range(CONNECTIONS)]
    return sum(await asyncio.gather(*(visit.run() for visit in visits)))


@cache
def guest() -> Guest:
    """The server of all seeds of this process."""
    stack = ExitStack()
    atexit.register(stack.close)
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
    return Guest(stack.enter_context(process(folder, **QUICK)))


def check(seed: int) -> str | None:
    return guest().check(seed)
