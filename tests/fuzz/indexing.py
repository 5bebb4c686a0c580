"""Random indices against NumPy: `x[key]` and every change of `x.at[key]`, at once, compiled, traced
and batched.

`check(seed)` draws a small array, a key of any mixture (numbers, slices, None, Ellipsis, arrays,
lists, masks, truth values) and values; None means that all ways give NumPy's bits, or an error
where NumPy gives one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

import tetrad as td
from tetrad.core.errors import TetradError

Array = np.ndarray
Rng = np.random.Generator
DTYPES = ("float32", "float64", "float16", "int32", "int8", "uint8", "complex64", "bool")
SPECIAL = (0.0, -0.0, np.nan, np.inf, -np.inf, 1e8, 3.0, -2.5)
UFUNCS = {
    "add": np.add, "subtract": np.subtract, "multiply": np.multiply, "divide": np.divide,
    "min": np.minimum,
    "max": np.maximum,
}  # fmt: skip
PLAIN = ("get", "set", "apply")
MODES = (None, None, None, "clip", "drop")
EDGE = 9  # wider than any index drawn is out of range


@dataclass(frozen=True)
class Draw:
    """One case: x.at[key].<change>(values, mode=mode), or x[key] for `get`."""

    x: Array
    key: tuple[Any, ...]
    change: str
    values: Array
    mode: str | None


def check(seed: int) -> str | None:
    draw = drawn(seed)
    want = by_numpy(draw)
    if isinstance(want, str) and selects_nothing(draw):
        return None  # an index out of range may then pass
    for name, way in WAYS.items():
        found = outcome(lambda way=way: way(draw))
        if not is_same(found, want, draw.change):
            return f"seed {seed}, {name}: {draw}\n  want {want!r}\n  found {found!r}"
    return None


def selects_nothing(draw: Draw) -> bool:
    picked = (
        np.zeros(0)
        if 0 in draw.x.shape
        else outcome(lambda: positions(draw.x.shape, draw.key, "clip"))
    )
    return not isinstance(picked, str) and not picked.size


def outcome(call: Callable[[], Any]) -> Array | str:
    try:
        return np.asarray(call())
    except (TetradError, IndexError) as error:
        return f"error: {error}"


def is_same(found: Array | str, want: Array | str, change: str) -> bool:
    """To the bit, but for the payload of NaN, and for the sign of a least or greatest zero."""
    if isinstance(found, str) or isinstance(want, str):
        return isinstance(found, str) and isinstance(want, str)
    if found.shape != want.shape or found.dtype != want.dtype:
        return False
    if found.dtype.kind not in "fc":
        return bool((found == want).all())
    parts = [np.stack([a.real, a.imag]) for a in (found, want)]
    signs = change in ("min", "max") or (parts[0] == 0) <= (
        np.signbit(parts[0]) == np.signbit(parts[1])
    )
    return np.array_equal(parts[0], parts[1], equal_nan=True) and bool(np.all(signs))


# -- drawing ---------------------------------------------------------------------------------------


def drawn(seed: int) -> Draw:
    rng = np.random.default_rng(seed)
    shape = tuple(int(n) for n in rng.choice([1, 2, 2, 3, 3, 4, 0], rng.integers(0, 5)))
    x = numbers(rng, str(rng.choice(DTYPES)), shape)
    key = tuple(keys(rng, shape))
    mode = None if 0 in shape else MODES[int(rng.integers(len(MODES)))]
    key = key if mode is None else tuple(further(rng, part) for part in key)
    picked = outcome(lambda: positions(shape, key, mode))
    names = [*PLAIN, *(n for n in UFUNCS if fits(n, x.dtype))]
    change = str(rng.choice(names))
    values = numbers(
        rng, x.dtype.name, broadcast_to(rng, () if isinstance(picked, str) else picked.shape)
    )
    return Draw(x, key, change, values, None if change == "get" and mode == "drop" else mode)


def fits(change: str, dtype: np.dtype) -> bool:
    """What NumPy does in place, to the bit: no quotients of integers and complex numbers, no order
    of the latter."""
    if dtype.kind == "b":
        return False
    return dtype.kind == "f" or change not in (
        {"divide", "min", "max"} if dtype.kind == "c" else {"divide"}
    )


def numbers(rng: Rng, dtype: str, shape: tuple[int, ...]) -> Array:
    if dtype == "bool":
        return rng.random(shape) < 0.5
    if "int" in dtype:
        return rng.integers(0, 120, shape).astype(dtype)
    usual = np.round(rng.standard_normal(shape), 2)
    with np.errstate(over="ignore"):
        return np.where(rng.random(shape) < 0.3, rng.choice(SPECIAL, shape), usual).astype(dtype)


def keys(rng: Rng, shape: tuple[int, ...]) -> Iterator[Any]:
    """Parts for some of the axes, with what takes none between them."""
    together = tuple(int(n) for n in rng.choice([1, 2, 3], rng.integers(0, 3)))
    axis, has_dots = 0, False
    stop = int(rng.integers(0, len(shape) + 1))
    while axis < stop or rng.random() < 0.25:
        roll = rng.random()
        if roll < 0.1:
            yield None
        elif roll < 0.25 and not has_dots:
            has_dots = True
            yield Ellipsis
        elif roll < 0.3:
            yield [True, np.True_, np.array(True), False][int(rng.integers(4))]
        elif axis < stop:
            part, taken = part_of(rng, shape[axis:], together)
            axis += taken
            yield part


def part_of(rng: Rng, sizes: tuple[int, ...], together: tuple[int, ...]) -> tuple[Any, int]:
    """A part of a key, and how many axes it takes."""
    size, roll = sizes[0], rng.random()
    if roll < 0.3:
        return slice(
            *(None if rng.random() < 0.5 else int(rng.integers(-4, 5)) for _ in range(2)), step(rng)
        ), 1
    if roll < 0.5:
        return int(rng.integers(-size, size)) if size else 0, 1
    if roll < 0.6:
        rank = int(rng.integers(1, len(sizes) + 1))
        return rng.random(sizes[:rank]) < 0.5, rank
    index = rng.integers(-size, size, broadcast_to(rng, together)) if size else np.zeros(0, int)
    kind = str(rng.choice(["int32", "int64", "int8", "list"]))
    return (
        index.tolist()
        if kind == "list" and index.ndim
        else index.astype("int64" if kind == "list" else kind)
    ), 1


def step(rng: Rng) -> int | None:
    return (None, 1, 2, -1, -2)[int(rng.integers(5))]


def broadcast_to(rng: Rng, shape: tuple[int, ...]) -> tuple[int, ...]:
    """A shape that broadcasts to this one."""
    kept = shape[int(rng.integers(0, len(shape) + 1)) :]
    return tuple(1 if rng.random() < 0.2 else n for n in kept)


def further(rng: Rng, part: Any) -> Any:
    """Some indices out of range."""
    if isinstance(part, Array) and part.dtype.kind == "i":
        return part + np.where(
            rng.random(part.shape) < 0.3, rng.choice([-4, 4], part.shape), 0
        ).astype(part.dtype)
    return part


# -- NumPy -----------------------------------------------------------------------------------------


def by_numpy(draw: Draw) -> Array | str:
    """The change made at one place after the other."""
    picked = outcome(lambda: positions(draw.x.shape, draw.key, draw.mode))
    if isinstance(picked, str):
        return picked
    if draw.change == "get":
        return draw.x.reshape(-1)[picked]
    result = draw.x.reshape(-1).copy()
    inside = picked >= 0
    places, values = picked[inside], np.broadcast_to(draw.values, picked.shape)[inside]
    with np.errstate(all="ignore"):
        if draw.change == "set":
            result[places] = values
        elif draw.change == "apply":
            np.invert.at(result, places) if result.dtype == bool else np.negative.at(result, places)
        else:
            UFUNCS[draw.change].at(result, places, values)
    return result.reshape(draw.x.shape)


def positions(shape: tuple[int, ...], key: tuple[Any, ...], mode: str | None) -> Array:
    """The flat positions that NumPy selects; -1 where an index is out of range and the mode says
    so."""
    flat = np.arange(int(np.prod(shape))).reshape(shape)
    if mode is None:
        return flat[key]
    dots = [i for i, part in enumerate(key) if part is Ellipsis]
    taken = [axes_of(part) for part in key]
    at, moved, padded = 0, [], np.pad(flat, EDGE, constant_values=-1)
    for i, part in enumerate(key):
        moved.append(shifted(part, shape[at : at + taken[i]], mode))
        at = len(shape) - sum(taken[i + 1 :]) if i in dots else at + taken[i]
    inner = tuple(slice(EDGE, -EDGE) for _ in shape)
    return padded[filled(inner, tuple(moved), taken, dots)]


def axes_of(part: Any) -> int:
    if part is None or part is Ellipsis:
        return 0
    found = np.asarray(part)
    return found.ndim if found.dtype == bool else 1


def shifted(part: Any, sizes: tuple[int, ...], mode: str) -> Any:
    """The part for an array with an edge around it."""
    if part is None or part is Ellipsis:
        return part
    if isinstance(part, slice):
        at = np.arange(sizes[0])[part] + EDGE
        last = int(at[-1]) + int(part.step or 1) if len(at) else EDGE
        return slice(int(at[0]) if len(at) else EDGE, last, part.step)
    found = np.asarray(part)
    if found.dtype == bool:
        return np.pad(found, EDGE) if found.ndim else part
    from_start = np.where(found < 0, found.astype(int) + sizes[0], found)
    return (np.clip(from_start, 0, sizes[0] - 1) if mode == "clip" else from_start) + EDGE


def filled(
    inner: tuple[slice, ...], key: tuple[Any, ...], taken: list[int], dots: list[int]
) -> tuple[Any, ...]:
    """The key with a slice of the middle for every axis that it leaves out; an Ellipsis of no width
    stays."""
    left = inner[sum(taken) :]
    if not dots:
        return (*key, *left)
    return (*key[: dots[0]], *(left or (Ellipsis,)), *key[dots[0] + 1 :])


# -- ways ------------------------------------------------------------------------------------------


def changed(x: Any, key: Any, values: Any, draw: Draw) -> Any:
    if draw.change == "get":
        return x[key] if draw.mode is None else x.at[key].get(mode=draw.mode)
    if draw.change == "apply":
        function = td.logical_not if draw.x.dtype == bool else td.negative
        return x.at[key].apply(function, mode=draw.mode)
    return getattr(x.at[key], draw.change)(values, mode=draw.mode)


def at_once(draw: Draw) -> Any:
    return changed(td.asarray(draw.x), draw.key, td.asarray(draw.values), draw)


def compiled(draw: Draw) -> Any:
    return td.jit(lambda x, values: changed(x, draw.key, values, draw))(draw.x, draw.values)


def is_traceable(part: Any) -> bool:
    return isinstance(part, Array) and part.dtype.kind == "i"


def with_traced_indices(draw: Draw) -> Any:
    traced = [part for part in draw.key if is_traceable(part)]

    def run(x: Any, values: Any, *indices: Any) -> Any:
        left = iter(indices)
        return changed(
            x, tuple(next(left) if is_traceable(part) else part for part in draw.key), values, draw
        )

    return td.jit(run)(draw.x, draw.values, *traced)


def batched(draw: Draw) -> Any:
    rows = np.stack([draw.x, draw.x[...]])
    both = td.vmap(lambda x: changed(x, draw.key, td.asarray(draw.values), draw))(td.asarray(rows))
    return np.asarray(both)[1]


WAYS: dict[str, Callable[[Draw], Any]] = {
    "at once": at_once,
    "compiled": compiled,
    "traced indices": with_traced_indices,
    "batched": batched,
}
