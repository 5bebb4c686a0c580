"""Tracing, arrays: what users hold. `Array` has values now; `TracedArray` stands for a node of the
graph being built.

Receives ops applied to arrays (`__tetrad_op__`); returns arrays: evaluated at once with the op's
own NumPy meaning when every operand is concrete, else recorded as a node of the current trace. What
can be written on an array beside that is in `tracing.operators`.
"""

from __future__ import annotations

import builtins
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import Any, NoReturn, Protocol

import numpy as np

from tetrad.core import lazy
from tetrad.core.dtypes import DType, as_dtype, bool_
from tetrad.core.errors import (
    CopyError,
    DtypeError,
    ShapeError,
    TetradError,
    TraceError,
    UnsupportedError,
    an,
)
from tetrad.core.floats import are_plain, own_floats
from tetrad.core.op import REGISTRY, Op
from tetrad.core.owners import frozen, own_copy, same_bits
from tetrad.core.sizes import Shape, Size
from tetrad.core.source import user_source
from tetrad.core.tree import tree_map
from tetrad.core.types import ArrayType
from tetrad.graph.build import apply, make_constant, make_graph, parameter, with_inputs
from tetrad.graph.evaluate import evaluate as evaluate_graph
from tetrad.graph.nodes import Literal, Node, topological
from tetrad.tracing.context import Trace, current_trace, stack
from tetrad.tracing.operators import Operators


class ArrayStorage(Protocol):
    """Bytes that compiled code reads and writes (the runtime has the class)."""

    ptr: int
    nbytes: int

    def as_numpy(
        self, dtype: np.dtype, shape: tuple[int, ...], writable: bool = True
    ) -> np.ndarray: ...


deferred = lazy.later("tetrad.tracing.deferred")  # products with weights of low bits
# of the array API standard; the last is the one we follow
API_VERSIONS = ("2023.12", "2024.12", "2025.12")
ATTRIBUTES: dict[Any, str] = {np.shape: "shape", np.ndim: "ndim", np.size: "size"}

# by the name of the dtype: the hash of a string is at hand
_types: dict[tuple[str, Shape], ArrayType] = {}


def array_type(dtype: DType, shape: Shape) -> ArrayType:
    """The one ArrayType object for this dtype and shape: the call path of jit compares types by
    identity."""
    key = (dtype.name, shape)
    found = _types.get(key)
    return found if found is not None else _types.setdefault(key, ArrayType(dtype, shape))


@cache
def _quantized() -> Any:
    return lazy.provided("quantised arrays")


def fail(error: type[TetradError], message: str, hint: str | None = None) -> NoReturn:
    """Raise an error that names the user's line."""
    raise error(message, source=user_source(), hint=hint) from None


def noun_of(x: object) -> str:
    """What came, for an error: the type of an array, else the name of its class."""
    return str(x.type) if isinstance(x, Array) else an(type(x).__name__)


