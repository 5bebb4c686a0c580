"""Kernel language, nodes: what one invocation of a kernel does.

A `Program` is buffers, index arguments, a workgroup size and a body: a list of instructions in
program order. An instruction that yields a value *is* that value; it is defined once, and used only
after that, in its own block or an inner one. Everything is immutable and compares by identity.
`kernel.build` makes programs, `kernel.text` prints and parses them, `kernel.verify` checks them,
`kernel.evaluate` computes their meaning, a back end compiles them.

Printing is generic: the fields of an instruction are its operands (`Instr`), nested blocks
(`Block`) and plain attributes.
"""

from __future__ import annotations

from collections.abc import Iterator

from tetrad.core.dtypes import DType
from tetrad.core.record import field, record
from tetrad.core.sizes import Size

FLOAT_BINARY = ("add", "sub", "mul", "div", "min", "max", "copysign")
INT_BINARY = ("add", "sub", "mul", "div", "mod", "min", "max", "and", "or", "xor", "shl", "shr")
SATURATING = ("add_sat", "sub_sat", "mul_sat")  # integers of at most 32 bits
WORD_BINARY = ("mulhi",)  # u32 and i32
U32_BINARY = ("rotl", "rotr", "absdiff")
BOOL_BINARY = ("and", "or", "xor")
# div, mod: operands >= 0, divisor > 0
INDEX_BINARY = ("add", "sub", "mul", "div", "mod", "min", "max")
COMPARISONS = ("eq", "ne", "lt", "le", "gt", "ge")
FLOAT_UNARY = ("neg", "abs", "sqrt", "floor", "ceil", "trunc", "round_even", "round")
INT_UNARY = ("neg", "abs", "not", "popcount", "clz", "ctz", "reverse_bits")
BOOL_UNARY = ("not",)
ATOMIC = (
    "atomic_add", "atomic_min", "atomic_max", "atomic_and", "atomic_or", "atomic_xor",
    "atomic_exchange", "atomic_compare_exchange",
)  # fmt: skip
ORDERS = ("relaxed", "acquire", "release", "acq_rel", "seq_cst")
BINARY = tuple(
    dict.fromkeys(
        (*FLOAT_BINARY, *INT_BINARY, *SATURATING, *WORD_BINARY, *U32_BINARY, *BOOL_BINARY)
    )
)
UNARY = tuple(dict.fromkeys((*FLOAT_UNARY, *INT_UNARY, *BOOL_UNARY)))
# index of the stop word at `status`: nonzero asks a kernel to end early
STOP_WORD = 8
TAG_SHIFT = 16  # a trap reports tag << 16 | code; the tag is the launch in a schedule


def binary_operators(dtype: DType) -> tuple[str, ...]:
    """The operators of a `Binary` whose operands have this type."""
    if dtype.storage_only:
        return ()
    if dtype.kind not in "iu":
        return {"f": FLOAT_BINARY, "b": BOOL_BINARY, "x": INDEX_BINARY}.get(dtype.kind, ())
    narrow = SATURATING if dtype.bits <= 32 else ()
    word = WORD_BINARY if dtype.bits == 32 else ()
    return (*INT_BINARY, *narrow, *word, *(U32_BINARY if dtype.short_name == "u32" else ()))


def unary_operators(dtype: DType) -> tuple[str, ...]:
    """The operators of a `Unary` whose operand has this type."""
    if dtype.storage_only:
        return ()
    tables = {"f": FLOAT_UNARY, "b": BOOL_UNARY, "i": INT_UNARY, "u": INT_UNARY}
    return tables.get(dtype.kind, ())


@record(eq=False)
class Buffer:
    """Named flat memory in one of three spaces. Storage is global: all workgroups share it. Scratch
    belongs to one workgroup at a time. Its invocations share it, or it is private: invocation i
    owns the elements i, i + lanes, i + 2 lanes, ..., so that lanes access neighbouring elements.

    Scratch has arbitrary content when a workgroup starts, unless `zeroed`. `count` None: known at
    launch.
    """

    name: str
    dtype: DType
    # storage: read, write or readwrite; scratch, always readwrite: its space instead
    access: str = "read"
    count: Size | None = None
    zeroed: bool = False

    @property
    def space(self) -> str:
        """global, workgroup or private."""
        return self.access if self.is_scratch else "global"

    @property
    def is_scratch(self) -> bool:
        return self.access in ("workgroup", "private")

    @property
    def is_written(self) -> bool:
        return self.access in ("write", "readwrite")


