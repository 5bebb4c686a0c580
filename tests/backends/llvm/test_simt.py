"""The rules for a machine whose lanes are threads: with no value varying they are a SIMT emitter.

A GPU's target is made here of data alone, and kernels as the CPU has them become PTX. What a back
end for it must add shows in `emitted`: where its ids come from and how its threads wait.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

import tetrad as td
from tetrad.backends.llvm.compile import compile_module
from tetrad.backends.llvm.emitter import Codegen, Emitted, EmitterRules
from tetrad.backends.llvm.isa import Isa
from tetrad.backends.llvm.module import prologue
from tetrad.backends.llvm.rules import rules
from tetrad.backends.llvm.target import Target
from tetrad.compiler.pipeline import lower_graph
from tetrad.core.dtypes import i32, u32
from tetrad.core.machine import Machine, RegisterTile
from tetrad.kernel import nodes as n
from tetrad.kernel.build import KernelBuilder
from tetrad.lower.lower import Lowerer
from tetrad.schedule.nodes import programs_of

PTX = Isa(
    "nvptx64",
    dot4=lambda cg, node, acc, u, s: None,
    lookup=lambda cg, table, x: None,
    extremum=lambda cg, op, dtype, a, b: "",  # of vectors, of which there are none
    register="l",
)
GPU = Target(
    "sm_80", "nvptx64-nvidia-cuda", "sm_80", "+ptx80", has_f16_conversion=True, dot4="portable",
    machine=Machine(32, RegisterTile(4, 1), RegisterTile(2, 1), lowbit_tokens=1), isa=PTX,
)  # fmt: skip
ITS_RULES = EmitterRules(rules)


@ITS_RULES.rule(n.Barrier)
def emit_barrier(cg: Codegen, node: n.Barrier) -> None:
    cg.call("void", "llvm.nvvm.barrier.cta.sync.aligned.all", ("i32", "0"))


def emitted(program: n.Program) -> str:
    cg = Codegen(program, GPU, ITS_RULES, set(), 1, "plain")
    with cg.child() as outer:
        prologue(cg, program)
        group = cg.call("i32", "llvm.nvvm.read.ptx.sreg.ctaid.x")
        cg.line(f"%group.0 = zext i32 {group} to i64")
        thread = cg.new(f"zext i32 {cg.call('i32', 'llvm.nvvm.read.ptx.sreg.tid.x')} to i64")
        for axis in range(3):
            cg.set(("local", axis), Emitted("0" if axis else thread, 0))
        with cg.child() as body:
            cg.run(program.body)
        cg.splice(body)
        cg.line("br label %exit")
        cg.label("%exit")
        cg.line("ret void")
    head = [f'target triple = "{GPU.triple}"', *cg.declares.values()]
    function = "define ptx_kernel void @kernel(ptr %args, ptr %scratch, ptr %status) {"
    return "\n".join([*head, function, "entry:", *cg.entry, *outer.lines, "}"])


SPEC = td.Spec
KERNELS: dict[str, tuple[Callable[..., Any], list[Any]]] = {
    "map": (lambda x, y: td.tanh(x) * y, [SPEC((1000,)), SPEC((1000,))]),
    "columns": (lambda x: td.sum(x, axis=0), [SPEC((300, 50))]),
    "matmul": (lambda a, b: a @ b, [SPEC((64, 64)), SPEC((64, 64))]),
}


@pytest.mark.parametrize("name", KERNELS)
def test_kernels_become_ptx(name: str) -> None:
    function, specs = KERNELS[name]
    graph = td.trace(function)(*specs)
    for program in programs_of(lower_graph(graph, Lowerer(GPU.machine))):
        text = compile_module(emitted(program), GPU, is_object=False).decode()
        assert ".visible .entry kernel(" in text and "%tid.x" in text
        assert ("bar.sync" in text) == any(isinstance(i, n.Barrier) for i in walk(program.body))


def test_integers_lengths_atomics_and_returns_become_ptx() -> None:
    """A thread returns; it needs no branches for those that do not."""
    k = KernelBuilder("all", 32)
    x, s, y = k.buffer("x", u32), k.buffer("s", u32, "readwrite"), k.buffer("y", u32, "write")
    i = k.global_id()
    with k.when(i >= k.length(x)):
        k.return_()
    value = total = k.load(x, i)
    for op in (*n.SATURATING, *n.WORD_BINARY, *n.U32_BINARY):
        total = total + k.binary(op, value, total)
    for op in n.ATOMIC:
        expected = total if op == "atomic_compare_exchange" else None
        total = k.atomic(op.removeprefix("atomic_"), s, i, total, expected) + value
    signed = k.bitcast(total, i32)
    for op in (*n.SATURATING, *n.WORD_BINARY):
        signed = signed + k.binary(op, signed, k.bitcast(value, i32))
    k.store(y, i, k.unary("reverse_bits", k.bitcast(signed, u32)))
    text = compile_module(emitted(k.finish()), GPU, is_object=False).decode()
    for word in ("add", "exch", "cas", "min", "max", "and", "or", "xor"):
        assert re.search(rf"atom\.[a-z.]*{word}\.", text), word
    assert "mul.hi.u32" in text and "mul.hi.s32" in text and "brev.b32" in text


def walk(block: n.Block) -> list[n.Instr]:
    inner = [
        getattr(i, name) for i in block for name in ("body", "then", "orelse") if hasattr(i, name)
    ]
    return [*block, *(i for part in inner for i in walk(part))]
