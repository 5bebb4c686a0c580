"""Small wrong programs of the kind that people write, and what they are told: `mistakes.txt` has
the code, the error and the hint of each.

Every answer says what was expected and what came, names the line, and the way out where there is
one.
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple

import numpy as np
import pytest

import tetrad as td
from tests.modules import ROOT
from tetrad.core.errors import TetradError

FILE = ROOT / "tests" / "mistakes.txt"
LEAST = 188  # of them; a table that shrinks is a table that was not read


class Mistake(NamedTuple):
    line: int  # the first of the code
    code: str
    error: str  # its class and its message
    hint: str | None


def read() -> list[Mistake]:
    """Blocks between empty lines: code, `! Class: message`, and maybe `? hint`."""
    found, start = [], 1
    for block in FILE.read_text().split("\n\n"):
        rows = block.strip("\n").split("\n")
        told = [row for row in rows if row.startswith(("! ", "? "))]
        code = [row for row in rows if row not in told and not row.startswith("#")]
        if told:
            hint = told[1][2:] if len(told) > 1 else None
            found.append(Mistake(start, "\n".join(code), told[0][2:], hint))
        start += block.count("\n") + 2
    return found


MISTAKES = read()


def run(mistake: Mistake) -> None:
    """The code, as if it stood in the file, so that errors can name its lines."""
    code = compile("\n" * (mistake.line - 1) + mistake.code + "\n", str(FILE), "exec")
    exec(code, {"td": td, "np": np, "o": td.ones})


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda m: m.code.split("\n")[-1][:60])
def test_a_mistake_is_told(mistake: Mistake) -> None:
    kind, _, message = mistake.error.partition(": ")
    with pytest.raises(Exception) as caught:
        run(mistake)
    error: Any = caught.value
    assert type(error).__name__ == kind
    if not isinstance(error, TetradError):
        assert message in str(error)
        return
    assert fits(error.message, message), error.message
    assert error.hint == mistake.hint


def fits(text: str, wanted: str) -> bool:
    """Are they equal? `...` stands for anything, as in doctests."""
    return re.fullmatch(".*".join(map(re.escape, wanted.split("..."))), text) is not None


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda m: m.code.split("\n")[-1][:60])
def test_the_line_of_the_mistake_is_named(mistake: Mistake) -> None:
    with pytest.raises(Exception) as caught:
        run(mistake)
    error = caught.value
    if isinstance(error, TetradError):
        last = mistake.line + mistake.code.count("\n")
        assert error.source is not None and error.source.file == str(FILE)
        assert mistake.line <= error.source.line <= last


def test_the_table_was_read() -> None:
    assert len(MISTAKES) >= LEAST
    assert len({m.code for m in MISTAKES}) == len(MISTAKES)


def answered(mistake: Mistake) -> str:
    """The block of a mistake with what it is told now."""
    try:
        run(mistake)
    except TetradError as error:
        told = f"! {type(error).__name__}: {error.message}".replace(str(FILE), "...mistakes.txt")
        hint = f"\n? {error.hint}" if error.hint else ""
        told = re.sub(r"mistakes.txt line [0-9]+", "mistakes.txt line ...", told)
        return f"{mistake.code}\n{told}{hint}\n"
    except Exception as error:
        return f"{mistake.code}\n! {type(error).__name__}: {error}\n"
    raise AssertionError(f"no error: {mistake.code}")


if __name__ == "__main__":  # writes the answers anew
    head = FILE.read_text().partition("\n\n")[0]
    FILE.write_text("\n".join([head + "\n", *map(answered, MISTAKES)]))
