"""Tracing, signatures: from the arguments of a call to arrays, and what else identifies the
compiled program.

Receives a function, which of its arguments are static, and the arguments of one call; returns the
array leaves, the tree they came from and the static values, and puts them back together for the
traced run.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, SupportsIndex

from tetrad.core.config import LOCAL
from tetrad.core.errors import TraceError
from tetrad.core.record import record
from tetrad.core.tree import TreeDef, flatten, typed, unflatten
from tetrad.tracing.array import fail, noun_of


@record
class Arguments:
    """The arguments of one call: leaves of the trees that hold arrays, and the static values beside
    them."""

    leaves: list[Any]
    tree: TreeDef  # of (positional arguments, keyword arguments), static ones left out
    static_args: tuple[tuple[int, Hashable], ...]
    static_kwargs: tuple[tuple[str, Hashable], ...]

    @property
    def statics(self) -> list[tuple[int | str, Hashable]]:
        return [*self.static_args, *self.static_kwargs]

    @property
    def positions(self) -> list[int]:
        """Where the positional arguments that are not static stand."""
        fixed = dict(self.static_args)
        count = len(self.tree.parts[0].parts) + len(fixed)
        return [i for i in range(count) if i not in fixed]

    @property
    def key(self) -> Hashable:
        return self.tree, typed(self.static_args), typed(self.static_kwargs), LOCAL.view.key

    def rebuild(self, leaves: Sequence[Any]) -> tuple[list[Any], dict[str, Any]]:
        """The call's arguments with other leaves."""
        args, kwargs = unflatten(self.tree, leaves)
        args = list(args)
        for position, value in self.static_args:
            args.insert(position, value)
        return args, {**kwargs, **dict(self.static_kwargs)}


@record
class Signature:
    """A function's parameters and which of them are static."""

    name: str
    parameters: tuple[str, ...]  # names of those that may be positional
    static_positions: frozenset[int]
    static_names: frozenset[str]

    @property
    def has_static(self) -> bool:
        return bool(self.static_positions or self.static_names)

    def arguments(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Arguments:
        """Split one call into arrays and statics."""
        if not self.has_static:
            leaves, tree = flatten((tuple(args), kwargs))
            return Arguments(leaves, tree, (), ())
        fixed = tuple((i, a) for i, a in enumerate(args) if i in self.static_positions)
        named = tuple(sorted((k, v) for k, v in kwargs.items() if k in self.static_names))
        dynamic = tuple(a for i, a in enumerate(args) if i not in self.static_positions)
        leaves, tree = flatten(
            (dynamic, {k: v for k, v in kwargs.items() if k not in self.static_names})
        )
        made = Arguments(leaves, tree, fixed, named)
        for where, value in made.statics:
            self._check_hashable(where, value)
        return made

    def _check_hashable(self, where: int | str, value: Any) -> None:
        try:
            hash(value)
        except TypeError:
            message = (
                f"{self.name}: the static argument {self.argument_name(where)} is {noun_of(value)}"
            )
            way = (
                "pass arrays as other arguments"
                if hasattr(value, "__array__")
                else "use tuples, not lists"
            )
            fail(
                TraceError,
                f"{message}, which has no hash",
                f"static values select the program: {way}",
            )

    def argument_name(self, where: int | str) -> str:
        return where if isinstance(where, str) else argument_name(self.parameters, where)

    def leaf_names(self, arguments: Arguments) -> list[str]:
        """What the user calls each leaf: `params['w']`."""
        positional, keyword = arguments.tree.parts
        keys: Any = keyword.data
        owners = [*(self.argument_name(i) for i in arguments.positions), *keys]
        children = (*positional.parts, *keyword.parts)
        return [
            name
            for owner, child in zip(owners, children, strict=True)
            for name in child.leaf_names(owner)
        ]


def argument_name(parameters: tuple[str, ...], position: int) -> str:
    return parameters[position] if position < len(parameters) else f"number {position}"


def check_function(what: str, function: Any, hint: str | None = None) -> None:
    if not callable(function):
        fail(TraceError, f"{what}: expected a function, got {noun_of(function)}", hint)


def signature_of(
    function: Callable[..., Any],
    static_argnums: int | Sequence[int],
    static_argnames: str | Sequence[str],
) -> Signature:
    """Static arguments by position and by name: either way of passing them is then static."""
    name = getattr(function, "__name__", type(function).__name__)
    check_function("jit", function, "td.jit(f) compiles a function; td.jit(f)(x) calls it")
    positions, names = chosen(function, static_argnums, static_argnames, "static")
    return Signature(name, _parameters(function)[0], positions, names)


def chosen(
    function: Callable[..., Any],
    argnums: int | Sequence[int],
    argnames: str | Sequence[str],
    what: str,
) -> tuple[frozenset[int], frozenset[str]]:
    """Arguments chosen by position and by name, each either way; an error names those that the
    function has not."""
    name = getattr(function, "__name__", type(function).__name__)
    numbers = [int(n) for n in ([argnums] if isinstance(argnums, SupportsIndex) else argnums)]
    names = [argnames] if isinstance(argnames, str) else list(argnames)
    positional, known, any_number, any_name = _parameters(function)
    if known is None:
        return frozenset(numbers), frozenset(names)
    positions = {_position(name, number, positional, any_number, what) for number in numbers}
    for wanted in names:
        if wanted not in known and not any_name:
            fail(
                TraceError,
                f"{name}: {what}_argnames has {wanted!r}, the parameters are {', '.join(known)}",
            )
    positions |= {positional.index(n) for n in names if n in positional}
    also_named = [n for i, n in enumerate(positional) if i in positions]
    return frozenset(positions), frozenset([*names, *also_named])


def _parameters(
    function: Callable[..., Any],
) -> tuple[tuple[str, ...], Mapping[str, Any] | None, bool, bool]:
    """Names of those that may be positional; all (None: a built-in function without a signature);
    is there *, **?"""
    try:
        known = inspect.signature(function).parameters
    except (TypeError, ValueError):
        return (), None, True, True
    kinds = inspect.Parameter
    positional = tuple(
        n
        for n, p in known.items()
        if p.kind in (kinds.POSITIONAL_ONLY, kinds.POSITIONAL_OR_KEYWORD)
    )
    any_number = any(p.kind is kinds.VAR_POSITIONAL for p in known.values())
    any_name = any(p.kind is kinds.VAR_KEYWORD for p in known.values())
    return positional, known, any_number, any_name


def parameter_names(function: Callable[..., Any]) -> tuple[str, ...]:
    """Names of the parameters that may be positional."""
    return _parameters(function)[0]


def _position(
    name: str, number: int, positional: tuple[str, ...], any_number: bool, what: str
) -> int:
    if 0 <= number < len(positional) or (number >= 0 and any_number):
        return number
    if -len(positional) <= number < 0:
        return number + len(positional)
    hint = (
        f"counted from 0: {', '.join(f'{i} is {p}' for i, p in enumerate(positional))}"
        if positional
        else None
    )
    fail(
        TraceError,
        f"{name}: {what}_argnums has {number}, there are {len(positional)} positional parameters",
        hint,
    )
