"""NVIDIA's assembler takes every kernel for every architecture. Without it these tests are skipped,
and `test_check` still looks at the structure."""

from __future__ import annotations

import re

import pytest

from tests.backends.cuda.graphs import GRAPHS, lowered
from tests.backends.llvm.cases import all_cases
from tetrad.backends.cuda.assembler import AssemblyFigures, assemble, figures_in, ptxas
from tetrad.backends.cuda.ptx import emission, ptx
from tetrad.backends.cuda.targets import architecture_named
from tetrad.core.errors import CompileError
from tetrad.kernel import registry
from tetrad.schedule.nodes import programs_of

needs_ptxas = pytest.mark.skipif(ptxas() is None, reason="needs ptxas of NVIDIA's CUDA toolkit")
ARCHS = ("sm_75", "sm_80", "sm_90", "sm_100", "sm_120")
FOUR_BITS = re.compile("int4|i4x8|linear_4bit|nf4")


def joined(texts: list[str]) -> str:
    """Modules as one, their entries renamed: assembling is quick, starting to is not."""
    parts = []
    for i, text in enumerate(texts):
        head, body = text.split(".address_size 64\n")
        named = re.sub(r"\.entry [\w$]+", f".entry kernel{i}", body)
        parts.append(re.sub(r"\b(const\$lanes\d+|shared\$dynamic)\b", rf"\g<1>_{i}", named))
    return "\n".join([head + ".address_size 64", *parts])


@needs_ptxas
@pytest.mark.parametrize("arch", ARCHS)
def test_every_registered_kernel_assembles_and_none_spills(arch: str) -> None:
    seen = 0
    for entry in registry.entries():
        got = assemble(ptx(entry.build(), arch), arch)
        spilled = got.spill_stores + got.spill_loads + got.stack
        seen += bool(FOUR_BITS.search(entry.id))
        assert got.registers > 0 and spilled == 0, (entry.id, got)
    assert seen >= 20


OLDEST, *BETWEEN, NEWEST = ARCHS


@needs_ptxas
@pytest.mark.parametrize(
    "arch", [OLDEST, *(pytest.param(arch, marks=pytest.mark.slow) for arch in BETWEEN), NEWEST]
)
def test_every_instruction_assembles(arch: str) -> None:
    texts = [ptx(case.program, arch) for case in all_cases()]
    assert len(texts) > 500
    assemble(joined(texts), arch)


@needs_ptxas
@pytest.mark.parametrize("arch", ARCHS)
def test_kernels_of_graphs_assemble(arch: str) -> None:
    """As lowering makes them for the architecture, and with guards."""
    programs = [p for name in GRAPHS for p in programs_of(lowered(name, arch))]
    for check in ("plain", "mask"):
        texts = [emission(p, architecture_named(arch), check).text for p in programs]
        assemble(joined(texts), arch)


@needs_ptxas
def test_what_it_refuses_is_an_error_with_its_words() -> None:
    text = ptx(registry.entry("tetrad::math::add").build(), "sm_90")
    with pytest.raises(CompileError, match=r"ptxas for sm_90: .*nonsense"):
        assemble(text.replace("add.rn.f32", "nonsense"), "sm_90")


def test_figures_are_read_from_what_it_says() -> None:
    said = """ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function 'f' for 'sm_80'
    24 bytes stack frame, 16 bytes spill stores, 8 bytes spill loads
ptxas info    : Used 40 registers, used 1 barriers, 256 bytes smem, 400 bytes cmem[0]
"""
    assert figures_in(said) == AssemblyFigures(40, 16, 8, 24, 256)


def test_without_it_there_are_no_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tetrad.backends.cuda.assembler.ptxas", lambda: None)
    with pytest.raises(CompileError, match="ptxas is not on the path"):
        assemble("", "sm_90")
