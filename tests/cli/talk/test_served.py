"""The clients against our own server, for real: the same answer as from a model in the process."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.cli.conftest import Invoke
from tests.serve.running import Running, model_file, running

HOW = ("--temp", "0", "-n", "8", "--ignore-eos")


@pytest.fixture(scope="module")
def server() -> Iterator[Running]:
    with running() as found:
        yield found


def test_a_server_says_what_the_model_says(invoke: Invoke, server: Running) -> None:
    here = invoke("run", "-m", model_file(), "-p", "Hi there", *HOW)
    there = invoke("run", "--host", server.url, "-p", "Hi there", *HOW, "--verbose")
    assert there.stdout == here.stdout and len(here.stdout) > 2
    assert "eval count:           8 token(s)" in there.stderr
    plain = ("-no-cnv", "-p", "Once", *HOW)
    completed = invoke("run", "--host", server.url, *plain).stdout
    assert completed == invoke("run", "-m", model_file(), *plain).stdout


def test_a_chat_with_a_server(invoke: Invoke, server: Running) -> None:
    lines = "Hi\nAnd?\n/show info\n"
    here = invoke("chat", "-m", model_file(), *HOW, input=lines).stdout.partition("\n\n")[0]
    there = invoke("chat", "tiny", "--host", server.url, *HOW, input=lines).stdout
    assert there.startswith(here) and there.endswith(f"tiny\n{server.url}\n")


def test_what_is_loaded_and_unloaded(invoke: Invoke, server: Running) -> None:
    invoke("run", "--host", server.url, "-p", "Hi", "-n", "1")
    listed = invoke("ps", "--host", server.url).stdout.splitlines()
    assert len(listed) == 2 and listed[1].startswith("tiny") and "100% CPU" in listed[1]
    assert invoke("stop", "--host", server.url).stdout.endswith("leaves memory\n")
    assert len(invoke("ps", "--host", server.url).stdout.splitlines()) == 1
