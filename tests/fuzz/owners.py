"""Arrays that their owners change between programs. A seed picks an array, how its memory is owned,
and what is done with it; then the owner writes to it.

What must hold: results that were there do not change, a program keeps the value it saw, programs
with equal constants are right, and nobody can write to an array of ours through what it exports.
"""

from __future__ import annotations

import copy
import ctypes
import mmap
import pickle
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import numpy as np

import tetrad as td
from tetrad.core.tree import flatten

Array = np.ndarray
# an array to hand over, and how its owner writes new values to it
Owned = tuple[Array, Callable[[Array], None]]

# -- how memory is owned ---------------------------------------------------------------------------


def plain(values: Array) -> Owned:
    mine = values.copy()
    return mine, lambda new: np.copyto(mine, new)


def aligned(values: Array) -> Owned:
    """At a cache line, where kernels may read it in place."""
    room = np.zeros(values.nbytes + 64, np.uint8)
    skip = -room.ctypes.data % 64
    mine = room[skip : skip + values.nbytes].view(values.dtype).reshape(values.shape)
    mine[...] = values
    return mine, lambda new: np.copyto(mine, new)


def shown(values: Array) -> Owned:
    """A read-only view of what its owner can write to."""
    mine, write = plain(values)
    view = mine.view()
    view.flags.writeable = False
    return view, write


def locked(values: Array) -> Owned:
    """Read-only, until its owner thinks better of it."""
    mine = values.copy()
    mine.flags.writeable = False

    def write(new: Array) -> None:
        mine.flags.writeable = True
        mine[...] = new
        mine.flags.writeable = False

    return mine, write


def sliced(values: Array) -> Owned:
    room = np.zeros((*values.shape, 2), values.dtype)
    room[..., 1] = values
    return room[..., 1], lambda new: np.copyto(room[..., 1], new)


def turned(values: Array) -> Owned:
    mine = np.array(values, order="F")
    return mine, lambda new: np.copyto(mine, new)


def in_bytearray(values: Array) -> Owned:
    room = bytearray(values.tobytes())
    hidden = memoryview(room).toreadonly()

    def write(new: Array) -> None:
        room[:] = new.tobytes()

    return np.ndarray(values.shape, values.dtype, hidden), write


def in_ctypes(values: Array) -> Owned:
    room = (ctypes.c_uint8 * values.nbytes).from_buffer_copy(values.tobytes())
    return np.ndarray(values.shape, values.dtype, room), lambda new: np.copyto(
        np.frombuffer(room, np.uint8), raw(new)
    )


def in_map(values: Array) -> Owned:
    room = mmap.mmap(-1, values.nbytes)
    room[:] = values.tobytes()
    view = np.ndarray(values.shape, values.dtype, room)
    view.flags.writeable = False
    return view, lambda new: room.__setitem__(slice(None), new.tobytes())


class Foreign:
    """An array of another library: NumPy sees its memory."""

    def __init__(self, values: Array) -> None:
        self.values = values

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        return self.values


OWNERS: dict[str, Callable[[Array], Owned]] = {
    one.__name__: one
    for one in (plain, aligned, shown, locked, sliced, turned, in_bytearray, in_ctypes, in_map)
}


def raw(values: Array) -> Array:
    return np.frombuffer(values.tobytes(), np.uint8)


# -- what is done with it: a function from the array to a function of x ----------------------------
# Those in PROGRAMS close over the array; those in RESULTS take it as an argument, their results are
# made at once.


def in_scan(k: Array) -> Any:
    return td.jit(
        lambda x: td.scan(
            lambda c, row: (c + k.sum(dtype=k.dtype), row * k), x, td.stack([x, x + 1])
        )[1]
    )


def in_branch(k: Array) -> Any:
    return td.jit(lambda x: td.cond(td.sum(x) > 0, lambda y: y * k, lambda y: y - k, x))


def in_loop(k: Array) -> Any:
    return td.jit(lambda x: td.fori_loop(0, 3, lambda i, y: y * 0.5 + k, x))


def in_while(k: Array) -> Any:
    return td.jit(
        lambda x: td.while_loop(lambda s: s[0] < 3, lambda s: (s[0] + 1, s[1] - k), (0, x))[1]
    )


def in_rule(k: Array) -> Any:
    """Of a derivative: the function has another value than the rule."""

    @td.custom_vjp
    def f(x: Any) -> Any:
        return td.sum(x * k)

    f.defvjp(lambda x: (f(x), None), lambda _, g: (g * (k + 1),))
    return td.jit(td.value_and_grad(f))


def nested(k: Array) -> Any:
    inner = td.jit(lambda x: x - k)
    return td.jit(lambda x: inner(x) + inner(x * 2) * k)


