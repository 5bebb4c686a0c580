"""Operands to test derivatives and batching with, for every op of the registry that draws cases.

`smooth` gives operands inside the domain of the op, away from kinks, ties and jumps, so that
differences mean something; `wild` gives what the op draws itself, for laws that hold for every
value. Shapes and settings are those of the cases.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import Any

import numpy as np

import tetrad.ops  # noqa: F401  (fills the registry)
from tetrad.core.dtypes import DType, as_dtype
from tetrad.core.op import REGISTRY, Case, Op
from tetrad.core.types import ArrayType

Array = Any  # np.ndarray, or an array of tetrad
Rng = np.random.Generator
LARGEST = 150  # elements of an operand
TRIES = 400
SHAPES = 8  # different ones to choose from

OPS = [o for o in REGISTRY.values() if o.kind != "structural" and o.cases is not None]


def rng_for(what: str, op: Op, dtype: DType | str = "") -> Rng:
    return np.random.default_rng(zlib.crc32(f"{what} {op.name} {dtype}".encode()))


def kinds(arrays: Sequence[Array]) -> list[ArrayType]:
    return [ArrayType(as_dtype(np.asarray(a).dtype), np.shape(a)) for a in arrays]


def is_smooth(dtype: DType) -> bool:
    return dtype.is_float or dtype.is_complex


def result_types(op: Op, case: Case) -> tuple[ArrayType, ...]:
    made = op.type(*kinds(case.args), **case.params)
    return made if isinstance(made, tuple) else (made,)


def is_differentiable_case(op: Op, case: Case) -> bool:
    """A float goes in, and a float comes out."""
    goes_in = any(is_smooth(kind.dtype) for kind in kinds(case.args))
    return goes_in and any(is_smooth(kind.dtype) for kind in result_types(op, case))


def keeps_precision(op: Op, case: Case) -> bool:
    """Differences of numbers rounded to fewer bits say nothing."""
    before, after = (
        min(k.dtype.real.bits for k in types if is_smooth(k.dtype))
        for types in (kinds(case.args), result_types(op, case))
    )
    return after >= before


def small_cases(op: Op, rng: Rng, largest: int = LARGEST, tries: int = TRIES) -> Iterator[Case]:
    assert op.cases is not None
    for _ in range(tries):
        case = op.cases(rng)
        if all(np.size(a) <= largest for a in case.args):
            yield case


def smooth(op: Op, dtype: DType, count: int) -> list[Case]:
    """Cases whose floats (or complex numbers) are of this type; of different shapes, the largest
    and the smallest."""
    by_size = all_smooth(op, dtype)
    return (
        [*by_size[: count - 1], *by_size[-1:]]
        if 1 < count < len(by_size)
        else list(by_size[:count])
    )


@cache
def all_smooth(op: Op, dtype: DType) -> tuple[Case, ...]:
    rng = rng_for("smooth", op, dtype)
    found: dict[Any, Case] = {}
    for case in small_cases(op, rng):
        types = [k.dtype for k in kinds(case.args)]
        if not is_differentiable_case(op, case) or not keeps_precision(op, case):
            continue
        if not any(d is dtype for d in types) or any(
            is_smooth(d) and d not in (dtype, dtype.real) for d in types
        ):
            continue
        found.setdefault(
            tuple(np.shape(a) for a in case.args), Case(tame(op, case, rng), case.params)
        )
        if len(found) == SHAPES:
            break
    return tuple(
        sorted(found.values(), key=lambda c: -min((np.size(a) for a in c.args), default=0))
    )


def wild(op: Op, count: int, largest: int = LARGEST) -> list[Case]:
    """Cases as the op draws them, of different shapes and types."""
    found: dict[Any, Case] = {}
    for case in small_cases(op, rng_for("wild", op), largest):
        found.setdefault(tuple(map(str, kinds(case.args))), case)
        if len(found) == count:
            break
    return list(found.values())


# -- values ----------------------------------------------------------------------------------------


def tame(op: Op, case: Case, rng: Rng) -> tuple[Array, ...]:
    """The case's operands with other floats in them."""
    if op.name in TOGETHER:
        return TOGETHER[op.name](rng, *case.args)
    draw = ALONE.get(op.name, away_from_zero)
    return tuple(
        draw(rng, np.asarray(a)) if is_smooth(as_dtype(np.asarray(a).dtype)) else a
        for a in case.args
    )


