"""Completion: what a shell is told, how quickly, and that the scripts are scripts."""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
import sys
from pathlib import Path

import click
import pytest

from tests.cli.conftest import Invoke
from tests.modules import ROOT
from tetrad.cli.chat import chat
from tetrad.cli.groups import GROUPS
from tetrad.cli.main import COMMANDS
from tetrad.cli.run import run

HEAVY = ("llvmlite", "tetrad.models.model", "tetrad.compiler.driver", "tetrad.names", "jinja2")
PROGRAM = (
    "import atexit, sys; sys.argv = ['tetrad']; from tetrad.cli.start import main; "
    f"atexit.register(lambda: print('loaded', *(m for m in {HEAVY} if m in sys.modules))); main()"
)


def completed(*words: str, shell: str = "bash") -> list[str]:
    """What completes the last word."""
    asked = {
        "COMP_WORDS": " ".join(("tetrad", *words)),
        "COMP_CWORD": words[-1] if shell == "fish" else str(len(words)),
        "_TETRAD_COMPLETE": f"{shell}_complete",
    }
    command = [sys.executable, "-c", PROGRAM]
    done = subprocess.run(
        command, env=os.environ | asked, capture_output=True, text=True, cwd=ROOT, timeout=60
    )
    assert done.stderr == ""
    *found, loaded = filter(None, done.stdout.splitlines())
    assert loaded == "loaded"
    return found


def plain(*words: str) -> list[str]:
    return [line.removeprefix("plain,") for line in completed(*words)]


def test_commands() -> None:
    assert plain("") == list(COMMANDS)
    assert plain("ru") == ["run"] and plain("p") == ["ps", "pull", "perplexity"]
    assert completed("ru", shell="zsh")[:2] == ["plain", "run"]
    assert completed("ru", shell="fish")[0].startswith("plain,run")


def test_options_and_their_values() -> None:
    assert plain("run", "--te") == ["--temp", "--temperature"]
    assert plain("chat", "-m", "x.gguf", "--hide") == ["--hide-thinking", "--hidethinking"]
    assert plain("run", "--rope-scaling", "y") == ["yarn"]
    assert plain("completion", "") == ["bash", "zsh", "fish"]


def test_models(folder: Path) -> None:
    (folder / "org/repo").mkdir(parents=True)
    for name in ("tiny-F32", "org/repo/other-Q8_0", "evil;rm -Q8_0", "esc\x1b-Q8_0"):
        (folder / f"{name}.gguf").write_bytes(b"GGUF")
    names = ["other-Q8_0", "org/repo/other-Q8_0", "tiny-F32"]
    assert plain("run", "") == names == plain("rm", "tiny-F32", "")
    assert plain("show", "TI") == ["tiny-F32"] and plain("run", "tiny-F32", "") == []
    assert completed("chat", "./x") == ["file,./x"]


def test_a_line_that_makes_no_sense_yet() -> None:
    assert plain("nothing", "") != [] and plain("run", "--bad", "--te") == [
        "--temp",
        "--temperature",
    ]


def test_it_takes_little() -> None:
    before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
    completed("run", "--te")
    assert resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before < 1.5


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_of_a_shell(invoke: Invoke, shell: str) -> None:
    script = invoke("completion", shell).stdout
    assert f"_TETRAD_COMPLETE={shell}_complete" in script
    if shutil.which(shell) is not None:
        subprocess.run([shell, "-n"], input=script, text=True, check=True)
    assert "bash" in invoke("completion", "tcsh", code=2).stderr


@pytest.mark.parametrize("command", [run, chat])
def test_every_option_is_in_one_group(command: click.Command, invoke: Invoke) -> None:
    """There is no title for others."""
    named = [name for names in GROUPS.values() for name in names]
    assert len(named) == len(set(named))
    printed = invoke(command.name or "", "--help").stdout
    titles = [
        line[:-1] for line in printed.splitlines() if line and line[0] != " " and line[-1] == ":"
    ]
    assert titles == list(GROUPS)
