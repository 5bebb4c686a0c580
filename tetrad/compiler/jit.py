"""The compiler, jit: a function that is traced and compiled once per signature and then runs as
native code.

Receives a Python function and an engine (how to compile a graph, how to hand memory to compiled
code; `jit` gives the native one); returns a `Jitted`, which looks like the function. Inside another
trace it records a `call` of its own graph instead. The compiler, and with it LLVM, is loaded by the
first compilation.
"""

from __future__ import annotations

import functools
import sys
import types
from collections.abc import Callable, Hashable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from tetrad.backends import backend_named
from tetrad.compiler.dims import bind_sizes, check_names, mark, spread_dims
from tetrad.core import lazy
from tetrad.core.backend import Backend
from tetrad.core.config import LOCAL
from tetrad.core.dtypes import DType
from tetrad.core.errors import DtypeError, ShapeError, TraceError
from tetrad.core.floats import own_floats
from tetrad.core.locks import object_lock
from tetrad.core.record import record
from tetrad.core.sizes import Named, SizeExpr, bind, dims_of
from tetrad.core.tracebacks import cut
from tetrad.core.tree import LEAF, TreeDef, take, tree_map
from tetrad.core.types import ArrayType
from tetrad.graph.build import call, make_call, make_item
from tetrad.graph.effects import has_effects
from tetrad.graph.nested import innermost_first
from tetrad.graph.nodes import Graph
from tetrad.passes.inline_custom import INLINE_CUSTOM
from tetrad.passes.step import run_pass
from tetrad.tracing.array import (
    Array,
    ArrayStorage,
    TracedArray,
    array_type,
    fail,
    is_inline,
    node_of,
)
from tetrad.tracing.context import current_trace, stack
from tetrad.tracing.effects import note
from tetrad.tracing.operands import dtype_holds, lent, number_of, scalar, wrap
from tetrad.tracing.signature import Arguments, chosen, signature_of
from tetrad.tracing.switches import checked_values, jit_is_disabled
from tetrad.tracing.trace import (
    WIDE,
    ArgumentKind,
    Spec,
    Traced,
    kinds_of,
    output_of,
    trace_function,
)

if TYPE_CHECKING:
    from tetrad.compiler.stages import LoweredCall, TracedCall

# to the storage of an array that only this call can reach: array, list of storages, getrefcount
OWN_REFERENCES = 3
MAX_SIZES = 4096  # remembered argument types per function; more than that and the memory is dropped


class Compiled(Protocol):
    """A compiled graph (the compiler has the class)."""

    def run(self, storages: list[ArrayStorage], dims: tuple[int, ...]) -> list[ArrayStorage]: ...


class CompileEngine(Protocol):
    """What turns graphs into machine code and NumPy memory into storage."""

    def prepare(self) -> None:
        """A function is about to be traced: what compiling needs can be got ready meanwhile."""

    def compile_graph(self, graph: Graph, donated: tuple[int, ...]) -> Compiled: ...

    def from_numpy(self, array: np.ndarray) -> ArrayStorage: ...


@record
class Specialisation:
    """One compiled signature: serves every size of its Dims."""

    graph: Graph
    executable: Compiled
    tree: TreeDef
    dims: tuple[Named, ...]  # sorted by name: the order of Executable.run
    sizes: tuple[SizeExpr, ...]  # sizes inside the graph that must not become negative
    donated: tuple[int, ...]
    # inputs that are Python ints, and the integer types they are cast to
    narrowed: tuple[tuple[int, DType], ...]


@record
class Bound:
    """A program with the sizes of one call: everything a repeated call needs, looked up by the
    arguments' types."""

    program: Specialisation
    run: Callable[[list[ArrayStorage], tuple[int, ...]], list[ArrayStorage]]
    dims: tuple[int, ...]
    outputs: tuple[ArrayType, ...]
    single: ArrayType | None  # set when the function returns one array


