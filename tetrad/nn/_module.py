"""Modules, as `td.nn.Module`: a class of fields that is a tree, so that `grad`, `jit`, `vmap` and
optimisers take a model as they take any other tree.

Receives a class with annotated fields; makes it a dataclass whose objects do not change, and tells
`core.tree` how it is taken apart. Fields made with `static_field` are settings: part of the
structure, not of the leaves. `td.nn` loads this module when it is first used.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Hashable, Sequence
from typing import Any, TypeVar, dataclass_transform

from tetrad.core.errors import SettingError
from tetrad.core.tree import NODES, Container, flatten, unflatten
from tetrad.tracing.array import Array

STATIC = "static"
M = TypeVar("M", bound="Module")


def static_field(**settings: Any) -> Any:
    """A field of a `Module` that is a setting: hashable, not differentiated, not traced. Takes the
    arguments of `dataclasses.field`.

    >>> import tetrad as td
    >>> class Scale(td.nn.Module):
    ...     factor: object
    ...     power: int = td.nn.static_field(default=2)
    >>> td.tree.leaves(Scale(3.0))
    [3.0]
    """
    return dataclasses.field(**settings, metadata={STATIC: True})


@dataclass_transform(field_specifiers=(static_field, dataclasses.field), frozen_default=True)
class Module:
    """A model as a class: fields hold arrays and other modules, methods use them.

    A subclass is a dataclass and a tree. Its fields are set when it is made (by the fields in their
    order, or by an `__init__` of its own) and never after; `replace` makes a changed copy.

    >>> import tetrad as td
    >>> class Linear(td.nn.Module):
    ...     weight: td.Array
    ...     bias: td.Array
    ...     activation: str = td.nn.static_field(default="none")
    ...
    ...     def __call__(self, x):
    ...         y = x @ self.weight + self.bias
    ...         return td.nn.relu(y) if self.activation == "relu" else y
    >>> layer = Linear(td.ones((3, 2)), td.zeros(2), "relu")
    >>> layer(td.ones(3))
    Array([3., 3.], float32)
    >>> gradient = td.grad(lambda layer: td.sum(layer(td.ones(3))))(layer)
    >>> gradient.bias, gradient.activation
    (Array([1., 1.], float32), 'relu')
    """

    def __init_subclass__(cls, **settings: Any) -> None:
        super().__init_subclass__(**settings)
        own = "__init__" in cls.__dict__
        dataclasses.dataclass(init=not own, eq=False, repr=False)(cls)
        cls.__init__ = _closing(cls, cls.__init__)  # type: ignore[method-assign]
        _register(cls)

    def __setattr__(self, name: str, value: Any) -> None:
        if name not in {f.name for f in dataclasses.fields(self)}:  # type: ignore[arg-type]
            raise AttributeError(f"{type(self).__name__} has no field {name!r}")
        if self.__dict__.get(DONE):
            hint = f"model.replace({name}=...) makes a changed copy"
            raise dataclasses.FrozenInstanceError(f"a module does not change; {hint}")
        object.__setattr__(self, name, value)

    def __delattr__(self, name: str) -> None:
        raise dataclasses.FrozenInstanceError("a module does not change")

    def replace(self: M, **changes: Any) -> M:
        """A copy with other values in some fields."""
        known = {f.name for f in dataclasses.fields(self)}  # type: ignore[arg-type]
        if not set(changes) <= known:
            raise SettingError(
                f"{type(self).__name__}.replace", ", ".join(sorted(known)), sorted(changes)
            )
        values = {name: value for name, value in self.__dict__.items() if name != DONE}
        return _made(type(self), {**values, **changes})

    def __repr__(self) -> str:
        fields = dataclasses.fields(self)  # type: ignore[arg-type]
        shown = (f"{f.name}={_shown(self.__dict__.get(f.name))}" for f in fields)
        return f"{type(self).__name__}({', '.join(shown)})"

    def __eq__(self, other: object) -> bool:
        """The same class, structure and leaves: the arrays themselves, or equal numbers."""
        if type(self) is not type(other):
            return False
        (mine, shape), (theirs, other_shape) = flatten(self), flatten(other)
        return shape == other_shape and all(map(_is_same, mine, theirs))

    __hash__ = object.__hash__


DONE = "_is_made"


def _closing(cls: type, init: Any) -> Any:
    """The `__init__` of a class, after which an object of just this class does not change."""

    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        init(self, *args, **kwargs)
        if type(self) is cls:
            missing = [f.name for f in dataclasses.fields(cls) if f.name not in self.__dict__]
            if missing:
                raise SettingError(f"{cls.__name__}.__init__", "a value for each field", missing)
            self.__dict__[DONE] = True

    __init__.__wrapped__ = init  # type: ignore[attr-defined]
    return __init__


def _register(cls: type[Module]) -> None:
    fields = dataclasses.fields(cls)  # type: ignore[arg-type]
    static = tuple(f.name for f in fields if f.metadata.get(STATIC))
    children = tuple(f.name for f in fields if f.name not in static)

    def apart(module: Module) -> tuple[Sequence[Any], Hashable]:
        held = module.__dict__
        return [held[n] for n in children], tuple(held[n] for n in static)

    def together(data: tuple[Any, ...], values: Sequence[Any]) -> Module:
        pairs = (*zip(children, values, strict=True), *zip(static, data, strict=True))
        return _made(cls, dict(pairs))

    NODES[cls] = Container(apart, together, lambda _, __: (f".{n}" for n in children))


def _made(cls: type[M], values: dict[str, Any]) -> M:
    """An object of these values, without a call of `__init__`."""
    made = object.__new__(cls)
    made.__dict__.update(values)
    made.__dict__[DONE] = True
    return made


def _shown(value: Any) -> str:
    """Arrays by their type."""
    if isinstance(value, list | tuple | dict):
        leaves, shape = flatten(value)
        return repr(unflatten(shape, [_Text(_shown(leaf)) for leaf in leaves]))
    return str(value.type) if isinstance(value, Array) else repr(value)


class _Text(str):
    """A text that is shown without quotes."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


def _is_same(a: Any, b: Any) -> bool:
    return a is b or (not isinstance(a, Array) and not isinstance(b, Array) and bool(a == b))
