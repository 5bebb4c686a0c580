"""Code generation, the module: kernel programs in, one LLVM module (text) out, a function per program.

    void kernel(ptr args, i64 begin, i64 end, ptr scratch, ptr status)

runs workgroups begin..end-1. `args` is an array of 64-bit words in this order: address of each storage buffer, byte
offset of each scratch buffer in `scratch`, each index argument, grid extents x and y, element count of each storage
buffer, and a tag that trap codes are marked with. The caller (the native schedule) has resolved all of them.
"""

from __future__ import annotations

from tetrad.codegen.emitter import Codegen, Emitted, buffer_name
from tetrad.codegen.rules import rules
from tetrad.codegen.target import Target
from tetrad.core.errors import CompileError
from tetrad.kernel import nodes as n
from tetrad.kernel.uniform import varying

MAX_VECTOR = 64  # lanes a workgroup may have as one vector; larger ones without cross-lane work run in pieces
PIECE = 16
TAG_SHIFT = 16  # a trap reports tag << 16 | code
CROSS_LANE = (n.Shuffle, n.Broadcast, n.Vote, n.Barrier)


def emit_module(programs: dict[str, n.Program], target: Target, check: str = "plain") -> str:
    """LLVM text of all programs; keys are the symbols they get."""
    functions, declares, streams = [], {}, False
    for symbol, program in programs.items():
        cg, text = emit_function(symbol, program, target, check)
        functions.append(text)
        declares.update(cg.declares)
        streams |= cg.uses_nontemporal
    head = [f'target triple = "{target.triple}"', *declares.values()]
    tail = [attributes(target)] + (["!0 = !{i32 1}"] if streams else [])
    return "\n".join(head + functions + tail) + "\n"


def emit_function(symbol: str, program: n.Program, target: Target, check: str) -> tuple[Codegen, str]:
    """entry -> group -> (pieces of the workgroup) -> next -[more]-> group;  -> exit"""
    lanes, pieces = vector_shape(program)
    cg = Codegen(program, target, rules, varying(program), lanes, check)
    with cg.child() as outer:
        prologue(cg, program)
        with cg.child() as body:
            emit_group(cg, program, lanes, pieces)
        cg.splice(body)
    lines = [
        f"define void @{symbol}(ptr noalias %args, i64 %begin, i64 %end, ptr noalias %scratch, ptr noalias %status) #0 {{",
        "entry:", "  %slot.w = alloca i64", *cg.entry, *outer.lines, "}",
    ]  # fmt: skip
    return cg, "\n".join(lines)


def attributes(target: Target) -> str:
    width = target.vector_bits
    return f'attributes #0 = {{ nounwind "min-legal-vector-width"="{width}" "prefer-vector-width"="{width}" }}'


