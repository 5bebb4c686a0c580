"""ps and stop: what they ask a server, and the table of ollama."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

from tests.cli.conftest import Invoke
from tests.cli.talk.stub import stub

LATER = datetime.now(UTC) + timedelta(hours=4, minutes=50)
TINY = {
    "name": "tiny:latest",
    "digest": "0123456789abcdef",
    "size": 98_566_144,
    "size_vram": 0,
    "context_length": 2048,
    "expires_at": LATER.isoformat(),
}


def loaded(*models: dict[str, Any]) -> Any:
    return lambda handler, body: handler.give({"models": models})


def done(handler: Any, body: Any) -> None:
    handler.give({"done": True, "done_reason": "unload"})


def test_the_table_of_ollama(invoke: Invoke) -> None:
    with stub(api_ps=loaded(TINY, {"name": "evil\x1b", "size": "x"})) as (host, _):
        lines = invoke("ps", "--host", host).stdout.splitlines()
        found = json.loads(invoke("ps", "--host", host, "--json").stdout)
    assert lines[0].split() == ["NAME", "ID", "SIZE", "PROCESSOR", "CONTEXT", "UNTIL"]
    cells = "tiny:latest 0123456789ab 98 MB 100% CPU 2048 4 hours from now"
    assert " ".join(lines[1].split()) == cells
    assert lines[2].startswith(r"evil\x1b") and found[0]["digest"] == "0123456789abcdef"


def test_a_model_is_stopped(invoke: Invoke) -> None:
    with stub(api_ps=loaded(TINY), api_generate=done) as (host, asked):
        assert invoke("stop", "--host", host).stdout == "tiny:latest leaves memory\n"
        invoke("stop", "other", "--host", host, "--api-key", "k")
    body = {"model": "other", "keep_alive": 0, "stream": False}
    assert asked[-1] == ("/api/generate", body, "Bearer k")
    assert asked[-2][1]["model"] == "tiny:latest"


def test_which_to_stop(invoke: Invoke) -> None:
    with stub(api_ps=loaded(TINY, TINY | {"name": "b"})) as (host, _):
        printed = invoke("stop", "--host", host, code=1).stderr
    assert "which model? In memory are tiny:latest, b" in printed
    with stub(api_ps=loaded()) as (host, _):
        assert "no model is in memory" in invoke("stop", "--host", host).stderr


def test_something_else_answers(invoke: Invoke) -> None:
    with stub(api_ps=lambda h, b: h.give([1])) as (host, _):
        assert "expected a list of models" in invoke("ps", "--host", host, code=1).stderr