@record(eq=False)
class Instr:
    """Root of all instructions; those that yield a value have a dtype."""


Block = tuple[Instr, ...]


@record(eq=False)
class Value(Instr):
    """An instruction that yields a value of type `dtype`."""

    dtype: DType


@record(eq=False)
class Const(Value):
    """A literal; floats keep their exact value (a Python float holds any f32 or f64)."""

    value: bool | int | float


@record(eq=False)
class Arg(Value):
    """An index argument of the program, equal for every invocation of a launch."""

    name: str


@record(eq=False)
class Id(Value):
    """The position of this invocation: `group` (the workgroup) or `local` (inside its workgroup),
    along `axis` 0, 1 or 2."""

    which: str
    axis: int


@record(eq=False)
class BufferLength(Value):
    """The number of elements of a buffer in this launch: an index."""

    buffer: Buffer


@record(eq=False)
class Load(Value):
    """buffer[at]. Inactive invocations do not access memory."""

    buffer: Buffer
    at: Value


@record(eq=False)
class Store(Instr):
    """buffer[at] = value, for active invocations. A store to a uniform address has a uniform value
    and happens once.

    Hints: "stream" writes around the cache; "same" promises that every other store to this element
    writes the same bits.
    """

    buffer: Buffer
    at: Value
    value: Value
    hint: str = ""


@record(eq=False)
class Atomic(Value):
    """buffer[at] = old op value, with no other access between; the value is the old element.

    Every active invocation makes one, in the order of lanes; workgroups in any order. A
    compare_exchange writes `value` only if old equals `expected`.
    """

    op: str
    buffer: Buffer
    at: Value
    value: Value
    expected: Value | None = None
    order: str = "relaxed"


@record(eq=False)
class Binary(Value):
    """lhs op rhs, both of `dtype`. Integer add, sub, mul wrap; div truncates, x/0 = 0, MIN/-1 =
    MIN; mod has the sign of lhs, x mod 0 = 0; shift and rotate counts are taken modulo the width.
    add_sat, sub_sat, mul_sat stop at the ends of the type; mulhi is the upper half of the product.
    Float min and max propagate NaN, and -0 < +0."""

    op: str
    lhs: Value
    rhs: Value


@record(eq=False)
class Compare(Value):
    """lhs op rhs -> bool; with NaN only `ne` holds."""

    op: str
    lhs: Value
    rhs: Value


@record(eq=False)
class Unary(Value):
    op: str
    x: Value


@record(eq=False)
class Select(Value):
    """a where cond is true, else b; bit-exact, both sides are evaluated."""

    cond: Value
    a: Value
    b: Value


@record(eq=False)
class Cast(Value):
    """Value conversion. Float to int truncates, saturates, NaN gives 0; to bool tests for nonzero
    (NaN is true); int to int wraps; anything to float rounds to nearest even."""

    x: Value


@record(eq=False)
class Bitcast(Value):
    """Same bits, other type of the same width."""

    x: Value


@record(eq=False)
class Fma(Value):
    """a*b + c with one rounding."""

    a: Value
    b: Value
    c: Value


@record(eq=False)
class Dot4(Value):
    """acc plus four products of bytes: the bytes of `u` (u32) are unsigned and at most `u_max`,
    those of `s` (u32) are signed.

    The result is exact modulo 2**32. u_max <= 128 lets targets without a 4-way dot product use
    saturating pair products. If `signed`, the bytes of `u` are signed too, and those of `s` are
    never -128.
    """

    acc: Value
    u: Value
    s: Value
    u_max: int = 255
    signed: bool = False


@record(eq=False)
class Dot2(Value):
    """acc (f32) plus two products of bf16, which lie in the halves of the words `a` and `b` (u32).

    The upper halves come first: two fma, one after the other. Subnormal operands count as zeros,
    and so does a result that would be one if exponents had no end: what the instruction of x86 does
    (VDPBF16PS), to the bit.
    """

    acc: Value
    a: Value
    b: Value


@record(eq=False)
class Lookup(Value):
    """Each byte b of `x` (u32), at most 15, becomes the byte table[b]."""

    x: Value
    table: tuple[int, ...]


@record(eq=False)
class Shuffle(Value):
    """Lane i of the result is element lanes[i] of the lanes of `a` followed by those of `b`.

    Cross-lane: only where the whole workgroup is active.
    """

    a: Value
    b: Value
    lanes: tuple[int, ...]


