"""Code generation, the module: kernel programs in, one LLVM module (text) out, a function per
program.

    void kernel(ptr args, i64 begin, i64 end, ptr scratch, ptr status)

runs workgroups begin..end-1. `args` is an array of 64-bit words in this order: address of each
storage buffer, byte offset of each scratch buffer in `scratch`, each index argument, grid extents x
and y, element count of each storage buffer, and a tag that trap codes are marked with. The caller
(the native schedule) has resolved all of them.
"""

from __future__ import annotations

from tetrad.backends.llvm.emitter import Codegen, Emitted, buffer_name, operand_name
from tetrad.backends.llvm.multi_vector import Wide
from tetrad.backends.llvm.rules import rules
from tetrad.backends.llvm.target import Target
from tetrad.core.dtypes import index
from tetrad.core.sizes import Atom, Named, Size
from tetrad.kernel import nodes as n
from tetrad.kernel.returns import without_returns
from tetrad.kernel.uniformity import varying

# lanes a workgroup may have as one vector; larger ones run in pieces, unless lanes are exchanged
MAX_VECTOR = 64
PIECE = 16
CROSS_LANE = (n.Shuffle, n.Permute, n.Broadcast, n.Vote)


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


def emit_function(
    symbol: str, program: n.Program, target: Target, check: str
) -> tuple[Codegen, str]:
    """entry -> group -> (pieces of the workgroup) -> next -[more]-> group;  -> exit"""
    program = without_returns(program)
    lanes, pieces = vector_shape(program)
    check = "mask" if program.guarded else check
    cg = Codegen(program, target, rules, varying(program), lanes, check)
    with cg.child() as outer:
        prologue(cg, program)
        with cg.child() as body:
            emit_group(cg, program, lanes, pieces)
        cg.splice(body)
    parameters = (
        "ptr noalias %args, i64 %begin, i64 %end, ptr noalias %scratch, ptr noalias %status"
    )
    lines = [
        f"define void @{symbol}({parameters}) #0 {{",
        "entry:", "  %slot.w = alloca i64", *cg.entry, *outer.lines, "}",
    ]  # fmt: skip
    return cg, "\n".join(lines)


def attributes(target: Target) -> str:
    return f"attributes #0 = {{ nounwind {target.isa.attributes(target)} }}"


