"""JAX's names: `jax.random`. Keys are typed (`key`) or two plain words (`PRNGKey`); numbers are
ours unless `jax_default_prng_impl`, or the key, asks for threefry: then they are those of JAX."""

from __future__ import annotations

import functools
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from tetrad.core.config import config
from tetrad.core.dtypes import u32
from tetrad.core.errors import DtypeError
from tetrad.jax._shell import tables
from tetrad.jax._shell.configuration import generator_named
from tetrad.jax._shell.keys import KeyArray
from tetrad.jax._shell.tables import td
from tetrad.jax.dtypes import KeyDtype
from tetrad.tracing.array import fail
from tetrad.tracing.operands import as_array

DRAWS = """
    ball bernoulli beta binomial bits categorical cauchy chisquare choice dirichlet
    double_sided_maxwell exponential f gamma generalized_normal geometric gumbel laplace loggamma
    logistic lognormal maxwell multinomial multivariate_normal normal orthogonal pareto
    permutation poisson rademacher randint rayleigh t triangular truncated_normal uniform wald
    weibull_min
""".split()  # noqa: SIM905
IGNORED = ("out_sharding", "mode")  # of arrays on several devices, and of low bits
KeyArrayLike = Any


def seeded(generator: str) -> AbstractContextManager[None]:
    """The generator, until the block ends."""
    if config.random_bits == generator:
        return nullcontext()
    return config.context(random_bits=generator)


def chosen(impl: Any) -> str:
    return config.random_bits if impl is None else generator_named(impl)


def PRNGKey(seed: Any, *, impl: Any = None) -> Any:
    """The key of a seed as two words.

    >>> import tetrad.jax as jax
    >>> jax.random.PRNGKey(7, impl="threefry2x32")
    Array([0, 7], uint32)
    """
    with seeded(chosen(impl)):
        return td.random.key(seed)


def key(seed: Any, *, impl: Any = None) -> KeyArray:
    """The key of a seed, which knows its generator."""
    return KeyArray(PRNGKey(seed, impl=impl), chosen(impl))


def key_data(keys: Any) -> Any:
    """The words of keys."""
    return keys.data if isinstance(keys, KeyArray) else as_array(keys)


def wrap_key_data(key_bits_array: Any, *, impl: Any = None) -> KeyArray:
    """Keys of words, u32[..., 2]."""
    words = as_array(key_bits_array)
    if words.dtype is not u32 or words.shape[-1:] != (2,):
        fail(DtypeError, f"wrap_key_data: expected u32[..., 2], got {words.type}")
    return KeyArray(words, chosen(impl))


def key_impl(keys: Any) -> str:
    """The name of the generator of keys."""
    generator = keys.generator if isinstance(keys, KeyArray) else config.random_bits
    return "threefry2x32" if generator == "threefry" else str(generator)


def key_dtype(impl: Any = None) -> KeyDtype:
    return KeyDtype(chosen(impl))


def clone(key: Any) -> Any:
    """The key again, to be used once more on purpose."""
    return key


def split(key: Any, num: Any = 2) -> Any:
    """New keys from a key; the old one should not be used again."""
    if isinstance(key, KeyArray):
        with seeded(key.generator):
            return KeyArray(td.random.split(key.data, num), key.generator)
    return td.random.split(key, num)


def fold_in(key: Any, data: Any) -> Any:
    """A new key from a key and a number."""
    if isinstance(key, KeyArray):
        with seeded(key.generator):
            return KeyArray(td.random.fold_in(key.data, data), key.generator)
    return td.random.fold_in(key, data)


def drawing(name: str) -> Callable[..., Any]:
    """The function of `td.random`, for keys of both kinds."""
    function = getattr(td.random, name)

    @functools.wraps(function)
    def drawn(key: Any, *args: Any, **settings: Any) -> Any:
        kept = {n: v for n, v in settings.items() if n not in IGNORED}
        if isinstance(key, KeyArray):
            with seeded(key.generator):
                return function(key.data, *args, **kept)
        return function(key, *args, **kept)

    return drawn


def __getattr__(name: str) -> Any:
    if name not in DRAWS:
        raise tables.absent(__name__, name)
    globals()[name] = value = drawing(name)
    return value


def __dir__() -> list[str]:
    return tables.listed(globals(), DRAWS)