class Array(Operators):
    """An immutable, dense array of numbers or bools. Make one with `asarray`, `zeros`, `arange`,
    ...

    >>> import tetrad as td
    >>> td.asarray([1.5, 2.0]) * 2
    Array([3., 4.], float32)
    """

    __slots__ = ("__weakref__", "_storage", "_view", "type")
    __array_priority__ = 100  # NumPy arrays on the left hand the operation over
    is_deferred = False  # is it made when its elements are asked for (`tracing.deferred`)?

    type: ArrayType
    _view: np.ndarray | None
    _storage: ArrayStorage | None

    @staticmethod
    def from_numpy(view: np.ndarray) -> Array:
        """An array of these values, in place; the caller must not change them afterwards."""
        made = Array.__new__(Array)
        made.type = array_type(as_dtype(view.dtype), view.shape)
        made._view, made._storage = view, None
        return made

    @staticmethod
    def from_bytes(view: np.ndarray, kind: ArrayType) -> Array:
        """An array of a quantised type over the bytes of its blocks, in place."""
        made = Array.__new__(Array)
        made.type = array_type(kind.dtype, kind.shape)
        made._view, made._storage = view.reshape(made.type.storage_shape), None  # type: ignore[arg-type]
        return made

    @staticmethod
    def from_storage(kind: ArrayType, storage: ArrayStorage) -> Array:
        """An array over bytes that compiled code wrote."""
        made = Array.__new__(Array)
        made.type, made._storage, made._view = kind, storage, None
        return made

    @staticmethod
    def __tetrad_op__(op: Op, args: tuple[Any, ...], params: dict[str, Any]) -> Any:
        if op.kind == "movement" and not op.typed and any(is_narrow(a) for a in args):
            return move_narrow(op, args, params)
        if any(isinstance(a, TracedArray) for a in args):
            return record(op, args, params)
        return evaluate(op, args, params)

    # values

    @property
    def view(self) -> np.ndarray:
        """The values as NumPy sees them, in place; read only by convention."""
        if self._view is None:
            if self._storage is None:
                message = (
                    f"this {self.type} was donated to a compiled function, its memory is "
                    "now a "
                    "result"
                )
                fail(
                    TraceError,
                    message,
                    "keep a copy, or do not list the argument in donate_argnums",
                )
            kind = self.type
            self._view = self._storage.as_numpy(kind.dtype.np, kind.storage_shape, False)  # type: ignore[arg-type]
        return self._view

    @property
    def elements(self) -> np.ndarray:
        """The values, an element each: integers of four bits, which lie two in a byte, in bytes;
        floats of eight bits in the type of ml_dtypes."""
        if self.type.dtype.is_float8:
            return self.view.view(self.type.dtype.dtype)
        return REGISTRY["unpack_nibbles"](self).view if self.type.dtype.is_nibble else self.view

    def storage(self, from_numpy: Callable[[np.ndarray], ArrayStorage]) -> ArrayStorage:
        """The bytes for compiled code, contiguous; made once."""
        if self._storage is None:
            view = self.view
            self._view = (
                view if view.flags.c_contiguous and view.flags.aligned else view.copy(order="C")
            )
            self._storage = from_numpy(self._view)
        return self._storage

    def delete(self) -> None:
        """Give up the values (a donated argument)."""
        self._storage = self._view = None

    @property
    def is_deleted(self) -> bool:
        return self._storage is None and self._view is None

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        view = self.elements
        if dtype is not None and np.dtype(dtype) != view.dtype:
            if copy is False:
                message = f"__array__: copy=False, but {self.type} has to become {np.dtype(dtype)}"
                fail(CopyError, message, "leave copy out")
            return np.array(view, dtype)
        if copy:
            return np.array(view)
        shown = frozen(view)
        if self._view is view:
            self._view = shown
        return shown.view()

    def __array_function__(
        self, function: Callable[..., Any], types: Any, args: Any, kwargs: Any
    ) -> Any:
        """NumPy's functions take the values (a traced array has none), or ask what the array is."""
        if function in ATTRIBUTES and len(args) == 1 and not kwargs:
            return getattr(args[0], ATTRIBUTES[function])
        args, kwargs = tree_map(
            lambda x: np.asarray(x) if isinstance(x, Array) else x, (args, kwargs)
        )
        return function(*args, **kwargs)

    def __reduce__(self) -> tuple[Callable[..., Array], tuple[Any, ...]]:
        """Copied and pickled by value, as bytes: an array could be given buffers that somebody
        writes to."""
        return _restored, (self.view.tobytes(), self.type)

    def __dlpack__(
        self,
        *,
        stream: Any = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> Any:
        """Read-only where the consumer knows that flag (from DLPack 1.0 on), else a copy."""
        if self.dtype.is_quantized and not self.dtype.is_nibble:  # those are bytes to NumPy
            message = f"__dlpack__: {self.type} has no type of DLPack's"
            fail(DtypeError, message, "convert with astype, or hand over np.asarray(x)")
        if max_version is not None and tuple(max_version) >= (1, 0):
            shown = self.__array__()
            return shown.__dlpack__(
                stream=stream, max_version=max_version, dl_device=dl_device, copy=copy
            )
        if copy is False:
            message = (
                f"__dlpack__: copy=False, but a consumer below DLPack 1.0 may write to {self.type}"
            )
            fail(CopyError, message, "leave copy out, or pass max_version=(1, 0)")
        return np.array(self.view).__dlpack__(
            stream=stream, max_version=max_version, dl_device=dl_device
        )

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.view.__dlpack_device__()

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

    def dequantize(self) -> Any:
        """The numbers of an array of a quantised type (`td.quant`)."""
        return _quantized().dequantize(self)

    def to_bytes(self) -> bytes:
        """The elements, or the blocks of a quantised type as its file format holds them."""
        return _quantized().to_bytes(self)  # type: ignore[no-any-return]

    def item(self) -> bool | int | float | complex:
        """The value of an array of one element as a Python number."""
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
                DtypeError,
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
        return f"Array({body}, {self.dtype.long_name})"

    def __str__(self) -> str:
        is_bytes = self.dtype.is_quantized and not self.dtype.is_narrow
        return repr(self) if is_bytes else str(self.elements)

    def __format__(self, spec: str) -> str:
        return format(self.item() if spec and not self.ndim else str(self), spec)

    # what it is

    @property
    def dtype(self) -> DType:
        return self.type.dtype

    @property
    def shape(self) -> tuple[Any, ...]:
        return self.type.shape

    @property
    def ndim(self) -> int:
        return len(self.type.shape)

    @property
    def size(self) -> Size:
        return self.type.size

    @property
    def nbytes(self) -> Size:
        return self.type.nbytes

    @property
    def itemsize(self) -> int:
        return self.dtype.nbytes

    @property
    def device(self) -> str:
        return "cpu"

    def to_device(self, device: str, /, *, stream: None = None) -> Array:
        if device != "cpu":
            fail(UnsupportedError, f"to_device: there is no device {device!r}", "devices: cpu")
        return self

    @property
    def T(self) -> Array:
        if self.ndim != 2:
            fail(ShapeError, f"T: needs two axes, got {self.type}", "use mT, or permute_dims")
        return self.mT

    @property
    def mT(self) -> Array:
        return self._call("matrix_transpose")

    @property
    def real(self) -> Array:
        return self._call("real")

    @property
    def imag(self) -> Array:
        return self._call("imag")

    def conj(self) -> Array:
        return self._call("conj")

    def __pos__(self) -> Array:
        return self

    def __invert__(self) -> Array:
        return self._call("logical_not" if self.dtype is bool_ else "bitwise_invert")

    def __len__(self) -> int:
        if not self.ndim:
            fail(
                ShapeError,
                "len: an array without axes has no length",
                "x.item() is its one element",
            )
        size = self.shape[0]
        if not isinstance(size, int):
            fail(
                TraceError,
                f"len: the leading axis of {self.type} is only known when the program runs",
                "use x.shape",
            )
        return size

    def __iter__(self) -> Iterator[Array]:
        return (self[i] for i in range(len(self)))

    def __getitem__(self, key: Any) -> Array:
        return self._call("getitem", key)

    def __setitem__(self, key: Any, value: Any) -> NoReturn:
        fail(
            TraceError,
            "arrays do not change in place",
            "x.at[index].set(value) gives a new one; or td.where",
        )

    @property
    def at(self) -> Any:
        """`x.at[index].set(values)`, also `add`, `multiply`, ...: a new array with those elements
        changed."""
        return lazy.provided("x.at").UpdateIndexer(self)


def is_narrow(x: Any) -> bool:
    """Is it an array of elements of four or eight bits that are moved as bytes?"""
    return isinstance(x, Array) and x.type.dtype.is_narrow


def move_narrow(op: Op, args: tuple[Any, ...], params: dict[str, Any]) -> Any:
    """Elements of four or eight bits are moved as bytes."""
    kind = next(a.type.dtype for a in args if is_narrow(a))
    name = "float8" if kind.is_float8 else "nibbles"
    settings = {"dtype": kind} if kind.is_float8 else {}
    wide = [REGISTRY[f"unpack_{name}"](a) if is_narrow(a) else a for a in args]
    return REGISTRY[f"pack_{name}"](op(*wide, **params), **settings)


class Borrowed(Array):
    """An array over memory that somebody else may write to: to be read now. What stays has to be
    `kept`."""

    __slots__ = ()

    @staticmethod
    def over(view: np.ndarray) -> Borrowed:
        made = Borrowed.__new__(Borrowed)
        made.type = array_type(as_dtype(view.dtype), view.shape)
        made._view, made._storage = view, None
        return made

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return np.array(self.view, dtype)


def kept(x: Array) -> Array:
    """The array, in memory that nobody writes to."""
    return Array.from_numpy(own_copy(x.view)) if type(x) is Borrowed else x


class TracedArray(Array):
    """An array whose values exist when the compiled program runs: a node of the graph of one
    trace."""

    __slots__ = ("node", "trace", "weak", "wide")

    node: Node
    trace: Trace
    weak: builtins.type | None  # a Python number handed to a traced function keeps its kind ...
    wide: Node | None  # ... and its full precision: it takes the dtype of the array it meets

    @staticmethod
    def of(node: Node, trace: Trace) -> TracedArray:
        made = TracedArray.__new__(TracedArray)
        made.type, made.node, made.trace = node.type, node, trace
        made._view = made._storage = made.weak = made.wide = None
        return made

    @property
    def view(self) -> np.ndarray:
        trace_of(self)
        if (known := known_value(self)) is not None:
            return known
        self._refuse(
            "its values",
            "keep to td functions; values that must be known while tracing are static arguments",
        )

    def _refuse(self, wanted: str, hint: str) -> NoReturn:
        message = (
            f"{self.trace.name} is being traced: {self.type} has no values yet, but Python "
            "asked "
            f"for {wanted}"
        )
        fail(TraceError, message, hint)

    def __bool__(self) -> bool:
        if known_value(self) is not None:
            return super().__bool__()
        hint = (
            "choose with td.where or td.cond, repeat with td.while_loop; static_argnums for "
            "plain "
            "settings"
        )
        self._refuse("its truth value (if, while, and, or)", hint)

    def __int__(self) -> int:
        if known_value(self) is not None:
            return super().__int__()
        self._refuse("an int", "compute with the array; static_argnums for plain settings")

    def __float__(self) -> float:
        self._check_lasting("a float")
        if known_value(self) is not None:
            return super().__float__()
        self._refuse("a float", "compute with the array; static_argnums for plain settings")

    def __complex__(self) -> complex:
        self._check_lasting("a complex number")
        return super().__complex__()

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        self._check_lasting("an array of NumPy")
        return super().__array__(dtype, copy)

    def __dlpack__(self, **options: Any) -> Any:
        self._check_lasting("its memory")
        return super().__dlpack__(**options)

    def _check_lasting(self, wanted: str) -> None:
        """What becomes a constant here would be missing in the derivative, and nobody would
        notice."""
        if self.trace.active and is_changing(self) and known_value(self) is not None:
            message = (
                f"{self.trace.name} is being differentiated: {self.type} changes, but "
                "Python "
                f"asked for {wanted}"
            )
            hint = (
                "keep to td functions; td.stop_gradient(x) makes it a constant, x.item() "
                "shows a "
                "number"
            )
            fail(TraceError, message, hint)

    def __index__(self) -> int:
        if known_value(self) is not None:
            return super().__index__()
        hint = "index with td.take, repeat with td.fori_loop; static_argnums for sizes"
        self._refuse("an index (range, list index, shape)", hint)

    @property
    def is_deleted(self) -> bool:
        return False

    def __copy__(self) -> TracedArray:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> TracedArray:
        return self

    def __repr__(self) -> str:
        return f"TracedArray({self.type})"

    __str__ = __repr__


def evaluate(op: Op, args: tuple[Any, ...], params: dict[str, Any]) -> Any:
    """Apply an op to concrete arrays, now, with NumPy; a tuple when it has several results."""
    if not are_plain():
        with own_floats():
            return evaluate(op, args, params)
    arrays = [a if isinstance(a, Array) else Borrowed.over(np.asarray(a)) for a in args]
    may_defer = op.kind != "elementwise" or op.converts
    if may_defer and (op.inline or any([a.is_deferred for a in arrays])):
        made = deferred.applied(op, arrays, params)
        if made is not None:
            return made
    views = [a.view for a in arrays]
    try:
        kinds = tuple(a.type for a in arrays)
        kind = op.type(*kinds, **params)
        result = op.reference(*views, **(params | {"types": kinds} if op.typed else params))
    except TetradError as error:
        raise located(error) from None
    if isinstance(kind, tuple):
        return tuple(_made(k, np.asarray(r), arrays) for k, r in zip(kind, result, strict=True))
    found = np.asarray(result)
    if op.kind != "elementwise":
        return _made(kind, found, arrays)
    return kept(_made(kind, found.copy() if any(found is v for v in views) else found, arrays))


def _made(kind: ArrayType, view: np.ndarray, operands: Sequence[Array]) -> Array:
    made = Array.__new__(Array)
    for x in operands:
        # else it is fresh
        is_part = type(x) is Borrowed and (view.base is not None or view is x._view)
        if is_part and np.may_share_memory(view, x.view):
            made = Borrowed.__new__(Borrowed)
    made.type, made._view, made._storage = array_type(kind.dtype, kind.shape), view, None
    return made


def _restored(data: bytes, kind: ArrayType) -> Array:
    """An array from its pickle."""
    made = Array.__new__(Array)
    made.type, made._storage = array_type(kind.dtype, kind.shape), None
    made._view = np.ndarray(kind.storage_shape, kind.dtype.np, data)  # type: ignore[arg-type]
    return made


def located(error: TetradError) -> TetradError:
    """The error with the user's line, if it has none yet."""
    return error if error.source is not None else error.located(user_source())


def record(op: Op, args: tuple[Any, ...], params: dict[str, Any]) -> Any:
    """Apply an op to arrays of which some are traced: a node of the current trace, a tuple for
    several results."""
    trace = trace_of(next(a for a in args if isinstance(a, TracedArray)))
    nodes = [
        node_of(a if isinstance(a, Array) else Borrowed.over(np.asarray(a)), trace) for a in args
    ]
    made = apply(op, nodes, params)
    return (
        tuple(TracedArray.of(n, trace) for n in made)
        if isinstance(made, tuple)
        else TracedArray.of(made, trace)
    )


def trace_of(x: TracedArray) -> Trace:
    """The trace in which a new node on `x` belongs: the innermost one, as long as x is still
    alive."""
    trace = current_trace()
    if trace is None or x.trace not in stack.traces:
        name = x.trace.name
        when = (
            f"on another thread than that of {name}"
            if x.trace.active
            else f"after the tracing of {name} had ended"
        )
        message = f"a traced {x.type} was used {when}"
        fail(
            TraceError,
            message,
            "return it from the traced function instead of storing it elsewhere",
        )
    return trace


def known_value(x: TracedArray) -> np.ndarray | None:
    """The value of a traced array where it has one already: what it follows from has values in this
    run."""
    trace = x.trace
    parameters = [n for n in topological([x.node]) if n.op is parameter]
    outside = {node: value for value, node in trace.captured.values()} | trace.values
    arrays: list[np.ndarray] = []
    for node in parameters:
        value = outside.get(node)
        view = (
            known_value(value)
            if isinstance(value, TracedArray)
            else value.view
            if value is not None
            else None
        )
        if view is None:
            return None
        arrays.append(view)
    return evaluate_graph(make_graph(trace.name, parameters, [x.node]), arrays)[0]


def is_changing(x: TracedArray) -> bool:
    """Does a derivative that is being taken depend on it?"""
    outside = {node: value for value, node in x.trace.captured.values()}
    stack, seen = [x.node], {x.node}
    while stack:
        node = stack.pop()
        if node.op.stops_gradient or not any(
            t.dtype.is_float or t.dtype.is_complex for t in node.types
        ):
            continue
        if node in x.trace.changing or (
            isinstance(outer := outside.get(node), TracedArray) and is_changing(outer)
        ):
            return True
        fresh = [i for i in node.inputs if i not in seen]
        seen.update(fresh)
        stack.extend(fresh)
    return False


def node_of(x: Array, trace: Trace) -> Node:
    """The node that stands for an array inside a trace."""
    if isinstance(x, TracedArray):
        if x.trace is trace:
            return x.node
        trace_of(x)
        if is_inline(x):  # what is computed as it is read is computed here, from its operands
            operands = [node_of(TracedArray.of(i, x.trace), trace) for i in x.node.inputs]
            return with_inputs(x.node, tuple(operands))
        return trace.capture(x, id(x.node), x.type)
    if x.is_deferred:
        return deferred.node_of_deferred(x, trace)  # type: ignore[no-any-return]
    if type(x) is Borrowed:
        x = value_seen(x)
    if trace.is_inner and x.view.nbytes > Literal.SMALL:
        # Large constants enter sub-graphs as arguments, so that equal layers with different weights
        # stay equal.
        return trace.capture(x, id(x), x.type)
    if id(x) not in trace.constants:
        trace.constants[id(x)] = (x, make_constant(x.view, x.type))
    return trace.constants[id(x)][1]


def is_inline(x: Array) -> bool:
    """Is it the numbers of a weight of low bits, seen through views and conversions?"""
    if not isinstance(x, TracedArray):
        return x.is_deferred
    node = x.node
    while node.op.view or node.op.strided or node.op.converts:
        node = node.inputs[0]
    return node.op.inline


def value_seen(x: Array) -> Array:
    """What a program keeps of an array that is not ours: its value now. Equal ones that lie in one
    place are one."""
    if x.view.nbytes <= Literal.SMALL:
        return x  # as a constant it is a copy
    seen: dict[Any, Array] = stack.traces[0].seen
    place = (x.view.__array_interface__["data"][0], x.view.strides, x.type)
    if place not in seen or not same_bits(seen[place].view, x.view):
        seen[place] = kept(x)
    return seen[place]
