"""The public namespace `td.random`, as JAX draws: Threefry2x32 (Salmon and others, 2011) on
counters of 64 bits, and from its words the numbers that JAX makes of them.

Receives what the functions of `td.random` receive, returns arrays: words, integers and bools are
JAX's bit for bit; floats within the errors of the functions they go through.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tetrad.arrays.creation import positions, zeros
from tetrad.arrays.functions import (
    abs,
    argmax,
    argsort,
    clip,
    cumulative_sum,
    erf,
    expand_dims,
    floor,
    log,
    log1p,
    maximum,
    moveaxis,
    nextafter,
    searchsorted,
    sign,
    sqrt,
    take,
    take_along_axis,
    tan,
    topk,
    where,
)
from tetrad.arrays.functions import any as any_of
from tetrad.arrays.manipulation import reshape, stack
from tetrad.core.dtypes import (
    DType,
    bf16,
    bool_,
    default_float,
    default_int,
    f16,
    f32,
    f64,
    keeps_wide,
    u32,
    u64,
)
from tetrad.core.errors import DtypeError, ShapeError
from tetrad.core.sizes import Shape, Size, product
from tetrad.linalg import vector_norm
from tetrad.random import as_key, drawn_shape
from tetrad.random.distributions import _settings
from tetrad.special import erfinv, gammaln
from tetrad.tracing.array import Array, fail
from tetrad.tracing.loops import while_loop
from tetrad.tracing.operands import as_array, axis_of, convert, dtype_of, expand, scalar
from tetrad.transforms.custom import stop_gradient
from tetrad.transforms.vmap import vmap

WORD = 0xFFFFFFFF
PARITY = 0x1BD11BDA
ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
MANTISSA = {f16: 10, bf16: 7, f32: 23, f64: 52}
ROUNDS = 5


# -- the cipher ------------------------------------------------------------------------------------


def threefry(key: Array, high: Any, low: Any) -> tuple[Any, Any]:
    """Two words for each counter (two words): 20 rounds of additions, rotations and xors."""
    first, second = key[..., 0], key[..., 1]
    parts = (first, second, first ^ second ^ PARITY)
    x, y = high + first, low + second
    for i in range(ROUNDS):
        for turn in ROTATIONS[i % 2]:
            x = x + y
            y = ((y << turn) | (y >> (32 - turn))) ^ x
        x = x + parts[(i + 1) % 3]
        y = y + parts[(i + 2) % 3] + (i + 1)
    return x, y


def pairs(name: str, key: Any, shape: Shape) -> tuple[Any, Any]:
    """The two words of each element's counter, which is its place."""
    total = product(shape)
    low = reshape(convert(positions(total), u32), shape)
    return threefry(as_key(name, key), low & 0, low)


def key(seed: Any) -> Array:
    """The key of a seed: its high word (0 without 64-bit types), then its low one."""
    if isinstance(seed, int | np.integer):
        whole = int(seed)
        above = (whole >> 32) & WORD if keeps_wide() else 0
        return Array.from_numpy(np.array([above, whole & WORD], np.uint32))
    given = as_array(seed)
    if given.ndim or not given.dtype.is_integer:
        fail(DtypeError, f"key: the seed is an integer, got {given.type}")
    high = convert(given >> 32, u32) if given.dtype.bits == 64 else scalar(0, u32)
    return stack([high, convert(given, u32)])


def split(key: Any, num: Any = 2) -> Array:
    shape = drawn_shape("split", num)
    return stack(list(pairs("split", key, shape)), axis=-1)


def fold_in(key: Any, data: Any) -> Array:
    number = scalar(data & WORD, u32) if isinstance(data, int) else convert(as_array(data), u32)
    return stack(list(threefry(as_key("fold_in", key), scalar(0, u32), number)), axis=-1)


def bits(key: Any, shape: Any = (), dtype: Any = u32) -> Array:
    wanted = u32 if dtype is None else dtype_of(dtype)
    return words(key, drawn_shape("bits", shape), wanted)


def words(key: Any, shape: Shape, dtype: DType = u32) -> Array:
    """Random bits as integers."""
    high, low = pairs("bits", key, shape)
    if dtype.bits == 64:
        return convert((convert(high, u64) << 32) | convert(low, u64), dtype)
    return convert(high ^ low, dtype)


