"""Code generation, byte dot products in plain integer arithmetic, for processors and values without
an instruction."""

from __future__ import annotations

from tetrad.backends.llvm.convert import Words
from tetrad.backends.llvm.emitter import Codegen
from tetrad.kernel import nodes as n


def dot4_portable(cg: Codegen, node: n.Dot4, acc: str, u: str, s: str, varying: bool) -> str:
    w = Words(cg, varying)
    for byte in range(4):
        raised = w.op("shl", u, 24 - 8 * byte)
        left = w.op("ashr" if node.signed else "lshr", raised, 24)
        right = w.op("ashr", w.op("shl", s, 24 - 8 * byte), 24)
        acc = w.op("add", acc, w.op("mul", left, right))
    return acc
