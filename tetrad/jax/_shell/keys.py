"""JAX's names, keys: arrays of keys that know their generator, as `jax.random.key` makes them.

A `KeyArray` holds the words of its keys, u32[..., 2], and is a tree with that one leaf, so that it
goes through `jit`, `vmap` and loops. What is done to its axes is done to an array with one number
of 64 bits for each key.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from tetrad.core import tree
from tetrad.core.dtypes import u32, u64
from tetrad.jax._shell.tables import td
from tetrad.jax.dtypes import KeyDtype
from tetrad.tracing.array import Array
from tetrad.tracing.operands import convert

SHAPING = {  # functions of jax.numpy that take keys as they take numbers
    "array", "asarray", "broadcast_to", "concatenate", "copy", "expand_dims", "moveaxis", "ravel",
    "repeat", "reshape", "roll", "squeeze", "stack", "swapaxes", "take", "tile", "transpose",
    "vstack", "hstack", "where",
}  # fmt: skip


class KeyArray:
    """Keys of one generator.

    >>> import tetrad.jax as jax
    >>> keys = jax.random.split(jax.random.key(0), 3)
    >>> keys.shape, keys[0].shape, keys.dtype
    ((3,), (), key<philox>)
    """

    __slots__ = ("data", "generator")

    def __init__(self, data: Any, generator: str) -> None:
        self.data, self.generator = data, generator

    @property
    def shape(self) -> tuple[Any, ...]:
        return self.data.shape[:-1]  # type: ignore[no-any-return]

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> Any:
        return self.data.size // 2

    @property
    def dtype(self) -> KeyDtype:
        return KeyDtype(self.generator)

    @property
    def sharding(self) -> Any:
        return self.data.sharding

    def __len__(self) -> int:
        if not self.ndim:
            raise TypeError("len() of a single key")
        return int(self.shape[0])

    def __iter__(self) -> Iterator[KeyArray]:
        return (self[i] for i in range(len(self)))

    def __getitem__(self, index: Any) -> KeyArray:
        return self.over(lambda numbers: numbers[index])

    def __eq__(self, other: object) -> Any:
        if not isinstance(other, KeyArray) or other.generator != self.generator:
            return NotImplemented
        return numbers_of(self) == numbers_of(other)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"KeyArray({self.dtype}, shape={self.shape})"

    def reshape(self, *shape: Any) -> KeyArray:
        return self.over(lambda numbers: numbers.reshape(*shape))

    def ravel(self) -> KeyArray:
        return self.reshape(-1)

    flatten = ravel

    def squeeze(self, axis: Any = None) -> KeyArray:
        return self.over(lambda numbers: numbers.squeeze(axis))

    def block_until_ready(self) -> KeyArray:
        return self

    def over(self, function: Callable[[Any], Any]) -> KeyArray:
        """The keys after a function that moves elements."""
        return KeyArray(words_of(function(numbers_of(self))), self.generator)


tree.register(KeyArray, lambda k: ((k.data,), k.generator), lambda g, c: KeyArray(c[0], g))


def numbers_of(keys: KeyArray) -> Any:
    """One number of 64 bits for each key."""
    return (convert(keys.data[..., 0], u64) << 32) | convert(keys.data[..., 1], u64)


def words_of(numbers: Array) -> Any:
    return td.stack([convert(numbers >> 32, u32), convert(numbers, u32)], axis=-1)


def first_key(args: Any) -> KeyArray | None:
    """A key among arguments, if there is one."""
    for x in args:
        found = first_key(x) if isinstance(x, list | tuple) else x
        if isinstance(found, KeyArray):
            return found
    return None


def taking_keys(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function that moves elements, for arrays of keys as well."""

    def called(*args: Any, **settings: Any) -> Any:
        key = first_key(args)
        if key is None:
            return function(*args, **settings)
        numbers = [opened(x) for x in args]
        return KeyArray(words_of(function(*numbers, **settings)), key.generator)

    called.__name__ = called.__qualname__ = function.__name__
    called.__doc__, called.__wrapped__ = function.__doc__, function  # type: ignore[attr-defined]
    return called


def opened(x: Any) -> Any:
    if isinstance(x, KeyArray):
        return numbers_of(x)
    return type(x)(map(opened, x)) if isinstance(x, list | tuple) and first_key(x) else x
