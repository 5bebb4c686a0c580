"""The public namespace `td.random`: random numbers from explicit keys, with the names and arguments
they have in JAX.

Receives a key (u32[2]) and settings, returns arrays: compositions of the ops in ops/random.py. The
same key gives the same bits outside jit and inside, for any number of threads; there is no state,
so use each key once (docs/random.md).
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from tetrad.arrays import namespaces
from tetrad.arrays.creation import positions
from tetrad.arrays.functions import (
    argmax,
    argsort,
    clip,
    cumulative_sum,
    moveaxis,
    searchsorted,
    take,
    take_along_axis,
    topk,
    where,
)
from tetrad.arrays.manipulation import reshape, stack
from tetrad.core import lazy
from tetrad.core.dtypes import DType, bf16, default_float, default_int, f16, f32, f64, i64, u32, u64
from tetrad.core.errors import DtypeError, ShapeError
from tetrad.core.floats import guarded
from tetrad.core.sizes import Shape, Size, product
from tetrad.random.generators import is_threefry, switchable
from tetrad.tracing.array import Array, fail, noun_of
from tetrad.tracing.operands import (
    as_array,
    axis_of,
    broadcast,
    check_shape,
    convert,
    dtype_of,
    expand,
    is_operand,
    run,
    scalar,
    size_array,
    traced,
)  # fmt: skip

LATER = {  # in further files, which are loaded when one of them is used
    "distributions": (
        "beta", "cauchy", "chisquare", "dirichlet", "f", "gamma", "geometric", "loggamma",
        "lognormal", "maxwell", "multivariate_normal", "orthogonal", "pareto", "poisson",
        "rademacher", "rayleigh", "t", "triangular", "weibull_min",
    ),
    "further": (
        "ball", "binomial", "double_sided_maxwell", "generalized_normal", "multinomial", "wald",
    ),
}  # fmt: skip
MAKE_KEY = "make one with td.random.key(seed)"
WORD = 0xFFFFFFFF
LEAST = -(1 << 63)  # of i64: the sign alone
# bits of a significand: so many of a word make a uniform number
PRECISION = {f32: 24, f16: 11, bf16: 8}
ROOT_HALF = math.sqrt(0.5)
BF16_MOST = 3.3895313892515355e38
# beyond, probabilities of exceeding a number are too small, or nearly
TAIL = {f32: 11.0, f64: 36.0}


if TYPE_CHECKING:
    from tetrad.random.later import *  # noqa: F403
else:  # a checker would take any name for one of ours
    __getattr__, __dir__ = namespaces.offers(globals(), LATER)


# -- keys ------------------------------------------------------------------------------------------


@switchable
def key(seed: Any) -> Array:
    """The key of a seed: its 64 bits as two words, low word first. An array may be a seed too.

    >>> key(42)
    Array([42,  0], uint32)
    """
    if isinstance(seed, int | np.integer):
        if not -(1 << 63) <= int(seed) < 1 << 64:
            fail(
                DtypeError, f"key: the seed has 64 bits, got {seed}", "take the remainder by 2**64"
            )
        return Array.from_numpy(np.array([int(seed) & WORD, int(seed) >> 32 & WORD], np.uint32))
    given = as_array(seed)
    if given.ndim or not given.dtype.is_integer:
        fail(DtypeError, f"key: the seed is an integer, got {given.type}")
    wide = convert(given, i64)
    return stack([convert(wide, u32), convert(wide >> 32, u32)])


PRNGKey = key
GENERATORS = ("philox", "threefry2x32")


def key_data(keys: Any) -> Array:
    """The words of keys: u32[..., 2]. Keys are these words, so it is the same array."""
    given = as_array(keys)
    if given.dtype is not u32 or given.shape[-1:] != (2,):
        fail(DtypeError, f"key_data: expected keys, u32[..., 2], got {given.type}", MAKE_KEY)
    return given


def wrap_key_data(key_bits_array: Any, *, impl: str | None = None) -> Array:
    """Keys from their words, u32[..., 2]."""
    if impl not in (None, GENERATORS[is_threefry()]):
        message = f"wrap_key_data: the generator is {GENERATORS[is_threefry()]!r}, got {impl!r}"
        fail(DtypeError, message, "td.config.update('random_bits', ...) chooses another")
    return key_data(key_bits_array)


def clone(key: Any) -> Array:
    """The same key, for whoever means to draw the same numbers once more."""
    return key_data(key)


def key_impl(keys: Any) -> str:
    """The name of the generator.

    >>> key_impl(key(0))
    'philox'
    """
    key_data(keys)
    return GENERATORS[is_threefry()]


def as_key(name: str, key: Any) -> Array:
    given = as_array(key) if is_operand(key) else None
    if given is None or given.dtype is not u32 or given.shape != (2,):
        came = noun_of(key) if given is None else given.type
        is_several = given is not None and given.dtype is u32 and given.shape[-1:] == (2,)
        each = "they are several: take one, as in keys[0], or draw with each by td.vmap"
        fail(
            DtypeError,
            f"{name}: expected a key, u32[2], got {came}",
            each if is_several else MAKE_KEY,
        )
    return traced(given)


def drawn_shape(name: str, shape: Any) -> Shape:
    """The shape of what is drawn: not a key, which comes first."""
    if isinstance(shape, Array) and shape.dtype is u32 and shape.shape == (2,):
        fail(
            ShapeError,
            f"{name}: expected a shape, got {shape.type}, which is a key",
            "the key comes first",
        )
    return check_shape(name, shape)


@switchable
def split(key: Any, num: Any = 2) -> Array:
    """New keys from a key, [num, 2]; key i is fold_in(key, i). The old key should not be used
    again.

    >>> first, second = split(key(0))
    >>> first
    Array([768504805, 323543615], uint32)
    """
    shape = drawn_shape("split", num)
    total = product(shape)
    keys = run("fold_key", expand(as_key("split", key), (total, 2)), convert(positions(total), u32))
    return reshape(keys, (*shape, 2))


@switchable
def fold_in(key: Any, data: Any) -> Array:
    """A new key from a key and a number of 32 bits: a step of a loop, the index of a layer.

    >>> fold_in(key(0), 1) == split(key(0))[1]
    Array([ True,  True], bool)
    """
    number = scalar(data & WORD, u32) if isinstance(data, int) else as_array(data)
    if number.ndim:
        fail(ShapeError, f"fold_in: the number has no axes, got {number.type}")
    if not number.dtype.is_integer:
        fail(
            DtypeError, f"fold_in: expected an integer, got {number.type}", "convert it with astype"
        )
    return run("fold_key", as_key("fold_in", key), convert(number, u32))


# -- words and uniform numbers ---------------------------------------------------------------------


@switchable
def bits(key: Any, shape: Any = (), dtype: Any = u32) -> Array:
    """Random words: element i is word i % 4 of the Philox block i // 4 of the key. 64 bits are two
    words.

    >>> bits(key(42), 2)
    Array([2632642643, 2012563771], uint32)
    """
    wanted, sizes = u32 if dtype is None else dtype_of(dtype), drawn_shape("bits", shape)
    if not wanted.is_integer:
        fail(DtypeError, f"bits: expected an integer dtype, got {wanted}")
    if wanted.bits == 64:
        return convert(_wide_words("bits", key, sizes), wanted)
    words = _words("bits", key, sizes)
    return words if wanted is u32 else convert(words >> (32 - wanted.bits), wanted)


def _words(name: str, key: Any, shape: Shape) -> Array:
    if is_threefry():
        drawn: Array = lazy.module("tetrad.random.threefry").words(as_key(name, key), shape)
        return drawn
    return run("random_bits", as_key(name, key), shape=shape)


def _pairs(name: str, key: Any, shape: Shape) -> tuple[Array, Array]:
    """Two words for each element: the first of all come before the second of all."""
    words = _words(name, key, (2, *shape))
    return words[0], words[1]


def _wide_words(name: str, key: Any, shape: Shape) -> Array:
    """64 random bits for each element, as i64."""
    high, low = _pairs(name, key, shape)
    joined: Array = (convert(high, i64) << 32) | convert(low, i64)
    return joined


def _float(name: str, dtype: Any) -> DType:
    wanted = default_float() if dtype is None else dtype_of(dtype)
    if wanted is not f64 and wanted not in PRECISION:
        fail(DtypeError, f"{name}: expected a real float dtype, got {wanted}")
    return wanted


def _unit(name: str, key: Any, shape: Shape, dtype: DType) -> Array:
    """Numbers in [0, 1): multiples of 2**-24 in f32, of 2**-53 in f64."""
    if dtype is f64:
        high, low = _pairs(name, key, shape)
        unit: Array = (convert(high >> 5, f64) * 2.0**26 + convert(low >> 6, f64)) * 2.0**-53
        return unit
    count = PRECISION[dtype]
    return convert(convert(_words(name, key, shape) >> (32 - count), f32) * 2.0**-count, dtype)


@switchable
def uniform(
    key: Any, shape: Any = (), dtype: Any = float, minval: Any = 0.0, maxval: Any = 1.0
) -> Array:
    """Numbers in [minval, maxval), all equally likely; the bounds may be arrays, and have
    derivatives.

    >>> uniform(key(42), 3)
    Array([0.61295986, 0.4685865 , 0.0732317 ], float32)
    """
    wanted, sizes = _float("uniform", dtype), drawn_shape("uniform", shape)
    _check_range(minval, maxval, wanted)
    unit = _unit("uniform", key, sizes, wanted)
    if type(minval) in (int, float) and type(maxval) in (int, float) and (minval, maxval) == (0, 1):
        return unit
    low, high = convert(minval, wanted), convert(maxval, wanted)
    drawn = unit * (high - low) + low
    # What was rounded up to the bound starts again from below: maxval itself is no result.
    return _shaped("uniform", where(drawn >= high, low, drawn), sizes)


def _check_range(minval: Any, maxval: Any, dtype: DType) -> None:
    """Bounds that are numbers are within a distance the dtype can hold."""
    if all(type(x) in (int, float) for x in (minval, maxval)):
        most = float(np.finfo(dtype.np).max) if dtype is not bf16 else BF16_MOST
        if not math.isnan(maxval - minval) and abs(maxval - minval) > most:
            message = f"uniform: from {minval} to {maxval} is further than {dtype} reaches"
            fail(DtypeError, message, "draw a part of the range, or choose a wider dtype")


def _shaped(name: str, x: Array, shape: Shape) -> Array:
    """x, when what it was computed with did not make it larger than asked for."""
    if x.shape != shape:
        fail(
            ShapeError,
            f"{name}: settings of shape {list(x.shape)} do not broadcast to {list(shape)}",
        )
    return x


@switchable
def randint(key: Any, shape: Any, minval: Any, maxval: Any, dtype: Any = int) -> Array:
    """Integers in [minval, maxval), all equally likely (to 1 in 2**30); minval where the range is
    empty.

    >>> randint(key(42), 5, 0, 10)
    Array([6, 4, 0, 3, 9], int32)
    """
    wanted = default_int() if dtype is None else dtype_of(dtype)
    sizes = drawn_shape("randint", shape)
    if not wanted.is_integer:
        fail(DtypeError, f"randint: expected an integer dtype, got {wanted}")
    low, top, is_some = _bounds(minval, maxval, wanted)
    span = where(is_some, top - low, 0) + 1
    offset = _wide_below(key, sizes, span) if wanted.bits == 64 else _below(key, sizes, span)
    return _shaped("randint", convert(low + offset, wanted), sizes)


def _bounds(minval: Any, maxval: Any, dtype: DType) -> tuple[Array, Array, Array]:
    """The least and the greatest number as the bits of i64, and whether there are any. The end of a
    range may be one more than the dtype holds."""
    low, high = _bound("minval", minval, dtype), _bound("maxval", maxval, dtype)
    # u64 is compared without a sign
    sign = LEAST if dtype.bits == 64 and not dtype.is_signed else 0
    if isinstance(maxval, int):
        # from the least number to itself: minval again
        top = high if maxval == np.iinfo(dtype.np).min else high - 1
        return low, top, (top ^ sign) >= (low ^ sign)
    return low, high - 1, (high ^ sign) > (low ^ sign)


def _bound(name: str, x: Any, dtype: DType) -> Array:
    info = np.iinfo(dtype.np)
    if isinstance(x, int) and not info.min <= x <= int(info.max) + (name == "maxval"):
        fail(DtypeError, f"randint: {name} {x} is out of range for {dtype}", "choose a wider dtype")
    given = scalar(((x - LEAST) % (1 << 64)) + LEAST, i64) if isinstance(x, int) else as_array(x)
    if not given.dtype.is_integer:
        fail(DtypeError, f"randint: {name} must be an integer, got {given.type}")
    return convert(given, i64)


def _below(key: Any, shape: Shape, span: Array) -> Array:
    """Integers in [0, span) as i64: 62 random bits times a span of up to 32, over 2**62."""
    high, low = (convert(w >> 1, i64) for w in _pairs("randint", key, shape))
    below: Array = (high * span + ((low * span) >> 31)) >> 31
    return below


def _wide_below(key: Any, shape: Shape, span: Array) -> Array:
    """Integers in [0, span) as the bits of i64: 128 random bits times any span, over 2**128, a word
    at a time. What is carried stays below the span. A span of 2**64 came out as 0: all bits."""
    words, factor = _words("randint", key, (4, *shape)), convert(span, u64)
    carried = convert(words[0], u64) & 0
    for i in range(4):
        word = convert(words[i], u64)
        low = word * (factor & WORD) + (carried & WORD)
        carried = word * (factor >> 32) + (carried >> 32) + (low >> 32)
    below: Array = where(
        span == 0, (convert(words[0], i64) << 32) | convert(words[1], i64), convert(carried, i64)
    )
    return below


@switchable
def bernoulli(key: Any, p: Any = 0.5, shape: Any = None) -> Array:
    """True with probability p.

    >>> bernoulli(key(42), 0.5, (3,))
    Array([False,  True,  True], bool)
    """
    chance = as_array(p)
    if not chance.dtype.is_float:
        fail(DtypeError, f"bernoulli: p must be a float, got {chance.type}")
    chance = _chances(chance)  # halves have too few uniform numbers for small probabilities
    sizes = chance.shape if shape is None else drawn_shape("bernoulli", shape)
    return _shaped("bernoulli", _unit("bernoulli", key, sizes, chance.dtype) < chance, sizes)


# -- distributions ---------------------------------------------------------------------------------


def _from_words(op: str, name: str, key: Any, shape: Any, dtype: Any) -> Array:
    """An op from words to floats; halves are rounded from f32."""
    wanted, sizes = _float(name, dtype), drawn_shape(name, shape)
    if wanted is f64:
        return run(op, _wide_words(name, key, sizes))
    return convert(run(op, _words(name, key, sizes)), wanted)


@switchable
def normal(key: Any, shape: Any = (), dtype: Any = float) -> Array:
    """Normal numbers of mean 0 and variance 1, half of it in each part of complex ones.

    >>> normal(key(42), 3)
    Array([-1.2109363 ,  0.07882346,  1.4521374 ], float32)
    """
    if dtype is not None and (wanted := dtype_of(dtype)).is_complex:
        real, imag = (normal(k, shape, wanted.real) * ROOT_HALF for k in split(key))
        return run("complex", real, imag)
    return _from_words("normal_bits", "normal", key, shape, dtype)


@switchable
def exponential(key: Any, shape: Any = (), dtype: Any = float) -> Array:
    """Exponential numbers of mean 1.

    >>> exponential(key(42), 2)
    Array([0.94922686, 0.63221484], float32)
    """
    return _from_words("exponential_bits", "exponential", key, shape, dtype)


@switchable
def gumbel(key: Any, shape: Any = (), dtype: Any = float) -> Array:
    """Standard Gumbel numbers: -log of exponential ones. The largest of logits with them added is a
    categorical draw.

    >>> gumbel(key(42), 2)
    Array([0.05210746, 0.45852602], float32)
    """
    wanted = _float("gumbel", dtype)
    return convert(-_log(exponential(key, shape, f64 if wanted is f64 else f32)), wanted)


def _log(x: Array) -> Array:
    return run("steady_log", x)


@switchable
def laplace(key: Any, shape: Any = (), dtype: Any = float) -> Array:
    """Standard Laplace numbers: differences of exponential ones."""
    wanted, both = _float("laplace", dtype), (2, *drawn_shape("laplace", shape))
    e = exponential(key, both, f64 if wanted is f64 else f32)
    return convert(e[0] - e[1], wanted)


@switchable
def logistic(key: Any, shape: Any = (), dtype: Any = float) -> Array:
    """Standard logistic numbers: differences of Gumbel ones."""
    wanted, both = _float("logistic", dtype), (2, *drawn_shape("logistic", shape))
    g = gumbel(key, both, f64 if wanted is f64 else f32)
    return convert(g[0] - g[1], wanted)


@switchable
@guarded
def truncated_normal(
    key: Any, lower: Any, upper: Any, shape: Any = None, dtype: Any = float
) -> Array:
    """Normal numbers that fell between lower and upper; far out in a tail as well.

    >>> truncated_normal(key(42), 8.0, 9.0, (2,))
    Array([8.060035, 8.092791], float32)
    """
    wanted = _float("truncated_normal", dtype)
    inner = f64 if wanted is f64 else f32
    if all(type(x) in (int, float) for x in (lower, upper)):
        return _truncated(key, float(lower), float(upper), shape, inner, wanted)
    low, high = broadcast("truncated_normal", [convert(x, inner) for x in (lower, upper)])
    sizes = low.shape if shape is None else drawn_shape("truncated_normal", shape)
    is_left = low + high < 0.0
    near, far = run("where", is_left, -high, low), run("where", is_left, -low, high)
    least, most = (run("erfc", x * ROOT_HALF) * 0.5 for x in (far, near))
    unit = _open(key, sizes, inner)
    z = run("normal_upper", _shaped("truncated_normal", least + unit * (most - least), sizes))
    a, b = (clip(x, TAIL[inner], None) for x in (near, far))
    share = run("exp", (a - b) * (a + b) * 0.5) * (a / b) * (_tail_factor(b) / _tail_factor(a))
    z = run("where", expand(near > TAIL[inner], sizes), _in_tail(a, share, unit), z)
    z = run("where", expand(is_left, sizes), -z, z)
    return convert(clip(z, low, high), wanted)


def _truncated(
    key: Any, lower: float, upper: float, shape: Any, inner: DType, wanted: DType
) -> Array:
    """Between numbers: probabilities of exceeding them are known now. Draws in the lower tail are
    mirrored."""
    is_left = lower + upper < 0
    near, far = (-upper, -lower) if is_left else (lower, upper)
    least, most = (0.5 * math.erfc(x * ROOT_HALF) for x in (far, near))
    sizes = drawn_shape("truncated_normal", () if shape is None else shape)
    unit = _open(key, sizes, inner)
    if TAIL[inner] < near <= far:
        share = (
            math.exp((near - far) * (near + far) / 2)
            * (near / far)
            * (_tail_factor(far) / _tail_factor(near))
        )
        z = _in_tail(near, share, unit)
    else:
        z = run("normal_upper", unit * (most - least) + least)
    return convert(clip(-z if is_left else z, lower, upper), wanted)


def _tail_factor(x: Any) -> Any:
    """The probability of exceeding x is exp(-x^2 / 2) / (x sqrt(2 pi)) times this, for a large
    x."""
    y = 1 / (x * x)
    return 1 - y * (1 - y * (3 - y * (15 - y * 105)))


def _in_tail(a: Any, share: Any, unit: Array) -> Array:
    """Beyond a, where probabilities are too small for the dtype; `share` is that of exceeding the
    other bound, given that a is exceeded. With z = a + d and t = -log P(> z) / P(> a): d (a + d /
    2) = t - log(z / a) + log of factors, which is solved for d again and again; each time the error
    is a^2 times smaller."""
    t = -_log(unit * (1 - share) + share)
    d, known = t / a, _tail_factor(a)
    for _ in range(5):
        z = a + d
        rest = t - _log(z / a * (known / _tail_factor(z)))
        d = 2 * rest / (a + run("sqrt", a * a + 2 * rest))
    beyond: Array = a + d
    return beyond


def _open(key: Any, shape: Shape, dtype: DType) -> Array:
    """Numbers in (0, 1), without either end."""
    if dtype is f64:
        middle: Array = _unit("truncated_normal", key, shape, f64) + 2.0**-54
    else:
        middle = convert(_words("truncated_normal", key, shape) >> 9, f32) * 2.0**-23 + 2.0**-24
    return middle


# -- choices ---------------------------------------------------------------------------------------


@switchable
def categorical(
    key: Any, logits: Any, axis: int = -1, shape: Any = None, replace: bool = True
) -> Array:
    """Indices along an axis, drawn with probabilities proportional to exp(logits).

    shape     of the result; it ends with the shape of logits without the axis, which is the default
    replace   whether an index may be drawn again along the axes of shape before that

    >>> categorical(key(42), as_array(np.float32([0, 0, 9, 0])), shape=(5,))
    Array([2, 2, 2, 2, 2], int32)
    """
    given = as_array(logits)
    if not given.dtype.is_float:
        fail(DtypeError, f"categorical: logits must be floats, got {given.type}")
    at = axis_of("categorical", axis, given.ndim)
    rows = tuple(n for i, n in enumerate(given.shape) if i != at)
    sizes = rows if shape is None else drawn_shape("categorical", shape)
    if sizes[len(sizes) - len(rows) :] != rows:
        fail(
            ShapeError,
            f"categorical: shape {list(sizes)} does not end with the rows {list(rows)} of "
            f"{given.type}",
        )
    before = sizes[: len(sizes) - len(rows)]
    if not replace:
        return reshape(_drawn_apart(key, moveaxis(given, at, -1), product(before)), sizes)
    noise = gumbel(key, (*before, *given.shape), f64 if given.dtype is f64 else f32)
    return argmax(noise + convert(given, noise.dtype), axis=len(before) + at)


def _drawn_apart(key: Any, logits: Array, count: Size) -> Array:
    """[count, ...]: the indices of the greatest of logits with Gumbel numbers added, along the last
    axis."""
    size = logits.shape[-1]
    if not isinstance(count, int) or not isinstance(size, int) or count > size:
        fail(ShapeError, f"categorical: cannot draw {count} of {size} without drawing one again")
    noise = gumbel(key, logits.shape, f64 if logits.dtype is f64 else f32)
    return moveaxis(topk(noise + convert(logits, noise.dtype), count)[1], -1, 0)


@switchable
def permutation(key: Any, x: Any, axis: int = 0, independent: bool = False) -> Array:
    """The elements along an axis in random order; of an int, the numbers below it.

    independent   whether each line along the axis has an order of its own

    >>> permutation(key(42), 5)
    Array([4, 2, 3, 1, 0], int32)
    """
    given = _elements("permutation", x)
    at = axis_of("permutation", axis, given.ndim)
    if independent:
        return moveaxis(
            take_along_axis(moved := moveaxis(given, at, -1), _order(key, *moved.shape), axis=-1),
            -1,
            at,
        )
    return take(given, _order(key, given.shape[at]), axis=at)


def _elements(name: str, x: Any) -> Array:
    """An array with axes; of an int, the numbers below it."""
    if isinstance(x, int | np.integer) and x < 0:
        fail(ShapeError, f"{name}: there are no numbers below {x}")
    given = positions(int(x)) if isinstance(x, int | np.integer) else as_array(x)
    if not given.ndim:
        fail(ShapeError, f"{name}: expected an int or an array with axes, got {given.type}")
    return given


def _order(key: Any, *shape: Size) -> Array:
    """Positions along the last axis in random order: sorted by random words, often enough that
    equal words (a draw that is not fair) in all rounds are rarer than one in the size."""
    size = shape[-1]
    most = size if isinstance(size, int) else size.max
    order, now = expand(convert(positions(size), i64), shape), as_key("permutation", key)
    for _ in range(max(1, math.ceil(3 * math.log(max(most, 1)) / math.log(WORD)))):
        now, used = split(now)
        order = take_along_axis(order, argsort(_words("permutation", used, shape)), axis=-1)
    return order


@switchable
def choice(
    key: Any, a: Any, shape: Any = (), replace: bool = True, p: Any = None, axis: int = 0
) -> Array:
    """Elements of `a` (of an int: numbers below it) along an axis, drawn at random.

    replace   whether an element may be drawn again
    p         how likely each is; equally where not given

    >>> choice(key(42), 10, (3,), replace=False)
    Array([4, 6, 2], int32)
    """
    given, sizes = _elements("choice", a), drawn_shape("choice", shape)
    at = axis_of("choice", axis, given.ndim)
    count = product(sizes)
    if p is not None and as_array(p).shape != given.shape[at : at + 1]:
        fail(
            ShapeError,
            f"choice: p needs one probability for each of {given.shape[at]}, got "
            f"{as_array(p).type}",
        )
    if not replace and (
        not isinstance(count, int)
        or not isinstance(given.shape[at], int)
        or count > given.shape[at]
    ):
        fail(
            ShapeError,
            f"choice: cannot draw {count} of {given.shape[at]} without drawing one again",
        )
    places = (
        _drawn(key, given.shape[at], count, p)
        if replace
        else _drawn_once(key, given.shape[at], count, p)
    )
    return take(given, reshape(places, sizes), axis=at)


def _drawn(key: Any, size: Size, count: Size, p: Any) -> Array:
    if p is None:
        return _below(key, (count,), size_array(size, i64))
    sums = cumulative_sum(_chances(p))
    drawn = _unit("choice", key, (count,), sums.dtype) * sums[-1]
    last = searchsorted(sums, sums[-1])  # where the product was rounded up to the whole
    return clip(searchsorted(sums, drawn, side="right"), None, last)


def _drawn_once(key: Any, size: Size, count: Size, p: Any) -> Array:
    """The greatest of log p with Gumbel numbers added, one after the other, are draws without going
    back."""
    if p is None:
        return _order(key, size)[:count]
    chances = _chances(p)
    return topk(_log(chances) + gumbel(key, chances.shape, chances.dtype), int(count))[1]  # type: ignore[arg-type]


def _chances(p: Any) -> Array:
    given = as_array(p)
    return convert(given, f64 if given.dtype is f64 else f32)


__all__ = [
    *(name for names in LATER.values() for name in names),
    "PRNGKey", "bernoulli", "bits", "categorical", "choice", "clone",
    "exponential", "fold_in", "gumbel", "key", "key_data", "key_impl", "wrap_key_data",
    "laplace", "logistic", "normal", "permutation", "randint", "split", "truncated_normal",
    "uniform",
]  # fmt: skip