# -- floats ----------------------------------------------------------------------------------------


def float_named(name: str, dtype: Any) -> DType:
    wanted = default_float() if dtype is None else dtype_of(dtype)
    if wanted not in MANTISSA:
        fail(DtypeError, f"{name}: expected a real float dtype, got {wanted}")
    return wanted


def unit(key: Any, shape: Shape, dtype: DType) -> Any:
    """Multiples of the distance of floats near 1, in [0, 1)."""
    count = MANTISSA[dtype]
    if dtype is f64:
        wide = convert(words(key, shape, u64) >> 12, f64)
        return wide * 2.0**-52
    drawn = words(key, shape)
    if dtype is not f32:  # so many bits are drawn, and the upper ones kept
        size = 8 if count < 8 else 16
        drawn = drawn & ((1 << size) - 1)
        return convert(convert(drawn >> (size - count), f32) * 2.0**-count, dtype)
    return convert(drawn >> 9, f32) * 2.0**-23


def between(key: Any, shape: Shape, dtype: DType, low: Any, high: Any) -> Any:
    least, most = convert(low, dtype), convert(high, dtype)
    return maximum(least, expand(unit(key, shape, dtype) * (most - least) + least, shape))


def uniform(
    key: Any, shape: Any = (), dtype: Any = float, minval: Any = 0.0, maxval: Any = 1.0
) -> Any:
    wanted = float_named("uniform", dtype)
    return between(key, drawn_shape("uniform", shape), wanted, minval, maxval)


def normal(key: Any, shape: Any = (), dtype: Any = float) -> Any:
    wanted = dtype_of(dtype) if dtype is not None else default_float()
    if wanted.is_complex:
        real, imag = split(key)
        parts = [normal(k, shape, wanted.real) for k in (real, imag)]
        return (parts[0] + parts[1] * 1j) / math.sqrt(2)
    wanted = float_named("normal", dtype)
    inner = wanted if wanted is f64 else f32
    low = convert(just_inside(wanted), inner)
    drawn = convert(between(key, drawn_shape("normal", shape), wanted, low, 1.0), inner)
    return convert(convert(math.sqrt(2), inner) * erfinv(drawn), wanted)


def just_inside(dtype: DType) -> float:
    """The least float above -1."""
    return -1.0 + 2.0 ** -(MANTISSA[dtype] + 1)


def bernoulli(key: Any, p: Any = 0.5, shape: Any = None, mode: str = "low") -> Any:
    chance = as_array(p)
    if not chance.dtype.is_float:
        chance = convert(chance, default_float())
    sizes = chance.shape if shape is None else drawn_shape("bernoulli", shape)
    return uniform(key, sizes, chance.dtype) < chance


def exponential(key: Any, shape: Any = (), dtype: Any = float) -> Any:
    return -log1p(-uniform(key, shape, dtype))


def gumbel(key: Any, shape: Any = (), dtype: Any = float, mode: str | None = None) -> Any:
    wanted = float_named("gumbel", dtype)
    return -log(-log(uniform(key, shape, wanted, smallest(wanted), 1.0)))


def smallest(dtype: DType) -> float:
    """The least float that is no subnormal number."""
    return 2.0**-14 if dtype is f16 else 2.0**-1022 if dtype is f64 else 2.0**-126


def laplace(key: Any, shape: Any = (), dtype: Any = float) -> Any:
    wanted = float_named("laplace", dtype)
    low = -1.0 + 2.0 ** -(MANTISSA[wanted] + 1)
    drawn = uniform(key, shape, wanted, low, 1.0)
    return sign(drawn) * log1p(-abs(drawn))


def logistic(key: Any, shape: Any = (), dtype: Any = float) -> Any:
    wanted = float_named("logistic", dtype)
    drawn = uniform(key, shape, wanted, smallest(wanted), 1.0)
    return log(drawn) - log1p(-drawn)


def cauchy(key: Any, shape: Any = (), dtype: Any = float) -> Any:
    wanted = float_named("cauchy", dtype)
    drawn = uniform(key, shape, wanted, 2.0 ** -MANTISSA[wanted], 1.0)
    return tan((drawn - 0.5) * math.pi)


