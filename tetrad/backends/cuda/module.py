"""CUDA back end, modules: a kernel program in, the LLVM text of its entry out.

    entry(pointers, arguments, lengths, status)

A workgroup is a block, an invocation a thread. Addresses come in as global memory and are used as
generic ones: LLVM finds out which memory each access is for.
"""

from __future__ import annotations

from tetrad.backends.cuda.layout import ALIGNMENT, Layout, own_count, size_of
from tetrad.backends.cuda.rules import ThreadRules, constant_tables
from tetrad.backends.cuda.targets import TRIPLE
from tetrad.backends.llvm.emitter import Codegen, Emitted, buffer_name, operand_name
from tetrad.backends.llvm.module import size_operand
from tetrad.backends.llvm.target import Target
from tetrad.core.backend import UNSUPPORTED
from tetrad.core.errors import BackendError
from tetrad.kernel import nodes as n

ENTRY = "entry$"  # its name for LLVM; the PTX has the program's
SYNCHRONISE = "llvm.nvvm.barrier.cta.sync.aligned.all"


def emit_entry(
    layout: Layout, target: Target, check: str, proved: frozenset[n.Instr] = frozenset()
) -> str:
    """entry -> body -> exit"""
    program, rules = layout.program, ThreadRules(layout, proved)
    refuse_strange(program, rules)
    cg = Codegen(program, target, rules.table, set(), 1, check)
    with cg.child() as outer:
        thread_ids(cg, program)
        addresses(cg, layout)
        lengths(cg, layout)
        zero_scratch(cg, layout)
        with cg.child() as body:
            cg.run(program.body)
        cg.splice(body)
        cg.line("br label %exit")
        cg.label("%exit")
        cg.line("ret void")
    head = [f'target triple = "{TRIPLE}"', *shared_memory(layout), *constant_tables(rules.tables)]
    function = f"define ptx_kernel void @{ENTRY}({parameters(layout, check)}) #0 {{"
    bounds = ",".join(map(str, program.workgroup))
    tail = ["}", f'attributes #0 = {{ nounwind "nvvm.maxntid"="{bounds}" }}']
    lines = [*head, *cg.declares.values(), function, "entry:", *cg.entry, *outer.lines, *tail]
    return "\n".join(lines) + "\n"


def refuse_strange(program: n.Program, rules: ThreadRules) -> None:
    strange = {type(instr) for instr in n.walk(program.body)} - rules.table.table.keys()
    if strange:
        named = ", ".join(sorted(kind.__name__.lower() for kind in strange))
        raise BackendError(
            f"{program.name}: this back end has no code for {named}",
            code=UNSUPPORTED,
            hint='backend="cpu" has all instructions',
        )


def parameters(layout: Layout, check: str) -> str:
    """The buffers of a dispatch never overlap; those of a schedule may share memory."""
    alone = "noalias " if check == "mask" else ""
    texts = []
    for i, parameter in enumerate(layout.parameters):
        if parameter.role == "pointer" and parameter.dtype is not None:
            texts.append(f"ptr addrspace(1) {alone}align {parameter.dtype.nbytes} %p{i}")
        elif parameter.role == "status":
            texts.append(f"ptr addrspace(1) align 8 %p{i}")
        else:
            texts.append(f"i64 %p{i}")
    return ", ".join(texts)


def shared_memory(layout: Layout) -> list[str]:
    declared = [
        f"@{layout.symbols[b]} = internal addrspace(3) global "
        f"[{int(b.count or 0) * b.dtype.nbytes} x i8] poison, align {ALIGNMENT}"
        for b in layout.static
        if isinstance(b.count, int)
    ]
    if layout.dynamic:
        declared.append(
            f"@shared$dynamic = external addrspace(3) global [0 x i8], align {ALIGNMENT}"
        )
    if layout.exchange:
        size = f"[{layout.exchange} x i8]"
        declared.append(f"@shared$exchange = internal addrspace(3) global {size} poison, align 8")
    return declared


# -- ids, addresses, lengths -----------------------------------------------------------------------


def thread_ids(cg: Codegen, program: n.Program) -> None:
    """Ids of the block and of the thread along each axis, and the number of the thread in its
    block."""
    for axis, letter in enumerate("xyz"):
        group = cg.call("i32", f"llvm.nvvm.read.ptx.sreg.ctaid.{letter}")
        cg.line(f"%group.{axis} = zext i32 {group} to i64")
        own = "0"
        if program.workgroup[axis] > 1:
            thread = cg.call("i32", f"llvm.nvvm.read.ptx.sreg.tid.{letter}")
            own = cg.new(f"zext i32 {thread} to i64")
        cg.set(("local", axis), Emitted(own, 0))
    x, y, _ = program.workgroup
    ids = [cg.find(("local", axis))[0].text for axis in range(3)]
    row = cg.new(f"add i64 {ids[1]}, {cg.new(f'mul i64 {ids[2]}, {y}')}")
    linear = cg.new(f"add i64 {ids[0]}, {cg.new(f'mul i64 {row}, {x}')}")
    cg.line(f"%lane = trunc i64 {linear} to i32")


