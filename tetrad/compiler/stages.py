"""The compiler, stages: what `jit(f).trace(...)`, `.lower(...)` and `.compile()` give, with the
names they have in JAX.

Receives a jitted function and the arguments of a call (arrays or `Spec`s); returns the call traced,
lowered and compiled: its graph, its program, what it costs, and a function that takes arguments of
just these types.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

from tetrad.core import lazy
from tetrad.core.errors import TraceError, TreeError, UnsupportedError
from tetrad.core.record import record
from tetrad.core.tree import TreeDef, flatten, sketch, unflatten
from tetrad.core.types import ArrayType
from tetrad.graph.nodes import Graph
from tetrad.schedule.plan import nbytes_at
from tetrad.tracing.array import fail
from tetrad.tracing.signature import Arguments
from tetrad.tracing.trace import ArgumentKind, Spec, Traced, kinds_of

if TYPE_CHECKING:
    from tetrad.compiler.jit import Bound, Jitted


WITHOUT_EFFECT = ("keep_unused", "inline")
NOWHERE_ELSE = (
    "abstracted_axes", "backend", "compiler_options", "device", "in_shardings", "out_shardings",
)  # fmt: skip


def check_elsewhere(settings: dict[str, Any]) -> None:
    """What JAX's jit takes besides: settings of other machines are an error, unless they ask for
    what there is."""
    for name, value in settings.items():
        if name in WITHOUT_EFFECT:
            continue
        if name not in NOWHERE_ELSE:
            raise TypeError(f"jit() got an unexpected keyword argument {name!r}")
        is_here = value is None or (name in ("backend", "device") and is_processor(value))
        if not is_here:
            hint = f"{name}=None, or leave it out: a function runs on the processor"
            fail(UnsupportedError, f"jit: {name}={value!r} is not supported", hint)


def is_processor(place: Any) -> bool:
    return bool(getattr(place, "platform", place) == "cpu")


def spec_of(kind: ArrayType) -> Spec:
    return Spec(kind.shape, kind.dtype)


class StagedCall:
    """A call of a jitted function at given types."""

    def __init__(
        self,
        jitted: Jitted,
        arguments: Arguments,
        kinds: tuple[ArgumentKind, ...],
        traced: Traced,
    ) -> None:
        self.jitted, self.arguments, self.kinds, self.traced = jitted, arguments, kinds, traced

    @property
    def fun_name(self) -> str:
        return self.jitted.signature.name

    @property
    def graph(self) -> Graph:
        return self.traced.graph

    @property
    def in_tree(self) -> TreeDef:
        """The structure of (positional arguments, arguments by name), without static ones."""
        return self.arguments.tree

    @property
    def out_tree(self) -> TreeDef:
        return self.traced.tree

    @property
    def args_info(self) -> Any:
        """The arguments, with a `Spec` in place of each array."""
        return unflatten(self.in_tree, [spec_of(kind.type) for kind in self.kinds])

    @property
    def out_info(self) -> Any:
        """The result, with a `Spec` in place of each array."""
        return unflatten(self.out_tree, [spec_of(o.type) for o in self.graph.outputs])

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self.fun_name}>"


class TracedCall(StagedCall):
    """A call as a graph."""

    @property
    def jaxpr(self) -> Graph:
        """The graph, where JAX has a jaxpr."""
        return self.graph

    def __str__(self) -> str:
        return str(self.graph)

    def lower(self) -> LoweredCall:
        return LoweredCall(self.jitted, self.arguments, self.kinds, self.traced)


class LoweredCall(StagedCall):
    """A call that is ready to be compiled."""

    def as_text(self, dialect: str | None = None, *, debug_info: bool = False) -> str:
        """The graph as text. There is one dialect, and lines of the user are always told."""
        if dialect is not None:
            fail(TraceError, f"as_text: there is no dialect {dialect!r} here", "as_text()")
        return str(self.graph)

    def compile(self, compiler_options: Any = None) -> CompiledCall:
        if compiler_options:
            hint = "the flags are in docs/flags.md"
            fail(TraceError, "compile: there are no compiler options here", hint)
        bound = self.jitted.bind(self.arguments, self.traced)
        return CompiledCall(self.jitted, self.arguments, self.kinds, self.traced, bound)

    def cost_analysis(self) -> dict[str, float]:
        """What a call costs: it is compiled, since that decides."""
        return self.compile().cost_analysis()


@record
class MemoryStats:
    """Bytes of a compiled call."""

    argument_size_in_bytes: int
    output_size_in_bytes: int
    temp_size_in_bytes: int  # the arena
    alias_size_in_bytes: int  # of donated arguments


class CompiledCall(StagedCall):
    """A compiled program for arguments of given types, to be called with those that are not
    static."""

    def __init__(
        self,
        jitted: Jitted,
        arguments: Arguments,
        kinds: tuple[ArgumentKind, ...],
        traced: Traced,
        bound: Bound,
    ) -> None:
        super().__init__(jitted, arguments, kinds, traced)
        self.bound = bound

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        leaves, tree = flatten((args, kwargs))
        if tree != self.in_tree:
            message = (
                f"{self.fun_name} was compiled for arguments {sketch(self.in_tree)}, "
                f"called with {sketch(tree)}"
            )
            fail(TreeError, message, "static arguments are part of the program: leave them out")
        given = Arguments(leaves, tree, self.arguments.static_args, self.arguments.static_kwargs)
        self._check_types(given)
        positional, named = given.rebuild(leaves)
        return self.jitted(*positional, **named)

    def _check_types(self, given: Arguments) -> None:
        signature = self.jitted.signature
        came = kinds_of(signature, given)
        for name, wanted, kind in zip(signature.leaf_names(given), self.kinds, came, strict=True):
            if wanted != kind:
                message = f"{self.fun_name} was compiled for {name}: {told(wanted)}"
                fail(TraceError, f"{message}, called with {told(kind)}", "compile it for this type")

    @cached_property
    def _executable(self) -> Any:
        executable: Any = self.bound.program.executable
        return executable.full()

    def as_text(self) -> str:
        """The schedule: which kernels run, in which order, on which memory."""
        return str(self._executable.schedule)

    def runtime_executable(self) -> Any:
        return self._executable

    def cost_analysis(self) -> dict[str, float]:
        """Operations on floats, and bytes that are read and written.

        >>> import tetrad as td
        >>> x = td.ones((8, 8))
        >>> td.jit(lambda x: x @ x).lower(x).compile().cost_analysis()["flops"]
        1024.0
        """
        costs = lazy.provided("costs of programs")
        flops, moved = costs.totals(self._executable, self.bound.dims)
        return {"flops": float(flops), "bytes accessed": float(moved)}

    def memory_analysis(self) -> MemoryStats:
        call = self._executable.bound(self.bound.dims)
        sizes = dict(zip(self._executable.dims, self.bound.dims, strict=True))
        given = [nbytes_at(kind.type, sizes) for kind in self.kinds]
        results = [nbytes_at(kind, sizes) for kind in self.bound.outputs]
        alias = [given[i] for i in self.bound.program.donated]
        return MemoryStats(sum(given), sum(results), call.encoded.plan.total, sum(alias))


def told(kind: ArgumentKind) -> str:
    """An argument's type; a Python number by its class."""
    return str(kind.type) if kind.weak is None else f"a Python {kind.weak.__name__}"
