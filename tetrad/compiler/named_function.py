"""Functions with a name that says all they depend on: their programs are recalled from disk without
being traced.

Receives a function, its name and the arrays it closes over; returns programs bound to sizes. A
first process traces and compiles as `jit` does and notes which program that was. Where the note is
found, neither ops nor tracing are loaded.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

import numpy as np

from tetrad.backends.cpu import code_cache as objects
from tetrad.backends.cpu.cache import cache_key
from tetrad.backends.cpu.code_cache import made_by
from tetrad.backends.cpu.executable import Executable
from tetrad.backends.cpu.memory import Storage
from tetrad.compiler.program_cache import load, note, type_from
from tetrad.core import lazy, show
from tetrad.core.config import standard
from tetrad.core.floats import own_floats
from tetrad.core.locks import object_lock
from tetrad.core.record import record
from tetrad.core.sizes import SizeExpr, bind, dims_of
from tetrad.core.types import ArrayType
from tetrad.graph.nodes import Literal, splat_of
from tetrad.quant import lanes  # noqa: F401  (it declares the types of quantised arrays)
from tetrad.tracing.array import Array, array_type

if TYPE_CHECKING:
    from tetrad.compiler.jit import Jitted, Specialisation

# Whatever has a hand in a trace or in what is made of it; commands, files and texts have not.
MAKERS = (
    "", "arrays", "backends", "compiler", "core", "fft", "graph", "kernel", "linalg", "loopnest",
    "lower", "models",
    "nn", "ops", "passes", "quant", "random", "schedule", "solvers", "special", "stats", "tracing",
    "transforms",
)  # fmt: skip

MOST_SIZES = 4096  # remembered by a function; more than that and the memory is dropped

Marks = Mapping[int, SizeExpr]  # {axis: Dim}
Types = tuple[ArrayType, ...]


@record(eq=False)
class Sized:
    """A program at the sizes of one call. `run` takes storages, and may write over those that were
    donated."""

    run: Callable[[list[Any], tuple[int, ...]], list[Any]]
    dims: tuple[int, ...]
    outputs: Types


@record(eq=False)
class Found:
    """A program from the disk, and the types of its results."""

    program: Executable
    outputs: Types


class FunctionSource:
    """A function, and how `jit` compiles it. Programs that want to know more of themselves ask it:
    it holds none."""

    def __init__(
        self, function: Callable[..., Any], donated: tuple[int, ...], marks: Mapping[int, Marks]
    ) -> None:
        self.function, self.donated, self.marks = function, donated, marks

    @cached_property
    def jitted(self) -> Jitted:
        """The function as `td.jit` has it."""
        dims = tuple(self.marks.get(i) for i in range(max(self.marks, default=-1) + 1))
        jit = lazy.module("tetrad.compiler.jit").jit
        made: Jitted = jit(self.function, donate_argnums=self.donated, dims=dims or None)
        return made

    def full(self, given: Types) -> Executable:
        """Traced and compiled, for those who want to know what is inside."""
        trace = lazy.module("tetrad.tracing.trace")
        program = self.jitted.bound(*[trace.Spec(kind.shape, kind.dtype) for kind in given]).program
        compile_fully: Callable[..., Executable] = lazy.module(
            "tetrad.compiler.program_cache"
        ).compile_fully
        return compile_fully(program.graph, program.donated)


class NamedFunction:
    """A function to be compiled, whose graph follows from its `name`, the `arrays` it closes over,
    the types of its arguments and the source of the package. Of arrays above 4 KiB it may not look
    at the content while it is traced."""

    def __init__(
        self,
        function: Callable[..., Any],
        name: Callable[[], str | None],
        arrays: Callable[[], Sequence[Array]] = tuple,
        *,
        donated: tuple[int, ...] = (),  # which of the arguments, if there are so many
        dims: Mapping[int, Marks] | None = None,
    ) -> None:
        self.name, self.arrays = name, arrays  # name: None if there is none that says all
        self.donated, self.marks = donated, dims or {}
        self.source = FunctionSource(function, donated, self.marks)
        self.found: dict[Types, Found | None] = {}
        self.noted: set[Types] = set()
        self.quick: dict[tuple[int, ...], Sized] = {}  # by the ids of the arguments' types
        self.lock = object_lock()

    @property
    def jitted(self) -> Jitted:
        """The function as `td.jit` has it."""
        made: Jitted = self.source.jitted
        return made

    def sized(self, *arguments: Array) -> Sized:
        """The program for arguments of these types."""
        with own_floats(), standard():  # the name says nothing of settings
            return self._sized(arguments)

    def _sized(self, arguments: Sequence[Array]) -> Sized:
        given = tuple([x.type for x in arguments])
        kinds = tuple([marked(kind, self.marks.get(i)) for i, kind in enumerate(given)])
        values = sizes_of(kinds, given)
        with self.lock:
            if kinds not in self.found:
                self.found[kinds] = None if values is None else self.recalled(kinds, given)
            found = self.found[kinds]
        if found is None or values is None:
            return self.traced(arguments, kinds)
        outputs = tuple(
            [array_type(o.dtype, tuple([bind(n, values) for n in o.shape])) for o in found.outputs]
        )
        return Sized(found.program.run, tuple(values.values()), outputs)

    def __call__(self, *arguments: Array) -> Any:
        """The results of a call; one alone as it is."""
        # there is one object of each type, and it stays
        key = tuple([id(x.type) for x in arguments])
        program = self.quick.get(key)
        if program is None:
            if len(self.quick) >= MOST_SIZES:
                self.quick.clear()
            program = self.quick[key] = self.sized(*arguments)
        storages = program.run(
            [x._storage or x.storage(Storage.from_numpy) for x in arguments], program.dims
        )
        made = [
            Array.from_storage(kind, storage)
            for kind, storage in zip(program.outputs, storages, strict=True)
        ]
        return made[0] if len(made) == 1 else made

    def recalled(self, kinds: Types, given: Types) -> Found | None:
        """The program noted for this name and these types, if the disk has both."""
        key = self.key(kinds)
        noted = None if key is None else objects.disk_cache().get(key)
        if noted is None:
            return None
        program, name, outputs, large = json.loads(noted)
        arrays = self.arrays()
        literals = [Literal(arrays[i].memory) for i in large]
        full = partial(self.source.full, given)
        donated = tuple(i for i in self.donated if i < len(kinds))
        found = load(program, name, tuple(dim_names(kinds)), donated, literals, full)
        return (
            None if found is None else Found(found, tuple([type_from(*kind) for kind in outputs]))
        )

    def traced(self, arguments: Sequence[Array], kinds: Types) -> Sized:
        bound = self.jitted.bound(*arguments)
        if kinds not in self.noted:
            self.noted.add(kinds)
            self.note(kinds, bound.program)
        return Sized(bound.run, bound.dims, bound.outputs)

    def note(self, kinds: Types, program: Specialisation) -> None:
        """Write down which program it is, for the next process."""
        key = self.key(kinds)
        if key is not None and not program.sizes and not program.narrowed:
            note(key, program.graph, program.donated, [array.memory for array in self.arrays()])

    def key(self, kinds: Types) -> str | None:
        """Names all that the program depends on; None where it is not kept."""
        name = None if show.are_watched() else self.name()
        makers = None if name is None else made_by(MAKERS)
        if makers is None or name is None:
            return None
        return cache_key(
            "known",
            *makers,
            sys.version,
            name,
            str(self.donated),
            spelled(kinds),
            told(self.arrays()),
        )


# -- what a name does not say ----------------------------------------------------------------------


def told(arrays: Sequence[Array]) -> str:
    """What a compilation may know of constants: their types, which are the same array, what is in
    the small ones, and whether a large one is all one value."""
    first: dict[int, int] = {}
    digest = hashlib.sha256()
    for i, array in enumerate(arrays):
        view, kind = array.memory, array.type
        place = first.setdefault(id(array), i)
        known = content(view)
        digest.update(
            b"%s %r %d %d " % (kind.dtype.short_name.encode(), kind.shape, place, len(known))
            + known
        )
    return digest.hexdigest()


def content(view: np.ndarray) -> bytes:
    if view.nbytes <= Literal.SMALL:
        return view.tobytes()
    value = splat_of(view)
    return b"" if value is None else value.tobytes()


def marked(kind: ArrayType, marks: Marks | None) -> ArrayType:
    if not marks:
        return kind
    return array_type(kind.dtype, tuple([marks.get(axis, n) for axis, n in enumerate(kind.shape)]))


def dim_names(kinds: Types) -> list[str]:
    return sorted({dim.name for kind in kinds for n in kind.shape for dim in dims_of(n)})


def spelled(kinds: Types) -> str:
    """The types with the bounds of their Dims."""
    bounds = sorted(
        {f"{dim.name} <= {dim.max}" for kind in kinds for n in kind.shape for dim in dims_of(n)}
    )
    return f"{', '.join(map(str, kinds))}; {', '.join(bounds)}"


def sizes_of(kinds: Types, given: Types) -> dict[str, int] | None:
    """The values of the Dims, sorted by name; None if they cannot be, and `jit` should say why."""
    values: dict[str, int] = {}
    for kind, came in zip(kinds, given, strict=True):
        for size, n in zip(kind.shape, came.shape, strict=True):
            for dim in dims_of(size):
                if values.setdefault(dim.name, int(n)) != n or not 1 <= n <= dim.max:  # type: ignore[arg-type]
                    return None
    return dict(sorted(values.items()))