def vector_shape(program: n.Program) -> tuple[int, int]:
    """(lanes of one vector, vectors of a workgroup)."""
    lanes = program.lanes
    if lanes <= MAX_VECTOR or crosses_lanes(program.body) or any(b.is_scratch for b in program.buffers):
        return 1 << (lanes - 1).bit_length(), 1
    return PIECE, -(-lanes // PIECE)


def crosses_lanes(block: n.Block) -> bool:
    for instr in block:
        if isinstance(instr, CROSS_LANE):
            return True
        inner = [getattr(instr, name) for name in ("body", "then", "orelse") if hasattr(instr, name)]
        if any(crosses_lanes(b) for b in inner):
            return True
    return False


def prologue(cg: Codegen, program: n.Program) -> None:
    """Fetch addresses, offsets, arguments and counts from the argument words."""
    words = iter(range(1 << 20))
    storage = [b for b in program.buffers if not b.is_scratch]
    for buffer in storage:
        cg.line(f"{buffer_name(buffer)} = load ptr, ptr {argument(cg, next(words))}")
    for buffer in program.buffers:
        if buffer.is_scratch:
            offset = cg.new(f"load i64, ptr {argument(cg, next(words))}")
            cg.line(f"{buffer_name(buffer)} = getelementptr i8, ptr %scratch, i64 {offset}")
    for name in program.args:
        cg.line(f"%a.{name} = load i64, ptr {argument(cg, next(words))}")
    for name in ("%grid.0", "%grid.1"):
        cg.line(f"{name} = load i64, ptr {argument(cg, next(words))}")
    for buffer in storage:
        cg.line(f"%n.{buffer.name} = load i64, ptr {argument(cg, next(words))}")
    tag = cg.new(f"load i64, ptr {argument(cg, next(words))}")
    cg.line(f"%tag = shl i64 {tag}, {TAG_SHIFT}")


def argument(cg: Codegen, word: int) -> str:
    return cg.new(f"getelementptr i64, ptr %args, i64 {word}")


def emit_group(cg: Codegen, program: n.Program, lanes: int, pieces: int) -> None:
    with cg.child() as loop:
        cg.label("%group")
        cg.line("%w = load i64, ptr %slot.w")
        group_ids(cg, program)
        zero_scratch(cg, program)
        for piece in range(pieces):
            emit_piece(cg, program, lanes, piece)
        following = cg.new("add nsw i64 %w, 1")
        cg.line(f"store i64 {following}, ptr %slot.w")
        again = cg.new(f"icmp slt i64 {following}, %end")
        cg.line(f"br i1 {again}, label %group, label %exit")
        cg.label("%exit")
        cg.line("ret void")
    cg.line("store i64 %begin, ptr %slot.w")
    some = cg.new("icmp slt i64 %begin, %end")
    cg.line(f"br i1 {some}, label %group, label %exit")
    cg.splice(loop)


def emit_piece(cg: Codegen, program: n.Program, lanes: int, piece: int) -> None:
    """The body for lanes piece*L .. piece*L+L-1; lanes beyond the workgroup are masked off."""
    with cg.child() as scope:
        local_ids(cg, program, lanes, piece)
        left = program.lanes - piece * lanes
        if left < lanes:
            cg.mask = "<" + ", ".join(f"i1 {'true' if i < left else 'false'}" for i in range(lanes)) + ">"
        cg.run(program.body)
    cg.splice(scope)


def group_ids(cg: Codegen, program: n.Program) -> None:
    cg.line("%group.yz = udiv i64 %w, %grid.0" if uses_axis(program, "group") else "%group.yz = add i64 0, 0")
    if not uses_axis(program, "group"):
        cg.line("%group.0 = add i64 %w, 0")
        return
    cg.line("%group.0 = urem i64 %w, %grid.0")
    cg.line("%group.1 = urem i64 %group.yz, %grid.1")
    cg.line("%group.2 = udiv i64 %group.yz, %grid.1")


def uses_axis(program: n.Program, which: str) -> bool:
    """Does the program ask for an id beyond axis 0? (Otherwise the group id is the linear one.)"""

    def walk(block: n.Block) -> bool:
        for instr in block:
            if isinstance(instr, n.Id) and instr.which == which and instr.axis > 0:
                return True
            for name in ("body", "then", "orelse"):
                if walk(getattr(instr, name, ())):
                    return True
        return False

    return walk(program.body)


def local_ids(cg: Codegen, program: n.Program, lanes: int, piece: int) -> None:
    x, y, _ = program.workgroup
    first = piece * lanes
    if x == program.lanes > 1:
        cg.set(("local", 0), Emitted(str(first), 1))
        cg.set(("local", 1), Emitted("0", 0))
        cg.set(("local", 2), Emitted("0", 0))
        return
    ids = [(i % x, (i // x) % y, i // (x * y)) for i in range(first, first + lanes)]
    for axis in range(3):
        if program.workgroup[axis] == 1:
            cg.set(("local", axis), Emitted("0", 0))
            continue
        cg.set(("local", axis), Emitted("<" + ", ".join(f"i64 {i[axis]}" for i in ids) + ">", None))


def zero_scratch(cg: Codegen, program: n.Program) -> None:
    for buffer in program.buffers:
        if buffer.is_scratch and buffer.zeroed:
            if not isinstance(buffer.count, int):
                raise CompileError(f"{program.name}: zeroed scratch {buffer.name} needs a fixed count")
            size = buffer.count * buffer.dtype.nbytes
            operands = (("ptr", buffer_name(buffer)), ("i8", "0"), ("i64", str(size)), ("i1", "false"))
            cg.call("void", "llvm.memset.p0.i64", *operands)
