"""Kernel language, build: write a kernel as one writes Python.

Receives calls (`k.load`, `k.fma`, `with k.loop(n) as i`), returns a `Program`. Values have
operators. Equal pure instructions of a scope become one (value numbering) and constants fold, so
generators may ask for the same value twice. Loop-invariant instructions are hoisted (see `_place`).
Mathematical functions are compositions of instructions: `kernel.math`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from tetrad.core.dtypes import DType, bool_, f32, i32, index, u32
from tetrad.core.errors import VerifyError
from tetrad.core.record import field, record
from tetrad.core.sizes import Size
from tetrad.kernel import calls, elements, named_ops
from tetrad.kernel import nodes as n
from tetrad.kernel.fold import fold_binary


class Val:
    """A value under construction: an instruction and its builder, so that operators can add
    instructions."""

    __slots__ = ("k", "node")

    def __init__(self, k: KernelBuilder, node: n.Value) -> None:
        self.k, self.node = k, node

    @property
    def dtype(self) -> DType:
        return self.node.dtype

    @property
    def const(self) -> bool | int | float | None:
        """The value of a literal, else None."""
        return self.node.value if isinstance(self.node, n.Const) else None

    def __add__(self, o: object) -> Val:
        return self.k.binary("add", self, o)

    def __radd__(self, o: object) -> Val:
        return self.k.binary("add", o, self)

    def __sub__(self, o: object) -> Val:
        return self.k.binary("sub", self, o)

    def __rsub__(self, o: object) -> Val:
        return self.k.binary("sub", o, self)

    def __mul__(self, o: object) -> Val:
        return self.k.binary("mul", self, o)

    def __rmul__(self, o: object) -> Val:
        return self.k.binary("mul", o, self)

    def __truediv__(self, o: object) -> Val:
        return self.k.binary("div", self, o)

    def __rtruediv__(self, o: object) -> Val:
        return self.k.binary("div", o, self)

    def __floordiv__(self, o: object) -> Val:
        return self.k.binary("div", self, o)

    def __mod__(self, o: object) -> Val:
        return self.k.binary("mod", self, o)

    def __and__(self, o: object) -> Val:
        return self.k.binary("and", self, o)

    def __or__(self, o: object) -> Val:
        return self.k.binary("or", self, o)

    def __xor__(self, o: object) -> Val:
        return self.k.binary("xor", self, o)

    def __lshift__(self, o: object) -> Val:
        return self.k.binary("shl", self, o)

    def __rshift__(self, o: object) -> Val:
        return self.k.binary("shr", self, o)

    def __neg__(self) -> Val:
        return self.k.unary("neg", self)

    def __invert__(self) -> Val:
        return self.k.unary("not", self)

    def __abs__(self) -> Val:
        return self.k.unary("abs", self)

    def __lt__(self, o: object) -> Val:
        return self.k.compare("lt", self, o)

    def __le__(self, o: object) -> Val:
        return self.k.compare("le", self, o)

    def __gt__(self, o: object) -> Val:
        return self.k.compare("gt", self, o)

    def __ge__(self, o: object) -> Val:
        return self.k.compare("ge", self, o)

    def eq(self, o: object) -> Val:
        return self.k.compare("eq", self, o)

    def ne(self, o: object) -> Val:
        return self.k.compare("ne", self, o)

    def cast(self, dtype: DType) -> Val:
        return self.k.cast(self, dtype)


class LocalVar:
    """A mutable local under construction."""

    __slots__ = ("k", "node")

    def __init__(self, k: KernelBuilder, node: n.Local) -> None:
        self.k, self.node = k, node

    def get(self) -> Val:
        value = self.k._emit(n.Get(self.node.dtype, self.node))
        self.k._varying.add(value.node)
        return value

    def set(self, value: object) -> None:
        self.k._append(n.Set(self.node, self.k.value(value, self.node.dtype).node))


@record(frozen=False)
class _Scope:
    """A block under construction. `kind`: body, loop, always (a loop with at least one trip), guard
    (an If that only cuts off a tail of lanes) or branch."""

    kind: str = "body"
    may_leave: bool = False  # a return was written in it
    instrs: list[n.Instr] = field(default_factory=list)
    # keys of the values that are forgotten when the block ends
    known: list[tuple[object, ...]] = field(default_factory=list)


class KernelBuilder:
    """Collects the instructions of one program; `finish()` returns it."""

    def __init__(self, name: str, workgroup: int | tuple[int, int, int] = 16) -> None:
        self.name = name
        self.workgroup = (workgroup, 1, 1) if isinstance(workgroup, int) else workgroup
        self._buffers: list[n.Buffer] = []
        self._regions: list[str] = []  # the open ones
        self._args: dict[str, Val] = {}
        self._scopes = [_Scope()]
        self._finished: n.Program | None = None
        # value numbering: key of an instruction -> its value in the enclosing scopes
        self._known: dict[tuple[object, ...], Any] = {}
        self._depth: dict[n.Instr, int] = {}  # scope each value was placed in
        self._varying: set[n.Instr] = set()  # may differ between lanes (conservative)

    # -- declarations ------------------------------------------------------------------------------

    def buffer(
        self,
        name: str,
        dtype: DType,
        access: str = "read",
        count: Size | None = None,
        zeroed: bool = False,
    ) -> n.Buffer:
        buf = n.Buffer(name, dtype, access, count, zeroed)
        self._buffers.append(buf)
        return buf

    def scratch(self, name: str, dtype: DType, count: Size) -> n.Buffer:
        """Uninitialised memory that the invocations of a workgroup share."""
        return self.buffer(name, dtype, "workgroup", count)

    def private(self, name: str, dtype: DType, count: Size) -> n.Buffer:
        """Uninitialised memory of a workgroup, of which invocation i owns the elements i, i +
        lanes, ..."""
        return self.buffer(name, dtype, "private", count)

    def arg(self, name: str) -> Val:
        """An index argument; asking twice gives the same value."""
        if name not in self._args:
            self._args[name] = Val(self, n.Arg(index, name))
            self._depth[self._args[name].node] = 0
            self._scopes[0].instrs.insert(0, self._args[name].node)
        return self._args[name]

    # -- values ------------------------------------------------------------------------------------

    def const(self, value: bool | int | float, dtype: DType) -> Val:
        if dtype is index:
            return self._shared((index, value), lambda: n.Const(index, int(value)), ())
        if dtype is bool_:
            value = bool(value)
        elif dtype.is_float:
            value = float(dtype.np.type(value)) if dtype.short_name != "bf16" else float(value)
        else:
            value = int(value)
        key = ("const", dtype, type(value), repr(value))
        return self._shared(key, lambda: n.Const(dtype, value), ())

    def value(self, x: object, dtype: DType) -> Val:
        """A Python number or a value, as a value of `dtype`."""
        if isinstance(x, LocalVar):
            x = x.get()
        if isinstance(x, Val):
            if x.dtype is not dtype:
                raise VerifyError(
                    "K011", f"{self.name}: expected a value of type {dtype}, got {x.dtype}"
                )
            return x
        return self.const(x, dtype)  # type: ignore[arg-type]

    def index(self, x: object) -> Val:
        return self.value(x, index)

    def group_id(self, axis: int = 0) -> Val:
        return self._shared(("id", "group", axis), lambda: n.Id(index, "group", axis), ())

    def lane(self, axis: int = 0) -> Val:
        lane = self._shared(("id", "local", axis), lambda: n.Id(index, "local", axis), ())
        self._varying.add(lane.node)
        return lane

    def global_id(self, axis: int = 0) -> Val:
        return self.group_id(axis) * self.workgroup[axis] + self.lane(axis)

    def load(self, buffer: n.Buffer, at: object) -> Val:
        """buffer[at]. A read-only buffer is loaded once per scope and index; uniform loads are
        hoisted out of loops."""
        where = self.index(at).node
        if buffer.access != "read":
            loaded = self._emit(n.Load(buffer.dtype, buffer, where))
            self._varying.add(loaded.node)
            return loaded
        return self._shared(
            ("load", buffer, where),
            lambda: n.Load(buffer.dtype, buffer, where),
            (where,),
            memory=True,
        )

    def length(self, buffer: n.Buffer) -> Val:
        """The number of elements of a buffer; a literal if its declaration tells it."""
        if isinstance(buffer.count, int):
            return self.index(buffer.count)
        return self._shared(("length", buffer), lambda: n.BufferLength(index, buffer), ())

    def atomic(
        self,
        op: str,
        buffer: n.Buffer,
        at: object,
        value: object,
        expected: object = None,
        order: str = "relaxed",
    ) -> Val:
        """buffer[at] = old op value in one step; returns old. `op`: add, min, max, and, or, xor,
        exchange, or compare_exchange, which writes only if old equals `expected`."""
        taken = buffer.dtype
        compared = None if expected is None else self.value(expected, taken).node
        operands = (self.index(at).node, self.value(value, taken).node, compared, order)
        made = self._emit(n.Atomic(taken, f"atomic_{op}", buffer, *operands))
        self._varying.add(made.node)
        return made

    def binary(self, op: str, lhs: object, rhs: object) -> Val:
        a, b = self._pair(lhs, rhs)
        folded = fold_binary(op, a.dtype, a.const, b.const)
        if folded is not None:
            return (
                self.const(folded[0], a.dtype)
                if isinstance(folded, tuple)
                else a
                if folded == "lhs"
                else b
            )
        key = ("binary", op, a.node, b.node)
        return self._shared(key, lambda: n.Binary(a.dtype, op, a.node, b.node), (a.node, b.node))

    def compare(self, op: str, lhs: object, rhs: object) -> Val:
        a, b = self._pair(lhs, rhs)
        key = ("compare", op, a.node, b.node)
        return self._shared(key, lambda: n.Compare(bool_, op, a.node, b.node), (a.node, b.node))

    def unary(self, op: str, x: object) -> Val:
        v = self._val(x)
        return self._shared(("unary", op, v.node), lambda: n.Unary(v.dtype, op, v.node), (v.node,))

    def select(self, cond: object, a: object, b: object) -> Val:
        x, y = self._pair(a, b)
        nodes = (self.value(cond, bool_).node, x.node, y.node)
        return self._shared(("select", *nodes), lambda: n.Select(x.dtype, *nodes), nodes)

    def cast(self, x: object, dtype: DType) -> Val:
        v = self._val(x)
        if v.dtype is dtype:
            return v
        return self._shared(("cast", dtype, v.node), lambda: n.Cast(dtype, v.node), (v.node,))

    def bitcast(self, x: object, dtype: DType) -> Val:
        v = self._val(x)
        return self._shared(("bitcast", dtype, v.node), lambda: n.Bitcast(dtype, v.node), (v.node,))

    def fma(self, a: object, b: object, c: object) -> Val:
        dtype = next(v.node.dtype for v in (a, b, c) if isinstance(v, Val | LocalVar))
        x, y, z = (self.value(v, dtype).node for v in (a, b, c))
        return self._shared(("fma", x, y, z), lambda: n.Fma(dtype, x, y, z), (x, y, z))

    def dot4(
        self, acc: object, u: object, s: object, u_max: int = 255, *, signed: bool = False
    ) -> Val:
        a, x, y = self.value(acc, i32).node, self._val(u).node, self._val(s).node
        return self._shared(
            ("dot4", a, x, y, u_max, signed), lambda: n.Dot4(i32, a, x, y, u_max, signed), (a, x, y)
        )

    def dot2(self, acc: object, a: object, b: object) -> Val:
        """acc plus the products of two bf16 in each word, the upper halves first (`nodes.Dot2`)."""
        c, x, y = self.value(acc, f32).node, self._val(a).node, self._val(b).node
        return self._shared(("dot2", c, x, y), lambda: n.Dot2(f32, c, x, y), (c, x, y))

    def lookup(self, x: object, table: tuple[int, ...]) -> Val:
        v = self._val(x).node
        return self._shared(("lookup", v, table), lambda: n.Lookup(u32, v, table), (v,))

    min, max, sqrt, abs, floor = (
        named_ops.min, named_ops.max, named_ops.sqrt, named_ops.abs, named_ops.floor,
    )  # fmt: skip
    round_even, copysign = named_ops.round_even, named_ops.copysign
    add_sat, sub_sat, mul_sat = named_ops.add_sat, named_ops.sub_sat, named_ops.mul_sat
    mulhi, absdiff = named_ops.mulhi, named_ops.absdiff
    rotl, rotr, reverse_bits = named_ops.rotl, named_ops.rotr, named_ops.reverse_bits
    load_nibble, store_nibble = elements.load_nibble, elements.store_nibble
    unpack_nibbles, store_nibbles = elements.unpack_nibbles, elements.store_nibbles
    load_f8, store_f8 = elements.load_f8, elements.store_f8

    def shuffle(self, a: Val, b: Val, lanes: tuple[int, ...]) -> Val:
        key = ("shuffle", a.node, b.node, lanes)
        return self._shared(
            key, lambda: n.Shuffle(a.dtype, a.node, b.node, lanes), (a.node, b.node)
        )

    def permute(self, x: Val, at: Val) -> Val:
        """Lane at modulo 16 of x: x is a table of sixteen entries."""
        nodes = (x.node, at.node)
        return self._shared(("permute", *nodes), lambda: n.Permute(x.dtype, *nodes), nodes)

    def broadcast(self, x: object, lane: int = 0) -> Val:
        v = self._val(x)
        if v.node not in self._varying:
            return v
        return self._shared(
            ("broadcast", v.node, lane), lambda: n.Broadcast(v.dtype, v.node, lane), (v.node,)
        )

    def any(self, cond: Val) -> Val:
        return self._emit(n.Vote(bool_, "any", cond.node))

    def all(self, cond: Val) -> Val:
        return self._emit(n.Vote(bool_, "all", cond.node))

    def reduce_lanes(self, op: str, x: object) -> Val:
        """Reduce the lanes of a 16-lane workgroup by the halving tree (i with i+8, then 4, 2, 1);
        the result is uniform."""
        v, width = self._val(x), self.workgroup[0] // 2
        while width:
            v = self.binary(op, v, self.rotate(v, width))
            width //= 2
        return self.broadcast(v)

    def rotate(self, x: Val, by: int) -> Val:
        """Lane i gets lane (i + by) modulo the workgroup size."""
        lanes = self.workgroup[0]
        return self.shuffle(x, x, tuple((i + by) % lanes for i in range(lanes)))

    # -- statements --------------------------------------------------------------------------------

    def store(self, buffer: n.Buffer, at: object, value: object, hint: str = "") -> None:
        self._append(
            n.Store(buffer, self.index(at).node, self.value(value, buffer.dtype).node, hint)
        )

    def local(self, init: object, dtype: DType | None = None) -> LocalVar:
        value = self.value(init, dtype) if dtype is not None else self._val(init)
        node = n.Local(value.dtype, value.node)
        self._append(node)
        return LocalVar(self, node)

    @contextmanager
    def loop(
        self, stop: object, start: object = 0, step: int = 1, *, always: bool = False
    ) -> Iterator[Val]:
        """for i in range(start, stop, step). `always` promises at least one trip, so that loads may
        be hoisted. A loop with exactly one trip becomes straight code."""
        first, last = self.index(start), self.index(stop)
        if (
            first.const is not None
            and last.const is not None
            and 0 < last.const - first.const <= step
        ):
            yield first
            return
        counter = n.Counter(index)
        self._scopes.append(_Scope("always" if always else "loop"))
        self._depth[counter] = len(self._scopes) - 1
        yield Val(self, counter)
        body = self._leave()
        self._append(n.For(counter, first.node, last.node, step, body))

    @contextmanager
    def repeat(self, goes_on: LocalVar) -> Iterator[None]:
        """while goes_on: ... For an invocation whose local is false the body is over."""
        self._scopes.append(_Scope("loop"))
        yield
        body = self._leave()
        self._append(n.Repeat(goes_on.node, body))

    @contextmanager
    def when(self, cond: Val, *, guard: bool = False) -> Iterator[None]:
        """if cond: ...; a divergent condition becomes a mask. A guard only cuts off a tail of
        lanes, so uniform values inside it are valid outside."""
        self._scopes.append(_Scope("guard" if guard else "branch"))
        yield
        body = self._leave()
        self._append(n.If(cond.node, body))

    @contextmanager
    def otherwise(self) -> Iterator[None]:
        """The else branch of the `when` just closed."""
        before = self._scopes[-1].instrs.pop()
        if not isinstance(before, n.If):
            raise VerifyError("K010", f"{self.name}: otherwise() must follow when()")
        self._scopes.append(_Scope("branch"))
        yield
        body = self._leave()
        self._append(n.If(before.cond, before.then, body))

    @contextmanager
    def region(self, generator: str) -> Iterator[None]:
        """Instructions built inside carry the name of the op that asked for them. A region is no
        scope: its values stay visible."""
        outer = self._scopes[-1]
        mark = len(outer.instrs)
        self._regions.append(generator)
        yield
        self._regions.pop()
        body = tuple(outer.instrs[mark:])
        del outer.instrs[mark:]
        if body:
            outer.instrs.append(n.Region(generator, body))

    @property
    def region_name(self) -> str:
        """The generator of the innermost open region; "" outside of all."""
        return self._regions[-1] if self._regions else ""

    @property
    def is_in_loop(self) -> bool:
        return any(scope.kind in ("loop", "always") for scope in self._scopes)

    call = calls.call

    def once(self, key: tuple[object, ...], make: Callable[[], tuple[Val, ...]]) -> tuple[Val, ...]:
        """Compute values once per scope (and the scopes inside it). For computations that value
        numbering cannot share, such as a branch."""
        made: tuple[Val, ...] | None = self.known(key)
        if made is None:
            made = make()
            self.remember(key, made)
        return made

    def known(self, key: tuple[object, ...]) -> Any:
        """What `remember` stored in this scope or an enclosing one, else None."""
        return self._known.get(key)

    def remember(self, key: tuple[object, ...], value: object, depth: int = -1) -> None:
        """Store a value under a key until the scope ends."""
        self._known[key] = value
        self._scopes[depth].known.append(key)

    def forget(self, word: str) -> None:
        """Drop what was remembered in this scope under keys that begin with this word."""
        for key in self._scopes[-1].known:
            if key[0] == word:
                self._known.pop(key, None)

    def barrier(self) -> None:
        self._append(n.Barrier())

    def return_(self) -> None:
        """End this invocation; the last statement of its block."""
        self._append(n.Return())
        for scope in self._scopes:
            scope.may_leave = True

    def trap(self, cond: Val, code: int, value: object) -> None:
        self._append(n.Trap(cond.node, code, self.index(value).node))

    def prefetch(self, buffer: n.Buffer, at: object) -> None:
        self._append(n.Prefetch(buffer, self.index(at).node))

    def finish(self) -> n.Program:
        """The program; the same object at every call. The builder takes no more instructions and
        drops its values, which refer to it, so that no reference cycle is left."""
        if self._finished is None:
            body = tuple(self._scopes[0].instrs)
            self._finished = n.Program(
                self.name, tuple(self._buffers), tuple(self._args), self.workgroup, body
            )
            self._scopes, self._args, self._known = [], {}, {}
        return self._finished

    # -- inside ------------------------------------------------------------------------------------

    def _val(self, x: object) -> Val:
        if isinstance(x, LocalVar):
            return x.get()
        if isinstance(x, Val):
            return x
        raise VerifyError("K011", f"{self.name}: a plain number needs a typed partner, got {x!r}")

    def _pair(self, lhs: object, rhs: object) -> tuple[Val, Val]:
        if isinstance(lhs, LocalVar):
            lhs = lhs.get()
        if isinstance(rhs, LocalVar):
            rhs = rhs.get()
        if isinstance(lhs, Val):
            return lhs, self.value(rhs, lhs.dtype)
        right = self._val(rhs)
        return self.value(lhs, right.dtype), right

    def _leave(self) -> n.Block:
        """End the innermost scope; return its instructions."""
        scope = self._scopes.pop()
        for key in scope.known:
            self._known.pop(key, None)
        return tuple(scope.instrs)

    def _append(self, instr: n.Instr) -> None:
        self._scopes[-1].instrs.append(instr)

    def _emit(self, node: n.Value) -> Val:
        self._append(node)
        self._depth[node] = len(self._scopes) - 1
        return Val(self, node)

    def _shared(
        self,
        key: tuple[object, ...],
        make: Callable[[], n.Value],
        operands: tuple[n.Instr, ...],
        memory: bool = False,
    ) -> Val:
        """The value of a pure instruction: found in an enclosing scope, or placed as far out as
        `_place` allows."""
        found: Val | None = self._known.get(key)
        if found is not None:
            return found
        node = make()
        varying = any(o in self._varying for o in operands) and not isinstance(node, n.Broadcast)
        if varying or isinstance(node, n.Shuffle):
            self._varying.add(node)
        # wrong operands raise an error
        fragile = memory or (isinstance(node, n.Binary) and node.op in ("div", "mod"))
        stay = isinstance(node, n.Shuffle | n.Permute | n.Broadcast)
        depth = self._place(operands, stay=stay, fragile=fragile, varying=varying)
        self._scopes[depth].instrs.append(node)
        self._depth[node] = depth
        made = Val(self, node)
        self.remember(key, made, depth)
        return made

    def _place(
        self, operands: tuple[n.Instr, ...], *, stay: bool, fragile: bool, varying: bool
    ) -> int:
        """The outermost scope that has all operands and can be reached through loops and guards.

        A varying load keeps the mask of its guard. Loads and divisions stay in loops that may have
        no trip, or behind a return. Nothing leaves a branch: it may be a rare path.
        """
        depth, lowest = len(self._scopes) - 1, max((self._depth[o] for o in operands), default=0)
        while depth > lowest and not stay:
            kind = self._scopes[depth].kind
            stays = kind == "loop" or self._scopes[depth].may_leave or (kind == "guard" and varying)
            if kind == "branch" or (fragile and stays):
                break
            depth -= 1
        return depth