@record(eq=False)
class Permute(Value):
    """The value of `x` in lane `at` (u32), modulo the lanes: a table of 16 entries in a register.

    Of types of 32 bits, in workgroups of 16 lanes, or 8, 4, 2, 1. Cross-lane, as a shuffle.
    """

    x: Value
    at: Value


@record(eq=False)
class Broadcast(Value):
    """The value of invocation `lane`, for all invocations of the workgroup: a uniform value."""

    x: Value
    lane: int = 0


@record(eq=False)
class Vote(Value):
    """`any` or `all` of the conditions of the active invocations: a uniform bool."""

    op: str
    x: Value


@record(eq=False)
class Local(Value):
    """A mutable variable, initialised to `init` where it is declared. It is no value: Get reads it,
    Set assigns it."""

    init: Value


@record(eq=False)
class Get(Value):
    local: Local


@record(eq=False)
class Set(Instr):
    """local = value, for active invocations."""

    local: Local
    value: Value


@record(eq=False)
class Counter(Value):
    """The loop variable of a For, which alone defines it."""


@record(eq=False)
class For(Instr):
    """counter = start, start+step, ... while < stop. Bounds are uniform in the workgroup, step is
    positive."""

    counter: Counter
    start: Value
    stop: Value
    step: int
    body: Block


@record(eq=False)
class Repeat(Instr):
    """Repeats the body as long as the local, a bool, is true. An invocation whose local is false
    waits for those of its workgroup that go on."""

    local: Local
    body: Block


@record(eq=False)
class If(Instr):
    cond: Value
    then: Block
    orelse: Block = ()


@record(eq=False)
class Barrier(Instr):
    """Every invocation of the workgroup waits here; writes before it are visible to all of them
    after it."""


@record(eq=False)
class Return(Instr):
    """Ends this invocation; the last instruction of its block. `kernel.returns` rewrites it as
    branches."""


@record(eq=False)
class Trap(Instr):
    """If `cond` is true for any active invocation, the launch fails with this code and that
    invocation's `value`."""

    cond: Value
    code: int
    value: Value  # index: what to report


@record(eq=False)
class Prefetch(Instr):
    """A hint that buffer[at] will be read soon; never changes a result, may be out of range."""

    buffer: Buffer
    at: Value


@record(eq=False)
class Region(Instr):
    """Provenance: the op that generated the body, and the one that composed it, if it was another.
    A region is no scope."""

    generator: str
    body: Block
    source: str = ""


@record(eq=False, weakref_slot=True)
class Program:
    """A kernel: immutable, hashed by identity. Its canonical text (`kernel.text`) is the cache
    key."""

    name: str
    buffers: tuple[Buffer, ...]
    args: tuple[str, ...]
    workgroup: tuple[int, int, int]
    body: Block = field(repr=False)
    # nobody vouches for it: loads out of range give 0, stores out of range do nothing, scratch
    # starts as zeros
    guarded: bool = False

    @property
    def lanes(self) -> int:
        x, y, z = self.workgroup
        return x * y * z

    def __str__(self) -> str:
        from tetrad.kernel.text import to_text  # printing lives with parsing

        return to_text(self)


INSTRUCTIONS: tuple[type[Instr], ...] = (
    Const, Arg, Id, BufferLength, Load, Store, Atomic, Binary, Compare, Unary, Select, Cast,
    Bitcast, Fma, Dot4, Dot2, Lookup, Shuffle, Permute, Broadcast,
    Vote, Local, Get, Set, For, Repeat, If, Barrier, Return, Trap, Prefetch, Region,
)  # fmt: skip


BLOCKS = ("body", "then", "orelse")  # fields that hold a block


def inner_blocks(instr: Instr) -> list[Block]:
    """The blocks that an instruction holds, empty ones included."""
    return [getattr(instr, name) for name in BLOCKS if hasattr(instr, name)]


def walk(block: Block) -> Iterator[Instr]:
    """Every instruction of a block, inner ones included, in program order."""
    for instr in block:
        yield instr
        for inner in inner_blocks(instr):
            yield from walk(inner)


def atomic_buffers(block: Block) -> set[Buffer]:
    """The buffers that atomics of a block, inner ones included, change."""
    return {instr.buffer for instr in walk(block) if isinstance(instr, Atomic)}
