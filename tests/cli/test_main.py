"""The command line, seen from outside: what it prints and its exit codes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import tetrad as td
from tetrad.core.flags import FLAGS

RUN = "from tetrad.cli.main import main; main(prog_name='tetrad')"


def tetrad(*words: str, **environ: str) -> tuple[int, str, str]:
    run = subprocess.run(
        [sys.executable, "-c", RUN, *words], env=os.environ | environ, capture_output=True, text=True, timeout=120
    )
    return run.returncode, run.stdout, run.stderr


def test_help_lists_what_exists_and_nothing_else() -> None:
    code, printed, _ = tetrad("--help")
    commands = printed.split("Commands:")[1].strip().splitlines()
    assert code == 0 and [line.split()[0] for line in commands] == ["cache", "doctor"]


@pytest.mark.parametrize("words", [("inspect",), ("cache", "inspect")])
def test_an_unknown_command_lists_the_known(words: tuple[str, ...]) -> None:
    code, _, printed = tetrad(*words)
    known = "cache, doctor" if len(words) == 1 else "clear, stats"
    assert code == 2 and f"there is no command 'inspect'; commands: {known}" in printed


def test_version() -> None:
    assert tetrad("--version")[:2] == (0, f"tetrad {td.__version__}\n")


def test_doctor_on_a_sound_machine(tmp_path: Path) -> None:
    code, printed, errors = tetrad("doctor", TETRAD_CACHE_DIR=str(tmp_path / "cache"))
    assert (code, errors) == (0, ""), printed
    for word in ("processor", "features", "target", "threads", "llvmlite", "numpy", "LLVM canary", "all is well"):
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
    assert "entries    2" in tetrad("cache", "stats", **flags)[1]
    (tmp_path / "cache" / "mine.txt").write_text("stays")
    code, printed, _ = tetrad("cache", "clear", **flags)
    assert code == 0 and printed.startswith("deleted 2 entries")
    assert [path.name for path in (tmp_path / "cache").iterdir()] == ["mine.txt"]


def test_a_bad_flag_is_one_clear_error() -> None:
    code, _, printed = tetrad("doctor", TETRAD_SHOW="grpah")
    assert code != 0 and "TETRAD_SHOW='grpah' is not valid" in printed
