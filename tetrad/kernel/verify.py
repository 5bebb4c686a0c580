"""Kernel language, verify: does a program obey the rules of the language?

Receives any `Program`. `verify` returns nothing or raises a `VerifyError` with a stable code;
`problems` returns all that it finds. Callers match codes, never text. First declarations are
checked, then the structure and types of every instruction (`kernel.instruction_rules`); if those
hold, the rules that depend on the way to it (`kernel.flow_rules`).
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from itertools import pairwise

from tetrad.core.dtypes import REAL_DTYPES, DType, index
from tetrad.core.errors import VerifyError
from tetrad.core.sizes import MAX_ELEMENTS, bind, dims_of
from tetrad.kernel import nodes as n
from tetrad.kernel.flow_rules import check_flow
from tetrad.kernel.instruction_rules import OPERANDS, RULES
from tetrad.kernel.returns import ends
from tetrad.kernel.text import ACCESSES, line_of, regions_of

MAX_NESTING = 64
MAX_INSTRUCTIONS = 100_000
MAX_LANES = 4096
MAX_RETURNS = 32
ELEMENTS = frozenset(dtype.short_name for dtype in (*REAL_DTYPES, index))  # what kernels hold

CODES = {
    "K001": "workgroup sizes are at least 1, and their product is bounded",
    "K002": "names of buffers and of arguments are unique",
    "K003": "scratch has a positive size, computable from the arguments; only scratch is zeroed",
    "K004": "workgroup memory fits the machine",
    "K010": "operands are defined before, in scope; buffers, arguments, axes, lanes, hints exist",
    "K011": "operand types fit the operator",
    "K012": "conditions are bool, addresses are index, stored values have the buffer's type",
    "K013": "nothing follows a return in its block",
    "K014": "between atomic and plain access to one buffer stands a barrier",
    "K020": "a literal load address lies in the buffer",
    "K021": "read buffers are not stored to, write buffers not loaded from",
    "K022": "buffers have at most 2**48 elements",
    "K023": "no element access to types below one byte, complex or quantised ones",
    "K024": "a uniform address is written with a uniform value",
    "K026": "literals are Python numbers that their type represents exactly; codes of traps are "
    "1 to 32767",
    "V009": "atomics are on storage that is read and written",
    "V010": "barriers, shuffles and broadcasts stand in uniform flow, so not behind a return that "
    "only some invocations take; loop bounds are uniform",
    "V011": "loop counters are not assigned",
    "V012": "casts and bitcasts are between types that allow them",
    "V014": "atomics are on u32 and i32",
    "V015": "loop bounds and counters are index, steps positive",
    "V018": f"at most {MAX_NESTING} nested blocks, at most {MAX_RETURNS} returns",
    "V019": f"at most {MAX_INSTRUCTIONS} instructions",
    "V025": "atomics are not on scratch",
    "V027": "the address of an atomic is index",
    "V028": "fma takes three f32 or three f64",
    "V029": "both arms of a select have its type",
    "V032": "a value is defined once",
    "V036": "a literal store address lies in the buffer",
    "V042": "an atomic has a known order, and expected where it compares and only there",
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
    found = problems(program, workgroup_bytes, args, most=1)
    if found:
        raise found[0]


def problems(
    program: n.Program,
    workgroup_bytes: int | None = None,
    args: Mapping[str, int] | None = None,
    *,
    most: int = 100,
) -> list[VerifyError]:
    """The problems of the program, in program order, up to `most`: each quotes a line of the text,
    and a hostile program may have one in every line."""
    check = Check(program, most)
    with suppress(Enough):
        _check_all(check, workgroup_bytes, args)
    return check.found


def _check_all(check: Check, workgroup_bytes: int | None, args: Mapping[str, int] | None) -> None:
    _check_declarations(check)
    if workgroup_bytes is not None and not check.found:
        _check_memory(check, workgroup_bytes, args or {})
    if _check_limits(check):
        check.block(check.program.body)
    if not check.found:
        check_flow(check)


class Enough(Exception):
    """As many problems as were asked for."""


class Check:
    """The state of the walk: values in scope, enclosing regions, problems so far."""

    def __init__(self, program: n.Program, most: int) -> None:
        self.program, self.most = program, most
        self.found: list[VerifyError] = []
        self.buffers = set(program.buffers)
        self.in_scope: set[n.Value] = set()
        self.ever_defined: set[n.Value] = set()
        self.scope: list[n.Value] = []

    def report(self, code: str, message: str, instr: n.Instr | None = None) -> None:
        place = "" if instr is None else f"\n  at {line_of(self.program, instr)}"
        regions = "" if instr is None else regions_of(self.program, instr)
        place += f"\n  in region {regions}" if regions else ""
        self.found.append(VerifyError(code, f"{self.program.name}: {message}{place}"))
        if len(self.found) >= self.most:
            raise Enough

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
        for instr, following in pairwise(block):
            self.require(not ends((instr,)), "K013", "nothing may follow a return", following)
        for instr in block:
            rule = RULES.get(type(instr))
            if rule is None:
                self.report("K010", f"{type(instr).__name__} is not an instruction")
            elif isinstance(instr, n.Value) and instr.dtype.short_name not in ELEMENTS:
                self.report("K023", f"no kernel computes with {instr.dtype}", instr)
            elif self.operands(instr):
                rule(self, instr)
            self.nested(instr)
            if isinstance(instr, n.Value):
                self.define(instr)

    def nested(self, instr: n.Instr) -> None:
        if isinstance(instr, n.For):
            self.block(instr.body, instr.counter)
        elif isinstance(instr, n.Repeat):
            self.block(instr.body)
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
        for name in OPERANDS[type(instr)]:
            operand = getattr(instr, name)
            if name == "buffer":
                good &= self.require(
                    operand in self.buffers, "K010", "the buffer is not declared", instr
                )
            elif name == "local":
                good &= self.is_local(instr, operand)
            elif operand is not None:
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


def _check_declarations(check: Check) -> None:
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


def _check_buffer(check: Check, buffer: n.Buffer) -> None:
    if buffer.access not in ACCESSES:
        check.report(
            "K010",
            f"buffer {buffer.name}: access {buffer.access!r} is not one of {', '.join(ACCESSES)}",
        )
    if buffer.dtype.short_name not in ELEMENTS:
        check.report("K023", f"buffer {buffer.name}: {refused_element(buffer.dtype)}")
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


def refused_element(dtype: DType) -> str:
    """Why no element of this type is loaded, and what to do."""
    if dtype.is_complex:
        return f"no kernel loads {dtype}; declare twice as many {dtype.real}, real and imaginary"
    if dtype.bits < 8:
        return f"{dtype} is below one byte; address words and shift"
    return f"no kernel loads {dtype}; declare the bytes of its blocks, u8 or u32, and shift"


def _check_scratch(check: Check, buffer: n.Buffer, largest: int | None) -> None:
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


def _check_memory(check: Check, most: int, args: Mapping[str, int]) -> None:
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


def _check_limits(check: Check) -> bool:
    """Bound size and depth, level by level, so that a hostile program cannot overflow the stack."""
    level: list[n.Block] = [check.program.body]
    total = leaving = 0
    for _ in range(MAX_NESTING + 1):
        total += sum(map(len, level))
        leaving += sum(isinstance(instr, n.Return) for block in level for instr in block)
        level = [inner for block in level for instr in block for inner in n.inner_blocks(instr)]
        if total > MAX_INSTRUCTIONS:
            check.report("V019", f"more than {MAX_INSTRUCTIONS} instructions")
            return False
        if leaving > MAX_RETURNS:
            check.report("V018", f"more than {MAX_RETURNS} returns; each nests what follows it")
            return False
        if not level:
            return True
    check.report("V018", f"blocks nested deeper than {MAX_NESTING}")
    return False