PROGRAMS: dict[str, Callable[[Array], Any]] = {
    "jit": lambda k: td.jit(lambda x: x * k + 1.0),
    "jit, twice": lambda k: td.jit(lambda x: (x + k) * (k - x)),
    "jit of an argument": lambda k: td.jit(lambda x: td.jit(lambda a, b: a * b)(x, k)),
    "jit of grad": lambda k: td.jit(td.grad(lambda x: td.sum(x * x * k))),
    "jit of vmap": lambda k: td.jit(lambda x: td.vmap(lambda row: row + k)(td.stack([x, x]))),
    "jit of asarray": lambda k: td.jit(lambda x: td.asarray(k) + x),
    "jit of a foreign array": lambda k: td.jit(lambda x: x + Foreign(k)),
    "jit that returns it": lambda k: td.jit(lambda x: (x, td.asarray(k))),
    "jit of at": lambda k: td.jit(lambda x: (x * 0.0).at[...].set(k) if x.ndim else x + k),
    "nested": nested, "scan": in_scan, "cond": in_branch, "fori_loop": in_loop,
    "while_loop": in_while, "rule": in_rule,
}  # fmt: skip


def donated(k: Array) -> Any:
    return td.jit(lambda x: x + 1, donate_argnums=0)(td.asarray(k))


RESULTS: dict[str, Callable[[Array], Any]] = {
    "asarray": td.asarray,
    "asarray of a list": lambda k: td.asarray([k]),
    "asarray of a foreign array": lambda k: td.asarray(Foreign(k)),
    "from_dlpack": lambda k: td.from_dlpack(np.array(k) if not k.flags.writeable else k),
    "identity": td.jit(lambda x: x),
    "two of it": td.jit(lambda x: (x, x)),
    "donated": donated,
    "given up": lambda k: td.jit(lambda x: x, donate_argnums=0)(k),
    "reshape": lambda k: td.reshape(k, (-1,)),
    "expand_dims": lambda k: td.expand_dims(k, axis=0),
    "permute": lambda k: td.permute_dims(k, tuple(range(k.ndim))[::-1]),
    "broadcast_to": lambda k: td.broadcast_to(k, (2, *k.shape)),
    "real": td.real,
    "astype": lambda k: td.astype(k, k.dtype, copy=False),
    "stop_gradient": td.stop_gradient,
    "concat": lambda k: td.concat([td.reshape(k, (-1,))]),
    "index": lambda k: td.asarray(k)[...],
    "grad": lambda k: td.grad(lambda x: td.sum(x * k))(k * 0 + 1),
    "vjp": lambda k: td.vjp(lambda x: x, k * 0)[1](k),
    "jvp": lambda k: td.jvp(lambda x: x, (k * 0,), (k,)),
    "linearize": lambda k: td.linearize(lambda x: x, k)[1](k),
    "vmap": lambda k: td.vmap(lambda row: row)(np.broadcast_to(k, (2,
    *k.shape))) if k.size else td.asarray(k),
    "vmap of it": lambda k: td.vmap(lambda row: row, in_axes=None, axis_size=2)(k),
    "scan": lambda k: td.scan(lambda c, x: (c, c), k, None, length=2),
    "cond": lambda k: td.cond(True, lambda x: x, lambda x: x, k),
    "while_loop": lambda k: td.while_loop(lambda x: td.any(x != x), lambda x: x, k),
    "copied": lambda k: copy.copy(td.asarray(k)),
    "pickled": lambda k: unpickled(td.asarray(k)),
    "from_bytes": lambda k: td.quant.from_bytes(np.ascontiguousarray(k).reshape(1, -1), "f32", (1,
    k.size)),
}  # fmt: skip


def unpickled(x: Any) -> Any:
    """From buffers that somebody can write to, and does."""
    buffers: list[pickle.PickleBuffer] = []
    data = pickle.dumps(x, protocol=5, buffer_callback=buffers.append)
    rooms = [bytearray(buffer) for buffer in buffers]
    found = pickle.loads(data, buffers=rooms)
    for room in rooms:
        room[:] = bytes(len(room))
    return found


# -- checks ----------------------------------------------------------------------------------------

SHAPES = ((), (1,), (3,), (2, 3), (1024,), (1025,), (33, 40), (3, 4096))
VALUES = ("zeros", "ones", "one value", "numbers")


