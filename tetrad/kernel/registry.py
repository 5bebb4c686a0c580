"""Kernel language, registry: programs with known answers, each under a stable id.

Receives a builder, inputs and expected outputs (bytes, written down); returns an entry. `check`
runs the harness over one. A sampler adds random sizes with answers from plain NumPy. Importing a
module of `kernel.library` registers its programs: a new file there adds its own, and users
register theirs the same way.
"""

from __future__ import annotations

import pkgutil
from collections.abc import Callable, Mapping, Sequence
from inspect import signature
from typing import TYPE_CHECKING, Any, overload

import numpy as np

from tetrad.core import lazy
from tetrad.core.dtypes import DType, bool_
from tetrad.core.errors import (
    DtypeError,
    RegistryError,
    ShapeError,
    UnknownKernelError,
    UnsupportedError,
    an,
)
from tetrad.core.record import field, record, replace
from tetrad.kernel import nodes as n
from tetrad.kernel.build import KernelBuilder
from tetrad.kernel.calls import building

if TYPE_CHECKING:
    from tetrad.kernel.cost import KernelCost
    from tetrad.kernel.harness import CheckReport

Grid = tuple[int, int, int]
Bytes = Sequence[bytes]  # a case: one byte string for each buffer, in order of declaration
INVALID = 1  # the code of the trap of a program that stands for one that cannot be built
LIBRARY = "tetrad.kernel.library"
EXTENSION_KINDS = ("dtype", "unary", "binary", "ternary", "atomic", "condition")


@record
class ExpectedTrap:
    """Stands for the outputs of a case whose launch must fail: the code of the trap, the value it
    reports (None: any) and words of the error."""

    code: int
    value: int | None = None
    message: str = ""


Expected = Bytes | ExpectedTrap


@record
class Fixpoint:
    """How a program is launched until nothing changes: the outputs that become inputs again (output
    -> input), the output whose first word is 0 when nothing changed, and the most launches."""

    flag: str
    carry: Mapping[str, str]
    most: int = 64


@record
class Sample:
    """Sizes for the builder, inputs, and the outputs of an independent implementation."""

    sizes: tuple[Any, ...]
    inputs: tuple[bytes, ...]
    outputs: Expected
    args: Mapping[str, int] = field(default_factory=dict)
    grid: Grid | None = None  # None: the entry's for these sizes


Builder = Callable[..., n.Program]
Sampler = Callable[["np.random.Generator"], Sample]
GridFunction = Callable[..., Grid]


