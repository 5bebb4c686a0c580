"""Escapes in files: one hostile model for every command with every test run, and a console that
shows nothing of it."""

from __future__ import annotations

import pytest

from tests.fuzz.escapes import COMMANDS, check, check_server, steered

NAMES = list(COMMANDS)
OBEYING = (
    "import tetrad.core.visible as v; v.visible = v.one_line = v.json_visible = lambda text: text; "
)


@pytest.mark.parametrize("kind", ["run plain", "inspect", "list", "rm unknown"])
def test_nothing_in_a_file_steers_the_terminal(kind: str) -> None:
    assert check(NAMES.index(kind)) is None


def test_nothing_that_a_server_says_steers_the_terminal() -> None:
    assert check_server(0) is None


@pytest.mark.parametrize("kind", ["list", "no such file"])
def test_a_console_that_obeys_is_found(kind: str) -> None:
    seeds = range(NAMES.index(kind), 10 * len(NAMES), len(NAMES))
    assert any("reached the terminal" in (check(seed, OBEYING) or "") for seed in seeds)


def test_what_the_program_emits_itself_is_no_finding() -> None:
    assert steered(b"\x1b[31mred\x1b[0m\n\r\x1b[Kreading\tthe prompt\r\x1b[K caf\xc3\xa9\n") is None
    assert (
        steered(b"a\x1b[2Jb") is not None
        and steered(b"a\x1b[45mb") is not None
        and steered(b"a\rb") is not None
    )
    assert steered(b"\xc2\x9b2J") is not None and steered(b"\xff") is not None