class Jitted:
    """A compiled function. `compiles` counts compilations, `signatures` says what each was for."""

    def __init__(
        self,
        function: Callable[..., Any],
        engine: CompileEngine,
        *,
        static_argnums: int | Sequence[int] = (),
        static_argnames: str | Sequence[str] = (),
        donate_argnums: int | Sequence[int] = (),
        donate_argnames: str | Sequence[str] = (),
        dims: Any = None,
    ) -> None:
        self.signature = signature_of(function, static_argnums, static_argnames)
        functools.update_wrapper(self, function)
        self.function, self.engine = function, engine
        self.donated = chosen(function, donate_argnums, donate_argnames, "donate")
        self._check_donated()
        self.dims = dims
        self.signatures: list[str] = []
        self._programs: dict[Hashable, Specialisation] = {}
        self._traces: dict[Hashable, Traced] = {}
        self._bounds: dict[Hashable, Bound] = {}
        # the same for plain arrays, by the settings and the ids of their types
        self._fast: dict[tuple[int, ...], Bound] = {}
        self._lock = object_lock()

    @property
    def compiles(self) -> int:
        return len(self.signatures)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        # The short way: positional arrays whose types were seen before. Types are interned, so ids
        # stand for them.
        try:
            if kwargs or stack.traces:
                return self._call(args, kwargs)
            try:
                bound = self._fast.get((LOCAL.view.key, *[id(x.type) for x in args]))
            except AttributeError:  # not all are our arrays
                args = tuple([wrap(x) if type(x) is np.ndarray else x for x in args])
                types = [id(x.type) if type(x) is Array else 0 for x in args]
                bound = self._fast.get((LOCAL.view.key, *types))
            if bound is None:
                return self._call(args, kwargs)
            from_numpy = self.engine.from_numpy
            try:
                given = [x._storage or x.storage(from_numpy) for x in args]
            except AttributeError:  # something else that has a type, such as a Spec
                return self._call(args, kwargs)
            storages = bound.run(given, bound.dims)
            if bound.single is not None:
                return Array.from_storage(bound.single, storages[0])
            return _returned(bound, storages)
        except BaseException as error:
            error.__traceback__ = cut(error)
            raise  # which adds no frame

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        return self if instance is None else types.MethodType(self, instance)

    def __reduce__(self) -> str:
        """Copied and pickled as functions are: by name."""
        return str(self.__qualname__)  # type: ignore[attr-defined]

    def __repr__(self) -> str:
        return f"<jitted {self.signature.name}, compiled {self.compiles} times>"

    def trace(self, *args: Any, **kwargs: Any) -> TracedCall:
        """A call with these arguments (arrays or `Spec`s) as a graph: `.graph`, `.out_info`, and
        `.lower()` for what follows."""
        arguments = self.signature.arguments(args, kwargs)
        kinds = kinds_of(self.signature, arguments)
        traced = self._trace(arguments, self._symbolic(arguments, kinds))
        stages = lazy.module("tetrad.compiler.stages")
        return stages.TracedCall(self, arguments, kinds, traced)  # type: ignore[no-any-return]

    def lower(self, *args: Any, **kwargs: Any) -> LoweredCall:
        """A call with these arguments (arrays or `Spec`s), ready for `.compile()`.

        >>> import tetrad as td
        >>> compiled = td.jit(lambda x: x + 1).lower(td.Spec((2,))).compile()
        >>> compiled(td.asarray([1.0, 2.0])), compiled.out_info
        (Array([2., 3.], float32), Spec(f32[2]))
        """
        return self.trace(*args, **kwargs).lower()

    def eval_shape(self, *args: Any, **kwargs: Any) -> Any:
        """What a call returns, with a `Spec` in place of each array."""
        return self.trace(*args, **kwargs).out_info

    def clear_cache(self) -> None:
        """Forget what was compiled in this process."""
        for known in (self._programs, self._traces, self._bounds, self._fast):
            known.clear()

    def bound(self, *args: Any) -> Bound:
        """The program for arguments of these types and sizes: its `run` takes storages, without
        asking again."""
        return self.bind(self.signature.arguments(args, {}))

    # one call

    def _call(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if jit_is_disabled():
            return self._uncompiled(args, kwargs)
        arguments = self.signature.arguments(args, kwargs)
        if stack.traces:
            arguments = self._opened(arguments)
            return self._inline(arguments, kinds_of(self.signature, arguments))
        arrays, key = self._arrays(arguments)
        bound = self._bounds.get(key)
        if bound is None:
            arguments = self._opened(arguments)
            arrays, key = self._arrays(arguments)
            bound = self._bounds.get(key) or self.bind(arguments)
            self._remember(key, bound, args, kwargs)
        self._check_numbers(arguments, bound.program)
        if wanted := checked_values():
            return self._run_checked(arguments, bound, wanted)
        from_numpy = self.engine.from_numpy
        storages = [x._storage or x.storage(from_numpy) for x in arrays]
        if bound.program.donated:
            ours = {i: arrays[i] is arguments.leaves[i] for i in bound.program.donated}
            storages = _given_up(arrays, ours, storages, self.engine)
        return _returned(bound, bound.run(storages, bound.dims))

    def _uncompiled(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """What the function gives as it is written; arrays and numbers become arrays of ours."""
        arguments = self.signature.arguments(args, kwargs)
        kinds_of(self.signature, arguments)
        given = [
            wrap(np.asarray(x)) if isinstance(x, np.ndarray | np.generic) else x
            for x in arguments.leaves
        ]
        positional, named = arguments.rebuild(given)
        return tree_map(
            lambda x: output_of(self.signature.name, x), self.function(*positional, **named)
        )

    def _run_checked(self, arguments: Arguments, bound: Bound, wanted: tuple[str, ...]) -> Any:
        """The results, if none of them has a number that is an error now."""
        arrays, _ = self._arrays(arguments)
        views = [np.array(x.memory) for x in arrays]  # some may be donated
        storages = [x._storage or x.storage(self.engine.from_numpy) for x in arrays]
        if bound.program.donated:
            ours = {i: arrays[i] is arguments.leaves[i] for i in bound.program.donated}
            storages = _given_up(arrays, ours, storages, self.engine)
        made = bound.run(storages, bound.dims)
        results = [
            Array.from_storage(k, s).memory for k, s in zip(bound.outputs, made, strict=True)
        ]
        sizes = {dim.name: n for dim, n in zip(bound.program.dims, bound.dims, strict=True)}
        names = self.signature.leaf_names(arguments)
        lazy.module("tetrad.compiler.bad_values").check(
            bound.program.graph, views, results, wanted, names, sizes
        )
        return _returned(bound, made)

    def _opened(self, arguments: Arguments) -> Arguments:
        """Numbers of low-bit weights among the arguments are handed over as their codes, unless
        the function says something of its arguments' axes or memory."""
        if self.dims is not None or any(self.donated):
            return arguments
        if not any(isinstance(x, Array) and is_inline(x) for x in arguments.leaves):
            return arguments
        made: Arguments = lazy.module("tetrad.tracing.deferred").opened(arguments)
        return made

    def _check_numbers(self, arguments: Arguments, program: Specialisation) -> None:
        """A Python int travels in 64 bits: does it fit what the program makes of it?"""
        for i, dtype in program.narrowed:
            number = arguments.leaves[i]
            if type(number) is int and not dtype_holds(dtype, number):
                name = self.signature.leaf_names(arguments)[i]
                message = f"{self.signature.name}: {name} is {number}, which does not fit {dtype}"
                fail(
                    DtypeError,
                    message,
                    "pass an array of a wider dtype: td.asarray(n, dtype=td.int64)",
                )

    def _arrays(self, arguments: Arguments) -> tuple[list[Array], Hashable]:
        """The arguments as arrays, and a key for all that the choice of program and sizes depends
        on."""
        arrays: list[Array] = []
        key: list[Any] = [arguments.key]
        for i, leaf in enumerate(arguments.leaves):
            if type(leaf) is not Array:
                if isinstance(leaf, np.generic):  # checked as the number it is, from now on
                    leaf = arguments.leaves[i] = number_of(leaf)
                key.append(type(leaf) if type(leaf) in WIDE else None)
                leaf = self._concrete(leaf, arguments)
            arrays.append(leaf)
            key.append(id(leaf.type))  # types of arrays are interned and stay
        return arrays, tuple(key)

    def _concrete(self, leaf: Any, arguments: Arguments) -> Array:
        if type(leaf) in WIDE or isinstance(leaf, np.ndarray):
            return _operand(leaf)
        if isinstance(leaf, TracedArray):
            leaf.memory  # noqa: B018  raises: no trace is active, so the value has leaked
        if isinstance(leaf, Spec):
            fail(
                TraceError,
                f"{leaf!r} has no values to run with",
                "use .trace(...) or td.trace for a graph",
            )
        # names the argument that is none of the above, nor a number
        kinds_of(self.signature, arguments)
        return _operand(leaf)

    def _remember(
        self, key: Hashable, bound: Bound, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> None:
        if len(self._bounds) >= MAX_SIZES:
            self._bounds.clear()
            self._fast.clear()
        self._bounds[key] = bound
        plain = (
            not checked_values()
            and not kwargs
            and not bound.program.donated
            and not self.signature.has_static
        )
        if plain and all(type(x) is Array for x in args):
            self._fast[LOCAL.view.key, *[id(x.type) for x in args]] = bound

    # one program per signature

    def _program(
        self, arguments: Arguments, kinds: tuple[ArgumentKind, ...], traced: Traced | None = None
    ) -> Specialisation:
        symbolic = self._symbolic(arguments, kinds)
        key = (arguments.key, symbolic)
        found = self._programs.get(key)
        if found is not None:
            return found
        with self._lock:  # a second thread waits for the first one's program
            if key not in self._programs:
                self._programs[key] = self._compile(arguments, symbolic, traced)
                self.signatures.append(self._describe(arguments, symbolic))
            return self._programs[key]

    def _compile(
        self, arguments: Arguments, kinds: tuple[ArgumentKind, ...], traced: Traced | None
    ) -> Specialisation:
        with own_floats():
            return self._compiled(arguments, kinds, traced)

    def _compiled(
        self, arguments: Arguments, kinds: tuple[ArgumentKind, ...], known: Traced | None
    ) -> Specialisation:
        self.engine.prepare()
        traced = known or self._trace(arguments, kinds)
        dims = sorted(
            {d for kind in kinds for n in kind.type.shape for d in dims_of(n)}, key=lambda d: d.name
        )
        donated = self._donated_leaves(arguments)
        graph = run_pass(INLINE_CUSTOM, traced.graph)
        compiled = self.engine.compile_graph(graph, donated)
        numbers = {i for i, kind in enumerate(kinds) if kind.weak is int}
        narrowed = tuple((i, dtype) for i, dtype in narrowings(graph) if i in numbers)
        return Specialisation(
            graph, compiled, traced.tree, tuple(dims), _shrinking_sizes(graph), donated, narrowed
        )

    def _trace(self, arguments: Arguments, kinds: tuple[ArgumentKind, ...]) -> Traced:
        return trace_function(self.signature, self.function, arguments, kinds)

    def _check_donated(self) -> None:
        both = self.donated[0] & self.signature.static_positions
        if both:
            names = ", ".join(self.signature.argument_name(i) for i in sorted(both))
            fail(
                TraceError, f"{self.signature.name}: {names} is static, only arrays can be donated"
            )

    def _donated_leaves(self, arguments: Arguments) -> tuple[int, ...]:
        positional, keyword = arguments.tree.parts
        keys: Any = keyword.data
        given = [p in self.donated[0] for p in arguments.positions] + [
            key in self.donated[1] for key in keys
        ]
        children = (*positional.parts, *keyword.parts)
        leaves = [
            is_given
            for is_given, child in zip(given, children, strict=True)
            for _ in range(child.num_leaves)
        ]
        return tuple(leaf for leaf, is_given in enumerate(leaves) if is_given)

    def _describe(self, arguments: Arguments, kinds: tuple[ArgumentKind, ...]) -> str:
        names = self.signature.leaf_names(arguments)
        shown = [f"{name}: {kind.type}" for name, kind in zip(names, kinds, strict=True)]
        fixed = [
            f"{self.signature.argument_name(where)}={value!r}" for where, value in arguments.statics
        ]
        return f"({', '.join(shown + fixed)})"

    # symbolic sizes

    def _symbolic(
        self, arguments: Arguments, kinds: tuple[ArgumentKind, ...]
    ) -> tuple[ArgumentKind, ...]:
        """The kinds with the sizes that `dims` marks replaced by Dims."""
        if self.dims is None:
            return kinds
        marks = spread_dims(self.dims, arguments, self.signature.name, self.signature.parameters)
        names = self.signature.leaf_names(arguments)
        made = tuple(
            ArgumentKind(mark(name, kind.type, marked), kind.weak)
            for name, kind, marked in zip(names, kinds, marks, strict=True)
        )
        check_names(made)
        return made

    def bind(self, arguments: Arguments, traced: Traced | None = None) -> Bound:
        """The program for these arguments, at their sizes; `traced`, if that was done before."""
        kinds = kinds_of(self.signature, arguments)
        program = self._program(arguments, kinds, traced)
        values: dict[str, int] = {}
        if program.dims:
            declared, actual = (
                [node.type for node in program.graph.inputs],
                [kind.type for kind in kinds],
            )
            values = bind_sizes(
                self.signature.name, self.signature.leaf_names(arguments), declared, actual
            )
            for size in program.sizes:
                if bind(size, values) < 0:
                    fail(
                        ShapeError,
                        f"{self.signature.name}: the size {size} is {bind(size, values)} for "
                        f"{values}",
                    )
        outputs = tuple(
            array_type(o.type.dtype, tuple(bind(n, values) for n in o.type.shape))
            for o in program.graph.outputs
        )
        dims = tuple(values[dim.name] for dim in program.dims)
        return Bound(
            program,
            program.executable.run,
            dims,
            outputs,
            outputs[0] if program.tree is LEAF else None,
        )

    # inside another trace

    def _inline(self, arguments: Arguments, kinds: tuple[ArgumentKind, ...]) -> Any:
        """Record a call of this function's graph in the current trace."""
        key = (arguments.key, kinds, stack.axes)
        traced = self._traces.get(key)
        if traced is None:
            traced = self._trace(arguments, kinds)
            is_closed = not any(isinstance(value, TracedArray) for value in traced.captured)
            if is_closed and not has_effects(traced.graph):
                self._traces[key] = traced  # the next equal layer is not traced again
        outer = current_trace()
        if outer is None:
            fail(TraceError, f"{self.signature.name}: the enclosing trace has ended")
        nodes = [
            node_of(_operand(leaf, lent), outer) for leaf in (*arguments.leaves, *traced.captured)
        ]
        made = make_call(traced.graph, nodes)
        note(outer, [made])
        results = [TracedArray.of(make_item(made, i), outer) for i in range(len(made.types))]
        return take(traced.tree, iter(results))  # a token may stand behind them


def _returned(bound: Bound, storages: list[ArrayStorage]) -> Any:
    arrays = [
        Array.from_storage(kind, storage)
        for kind, storage in zip(bound.outputs, storages, strict=True)
    ]
    return take(bound.program.tree, iter(arrays))  # a token may stand behind them


def _operand(leaf: Any, over: Callable[[np.ndarray], Array] = wrap) -> Array:
    """An argument as an array, Python numbers at full precision; `over`: how one is made over
    memory of NumPy's."""
    if isinstance(leaf, TracedArray) and leaf.wide is not None:
        return TracedArray.of(leaf.wide, leaf.home_trace)
    if isinstance(leaf, Array):
        return leaf
    leaf = number_of(leaf) if isinstance(leaf, np.generic) else leaf
    return scalar(leaf, WIDE[type(leaf)]) if type(leaf) in WIDE else over(np.asarray(leaf))


def _given_up(
    arrays: list[Array], ours: dict[int, bool], storages: list[ArrayStorage], engine: CompileEngine
) -> list[ArrayStorage]:
    """The storages with those of donated arrays: their own if nobody else can see them, else
    copies.

    The donated arrays are gone afterwards. One that is passed twice is seen by the other argument.
    """
    given: list[ArrayStorage | None] = [None] * len(storages)
    for i, is_ours in ours.items():
        shared = (
            not is_ours
            or arrays[i]._view is not None
            or sys.getrefcount(storages[i]) > OWN_REFERENCES
        )
        given[i] = (
            engine.from_numpy(np.array(arrays[i].memory, order="C")) if shared else storages[i]
        )
    for i, is_ours in ours.items():
        if is_ours:
            arrays[i].delete()
    return [old if new is None else new for old, new in zip(storages, given, strict=True)]


def narrowings(graph: Graph) -> list[tuple[int, DType]]:
    """Which inputs of a graph are cast to which integer types, here or in the functions it
    calls."""
    done: dict[Graph, dict[tuple[int, DType], None]] = {}
    for inner in innermost_first(graph):
        place = {node: i for i, node in enumerate(inner.inputs)}
        found = done[inner] = {}
        for node in inner.nodes():
            if node.op.converts and node.inputs[0] in place and node.type.dtype.is_integer:
                found[place[node.inputs[0]], node.type.dtype] = None
            called = done[node.param("graph")] if node.op is call else ()
            found |= {
                (place[node.inputs[i]], dtype): None
                for i, dtype in called
                if node.inputs[i] in place
            }
    return list(done[graph])


def _shrinking_sizes(graph: Graph) -> tuple[SizeExpr, ...]:
    """Symbolic sizes with a negative term: a Dim may turn out too small for them."""
    sizes: dict[SizeExpr, None] = {}
    for inner in innermost_first(graph):
        for node in inner.nodes():
            for kind in node.types:
                sizes |= {
                    n: None
                    for n in kind.shape
                    if isinstance(n, SizeExpr) and any(f < 0 for _, f in n.terms)
                }
    return tuple(sizes)


# -- the native engine -----------------------------------------------------------------------------


class NativeEngine:
    """Compiles for a back end, which is loaded when it is first used."""

    def __init__(self, name: str) -> None:
        self.name = name

    @cached_property
    def backend(self) -> Backend:
        return backend_named(self.name, "jit")

    @cached_property
    def from_numpy(self) -> Callable[[np.ndarray], Any]:
        return self.backend.storage

    def prepare(self) -> None:
        self.backend.prepare()

    def compile_graph(self, graph: Graph, donated: tuple[int, ...]) -> Compiled:
        compiled: Compiled = lazy.module("tetrad.compiler.program_cache").compile_graph(
            graph, donated
        )
        return compiled


NATIVE = NativeEngine("cpu")


def jit(
    function: Callable[..., Any] | None = None,
    *,
    static_argnums: int | Sequence[int] = (),
    static_argnames: str | Sequence[str] = (),
    donate_argnums: int | Sequence[int] = (),
    donate_argnames: str | Sequence[str] = (),
    dims: Any = None,
    **elsewhere: Any,
) -> Any:
    """Compile a function of arrays. It is traced once per signature: dtypes, shapes, containers and
    static values.

    static_argnums, static_argnames   arguments that are hashable settings, not arrays
    donate_argnums, donate_argnames   arguments whose memory may become a result; they cannot be
                                      used afterwards
    dims                              per argument {axis: Dim}: these axes may have any size, with
                                      one program for all
    elsewhere                         what JAX takes besides: `keep_unused` and `inline` change no
                                      result; `device`, `backend`, `in_shardings` and the like may
                                      be None or say the processor

    >>> import tetrad as td
    >>> jit(lambda x: 2 * x + 1)(td.asarray([1.0, 2.0]))
    Array([3., 5.], float32)
    """
    settings: dict[str, Any] = {
        "static_argnums": static_argnums, "static_argnames": static_argnames,
        "donate_argnums": donate_argnums, "donate_argnames": donate_argnames, "dims": dims,
    }  # fmt: skip
    if elsewhere:
        lazy.module("tetrad.compiler.stages").check_elsewhere(elsewhere)
    lazy.module("tetrad.compiler.program_cache")
    if function is None:
        return lambda wrapped: Jitted(wrapped, NATIVE, **settings)
    return Jitted(function, NATIVE, **settings)
