"""`tetrad inspect kernel`: a registered kernel at every stage, and the table of all."""

from __future__ import annotations

import json

import pytest

from tests.cli.conftest import Invoke
from tetrad.backends.cuda.assembler import ptxas
from tetrad.cli import inspect_kernel as command
from tetrad.kernel import registry


def test_every_stage_of_a_kernel_is_shown(invoke: Invoke) -> None:
    said = invoke("inspect", "kernel", "tetrad::math::saxpy", "--arch", "sm_80").stdout
    stages = ("program tetrad::math::saxpy", "cost of a launch", "llvm host", "assembly host")
    for title in (*stages, "ptx sm_80", "ptxas"):
        assert f"== {title}\n" in said
    for words in (" = fma(", "flops 6\n", "@llvm.fma", ".visible .entry saxpy("):
        assert words in said
    assert ptxas() is None or "sm_120 " in said.partition("== ptxas\n")[2]


def test_the_stages_as_json(invoke: Invoke) -> None:
    data = json.loads(invoke("inspect", "kernel", "tetrad::math::add", "--json").stdout)
    assert data["cost of a launch"] == {"flops": 5, "bytes read": 40, "bytes written": 20}
    assert data["ptx sm_90"].startswith(".version 8.0")
    assert data["program tetrad::math::add"] == str(registry.entry("tetrad::math::add").build())


def test_the_table_has_a_line_for_every_kernel_and_architecture(
    invoke: Invoke, monkeypatch: pytest.MonkeyPatch
) -> None:
    few = [registry.entry(id) for id in ("tetrad::math::add", "tetrad::math::dot")]
    monkeypatch.setattr(command, "entries", lambda: iter(few))
    lines = invoke("inspect", "kernel").stdout.splitlines()
    assert lines[0].split() == [
        "KERNEL",
        "ARCH",
        "REGISTERS",
        "SPILLED",
        "SHARED",
        "FLOPS",
        "BYTES",
    ]
    assert len(lines) == 1 + 2 * 5


def test_without_the_assembler_the_structure_is_looked_at(
    invoke: Invoke, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command, "ptxas", lambda: None)
    said = invoke("inspect", "kernel", "tetrad::math::add").stdout
    assert "ptxas is not on the path" in said and "structure: ok" in said


def test_an_unknown_kernel_names_one_with_a_similar_id(invoke: Invoke) -> None:
    said = " ".join(invoke("inspect", "kernel", "math::saxpi", code=2).output.split())
    assert "no kernel 'math::saxpi'; did you mean" in said and "tetrad::math::saxpy" in said
    said = invoke("inspect", "kernel", "xyzzy", code=2).output
    assert "did you mean" not in said and len(said) < 500


def test_an_unknown_architecture_lists_the_known_ones(invoke: Invoke) -> None:
    said = invoke("inspect", "kernel", "tetrad::math::add", "--arch", "sm_1", code=1).output
    assert "unknown architecture 'sm_1'" in said and "sm_75" in said


def test_two_models_are_one_too_many(invoke: Invoke) -> None:
    assert "one model at a time" in invoke("inspect", "a.gguf", "b.gguf", code=2).output
