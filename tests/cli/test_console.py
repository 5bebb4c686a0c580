"""The console: one place prints, nothing steers the terminal, a pipe gets what a model wrote."""

from __future__ import annotations

import ast
import io
import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.cli.conftest import Invoke
from tests.cli.terminal import RUN, seen_at_terminal
from tests.models.tiny import tiny_model
from tests.modules import ROOT
from tetrad.cli import console
from tetrad.core.errors import FileFormatError, HubError
from tetrad.core.visible import json_visible, one_line, visible
from tetrad.formats import gguf

PRINTING = ("print", "echo", "secho", "write", "writelines", "print_json", "out")


def calls(path: Path) -> list[str]:
    """What a module calls and imports that could reach a terminal; how wide letters are does
    not."""
    found = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Call):
            name = ast.unparse(node.func)
            if name.rpartition(".")[2] in PRINTING and name not in ("write", "file.write"):
                found.append(name)
        if isinstance(node, ast.ImportFrom) and re.match(r"rich(?!\.cells)", node.module or ""):
            found.append(node.module or "")
    return found


def test_only_the_console_prints() -> None:
    """`start.py` shows tracebacks, before the console is loaded."""
    found = {path.name: calls(path) for path in sorted((ROOT / "tetrad/cli").rglob("*.py"))}
    others = {
        name: what
        for name, what in found.items()
        if what and name not in ("console.py", "start.py")
    }
    assert others == {} and found["console.py"] and found["start.py"] == ["sys.stderr.write"]


STEERING = "\x1b[2J\x1b]0;t\x07\r\x08\x00\x7f\x9b\u202e\u2066\u2028\udc9b"


def test_what_steers_is_written_out_and_text_stays() -> None:
    text = "caf\u00e9 \U0001f469\u200d\U0001f680 \u0645\u200f\n\tx"
    assert visible(text) == text
    shown = visible(f"a{STEERING}b")
    assert shown.startswith(r"a\x1b[2J\x1b]0;t\x07\r\x08\x00\x7f\x9b\u202e") and shown.isprintable()
    assert visible(shown) == shown and one_line("a\n\tb\x1b") == r"a\n\tb\x1b"
    assert json.loads(json_visible(json.dumps({STEERING: 1}, ensure_ascii=False))) == {STEERING: 1}


def test_errors_show_what_would_steer() -> None:
    error = FileFormatError(
        f"bad {STEERING}", file=f"f{STEERING}", part="tensor 'a\n  hint: no'", hint=STEERING
    )
    assert "\x1b" not in str(error) and "\x1b" not in error.message and str(error).count("\n") == 1
    assert "\x1b" not in str(HubError(STEERING)) and "\x1b" not in repr(HubError(STEERING))


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("stream", "seen"), [(Terminal(), "a\\x1b[2J\n\tb"), (io.StringIO(), "a\x1b[2J\n\tb")]
)
def test_text_of_a_model_is_shown_on_a_terminal_and_piped_as_it_is(
    stream: io.StringIO, seen: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdout", stream)
    console.write("a\x1b[2J\n\tb")
    assert stream.getvalue() == seen


def test_tables_and_notes_are_shown_in_pipes_as_well(invoke: Invoke, tmp_path: Path) -> None:
    path = tmp_path / "evil\x1b[2J\rname.gguf"
    metadata, tensors = tiny_model("llama")
    metadata["tokenizer.chat_template"] = "{{ raise_exception('no\x1b]0;t\x07\\n  hint: curl') }}"
    gguf.write(path, metadata, tensors)
    for words in (
        ("show", path),
        ("inspect", path),
        ("run", path, "-p", "Hi"),
        ("show", f"{path}\x1b"),
    ):
        result = invoke(*words, code=words[0] == "run" or words[1] != path)
        assert not {"\x1b", "\r", "\x07"} & {*result.output} and r"\x1b" in result.output
    assert (
        r"it refuses these messages: no\x1b]0;t\x07\n  hint: curl"
        in invoke("run", path, "-p", "Hi", code=1).output
    )
    found = json.loads(invoke("show", path, "--json").stdout)
    assert found["path"] == str(path)


def test_a_traceback_is_shown_too(tmp_path: Path) -> None:
    program = (
        "import tetrad.cli.main as m; m.main = lambda **k: 1 / "
        f"{'{'}'\\x1b[2J': 0{'}'}['\\x1b[2J!']; {RUN}"
    )
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=ROOT)
    assert run.returncode == 1 and "KeyError" in run.stderr and "\x1b" not in run.stderr


# -- a terminal ------------------------------------------------------------------------------------


def test_a_long_prompt_shows_a_sign_of_life_and_nothing_stays(tiny_file: Path) -> None:
    slow = (
        "import tetrad.cli.console as c; c.QUIET = c.AGAIN = 0.01; from tetrad.models.engine "
        "import Engine as E; "
    )
    slow += (
        "import time; step = E.step; E.step = lambda self, work: (time.sleep(0.2), step(self, "
        "work))[1]; "
    )
    words = ("run", str(tiny_file), "-no-cnv", "-p", "x" * 300, "-n", "4", "--temp", "0")
    code, seen = seen_at_terminal(*words, plant=slow, piped=b"")
    assert code == 0 and re.search(rb"\r\x1b\[Kreading the prompt: \d+ of 300 tokens", seen)
    lines = seen.rpartition(b"\r\x1b[K")
    assert b"reading" not in lines[2] and lines[2].strip()
    assert b"reading" not in seen_at_terminal(*words, "--display-prompt", plant=slow, piped=b"")[1]
    quiet = subprocess.run(
        [sys.executable, "-c", slow + RUN, *words], capture_output=True, stdin=subprocess.DEVNULL
    )
    assert quiet.stderr == b"" and quiet.stdout == lines[2]


def test_a_chat_into_a_pipe_draws_nothing_into_it(tiny_file: Path) -> None:
    """`tetrad chat | tee log`: stdin is a terminal, stdout is not."""
    reading, writing = os.pipe()
    typing = [(b">>> ", b"/show system\n"), (b">>> ", b"/bye\n")]
    try:
        code, seen = seen_at_terminal(
            "chat", str(tiny_file), "-sys", "Be kind.", stdout=writing, typing=typing
        )
    finally:
        os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        assert (code, pipe.read()) == (0, b"Be kind.\n")
    assert seen.count(b">>> ") == 2 and b"\x1b[" not in seen.replace(b"\x1b[0m", b"")


def test_a_chat_at_a_terminal_has_its_editor(tiny_file: Path, folder: Path) -> None:
    typing = [(b">>>", b"/show system\r"), (b"Be kind.", b""), (b">>>", b"\x04")]
    plain = {"PROMPT_TOOLKIT_NO_CPR": "1"}  # nobody here answers where the cursor is
    code, seen = seen_at_terminal(
        "chat", str(tiny_file), "-sys", "Be kind.", typing=typing, environ=plain
    )
    assert code == 0 and b"\x1b[" in seen


def test_stdin_is_left_alone_where_the_prompt_is_given(tiny_file: Path) -> None:
    """A pipe that never ends does not keep -p or -f from being answered."""
    reading, writing = os.pipe()
    words = [sys.executable, "-c", RUN, "run", str(tiny_file), "-p", "Hi", "-n", "2"]
    try:
        begun = time.monotonic()
        run = subprocess.run(words, stdin=reading, capture_output=True, timeout=60)
        assert run.returncode == 0 and run.stdout and time.monotonic() - begun < 60
    finally:
        os.close(reading)
        os.close(writing)
