"""A share of the soak, the same answer among others, and clients and servers that end at once."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.serve.link import Link, request
from tests.serve.process import HOME, ServerProcess, process
from tests.serve.running import model_file, until
from tests.serve.soak import Soak, grown, same_answers

ENDLESS = {"prompt": "hello", "max_tokens": -1, "ignore_eos": True, "shift": True, "stream": True}
ASK = request("POST", "/v1/completions", json.dumps(ENDLESS).encode())
STREAMING = """
import socket, sys
with socket.create_connection(("127.0.0.1", int(sys.argv[1]))) as link:
    link.sendall(sys.stdin.buffer.read())
    print(len(link.recv(100)), flush=True)
    while link.recv(65536):
        pass
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with process(tmp_path_factory.mktemp("soak"), context=1024) as found:
        yield found


def soaked(server: ServerProcess, count: int, kinds: int = 2) -> Soak:
    soak = Soak(server, kinds=kinds)

    async def run() -> None:
        await soak.alone()
        await soak.run(count)

    asyncio.run(run())
    return soak


def test_whoever_stays_gets_the_answer_that_the_question_has_alone(server: ServerProcess) -> None:
    soak = soaked(server, 60)
    before = server.settled()
    asyncio.run(soak.run(240))
    assert not soak.wrong, "\n".join(soak.wrong[:5])
    assert soak.counts["answered"] > 150 and soak.counts["left"] > 50
    assert not grown(before, server.settled(), 32 << 20)
    assert "internal error" not in server.log.read_text()


def test_an_answer_that_differs_is_noticed(server: ServerProcess) -> None:
    soak = soaked(server, 0, kinds=1)
    soak.expected[0] = [("another", [], "stop")]
    asyncio.run(soak.run(60))
    assert soak.wrong and all("another" in said for said in soak.wrong)


def test_what_is_left_behind_is_told() -> None:
    names = ("slots", "queued", "users", "running", "links", "reading", "tasks", "files", "threads")
    before = {**dict.fromkeys(names, 0), "memory": 0}
    assert grown(before, before, 0) == []
    assert len(grown(before, {name: 1 for name in before}, 0)) == len(before)


def test_the_same_question_has_one_answer(server: ServerProcess, tmp_path: Path) -> None:
    found = asyncio.run(same_answers(server, 40))
    with process(tmp_path, threads=1, context=1024) as other:
        found += asyncio.run(same_answers(other, 20))
    assert len(found) == 1 and found.total() == 60


# -- the end of a client, and of a server ----------------------------------------------------------


def test_a_client_that_is_killed_gives_its_slot_back_at_once(server: ServerProcess) -> None:
    """The best of some: beside other tests a process may wait for its turn for longer."""
    assert any(seconds_after_a_kill(server) < 0.1 for _ in range(8))


def seconds_after_a_kill(server: ServerProcess) -> float:
    """Until the slot of a client is free, who reads an answer without end."""
    command = [sys.executable, "-S", "-c", STREAMING, str(server.port)]
    client = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert client.stdin is not None and client.stdout is not None
    client.stdin.write(ASK)
    client.stdin.close()
    assert int(client.stdout.readline()) > 0
    until(lambda: server.state()["slots"] == 1, 60)
    begin = time.monotonic()
    client.send_signal(signal.SIGKILL)
    client.wait()
    client.stdout.close()
    until(lambda: server.state()["slots"] == 0, 30)
    return time.monotonic() - begin


@pytest.mark.parametrize("length, status", [(60, 0), (-1, 1)])
def test_sigterm_lets_answers_end_or_tells_them(length: int, status: int, tmp_path: Path) -> None:
    """The command itself, under more load than it has slots. What ends in time ends well, and the
    status is 0; what does not is told so."""
    command = [
        sys.executable, "-m", "tetrad", "serve", str(model_file()), "--port", "0", "-np", "2",
        "--drain-timeout", "60" if length > 0 else "1",
    ]  # fmt: skip
    env = {**os.environ, "PYTHONPATH": str(HOME), "TETRAD_THREADS": "2"}
    with (tmp_path / "log").open("w") as log:
        child = subprocess.Popen(
            command, cwd=HOME, env=env, stdout=subprocess.PIPE, stderr=log, text=True
        )
    assert child.stdout is not None
    port = int(child.stdout.readline().partition("127.0.0.1:")[2].partition(",")[0])
    body = {**ENDLESS, "max_tokens": length}
    sent = request("POST", "/v1/completions", json.dumps(body).encode())
    answers, begin = asyncio.run(answers_until_the_end(child, port, sent))
    assert child.wait(60) == status and time.monotonic() - begin < 60
    child.stdout.close()
    assert len(answers) == 6 and all(is_whole(answer, length > 0) for answer in answers)


async def answers_until_the_end(
    child: subprocess.Popen[str], port: int, sent: bytes
) -> tuple[list[bytes], float]:
    """Six clients, of which four wait, when the server is told to end."""
    links = [await Link.open(port) for _ in range(6)]
    for link in links:
        link.send(sent)
    await links[0].reader.readuntil(b"\r\n\r\n")
    await asyncio.sleep(0.2)  # all of them have come as far as the queue
    child.send_signal(signal.SIGTERM)
    begin = time.monotonic()
    async with asyncio.timeout(60):
        found = [await link.reader.read(-1) for link in links]
    for link in links:
        await link.close()
    return found, begin


def is_whole(answer: bytes, ends_well: bool) -> bool:
    """An answer with its end, or one that says why there is none."""
    last = b"data: [DONE]\n\n" if ends_well else b"shutting down"
    return last in answer[-400:] and answer.endswith(b"0\r\n\r\n")


def test_new_requests_are_refused_while_a_server_ends(tmp_path: Path) -> None:
    with process(tmp_path, drain=5.0) as server:
        with socket.create_connection(("127.0.0.1", server.port)) as link:
            body = {"prompt": "hello", "max_tokens": 400, "ignore_eos": True, "n": 4}
            link.sendall(request("POST", "/v1/completions", json.dumps(body).encode()))
            until(lambda: server.state()["slots"] > 0, 60)
            stopper = threading.Thread(target=server.stop)
            stopper.start()
            until(lambda: is_refused(server), 60)
            assert link.recv(100).startswith(b"HTTP/1.1 200")
        stopper.join()


def is_refused(server: ServerProcess) -> bool:
    try:
        found = server.ask("POST", "/v1/completions", {"prompt": "a", "max_tokens": 1})
    except OSError:
        return True
    return "shutting down" in str(found.get("error", ""))
