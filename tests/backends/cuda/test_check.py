"""The look at the structure of PTX: nothing for the text of any kernel, and planted mistakes."""

from __future__ import annotations

import pytest

from tests.backends.cuda.graphs import GRAPHS, lowered
from tests.backends.llvm.cases import FAMILIES
from tetrad.backends.cuda.check import structure_problems
from tetrad.backends.cuda.ptx import emission, ptx
from tetrad.backends.cuda.targets import architecture_named
from tetrad.kernel import registry
from tetrad.schedule.nodes import programs_of

ARCHS = ("sm_75", "sm_80", "sm_90", "sm_100", "sm_120")


@pytest.mark.parametrize("arch", ARCHS)
def test_every_registered_kernel_fits_together(arch: str) -> None:
    for entry in registry.entries():
        assert structure_problems(ptx(entry.build(), arch)) == [], entry.id


@pytest.mark.parametrize("family", FAMILIES)
def test_every_instruction_fits_together(family: str) -> None:
    for case in FAMILIES[family]():
        assert structure_problems(ptx(case.program, "sm_90")) == [], case.name


@pytest.mark.parametrize("name", GRAPHS)
def test_kernels_of_graphs_fit_together(name: str) -> None:
    for program in programs_of(lowered(name)):
        assert (
            structure_problems(emission(program, architecture_named("sm_90"), "plain").text) == []
        )


GOOD = ptx(registry.entry("tetrad::math::dot").build(), "sm_80")


@pytest.mark.parametrize(
    ("before", "after", "words"),
    [
        (".version 7.0", ".version 8.5", ".version 8.5 for sm_80"),
        (".target sm_80", ".target sm_60", "unknown .target"),
        (".address_size 64", ".address_size 32", ".address_size 32"),
        (".visible .entry dot(", "(", "no .visible .entry"),
        (".maxntid 64, 1, 1\n{", "{\n.maxntid 64, 1, 1;", "not understood"),
        (".reg .b32 \t%r<", ".reg .b64 \t%r<", "is b64, not of 32 bits"),
        (".reg .pred", ".reg .b32", "no predicate"),
        ("%tid.x", "%r99", "%r99 is not declared"),
        ("[a_length]", "[length]", "parameter [length] is not declared"),
        ("bra \t$L", "bra \t$X", "is missing"),
        ("add.rn.f32", "add.f32", "may be contracted"),
        ("fma.rn.f32", "fma.rn.ftz.f32", "ftz is not IEEE"),
        ("ret;", "ret", "not understood"),
        ("// region", "// région", "not ASCII"),
        ("mov.u32", "frobnicate.u32", "unknown instruction"),
        ("\tret;", "", "falls off the end"),
    ],
)
def test_a_mistake_is_found(before: str, after: str, words: str) -> None:
    assert before in GOOD
    found = structure_problems(GOOD.replace(before, after))
    assert any(words in problem for problem in found), found


def test_a_label_or_register_stands_once() -> None:
    label = next(line for line in GOOD.splitlines() if line.startswith("$"))
    assert any(
        "second label" in p for p in structure_problems(GOOD.replace("\tret;", f"{label}\n\tret;"))
    )
    head = "\t.reg .pred"
    twice = GOOD.replace(head, "\t.reg .pred \t%p<3>;\n" + head)
    assert any("second register" in p for p in structure_problems(twice))
    hidden = GOOD.replace(head, "\t.reg .b32 \t%tid<3>;\n" + head)
    assert any("hides a special one" in p for p in structure_problems(hidden))
