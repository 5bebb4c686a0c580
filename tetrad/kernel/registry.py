"""Kernel language, registry: kernels with known answers, each under a stable id.

An entry is a function that builds a program, of a small size by default. Attached to it are cases
(bytes in, bytes out, written down) and a sampler (random sizes, answers from plain NumPy).
Importing a module of `kernel.library` registers its kernels; a new file there adds its own.
"""

from __future__ import annotations

import pkgutil
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from tetrad.core import lazy
from tetrad.core.errors import UnsupportedError
from tetrad.core.record import field, record, replace
from tetrad.kernel import nodes as n

Grid = tuple[int, int, int]
LIBRARY = "tetrad.kernel.library"


@record
class Example:
    """The bytes of each input and each output, in the order of the program's buffers."""

    inputs: tuple[bytes, ...]
    outputs: tuple[bytes, ...]


@record
class Sample:
    """A program of some size, its inputs, and the outputs of an independent implementation."""

    program: n.Program
    case: Example
    grid: Grid
    args: Mapping[str, int] = field(default_factory=dict)


Builder = Callable[..., n.Program]
Cases = Callable[[], list[Example]]
Sampler = Callable[["np.random.Generator"], Sample]


class Entry:
    """A registered kernel. Asking for a part that is missing raises an error."""

    def __init__(
        self, id: str, category: str, grid: Grid, args: Mapping[str, int], builder: Builder
    ) -> None:
        self.id, self.category, self.grid, self.args = id, category, grid, args
        self.__doc__ = builder.__doc__
        self._builder = builder
        self._cases: Cases | None = None
        self._sampler: Sampler | None = None

    def build(self, *sizes: Any, **named: Any) -> n.Program:
        """The program, its body in a region named after the id; without arguments, of the size of
        the cases."""
        return in_region(self.id, self._builder(*sizes, **named))

    def cases(self, function: Cases) -> Cases:
        """Decorator: the written-down cases of `build()`."""
        self._cases = function
        return function

    def sampler(self, function: Sampler) -> Sampler:
        """Decorator: programs of random sizes with their answers."""
        self._sampler = function
        return function

    def test_inputs(self) -> list[tuple[bytes, ...]]:
        return [case.inputs for case in self._fixture("cases", self._cases)()]

    def expected_output(self) -> list[tuple[bytes, ...]]:
        return [case.outputs for case in self._fixture("cases", self._cases)()]

    def sample(self, rng: np.random.Generator) -> Sample:
        made: Sample = self._fixture("sampler", self._sampler)(rng)
        return replace(made, program=in_region(self.id, made.program))

    def _fixture(self, what: str, function: Any) -> Any:
        if function is None:
            raise UnsupportedError(
                f"kernel {self.id} has no {what}", hint="a kernel without fixtures is not tested"
            )
        return function

    def __repr__(self) -> str:
        return f"<kernel {self.id}>"


_entries: dict[str, Entry] = {}


def register(
    id: str, *, category: str, grid: Grid, args: Mapping[str, int] | None = None
) -> Callable[[Builder], Entry]:
    """Decorator: registers the function as an entry. `grid` and `args` are those of the default
    program."""
    if id.count("::") != 2 or not all(id.split("::")):
        raise ValueError(f"registry: the id {id!r} does not read package::domain::name")

    def make(builder: Builder) -> Entry:
        if id in _entries:
            raise ValueError(f"registry: two kernels are called {id}")
        _entries[id] = Entry(id, category, grid, dict(args or {}), builder)
        return _entries[id]

    return make


def in_region(generator: str, program: n.Program) -> n.Program:
    """The program with its body in one region; a body of regions stays as it is."""
    if program.body and all(isinstance(instr, n.Region) for instr in program.body):
        return program
    return replace(program, body=(n.Region(generator, program.body),))


def entries() -> Iterator[Entry]:
    """Every registered kernel, by id."""
    library = lazy.module(LIBRARY)
    for module in pkgutil.iter_modules(library.__path__):
        lazy.module(f"{LIBRARY}.{module.name}")
    yield from (_entries[id] for id in sorted(_entries))


def entry(id: str) -> Entry:
    """The kernel with this id.

    >>> entry("tetrad::math::add").build().workgroup
    (16, 1, 1)
    """
    known = {e.id: e for e in entries()}
    if id not in known:
        raise KeyError(f"no kernel {id!r}; there are {', '.join(known)}")
    return known[id]
