"""Kernel language, verify: does a program obey the rules of the language?

Receives any `Program`. `verify` returns nothing or raises a `VerifyError` with a stable code;
`problems` returns all that it finds. Callers match codes, never text. First declarations are
checked, then the structure and types of every instruction; if those hold, the rules that depend on
uniformity (`kernel.uniformity`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from tetrad.core.dtypes import DType, bf16, bool_, f16, f32, i32, index, u32
from tetrad.core.errors import VerifyError
from tetrad.core.sizes import MAX_ELEMENTS, bind, dims_of
from tetrad.kernel import nodes as n
from tetrad.kernel.text import ACCESSES, FORMS, line_of
from tetrad.kernel.uniformity import varying

MAX_NESTING = 64
MAX_INSTRUCTIONS = 100_000
MAX_LANES = 4096

CODES = {
    "K001": "workgroup sizes are at least 1, and their product is bounded",
    "K002": "names of buffers and of arguments are unique",
    "K003": "scratch has a positive size, computable from the arguments; only scratch is zeroed",
    "K004": "workgroup memory fits the machine",
    "K010": "operands are defined before, in scope; buffers, arguments, axes, lanes, hints exist",
    "K011": "operand types fit the operator",
    "K012": "conditions are bool, addresses are index, stored values have the buffer's type",
    "K020": "a literal load address lies in the buffer",
    "K021": "read buffers are not stored to, write buffers not loaded from",
    "K022": "buffers have at most 2**48 elements",
    "K023": "no element access to types below one byte",
    "K024": "a uniform address is written with a uniform value",
    "K026": "literals are Python numbers that their type represents exactly",
    "V010": "barriers, shuffles and broadcasts stand in uniform flow; loop bounds are uniform",
    "V011": "loop counters are not assigned",
    "V012": "casts and bitcasts are between types that allow them",
    "V015": "loop bounds and counters are index, steps positive",
    "V018": f"at most {MAX_NESTING} nested blocks",
    "V019": f"at most {MAX_INSTRUCTIONS} instructions",
    "V028": "fma takes three f32 or three f64",
    "V029": "both arms of a select have its type",
    "V032": "a value is defined once",
    "V036": "a literal store address lies in the buffer",
    "V044": "no division by a literal zero",
    "V045": "a local keeps its type",
}


def verify(
    program: n.Program, workgroup_bytes: int | None = None, args: Mapping[str, int] | None = None
) -> None:
    """Raise the first problem of the program, if there is one. `workgroup_bytes`: the scratch that
    a workgroup may have on its machine, private memory included. Sizes with a Dim count if `args`
    gives its value.

    >>> from tetrad.kernel.build import KernelBuilder
    >>> verify(KernelBuilder("empty").finish())
    """
    found = problems(program, workgroup_bytes, args)
    if found:
        raise found[0]


def problems(
    program: n.Program, workgroup_bytes: int | None = None, args: Mapping[str, int] | None = None
) -> list[VerifyError]:
    """All problems of the program, in program order."""
    check = _Check(program)
    _check_declarations(check)
    if workgroup_bytes is not None and not check.found:
        _check_memory(check, workgroup_bytes, args or {})
    if _check_limits(check):
        check.block(program.body)
    if not check.found:
        _Flow(check, varying(program)).block(program.body, False)
    return check.found


class _Check:
    """The state of the walk: values in scope, enclosing regions, problems so far."""

    def __init__(self, program: n.Program) -> None:
        self.program = program
        self.found: list[VerifyError] = []
        self.buffers = set(program.buffers)
        self.in_scope: set[n.Value] = set()
        self.ever_defined: set[n.Value] = set()
        self.scope: list[n.Value] = []

    def report(self, code: str, message: str, instr: n.Instr | None = None) -> None:
        place = "" if instr is None else f"\n  at {line_of(self.program, instr)}"
        self.found.append(VerifyError(code, f"{self.program.name}: {message}{place}"))

    def require(self, holds: bool, code: str, message: str, instr: n.Instr) -> bool:
        if not holds:
            self.report(code, message, instr)
        return holds

    def block(self, block: n.Block, *counters: n.Counter) -> None:
        """One scope: values defined inside are dropped at its end."""
        mark = len(self.scope)
        for counter in counters:
            self.define(counter)
        self.instrs(block)
        self.in_scope.difference_update(self.scope[mark:])
        del self.scope[mark:]

    def instrs(self, block: n.Block) -> None:
        for instr in block:
            rule = _RULES.get(type(instr))
            if rule is None:
                self.report("K010", f"{type(instr).__name__} is not an instruction")
            elif self.operands(instr):
                rule(self, instr)
            self.nested(instr)
            if isinstance(instr, n.Value):
                self.define(instr)

    def nested(self, instr: n.Instr) -> None:
        if isinstance(instr, n.For):
            self.block(instr.body, instr.counter)
        elif isinstance(instr, n.If):
            self.block(instr.then)
            self.block(instr.orelse)
        elif isinstance(instr, n.Region):
            self.instrs(instr.body)

    def define(self, value: n.Value) -> None:
        self.require(value not in self.ever_defined, "V032", "a value is defined twice", value)
        self.ever_defined.add(value)
        self.in_scope.add(value)
        self.scope.append(value)

    def operands(self, instr: n.Instr) -> bool:
        """Every operand is a value in scope and every buffer is declared; the rules of instructions
        rely on it."""
        good = True
        for name in _OPERANDS[type(instr)]:
            operand = getattr(instr, name)
            if name == "buffer":
                good &= self.require(
                    operand in self.buffers, "K010", "the buffer is not declared", instr
                )
            elif name == "local":
                good &= self.is_local(instr, operand)
            else:
                good &= self.is_value(instr, operand)
        return good

    def is_value(self, instr: n.Instr, operand: n.Value) -> bool:
        if isinstance(operand, n.Local):
            self.report("K010", "a local is not a value; read it with get", instr)
            return False
        return self.require(
            operand in self.in_scope, "K010", "an operand is not defined here", instr
        )

    def is_local(self, instr: n.Instr, operand: n.Value) -> bool:
        if isinstance(instr, n.Set) and isinstance(operand, n.Counter):
            self.report("V011", "a loop counter cannot be assigned; use a local", instr)
            return False
        is_local = isinstance(operand, n.Local) and operand in self.in_scope
        return self.require(is_local, "K010", "not a local that is defined here", instr)


# -- declarations ----------------------------------------------------------------------------------


def _check_declarations(check: _Check) -> None:
    program = check.program
    if len(program.workgroup) != 3 or min(program.workgroup) < 1 or program.lanes > MAX_LANES:
        check.report(
            "K001", f"workgroup {program.workgroup} needs three sizes >= 1, product <= {MAX_LANES}"
        )
    for what, names in (
        ("buffer", [b.name for b in program.buffers]),
        ("argument", list(program.args)),
    ):
        for name in sorted({name for name in names if names.count(name) > 1}):
            check.report("K002", f"two {what}s are called {name}")
    for buffer in program.buffers:
        _check_buffer(check, buffer)


def _check_buffer(check: _Check, buffer: n.Buffer) -> None:
    if buffer.access not in ACCESSES:
        check.report(
            "K010",
            f"buffer {buffer.name}: access {buffer.access!r} is not one of {', '.join(ACCESSES)}",
        )
    if buffer.dtype.bits < 8 and buffer.dtype is not bool_:
        check.report(
            "K023",
            f"buffer {buffer.name}: {buffer.dtype} is below one byte; address words and shift",
        )
    if buffer.zeroed and not buffer.is_scratch:
        check.report("K003", f"buffer {buffer.name}: only scratch is zeroed")
    largest = (
        buffer.count.max
        if buffer.count is not None and not isinstance(buffer.count, int)
        else buffer.count
    )
    if largest is not None and largest > MAX_ELEMENTS:
        check.report("K022", f"buffer {buffer.name}: {largest} elements exceed 2**48")
    if buffer.is_scratch:
        _check_scratch(check, buffer, largest)
    elif largest is not None and largest < 0:
        check.report("K003", f"buffer {buffer.name}: count {buffer.count} is negative")


def _check_scratch(check: _Check, buffer: n.Buffer, largest: int | None) -> None:
    if buffer.count is None or largest is None or largest < 1:
        check.report(
            "K003", f"scratch {buffer.name} needs a count of at least 1, got {buffer.count}"
        )
        return
    missing = sorted(d.name for d in dims_of(buffer.count) if d.name not in check.program.args)
    if missing:
        check.report(
            "K003",
            f"scratch {buffer.name}: size {buffer.count} needs the arguments {', '.join(missing)}",
        )


def _check_memory(check: _Check, most: int, args: Mapping[str, int]) -> None:
    """The total scratch of a workgroup, as far as its sizes are known."""
    scratch = [b for b in check.program.buffers if b.is_scratch and b.count is not None]
    counts = {b: b.count for b in scratch if b.count is not None}
    told = {b for b, count in counts.items() if {d.name for d in dims_of(count)} <= args.keys()}
    known = {b: bind(count, args) for b, count in counts.items() if b in told}
    total = sum(count * b.dtype.nbytes for b, count in known.items())
    if total > most:
        listed = ", ".join(
            f"{b.name} {count * b.dtype.nbytes} ({count} x {b.dtype})" for b, count in known.items()
        )
        check.report(
            "K004",
            f"a workgroup asks for {total} bytes of memory, its machine has {most}: {listed}",
        )


def _check_limits(check: _Check) -> bool:
    """Bound size and depth, level by level, so that a hostile program cannot overflow the stack."""
    level: list[n.Block] = [check.program.body]
    total = 0
    for _ in range(MAX_NESTING + 1):
        total += sum(map(len, level))
        level = [inner for block in level for instr in block for inner in _inner_blocks(instr)]
        if total > MAX_INSTRUCTIONS:
            check.report("V019", f"more than {MAX_INSTRUCTIONS} instructions")
            return False
        if not level:
            return True
    check.report("V018", f"blocks nested deeper than {MAX_NESTING}")
    return False


def _inner_blocks(instr: n.Instr) -> tuple[n.Block, ...]:
    if isinstance(instr, n.If):
        return (instr.then, instr.orelse) if instr.orelse else (instr.then,)
    return (instr.body,) if isinstance(instr, n.For | n.Region) else ()


# -- one rule per instruction ----------------------------------------------------------------------


def _const(check: _Check, node: n.Const) -> None:
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


def _arg(check: _Check, node: n.Arg) -> None:
    check.require(
        node.name in check.program.args, "K010", f"the program has no argument {node.name}", node
    )
    check.require(node.dtype is index, "K011", "arguments are index", node)


def _id(check: _Check, node: n.Id) -> None:
    known = node.which in ("group", "local") and node.axis in (0, 1, 2)
    check.require(known, "K010", "an id is group or local, axis 0, 1 or 2", node)
    check.require(node.dtype is index, "K011", "ids are index", node)


def _load(check: _Check, node: n.Load) -> None:
    _address(check, node, "K020")
    check.require(
        node.dtype is node.buffer.dtype, "K012", f"the buffer holds {node.buffer.dtype}", node
    )
    check.require(
        node.buffer.access != "write", "K021", f"buffer {node.buffer.name} is only written", node
    )


def _store(check: _Check, node: n.Store) -> None:
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


def _address(check: _Check, node: n.Load | n.Store, code: str) -> None:
    if isinstance(node, n.Store):
        check.require(
            node.hint in ("", "stream", "same"), "K010", f"unknown hint {node.hint!r}", node
        )
    if not check.require(
        node.at.dtype is index, "K012", f"an address is index, not {node.at.dtype}", node
    ):
        return
    if isinstance(node.at, n.Const):
        count = node.buffer.count
        limit = count if isinstance(count, int) else MAX_ELEMENTS if count is None else count.max
        check.require(
            0 <= node.at.value < limit, code, f"address {node.at.value} of {count} elements", node
        )


def _prefetch(check: _Check, node: n.Prefetch) -> None:
    check.require(node.at.dtype is index, "K012", f"an address is index, not {node.at.dtype}", node)


def _binary(check: _Check, node: n.Binary) -> None:
    _operator(check, node, _binary_ops(node.dtype))
    _same_types(check, node, node.lhs, node.rhs)
    by_zero = isinstance(node.rhs, n.Const) and node.rhs.value == 0 and not node.dtype.is_float
    check.require(
        not (by_zero and node.op in ("div", "mod")), "V044", f"{node.op} by a literal zero", node
    )


def _binary_ops(dtype: DType) -> tuple[str, ...]:
    if dtype.storage_only:
        return ()
    if dtype is index:
        return n.INDEX_BINARY
    return n.BOOL_BINARY if dtype is bool_ else n.FLOAT_BINARY if dtype.is_float else n.INT_BINARY


def _unary(check: _Check, node: n.Unary) -> None:
    _operator(check, node, _unary_ops(node.dtype))
    _same_types(check, node, node.x)


def _unary_ops(dtype: DType) -> tuple[str, ...]:
    if dtype.storage_only or dtype is index:
        return ()
    return n.BOOL_UNARY if dtype is bool_ else n.FLOAT_UNARY if dtype.is_float else n.INT_UNARY


def _compare(check: _Check, node: n.Compare) -> None:
    taken = node.lhs.dtype
    allowed = () if taken.storage_only else ("eq", "ne") if taken is bool_ else n.COMPARISONS
    check.require(node.op in allowed, "K011", f"no comparison {node.op} of {taken}", node)
    check.require(node.rhs.dtype is taken, "K011", f"compares {taken} with {node.rhs.dtype}", node)
    check.require(node.dtype is bool_, "K011", "a comparison gives bool", node)


def _operator(check: _Check, node: n.Binary | n.Unary, allowed: tuple[str, ...]) -> None:
    listed = f"has {', '.join(allowed)}" if allowed else "has no arithmetic; cast it first"
    check.require(node.op in allowed, "K011", f"no {node.op} on {node.dtype}, which {listed}", node)


def _same_types(check: _Check, node: n.Value, *operands: n.Value) -> None:
    got = ", ".join(str(o.dtype) for o in operands)
    same = all(o.dtype is node.dtype for o in operands)
    check.require(same, "K011", f"the result is {node.dtype}, operands are {got}", node)


def _condition(check: _Check, node: n.Instr, cond: n.Value) -> None:
    check.require(cond.dtype is bool_, "K012", f"a condition is bool, not {cond.dtype}", node)


def _select(check: _Check, node: n.Select) -> None:
    _condition(check, node, node.cond)
    same = node.a.dtype is node.dtype and node.b.dtype is node.dtype
    check.require(
        same, "V029", f"arms are {node.a.dtype} and {node.b.dtype}, the result {node.dtype}", node
    )


def _cast(check: _Check, node: n.Cast) -> None:
    source, target = node.x.dtype, node.dtype
    half = (f16, bf16)
    allowed = (
        source is target or (source not in half and target not in half) or f32 in (source, target)
    )
    check.require(
        allowed, "V012", f"no cast {source} to {target}; f16 and bf16 go through f32", node
    )


def _bitcast(check: _Check, node: n.Bitcast) -> None:
    source, target = node.x.dtype, node.dtype
    allowed = source.bits == target.bits and not {source, target} & {bool_, index}
    check.require(
        allowed, "V012", f"no bitcast {source} to {target}; equal widths, no bool, no index", node
    )


def _fma(check: _Check, node: n.Fma) -> None:
    same = all(x.dtype is node.dtype for x in (node.a, node.b, node.c))
    allowed = same and node.dtype.is_float and not node.dtype.storage_only
    check.require(allowed, "V028", "fma takes three f32 or three f64", node)


def _dot4(check: _Check, node: n.Dot4) -> None:
    types = (node.dtype, node.acc.dtype, node.u.dtype, node.s.dtype)
    check.require(
        types == (i32, i32, u32, u32), "K011", f"dot4 is i32 from i32, u32, u32, not {types}", node
    )
    check.require(0 <= node.u_max <= 255, "K010", f"u_max {node.u_max} is not a byte", node)


def _lookup(check: _Check, node: n.Lookup) -> None:
    check.require(
        (node.dtype, node.x.dtype) == (u32, u32),
        "K011",
        f"lookup is u32 from u32, not {node.x.dtype}",
        node,
    )
    fits = len(node.table) == 16 and all(0 <= entry <= 255 for entry in node.table)
    check.require(fits, "K010", "a lookup has a table of 16 bytes", node)


def _shuffle(check: _Check, node: n.Shuffle) -> None:
    lanes = check.program.lanes
    fits = len(node.lanes) == lanes and all(0 <= lane < 2 * lanes for lane in node.lanes)
    check.require(fits, "K010", f"a shuffle names {lanes} lanes below {2 * lanes}", node)
    _same_types(check, node, node.a, node.b)


def _permute(check: _Check, node: n.Permute) -> None:
    is_word = node.dtype.bits == 32 and not node.dtype.storage_only
    check.require(
        is_word and node.at.dtype is u32, "K011", "a permute is of 32 bits, by lanes of u32", node
    )
    fits = check.program.lanes in (1, 2, 4, 8, 16)
    check.require(fits, "K010", "a permute is in a workgroup of 16 lanes or a half, ...", node)
    _same_types(check, node, node.x)


def _broadcast(check: _Check, node: n.Broadcast) -> None:
    check.require(
        0 <= node.lane < check.program.lanes,
        "K010",
        f"no lane {node.lane} of {check.program.lanes}",
        node,
    )
    _same_types(check, node, node.x)


def _vote(check: _Check, node: n.Vote) -> None:
    check.require(node.op in ("any", "all"), "K011", "a vote is any or all", node)
    check.require(node.dtype is bool_, "K011", "a vote gives bool", node)
    _condition(check, node, node.x)


def _local(check: _Check, node: n.Local) -> None:
    check.require(
        node.init.dtype is node.dtype,
        "V045",
        f"a local of {node.dtype} starts as {node.init.dtype}",
        node,
    )


def _get(check: _Check, node: n.Get) -> None:
    check.require(
        node.local.dtype is node.dtype,
        "V045",
        f"a local of {node.local.dtype} read as {node.dtype}",
        node,
    )


def _set(check: _Check, node: n.Set) -> None:
    got, kept = node.value.dtype, node.local.dtype
    check.require(got is kept, "V045", f"the local is {kept}, set to {got}", node)


def _for(check: _Check, node: n.For) -> None:
    types = (node.start.dtype, node.stop.dtype, node.counter.dtype)
    check.require(
        types == (index,) * 3, "V015", f"start, stop, counter are index, not {types}", node
    )
    check.require(
        type(node.step) is int and node.step > 0, "V015", f"step {node.step} is not positive", node
    )


def _if(check: _Check, node: n.If) -> None:
    _condition(check, node, node.cond)


def _trap(check: _Check, node: n.Trap) -> None:
    _condition(check, node, node.cond)
    check.require(
        node.value.dtype is index, "K012", f"a trap reports an index, not {node.value.dtype}", node
    )


def _nothing(check: _Check, node: n.Instr) -> None:
    """Barrier and Region have no rules beyond their place and their body."""


_RULES: dict[type[n.Instr], Callable[[_Check, Any], None]] = {
    n.Const: _const,
    n.Arg: _arg,
    n.Id: _id,
    n.Load: _load,
    n.Store: _store,
    n.Binary: _binary,
    n.Compare: _compare,
    n.Unary: _unary,
    n.Select: _select,
    n.Cast: _cast,
    n.Bitcast: _bitcast,
    n.Fma: _fma,
    n.Dot4: _dot4,
    n.Lookup: _lookup,
    n.Shuffle: _shuffle,
    n.Permute: _permute,
    n.Broadcast: _broadcast,
    n.Vote: _vote,
    n.Local: _local,
    n.Get: _get,
    n.Set: _set,
    n.For: _for,
    n.If: _if,
    n.Barrier: _nothing,
    n.Trap: _trap,
    n.Prefetch: _prefetch,
    n.Region: _nothing,
}
_OPERANDS: dict[type[n.Instr], tuple[str, ...]] = {
    **{
        c: tuple(f for f, k in form.kinds.items() if k in ("value", "local", "buffer"))
        for c, form in FORMS.items()
    },
    n.For: ("start", "stop"),
    n.If: ("cond",),
    n.Region: (),
}


# -- uniformity ------------------------------------------------------------------------------------


class _Flow:
    """The walk that tracks which values vary, and whether all invocations of the workgroup are
    active."""

    def __init__(self, check: _Check, differs: set[n.Instr]) -> None:
        self.check, self.varying = check, differs

    def block(self, block: n.Block, divergent: bool) -> None:
        for instr in block:
            if divergent and isinstance(instr, n.Barrier | n.Shuffle | n.Permute | n.Broadcast):
                self.check.report(
                    "V010", "not all invocations of the workgroup may come here", instr
                )
            if isinstance(instr, n.Store):
                self.store(instr)
            elif isinstance(instr, n.If):
                inside = divergent or instr.cond in self.varying
                self.block(instr.then, inside)
                self.block(instr.orelse, inside)
            elif isinstance(instr, n.For):
                self.loop(instr, divergent)
            elif isinstance(instr, n.Region):
                self.block(instr.body, divergent)

    def loop(self, loop: n.For, divergent: bool) -> None:
        for bound in (loop.start, loop.stop):
            if bound in self.varying:
                self.check.report(
                    "V010",
                    "a loop bound differs between invocations; use a uniform one and an if",
                    loop,
                )
        self.block(loop.body, divergent)

    def store(self, store: n.Store) -> None:
        if store.value in self.varying and store.at not in self.varying:
            self.check.report(
                "K024",
                "a varying value at a uniform address; broadcast the lane that is meant",
                store,
            )
