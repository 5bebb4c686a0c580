"""Bench, serving over HTTP: rows of bench/serve.py in which servers run in processes of their own,
as does the load, all on the same two cores.

Ours is `tetrad serve`, theirs the server of llama-cpp-python, which answers one request at a time:
it is asked by at most four, more would only wait longer. Prompts are words that are one token each,
no two alike; answers are streams. A side's speed counts the tokens that came. Time of the servers
and of the load is ours, whatever else runs is foreign.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from common import THREADS, VOID_ABOVE, Budget, Row, cpu_times
from llm import model_file

from tetrad.formats import gguf

CLIENTS = {1: 2.0, 4: 2.0, 16: 3.0, 32: 3.0}  # and how many times the peer's speed is asked for
PROMPT, ANSWER, LONG, FEW = 64, 64, 2000, 8
MOST_COST, MOST_WAIT, MOST_START = 0.05, 2.5, 0.6
MOST_OF_THEIRS = 4
HERE = Path(__file__).parent
Times = dict[str, Any]


# -- what is asked ---------------------------------------------------------------------------------


def single_words(path: Path) -> list[str]:
    """Words of plain letters that are one token with the space before them."""
    with gguf.open_file(str(path)) as file:
        tokens = file.metadata["tokenizer.ggml.tokens"]
    words = [token[1:] for token in tokens if token.startswith("Ġ")]
    return [word for word in words if word.isascii() and word.isalpha() and word.islower()]


class Questions:
    """Prompts that nobody has asked before."""

    def __init__(self, path: Path) -> None:
        self.words, self.rng = single_words(path), np.random.default_rng(1)

    def body(self, length: int = PROMPT, answer: int = ANSWER) -> Times:
        chosen = self.rng.integers(len(self.words), size=length)
        text = "".join(" " + self.words[i] for i in chosen)
        return {"prompt": text, "max_tokens": answer, "stream": True, "temperature": 0.8}

    def ours(self, **more: int) -> Times:
        return {**self.body(**more), "ignore_eos": True}


# -- processes -------------------------------------------------------------------------------------


@contextmanager
def child(command: list[str], **settings: Any) -> Iterator[subprocess.Popen[str]]:
    made = subprocess.Popen(
        [sys.executable, *command], text=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
        env={**os.environ, "PYTHONPATH": str(HERE.parent)}, **settings,
    )  # fmt: skip
    try:
        yield made
    finally:
        made.terminate()
        made.wait()


@contextmanager
def our_server(path: Path, count: int, context: int = 2 * (PROMPT + ANSWER)) -> Iterator[Any]:
    command = ["-m", "tetrad", "serve", str(path), "--port", "0", "-c", str(context), "-np",
               str(count), "--no-webui"]  # fmt: skip
    with child(command) as made:
        assert made.stdout is not None
        line = made.stdout.readline()
        yield made, int(line.rstrip().rpartition(":")[2])


@contextmanager
def their_server(path: Path, context: int = 2 * (PROMPT + ANSWER)) -> Iterator[Any]:
    port = free_port()
    command = ["-m", "llama_cpp.server", "--model", str(path), "--port", str(port), "--n_ctx",
               str(context), "--n_threads", str(THREADS), "--n_threads_batch", str(THREADS),
               "--interrupt_requests", "false", "--verbose", "false"]  # fmt: skip
    with child(command) as made:
        yield made, port


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def wait_for(port: int) -> None:
    """Until somebody listens."""
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            return
        except OSError:
            time.sleep(0.05)


class Load:
    """The process that asks."""

    def __init__(self, made: subprocess.Popen[str]) -> None:
        self.made = made

    def wave(self, port: int, bodies: list[Times], ahead: Times | None = None) -> Times:
        assert self.made.stdin is not None and self.made.stdout is not None
        self.made.stdin.write(json.dumps({"port": port, "bodies": bodies, "ahead": ahead}) + "\n")
        self.made.stdin.flush()
        found: Times = json.loads(self.made.stdout.readline())
        return found


class Watch:
    """Who used the processor, when these processes are ours."""

    def __init__(self, *processes: subprocess.Popen[str]) -> None:
        self.pids = [process.pid for process in processes]
        self.before = self.now()

    def now(self) -> tuple[int, int]:
        times = cpu_times()
        ours = times.own + sum(ticks_of(pid) for pid in self.pids)
        return times.total, times.busy - ours

    def foreign(self) -> float:
        total, others = self.now()
        return max(0, others - self.before[1]) / max(1, total - self.before[0])


def ticks_of(pid: int) -> int:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])


# -- rows ------------------------------------------------------------------------------------------


def speed(found: Times) -> float:
    return sum(answer["events"] for answer in found["answers"]) / float(found["seconds"])


def calmest(once: Callable[[], tuple[float, Any]], budget: Budget) -> tuple[float, Any]:
    """(foreign share, result) of the attempt with the least of it."""
    best = once()
    for _ in range(budget.attempts - 1):
        if best[0] <= VOID_ABOVE:
            break
        best = min(best, once(), key=lambda one: one[0])
    return best


class Contest:
    """Our server and theirs, and the load."""

    def __init__(self, format: str, stack: ExitStack) -> None:
        self.path, self.stack = model_file(format), stack
        self.questions = Questions(self.path)
        script = str(HERE / "serve_load.py")
        self.load = Load(stack.enter_context(child([script], stdin=subprocess.PIPE)))

    def ours(self, count: int, context: int = 2 * (PROMPT + ANSWER)) -> tuple[Any, int]:
        made, port = self.stack.enter_context(our_server(self.path, count, context))
        self.load.wave(port, [self.questions.ours() for _ in range(count)])
        return made, int(port)

    def theirs(self) -> tuple[Any, int]:
        made, port = self.stack.enter_context(their_server(self.path))
        wait_for(port)
        self.load.wave(port, [self.questions.body()])
        return made, int(port)

    def asked(self, port: int, count: int) -> float:
        return speed(self.load.wave(port, [self.questions.ours() for _ in range(count)]))

    def asked_them(self, port: int, count: int) -> float:
        return speed(self.load.wave(port, [self.questions.body() for _ in range(count)]))


def throughput(format: str, count: int, budget: Budget) -> Row:
    with ExitStack() as stack:
        contest = Contest(format, stack)
        (ours, port), (theirs, other) = contest.ours(count), contest.theirs()

        def once() -> tuple[float, tuple[float, float]]:
            watch = Watch(ours, theirs, contest.load.made)
            rounds = [
                (contest.asked(port, count), contest.asked_them(other, min(count, MOST_OF_THEIRS)))
                for _ in range(max(2, budget.rounds - 1))
            ]
            best = max(one for one, _ in rounds), max(one for _, one in rounds)
            return watch.foreign(), best

        foreign, (best, peer) = calmest(once, budget)
    name = f"{count} clients, {format}"
    return Row(name, best, "tok/s", best / peer, CLIENTS[count], "llama-cpp-python", peer, foreign)


def cost(format: str, count: int, scheduler: Any, budget: Budget) -> Row:
    """What the server and its load take beside the scheduler, which runs in this process."""
    with ExitStack() as stack:
        contest = Contest(format, stack)
        ours, port = contest.ours(count)
        alone = scheduler(contest.path, count)

        def engine() -> float:
            begin = time.perf_counter()
            alone.run()
            return count * ANSWER / (time.perf_counter() - begin)

        def once() -> tuple[float, tuple[float, float]]:
            watch = Watch(ours, contest.load.made)
            rounds = [(contest.asked(port, count), engine()) for _ in range(budget.rounds + 1)]
            best = max(one for one, _ in rounds), max(one for _, one in rounds)
            return watch.foreign(), best

        foreign, (served, plain) = calmest(once, budget)
        alone.scheduler.close()
    ratio = served / plain / (1 - MOST_COST)
    name = f"server against scheduler, {count} clients, {format}"
    return Row(name, served, "tok/s", ratio, 1.0, "95 % of it", plain, foreign)


def waiting(format: str, budget: Budget) -> Row:
    """The 99th of a hundred first tokens at eight clients, while a long prompt arrives, against
    the same in quiet."""
    with ExitStack() as stack:
        contest = Contest(format, stack)
        ours, port = contest.ours(FEW + 1, LONG + 2 * ANSWER)
        found: dict[bool, list[float]] = {False: [], True: []}

        def firsts(is_long: bool) -> list[float]:
            ahead = contest.questions.ours(length=LONG, answer=1) if is_long else None
            wave = contest.load.wave(port, [contest.questions.ours() for _ in range(FEW)], ahead)
            return [answer["first"] for answer in wave["answers"]]

        def once() -> tuple[float, tuple[float, float]]:
            watch = Watch(ours, contest.load.made)
            for times in found.values():
                times.clear()
            for _ in range(2 * budget.rounds):
                for is_long, times in found.items():
                    times.extend(firsts(is_long))
            slow = [float(np.percentile(times, 99)) for times in found.values()]
            return watch.foreign(), (slow[0], slow[1])

        foreign, (quiet, busy) = calmest(once, budget)
    name = f"first token of {FEW} clients, a prompt of {LONG} comes, {format}"
    return Row(name, busy, "s", MOST_WAIT * quiet / busy, 1.0, "2.5 x quiet", quiet, foreign)


def start(format: str, budget: Budget) -> Row:
    """From the command to the end of the first answer, when the caches are warm."""
    path = model_file(format)
    body = {"prompt": "The capital of France is", "max_tokens": 1, "stream": False}
    data = json.dumps(body).encode()
    head = (
        f"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(data)}\r\n\r\n"
    )

    def one() -> float:
        begin = time.perf_counter()
        with (
            our_server(path, 4, 2048) as (_, port),
            socket.create_connection(("127.0.0.1", port)) as link,
        ):
            link.sendall(head.encode() + data)
            if not link.recv(1 << 16).startswith(b"HTTP/1.1 200"):
                raise RuntimeError("the server did not answer")
            return time.perf_counter() - begin

    def once() -> tuple[float, float]:
        watch = Watch()
        seconds = min(one() for _ in range(budget.rounds + 1))
        return watch.foreign(), seconds

    one()
    foreign, seconds = calmest(once, budget)
    name = f"start to first answer, {format}"
    return Row(name, seconds, "s", MOST_START / seconds, 1.0, "0.6 s", MOST_START, foreign)


def http_rows(
    formats: tuple[str, ...], scheduler: Any, wants: Callable[[str], bool], budget: Budget
) -> Iterator[Row]:
    for format in formats:
        for count in CLIENTS:
            if wants(f"{count} clients, {format}"):
                yield throughput(format, count, budget)
        if wants(f"server against scheduler, 16 clients, {format}"):
            yield cost(format, 16, scheduler, budget)
        if wants(f"first token of {FEW} clients, a prompt of {LONG} comes, {format}"):
            yield waiting(format, budget)
        if wants(f"start to first answer, {format}"):
            yield start(format, budget)
