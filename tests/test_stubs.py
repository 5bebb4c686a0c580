"""What type checkers see: every public name, and no other."""

from __future__ import annotations

import subprocess
import sys
import types
from functools import partial
from pathlib import Path

import pytest

import tetrad as td
from tests import stubs
from tests.modules import ROOT

SAMPLE = """
import tetrad as td
x: td.Array = td.sin(td.ones((2, 3)))
y: td.Array = td.concatenate([x, td.nn.softmax(x)]) @ td.linalg.inv(x)
f = td.jit(lambda x: td.debug.print("{}", x))
kind: td.DType = td.float32
loss = td.grad(lambda x: td.sum(x), argnums=0)
"""
MISTAKES = (
    "td.sinn(x)",
    "td.nn.softmaxx(x)",
    "td.linalg.invv(x)",
    "td.debug.prints(x)",
    "td.random.normall(x)",
    "td.quant.quantise(x)",
    "td.kernel.verifyy(x)",
    "td.tree.mapp(x)",
    "td.special.gamaln(x)",
    "td.stats.norm.logpdff(x)",
    "td.optim.adamm(x)",
    "td.fft.fftt(x)",
    "td.linalg.Array(x)",
    "td.sin(x, x)",
    "td.sum(x, axes=0)",
)


def public_spellings() -> list[str]:
    """Every public name, and every name of a public folder."""
    spelt = []
    for name in filter(str.isidentifier, stubs.public_names()):
        value = getattr(td, name)
        spelt.append(f"td.{name}")
        if isinstance(value, types.ModuleType):
            spelt += [f"td.{name}.{each}" for each in getattr(value, "__all__", ())]
    return spelt + [f"td.stats.norm.{each}" for each in dir(td.stats.norm)]


@pytest.mark.parametrize(
    ("file", "made"),
    [
        (stubs.PACKAGE, stubs.package),
        (stubs.ELEMENTWISE, stubs.elementwise),
        *((stubs.later_file(each), partial(stubs.later, each)) for each in stubs.FOLDERS),
    ],
    ids=["package", "elementwise", *stubs.FOLDERS],
)
def test_the_stubs_are_up_to_date(file: Path, made: object) -> None:
    assert callable(made)
    assert file.read_text() == made(), "python -m tests.stubs writes them anew"


def test_a_checker_finds_misspelt_names_and_wrong_arguments_and_no_other(tmp_path: Path) -> None:
    file = tmp_path / "sample.py"
    spelt = public_spellings()
    assert {"td.linalg.cg", "td.optim.lamb", "td.quant.quantize", "td.tree.tree_all"} <= {*spelt}
    file.write_text(SAMPLE + "\n".join([*MISTAKES, *spelt]) + "\n")
    command = [
        sys.executable, "-m", "mypy", "--follow-imports=silent", "--ignore-missing-imports",
        f"--cache-dir={tmp_path / 'cache'}", str(file),
    ]  # fmt: skip
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    first = SAMPLE.count("\n") + 1
    wrong = {int(line.split(":")[1]) for line in done.stdout.splitlines() if ": error:" in line}
    assert wrong == set(range(first, first + len(MISTAKES))), done.stdout
