"""Kernel language, the rules of single instructions: operand types, operators, attributes.

Receives an instruction whose operands are defined, and the check it belongs to (`kernel.verify`),
which collects what is wrong. Rules that depend on the way to an instruction are in
`kernel.flow_rules`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from tetrad.core.dtypes import DType, bf16, bool_, f16, f32, i32, index, u32
from tetrad.core.sizes import MAX_ELEMENTS
from tetrad.kernel import nodes as n
from tetrad.kernel.text import FORMS

if TYPE_CHECKING:
    from tetrad.kernel.verify import Check


def _const(check: Check, node: n.Const) -> None:
    check.require(
        _fits(node.value, node.dtype),
        "K026",
        f"{node.value!r} is not a literal of {node.dtype}",
        node,
    )


def _fits(value: object, dtype: DType) -> bool:
    if dtype is bool_:
        return type(value) is bool
    if dtype.is_float:
        with np.errstate(all="ignore"):
            return type(value) is float and (value != value or float(dtype.np.type(value)) == value)
    limits = np.iinfo(dtype.np)
    return type(value) is int and limits.min <= value <= limits.max


def _arg(check: Check, node: n.Arg) -> None:
    check.require(
        node.name in check.program.args, "K010", f"the program has no argument {node.name}", node
    )
    check.require(node.dtype is index, "K011", "arguments are index", node)


def _id(check: Check, node: n.Id) -> None:
    known = node.which in ("group", "local") and node.axis in (0, 1, 2)
    check.require(known, "K010", "an id is group or local, axis 0, 1 or 2", node)
    check.require(node.dtype is index, "K011", "ids are index", node)


def _load(check: Check, node: n.Load) -> None:
    _address(check, node, "K020")
    check.require(
        node.dtype is node.buffer.dtype, "K012", f"the buffer holds {node.buffer.dtype}", node
    )
    check.require(
        node.buffer.access != "write", "K021", f"buffer {node.buffer.name} is only written", node
    )


def _store(check: Check, node: n.Store) -> None:
    _address(check, node, "V036")
    got = node.value.dtype
    check.require(
        got is node.buffer.dtype,
        "K012",
        f"the buffer holds {node.buffer.dtype}, the value is {got}",
        node,
    )
    check.require(
        node.buffer.access != "read", "K021", f"buffer {node.buffer.name} is only read", node
    )


def _buffer_length(check: Check, node: n.BufferLength) -> None:
    check.require(node.dtype is index, "K011", "a length is index", node)


def _atomic(check: Check, node: n.Atomic) -> None:
    buffer, taken = node.buffer, node.buffer.dtype
    if check.require(not buffer.is_scratch, "V025", f"{buffer.name} is scratch", node):
        said = f"buffer {buffer.name} is not read and written, but {buffer.access}"
        check.require(buffer.access == "readwrite", "V009", said, node)
    check.require(taken in (u32, i32), "V014", f"no atomics on {taken}; use u32 or i32", node)
    check.require(node.at.dtype is index, "V027", f"an address is index, not {node.at.dtype}", node)
    types = (node.dtype, node.value.dtype, node.expected.dtype if node.expected else taken)
    check.require(
        types == (taken,) * 3, "K011", f"the buffer holds {taken}, types are {types}", node
    )
    check.require(node.op in n.ATOMIC, "K011", f"no atomic {node.op}", node)
    compares = node.op == "atomic_compare_exchange"
    said = "needs expected" if compares else "has no use for expected"
    check.require((node.expected is not None) == compares, "V042", f"{node.op} {said}", node)
    known = ", ".join(n.ORDERS)
    check.require(node.order in n.ORDERS, "V042", f"order {node.order!r} is none of {known}", node)
    _literal_address(check, node, "V036")


def _address(check: Check, node: n.Load | n.Store, code: str) -> None:
    if isinstance(node, n.Store):
        check.require(
            node.hint in ("", "stream", "same"), "K010", f"unknown hint {node.hint!r}", node
        )
    if not check.require(
        node.at.dtype is index, "K012", f"an address is index, not {node.at.dtype}", node
    ):
        return
    _literal_address(check, node, code)


def _literal_address(check: Check, node: n.Load | n.Store | n.Atomic, code: str) -> None:
    if isinstance(node.at, n.Const):
        count = node.buffer.count
        limit = count if isinstance(count, int) else MAX_ELEMENTS if count is None else count.max
        check.require(
            0 <= node.at.value < limit, code, f"address {node.at.value} of {count} elements", node
        )


def _prefetch(check: Check, node: n.Prefetch) -> None:
    check.require(node.at.dtype is index, "K012", f"an address is index, not {node.at.dtype}", node)


def _binary(check: Check, node: n.Binary) -> None:
    _operator(check, node, n.binary_operators(node.dtype))
    _same_types(check, node, node.lhs, node.rhs)
    by_zero = isinstance(node.rhs, n.Const) and node.rhs.value == 0 and not node.dtype.is_float
    check.require(
        not (by_zero and node.op in ("div", "mod")), "V044", f"{node.op} by a literal zero", node
    )


def _unary(check: Check, node: n.Unary) -> None:
    _operator(check, node, n.unary_operators(node.dtype))
    _same_types(check, node, node.x)


def _compare(check: Check, node: n.Compare) -> None:
    taken = node.lhs.dtype
    allowed = () if taken.storage_only else ("eq", "ne") if taken is bool_ else n.COMPARISONS
    check.require(node.op in allowed, "K011", f"no comparison {node.op} of {taken}", node)
    check.require(node.rhs.dtype is taken, "K011", f"compares {taken} with {node.rhs.dtype}", node)
    check.require(node.dtype is bool_, "K011", "a comparison gives bool", node)


def _operator(check: Check, node: n.Binary | n.Unary, allowed: tuple[str, ...]) -> None:
    listed = f"has {', '.join(allowed)}" if allowed else "has no arithmetic; cast it first"
    check.require(node.op in allowed, "K011", f"no {node.op} on {node.dtype}, which {listed}", node)


def _same_types(check: Check, node: n.Value, *operands: n.Value) -> None:
    got = ", ".join(str(o.dtype) for o in operands)
    same = all(o.dtype is node.dtype for o in operands)
    check.require(same, "K011", f"the result is {node.dtype}, operands are {got}", node)


def _condition(check: Check, node: n.Instr, cond: n.Value) -> None:
    check.require(cond.dtype is bool_, "K012", f"a condition is bool, not {cond.dtype}", node)


def _select(check: Check, node: n.Select) -> None:
    _condition(check, node, node.cond)
    same = node.a.dtype is node.dtype and node.b.dtype is node.dtype
    check.require(
        same, "V029", f"arms are {node.a.dtype} and {node.b.dtype}, the result {node.dtype}", node
    )


def _cast(check: Check, node: n.Cast) -> None:
    source, target = node.x.dtype, node.dtype
    half = (f16, bf16)
    allowed = (
        source is target or (source not in half and target not in half) or f32 in (source, target)
    )
    check.require(
        allowed, "V012", f"no cast {source} to {target}; f16 and bf16 go through f32", node
    )


def _bitcast(check: Check, node: n.Bitcast) -> None:
    source, target = node.x.dtype, node.dtype
    allowed = source.bits == target.bits and not {source, target} & {bool_, index}
    check.require(
        allowed, "V012", f"no bitcast {source} to {target}; equal widths, no bool, no index", node
    )


def _fma(check: Check, node: n.Fma) -> None:
    same = all(x.dtype is node.dtype for x in (node.a, node.b, node.c))
    allowed = same and node.dtype.is_float and not node.dtype.storage_only
    check.require(allowed, "V028", "fma takes three f32 or three f64", node)


def _dot4(check: Check, node: n.Dot4) -> None:
    types = (node.dtype, node.acc.dtype, node.u.dtype, node.s.dtype)
    check.require(
        types == (i32, i32, u32, u32), "K011", f"dot4 is i32 from i32, u32, u32, not {types}", node
    )
    check.require(0 <= node.u_max <= 255, "K010", f"u_max {node.u_max} is not a byte", node)


def _dot2(check: Check, node: n.Dot2) -> None:
    types = (node.dtype, node.acc.dtype, node.a.dtype, node.b.dtype)
    check.require(
        types == (f32, f32, u32, u32), "K011", f"dot2 is f32 from f32, u32, u32, not {types}", node
    )


def _lookup(check: Check, node: n.Lookup) -> None:
    check.require(
        (node.dtype, node.x.dtype) == (u32, u32),
        "K011",
        f"lookup is u32 from u32, not {node.x.dtype}",
        node,
    )
    fits = len(node.table) == 16 and all(0 <= entry <= 255 for entry in node.table)
    check.require(fits, "K010", "a lookup has a table of 16 bytes", node)


def _shuffle(check: Check, node: n.Shuffle) -> None:
    lanes = check.program.lanes
    fits = len(node.lanes) == lanes and all(0 <= lane < 2 * lanes for lane in node.lanes)
    check.require(fits, "K010", f"a shuffle names {lanes} lanes below {2 * lanes}", node)
    _same_types(check, node, node.a, node.b)


def _permute(check: Check, node: n.Permute) -> None:
    is_word = node.dtype.bits == 32 and not node.dtype.storage_only
    check.require(
        is_word and node.at.dtype is u32, "K011", "a permute is of 32 bits, by lanes of u32", node
    )
    fits = check.program.lanes in (1, 2, 4, 8, 16)
    check.require(fits, "K010", "a permute is in a workgroup of 16 lanes or a half, ...", node)
    _same_types(check, node, node.x)


def _broadcast(check: Check, node: n.Broadcast) -> None:
    check.require(
        0 <= node.lane < check.program.lanes,
        "K010",
        f"no lane {node.lane} of {check.program.lanes}",
        node,
    )
    _same_types(check, node, node.x)


def _vote(check: Check, node: n.Vote) -> None:
    check.require(node.op in ("any", "all"), "K011", "a vote is any or all", node)
    check.require(node.dtype is bool_, "K011", "a vote gives bool", node)
    _condition(check, node, node.x)


def _local(check: Check, node: n.Local) -> None:
    check.require(
        node.init.dtype is node.dtype,
        "V045",
        f"a local of {node.dtype} starts as {node.init.dtype}",
        node,
    )


def _get(check: Check, node: n.Get) -> None:
    check.require(
        node.local.dtype is node.dtype,
        "V045",
        f"a local of {node.local.dtype} read as {node.dtype}",
        node,
    )


def _set(check: Check, node: n.Set) -> None:
    got, kept = node.value.dtype, node.local.dtype
    check.require(got is kept, "V045", f"the local is {kept}, set to {got}", node)


def _for(check: Check, node: n.For) -> None:
    types = (node.start.dtype, node.stop.dtype, node.counter.dtype)
    check.require(
        types == (index,) * 3, "V015", f"start, stop, counter are index, not {types}", node
    )
    check.require(
        type(node.step) is int and node.step > 0, "V015", f"step {node.step} is not positive", node
    )


def _while(check: Check, node: n.Repeat) -> None:
    _condition(check, node, node.local)


def _if(check: Check, node: n.If) -> None:
    _condition(check, node, node.cond)


def _trap(check: Check, node: n.Trap) -> None:
    _condition(check, node, node.cond)
    check.require(
        node.value.dtype is index, "K012", f"a trap reports an index, not {node.value.dtype}", node
    )
    fits = 0 < node.code < 1 << n.TAG_SHIFT - 1  # the upper half is of bounds checks
    check.require(fits, "K026", f"the code {node.code} of a trap is not 1 to 32767", node)


def _nothing(check: Check, node: n.Instr) -> None:
    """Barrier, Return and Region have no rules beyond their place and their body."""


RULES: dict[type[n.Instr], Callable[[Check, Any], None]] = {
    n.Const: _const,
    n.Arg: _arg,
    n.Id: _id,
    n.BufferLength: _buffer_length,
    n.Load: _load,
    n.Store: _store,
    n.Atomic: _atomic,
    n.Binary: _binary,
    n.Compare: _compare,
    n.Unary: _unary,
    n.Select: _select,
    n.Cast: _cast,
    n.Bitcast: _bitcast,
    n.Fma: _fma,
    n.Dot4: _dot4,
    n.Dot2: _dot2,
    n.Lookup: _lookup,
    n.Shuffle: _shuffle,
    n.Permute: _permute,
    n.Broadcast: _broadcast,
    n.Vote: _vote,
    n.Local: _local,
    n.Get: _get,
    n.Set: _set,
    n.For: _for,
    n.Repeat: _while,
    n.If: _if,
    n.Barrier: _nothing,
    n.Return: _nothing,
    n.Trap: _trap,
    n.Prefetch: _prefetch,
    n.Region: _nothing,
}
OPERANDS: dict[type[n.Instr], tuple[str, ...]] = {
    **{
        c: tuple(f for f, k in form.kinds.items() if k in ("value", "local", "buffer"))
        for c, form in FORMS.items()
    },
    n.For: ("start", "stop"),
    n.Repeat: ("local",),
    n.If: ("cond",),
    n.Region: (),
}
