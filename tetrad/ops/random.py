"""Ops that make random numbers: words from keys, and the distributions that are more than
arithmetic on words.

Words are a function of key and position (Philox4x32-10), so any kernel can compute those it needs,
in any order. The functions are steady ones (kernel/math/reproducible.py): NumPy and machine code
give the same bits.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from tetrad.core.dtypes import DType, as_dtype, f32, f64, i32, i64, u32
from tetrad.core.errors import DtypeError, ShapeError
from tetrad.core.op import Case, op
from tetrad.core.sizes import Shape, Size, product
from tetrad.core.types import ArrayType, row_strides
from tetrad.kernel.math import reproducible as steady
from tetrad.kernel.math.philox import philox, philox_numbers
from tetrad.ops.calculus import batched_as_is, run, times
from tetrad.ops.cases import Rng, pick, random_array, random_shape
from tetrad.ops.movement import At, Reader
from tetrad.ops.rules import Array, check_dtype

if TYPE_CHECKING:
    from tetrad.kernel.build import KernelBuilder, Val

COST = 80  # of four words: ten rounds
MOST = 1 << 32  # words of one key
# the last word of the counter: 0 where words are drawn, 1 where a key is made from a key
CHILDREN = 1
FLOAT_OF = {u32: f32, i64: f64}  # random words (i64: two of them) and the floats they become
NUMBERS = steady.Numbers()


# -- words -----------------------------------------------------------------------------------------


def check_key(name: str, key: ArrayType) -> None:
    if key.dtype is not u32 or key.rank < 1 or key.shape[-1] != 2:
        raise DtypeError(
            f"{name}: expected a key, u32[2], got {key}", hint="make one with td.random.key(seed)"
        )


def random_bits_type(key: ArrayType, *, shape: Shape) -> ArrayType:
    check_key("random_bits", key)
    total: Size = product(shape)
    if (total if isinstance(total, int) else total.max) > MOST:
        raise ShapeError(
            f"random_bits: a key has 2**32 words, {list(shape)} are more",
            hint="split the key first",
        )
    return ArrayType(u32, (*key.shape[:-1], *shape))


def _keys(rng: Rng, rows: tuple[int, ...]) -> Array:
    return rng.integers(0, 1 << 32, (*rows, 2), dtype=np.uint32)


def _bits_cases(rng: Rng) -> Case:
    rows = pick(rng, ((), (), (1,), (3,), (2, 2)))
    return Case((_keys(rng, rows),), {"shape": random_shape(rng, max_rank=2)})


@op(
    type=random_bits_type,
    kind="movement",
    cases=_bits_cases,
    dtypes=(u32,),
    public=False,
    cost=COST,
)
def random_bits(key: Array, *, shape: tuple[int, ...]) -> Array:
    """Random words of a key; element i in row-major order is word i % 4 of the block whose counter
    is i // 4.

    >>> [f"{word:08X}" for word in random_bits(np.array([42, 0], np.uint32), shape=(4,))]
    ['9CEAF053', '77F5493B', '12BF50AD', '5742B3D7']
    """
    total = math.prod(shape)
    low, high = (key[..., i, None].astype(np.uint64) for i in range(2))
    counter = np.arange(-(-total // 4), dtype=np.uint64)
    blocks = np.stack(
        philox_numbers((counter, 0 * counter, 0 * counter, 0 * counter), (low, high)), axis=-1
    )
    words = blocks.astype(np.uint32).reshape(*key.shape[:-1], 4 * len(counter))[..., :total]
    return words.reshape((*key.shape[:-1], *shape))


@random_bits.read
def random_bits_read(k: KernelBuilder, at: At, key: Reader, *, shape: Shape) -> Val:
    rows = at[: len(key.shape) - 1]
    place: Val = k.index(0)
    for i, stride in zip(at[len(rows) :], row_strides(shape), strict=True):
        place = i * key.value_of(stride) + place
    position, zero = k.cast(place, u32), k.const(0, u32)
    words = philox(
        k, (position >> 2, zero, zero, zero), [key((*rows, k.index(i))) for i in range(2)]
    )
    pairs = [k.select((position & 1).eq(0), words[i], words[i + 1]) for i in (0, 2)]
    return k.select((position & 2).eq(0), *pairs)


random_bits.batch(batched_as_is(random_bits))
random_bits.not_differentiable("random words do not change with the key by degrees")


def fold_key_type(key: ArrayType, data: ArrayType) -> ArrayType:
    check_key("fold_key", key)
    check_dtype("fold_key", data.dtype, (u32,))
    if data.shape != key.shape[:-1]:
        raise ShapeError(f"fold_key: needs one number for each key, got keys {key}, numbers {data}")
    return key


def _fold_cases(rng: Rng) -> Case:
    rows = random_shape(rng, max_rank=2)
    return Case((_keys(rng, rows), rng.integers(0, 1 << 32, rows, dtype=np.uint32)))


@op(type=fold_key_type, kind="movement", cases=_fold_cases, dtypes=(u32,), public=False, cost=COST)
def fold_key(key: Array, data: Array) -> Array:
    """A key from a key and a number: the first two words of the block with counter (number, 0, 0,
    1).

    >>> fold_key(np.array([42, 0], np.uint32), np.array(7, np.uint32))
    array([3653419779, 3577646653], dtype=uint32)
    """
    number = data.astype(np.uint64)
    zero = 0 * number
    words = philox_numbers(
        (number, zero, zero, zero + CHILDREN), [key[..., i].astype(np.uint64) for i in range(2)]
    )
    return np.stack(words[:2], axis=-1).astype(np.uint32)


@fold_key.read
def fold_key_read(k: KernelBuilder, at: At, key: Reader, data: Reader) -> Val:
    rows, zero = at[:-1], k.const(0, u32)
    counter = (data(rows), zero, zero, k.const(CHILDREN, u32))
    words = philox(k, counter, [key((*rows, k.index(i))) for i in range(2)])
    return k.select(at[-1].eq(0), words[0], words[1])


fold_key.batch(batched_as_is(fold_key))
fold_key.not_differentiable("keys are no quantities")


# -- distributions ---------------------------------------------------------------------------------


def words_type(name: str) -> Any:
    def rule(bits: ArrayType) -> ArrayType:
        check_dtype(name, bits.dtype, tuple(FLOAT_OF))
        return bits.with_dtype(FLOAT_OF[bits.dtype])

    return rule


def _word_cases(rng: Rng) -> Case:
    dtype = pick(rng, tuple(FLOAT_OF))
    info, shape = np.iinfo(dtype.np), random_shape(rng)
    drawn = rng.integers(info.min, info.max, shape, dtype=dtype.np, endpoint=True)
    ends = rng.choice(
        np.array([info.min, info.max, 0, 1, info.max // 2, info.max // 2 + 1], dtype.np), shape
    )
    return Case((np.where(rng.random(shape) < 0.2, ends, drawn),))


def _signed(k: Any, bits: Any, dtype: DType) -> Any:
    return k.bitcast(bits, i32) if dtype is u32 else bits


def normal_formula(k: Any, bits: Any, dtype: DType) -> Any:
    """The sign from the first bit; the others are m, and a larger number has the probability (m +
    1/2) / 2**width."""
    goal, width, word = FLOAT_OF[dtype], dtype.bits, _signed(k, bits, dtype)
    most = (1 << width - 1) - 1
    m = word & most
    p = k.cast(m, goal) * 2.0**-width + 2.0 ** -(width + 1)
    v = k.cast(most - m, goal) * 2.0 ** (1 - width) + 2.0**-width
    z = steady.normal_quantile(k, p, 1.0 - p, v, goal, deep=False)
    return k.select(word < 0, -z, z)


@op(
    type=words_type("normal_bits"), cases=_word_cases, dtypes=tuple(FLOAT_OF), public=False, cost=60
)
def normal_bits(bits: Array) -> Array:
    """Normal numbers from random words (u32 gives f32, i64 f64), by the inverse of the distribution
    function.

    >>> normal_bits(np.array([0, 0x7FFFFFFF, 0x80000000], np.uint32))
    array([ 6.3379583e+00,  2.9180991e-10, -6.3379583e+00], dtype=float32)
    """
    with np.errstate(all="ignore"):
        return normal_formula(NUMBERS, bits, as_dtype(bits.dtype))


@normal_bits.lower
def normal_bits_lower(k: KernelBuilder, bits: Val) -> Val:
    return normal_formula(k, bits, bits.dtype)  # type: ignore[no-any-return]


normal_bits.not_differentiable("random words are no quantities")


def exponential_formula(k: Any, bits: Any, dtype: DType) -> Any:
    """-log(1 - x) at x = (m + 1/2) / 2**(width - 1), m all bits but the last; exact near 0, where x
    is small.

    log(1 + y) = log(u) y / (u - 1) with u = 1 + y as rounded: the error of rounding is in both
    factors, and goes.
    """
    goal, width = FLOAT_OF[dtype], dtype.bits
    m = (_signed(k, bits, dtype) >> 1) & ((1 << width - 1) - 1)
    x = k.cast(m, goal) * 2.0 ** (1 - width) + 2.0**-width
    below = 1.0 - 2.0 ** -(24 if goal is f32 else 53)
    x = k.select(x < below, x, x * 0.0 + below)
    u = 1.0 - x
    gone = 1.0 - u
    return k.select(gone > 0.0, -steady.log(k, u, goal) * (x / gone), x)


@op(
    type=words_type("exponential_bits"),
    cases=_word_cases,
    dtypes=tuple(FLOAT_OF),
    public=False,
    cost=40,
)
def exponential_bits(bits: Array) -> Array:
    """Exponential numbers of mean 1 from random words (u32 gives f32, i64 f64).

    >>> exponential_bits(np.array([0, 0x80000000, 0xFFFFFFFF], np.uint32))
    array([2.3283064e-10, 6.9314718e-01, 1.6635532e+01], dtype=float32)
    """
    with np.errstate(all="ignore"):
        return exponential_formula(NUMBERS, bits, as_dtype(bits.dtype))


@exponential_bits.lower
def exponential_bits_lower(k: KernelBuilder, bits: Val) -> Val:
    return exponential_formula(k, bits, bits.dtype)  # type: ignore[no-any-return]


exponential_bits.not_differentiable("random words are no quantities")


# -- steady functions of floats --------------------------------------------------------------------


def float_type(name: str) -> Any:
    def rule(x: ArrayType) -> ArrayType:
        check_dtype(name, x.dtype, (f32, f64))
        return x

    return rule


def _float_cases(rng: Rng) -> Case:
    return Case((random_array(rng, pick(rng, (f32, f64)), random_shape(rng), special=0.2),))


@op(type=float_type("steady_log"), cases=_float_cases, dtypes=(f32, f64), public=False, cost=30)
def steady_log(x: Array) -> Array:
    """Natural logarithm, within a unit in the last place, with the same bits from NumPy and from
    machine code.

    >>> steady_log(np.array([1.0, 0.0, -1.0]))
    array([  0., -inf,  nan])
    """
    with np.errstate(all="ignore"):
        return steady.log(NUMBERS, x, as_dtype(x.dtype))


@steady_log.lower
def steady_log_lower(k: KernelBuilder, x: Val) -> Val:
    return steady.log(k, x, x.dtype)  # type: ignore[no-any-return]


steady_log.jvp(lambda t, y, x: t / x)


@op(type=float_type("steady_exp"), cases=_float_cases, dtypes=(f32, f64), public=False, cost=30)
def steady_exp(x: Array) -> Array:
    """The exponential, within two units in the last place, with the same bits from NumPy and from
    machine code.

    >>> steady_exp(np.array([0.0, 1.0, -np.inf, 1000.0]))
    array([1.        , 2.71828183, 0.        ,        inf])
    """
    with np.errstate(all="ignore"):
        return steady.exp(NUMBERS, x, as_dtype(x.dtype))


@steady_exp.lower
def steady_exp_lower(k: KernelBuilder, x: Val) -> Val:
    return steady.exp(k, x, x.dtype)  # type: ignore[no-any-return]


steady_exp.jvp(times(lambda y, x: y))


def _probability_cases(rng: Rng) -> Case:
    dtype, shape = pick(rng, (f32, f64)), random_shape(rng)
    return Case(
        (rng.choice((rng.random(shape), np.exp(-80 * rng.random(shape)))).astype(dtype.np),)
    )


def upper_formula(k: Any, p: Any, dtype: DType) -> Any:
    q = 1.0 - p
    return steady.normal_quantile(k, p, q, q - p, dtype, deep=True)


@op(
    type=float_type("normal_upper"),
    cases=_probability_cases,
    dtypes=(f32, f64),
    public=False,
    cost=60,
)
def normal_upper(p: Array) -> Array:
    """What a normal number exceeds with probability p, for p in (0, 1); precise for small p.

    >>> normal_upper(np.array([0.5, 0.025, 1e-30])).round(6)
    array([ 0.      ,  1.959964, 11.464025])
    """
    with np.errstate(all="ignore"):
        return upper_formula(NUMBERS, p, as_dtype(p.dtype))


@normal_upper.lower
def normal_upper_lower(k: KernelBuilder, p: Val) -> Val:
    return upper_formula(k, p, p.dtype)  # type: ignore[no-any-return]


normal_upper.jvp(times(lambda z, p: -math.sqrt(2 * math.pi) * run("exp", 0.5 * z * z)))
