"""`tetrad serve` as a process: started, asked, and ended by signals."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click
import httpx
import pytest
from click.testing import CliRunner

from tests.serve.running import model_file
from tetrad.cli.main import main
from tetrad.cli.serve import SECONDS, place_of
from tetrad.serve.keys import read_keys

ASKED = {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 2}


@contextmanager
def started(*words: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A server in a process of its own, and its address."""
    command = [sys.executable, "-m", "tetrad", "serve", str(model_file()), "--port", "0", *words]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            first = process.stdout.readline()
            found = re.search(r"(https?://\S+:\d+)", first)
            assert found, first + process.stdout.read()
            yield process, found[1]
        finally:
            process.kill()


def test_a_server_is_asked_and_ends(tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    keys.write_text("# ours\nsecret\n")
    with started("--api-key-file", str(keys), "-np", "2", "-c", "256") as (process, address):
        with httpx.Client(base_url=address, trust_env=False, timeout=60) as client:
            assert client.post("/v1/chat/completions", json=ASKED).status_code == 401
            client.headers["authorization"] = "Bearer secret"
            assert client.post("/v1/chat/completions", json=ASKED).status_code == 200
            assert len(client.get("/slots").json()) == 2
            assert client.get("/metrics").status_code == 404  # unless --metrics
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0
        assert process.stdout is not None and process.stderr is not None
        assert "Ctrl-C stops it" in process.stdout.read()
        log = process.stderr.read()
        assert "event=stopped" in log and "secret" not in log and "Traceback" not in log


def test_a_server_with_a_draft_model_answers_as_without() -> None:
    body = {"prompt": "Hi there", "max_tokens": 24, "seed": 3, "ignore_eos": True}
    draft = ("-md", str(model_file()), "--draft-p-min", "0", "--draft-max", "4")
    answers, guessed = [], []
    for words in ((), draft, ("--speculate", "4")):
        with started("-c", "256", *words) as (_, address):
            found = httpx.post(f"{address}/v1/completions", json=body, timeout=60, trust_env=False)
            answers.append(found.json()["choices"][0]["text"])
            guessed.append(found.json()["timings"].get("draft_n", 0))
    assert answers[0] == answers[1] == answers[2]
    assert guessed[0] == 0 and guessed[1] > 4


def test_a_port_in_use_is_told_with_a_remedy() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        command = [sys.executable, "-m", "tetrad", "serve", str(model_file()), "--port", str(port)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 1 and "Traceback" not in done.stderr
    assert f"127.0.0.1 port {port} is in use" in done.stderr and "--port 0" in done.stderr


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--port", "70000"], "70000"),
        (["--keep-alive", "soon"], "expected a time"),
        (["-md", "MODEL", "MODEL", "MODEL"], "it guesses for one model"),
        (["-a", "x", "MODEL", "MODEL"], "aliases are for one model"),
        (["--ssl-key-file", "KEY", "MODEL"], "give both"),
        (["--models-dir", "FOLDER"], "there is no model below"),
        (["--prot", "1"], "--port"),
    ],
    ids=str,
)
def test_options_that_are_wrong(words: list[str], said: str, tmp_path: Path) -> None:
    places = {"MODEL": str(model_file()), "KEY": __file__, "FOLDER": str(tmp_path)}
    done = CliRunner().invoke(main, ["serve", *(places.get(word, word) for word in words)])
    assert done.exit_code in (1, 2) and said in done.output


def test_times() -> None:
    found = [
        SECONDS.convert(text, None, None) for text in ("30", "1.5s", "5m", "2h", "-1", "200ms")
    ]
    assert found == [30, 1.5, 300, 7200, -1, 0.2]
    with pytest.raises(click.BadParameter):
        SECONDS.convert("5 minutes", None, None)


def test_names_of_models() -> None:
    path = model_file()
    assert place_of(str(path), path).names == (path.stem,)
    assert place_of(None, path).names == (path.stem,)
    assert place_of("smollm2", path).names == ("smollm2", path.stem)


def test_keys_of_a_file_that_has_none(tmp_path: Path) -> None:
    (tmp_path / "keys").write_text("\n# nothing\n")
    with pytest.raises(Exception, match="a key on each line"):
        read_keys([], tmp_path / "keys")
    assert len(read_keys(["a,b", "c"], None).digests) == 3


def test_the_address_of_a_variable_is_not_taken() -> None:
    """Beside a service called tetrad, Kubernetes sets TETRAD_PORT=tcp://10.0.0.11:80."""
    environ = os.environ | {"TETRAD_PORT": "tcp://10.0.0.11:80"}
    command = [sys.executable, "-m", "tetrad", "serve", "--help"]
    done = subprocess.run(command, capture_output=True, text=True, env=environ, timeout=60)
    assert done.returncode == 0 and "[default: 8080" in done.stdout