def truncated_normal(
    key: Any, lower: Any, upper: Any, shape: Any = None, dtype: Any = float
) -> Array:
    wanted = float_named("truncated_normal", dtype)
    low, high = convert(lower, wanted), convert(upper, wanted)
    sizes = np.broadcast_shapes(low.shape, high.shape)
    sizes = sizes if shape is None else drawn_shape("truncated_normal", shape)
    root = convert(math.sqrt(2), wanted)
    drawn = between(key, sizes, wanted, erf(low / root), erf(high / root))
    above, below = convert(math.inf, wanted), convert(-math.inf, wanted)
    inner = nextafter(stop_gradient(low), above), nextafter(stop_gradient(high), below)
    return clip(root * erfinv(drawn), *inner)


# -- integers and choices --------------------------------------------------------------------------


def randint(key: Any, shape: Any, minval: Any, maxval: Any, dtype: Any = int) -> Array:
    wanted = default_int() if dtype is None else dtype_of(dtype)
    sizes = drawn_shape("randint", shape)
    if not wanted.is_integer:
        fail(DtypeError, f"randint: expected an integer dtype, got {wanted}")
    info = np.iinfo(wanted.np)
    is_above = isinstance(maxval, int) and maxval > info.max
    low, high = (whole(x, wanted, info) for x in (minval, maxval))
    wide = 64 if wanted.bits == 64 else 32  # fewer bits would be less fair
    unsigned = u64 if wide == 64 else u32
    first, second = split(key)
    upper, lower = (words(k, sizes, unsigned) for k in (first, second))
    span: Any = where(high <= low, scalar(1, unsigned), distance(low, high, unsigned))
    span = where(high > low, span + convert(1, unsigned), span) if is_above else span
    return convert(convert(low, unsigned) + below(upper, lower, span, wide), wanted)


def distance(low: Any, high: Any, unsigned: DType) -> Any:
    """high - low, modulo the size of the dtype."""
    return convert(high, unsigned) - convert(low, unsigned)


def whole(x: Any, dtype: DType, info: Any) -> Any:
    if isinstance(x, int):
        return scalar(min(max(x, int(info.min)), int(info.max)), dtype)
    given = as_array(x)
    own = np.iinfo(given.dtype.np)
    low, high = max(int(info.min), int(own.min)), min(int(info.max), int(own.max))
    return convert(clip(given, low, high), dtype)


