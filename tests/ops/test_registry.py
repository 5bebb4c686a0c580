"""The registry of ops: every file that defines one is loaded with `tetrad.ops`, or when one of its
ops is looked up."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.modules import ROOT
from tetrad.core.op import REGISTRY

FILES = sorted(
    str(path.relative_to(ROOT).with_suffix("")).replace("/", ".")
    for path in (ROOT / "tetrad" / "ops").rglob("*.py")
    if "\n@op(" in path.read_text()
)


def told(program: str) -> list[str]:
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert not done.stderr
    return done.stdout.split()


def test_reading_the_whole_table_loads_every_file_with_an_op() -> None:
    loaded = told(
        "import sys; from tetrad.core.op import REGISTRY; import tetrad.ops; list(REGISTRY);"
        "print(*(name for name in sys.modules if name.startswith('tetrad.ops')))"
    )
    assert [name for name in FILES if name not in loaded] == []


@pytest.mark.parametrize("name", ["sort", "attention", "dequantize_groups", "callback"])
def test_a_name_is_found_in_a_process_that_has_loaded_nothing_else(name: str) -> None:
    program = f"from tetrad.core.op import REGISTRY; import tetrad.ops; print({name!r} in REGISTRY)"
    assert told(program) == ["True"]


def test_an_unknown_name_is_no_op() -> None:
    assert REGISTRY.get("no such op") is None
    with pytest.raises(KeyError):
        REGISTRY["no such op"]
