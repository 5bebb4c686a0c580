"""Code generation, rules of memory: loads, stores and prefetches, by how an index changes from lane
to lane.

Kernel node in, LLVM text out. Stride 0 is one access for all lanes, 1 a vector, anything else goes
lane by lane. Under a mask inactive lanes never touch memory; nor does any lane outside its buffer,
unless lowering has proved its accesses.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

from tetrad.backends.llvm.emitter import Codegen, Emitted, EmitterRules, form
from tetrad.backends.llvm.flow import guarded, trap_if
from tetrad.core.dtypes import DType, bool_, index
from tetrad.kernel import nodes as n

rules = EmitterRules()

LINE = 64  # bytes of a cache line
# code of a bounds check of the program's first buffer, counting up; other traps are below
BOUNDS_TRAP = 0x8000


@rules.rule(n.Load)
def emit_load(cg: Codegen, node: n.Load) -> Emitted:
    if cg.check == "plain":
        return load(cg, node)
    inside = in_bounds(cg, node.buffer, node.at)
    if cg.stride(node.at) != 0:
        with cg.narrowed(inside):
            return load(cg, node)
    varying = cg.is_varying(node)
    kind = cg.type(node.dtype, varying)
    result = cg.alloca(kind)
    cg.line(f"store {kind} zeroinitializer, ptr {result}")
    with guarded(cg, inside):
        cg.line(f"store {kind} {load(cg, node).text}, ptr {result}")
    return Emitted(cg.new(f"load {kind}, ptr {result}"), form(varying))


def load(cg: Codegen, node: n.Load) -> Emitted:
    """By the stride of the index: one element for all lanes, a vector, every second element, or a
    gather."""
    stride = cg.stride(node.at)
    dtype, kind = node.dtype, cg.memory_type(node.dtype)
    if stride == 0:
        raw = cg.new(
            f"load {kind}, ptr {cg.pointer(node.buffer, cg.scalar(node.at))}, align {dtype.nbytes}"
        )
        return varied(cg, Emitted(from_memory(cg, raw, dtype, False), 0), node)
    wide = f"<{cg.lanes} x {kind}>"
    if stride == 1:
        pointer = cg.pointer(node.buffer, cg.scalar(node.at))
        return Emitted(
            from_memory(cg, load_neighbours(cg, wide, pointer, dtype), dtype, True), None
        )
    pointers = (
        cg.pointers(node.buffer, cg.vector(node.at))
        if stride is None
        else pointers_apart(cg, node, stride)
    )
    name = f"llvm.masked.gather.{cg.suffix(wide)}.v{cg.lanes}p0"
    gathered = partial(masked_load, cg, name, wide, f"<{cg.lanes} x ptr>", pointers, dtype)
    is_plain = stride == 2 and cg.lanes > 1
    raw = (
        if_all_are_there(cg, wide, partial(every_second, cg, node, wide), gathered)
        if is_plain
        else gathered()
    )
    return Emitted(from_memory(cg, raw, dtype, True), None)


def pointers_apart(cg: Codegen, node: n.Load, stride: int) -> str:
    """To elements a constant number apart: from one scalar address, where LLVM would make sixteen
    in vectors."""
    kind, first = cg.memory_type(node.dtype), cg.pointer(node.buffer, cg.scalar(node.at))
    offsets = ", ".join(f"i64 {stride * lane}" for lane in range(cg.lanes))
    return cg.new(f"getelementptr {kind}, ptr {first}, <{cg.lanes} x i64> <{offsets}>")


def load_neighbours(cg: Codegen, wide: str, pointer: str, dtype: DType) -> str:
    """One element for each lane."""
    name, plain = (
        f"llvm.masked.load.{cg.suffix(wide)}.p0",
        f"load {wide}, ptr {pointer}, align {dtype.nbytes}",
    )
    return if_all_are_there(
        cg, wide, lambda: cg.new(plain), lambda: masked_load(cg, name, wide, "ptr", pointer, dtype)
    )


def if_all_are_there(
    cg: Codegen, wide: str, plain: Callable[[], str], masked: Callable[[], str]
) -> str:
    """A load; under a mask that is mostly full, as if there were none where it is."""
    if cg.mask is None:
        return plain()
    if cg.mask not in cg.full:
        return masked()
    slot = cg.alloca(wide)
    for _ in either_way(cg):
        cg.line(f"store {wide} {plain() if cg.mask is None else masked()}, ptr {slot}")
    return cg.new(f"load {wide}, ptr {slot}")


def either_way(cg: Codegen) -> Iterator[None]:
    """Twice: without a mask, for when all lanes are there, and with it.

    here -[full]-> all -> done;  here -> some -> done

    Nothing that is shared later may be written between.
    """
    mask, is_full = cg.mask, cg.full[cg.mask or ""]
    everyone, some, done = (cg.name(stem) for stem in ("all", "some", "done"))
    cg.line(f"br i1 {is_full}, label {everyone}, label {some}")
    for label, cg.mask in ((everyone, None), (some, mask)):
        cg.label(label)
        yield
        cg.line(f"br label {done}")
    cg.label(done)


def every_second(cg: Codegen, node: n.Load, wide: str) -> str:
    """Two plain loads, from the first element to the last that is wanted and not beyond, and a
    choice from both."""
    lanes, first = cg.lanes, cg.scalar(node.at)
    starts = first, cg.new(f"add nsw i64 {first}, {lanes - 1}")
    halves = [
        cg.new(f"load {wide}, ptr {cg.pointer(node.buffer, at)}, align {node.dtype.nbytes}")
        for at in starts
    ]
    # lane j of the second is lanes - 1 + j
    chosen = (2 * i if 2 * i < lanes else 2 * i + 1 for i in range(lanes))
    picked = ", ".join(f"i32 {i}" for i in chosen)
    return cg.new(
        f"shufflevector {wide} {halves[0]}, {wide} {halves[1]}, <{lanes} x i32> <{picked}>"
    )


def varied(cg: Codegen, emitted: Emitted, node: n.Value) -> Emitted:
    """A scalar result as a vector when the analysis calls the value varying (a uniform address of
    written memory)."""
    if not cg.is_varying(node):
        return emitted
    return Emitted(cg.broadcast(emitted.text, node.dtype), None)


def masked_load(
    cg: Codegen, name: str, wide: str, pointer_type: str, pointer: str, dtype: DType
) -> str:
    mask = cg.mask or "splat (i1 true)"
    operands = (
        (pointer_type, pointer),
        ("i32", str(dtype.nbytes)),
        (cg.mask_type, mask),
        (wide, "zeroinitializer"),
    )
    return cg.call(wide, name, *operands)


@rules.rule(n.Store)
def emit_store(cg: Codegen, node: n.Store) -> None:
    if cg.check == "plain":
        store(cg, node)
        return
    inside = in_bounds(cg, node.buffer, node.at)
    if cg.stride(node.at) != 0:
        with cg.narrowed(inside):
            store(cg, node)
        return
    with guarded(cg, inside):
        store(cg, node)


def in_bounds(cg: Codegen, buffer: n.Buffer, at: n.Value) -> str:
    """The lanes (or, for a uniform index, the scalar condition) whose index lies inside the buffer.

    In "trap" mode an active lane outside stops the launch with a code that names the buffer, and
    the index.
    """
    varying = cg.stride(at) != 0
    position = cg.operand(at, varying)
    bound = cg.broadcast(cg.length(buffer), index) if varying else cg.length(buffer)
    inside = cg.new(f"icmp ult {cg.type(index, varying)} {position}, {bound}")
    if cg.check == "trap":
        outside = cg.new(
            f"xor {cg.type(bool_, varying)} {inside}, {cg.constant(-1, bool_, varying)}"
        )
        trap_if(cg, outside, position, BOUNDS_TRAP + cg.program.buffers.index(buffer), varying)
    return inside


def store(cg: Codegen, node: n.Store) -> None:
    """By the stride of the index: once, a vector, every second element, or a scatter."""
    stride, dtype = cg.stride(node.at), node.value.dtype
    if stride == 0:
        store_once(cg, node)
        return
    value = to_memory(cg, cg.vector(node.value), dtype, True)
    wide = f"<{cg.lanes} x {cg.memory_type(dtype)}>"
    if stride == 1:
        pointer = cg.pointer(node.buffer, cg.scalar(node.at))
        for _ in either_way(cg) if cg.mask in cg.full else (None,):
            store_neighbours(cg, wide, value, pointer, node)
        return
    if stride == 2 and (cg.mask is None or cg.mask in cg.full):
        first, pointers = (
            cg.pointer(node.buffer, cg.scalar(node.at)),
            cg.pointers(node.buffer, cg.vector(node.at)),
        )
        for _ in either_way(cg) if cg.mask is not None else (None,):
            if cg.mask is None:
                store_every_second(cg, first, value, wide, dtype)
            else:
                scatter(cg, pointers, value, wide, dtype)
        return
    scatter(cg, cg.pointers(node.buffer, cg.vector(node.at)), value, wide, dtype)


def scatter(cg: Codegen, pointers: str, value: str, wide: str, dtype: DType) -> None:
    align, mask = ("i32", str(dtype.nbytes)), (cg.mask_type, cg.mask or "splat (i1 true)")
    to = (f"<{cg.lanes} x ptr>", pointers)
    cg.call(
        "void",
        f"llvm.masked.scatter.{cg.suffix(wide)}.v{cg.lanes}p0",
        (wide, value),
        to,
        align,
        mask,
    )


def store_neighbours(cg: Codegen, wide: str, value: str, pointer: str, node: n.Store) -> None:
    dtype = node.value.dtype
    if cg.mask is not None:
        align, mask = ("i32", str(dtype.nbytes)), (cg.mask_type, unforeseen(cg, cg.mask, dtype))
        cg.call(
            "void",
            f"llvm.masked.store.{cg.suffix(wide)}.p0",
            (wide, value),
            ("ptr", pointer),
            align,
            mask,
        )
        return
    plain = f"store {wide} {value}, ptr {pointer}, align {dtype.nbytes}"
    if node.hint == "stream" and cg.isa.stream_fence and cg.lanes * dtype.nbytes % LINE == 0:
        store_around(cg, plain, f"store {wide} {value}, ptr {pointer}, align {LINE}", pointer)
    else:
        cg.line(plain)


def unforeseen(cg: Codegen, mask: str, dtype: DType) -> str:
    """The mask of a store. LLVM must not know its lanes where narrowing and storing is one
    instruction: with one lane it writes an integer as wide as that was before, over what lies
    behind (tests/backends/llvm/test_masks.py)."""
    was_in_a_register = 2 * dtype.nbytes * 8 * cg.lanes <= cg.target.vector_bits
    if not (
        cg.target.narrows_in_stores and was_in_a_register and cg.memory_type(dtype).startswith("i")
    ):
        return mask
    return cg.new(f"and {cg.mask_type} {mask}, {cg.every_lane()}")


def store_every_second(cg: Codegen, pointer: str, value: str, wide: str, dtype: DType) -> None:
    """Lane by lane at fixed distances: a scatter would make every address in a register of its
    own."""
    kind = cg.memory_type(dtype)
    for lane in range(cg.lanes):
        element = cg.new(f"extractelement {wide} {value}, i64 {lane}")
        place = cg.new(f"getelementptr {kind}, ptr {pointer}, i64 {2 * lane}")
        cg.line(f"store {kind} {element}, ptr {place}, align {dtype.nbytes}")


def store_around(cg: Codegen, plain: str, aligned: str, pointer: str) -> None:
    """Whole cache lines go to memory without being read first; only possible at a line's address.

    here -[aligned]-> around -> done;  -> through -> done
    """
    cg.uses_nontemporal = True
    around, through, done = (cg.name(stem) for stem in ("around", "through", "done"))
    rest = cg.new(f"and i64 {cg.new(f'ptrtoint ptr {pointer} to i64')}, {LINE - 1}")
    cg.line(f"br i1 {cg.new(f'icmp eq i64 {rest}, 0')}, label {around}, label {through}")
    cg.label(around)
    cg.line(f"{aligned}, !nontemporal !0")
    cg.line(f"br label {done}")
    cg.label(through)
    cg.line(plain)
    cg.line(f"br label {done}")
    cg.label(done)


def store_once(cg: Codegen, node: n.Store) -> None:
    """A uniform address is written once: by lane 0, or under a mask if any lane is active."""
    dtype = node.value.dtype
    with guarded(cg, None if cg.mask is None else cg.any_lane(cg.mask)):
        value = cg.vector(node.value) if cg.is_varying(node.value) else cg.scalar(node.value)
        if cg.is_varying(node.value):
            value = cg.new(f"extractelement {cg.vector_type(dtype)} {value}, i64 0")
        raw = to_memory(cg, value, dtype, False)
        pointer = cg.pointer(node.buffer, cg.scalar(node.at))
        cg.line(f"store {cg.memory_type(dtype)} {raw}, ptr {pointer}, align {dtype.nbytes}")


def from_memory(cg: Codegen, raw: str, dtype: DType, varying: bool) -> str:
    if dtype.short_name != "bool":
        return raw
    kind = f"<{cg.lanes} x i8>" if varying else "i8"
    return cg.new(f"icmp ne {kind} {raw}, {'zeroinitializer' if varying else '0'}")


def to_memory(cg: Codegen, value: str, dtype: DType, varying: bool) -> str:
    if dtype.short_name != "bool":
        return value
    kind, memory = cg.type(dtype, varying), f"<{cg.lanes} x i8>" if varying else "i8"
    return cg.new(f"zext {kind} {value} to {memory}")


@rules.rule(n.Prefetch)
def emit_prefetch(cg: Codegen, node: n.Prefetch) -> None:
    """One line is fetched, that of lane 0: neighbours are mostly in it, and a wrong address does no
    harm."""
    if cg.stride(node.at) is None:
        at = cg.new(f"extractelement <{cg.lanes} x i64> {cg.vector(node.at)}, i64 0")
    else:
        at = cg.scalar(node.at)
    pointer = cg.pointer(node.buffer, at)
    cg.call("void", "llvm.prefetch.p0", ("ptr", pointer), ("i32", "0"), ("i32", "2"), ("i32", "1"))
