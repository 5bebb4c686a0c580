"""Tracing, operators: the methods and operators of arrays, each the function of its name in the
public namespace.

`Array` inherits them. Nothing here knows how an array holds its values: `tracing.array` does.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, NoReturn

from tetrad.core import lazy

if TYPE_CHECKING:
    from tetrad.tracing.array import Array


@cache
def _functions() -> Any:
    return lazy.provided("methods of arrays")


class Operators:
    """What `x + y` and `x.sum()` call. `which`: the settings `where` and `initial` of the function,
    as they come."""

    __slots__ = ()

    if not TYPE_CHECKING:  # for type checkers, what is not here is an error

        def __getattr__(self, name: str) -> NoReturn:
            told = (
                "" if name.startswith("_") else lazy.provided("suggestions").instead_of_method(name)
            )
            raise AttributeError(f"an array has no attribute {name!r}{told}", name=name, obj=self)

    def _call(self, name: str, *args: Any, **settings: Any) -> Array:
        result: Array = getattr(_functions(), name)(self, *args, **settings)
        return result

    def _operate(self, name: str, left: Any, right: Any) -> Any:
        functions = _functions()
        if not (functions.is_operand(left) and functions.is_operand(right)):
            return NotImplemented
        return getattr(functions, name)(left, right)

    def astype(self, dtype: Any, /, *, copy: bool = True) -> Array:
        return self._call("astype", dtype, copy=copy)

    def reshape(self, *shape: Any) -> Array:
        return self._call(
            "reshape", shape[0] if len(shape) == 1 and not isinstance(shape[0], int) else shape
        )

    def transpose(self, *axes: Any) -> Array:
        return self._call("transpose", *axes)

    def flatten(self) -> Array:
        return self._call("reshape", (-1,))

    def squeeze(self, axis: Any = None) -> Array:
        return self._call("squeeze", axis)

    def take(self, indices: Any, axis: int | None = None) -> Array:
        return self._call("take", indices, axis=axis)

    def sum(
        self, axis: Any = None, *, dtype: Any = None, keepdims: bool = False, **which: Any
    ) -> Array:
        return self._call("sum", axis=axis, dtype=dtype, keepdims=keepdims, **which)

    def prod(
        self, axis: Any = None, *, dtype: Any = None, keepdims: bool = False, **which: Any
    ) -> Array:
        return self._call("prod", axis=axis, dtype=dtype, keepdims=keepdims, **which)

    def mean(self, axis: Any = None, *, keepdims: bool = False, **which: Any) -> Array:
        return self._call("mean", axis=axis, keepdims=keepdims, **which)

    def var(
        self, axis: Any = None, *, correction: float = 0.0, keepdims: bool = False, **which: Any
    ) -> Array:
        return self._call("var", axis=axis, correction=correction, keepdims=keepdims, **which)

    def std(
        self, axis: Any = None, *, correction: float = 0.0, keepdims: bool = False, **which: Any
    ) -> Array:
        return self._call("std", axis=axis, correction=correction, keepdims=keepdims, **which)

    def max(self, axis: Any = None, *, keepdims: bool = False, **which: Any) -> Array:
        return self._call("max", axis=axis, keepdims=keepdims, **which)

    def min(self, axis: Any = None, *, keepdims: bool = False, **which: Any) -> Array:
        return self._call("min", axis=axis, keepdims=keepdims, **which)

    def any(self, axis: Any = None, *, keepdims: bool = False, **which: Any) -> Array:
        return self._call("any", axis=axis, keepdims=keepdims, **which)

    def all(self, axis: Any = None, *, keepdims: bool = False, **which: Any) -> Array:
        return self._call("all", axis=axis, keepdims=keepdims, **which)

    def argmax(self, axis: int | None = None, *, keepdims: bool = False) -> Array:
        return self._call("argmax", axis=axis, keepdims=keepdims)

    def argmin(self, axis: int | None = None, *, keepdims: bool = False) -> Array:
        return self._call("argmin", axis=axis, keepdims=keepdims)

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
