"""Code generation, the rule of atomics: kernel node in, LLVM text out.

A scalar is one instruction. The lanes of a vector take turns, from the first active one to the
last: neighbours may mean the same element, and each wants what it held before.
"""

from __future__ import annotations

from tetrad.backends.llvm.emitter import Codegen, Emitted, EmitterRules
from tetrad.backends.llvm.flow import guarded
from tetrad.backends.llvm.memory import in_bounds
from tetrad.core.dtypes import bool_
from tetrad.kernel import nodes as n

rules = EmitterRules()

ORDERS = {"relaxed": "monotonic"}  # the others have LLVM's names
WORDS = {"exchange": "xchg"}
# Of the two orders of a compare-exchange, the one for when nothing is written.
FAILED = {"release": "monotonic", "acq_rel": "acquire"}


@rules.rule(n.Atomic)
def emit_atomic(cg: Codegen, node: n.Atomic) -> Emitted:
    inside = None if cg.check == "plain" else in_bounds(cg, node.buffer, node.at)
    if cg.is_varying(node):
        return Emitted(in_turn(cg, node, inside), None)
    operands = [cg.scalar(v) for v in operands_of(node)]
    if inside is None:
        return Emitted(change(cg, node, *operands), 0)
    kind = cg.scalar_type(node.dtype)
    slot = cg.alloca(kind)
    cg.line(f"store {kind} 0, ptr {slot}")
    with guarded(cg, inside):
        cg.line(f"store {kind} {change(cg, node, *operands)}, ptr {slot}")
    return Emitted(cg.new(f"load {kind}, ptr {slot}"), 0)


def operands_of(node: n.Atomic) -> list[n.Value]:
    return [v for v in (node.at, node.value, node.expected) if v is not None]


def change(cg: Codegen, node: n.Atomic, at: str, value: str, expected: str = "") -> str:
    """One atomic on scalars; the old element."""
    kind, order = cg.scalar_type(node.dtype), ORDERS.get(node.order, node.order)
    pointer = cg.pointer(node.buffer, at)
    if node.expected is not None:
        pair = f"{kind} {expected}, {kind} {value} {order} {FAILED.get(node.order, order)}"
        both = cg.new(f"cmpxchg ptr {pointer}, {pair}")
        return cg.new(f"extractvalue {{ {kind}, i1 }} {both}, 0")
    name = node.op.removeprefix("atomic_")
    letter = "u" if name in ("min", "max") and not node.dtype.is_signed else ""
    word = letter + WORDS.get(name, name)
    return cg.new(f"atomicrmw {word} ptr {pointer}, {kind} {value} {order}")


def in_turn(cg: Codegen, node: n.Atomic, inside: str | None) -> str:
    """here -[some lane]-> turn -[more]-> turn;  -> done

    Lanes that take no turn get 0.
    """
    lanes, vectors = turns(cg, node, inside), [(v.dtype, cg.vector(v)) for v in operands_of(node)]
    word, wide = f"i{cg.lanes}", cg.vector_type(node.dtype)
    result, left = cg.alloca(wide), cg.alloca(word)
    turn, done = cg.name("turn"), cg.name("done")
    cg.line(f"store {wide} zeroinitializer, ptr {result}")
    bits = cg.new(f"bitcast {cg.mask_type} {lanes} to {word}")
    cg.line(f"store {word} {bits}, ptr {left}")
    some = cg.new(f"icmp ne {word} {bits}, 0")
    cg.line(f"br i1 {some}, label {turn}, label {done}")
    cg.label(turn)
    now = cg.new(f"load {word}, ptr {left}")
    lane = cg.call(word, f"llvm.cttz.{word}", (word, now), ("i1", "true"))
    own = [cg.new(f"extractelement {cg.vector_type(d)} {v}, {word} {lane}") for d, v in vectors]
    before = cg.new(f"load {wide}, ptr {result}")
    old = f"{cg.scalar_type(node.dtype)} {change(cg, node, *own)}"
    made = cg.new(f"insertelement {wide} {before}, {old}, {word} {lane}")
    cg.line(f"store {wide} {made}, ptr {result}")
    rest = cg.new(f"and {word} {now}, {cg.new(f'sub {word} {now}, 1')}")
    cg.line(f"store {word} {rest}, ptr {left}")
    more = cg.new(f"icmp ne {word} {rest}, 0")
    cg.line(f"br i1 {more}, label {turn}, label {done}")
    cg.label(done)
    return cg.new(f"load {wide}, ptr {result}")


def turns(cg: Codegen, node: n.Atomic, inside: str | None) -> str:
    """The mask of the lanes that take a turn: active, their index in range."""
    if inside is None:
        return cg.mask or "splat (i1 true)"
    return cg.with_mask(inside if cg.stride(node.at) != 0 else cg.broadcast(inside, bool_))