def addresses(cg: Codegen, layout: Layout) -> None:
    for i, parameter in enumerate(layout.parameters):
        if parameter.role == "pointer":
            name = operand_name("b", parameter.of)
            cg.line(f"{name} = addrspacecast ptr addrspace(1) %p{i} to ptr")
        elif parameter.role == "status":
            cg.line(f"%status = addrspacecast ptr addrspace(1) %p{i} to ptr")
        else:
            stem = "a" if parameter.role == "argument" else "n"
            cg.line(f"{operand_name(stem, parameter.of)} = add i64 %p{i}, 0")
    for b in layout.static:
        symbol = f"@{layout.symbols[b]}"
        cg.line(f"{buffer_name(b)} = addrspacecast ptr addrspace(3) {symbol} to ptr")
    for b in layout.local:
        kind = f"[{own_count(layout.program, b)} x {cg.memory_type(b.dtype)}]"
        cg.entry.append(f"  {buffer_name(b)} = alloca {kind}, align {ALIGNMENT}")
    dynamic_addresses(cg, layout)


def dynamic_addresses(cg: Codegen, layout: Layout) -> None:
    """One buffer after the other, each rounded up."""
    offset = "0"
    for b in layout.dynamic:
        place = cg.new(f"getelementptr i8, ptr addrspace(3) @shared$dynamic, i64 {offset}")
        cg.line(f"{buffer_name(b)} = addrspacecast ptr addrspace(3) {place} to ptr")
        size = cg.new(f"mul i64 {size_operand(cg, size_of(b))}, {b.dtype.nbytes}")
        above = cg.new(f"add i64 {size}, {ALIGNMENT - 1}")
        offset = cg.new(f"add i64 {offset}, {cg.new(f'and i64 {above}, {-ALIGNMENT}')}")


def lengths(cg: Codegen, layout: Layout) -> None:
    """Those that the program states; the others are parameters."""
    given = {p.of for p in layout.parameters if p.role == "length"}
    for b in layout.program.buffers:
        fixed = b.is_scratch and isinstance(b.count, int)
        if b.count is not None and b.name not in given and not fixed:
            cg.line(f"{cg.length(b)} = add i64 {size_operand(cg, b.count)}, 0")


# -- zeros -----------------------------------------------------------------------------------------


def zero_scratch(cg: Codegen, layout: Layout) -> None:
    """Zeros where the program asks for them, and for every program of a user."""
    wanted = [b for b in layout.program.buffers if b.zeroed or cg.check == "mask"]
    for b in wanted:
        if b in layout.local:
            size = own_count(layout.program, b) * b.dtype.nbytes
            operands = (("ptr", buffer_name(b)), ("i8", "0"), ("i64", str(size)), ("i1", "false"))
            cg.call("void", "llvm.memset.p0.i64", *operands)
    together = [b for b in wanted if b in layout.static or b in layout.dynamic]
    for b in together:
        zero_together(cg, b, layout.program.lanes)
    if together and layout.program.lanes > 1:
        cg.call("void", SYNCHRONISE, ("i32", "0"))


def zero_together(cg: Codegen, buffer: n.Buffer, lanes: int) -> None:
    """Each thread every lanes-th element: here -[some]-> fill -[more]-> fill;  -> done"""
    kind, slot = cg.memory_type(buffer.dtype), cg.alloca("i64")
    fill, done = cg.name("fill"), cg.name("done")
    first = cg.new("zext i32 %lane to i64")
    cg.line(f"store i64 {first}, ptr {slot}")
    some = cg.new(f"icmp ult i64 {first}, {cg.length(buffer)}")
    cg.line(f"br i1 {some}, label {fill}, label {done}")
    cg.label(fill)
    at = cg.new(f"load i64, ptr {slot}")
    place = cg.pointer(buffer, at)
    cg.line(f"store {kind} zeroinitializer, ptr {place}, align {buffer.dtype.nbytes}")
    following = cg.new(f"add i64 {at}, {lanes}")
    cg.line(f"store i64 {following}, ptr {slot}")
    more = cg.new(f"icmp ult i64 {following}, {cg.length(buffer)}")
    cg.line(f"br i1 {more}, label {fill}, label {done}")
    cg.label(done)
