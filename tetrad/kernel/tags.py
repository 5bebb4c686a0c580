"""Kernel language, tags: the bytes that stand for types, operators and instructions in `bytes`.

Tables only. A tag is permanent: none is changed or used again, new ones are appended. Tags of types
and operators are those of the published table where it has them; those from 80 hex on are for
extensions.
"""

from __future__ import annotations

from tetrad.kernel import nodes as n

EXTENSION = 0x80

DTYPES = {
    "u32": 0x01, "i32": 0x02, "u64": 0x03, "bool": 0x06, "f16": 0x09, "bf16": 0x0A, "f32": 0x0B,
    "f64": 0x0C, "u8": 0x0E, "u16": 0x0F, "i8": 0x10, "i16": 0x11, "i64": 0x12, "index": 0x21,
}  # fmt: skip

BINARY = {
    "add": 0x01, "sub": 0x02, "mul": 0x03, "div": 0x04, "mod": 0x05, "and": 0x06, "or": 0x07,
    "xor": 0x08, "shl": 0x09, "shr": 0x0A, "eq": 0x0B, "ne": 0x0C, "lt": 0x0D, "gt": 0x0E,
    "absdiff": 0x0F, "le": 0x10, "ge": 0x11, "min": 0x14, "max": 0x15, "add_sat": 0x16,
    "sub_sat": 0x17, "mul_sat": 0x18, "rotl": 0x1D, "rotr": 0x1E, "mulhi": 0x21, "copysign": 0x22,
}  # fmt: skip

UNARY = {
    "neg": 0x01, "not": 0x02, "popcount": 0x04, "clz": 0x05, "ctz": 0x06, "reverse_bits": 0x07,
    "abs": 0x0A, "sqrt": 0x0B, "floor": 0x0C, "ceil": 0x0D, "round": 0x0E, "trunc": 0x0F,
    "round_even": 0x25,
}  # fmt: skip

ATOMIC = {
    "atomic_add": 0x01, "atomic_or": 0x02, "atomic_and": 0x03, "atomic_xor": 0x04,
    "atomic_min": 0x05, "atomic_max": 0x06, "atomic_exchange": 0x07,
    "atomic_compare_exchange": 0x08,
}  # fmt: skip

OPERATORS: dict[type[n.Instr], dict[str, int]] = {
    n.Binary: BINARY,
    n.Compare: BINARY,
    n.Unary: UNARY,
    n.Atomic: ATOMIC,
    n.Vote: {"any": 0x01, "all": 0x02},
}

ACCESSES = {"read": 0x01, "write": 0x02, "readwrite": 0x03, "workgroup": 0x04, "private": 0x05}

# Fields that hold one of a few words.
WORDS: dict[tuple[type[n.Instr], str], dict[str, int]] = {
    (n.Id, "which"): {"group": 0x01, "local": 0x02},
    (n.Store, "hint"): {"": 0x00, "stream": 0x01, "same": 0x02},
    (n.Atomic, "order"): {order: tag for tag, order in enumerate(n.ORDERS)},
}

NODES: dict[type[n.Instr], int] = {
    n.Const: 0x01, n.Arg: 0x02, n.Id: 0x03, n.BufferLength: 0x04, n.Load: 0x05, n.Store: 0x06,
    n.Atomic: 0x07, n.Binary: 0x08, n.Compare: 0x09, n.Unary: 0x0A, n.Select: 0x0B, n.Cast: 0x0C,
    n.Bitcast: 0x0D, n.Fma: 0x0E, n.Dot4: 0x0F, n.Lookup: 0x10, n.Shuffle: 0x11,
    n.Broadcast: 0x12, n.Vote: 0x13, n.Local: 0x14, n.Get: 0x15, n.Set: 0x16, n.For: 0x17,
    n.If: 0x18, n.Barrier: 0x19, n.Return: 0x1A, n.Trap: 0x1B, n.Prefetch: 0x1C, n.Region: 0x1D,
    n.Permute: 0x1E, n.Dot2: 0x1F, n.Repeat: 0x20,
}  # fmt: skip
