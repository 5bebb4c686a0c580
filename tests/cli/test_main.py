"""The command line, seen from outside: what it prints and its exit codes."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import click
import pytest

import tetrad as td
from tests.modules import ROOT
from tetrad.cli.doctor import EXTRA, versions
from tetrad.cli.main import COMMANDS, main
from tetrad.core.flags import FLAGS, OPTIONS

RUN = "from tetrad.cli.start import main; main()"
NAMES = (
    "bench, cache, chat, completion, doctor, embed, inspect, list, perplexity, ps, pull, "
    "rerank, rm, run, serve, show, stop, tokenize"
)


def tetrad(*words: str, **environ: str) -> tuple[int, str, str]:
    run = subprocess.run(
        [sys.executable, "-c", RUN, *words],
        env=os.environ | environ,
        capture_output=True,
        text=True,
        timeout=120,
    )
    return run.returncode, run.stdout, run.stderr


def test_help_lists_what_exists_and_nothing_else() -> None:
    code, printed, _ = tetrad("--help", COLUMNS="200")
    commands = printed.split("Commands:")[1].strip().splitlines()
    assert code == 0 and [line.split()[0] for line in commands] == list(COMMANDS)


@pytest.mark.parametrize("words", [("examine",), ("cache", "examine")])
def test_an_unknown_command_lists_the_known(words: tuple[str, ...]) -> None:
    code, _, printed = tetrad(*words)
    known = NAMES if len(words) == 1 else "clear, stats"
    assert code == 2 and f"there is no command 'examine'; commands: {known}" in printed


def test_a_misspelt_command_is_recognised() -> None:
    assert "there is no command 'pul'; did you mean pull?" in tetrad("pul")[2]


def test_help_loads_nothing_heavy() -> None:
    """Neither NumPy nor LLVM nor the compiler, no tables, no network: help is there at once."""
    heavy = (
        "numpy",
        "llvmlite",
        "tetrad.names",
        "rich",
        "tetrad.compiler.driver",
        "tetrad.hub.pull",
        "urllib.request",
    )
    program = "import sys; sys.argv = ['tetrad', '--help']\nfrom tetrad.cli.main import main\n"
    program += (
        f"main(standalone_mode=False)\nprint('loaded', *(m for m in {heavy} if m in sys.modules))"
    )
    run = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert run.stdout.splitlines()[-1] == "loaded"


def commands() -> dict[str, click.Command]:
    context = click.Context(main)
    found = {name: main.get_command(context, name) for name in COMMANDS}
    return {name: command for name, command in found.items() if command is not None}


def test_every_command_is_there_and_says_what_the_list_says() -> None:
    assert {name: command.name for name, command in commands().items()} == {
        name: name for name in COMMANDS
    }


def test_the_variables_of_options_are_those_the_package_knows() -> None:
    variables = {
        p.envvar
        for c in commands().values()
        for p in c.params
        if isinstance(p, click.Option) and p.envvar
    }
    assert variables - FLAGS.keys() == OPTIONS


def test_version() -> None:
    assert tetrad("--version")[:2] == (0, f"tetrad {td.__version__}\n")


def test_doctor_on_a_sound_machine(tmp_path: Path) -> None:
    code, printed, errors = tetrad("doctor", TETRAD_CACHE_DIR=str(tmp_path / "cache"))
    assert (code, errors) == (0, ""), printed
    for word in (
        "processor",
        "features",
        "target",
        "threads",
        "llvmlite",
        "numpy",
        "LLVM canary",
        "all is well",
    ):
        assert word in printed
    assert all(name in printed for name in FLAGS)


def test_doctor_says_what_is_wrong_and_fails(tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o777)
    code, printed, _ = tetrad("doctor", TETRAD_CACHE_DIR=str(shared), COLUMNS="200")
    assert code == 1 and "can be written by other users" in printed and "trouble: health" in printed


def test_cache_stats_and_clear(tmp_path: Path) -> None:
    flags = {"TETRAD_CACHE_DIR": str(tmp_path / "cache"), "COLUMNS": "300"}
    assert "entries    0" in tetrad("cache", "stats", **flags)[1]
    program = "import tetrad as td; td.jit(lambda x: x + 1)(td.ones(3))"
    subprocess.run([sys.executable, "-c", program], env=os.environ | flags, check=True)
    found = tetrad("cache", "stats", **flags)[1].splitlines()[1].split()
    assert found[0] == "entries" and int(found[1]) >= 2
    (tmp_path / "cache" / "mine.txt").write_text("stays")
    code, printed, _ = tetrad("cache", "clear", **flags)
    assert code == 0 and printed.startswith(f"deleted {found[1]} entries")
    assert [path.name for path in (tmp_path / "cache").iterdir()] == ["mine.txt"]


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("TETRAD_SHOW", "TETRAD_SHOW='grpah' is not valid"),
        ("TETRAD_SHOE", "unknown flag TETRAD_SHOE"),
    ],
)
def test_a_bad_flag_is_one_clear_error(name: str, said: str) -> None:
    code, _, printed = tetrad("doctor", **{name: "grpah"})
    assert code == 1 and printed.startswith(f"Error: {said}\n  hint: ")


def test_a_variable_of_somebody_else_stops_no_command() -> None:
    code, printed, told = tetrad(
        "list", TETRAD_SERVICE_HOST="10.0.0.11", TETRAD_PORT="tcp://10.0.0.11:80"
    )
    assert code == 0, printed + told
    assert "TETRAD_SERVICE_HOST" in told and "TETRAD_PORT" in told


INTERRUPT_AT = """
import os, signal, sys
class Finder:
    def find_spec(self, name, *rest):
        if name == {module!r}:
            os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, Finder())
