"""Hints speak in options on the command line, in keywords in Python."""

from __future__ import annotations

from pathlib import Path

import click
import pytest

from tests.cli.conftest import Invoke
from tests.models.folders import golden_folder
from tetrad.cli.embed import COMMANDS as EMBED
from tetrad.cli.hints import in_options
from tetrad.cli.run import COMMANDS as RUN
from tetrad.core.errors import HubError, SettingError, TetradError

RUN_COMMAND, EMBED_COMMAND = RUN["run"], EMBED["embed"]


@pytest.mark.parametrize(
    ("hint", "command", "said"),
    [
        ("load with context=4096 or more", RUN_COMMAND, "load with -c 4096 or more"),
        ("a smaller context=, or kv='q8_0'", RUN_COMMAND, "a smaller -c, or -ctk q8_0 -ctv q8_0"),
        ("forget the oldest (shift=True)", RUN_COMMAND, "forget the oldest (--context-shift)"),
        ("or not (shift=False)", RUN_COMMAND, "or not (--no-context-shift)"),
        ('encoders take dtype="int8"', EMBED_COMMAND, "encoders take --dtype int8"),
        ("truncate=True cuts texts", EMBED_COMMAND, "--truncate cuts texts"),
        ("truncate=True cuts texts", RUN_COMMAND, "truncate=True cuts texts"),
        ("max_tokens=3, top_k=1.", RUN_COMMAND, "-n 3, --top-k 1."),
        ("a URL such as https://x/?a=b", RUN_COMMAND, "a URL such as https://x/?a=b"),
    ],
)
def test_settings_in_hints(hint: str, command: click.Command, said: str) -> None:
    error = HubError("context=1 stays", hint=hint)
    assert in_options(error, command) == f"context=1 stays\n  hint: {said}"
    assert in_options(error, None) == str(error)


def test_the_setting_that_an_error_is_about() -> None:
    error = SettingError("top_k", "a number", "x", hint="top_k=40 is usual")
    assert in_options(error, RUN_COMMAND) == (
        "--top-k: expected a number, got 'x'\n  hint: --top-k 40 is usual"
    )
    assert in_options(TetradError("plain"), RUN_COMMAND) == "plain"


def test_a_prompt_that_is_too_long(invoke: Invoke, tiny_file: Path) -> None:
    said = invoke("run", tiny_file, "-c", "16", "-p", "word " * 100, "-no-cnv", code=1).output
    assert "hint: load with -c " in said and "context=" not in said


def test_a_text_that_is_too_long(invoke: Invoke, tmp_path: Path) -> None:
    folder = golden_folder(tmp_path / "bert", "bert")
    said = invoke("embed", folder, "cat " * 200, code=1).output
    assert "hint: --truncate cuts texts" in said
