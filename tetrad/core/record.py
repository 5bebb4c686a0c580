"""Core: `record`, a decorator for frozen dataclasses with slots that are quick to create.

Receives a class with annotated fields, returns it with `__init__`, `__repr__`, `__eq__` and
`__hash__`. The standard `dataclass` writes and compiles six functions per class, which took a third
of the time of an import and a tenth of a first call; here nothing is compiled.
"""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter
from typing import Any, NoReturn, TypeVar, dataclass_transform

T = TypeVar("T")


class Field:
    """What a field has instead of a default."""

    __slots__ = ("make", "shown")

    def __init__(self, make: Callable[[], Any] | None, shown: bool) -> None:
        self.make, self.shown = make, shown


def field(*, default_factory: Callable[[], Any] | None = None, repr: bool = True) -> Any:
    """A field whose default is created anew for each record, or that `repr` leaves out."""
    return Field(default_factory, repr)


REQUIRED = Field(None, True)


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def record(
    cls: Any = None, /, *, frozen: bool = True, eq: bool = True, weakref_slot: bool = False
) -> Any:
    """A class of immutable values. With eq=False they compare by identity.

    >>> @record
    ... class Point:
    ...     x: int
    ...     y: int = 0
    >>> Point(1), Point(1) == Point(1, 0), replace(Point(1), y=2)
    (Point(x=1, y=0), True, Point(x=1, y=2))
    """
    if cls is None:
        return lambda found: made(found, frozen, eq, weakref_slot)
    return made(cls, frozen, eq, weakref_slot)


def made(cls: type, frozen: bool, eq: bool, weakref_slot: bool) -> type:
    """The class created again, with slots: a class cannot get slots later."""
    space = dict(cls.__dict__)
    own = tuple(space.get("__annotations__", ()))
    inherited: dict[str, Any] = getattr(cls, "__defaults__", {})
    names = tuple(dict.fromkeys((*getattr(cls, "__match_args__", ()), *own)))
    defaults = inherited | {name: space.pop(name) for name in own if name in space}
    for name in ("__dict__", "__weakref__"):
        space.pop(name, None)
    shown = tuple(n for n in names if not isinstance(defaults.get(n), Field) or defaults[n].shown)
    methods = {
        "__match_args__": names,
        "__defaults__": defaults,
        "__shown__": shown,
        "__repr__": _repr,
    }
    methods |= (
        {"__setattr__": _refuse, "__delattr__": _refuse, "__reduce__": _reduce} if frozen else {}
    )
    if eq:
        equal, hashed = _equality(names)
        methods |= {"__eq__": equal, "__hash__": hashed if frozen else None}
    space = methods | space | {"__slots__": (*own, *(("__weakref__",) if weakref_slot else ()))}
    found = type(cls)(cls.__name__, cls.__bases__, space)
    found.__qualname__ = cls.__qualname__
    if names and "__init__" not in space:
        found.__init__ = _initialiser(found, names, defaults)  # type: ignore[misc]
    return found


def replace(value: T, **changes: Any) -> T:
    """The record with some fields changed."""
    return type(value)(**{name: getattr(value, name) for name in fields(value)} | changes)


def fields(value: object) -> tuple[str, ...]:
    """The names of the fields of a record, or of a class of records."""
    names: tuple[str, ...] = value.__match_args__  # type: ignore[attr-defined]
    return names


def defaults(cls: type) -> dict[str, Any]:
    """The fields that may be left out, with their defaults."""
    found: dict[str, Any] = cls.__defaults__  # type: ignore[attr-defined]
    return found


def _initialiser(cls: type, names: tuple[str, ...], defaults: dict[str, Any]) -> Any:
    """The `__init__` of a record, as a closure: source text would have to be compiled."""
    # setters of the slots: they bypass `__setattr__`, which refuses
    setters = tuple(getattr(cls, name).__set__ for name in names)
    count, plain = (
        len(names),
        [name in defaults and not isinstance(defaults[name], Field) for name in names],
    )
    # fields from here on have plain defaults
    required = count - (plain[::-1].index(False) if False in plain else count)
    tail = tuple(defaults[name] for name in names[required:])

    def __init__(self: Any, *values: Any, **named: Any) -> None:
        if named or len(values) != count:
            short = not named and required <= len(values) < count
            values = values + tail[len(values) - required :] if short else arranged(values, named)
        for put, value in zip(setters, values):  # noqa: B905  as many as fields, by now
            put(self, value)

    def arranged(values: tuple[Any, ...], named: dict[str, Any]) -> tuple[Any, ...]:
        """The values in order of the fields; refuses what Python refuses in any call."""
        given = dict(zip(names, values, strict=False))
        wrong = [name for name in named if name in given or name not in names]
        if wrong or len(values) > count:
            what = (
                f"an unexpected or repeated argument {wrong[0]!r}"
                if wrong
                else f"{len(values)} arguments"
            )
            raise TypeError(f"{cls.__qualname__}({', '.join(names)}) got {what}")
        given |= named
        return tuple(
            [given[name] if name in given else _default(cls, name, defaults) for name in names]
        )

    __init__.__qualname__, __init__.__module__ = f"{cls.__qualname__}.__init__", cls.__module__
    return __init__


def _default(cls: type, name: str, defaults: dict[str, Any]) -> Any:
    found = defaults.get(name, REQUIRED)
    if not isinstance(found, Field):
        return found
    if found.make is None:
        raise TypeError(f"{cls.__qualname__} needs the argument {name!r}")
    return found.make()


def _equality(names: tuple[str, ...]) -> tuple[Callable[[Any, object], Any], Callable[[Any], int]]:
    values: Callable[[Any], Any] = attrgetter(*names) if names else lambda _: ()

    def __eq__(self: Any, other: object) -> Any:
        return values(self) == values(other) if type(other) is type(self) else NotImplemented

    def __hash__(self: Any) -> int:
        return hash(values(self))

    return __eq__, __hash__


def _repr(self: Any) -> str:
    shown = ", ".join(f"{name}={getattr(self, name)!r}" for name in self.__shown__)
    return f"{type(self).__qualname__}({shown})"


def _reduce(self: Any) -> tuple[Any, ...]:
    return type(self), tuple(getattr(self, name) for name in fields(self))


def _refuse(self: Any, name: str, value: object = None) -> NoReturn:
    raise AttributeError(
        f"{type(self).__qualname__}.{name}: records do not change; make another with replace(...)"
    )