def values(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    how = VALUES[rng.integers(len(VALUES))]
    fixed = {"zeros": 0.0, "ones": 1.0, "one value": float(rng.integers(2, 9))}
    numbers = rng.integers(-8, 9, shape).astype(np.float32)
    return (
        np.full(shape, fixed[how], np.float32) if how in fixed else np.asarray(numbers, np.float32)
    )


def check(seed: int) -> str | None:
    """None if all holds for the array of this seed, else what does not."""
    rng = np.random.default_rng(seed)
    shape = SHAPES[rng.integers(len(SHAPES))]
    before, after, x = (values(rng, shape) for _ in range(3))
    after += np.float32(0.5)  # so it differs from the other two
    owner = str(rng.choice(sorted(OWNERS)))
    program, result = str(rng.choice(sorted(PROGRAMS))), str(rng.choice(sorted(RESULTS)))
    told = f"tests.fuzz.owners.check({seed}): f32{list(shape)} {owner}"
    found = [
        check_program(program, OWNERS[owner], before, after, x),
        check_result(result, OWNERS[owner], before, after),
        check_exports("asarray", td.asarray(before)),
        check_exports("jit", td.jit(lambda x: x + 0.0)(before)),
    ]
    wrong = [message for message in found if message]
    return f"{told}: {'; '.join(wrong)}" if wrong else None


def leaves(result: Any) -> list[bytes]:
    return [
        np.ascontiguousarray(np.asarray(leaf)).tobytes()
        for leaf in flatten(result)[0]
        if leaf is not None
    ]


def check_program(
    name: str, owner: Callable[[Array], Owned], before: Array, after: Array, x: Array
) -> str | None:
    """What the program gives is what one gives over memory that nobody writes to, at first and at
    last."""
    want = leaves(PROGRAMS[name](before)(x))
    mine, write = owner(before)
    f = PROGRAMS[name](mine)
    first = f(x)
    write(after)
    if leaves(first) != want:
        return f"{name}: a result changed, or was never right"
    if leaves(f(x)) != want:
        return f"{name}: the second call is not what the program saw at first"
    if leaves(PROGRAMS[name](before.copy())(x)) != want:
        return f"{name}: a program with an equal constant is wrong"
    if leaves(PROGRAMS[name](mine)(x)) != leaves(PROGRAMS[name](after)(x)):
        return f"{name}: a new program does not see the new values"
    return check_others(before, x)


def check_result(
    name: str, owner: Callable[[Array], Owned], before: Array, after: Array
) -> str | None:
    want = leaves(RESULTS[name](before.copy()))
    mine, write = owner(before)
    first = RESULTS[name](mine)
    was_writable = mine.flags.writeable
    write(after)
    if leaves(first) != want:
        return f"{name}: a result changed with its argument"
    exported = [np.asarray(leaf) for leaf in flatten(first)[0] if leaf is not None]
    if any(np.may_share_memory(part, mine) for part in exported):
        return f"{name}: a result lies in its argument's memory"
    if mine.flags.writeable != was_writable:
        return f"{name}: the owner's array is no longer what it was"
    return None


def check_others(before: Array, x: Array) -> str | None:
    """Programs that have nothing to do with the array, but constants like it."""
    scalar = float(before.reshape(-1)[0])
    got = np.asarray(td.jit(lambda x: td.maximum(x + scalar, 0.0) * 1.0 + np.zeros_like(before))(x))
    want = np.maximum(x + np.float32(scalar), np.float32(0))
    return (
        None
        if np.array_equal(got, want)
        else f"another program with the constants {scalar}, 0 and 1 is wrong"
    )


def check_exports(name: str, x: Any) -> str | None:
    want = x.tolist()
    for how, export in EXPORTS.items():
        with suppress(ValueError, TypeError):  # it is read-only
            overwrite(export(x))
        if x.tolist() != want:
            return f"an array of {name} can be written to through {how}"
    return None


EXPORTS: dict[str, Callable[[Any], Any]] = {
    "np.asarray": np.asarray,
    "__array__": lambda x: x.__array__(),
    "np.from_dlpack": np.from_dlpack,
    "DLPack before 1.0": lambda x: as_c_sees_it(np.from_dlpack(Old(x))),
    "the buffer": lambda x: np.asarray(x.__buffer__(0)),
    "a view of a view": lambda x: np.asarray(x).reshape(-1)[:1].base,
    "np.array, not copied": lambda x: np.array(x, copy=None),
}


class Old:
    """A consumer that knows nothing of versions."""

    def __init__(self, x: Any) -> None:
        self.x = x

    def __dlpack__(self, **_: Any) -> Any:
        return self.x.__dlpack__()

    def __dlpack_device__(self) -> Sequence[int]:
        return self.x.__dlpack_device__()  # type: ignore[no-any-return]


def as_c_sees_it(array: Array) -> Array:
    """The memory of an array as a library sees it that knows nothing of flags."""
    memory = (ctypes.c_uint8 * array.nbytes).from_address(array.ctypes.data)
    memory.array = array  # type: ignore[attr-defined]  # which owns it
    return np.frombuffer(memory, np.uint8)


def overwrite(exported: Array) -> None:
    if not exported.flags.writeable:
        exported.flags.writeable = True
    exported[...] = 77