def below(upper: Any, lower: Any, span: Any, width: int) -> Any:
    """Words of twice the width, modulo a span; a span of 0 is that of all words."""
    by = where(span == 0, 1, span)
    half = convert(1 << (width // 2), span.dtype) % by
    factor = (half * half) % by
    found = ((upper % by) * factor + lower % by) % by
    return where(span == 0, lower, found)


def rademacher(key: Any, shape: Any = (), dtype: Any = int) -> Array:
    wanted = default_int() if dtype is None else dtype_of(dtype)
    drawn = convert(bernoulli(key, 0.5, drawn_shape("rademacher", shape)), wanted)
    return convert(drawn * 2 - 1, wanted)


def categorical(
    key: Any, logits: Any, axis: int = -1, shape: Any = None, replace: bool = True, **_: Any
) -> Array:
    given = as_array(logits)
    given = given if given.dtype.is_float else convert(given, default_float())
    at = axis_of("categorical", axis, given.ndim)
    rows = tuple(n for i, n in enumerate(given.shape) if i != at)
    sizes = rows if shape is None else drawn_shape("categorical", shape)
    before = sizes[: len(sizes) - len(rows)]
    if not replace:
        noisy = given + gumbel(key, given.shape, given.dtype)
        count = known(product(before))
        found = topk(moveaxis(noisy, at, -1), count)[1]
        return convert(reshape(moveaxis(found, -1, 0), sizes), default_int())
    noise = gumbel(key, (*before, *given.shape), given.dtype)
    wide = expand_dims(given, axis=tuple(range(len(before)))) if before else given
    return convert(argmax(noise + wide, axis=len(before) + at), default_int())


def shuffled(key: Any, x: Array, axis: int) -> Array:
    """Elements along an axis sorted by random words, again and again."""
    size = x.size
    if not isinstance(size, int):
        fail(ShapeError, f"permutation: the size of {x.type} is not known")
    now = as_key("permutation", key)
    for _ in range(math.ceil(3 * math.log(max(1, size)) / math.log(WORD))):
        now, used = split(now)
        order = argsort(words(used, x.shape), axis=axis)
        x = take_along_axis(x, order, axis=axis)
    return x


def permutation(key: Any, x: Any, axis: int = 0, independent: bool = False) -> Array:
    if isinstance(x, int | np.integer):
        return shuffled(key, convert(positions(int(x)), default_int()), 0)
    given = as_array(x)
    at = axis_of("permutation", axis, given.ndim)
    if independent or given.ndim == 1:
        return shuffled(key, given, at)
    return take(given, shuffled(key, positions(given.shape[at]), 0), axis=at)


def choice(
    key: Any, a: Any, shape: Any = (), replace: bool = True, p: Any = None, axis: int = 0, **_: Any
) -> Array:
    sizes = drawn_shape("choice", shape)
    is_count = isinstance(a, int | np.integer) or not as_array(a).ndim
    given = convert(positions(int(a)), default_int()) if is_count else as_array(a)
    at = axis_of("choice", axis, given.ndim)
    count, total = known(product(sizes)), known(given.shape[at])
    if not replace and count > total:
        fail(ShapeError, f"choice: cannot draw {count} of {total} without drawing one again")
    if p is None and not replace:
        made = permutation(key, given, at)
        rows = take(made, positions(count), axis=at)
        return reshape(rows, (*given.shape[:at], *sizes, *given.shape[at + 1 :]))
    places = randint(key, sizes, 0, total) if p is None else weighted(key, p, sizes, replace, count)
    return take(given, places, axis=at)


def known(size: Size) -> int:
    if not isinstance(size, int):
        fail(ShapeError, f"choice: the size {size} is only known when the program runs")
    return size


def weighted(key: Any, p: Any, sizes: Shape, replace: bool, count: int) -> Array:
    chances = as_array(p)
    chances = chances if chances.dtype.is_float else convert(chances, default_float())
    if replace:
        sums = cumulative_sum(chances)
        drawn = sums[-1] * (1.0 - uniform(key, sizes, sums.dtype))
        return searchsorted(sums, drawn)
    noisy = gumbel(key, chances.shape, chances.dtype) + log(chances)
    return reshape(topk(noisy, count)[1], sizes)


# -- by rejection ----------------------------------------------------------------------------------


def maxwell(key: Any, shape: Any = (), dtype: Any = float) -> Array:
    n = normal(key, (*drawn_shape("maxwell", shape), 3), dtype)
    return vector_norm(n, axis=-1)


def rayleigh(key: Any, scale: Any, shape: Any = None, dtype: Any = float) -> Array:
    wanted = float_named("rayleigh", dtype)
    (factor,), sizes = _settings("rayleigh", (scale,), shape, wanted)
    return factor * sqrt(-2.0 * log(uniform(key, sizes, wanted)))  # type: ignore[no-any-return]


def geometric(key: Any, p: Any, shape: Any = None, dtype: Any = int) -> Array:
    wanted = integer_named("geometric", dtype)
    (chance,), sizes = _settings("geometric", (p,), shape, default_float())
    drawn = uniform(key, sizes, chance.dtype)
    rounds = log(where(drawn == 0, 1.0, drawn)) / log1p(-chance)
    return convert(floor(rounds) + 1.0, wanted)


def integer_named(name: str, dtype: Any) -> DType:
    wanted = default_int() if dtype is None else dtype_of(dtype)
    if not wanted.is_integer:
        fail(DtypeError, f"{name}: expected an integer dtype, got {wanted}")
    return wanted


def log_gamma_numbers(key: Any, a: Array, sizes: Shape, dtype: DType) -> Array:
    """Marsaglia and Tsang (2000); each element has a key of its own."""
    parameters = reshape(expand(a, sizes), (-1,))
    count = known(product(sizes))
    if not count:
        return reshape(parameters, sizes)
    keys = split(as_key("gamma", key), count)
    drawn = vmap(lambda one, parameter: log_gamma_number(one, parameter, dtype))(keys, parameters)
    edge = where(parameters == 0.0, -math.inf, where(parameters > 0.0, math.inf, math.nan))
    is_good = (parameters > 0.0) & (parameters < math.inf)
    return reshape(where(is_good, drawn, edge), sizes)


def log_gamma_number(key: Any, a: Any, dtype: DType) -> Any:
    """d times a cube of a normal number, until it is accepted. Below 1 it is a number for a + 1
    times a uniform number to the power 1 / a."""
    is_small = a < 1.0
    d = where(is_small, a + 1.0, a) - 1.0 / 3.0
    c = (1.0 / 3.0) / sqrt(d)
    both = split(key)

    def is_rejected(state: Any) -> Any:
        _, square, cube, u = state
        bound = 0.5 * square + d * ((1.0 - cube) + log(cube))
        return (u >= 1.0 - 0.0331 * (square * square)) & (log(u) >= bound)

    def attempt(state: Any) -> Any:
        following, for_normal, for_uniform = (split(state[0], 3)[i] for i in range(3))
        x, v = positive_side(for_normal, c, dtype)
        return following, x * x, v * v * v, uniform(for_uniform, (), dtype)

    start = both[0], scalar(0.0, dtype), scalar(1.0, dtype), scalar(2.0, dtype)
    cube = while_loop(is_rejected, attempt, start)[2]
    less = where(is_small, -exponential(both[1], (), dtype) / where(a == 0.0, 1.0, a), 0.0)
    return log(d) + log(cube) + less


def positive_side(key: Any, c: Any, dtype: DType) -> tuple[Any, Any]:
    """A normal number x for which 1 + c x is above 0, and that."""

    def attempt(state: Any) -> Any:
        both = split(state[0])
        x = normal(both[1], (), dtype)
        return both[0], x, x * c + 1.0

    start = key, scalar(0.0, dtype), scalar(-1.0, dtype)
    _, x, v = while_loop(lambda state: state[2] <= 0.0, attempt, start)
    return x, v


def poisson(key: Any, lam: Any, shape: Any = None, dtype: Any = int) -> Array:
    wanted = integer_named("poisson", dtype)
    (rate,), sizes = _settings("poisson", (lam,), shape, default_float())
    is_small = (rate < 10.0) | (rate != rate)
    few = few_events(key, where(is_small, rate, 0.0), sizes)
    many = many_events(key, where(is_small, 1e5, rate), sizes)
    return convert(where(rate == 0.0, 0.0, where(is_small, few, many)), wanted)


def few_events(key: Any, rate: Array, sizes: Shape) -> Array:
    """So many uniform numbers have a product above exp(-rate), less one (Knuth)."""

    def attempt(state: Any) -> Any:
        now, sums, count = state
        both = split(now)
        drawn = sums + log(uniform(both[1], sizes, f32))
        return both[0], drawn, where(sums > -rate, count + 1.0, count)

    start = as_key("poisson", key), zeros(sizes, dtype=f32), zeros(sizes, dtype=rate.dtype)
    found = while_loop(lambda state: any_of(state[1] > -rate), attempt, start)[2]
    return found - 1.0  # type: ignore[no-any-return]


def many_events(key: Any, rate: Array, sizes: Shape) -> Array:
    """Transformed rejection (Hörmann 1993). All are drawn again until the last is accepted; the
    last one accepted counts."""
    b = 2.53 * sqrt(rate) + 0.931
    a = 0.02483 * b - 0.059
    inverse, limit, log_rate = 1.1328 / (b - 3.4) + 1.1239, 0.9277 - 3.6224 / (b - 2.0), log(rate)

    def attempt(state: Any) -> Any:
        now, done, found = state
        three = split(now, 3)
        u, v = (uniform(three[i], sizes, rate.dtype) for i in (1, 2))
        u = u - 0.5
        room = 0.5 - abs(u)
        k = floor((2.0 * a / room + b) * u + rate + 0.43)
        left = log(v * inverse / (a / (room * room) + b))
        is_likely = left <= k * log_rate - rate - gammaln(k + 1.0)
        is_out = (k < 0.0) | ((room < 0.013) & (v > room))
        accepts = ((room >= 0.07) & (v <= limit)) | (~is_out & is_likely)
        return three[0], done | accepts, where(accepts, k, found)

    start = as_key("poisson", key), zeros(sizes, dtype=bool_), zeros(sizes, dtype=rate.dtype)
    return while_loop(lambda state: any_of(~state[1]), attempt, start)[2]  # type: ignore[no-any-return]
