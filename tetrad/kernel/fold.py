"""Kernel language, fold: what the builder may simplify while a kernel is written.

Receives an operator and its literal operands (None where an operand is no literal); returns the
folded literal in a 1-tuple, or the name of the operand that equals the result, or None. Only exact,
type-independent identities: index arithmetic, and x+0, x*1 on integers. Floats are never folded
here: rounding belongs to the program.
"""

from __future__ import annotations

from tetrad.core.dtypes import DType

Number = bool | int | float | None


def fold_binary(op: str, dtype: DType, a: Number, b: Number) -> tuple[int] | str | None:
    if dtype.kind != "x":
        return None
    if a is not None and b is not None:
        return _literal(op, int(a), int(b))
    if op in ("add", "sub") and b == 0 or op in ("mul", "div") and b == 1:
        return "lhs"
    if op == "add" and a == 0 or op == "mul" and a == 1:
        return "rhs"
    if op == "mul" and 0 in (a, b) or op == "mod" and b == 1:
        return (0,)
    return None


def _literal(op: str, a: int, b: int) -> tuple[int] | None:
    if op in ("div", "mod") and (b <= 0 or a < 0):
        return None
    table = {"add": a + b, "sub": a - b, "mul": a * b, "min": min(a, b), "max": max(a, b)}
    if op in table:
        return (table[op],)
    return ((a // b,) if op == "div" else (a % b,)) if op in ("div", "mod") else None