def away_from_zero(rng: Rng, like: Array) -> Array:
    size = rng.uniform(0.4, 1.9, like.shape)
    if like.dtype.kind == "c":
        return np.asarray(size * np.exp(1j * rng.uniform(-2.8, 2.8, like.shape))).astype(like.dtype)
    return np.asarray(size * rng.choice((-1.0, 1.0), like.shape)).astype(like.dtype)


def between(low: float, high: float) -> Callable[[Rng, Array], Array]:
    """Floats in an interval; complex numbers with a small imaginary part beside it, away from
    branch cuts."""

    def draw(rng: Rng, like: Array) -> Array:
        values: Array = rng.uniform(low, high, like.shape)
        if like.dtype.kind == "c":
            values = values + 1j * rng.uniform(0.1, 0.4, like.shape)
        return np.asarray(values).astype(like.dtype)

    return draw


def between_steps(rng: Rng, like: Array) -> Array:
    """A quarter or so above or below a whole number."""
    whole = rng.integers(-3, 4, like.shape)
    return np.asarray(
        whole + rng.choice((-1, 1), like.shape) * rng.uniform(0.15, 0.35, like.shape)
    ).astype(like.dtype)


def all_different(rng: Rng, like: Array) -> Array:
    values = (rng.permutation(like.size) - like.size // 2) * 0.07 + 0.03
    return values.reshape(like.shape).astype(like.dtype)


def quotients_between_steps(rng: Rng, x: Array, y: Array) -> tuple[Array, Array]:
    y = away_from_zero(rng, y)
    return (y * between_steps(rng, x)).astype(x.dtype), y


def never_equal(rng: Rng, x: Array, y: Array) -> tuple[Array, Array]:
    x = away_from_zero(rng, x)
    return x, x + away_from_zero(rng, y)


def rows_apart(rng: Rng, x: Array, updates: Array, indices: Array) -> tuple[Array, ...]:
    """No element of the rows and no update equals another."""
    values = all_different(rng, np.empty(x.size + updates.size, x.dtype))
    return values[: x.size].reshape(x.shape), values[x.size :].reshape(updates.shape), indices


def powers(rng: Rng, x: Array, y: Array) -> tuple[Array, Array]:
    return between(0.4, 2.0)(rng, x), away_from_zero(rng, y)


POSITIVE = between(0.4, 2.0)
ALONE: dict[str, Callable[[Rng, Array], Array]] = {
    **dict.fromkeys(("log", "log2", "log10", "sqrt", "rsqrt", "steady_log"), POSITIVE),
    **dict.fromkeys(("asin", "acos", "atanh", "log1p"), between(-0.8, 0.8)),
    **dict.fromkeys(("floor", "ceil", "trunc", "round"), between_steps),
    **dict.fromkeys(("reduce_max", "reduce_min", "sort", "topk"), all_different),
    "acosh": between(1.3, 3.0),
    **dict.fromkeys(("tan", "tanh", "atan"), between(-1.1, 1.1)),
    "normal_upper": between(0.2, 0.45),
    "reduce_prod": between(0.8, 1.2),
}
TOGETHER: dict[str, Callable[..., tuple[Array, ...]]] = {
    # tables that turn each other around
    "resample": lambda rng, x, *tables: (away_from_zero(rng, np.asarray(x)), *tables),
    "remainder": quotients_between_steps,
    "floor_divide": quotients_between_steps,
    "minimum": never_equal,
    "maximum": never_equal,
    **dict.fromkeys(("maximum_at", "minimum_at"), rows_apart),
    "pow": powers,
}


def random_like(rng: Rng, like: Array) -> Array:
    """A direction: numbers between -1 and 1."""
    kind = kinds([like])[0]
    values: Array = rng.uniform(-1, 1, kind.shape)
    if kind.dtype.is_complex:
        values = values + 1j * rng.uniform(-1, 1, kind.shape)
    return np.asarray(values).astype(kind.dtype.np)