"""


@pytest.mark.parametrize(
    "module", ["tetrad.cli.main", "click", "numpy", "rich", "tetrad.cli.console"]
)
def test_ctrl_c_while_it_loads_ends_quietly(module: str) -> None:
    words = [sys.executable, "-c", INTERRUPT_AT.format(module=module) + RUN, "list"]
    run = subprocess.run(words, capture_output=True, text=True, timeout=120)
    assert (run.returncode, run.stdout, run.stderr) == (130, "", "")


def test_python_runs_the_package() -> None:
    run = subprocess.run(
        [sys.executable, "-m", "tetrad", "--version"], capture_output=True, text=True, check=True
    )
    assert run.stdout == f"tetrad {td.__version__}\n"


def test_a_reader_that_goes_away_ends_it_quietly(tiny_file: Path) -> None:
    """`tetrad inspect MODEL | head -1`: no traceback, and the code a shell gives for a broken
    pipe."""
    run = subprocess.Popen(
        [sys.executable, "-c", RUN, "inspect", str(tiny_file)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    )
    assert run.stdout is not None and run.stderr is not None
    run.stdout.close()
    assert (run.wait(), run.stderr.read()) == (141, "")
    run.stderr.close()


@pytest.mark.parametrize("closed", ["<&-", ">&-", "<&- >&- 2>&-"])
def test_streams_may_be_closed(tiny_file: Path, closed: str) -> None:
    """As for a service without any."""
    line = f'exec "{sys.executable}" -m tetrad run -m "{tiny_file}" -p Hi -n 2 {closed}'
    run = subprocess.run(["sh", "-c", line], capture_output=True, text=True, cwd=ROOT, timeout=120)
    assert run.returncode == 0 and run.stderr == "" and bool(run.stdout) == (">" not in closed)


def without_extra(*words: str) -> subprocess.CompletedProcess[str]:
    hidden = ("tokenizers", "jinja2", "huggingface_hub", "prompt_toolkit", "llguidance")
    program = f"import sys; sys.modules.update(dict.fromkeys({hidden})); " + RUN
    return subprocess.run(
        [sys.executable, "-c", program, *words], capture_output=True, text=True, timeout=60
    )


def test_a_missing_extra_says_what_to_install_before_anything_is_fetched() -> None:
    run = without_extra("run", "-p", "Hello", "--hf-repo", "no/such:thing")
    assert (
        run.returncode == 1
        and "tetrad run needs the package tokenizers, which is not installed" in run.stderr
    )
    assert "pip install 'tetrad[lm]'" in run.stderr and "fetching" not in run.stderr


@pytest.mark.parametrize("command", COMMANDS)
def test_without_the_extra_every_command_shows_its_help(command: str) -> None:
    run = without_extra(command, "--help")
    assert (run.returncode, run.stderr) == (0, "") and run.stdout.startswith(
        f"Usage: tetrad {command} "
    )


def test_doctor_tells_whether_the_extra_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"][
        "optional-dependencies"
    ]["lm"]
    assert [re.split("[<>=]", name)[0] for name in declared] == list(EXTRA)
    assert list(versions())[-1].text == "installed"
    monkeypatch.setitem(sys.modules, "jinja2", None)
    assert (
        "without jinja2: for language models pip install 'tetrad[lm]'" in list(versions())[-1].text
    )


def test_without_the_extra_a_file_can_be_looked_at(tiny_file: Path) -> None:
    assert "token_embd.weight" in without_extra("inspect", str(tiny_file)).stdout


def test_the_page_of_commands_has_them_all() -> None:
    page = (ROOT / "docs/commands.md").read_text()
    assert [name for name in COMMANDS if f"`tetrad {name}" not in page] == []
    options = {
        name
        for c in ("run", "chat")
        for p in commands()[c].params
        if isinstance(p, click.Option)
        for name in p.opts
    }
    short = {name for name in options if not name.startswith("--")} - {"-h"}
    assert [name for name in sorted(short) if f"`{name}" not in page] == []