class Entry:
    """A registered program: `id`, `build()`, `inputs`, `expected`, `category`; what a launch needs
    (`grid`, `args`); the accepted error in ULPs (`tolerance`); the name it has as an extension."""

    def __init__(
        self,
        id: str,
        builder: Builder,
        inputs: Sequence[Bytes],
        expected: Sequence[Expected],
        category: str,
        *,
        grid: Grid | GridFunction | None = None,
        args: Mapping[str, int] | None = None,
        tolerance: int = 0,
        extension: tuple[str, str] | None = None,
        fixpoint: Fixpoint | None = None,
        wraps: Entry | None = None,
    ) -> None:
        self.id, self.category, self.tolerance = id, category, tolerance
        self.region: str = id if wraps is None else wraps.region
        self.inputs, self.expected = list(inputs), list(expected)
        self.args, self.extension, self.fixpoint = dict(args or {}), extension, fixpoint
        self.__doc__ = builder.__doc__
        self._builder = builder
        self._grid: Grid | GridFunction | None = grid if wraps is None else wraps._grid
        self._sampler: Sampler | None = None if wraps is None else wraps._sampler

    def build(self, *sizes: Any, **named: Any) -> n.Program:
        """The program, its body in a region named after the id; without arguments, of the size of
        the cases. Sizes that cannot be give a program that traps with the message."""
        try:
            return self.build_or_raise(*sizes, **named)
        except (ShapeError, DtypeError) as error:
            out = [b for b in self.build_or_raise().buffers if b.is_written][-1]
            given = signature(self._builder).bind(*sizes, **named).arguments
            return invalid_output(
                self.region, error.message, out.dtype, given.get(out.name, out.name)
            )

    def build_or_raise(self, *sizes: Any, **named: Any) -> n.Program:
        """The same, but sizes that cannot be raise the error."""
        refuse_settings(self.id, self._builder, sizes, named)
        with building(self.id):
            return in_region(self.id, self._builder(*sizes, **named))

    @property
    def grid(self) -> Grid | None:
        """Workgroups of `build()`; None: one invocation for each element of the output, as dispatch
        infers."""
        return self.grid_for()

    def grid_for(self, *sizes: Any) -> Grid | None:
        return self._grid(*sizes) if callable(self._grid) else self._grid

    @property
    def cost(self) -> KernelCost:
        """Flops and bytes of one launch of `build()`."""
        found: KernelCost = lazy.module("tetrad.kernel.cost").cost_of(
            self.build(), lazy.module("tetrad.kernel.harness").grid_of(self), self.args
        )
        return found

    def sampler(self, function: Sampler) -> Sampler:
        """Decorator: inputs of random size with their answers."""
        self._sampler = function
        return function

    @property
    def has_sampler(self) -> bool:
        return self._sampler is not None

    def sample(self, rng: np.random.Generator) -> Sample:
        if self._sampler is None:
            raise UnsupportedError(
                f"kernel {self.id} has no sampler", hint="the decorator entry.sampler adds one"
            )
        return self._sampler(rng)

    def __repr__(self) -> str:
        return f"<kernel {self.id}>"


_entries: dict[str, Entry] = {}


@overload
def register(
    id: str,
    *,
    build: Builder,
    category: str,
    inputs: Sequence[Bytes] = (),
    expected: Sequence[Expected] = (),
    grid: Grid | GridFunction | None = None,
    args: Mapping[str, int] | None = None,
    tolerance: int = 0,
    extension: tuple[str, str] | None = None,
    fixpoint: Fixpoint | None = None,
    wraps: Entry | None = None,
) -> Entry: ...


@overload
def register(
    id: str,
    *,
    category: str,
    inputs: Sequence[Bytes] = (),
    expected: Sequence[Expected] = (),
    grid: Grid | GridFunction | None = None,
    args: Mapping[str, int] | None = None,
    tolerance: int = 0,
    extension: tuple[str, str] | None = None,
    fixpoint: Fixpoint | None = None,
    wraps: Entry | None = None,
) -> Callable[[Builder], Entry]: ...


def register(
    id: str,
    *,
    category: str,
    build: Builder | None = None,
    inputs: Sequence[Bytes] = (),
    expected: Sequence[Expected] = (),
    **settings: Any,
) -> Entry | Callable[[Builder], Entry]:
    """Register a builder under an id; without `build`, a decorator for the builder.

    inputs, expected   the cases of `build()`: bytes of what it reads, bytes of what it writes (or
                       an `ExpectedTrap`)
    grid               workgroups, or a function of the builder's sizes; None: as dispatch infers
    args               the index arguments of the cases
    tolerance          accepted error in ULPs of float outputs
    extension          (name, kind): the name whose `extension_id` stands for the program
    fixpoint           launched again and again, until nothing changes
    wraps              the entry whose program the builder returns: its region stays on top

    >>> entry = register("user::math::nothing", build=lambda: n.Program("nothing", (), (),
    ...     (1, 1, 1), ()), inputs=[[]], expected=[[]], category="math")
    >>> entry, remove("user::math::nothing")
    (<kernel user::math::nothing>, None)
    """
    if not isinstance(id, str) or id.count("::") != 2 or not all(id.split("::")):
        raise RegistryError(f"registry: the id {id!r} does not read package::domain::name")
    refuse_malformed(id, category, inputs, expected, settings)

    def make(builder: Builder) -> Entry:
        if not callable(builder):
            came = an(type(builder).__name__)
            raise RegistryError(f"{id}: build is {came}, not a function that returns a program")
        if not is_ours(builder):
            load_library()  # what collides with it fails here, not in whoever asks for entries
        if id in _entries:
            raise RegistryError(f"registry: two kernels are called {id}")
        made = Entry(id, builder, inputs, expected, category, **settings)
        refuse_collision(made)
        _entries[id] = made
        return made

    return make if build is None else make(build)


