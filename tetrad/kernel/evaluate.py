"""Kernel language, evaluate: the meaning of a program, all invocations at once, on NumPy.

Receives a verified program, flat arrays for its storage buffers, its index arguments and a grid;
writes into the arrays. Compiled code must give the same bits. A value is an array that broadcasts
to [G, L]: G workgroups (x fastest), L lanes (x fastest). An index that is equal in the whole launch
is a plain int. All lanes advance in lockstep under a mask, so barriers matter only to
`kernel.races`. Accesses out of bounds, index overflow, broken promises and, on request, races raise
an error that names the place.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from tetrad.core.dtypes import DType
from tetrad.core.dtypes import index as index_type
from tetrad.core.errors import BadInputs, BoundsError, TetradError, VerifyError
from tetrad.core.floats import guarded
from tetrad.kernel import arith, atomics
from tetrad.kernel import nodes as n
from tetrad.kernel.launch_memory import count_of, fresh_scratch
from tetrad.kernel.math.fma import dot2, fma
from tetrad.kernel.races import Races

Array = np.ndarray[Any, Any]
Datum = Any  # an Array, or an int for an index that is the same in the whole launch
Place = tuple[int, int]  # workgroup of the batch, lane
Mask = Array | None  # None: every invocation is active
# invocations evaluated at a time: temporaries stay in cache, and memory is bounded
BATCH_LANES = 1 << 16
BATCH_SCRATCH = 1 << 26  # bytes of scratch held at a time
INDEX_LIMIT = 1 << 63


class KernelTrap(TetradError, RuntimeError):
    """A `Trap` fired: its code and the value it reports."""

    def __init__(self, message: str, code: int, value: int) -> None:
        super().__init__(message)
        self.code, self.value = code, value


@guarded
def evaluate(
    program: n.Program,
    buffers: Mapping[str, Array],
    args: Mapping[str, int],
    grid: tuple[int, int, int] = (1, 1, 1),
    groups: range | None = None,
    races: bool = False,
) -> None:
    """Run `program` over `grid` workgroups, writing into the arrays of `buffers`. `groups`: run
    only these workgroups. `races`: raise an error if two invocations access one element, at least
    one of them writes, and no barrier orders them.

    >>> from tetrad.core.dtypes import f32
    >>> from tetrad.kernel.build import KernelBuilder
    >>> k = KernelBuilder("double", workgroup=4)
    >>> x, y = k.buffer("x", f32), k.buffer("y", f32, "write")
    >>> v = k.load(x, k.global_id())
    >>> k.store(y, k.global_id(), v + v)
    >>> out = np.zeros(4, np.float32)
    >>> evaluate(k.finish(), {"x": np.float32([1, 2, 3, 4]), "y": out}, {})
    >>> out
    array([2., 4., 6., 8.], dtype=float32)
    """
    counts = {b: count_of(program, b, buffers, args) for b in program.buffers}
    for name in program.args:
        if name not in args:
            raise BadInputs(f"{program.name}: no value for argument {name!r}")
    scratch = sum(counts[b] * b.dtype.nbytes for b in program.buffers if b.is_scratch)
    batch = max(1, min(BATCH_LANES // program.lanes, BATCH_SCRATCH // max(scratch, 1)))
    wanted = range(grid[0] * grid[1] * grid[2]) if groups is None else groups
    watch = Races(program, counts) if races else None
    with np.errstate(all="ignore"):
        for first in range(wanted.start, wanted.stop, batch):
            some = range(first, min(first + batch, wanted.stop))
            Run(program, buffers, args, counts, grid, some, watch).block(program.body, None)


class Run:
    """One batch of workgroups: the value of every instruction so far, and memory."""

    def __init__(
        self,
        program: n.Program,
        buffers: Mapping[str, Array],
        args: Mapping[str, int],
        counts: Mapping[n.Buffer, int],
        grid: tuple[int, int, int],
        groups: range,
        races: Races | None = None,
    ) -> None:
        self.program, self.args, self.counts, self.grid, self.groups = (
            program,
            args,
            counts,
            grid,
            groups,
        )
        self.races = races
        if races is not None:
            races.begin(groups, self.describe)
        self.values: dict[n.Instr, Datum] = {}
        self.regions: list[str] = []
        self.gone: Array | None = None  # invocations that have returned
        self.shape = (len(groups), program.lanes)
        self.memory = {
            b: fresh_scratch(b, counts[b] * len(groups), program.guarded)
            if b.is_scratch
            else buffers[b.name]
            for b in program.buffers
        }

    def block(self, block: n.Block, mask: Mask) -> None:
        seen = None
        for instr in block:
            if self.gone is not seen and self.gone is not None:
                seen, mask = self.gone, _active(~self.gone, mask)
                if not mask.any():
                    return
            RULES[type(instr)](self, instr, mask)

    def array(self, value: n.Value) -> Array:
        """The value as an array, even if it is a plain int."""
        v = self.values[value]
        return np.array([[v]], np.int64) if isinstance(v, int) else v

    def fail(self, what: str, wrong: Array, detail: Callable[[Place], str]) -> BoundsError:
        """The error for the first invocation where `wrong` is true."""
        place = self.first(wrong)
        return BoundsError(
            f"{self.program.name}: {what} {detail(place)}\n  in {self.describe(place)}"
        )

    def first(self, condition: Array) -> Place:
        """The first invocation where the condition is true."""
        g, lane = np.unravel_index(
            int(np.argmax(np.broadcast_to(condition, self.shape))), self.shape
        )
        return int(g), int(lane)

    def describe(self, place: Place) -> str:
        group, lane = self.groups[place[0]], place[1]
        x, y, _ = self.grid
        sx, sy, _ = self.program.workgroup
        ids = (group % x, group // x % y, group // (x * y))
        local = (lane % sx, lane // sx % sy, lane // (sx * sy))
        return f"region {'/'.join(self.regions) or '(top)'}, workgroup {ids}, invocation {local}"


def _pick(v: Datum, at: Place) -> int:
    """The element of one invocation in a value that broadcasts."""
    if isinstance(v, int):
        return v
    return int(v[at[0] if v.shape[0] > 1 else 0, at[1] if v.shape[1] > 1 else 0])


def _active(condition: Array, mask: Mask) -> Array:
    return condition if mask is None else condition & mask


# -- values ----------------------------------------------------------------------------------------


def _const(run: Run, node: n.Const, mask: Mask) -> None:
    if node not in run.values:
        is_index = node.dtype is index_type
        run.values[node] = (
            int(node.value) if is_index else np.array([[node.value]]).astype(node.dtype.np)
        )


def _arg(run: Run, node: n.Arg, mask: Mask) -> None:
    run.values[node] = int(run.args[node.name])


def _id(run: Run, node: n.Id, mask: Mask) -> None:
    if node not in run.values:
        run.values[node] = (
            _group_id(run, node.axis) if node.which == "group" else _local_id(run, node.axis)
        )


def _group_id(run: Run, axis: int) -> Datum:
    if run.grid[axis] == 1:
        return 0
    linear = np.arange(run.groups.start, run.groups.stop, dtype=np.int64)[:, None]
    return linear // int(np.prod(run.grid[:axis], dtype=np.int64)) % run.grid[axis]


def _local_id(run: Run, axis: int) -> Datum:
    sizes = run.program.workgroup
    if sizes[axis] == 1:
        return 0
    linear = np.arange(run.program.lanes, dtype=np.int64)[None, :]
    return linear // int(np.prod(sizes[:axis], dtype=np.int64)) % sizes[axis]


def _binary(run: Run, node: n.Binary, mask: Mask) -> None:
    a, b = run.values[node.lhs], run.values[node.rhs]
    if node.dtype is index_type:
        run.values[node] = _index_binary(run, node.op, a, b, mask)
    else:
        run.values[node] = arith.binary(node.op, node.dtype, a, b)


def _index_binary(run: Run, op: str, a: Datum, b: Datum, mask: Mask) -> Datum:
    """Exact integer arithmetic. Overflow of 64 bits, a negative dividend or a divisor below 1 is an
    error of the program."""
    if op in ("div", "mod"):
        _check_division(run, op, a, b, mask)
    elif op in ("add", "sub", "mul"):
        _check_wrap(run, op, a, b, mask)
    return _INDEX_BINARY[op](a, b)


def _check_division(run: Run, op: str, a: Datum, b: Datum, mask: Mask) -> None:
    if _low(a) >= 0 and _low(b) > 0:
        return
    wrong = _active(np.atleast_2d(np.less(a, 0) | np.less_equal(b, 0)), mask)
    if wrong.any():
        raise run.fail(
            f"index {op}",
            wrong,
            lambda at: f"of {_pick(a, at)} by {_pick(b, at)}: needs >= 0 by > 0",
        )


def _check_wrap(run: Run, op: str, a: Datum, b: Datum, mask: Mask) -> None:
    exact, b_ends = _INDEX_BINARY[op], (_low(b), _high(b))
    ends = [exact(x, y) for x in (_low(a), _high(a)) for y in b_ends]
    if min(ends) >= -INDEX_LIMIT and max(ends) < INDEX_LIMIT:
        return
    true = exact(np.atleast_2d(a).astype(object), np.atleast_2d(b).astype(object))
    wrong = _active(((true < -INDEX_LIMIT) | (true >= INDEX_LIMIT)).astype(bool), mask)
    if wrong.any():
        raise run.fail(
            f"index {op}", wrong, lambda at: f"of {_pick(a, at)} and {_pick(b, at)} leaves 64 bits"
        )


def _low(v: Datum) -> int:
    return v if isinstance(v, int) else int(v.min())


def _high(v: Datum) -> int:
    return v if isinstance(v, int) else int(v.max())


def _least(a: Datum, b: Datum) -> Datum:
    return min(a, b) if isinstance(a, int) and isinstance(b, int) else np.minimum(a, b)


def _greatest(a: Datum, b: Datum) -> Datum:
    return max(a, b) if isinstance(a, int) and isinstance(b, int) else np.maximum(a, b)


_INDEX_BINARY: dict[str, Callable[[Any, Any], Any]] = {
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "div": operator.floordiv,
    "mod": operator.mod,
    "min": _least,
    "max": _greatest,
}


def _compare(run: Run, node: n.Compare, mask: Mask) -> None:
    run.values[node] = np.atleast_2d(
        arith.compare(node.op, run.values[node.lhs], run.values[node.rhs])
    )


def _unary(run: Run, node: n.Unary, mask: Mask) -> None:
    run.values[node] = arith.unary(node.op, node.dtype, run.values[node.x])


def _select(run: Run, node: n.Select, mask: Mask) -> None:
    cond, a, b = run.values[node.cond], run.values[node.a], run.values[node.b]
    run.values[node] = (a if cond.item() else b) if cond.size == 1 else np.where(cond, a, b)


def _cast(run: Run, node: n.Cast, mask: Mask) -> None:
    run.values[node] = _datum(arith.cast(run.array(node.x), node.x.dtype, node.dtype), node.dtype)


def _bitcast(run: Run, node: n.Bitcast, mask: Mask) -> None:
    run.values[node] = run.values[node.x].view(node.dtype.np)


def _fma(run: Run, node: n.Fma, mask: Mask) -> None:
    run.values[node] = fma(run.values[node.a], run.values[node.b], run.values[node.c])


def _dot4(run: Run, node: n.Dot4, mask: Mask) -> None:
    u = run.values[node.u]
    if node.signed:
        _check_bytes(
            run,
            "dot4",
            run.values[node.s] ^ np.uint32(0x7F7F7F7F),
            254,
            mask,
            "-128 where u is signed",
        )
    elif node.u_max < 255:
        _check_bytes(run, "dot4", u, node.u_max, mask, f"above its u_max {node.u_max}")
    run.values[node] = arith.dot4(run.values[node.acc], u, run.values[node.s], node.signed)


def _dot2(run: Run, node: n.Dot2, mask: Mask) -> None:
    run.values[node] = dot2(*(run.values[x] for x in (node.acc, node.a, node.b)))


def _lookup(run: Run, node: n.Lookup, mask: Mask) -> None:
    x, last = run.values[node.x], len(node.table) - 1
    _check_bytes(run, "lookup", x, last, mask, f"above {last}")
    run.values[node] = arith.lookup(x & np.uint32(0x01010101 * last), node.table)


def _check_bytes(run: Run, name: str, u: Array, most: int, mask: Mask, what: str) -> None:
    largest = np.ascontiguousarray(u)[..., None].view(np.uint8).max(axis=-1)
    wrong = _active(largest > most, mask)
    if wrong.any():
        raise run.fail(name, wrong, lambda at: f"has a byte {_pick(largest, at)} {what}")


def _shuffle(run: Run, node: n.Shuffle, mask: Mask) -> None:
    lanes = run.program.lanes
    both = [np.broadcast_to(v, (v.shape[0], lanes)) for v in (run.array(node.a), run.array(node.b))]
    rows = max(v.shape[0] for v in both)
    joined = np.concatenate([np.broadcast_to(v, (rows, lanes)) for v in both], axis=1)
    run.values[node] = joined[:, list(node.lanes)]


def _permute(run: Run, node: n.Permute, mask: Mask) -> None:
    lanes = run.program.lanes
    x, at = run.array(node.x), run.array(node.at)
    rows = max(x.shape[0], at.shape[0])
    table, places = (np.broadcast_to(v, (rows, lanes)) for v in (x, at))
    run.values[node] = np.take_along_axis(table, (places % lanes).astype(np.intp), axis=1)


def _broadcast(run: Run, node: n.Broadcast, mask: Mask) -> None:
    v = run.values[node.x]
    run.values[node] = (
        v if isinstance(v, int) or v.shape[1] == 1 else v[:, node.lane : node.lane + 1]
    )


def _vote(run: Run, node: n.Vote, mask: Mask) -> None:
    x = run.values[node.x]
    if node.op == "any":
        run.values[node] = _active(x, mask).any(axis=1, keepdims=True)
    else:
        run.values[node] = (x if mask is None else x | ~mask).all(axis=1, keepdims=True)


# -- memory ----------------------------------------------------------------------------------------


def _addresses(run: Run, buffer: n.Buffer, at: Datum, mask: Mask) -> Datum:
    """Bounds-checked positions in the array of the buffer; inactive invocations get position 0."""
    count = run.counts[buffer]
    if mask is not None and not isinstance(at, int):  # an int: some invocation is active
        at = np.where(_shrink(mask, at), at, 0)
    if _low(at) < 0 or _high(at) >= count:
        wrong = _active(np.atleast_2d(np.less(at, 0) | np.greater_equal(at, count)), mask)
        if wrong.any():
            raise run.fail(
                f"buffer {buffer.name}",
                wrong,
                lambda i: f"has {count} elements, index {_pick(at, i)}",
            )
    if not buffer.is_scratch:
        return at
    if buffer.space == "private":
        _check_own(run, buffer, at, mask)
    return at + np.arange(run.shape[0], dtype=np.int64)[:, None] * count


def _check_own(run: Run, buffer: n.Buffer, at: Datum, mask: Mask) -> None:
    lanes = run.program.lanes
    owner = np.atleast_2d(at % lanes)
    strange = _active(owner != np.arange(lanes), mask)
    if strange.any():
        told = "is private, index {} is that of invocation {}"
        raise run.fail(
            f"buffer {buffer.name}", strange, lambda i: told.format(_pick(at, i), _pick(owner, i))
        )


def _shrink(mask: Array, at: Array) -> Array:
    """The mask, reduced to the axes of `at`: an address that several invocations share is accessed
    if one of them is active."""
    shared = tuple(axis for axis in (0, 1) if at.shape[axis] == 1)
    return np.any(mask, axis=shared, keepdims=True) if shared else mask


def _guard(run: Run, node: n.Load | n.Store | n.Atomic, mask: Mask) -> tuple[Mask, Mask]:
    """Which invocations access memory, and of a program that nobody vouches for those whose index
    is inside the buffer. None: all are, or it is an error if they are not."""
    if not run.program.guarded:
        return mask, None
    at = run.values[node.at]
    inside = np.atleast_2d(np.greater_equal(at, 0) & np.less(at, run.counts[node.buffer]))
    return (mask, None) if inside.all() else (_active(inside, mask), inside)


def _is_empty(active: Mask, inside: Mask) -> bool:
    """Are all invocations outside the buffer?"""
    return inside is not None and active is not None and not active.any()


def _buffer_length(run: Run, node: n.BufferLength, mask: Mask) -> None:
    run.values[node] = run.counts[node.buffer]


def _atomic(run: Run, node: n.Atomic, mask: Mask) -> None:
    memory = run.memory[node.buffer]
    mask, inside = _guard(run, node, mask)
    if _is_empty(mask, inside):
        run.values[node] = np.zeros(run.shape, memory.dtype)
        return
    positions = _addresses(run, node.buffer, run.values[node.at], mask)
    if run.races is not None and memory.size:
        run.races.atomic(node.buffer, positions, mask)
    active = np.broadcast_to(np.True_ if mask is None else mask, run.shape)
    operands = [v for v in (node.value, node.expected) if v is not None]
    at, *given = (
        np.broadcast_to(v, run.shape)[active] for v in (positions, *map(run.array, operands))
    )
    run.values[node] = np.zeros(run.shape, memory.dtype)
    run.values[node][active] = atomics.apply(node.op, node.dtype, memory, at, *given)


def _load(run: Run, node: n.Load, mask: Mask) -> None:
    memory = run.memory[node.buffer]
    mask, inside = _guard(run, node, mask)
    # bounds are checked, so of an empty buffer no invocation is active
    if memory.size == 0 or _is_empty(mask, inside):
        run.values[node] = _datum(np.zeros((1, 1), memory.dtype), node.dtype)
        return
    positions = _addresses(run, node.buffer, run.values[node.at], mask)
    if run.races is not None:
        run.races.load(node.buffer, positions, mask)
    loaded = np.atleast_2d(memory[positions])
    zero = np.zeros((), memory.dtype)
    run.values[node] = _datum(
        loaded if inside is None else np.where(inside, loaded, zero), node.dtype
    )


def _datum(v: Array, dtype: DType) -> Datum:
    return int(v[0, 0]) if dtype is index_type and v.size == 1 else v


def _store(run: Run, node: n.Store, mask: Mask) -> None:
    mask, inside = _guard(run, node, mask)
    if _is_empty(mask, inside):
        return
    positions = _addresses(run, node.buffer, run.values[node.at], mask)
    memory, value = run.memory[node.buffer], run.values[node.value]
    if run.races is not None and memory.size:
        run.races.store(node, positions, run.array(node.value), mask, memory)
    if mask is None:
        positions, value = np.broadcast_arrays(positions, value)
        memory[positions] = value
    else:
        positions, value, active = np.broadcast_arrays(positions, value, mask)
        memory[positions[active]] = value[active]


def _local(run: Run, node: n.Local, mask: Mask) -> None:
    run.values[node] = run.values[node.init]


def _get(run: Run, node: n.Get, mask: Mask) -> None:
    run.values[node] = run.values[node.local]


def _set(run: Run, node: n.Set, mask: Mask) -> None:
    value = run.values[node.value]
    run.values[node.local] = (
        value if mask is None else np.where(mask, value, run.values[node.local])
    )


# -- control ---------------------------------------------------------------------------------------


def _for(run: Run, node: n.For, mask: Mask) -> None:
    start, stop = (_group_uniform(run, run.values[v], mask) for v in (node.start, node.stop))
    if isinstance(start, int) and isinstance(stop, int):
        for i in range(start, stop, node.step):
            run.values[node.counter] = i
            run.block(node.body, mask)
        return
    counter = start
    while (going := _active(np.less(counter, stop), mask)).any():
        run.values[node.counter] = counter
        run.block(node.body, None if going.all() else going)
        counter = counter + node.step


def _group_uniform(run: Run, bound: Datum, mask: Mask) -> Datum:
    """A loop bound as an int, or as one number per workgroup; active lanes must agree."""
    if isinstance(bound, int) or bound.shape[1] == 1:
        return bound
    active = np.broadcast_to(np.True_ if mask is None else mask, bound.shape)
    first = np.take_along_axis(bound, active.argmax(axis=1, keepdims=True), axis=1)
    wrong = active & (bound != first)
    if wrong.any():
        raise run.fail(
            "loop bound",
            wrong,
            lambda at: f"{_pick(bound, at)} and {_pick(first, at)} in one workgroup",
        )
    return first


def _while(run: Run, node: n.Repeat, mask: Mask) -> None:
    while (going := _active(np.atleast_2d(run.values[node.local]), mask)).any():
        run.block(node.body, None if going.all() else going)
        if run.gone is not None:
            mask = _active(~run.gone, mask)


def _if(run: Run, node: n.If, mask: Mask) -> None:
    cond = run.values[node.cond]
    _branch(run, node.then, cond, mask)
    if node.orelse:
        _branch(run, node.orelse, ~cond, mask)


def _branch(run: Run, block: n.Block, cond: Array, mask: Mask) -> None:
    """Run the block for the invocations where cond is true; skip it if there are none."""
    if cond.all():
        run.block(block, mask)
    elif (inside := _active(cond, mask)).any():
        run.block(block, inside)


def _trap(run: Run, node: n.Trap, mask: Mask) -> None:
    fired = _active(run.values[node.cond], mask)
    if not fired.any():
        return
    place = run.first(fired)
    value = _pick(run.values[node.value], place)
    text = f"{run.program.name}: trap {node.code}, value {value}\n  in {run.describe(place)}"
    raise KernelTrap(text, node.code, value)


def _return(run: Run, node: n.Return, mask: Mask) -> None:
    leaving = np.ones((1, 1), np.bool_) if mask is None else mask
    run.gone = leaving if run.gone is None else run.gone | leaving


def _region(run: Run, node: n.Region, mask: Mask) -> None:
    run.regions.append(node.generator)
    run.block(node.body, mask)
    run.regions.pop()


def _barrier(run: Run, node: n.Instr, mask: Mask) -> None:
    """Of a workgroup all come here, or none; verified programs cannot do otherwise."""
    here = np.broadcast_to(np.True_ if mask is None else mask, run.shape)
    missing = here.any(axis=1, keepdims=True) & ~here
    if missing.any():
        where = run.describe(run.first(missing))
        message = f"{run.program.name}: not every invocation reached the barrier\n  in {where}"
        raise VerifyError("V010", message)
    if run.races is not None:
        run.races.barrier(mask)


def _nothing(run: Run, node: n.Instr, mask: Mask) -> None:
    """Prefetch is a hint: no effect."""


RULES: dict[type[n.Instr], Callable[[Run, Any, Mask], None]] = {
    n.Const: _const,
    n.Arg: _arg,
    n.Id: _id,
    n.BufferLength: _buffer_length,
    n.Load: _load,
    n.Store: _store,
    n.Atomic: _atomic,
    n.Binary: _binary,
    n.Compare: _compare,
    n.Unary: _unary,
    n.Select: _select,
    n.Cast: _cast,
    n.Bitcast: _bitcast,
    n.Fma: _fma,
    n.Dot4: _dot4,
    n.Dot2: _dot2,
    n.Lookup: _lookup,
    n.Shuffle: _shuffle,
    n.Permute: _permute,
    n.Broadcast: _broadcast,
    n.Vote: _vote,
    n.Local: _local,
    n.Get: _get,
    n.Set: _set,
    n.For: _for,
    n.Repeat: _while,
    n.If: _if,
    n.Barrier: _barrier,
    n.Return: _return,
    n.Trap: _trap,
    n.Prefetch: _nothing,
    n.Region: _region,
}
