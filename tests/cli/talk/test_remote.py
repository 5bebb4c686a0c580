"""run and chat as clients: what they ask a server, and how they show what it says."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Invoke
from tests.cli.talk.stub import StubHandler, chat, models, stub
from tests.cli.terminal import RUN, seen_at_terminal
from tests.modules import ROOT
from tetrad.cli.talk.client import RemoteError, RemoteServer, address_of

HELLO = chat({"role": "assistant"}, {"content": "Hel"}, {"content": "lo\x1b[2J"})
TIMINGS = {"prompt_n": 7, "prompt_ms": 70.0, "predicted_n": 3, "predicted_ms": 30.0, "cache_n": 2}


def test_one_answer(invoke: Invoke) -> None:
    with stub(v1_models=models("tiny"), v1_chat_completions=HELLO) as (host, asked):
        found = invoke("run", "--host", host, "--api-key", "k", "Hi there", "-sys", "Be kind.")
    assert found.stdout == "Hello\x1b[2J\n"
    path, body, key = asked[-1]
    assert (path, key) == ("/v1/chat/completions", "Bearer k")
    assert body == {
        "model": "tiny",
        "stream": True,
        "stream_options": {"include_usage": True},
        "messages": [
            {"role": "system", "content": "Be kind."},
            {"role": "user", "content": "Hi there"},
        ],
    }


def test_settings_that_were_chosen_are_sent_and_no_others(invoke: Invoke) -> None:
    line = "--temp 0 --top-k 5 -n 9 -s 3 -r END -l 7-inf --format json --think off -c 64 --keep 3"
    with stub(v1_chat_completions=HELLO) as (host, asked):
        found = invoke("run", "tiny", "Hi", "--host", f"http://{host}/v1", *line.split())
    body = asked[-1][1]
    assert {name: body[name] for name in sorted(body.keys() - {"messages", "stream"})} == {
        "chat_template_kwargs": {"enable_thinking": False},
        "logit_bias": {"7": -100.0},
        "max_tokens": 9,
        "model": "tiny",
        "response_format": {"type": "json_object"},
        "seed": 3,
        "stop": ["END"],
        "stream_options": {"include_usage": True},
        "temperature": 0.0,
        "top_k": 5,
    }
    why = "has no effect: the server has loaded the model"
    assert sorted(found.stderr.splitlines()) == [f"note: --keep {why}", f"note: -c {why}"]


def test_plain_text_is_continued(invoke: Invoke) -> None:
    def answer(handler: StubHandler, body: Any) -> None:
        handler.raw(b"", kind="text/event-stream")
        handler.event({"choices": [{"text": body["prompt"] + "!", "finish_reason": "length"}]})
        handler.wfile.write(b"data: [DONE]\n\n")

    with stub(v1_completions=answer) as (host, _):
        found = invoke("run", "tiny", "-no-cnv", "-p", "Once", "--host", host)
    assert found.stdout == "Once!\n" and "the context of the server is full" in found.stderr


def test_thoughts_and_timings(invoke: Invoke) -> None:
    answer = chat({"reasoning_content": "Hm."}, {"content": "Yes."}, last={"timings": TIMINGS})
    with stub(v1_chat_completions=answer) as (host, _):
        found = invoke("run", "tiny", "Hi", "--host", host, "--verbose")
        hidden = invoke("run", "tiny", "Hi", "--host", host, "--hide-thinking")
        seen = seen_at_terminal("run", "tiny", "Hi", "--host", host, piped=b"")[1]
    assert found.stdout == "<think>\nHm.\n</think>\n\nYes.\n" and hidden.stdout == "Yes.\n"
    assert b"\x1b[2mThinking...\nHm.\x1b[0m" in seen and seen.endswith(b"Yes.\n")
    assert "prompt eval count:    7 token(s), 2 more from the cache" in found.stderr
    assert "eval rate:            100.00 tokens/s" in found.stderr


def test_a_server_without_timings_is_timed_from_here(invoke: Invoke) -> None:
    usage = {"prompt_tokens": 5, "completion_tokens": 2}
    with stub(v1_chat_completions=chat({"content": "Hi"}, last={"usage": usage})) as (host, _):
        told = invoke("run", "tiny", "Hi", "--host", host, "-v").stderr
    assert "prompt eval count:    5 token(s)\n" in told and "eval count:           2 token" in told


def test_a_chat(invoke: Invoke, tmp_path: Path) -> None:
    lines = f"Hi\n/set temperature 0.5\n/show info\n/retry\n/save {tmp_path / 'talk'}\n"
    with stub(v1_models=models("tiny"), v1_chat_completions=HELLO) as (host, asked):
        found = invoke("chat", "--host", host, input=lines)
    assert found.stdout.count("Hello") == 2 and f"tiny\nhttp://{host}" in found.stdout
    bodies = [body for path, body, _ in asked if path == "/v1/chat/completions"]
    assert [body.get("temperature") for body in bodies] == [None, 0.5]
    assert [m["role"] for m in bodies[1]["messages"]] == ["user"]
    assert len(json.loads((tmp_path / "talk").read_text())["messages"]) == 2


def refusing(status: int) -> Any:
    return lambda handler, body: handler.give({"error": {"message": "no\x1b"}}, status)


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (refusing(401), r"no\x1b (status 401)" "\n  hint: --api-key or TETRAD_API_KEY"),
        (refusing(429), "hint: it is busy"),
        (chat({"content": "Hi"}, done=False), "ended the answer before it was complete"),
        (lambda h, b: h.raw(b"data: {\n\n"), "the server sent what is no JSON"),
        (lambda h, b: h.raw(b"data: []\n\n"), "an event that is no object"),
        (lambda h, b: h.raw(b'data: {"error": {"message": "bad"}}\n\n'), "the server: bad"),
        (lambda h, b: h.raw(b"<html>", 502), "Bad Gateway (status 502)"),
    ],
)
def test_what_goes_wrong_is_said(invoke: Invoke, answer: Any, said: str) -> None:
    with stub(v1_chat_completions=answer) as (host, _):
        printed = invoke("run", "tiny", "Hi", "--host", host, code=1)
        talk = invoke("chat", "tiny", "--host", host, input="Hi\n/show messages\n")
    assert said in printed.stderr and "\x1b" not in printed.stderr
    assert said.partition("\n")[0] in talk.stderr and "nothing was said" in talk.stdout


def test_nobody_listens(invoke: Invoke) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    printed = invoke("run", "tiny", "Hi", "--host", f"localhost:{port}", code=1).stderr
    assert f"Error: nothing listens at http://localhost:{port}: Connection refused" in printed
    assert "hint: `tetrad serve MODEL` starts a server" in printed


def test_which_model(invoke: Invoke, tiny_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with stub(v1_models=models("a", "b"), v1_chat_completions=HELLO) as (host, asked):
        printed = invoke("run", "Hi there", "--host", host, code=1).stderr
        assert "which model? It has a, b" in printed
        both = invoke("run", "-m", tiny_file, "Hi", "--host", host, code=2).stderr
        assert "name MODEL instead" in both
        monkeypatch.setenv("TETRAD_HOST", host)
        assert invoke("run", "b", "Hi").stdout == "Hello\x1b[2J\n"
        before = len(asked)
        invoke("run", "-m", tiny_file, "-p", "Hi", "-n", "1")  # a file is here
        assert len(asked) == before


@pytest.mark.parametrize("text", ["ftp://x", "http://a:b@c", "http://x:port", "http://x?y=1"])
def test_addresses_that_are_none(text: str) -> None:
    with pytest.raises(RemoteError, match="is no address of a server"):
        address_of(text)


def test_what_has_no_end_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tetrad.cli.talk.client.MOST_LINE", 100)
    monkeypatch.setattr("tetrad.cli.talk.client.MOST_BYTES", 100)
    flood = lambda handler, body: handler.raw(b"data: " + b"x" * 1000)  # noqa: E731
    with stub(v1_chat_completions=flood, v1_models=flood) as (host, _):
        server = RemoteServer(address_of(host))
        with pytest.raises(RemoteError, match="a line of more than 100 bytes"):
            list(server.stream("/v1/chat/completions", {}))
        with pytest.raises(RemoteError, match="more than 100 bytes"):
            server.get("/v1/models")


def endless(handler: StubHandler, body: Any) -> None:
    handler.raw(b"", kind="text/event-stream")
    while True:
        handler.event({"choices": [{"delta": {"content": "word "}}]})
        time.sleep(0.02)


def test_ctrl_c_ends_the_answer_there_too(folder: Path) -> None:
    """The connection is closed, which the server sees; the chat goes on."""
    with stub(v1_chat_completions=endless) as (host, asked):
        words = [sys.executable, "-c", RUN, "chat", "tiny", "--host", host]
        pipe = subprocess.PIPE
        with subprocess.Popen(words, stdin=pipe, stdout=pipe, stderr=pipe, cwd=ROOT) as run:
            assert run.stdin is not None and run.stdout is not None and run.stderr is not None
            run.stdin.write(b"Hi\n")
            run.stdin.flush()
            run.stdout.read(20)
            run.send_signal(signal.SIGINT)
            run.stdin.write(b"/show messages\n/bye\n")
            run.stdin.flush()
            printed = run.stdout.read()
            assert b" ...\n\nuser: Hi\nassistant: word word" in printed
            assert (run.wait(20), run.stderr.read()) == (0, b"")
        deadline = time.monotonic() + 10
        while ("gone", None, None) not in asked:
            assert time.monotonic() < deadline
            time.sleep(0.02)


def test_a_client_loads_no_model(folder: Path) -> None:
    """Neither LLVM nor the compiler: an answer from elsewhere begins at once."""
    heavy = ("llvmlite", "tetrad.models.model", "tetrad.compiler.driver", "tetrad.explain.roofs")
    end = f"atexit.register(lambda: print('loaded', *(m for m in {heavy} if m in sys.modules)))"
    program = f"import atexit, sys; {end}; {RUN}"
    with stub(v1_chat_completions=HELLO) as (host, _):
        words = [sys.executable, "-c", program, "run", "tiny", "-p", "Hi", "--host", host]
        run = subprocess.run(words, capture_output=True, text=True, cwd=ROOT, env=os.environ)
    assert run.stdout.splitlines()[-1] == "loaded", run.stderr