def remove(id: str) -> None:
    """Forget an entry, for instance to register another version of it."""
    if id not in _entries:
        load_library()
    if id not in _entries:
        raise unknown(id)
    del _entries[id]


# -- what a registration refuses -------------------------------------------------------------------


def refuse_malformed(
    id: str, category: str, inputs: object, expected: object, settings: Mapping[str, Any]
) -> None:
    """A setting of the wrong kind; whether the cases fit the program is for the harness to say."""
    tolerance, grid = settings.get("tolerance", 0), settings.get("grid")
    if not isinstance(category, str):
        raise RegistryError(f"{id}: category is {category!r}, not a word")
    for name, cases in (("inputs", inputs), ("expected", expected)):
        if not isinstance(cases, list | tuple):
            came = an(type(cases).__name__)
            raise RegistryError(f"{id}: {name} is {came}, not a list with one item for each case")
    if isinstance(tolerance, bool) or not isinstance(tolerance, int) or tolerance < 0:
        raise RegistryError(f"{id}: tolerance is {tolerance!r}, not a number of ULPs, 0 or more")
    if grid is not None and not callable(grid) and not is_grid(grid):
        hint = "grid=(x, y, z), or a function of the builder's sizes that gives them"
        raise RegistryError(f"{id}: grid is {grid!r}, not three numbers of workgroups", hint=hint)
    if not isinstance(settings.get("args") or {}, Mapping):
        raise RegistryError(f"{id}: args is {settings['args']!r}, not a dict of index arguments")


def is_grid(grid: object) -> bool:
    return (
        isinstance(grid, tuple | list)
        and len(grid) == 3
        and all(isinstance(size, int) and size >= 0 for size in grid)
    )


def refuse_settings(
    id: str, builder: Builder, sizes: Sequence[Any], named: Mapping[str, Any]
) -> None:
    """Sizes are whole numbers, and every buffer has a name of its own. Which parameter is which
    its default tells."""
    if not sizes and not named:
        return
    parameters = signature(builder).parameters
    names: dict[str, str] = {}
    for parameter, given in signature(builder).bind(*sizes, **named).arguments.items():
        default = parameters[parameter].default
        if type(default) is int and isinstance(given, bool | float | str | np.floating):
            raise ShapeError(f"Fix: {id}: {parameter}={given!r} must be a whole number")
        if isinstance(default, str) and given in names:
            both = f"{names[given]} and {parameter}"
            raise ShapeError(f"Fix: {id}: {both} are both called {given!r}; name them differently")
        if isinstance(default, str):
            names[given] = parameter


# -- programs --------------------------------------------------------------------------------------


def in_region(generator: str, program: n.Program) -> n.Program:
    """The program with its body in one region; a body of regions stays as it is."""
    if program.body and all(isinstance(instr, n.Region) for instr in program.body):
        return program
    return replace(program, body=(n.Region(generator, program.body),))


def invalid_output(region: str, message: str, dtype: DType, out: str = "out") -> n.Program:
    """What stands for a program that cannot be built: one output of one element, one invocation,
    one region, whose body traps. Errors of a launch begin with the name of the program, so the
    message is its name."""
    k = KernelBuilder(message, 1)
    k.buffer(out, dtype, "write", 1)
    with k.region(region):
        k.trap(k.const(True, bool_), INVALID, 0)
    return k.finish()


def has_trap(program: n.Program) -> bool:
    """May a launch of this program fail by a `trap`?"""
    return any(isinstance(instr, n.Trap) for instr in n.walk(program.body))


