"""The simulator's instructions: what each of them computes, and memory.

Meanings are those of the PTX ISA manual; section names are in the comments. Registers hold bits;
an instruction says how it takes them.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from tetrad.backends.cuda.parse import PtxInstruction, PtxModule
from tetrad.kernel.math.fma import fma

if TYPE_CHECKING:
    from tests.backends.cuda.simulator import Machine

Array = np.ndarray[Any, Any]
GLOBAL = 1 << 36  # where addresses of buffers begin
GAP = 256  # bytes between buffers that belong to nobody
TYPE = re.compile(r"([busf])(8|16|32|64)")


# -- memory ----------------------------------------------------------------------------------------


class Memory:
    """The spaces of a launch. Every byte of global memory knows whether it belongs to a buffer."""

    def __init__(
        self, module: PtxModule, blocks: int, threads: int, block: Array, dynamic: int
    ) -> None:
        self.block = block
        self.symbols: dict[str, int] = {}
        sizes = {"shared": 0, "local": 0, "const": 0}
        content = b""
        for name, array in sorted(module.arrays.items(), key=lambda item: item[1].size == 0):
            start = -(-sizes[array.space] // 16) * 16
            self.symbols[name] = start
            size = dynamic if array.space == "shared" and not array.size else array.size
            sizes[array.space] = start + size
            if array.space == "const":
                content = content.ljust(start, b"\0") + array.content
        self.shared = np.full((blocks, sizes["shared"]), 0xA5, np.uint8)
        self.local = np.full((threads, sizes["local"]), 0xA5, np.uint8)
        self.const = np.frombuffer(content, np.uint8)
        self.globals = np.full(GAP, 0x5C, np.uint8)
        self.owned = np.zeros(GAP, np.bool_)

    def allocate(self, array: Array) -> int:
        place, data = len(self.globals), np.ascontiguousarray(array).view(np.uint8).ravel()
        room = -(-len(data) // GAP) * GAP + GAP
        held, owned = np.full(room, 0x5C, np.uint8), np.zeros(room, np.bool_)
        held[: len(data)], owned[: len(data)] = data, True
        self.globals = np.concatenate([self.globals, held])
        self.owned = np.concatenate([self.owned, owned])
        return GLOBAL + place

    def content(self, address: int, nbytes: int) -> Array:
        return self.globals[address - GLOBAL :][:nbytes].copy()

    def bytes_at(self, space: str, at: Array, size: int, who: Array) -> tuple[Array, Any]:
        """The array of a space and where in it the bytes of each thread lie."""
        offsets = (at - np.uint64(GLOBAL) if space == "global" else at).astype(np.int64)
        assert not (offsets % size).any(), f"{space} memory: an address is not aligned to {size}"
        places = offsets[:, None] + np.arange(size)
        if space == "global":
            inside = (offsets >= 0) & (offsets + size <= len(self.globals))
            assert inside.all() and self.owned[places].all(), "global memory: outside all buffers"
            return self.globals, places
        held = {"shared": self.shared, "local": self.local, "const": self.const[None]}[space]
        assert ((offsets >= 0) & (offsets + size <= held.shape[1])).all(), f"outside {space} memory"
        row = {"shared": self.block[who], "local": who, "const": np.zeros_like(who)}[space]
        return held, (row[:, None], places)


def space_of(instr: PtxInstruction) -> str:
    return next(word for word in instr.name if word in ("global", "shared", "local", "const"))


def address(machine: Machine, operand: str, who: Array) -> Array:
    base, _, offset = operand[1:-1].partition("+")
    return machine.read(base, 64, who) + np.uint64(int(offset or 0) & (1 << 64) - 1)


def registers_of(operand: str) -> list[str]:
    return [part.strip() for part in operand.strip("{}").split(",")]


def load(machine: Machine, instr: PtxInstruction, who: Array) -> None:
    size = int(instr.name[-1][1:]) // 8
    if "param" in instr.name:
        given = machine.params[instr.operands[1][1:-1]] & (1 << 64) - 1
        machine.write(instr.operands[0], np.full(len(who), given, np.uint64), who)
        return
    at = address(machine, instr.operands[1], who)
    for i, goal in enumerate(registers_of(instr.operands[0])):
        held, places = machine.memory.bytes_at(space_of(instr), at + np.uint64(i * size), size, who)
        raw = np.ascontiguousarray(held[places]).view(f"u{size}")[:, 0]
        signed = instr.name[-1].startswith("s")
        value = raw.view(f"i{size}").astype(np.int64).view(np.uint64) if signed else raw
        machine.write(goal, value, who)


def store(machine: Machine, instr: PtxInstruction, who: Array) -> None:
    size = int(instr.name[-1][1:]) // 8
    at = address(machine, instr.operands[0], who)
    for i, source in enumerate(registers_of(instr.operands[1])):
        held, places = machine.memory.bytes_at(space_of(instr), at + np.uint64(i * size), size, who)
        held[places] = machine.read(source, 8 * size, who)[:, None].view(np.uint8)


ATOMIC: dict[str, Callable[..., Any]] = {
    "add": lambda old, x: old + x, "min": min, "max": max, "and": lambda old, x: old & x,
    "or": lambda old, x: old | x, "xor": lambda old, x: old ^ x, "exch": lambda old, x: x,
    "cas": lambda old, x, y: y if old == x else old,
}  # fmt: skip


def atomic(machine: Machine, instr: PtxInstruction, who: Array) -> None:
    """One thread after the other."""
    letter, bits = instr.name[-1][0], int(instr.name[-1][1:])
    kind = f"{'i' if letter == 's' else 'u'}{bits // 8}"
    change = next(f for word, f in ATOMIC.items() if word in instr.name)
    for thread in who:
        one = np.array([thread])
        at = address(machine, instr.operands[1], one)
        held, places = machine.memory.bytes_at(space_of(instr), at, bits // 8, one)
        old = np.ascontiguousarray(held[places]).view(kind)[0, 0]
        given = [machine.read(x, bits, one).view(kind)[0] for x in instr.operands[2:]]
        new = int(change(int(old), *map(int, given))) & (1 << bits) - 1
        held[places] = np.array([[new]], f"u{bits // 8}").view(np.uint8)
        machine.write(instr.operands[0], np.array([old]).view(f"u{bits // 8}"), one)


# -- values ----------------------------------------------------------------------------------------


def typed(machine: Machine, operand: str, kind: str, who: Array) -> Array:
    """The operand as a NumPy array of the type of an instruction."""
    if kind == "pred":
        return machine.read(operand, 1, who)
    letter, bits = kind[0], int(kind[1:])
    raw = machine.read(operand, bits, who)
    return raw.view({"b": "u", "u": "u", "s": "i", "f": "f"}[letter] + str(bits // 8))


def bits_of(value: Array) -> Array:
    return value if value.dtype == np.bool_ else value.view(f"u{value.itemsize}")


def divide(a: Array, b: Array) -> Array:
    """Truncating; by zero: all ones, as devices do, of which the manual says nothing."""
    safe = np.where(b == 0, 1, b).astype(b.dtype)
    quotient = np.abs(a.astype(object)) // np.abs(safe.astype(object))
    signed = np.where((a < 0) != (safe < 0), -quotient, quotient)
    return np.where(b == 0, wrap(-1, a.dtype), wrapped(signed, a.dtype))


def remainder(a: Array, b: Array) -> Array:
    safe = np.where(b == 0, 1, b).astype(b.dtype)
    rest = np.abs(a.astype(object)) % np.abs(safe.astype(object))
    return wrapped(np.where(a < 0, -rest, rest), a.dtype)


def wrap(value: int, dtype: np.dtype) -> Any:
    return np.array([value & (1 << 8 * dtype.itemsize) - 1], f"u{dtype.itemsize}").view(dtype)[0]


def wrapped(values: Array, dtype: np.dtype) -> Array:
    mask = (1 << 8 * dtype.itemsize) - 1
    return np.array([int(v) & mask for v in values], f"u{dtype.itemsize}").view(dtype)


def extremum(pick: Callable[..., Array], is_min: bool, propagates: bool) -> Callable[..., Array]:
    """min and max of floats: the other one where one is NaN, unless .NaN; -0 < +0."""

    def f(a: Array, b: Array) -> Array:
        if a.dtype.kind != "f":
            return pick(a, b)
        zeros = (a == 0) & (b == 0)
        negative = (np.signbit(a) | np.signbit(b)) if is_min else (np.signbit(a) & np.signbit(b))
        signed = np.where(negative, -0.0, 0.0).astype(a.dtype)
        found = np.where(zeros, signed, pick(a, b))
        if propagates:
            return np.where(np.isnan(a) | np.isnan(b), np.array(np.nan, a.dtype), found)
        return np.where(np.isnan(a), b, np.where(np.isnan(b), a, found))

    return f


def by_float(real: Callable[[Array, Array], Array], whole: Callable[[Array, Array], Array]) -> Any:
    return lambda a, b: real(a, b) if a.dtype.kind == "f" else whole(a, b)


BINARY: dict[str, Callable[..., Array]] = {
    "add": np.add, "sub": np.subtract, "and": np.bitwise_and, "or": np.bitwise_or,
    "xor": np.bitwise_xor, "div": by_float(np.divide, divide), "rem": remainder,
    # Floating Point Instructions: copysign copies the sign of the first into the second
    "copysign": lambda a, b: np.copysign(b, a),
}  # fmt: skip
UNARY: dict[str, Callable[..., Array]] = {
    "abs": np.abs, "neg": np.negative, "sqrt": np.sqrt, "mov": lambda x: x,
    "not": np.invert, "rcp": np.reciprocal,
}  # fmt: skip


def binary(machine: Machine, instr: PtxInstruction, who: Array) -> None:
    a, b = (typed(machine, x, instr.name[-1], who) for x in instr.operands[1:])
    machine.write(instr.operands[0], bits_of(BINARY[instr.name[0]](a, b)), who)


def lesser_or_greater(machine: Machine, instr: PtxInstruction, who: Array) -> None:
    is_min = instr.name[0] == "min"
    f = extremum(np.fmin if is_min else np.fmax, is_min, "NaN" in instr.name)
    a, b = (typed(machine, x, instr.name[-1], who) for x in instr.operands[1:])
    machine.write(instr.operands[0], bits_of(f(a, b)), who)


def unary(machine: Machine, instr: PtxInstruction, who: Array) -> None:
    goal, source = instr.operands
    if source.startswith("{"):
        parts = [machine.read(x, 32, who).astype(np.uint64) for x in registers_of(source)]
        machine.write(goal, parts[0] | parts[1] << np.uint64(32), who)
    elif goal.startswith("{"):
        low, high = registers_of(goal)
        whole, half = (
            machine.read(source, int(instr.name[-1][1:]), who),
            int(instr.name[-1][1:]) // 2,
        )
        machine.write(low, whole & whole.dtype.type((1 << half) - 1), who)
        machine.write(high, whole >> whole.dtype.type(half), who)
    else:
        x = typed(machine, source, instr.name[-1], who)
        machine.write(goal, bits_of(UNARY[instr.name[0]](x)), who)


def multiply(machine: Machine, instr: PtxInstruction, who: Array) -> None:
    kind = instr.name[-1]
    a, b = (typed(machine, x, kind, who) for x in instr.operands[1:3])
    if a.dtype.kind == "f":
        machine.write(instr.operands[0], bits_of(a * b), who)
        return
    exact, bits = a.astype(object) * b.astype(object), int(kind[1:])
    if "hi" in instr.name:
        exact = exact >> bits
    goal = np.dtype(f"u{bits // (4 if 'wide' in instr.name else 8)}")
    result = wrapped(exact, goal)
    if instr.name[0] == "mad":
        result = result + machine.read(instr.operands[3], 8 * goal.itemsize, who)
    machine.write(instr.operands[0], result, who)


def fused(machine: Machine, instr: PtxInstruction, who: Array) -> None:
    a, b, c = (typed(machine, x, instr.name[-1], who) for x in instr.operands[1:])
    machine.write(instr.operands[0], bits_of(np.asarray(fma(a, b, c))), who)


def shift(machine: Machine, instr: PtxInstruction, who: Array) -> None:
    """Logic and Shift Instructions: counts above the width are as if they were the width."""
    x = typed(machine, instr.operands[1], instr.name[-1], who)
    count, bits = machine.read(instr.operands[2], 32, who), 8 * x.itemsize
    most = np.minimum(count, bits - 1).astype(x.dtype)
    if instr.name[0] == "shl":
        result = np.where(count < bits, np.left_shift(x, most), 0).astype(x.dtype)
    else:
        far = np.where(x < 0, -1, 0).astype(x.dtype) if x.dtype.kind == "i" else 0
        result = np.where(count < bits, np.right_shift(x, most), far).astype(x.dtype)
    machine.write(instr.operands[0], bits_of(result), who)


def field_extract(machine: Machine, instr: PtxInstruction, who: Array) -> None:
    """bfe of a field inside the word; a signed one repeats its highest bit."""
    x, start, length = (machine.read(o, 32, who).astype(np.int64) for o in instr.operands[1:])
    assert instr.name[-1] in ("u32", "s32") and (start + length <= 32).all() and length.all()
    field = (x >> start) & ((np.int64(1) << length) - 1)
    if instr.name[-1] == "s32":
        field -= (field >> (length - 1)) << length
    machine.write(instr.operands[0], field.astype(np.uint32), who)


def count_bits(machine: Machine, instr: PtxInstruction, who: Array) -> None:
    bits = int(instr.name[-1][1:])
    x = machine.read(instr.operands[1], bits, who)
    count = [
        bits - int(v).bit_length() if instr.name[0] == "clz" else int(v).bit_count() for v in x
    ]
    machine.write(instr.operands[0], np.array(count, np.uint32), who)


COMPARE: dict[str, Callable[..., Array]] = {
    "eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal, "gt": np.greater,
    "ge": np.greater_equal,
}  # fmt: skip


def compare(machine: Machine, instr: PtxInstruction, who: Array) -> None:
    """Comparison and Selection: with NaN the plain ones are false, those with a u are true."""
    a, b = (typed(machine, x, instr.name[-1], who) for x in instr.operands[1:])
    word, nan = instr.name[1], np.zeros(len(who), bool)
    if a.dtype.kind == "f":
        nan = np.isnan(a) | np.isnan(b)
    if word in ("nan", "num"):
        found = nan if word == "nan" else ~nan
    else:
        either = word not in COMPARE
        found = np.where(nan, either, COMPARE[word[:2]](a, b))
    machine.write(instr.operands[0], found, who)


def select(machine: Machine, instr: PtxInstruction, who: Array) -> None:
    bits, (goal, a, b, cond) = int(instr.name[-1][1:]), instr.operands
    chosen = machine.read(cond, 1, who)
    machine.write(
        goal, np.where(chosen, machine.read(a, bits, who), machine.read(b, bits, who)), who
    )


ROUND = {"rni": np.rint, "rzi": np.trunc, "rmi": np.floor, "rpi": np.ceil}


def convert(machine: Machine, instr: PtxInstruction, who: Array) -> None:
    goal_kind, source_kind = (w for w in instr.name if TYPE.fullmatch(w))
    x = typed(machine, instr.operands[1], source_kind, who)
    mode = next((w for w in instr.name if w in ROUND), None)
    if goal_kind[0] == "f":
        x = ROUND[mode](x) if mode else x
        result = bits_of(x.astype(f"f{int(goal_kind[1:]) // 8}"))
    elif source_kind[0] == "f":
        assert mode == "rzi"
        result = to_integer(x, goal_kind, source_kind)
    else:
        result = x.astype(np.int64 if x.dtype.kind == "i" else np.uint64).view(np.uint64)
        result = result & np.uint64((1 << int(goal_kind[1:])) - 1)
        if goal_kind[0] == "s":
            result = result.astype(f"u{int(goal_kind[1:]) // 8}").view(
                f"i{int(goal_kind[1:]) // 8}"
            )
            result = result.astype(np.int64).view(np.uint64)
    machine.write(instr.operands[0], result, who)


def to_integer(x: Array, goal: str, source: str) -> Array:
    """Data Movement and Conversion, cvt: clamped to the range; NaN is 0, but the number with the
    highest bit alone where one side has 64 bits."""
    bits = int(goal[1:])
    low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if goal[0] == "s" else (0, (1 << bits) - 1)
    odd = 1 << bits - 1 if source == "f64" or bits == 64 else 0
    found = [
        odd if v != v else low if v <= low else high if v >= high else int(v) for v in x.tolist()
    ]
    return np.array([v & (1 << bits) - 1 for v in found], f"u{bits // 8}")


def dot_bytes(machine: Machine, instr: PtxInstruction, who: Array) -> None:
    signs = [f"{'i' if word[0] == 's' else 'u'}1" for word in instr.name[1:3]]
    words = (machine.read(x, 32, who)[:, None] for x in instr.operands[1:3])
    a, b = (w.view(kind).astype(np.int64) for w, kind in zip(words, signs, strict=True))
    acc = machine.read(instr.operands[3], 32, who).astype(np.int64)
    machine.write(instr.operands[0], ((a * b).sum(axis=1) + acc).astype(np.uint32), who)


def permute(machine: Machine, instr: PtxInstruction, who: Array) -> None:
    """prmt without a mode: byte i of the result is the one that nibble i names, of eight."""
    a, b, chosen = (machine.read(x, 32, who).astype(np.uint64) for x in instr.operands[1:])
    both = a | b << np.uint64(32)
    result = np.zeros(len(who), np.uint64)
    for i in range(4):
        nibble = chosen >> np.uint64(4 * i) & np.uint64(15)
        byte = both >> (nibble & np.uint64(7)) * np.uint64(8) & np.uint64(255)
        sign = np.where(byte >> np.uint64(7) == 1, np.uint64(255), np.uint64(0))
        result |= np.where(nibble > 7, sign, byte) << np.uint64(8 * i)
    machine.write(instr.operands[0], result, who)


def funnel(machine: Machine, instr: PtxInstruction, who: Array) -> None:
    """shf.l or shf.r of the 64 bits that b and a make, counts taken modulo 32 (wrap)."""
    assert "wrap" in instr.name
    a, b, count = (machine.read(x, 32, who).astype(np.uint64) for x in instr.operands[1:])
    both, count = a | b << np.uint64(32), count & np.uint64(31)
    result = both << count >> np.uint64(32) if "l" in instr.name else both >> count
    machine.write(instr.operands[0], result & np.uint64(0xFFFFFFFF), who)


def change_space(machine: Machine, instr: PtxInstruction, who: Array) -> None:
    """Generic addresses are those of the space: no instruction here uses one without its space."""
    machine.write(instr.operands[0], machine.read(instr.operands[1], 64, who), who)


def reverse(machine: Machine, instr: PtxInstruction, who: Array) -> None:
    bits = int(instr.name[-1][1:])
    found = [int(f"{int(x):0{bits}b}"[::-1], 2) for x in machine.read(instr.operands[1], bits, who)]
    machine.write(instr.operands[0], np.array(found, f"u{bits // 8}"), who)


def order(machine: Machine, instr: PtxInstruction, who: Array) -> None:
    """fence: here every thread sees at once what another has written."""


OPERATIONS: dict[str, Callable[[Machine, PtxInstruction, Array], None]] = {
    **dict.fromkeys(BINARY, binary), **dict.fromkeys(UNARY, unary),
    "min": lesser_or_greater, "max": lesser_or_greater, "mul": multiply, "mad": multiply,
    "fma": fused, "shl": shift, "shr": shift, "bfe": field_extract, "clz": count_bits,
    "popc": count_bits, "setp": compare, "selp": select, "cvt": convert, "dp4a": dot_bytes,
    "prmt": permute, "shf": funnel, "ld": load, "st": store, "atom": atomic, "cvta": change_space,
    "brev": reverse, "fence": order,
}  # fmt: skip


def compute(machine: Machine, instr: PtxInstruction, who: Array) -> None:
    OPERATIONS[instr.name[0]](machine, instr, who)
