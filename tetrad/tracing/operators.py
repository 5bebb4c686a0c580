"""Tracing, operators: the methods and operators of arrays, each the function of its name in the
public namespace.

`Array` inherits them. Nothing here knows how an array holds its values: `tracing.array` does.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from tetrad.core import lazy
from tetrad.core.errors import DtypeError
from tetrad.tracing.fail import fail

if TYPE_CHECKING:
    from tetrad.tracing.array import Array


MORE: dict[str, Callable[[Any], Any]] = {}  # what `tetrad.jax` adds: attributes of JAX's arrays


@cache
def _functions() -> Any:
    return lazy.provided("methods of arrays")


class Operators:
    """What `x + y` and `x.sum()` call. `which`: the settings `where` and `initial` of the function,
    as they come."""

    __slots__ = ()

    if not TYPE_CHECKING:  # for type checkers, what is not here is an error

        def __getattr__(self, name: str) -> Any:
            if name in MORE:
                return MORE[name](self)
            told = (
                "" if name.startswith("_") else lazy.provided("suggestions").instead_of_method(name)
            )
            raise AttributeError(f"an array has no attribute {name!r}{told}", name=name, obj=self)

    def _call(self, name: str, *args: Any, **settings: Any) -> Array:
        result: Array = getattr(_functions(), name)(self, *args, **settings)
        return result

    def tobytes(self, order: str = "C") -> bytes:
        """The elements as bytes, rows first.

        >>> import tetrad as td
        >>> td.asarray([1, 2], dtype=td.uint8).tobytes()
        b'\\x01\\x02'
        """
        values: Any = np.asarray(self)
        return bytes(values.tobytes(order))

    def _operate(self, name: str, left: Any, right: Any) -> Any:
        functions = _functions()
        if not (functions.is_operand(left) and functions.is_operand(right)):
            return NotImplemented
        return getattr(functions, name)(left, right)

    def astype(self, dtype: Any, /, *, copy: bool = True) -> Array:
        return self._call("astype", dtype, copy=copy)

    def view(self, dtype: Any = None, *more: Any) -> Array:
        """The same bits as elements of another dtype, as in NumPy.

        >>> import tetrad as td
        >>> td.asarray([1.0]).view(td.int32)
        Array([1065353216], int32)
        """
        if more or isinstance(dtype, int | tuple | list):
            sizes = (dtype, *more) if more else dtype
            hint = "x.reshape(...) has the elements in another shape"
            fail(DtypeError, f"view: expected a dtype, got {sizes!r}", hint)
        return self._call("bitcast", dtype)

    def reshape(self, *shape: Any, order: str = "C") -> Array:
        sizes = shape[0] if len(shape) == 1 and not isinstance(shape[0], int) else shape
        return self._call("reshape", sizes, order=order)

    def transpose(self, *axes: Any) -> Array:
        return self._call("transpose", *axes)

    def flatten(self, order: str = "C") -> Array:
        return self._call("ravel", order)

    def ravel(self, order: str = "C") -> Array:
        return self._call("ravel", order)

    def squeeze(self, axis: Any = None) -> Array:
        return self._call("squeeze", axis)

    def swapaxes(self, axis1: int, axis2: int) -> Array:
        return self._call("swapaxes", axis1, axis2)

    def take(self, indices: Any, axis: int | None = None, *more: Any, **settings: Any) -> Array:
        return self._call("take", indices, axis, *more, **settings)

    def repeat(self, repeats: Any, axis: int | None = None, **settings: Any) -> Array:
        return self._call("repeat", repeats, axis, **settings)

    def diagonal(self, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Array:
        return self._call("diagonal", offset, axis1, axis2)

    def trace(
        self,
        offset: int = 0,
        axis1: int = 0,
        axis2: int = 1,
        dtype: Any = None,
        out: None = None,
    ) -> Array:
        return self.diagonal(offset, axis1, axis2).sum(-1, dtype, out)

    def copy(self, order: str = "K") -> Array:
        return self._call("copy", order)

    def clip(self, min: Any = None, max: Any = None, **bounds: Any) -> Array:
        return self._call("clip", min, max, **bounds)

    def round(self, decimals: int = 0, out: None = None) -> Array:
        return self._call("round", decimals, out)

    def __round__(self, digits: int = 0) -> Array:
        return self._call("round", digits)

    def conj(self) -> Array:
        return self._call("conj")

    def conjugate(self) -> Array:
        return self._call("conj")

    def dot(self, b: Any, **settings: Any) -> Array:
        return self._call("dot", b, **settings)

    def cumsum(self, axis: int | None = None, dtype: Any = None, out: None = None) -> Array:
        return self._call("cumsum", axis, dtype, out)

    def cumprod(self, axis: int | None = None, dtype: Any = None, out: None = None) -> Array:
        return self._call("cumprod", axis, dtype, out)

    def argsort(self, axis: int | None = -1, *more: Any, **settings: Any) -> Array:
        return self._call("argsort", axis, *more, **settings)

    def sort(self, axis: int | None = -1, *more: Any, **settings: Any) -> Array:
        """In order, as an array of its own: this one keeps its elements."""
        return self._call("sort", axis, *more, **settings)

    def searchsorted(self, v: Any, side: str = "left", sorter: Any = None) -> Array:
        return self._call("searchsorted", v, side, sorter)

    def nonzero(self, **settings: Any) -> tuple[Array, ...]:
        found: tuple[Array, ...] = _functions().nonzero(self, **settings)
        return found

    def argpartition(self, kth: Any, axis: int | None = -1) -> Array:
        return self._call("argpartition", kth, axis)

    def choose(self, choices: Any, out: None = None, mode: str = "raise") -> Array:
        return self._call("choose", choices, out, mode)

    def compress(self, condition: Any, axis: int | None = None, **settings: Any) -> Array:
        found: Array = _functions().compress(condition, self, axis, **settings)
        return found

    def ptp(self, axis: Any = None, out: None = None, keepdims: bool = False) -> Array:
        return self._call("ptp", axis, out, keepdims)

    def block_until_ready(self) -> Array:
        """The array itself: a call returns when its results are there."""
        return self  # type: ignore[return-value]

    def sum(
        self,
        axis: Any = None,
        dtype: Any = None,
        out: None = None,
        keepdims: bool = False,
        **which: Any,
    ) -> Array:
        return self._call("sum", axis, dtype, out, keepdims, **which)

    def prod(
        self,
        axis: Any = None,
        dtype: Any = None,
        out: None = None,
        keepdims: bool = False,
        **which: Any,
    ) -> Array:
        return self._call("prod", axis, dtype, out, keepdims, **which)

    def mean(
        self,
        axis: Any = None,
        dtype: Any = None,
        out: None = None,
        keepdims: bool = False,
        **which: Any,
    ) -> Array:
        return self._call("mean", axis, dtype, out, keepdims, **which)

    def var(
        self,
        axis: Any = None,
        dtype: Any = None,
        out: None = None,
        ddof: float = 0,
        keepdims: bool = False,
        **which: Any,
    ) -> Array:
        return self._call("var", axis, dtype, out, ddof, keepdims, **which)

    def std(
        self,
        axis: Any = None,
        dtype: Any = None,
        out: None = None,
        ddof: float = 0,
        keepdims: bool = False,
        **which: Any,
    ) -> Array:
        return self._call("std", axis, dtype, out, ddof, keepdims, **which)

    def max(
        self, axis: Any = None, out: None = None, keepdims: bool = False, **which: Any
    ) -> Array:
        return self._call("max", axis, out, keepdims, **which)

    def min(
        self, axis: Any = None, out: None = None, keepdims: bool = False, **which: Any
    ) -> Array:
        return self._call("min", axis, out, keepdims, **which)

    def any(
        self, axis: Any = None, out: None = None, keepdims: bool = False, **which: Any
    ) -> Array:
        return self._call("any", axis, out, keepdims, **which)

    def all(
        self, axis: Any = None, out: None = None, keepdims: bool = False, **which: Any
    ) -> Array:
        return self._call("all", axis, out, keepdims, **which)

    def argmax(self, axis: int | None = None, out: None = None, keepdims: bool = False) -> Array:
        return self._call("argmax", axis, out, keepdims)

    def argmin(self, axis: int | None = None, out: None = None, keepdims: bool = False) -> Array:
        return self._call("argmin", axis, out, keepdims)

    def __neg__(self) -> Array:
        return self._call("negative")

    def __abs__(self) -> Array:
        return self._call("abs")

    def __add__(self, other: Any) -> Any:
        return self._operate("add", self, other)

    def __radd__(self, other: Any) -> Any:
        return self._operate("add", other, self)

    def __sub__(self, other: Any) -> Any:
        return self._operate("subtract", self, other)

    def __rsub__(self, other: Any) -> Any:
        return self._operate("subtract", other, self)

    def __mul__(self, other: Any) -> Any:
        return self._operate("multiply", self, other)

    def __rmul__(self, other: Any) -> Any:
        return self._operate("multiply", other, self)

    def __truediv__(self, other: Any) -> Any:
        return self._operate("divide", self, other)

    def __rtruediv__(self, other: Any) -> Any:
        return self._operate("divide", other, self)

    def __floordiv__(self, other: Any) -> Any:
        return self._operate("floor_divide", self, other)

    def __rfloordiv__(self, other: Any) -> Any:
        return self._operate("floor_divide", other, self)

    def __mod__(self, other: Any) -> Any:
        return self._operate("remainder", self, other)

    def __rmod__(self, other: Any) -> Any:
        return self._operate("remainder", other, self)

    def __divmod__(self, other: Any) -> Any:
        return self._operate("divmod", self, other)

    def __rdivmod__(self, other: Any) -> Any:
        return self._operate("divmod", other, self)

    def __pow__(self, other: Any) -> Any:
        return self._operate("pow", self, other)

    def __rpow__(self, other: Any) -> Any:
        return self._operate("pow", other, self)

    def __matmul__(self, other: Any) -> Any:
        return self._operate("matmul", self, other)

    def __rmatmul__(self, other: Any) -> Any:
        return self._operate("matmul", other, self)

    def __and__(self, other: Any) -> Any:
        return self._operate("bitwise_and", self, other)

    def __rand__(self, other: Any) -> Any:
        return self._operate("bitwise_and", other, self)

    def __or__(self, other: Any) -> Any:
        return self._operate("bitwise_or", self, other)

    def __ror__(self, other: Any) -> Any:
        return self._operate("bitwise_or", other, self)

    def __xor__(self, other: Any) -> Any:
        return self._operate("bitwise_xor", self, other)

    def __rxor__(self, other: Any) -> Any:
        return self._operate("bitwise_xor", other, self)

    def __lshift__(self, other: Any) -> Any:
        return self._operate("bitwise_left_shift", self, other)

    def __rlshift__(self, other: Any) -> Any:
        return self._operate("bitwise_left_shift", other, self)

    def __rshift__(self, other: Any) -> Any:
        return self._operate("bitwise_right_shift", self, other)

    def __rrshift__(self, other: Any) -> Any:
        return self._operate("bitwise_right_shift", other, self)

    __hash__ = None  # type: ignore[assignment]

    def __eq__(self, other: object) -> Any:
        return self._operate("equal", self, other)

    def __ne__(self, other: object) -> Any:
        return self._operate("not_equal", self, other)

    def __lt__(self, other: Any) -> Any:
        return self._operate("less", self, other)

    def __le__(self, other: Any) -> Any:
        return self._operate("less_equal", self, other)

    def __gt__(self, other: Any) -> Any:
        return self._operate("greater", self, other)

    def __ge__(self, other: Any) -> Any:
        return self._operate("greater_equal", self, other)