# -- entries ---------------------------------------------------------------------------------------


def entries() -> list[Entry]:
    """Every registered program, by id."""
    load_library()
    return [_entries[id] for id in sorted(_entries)]


def load_library() -> None:
    """Import every module of the library; each registers its own."""
    library = lazy.module(LIBRARY)
    for module in pkgutil.iter_modules(library.__path__):
        lazy.module(f"{LIBRARY}.{module.name}")


def is_ours(builder: Builder) -> bool:
    """Is this a builder of the library, whose modules are imported one by one?"""
    return str(getattr(builder, "__module__", "")).startswith(f"{LIBRARY}.")


def entry(id: str) -> Entry:
    """The program with this id.

    >>> entry("tetrad::math::add").build().workgroup
    (16, 1, 1)
    """
    known = {e.id: e for e in entries()}
    if id not in known:
        raise unknown(id)
    return known[id]


def unknown(id: object) -> UnknownKernelError:
    """The error that names those with a similar id, or with a similar last part of it."""
    close = lazy.module("difflib").get_close_matches
    ends = {known.rpartition("::")[2]: known for known in sorted(_entries)}
    near = [*close(str(id), list(_entries)), *map(ends.get, close(str(id).split(":")[-1], ends))]
    meant = f"did you mean {' or '.join(dict.fromkeys(near[:3]))}? " if near else ""
    return UnknownKernelError(
        f"no kernel {id!r}",
        hint=f"{meant}td.kernel.registry.entries() lists all {len(_entries)}, as does "
        "`tetrad inspect kernel`",
    )


def check(
    entry_or_id: Entry | str,
    *,
    backends: Sequence[str] | None = None,
    samples: int = 8,
) -> CheckReport:
    """Run the harness over one entry: build, verify, print, serialise, optimise, evaluate, races,
    samples, and a run on every back end (or on those named, which must then work).

    >>> print(check("tetrad::math::add", backends=[]))  # doctest: +ELLIPSIS
    tetrad::math::add  fingerprint ...
    """
    found = entry(entry_or_id) if isinstance(entry_or_id, str) else entry_or_id
    report: CheckReport = lazy.module("tetrad.kernel.harness").check(found, backends, samples)
    return report


def check_all(*, backends: Sequence[str] | None = None) -> list[CheckReport]:
    """The reports of every entry."""
    return [check(found, backends=backends) for found in entries()]


# -- extensions ------------------------------------------------------------------------------------


def extension_id(name: str) -> int:
    """The stable number of an extension: FNV-1a of the name with the highest bit set.

    >>> f"{extension_id('quant.int4.dot'):08X}"
    'CAC18040'
    """
    number = 0x811C9DC5
    for byte in name.encode():
        number = (number ^ byte) * 0x01000193 & 0xFFFFFFFF
    return number | 0x80000000


def extensions() -> dict[str, tuple[int, str, Entry]]:
    """name -> (number, kind, entry) of every entry that has one."""
    return {
        e.extension[0]: (extension_id(e.extension[0]), e.extension[1], e)
        for e in entries()
        if e.extension is not None
    }


def refuse_collision(made: Entry) -> None:
    if made.extension is None:
        return
    if not isinstance(made.extension, tuple) or [*map(type, made.extension)] != [str, str]:
        raise RegistryError(f"{made.id}: extension is {made.extension!r}, not (name, kind)")
    name, kind = made.extension
    if kind not in EXTENSION_KINDS:
        listed = ", ".join(EXTENSION_KINDS)
        raise RegistryError(f"{made.id}: an extension is {listed}, not {kind!r}")
    for other in _entries.values():
        taken = other.extension[0] if other.extension is not None else None
        if taken is not None and extension_id(taken) == extension_id(name):
            raise RegistryError(
                f"{made.id}: extension {name!r} has the number {extension_id(name):08X} of "
                f"{taken!r} ({other.id}); choose another name"
            )
