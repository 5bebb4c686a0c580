"""Tracing, conversions: an array as what others hold: NumPy's arrays, DLPack, buffers, Python's
numbers and text.

`Array` inherits the methods. They ask for its elements; a traced array, which has none, says so.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from tetrad.core import lazy
from tetrad.core.dtypes import DType
from tetrad.core.errors import CopyError, DtypeError, ShapeError
from tetrad.core.sizes import Size
from tetrad.core.tree import tree_map
from tetrad.core.types import ArrayType
from tetrad.tracing.fail import fail

dlpack = lazy.later("tetrad.tracing.dlpack")
# of the array API standard; the last is the one we follow
API_VERSIONS = ("2023.12", "2024.12", "2025.12")
ATTRIBUTES: dict[Any, str] = {np.shape: "shape", np.ndim: "ndim", np.size: "size"}


class Conversions:
    """What `np.asarray(x)`, `float(x)` and `print(x)` call."""

    __slots__ = ()
    is_traced = False  # is it a node of a graph, without values of its own?

    if TYPE_CHECKING:  # what `Array` has
        type: ArrayType

        @property
        def memory(self) -> np.ndarray: ...
        @property
        def elements(self) -> np.ndarray: ...
        @property
        def dtype(self) -> DType: ...
        @property
        def ndim(self) -> int: ...
        @property
        def size(self) -> Size: ...
        @property
        def is_deleted(self) -> bool: ...
        def shown(self) -> np.ndarray: ...

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        view = self.elements
        if dtype is not None and np.dtype(dtype) != view.dtype:
            if copy is False:
                message = f"__array__: copy=False, but {self.type} has to become {np.dtype(dtype)}"
                fail(CopyError, message, "leave copy out")
            return np.array(view, dtype)
        if copy:
            return np.array(view)
        return self.shown().view()

    def __array_function__(
        self, function: Callable[..., Any], types: Any, args: Any, kwargs: Any
    ) -> Any:
        """NumPy's functions take the values (a traced array has none), or ask what the array is."""
        if function in ATTRIBUTES and len(args) == 1 and not kwargs:
            return getattr(args[0], ATTRIBUTES[function])
        if self.is_traced and hasattr(function, "_implementation"):
            return function._implementation(*args, **kwargs)  # by methods of what it is given
        args, kwargs = tree_map(
            lambda x: np.asarray(x) if isinstance(x, Conversions) else x, (args, kwargs)
        )
        return function(*args, **kwargs)

    def __dlpack__(
        self,
        *,
        stream: Any = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> Any:
        """Read-only where the consumer keeps to that flag (from DLPack 1.0 on), else a copy."""
        if self.dtype.is_quantized and not self.dtype.is_narrow:
            message = f"__dlpack__: {self.type} has no type of DLPack's"
            fail(DtypeError, message, "convert with astype, or hand over np.asarray(x)")
        is_new = max_version is not None and tuple(max_version) >= (1, 0)
        careless = dlpack.careless(sys._getframe(1))
        if is_new and careless is None:
            options = {"max_version": max_version, "copy": copy}
            shown = self.__array__()
            return dlpack.capsule_of(
                shown, self.dtype, {"stream": stream, "dl_device": dl_device, **options}
            )
        if copy is False:
            consumer = careless or "a consumer below DLPack 1.0"
            message = f"__dlpack__: copy=False, but {consumer} may write to {self.type}"
            fail(CopyError, message, "leave copy out, or pass max_version=(1, 0)")
        options = {"max_version": max_version}
        return dlpack.capsule_of(
            np.array(self.elements),
            self.dtype,
            {"stream": stream, "dl_device": dl_device, **options},
        )

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.memory.__dlpack_device__()

    def __buffer__(self, flags: int) -> memoryview:
        return self.__array__().data

    def __array_namespace__(self, *, api_version: str | None = None) -> Any:
        if api_version not in (None, *API_VERSIONS):
            offered = ", ".join(API_VERSIONS)
            fail(
                DtypeError,
                f"array API version {api_version!r} is not offered",
                f"versions: {offered}",
            )
        return lazy.provided("the public namespace")

    def item(self, *index: Any) -> bool | int | float | complex:
        """The value of an array of one element, or of the element at an index (one number counts
        the flat elements), as a Python number."""
        if index:
            return self.elements.item(*index)  # type: ignore[no-any-return]
        if self.size != 1:
            fail(ShapeError, f"item: {self.type} has not exactly one element")
        value = self.elements.item()
        return value if isinstance(value, bool | int | complex) else float(value)

    def tolist(self) -> Any:
        return self.elements.tolist()

    def _scalar(self, to: str) -> Any:
        if self.ndim:
            fail(
                DtypeError,
                f"{to}: only an array without axes converts to a Python {to}, got {self.type}",
            )
        return self.elements.item()

    def __bool__(self) -> bool:
        if self.size != 1:
            fail(
                ShapeError,  # a ValueError, as NumPy's
                f"the truth value of {self.type} is ambiguous",
                "use td.any(x) or td.all(x)",
            )
        return bool(self.elements.item())

    def __int__(self) -> int:
        return int(self._scalar("int"))

    def __float__(self) -> float:
        return float(self._scalar("float"))

    def __complex__(self) -> complex:
        return complex(self._scalar("complex"))

    def __index__(self) -> int:
        if not (self.dtype.is_integer or self.dtype.is_nibble):
            fail(DtypeError, f"only integer arrays are indices, got {self.type}")
        return int(self._scalar("int"))

    def __repr__(self) -> str:
        if self.is_deleted:
            return f"Array(donated {self.type})"
        if self.dtype.is_quantized and not self.dtype.is_narrow:
            return f"Array(quantised {self.type})"
        body = np.array2string(self.elements, separator=", ", prefix="Array(")
        return f"Array({body}, {self.dtype.name})"

    def __str__(self) -> str:
        is_bytes = self.dtype.is_quantized and not self.dtype.is_narrow
        return repr(self) if is_bytes else str(self.elements)

    def __format__(self, spec: str) -> str:
        if not spec or not self.ndim:
            return format(self.item() if spec else str(self), spec)
        message = f"format: {spec!r} formats one number, got {self.type}"
        fail(DtypeError, message, "format its elements, or set np.printoptions")