def vector_shape(program: n.Program) -> tuple[int, int]:
    """(lanes of one vector, vectors of a workgroup)."""
    lanes = program.lanes
    if lanes <= MAX_VECTOR or crosses_lanes(program.body):
        return 1 << (lanes - 1).bit_length(), 1
    return PIECE, -(-lanes // PIECE)


def crosses_lanes(block: n.Block) -> bool:
    for instr in block:
        if isinstance(instr, CROSS_LANE):
            return True
        if any(crosses_lanes(b) for b in n.inner_blocks(instr)):
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
        cg.line(f"{operand_name('a', name)} = load i64, ptr {argument(cg, next(words))}")
    for name in ("%grid.0", "%grid.1"):
        cg.line(f"{name} = load i64, ptr {argument(cg, next(words))}")
    for buffer in storage:
        cg.line(f"{cg.length(buffer)} = load i64, ptr {argument(cg, next(words))}")
    tag = cg.new(f"load i64, ptr {argument(cg, next(words))}")
    cg.line(f"%tag = shl i64 {tag}, {n.TAG_SHIFT}")
    for buffer in program.buffers:
        if buffer.is_scratch and buffer.count is not None and not isinstance(buffer.count, int):
            cg.line(f"{cg.length(buffer)} = add i64 {size_operand(cg, buffer.count)}, 0")


def size_operand(cg: Codegen, size: Size) -> str:
    """A size as arithmetic on the index arguments its Dims are named after."""
    if isinstance(size, int):
        return str(size)
    total = "0"
    for monomial, factor in size.terms:
        product = str(factor)
        for atom in monomial:
            product = cg.new(f"mul i64 {product}, {atom_operand(cg, atom)}")
        total = cg.new(f"add i64 {total}, {product}")
    return total


def atom_operand(cg: Codegen, atom: Atom) -> str:
    if isinstance(atom, Named):
        return operand_name("a", atom.name)
    above = cg.new(f"add i64 {size_operand(cg, atom.size)}, {atom.divisor - 1}")
    return cg.new(f"udiv i64 {above}, {atom.divisor}")


def argument(cg: Codegen, word: int) -> str:
    return cg.new(f"getelementptr i64, ptr %args, i64 {word}")


def emit_group(cg: Codegen, program: n.Program, lanes: int, pieces: int) -> None:
    with cg.child() as loop:
        cg.label("%group")
        cg.line("%w = load i64, ptr %slot.w")
        group_ids(cg, program)
        zero_scratch(cg, program)
        emit_body(cg, program, lanes, pieces)
        following = cg.stepped("%w", 1)
        cg.line(f"store i64 {following}, ptr %slot.w")
        again = cg.new(f"icmp slt i64 {following}, %end")
        cg.line(f"br i1 {again}, label %group, label %exit")
        cg.label("%exit")
        if cg.uses_nontemporal:
            # stores around the cache are not ordered by the barrier
            cg.call("void", cg.isa.stream_fence)
        cg.line("ret void")
    cg.line("store i64 %begin, ptr %slot.w")
    some = cg.new("icmp slt i64 %begin, %end")
    cg.line(f"br i1 {some}, label %group, label %exit")
    cg.splice(loop)


def emit_body(cg: Codegen, program: n.Program, lanes: int, pieces: int) -> None:
    """One vector, with lanes beyond the workgroup masked off; or several."""
    if pieces > 1:
        wide = Wide(cg, program, lambda first: local_ids(cg, program, lanes, first))
        cg.divide = wide.block
        cg.run(program.body)
        return
    with cg.child() as scope:
        local_ids(cg, program, lanes, "0")
        if program.lanes < lanes:
            cg.mask = cg.first_lanes(program.lanes)
        cg.run(program.body)
    cg.splice(scope)


def group_ids(cg: Codegen, program: n.Program) -> None:
    """Launches of a schedule are one-dimensional unless the program asks for more; a user's grid
    may be anything."""
    if cg.check != "mask" and not uses_axis(program, "group"):
        cg.line("%group.0 = add i64 %w, 0")
        return
    cg.line("%group.yz = udiv i64 %w, %grid.0")
    cg.line("%group.0 = urem i64 %w, %grid.0")
    cg.line("%group.1 = urem i64 %group.yz, %grid.1")
    cg.line("%group.2 = udiv i64 %group.yz, %grid.1")


def uses_axis(program: n.Program, which: str) -> bool:
    """Does the program ask for an id beyond axis 0? (Otherwise the group id is the linear one.)"""
    return block_uses_axis(program.body, which)


def block_uses_axis(block: n.Block, which: str) -> bool:
    for instr in block:
        if isinstance(instr, n.Id) and instr.which == which and instr.axis > 0:
            return True
        if any(block_uses_axis(inner, which) for inner in n.inner_blocks(instr)):
            return True
    return False


def local_ids(cg: Codegen, program: n.Program, lanes: int, first: str) -> None:
    """Ids of the vector that begins at invocation `first` (a number, or an operand where the
    workgroup has several)."""
    x, y, _ = program.workgroup
    for axis in range(3):
        cg.set(("local", axis), Emitted("0", 0))
    if x == program.lanes:
        cg.set(("local", 0), Emitted(first, 1) if x > 1 else Emitted("0", 0))
        return
    if x % lanes == 0:
        cg.set(("local", 0), Emitted(cg.new(f"urem i64 {first}, {x}"), 1))
        row = cg.new(f"udiv i64 {first}, {x}")
        cg.set(("local", 1), Emitted(cg.new(f"urem i64 {row}, {y}"), 0))
        cg.set(("local", 2), Emitted(cg.new(f"udiv i64 {row}, {y}"), 0))
        return
    linear = cg.new(f"add <{lanes} x i64> {cg.broadcast(first, index)}, {cg.iota('i64')}")
    for axis, below in ((0, 1), (1, x), (2, x * y)):
        if program.workgroup[axis] > 1:
            higher = cg.new(f"udiv <{lanes} x i64> {linear}, splat (i64 {below})")
            own = cg.new(f"urem <{lanes} x i64> {higher}, splat (i64 {program.workgroup[axis]})")
            cg.set(("local", axis), Emitted(own, None))


def zero_scratch(cg: Codegen, program: n.Program) -> None:
    """Zeros where the program asks for them, and for every program of a user."""
    for buffer in program.buffers:
        if buffer.is_scratch and (buffer.zeroed or cg.check == "mask"):
            size = cg.new(f"mul i64 {cg.length(buffer)}, {buffer.dtype.nbytes}")
            operands = (("ptr", buffer_name(buffer)), ("i8", "0"), ("i64", size), ("i1", "false"))
            cg.call("void", "llvm.memset.p0.i64", *operands)
