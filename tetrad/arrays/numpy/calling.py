"""Arrays, NumPy's names: functions of parts of arrays called for all of them at once.

Receives functions and arrays, returns functions and arrays: `vmap` runs the function over leading
axes, so it is traced, not called once for each element.
"""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable, Sequence
from typing import Any

from tetrad.arrays.creation import asarray
from tetrad.arrays.indexing import reshaped
from tetrad.arrays.manipulation import broadcast_shapes, broadcast_to, expand_dims
from tetrad.core import lazy
from tetrad.core.errors import SettingError, ShapeError
from tetrad.core.sizes import Shape, Size
from tetrad.tracing.array import Array, fail
from tetrad.tracing.operands import axis_of

CORE = r"\(([\w\s,?]*)\)"
SIGNATURE = re.compile(rf"\s*{CORE}(\s*,\s*{CORE})*\s*->\s*{CORE}(\s*,\s*{CORE})*\s*")


def vectorize(
    pyfunc: Callable[..., Any],
    *,
    excluded: Any = frozenset(),
    signature: str | None = None,
) -> Callable[..., Any]:
    """A function of single elements as one of arrays that broadcast. `signature`, such as
    "(n),(n)->()": of vectors and matrices, whose axes come last; `excluded`: arguments that are
    handed on as they are, by place or name.

    >>> import tetrad as td
    >>> td.vectorize(lambda x, y: x * td.sum(y), signature="(),(n)->()")(td.arange(2), td.ones(3))
    Array([0., 3.], float32)
    """
    for one in excluded:
        if not isinstance(one, int | str):
            raise SettingError("vectorize: excluded", "places and names of arguments", one)
    cores = None if signature is None else _parse(signature)

    @functools.wraps(pyfunc, updated=())
    def function(*args: Any, **settings: Any) -> Any:
        places, names = _varying(pyfunc, args, settings, set(excluded))
        given = [asarray(args[i]) for i in places] + [asarray(settings[n]) for n in names]

        def of_elements(*elements: Any) -> Any:
            left = iter(elements)
            filled = [next(left) if i in places else arg for i, arg in enumerate(args)]
            named = {n: next(left) if n in names else settings[n] for n in settings}
            return pyfunc(*filled, **named)

        return _over(of_elements, given, cores)

    return function


def _varying(
    pyfunc: Any, args: tuple[Any, ...], settings: dict[str, Any], excluded: set[Any]
) -> tuple[list[int], list[str]]:
    """Which arguments are broadcast; None stands for no array."""
    try:
        parameters = list(inspect.signature(pyfunc).parameters)
    except (TypeError, ValueError):
        parameters = []
    left_out = {parameters.index(e) for e in excluded if isinstance(e, str) and e in parameters}
    skipped = {i for i in excluded if isinstance(i, int)} | left_out
    places = [i for i, arg in enumerate(args) if i not in skipped and arg is not None]
    return places, [n for n in settings if n not in excluded and settings[n] is not None]


def _parse(signature: str) -> tuple[list[tuple[str, ...]], list[tuple[str, ...]]]:
    if not SIGNATURE.fullmatch(signature):
        raise SettingError("vectorize: signature", 'axes by name, as "(n,m),(m)->(n)"', signature)
    before, after = signature.split("->")
    return tuple(_cores(side) for side in (before, after))  # type: ignore[return-value]


def _cores(side: str) -> list[tuple[str, ...]]:
    found = re.findall(CORE, side)
    return [tuple(n.strip() for n in names.split(",") if n.strip()) for names in found]


def _over(
    function: Callable[..., Any],
    arrays: Sequence[Array],
    cores: tuple[list[tuple[str, ...]], list[tuple[str, ...]]] | None,
) -> Any:
    """The function over all leading axes, which broadcast; those of the signature come last."""
    names = [()] * len(arrays) if cores is None else cores[0]
    if len(names) != len(arrays):
        fail(ShapeError, f"vectorize: {len(arrays)} arrays for a signature with {len(names)}")
    _check_sizes(arrays, names)
    leads = [x.shape[: x.ndim - len(n)] for x, n in zip(arrays, names, strict=True)]
    lead = broadcast_shapes(*leads)
    call = function
    for depth in range(len(lead)):
        # from the innermost axis outwards; arrays without it are handed on as they are
        place = len(lead) - 1 - depth
        axes = tuple(0 if _has(own, len(lead), place) else None for own in leads)
        if all(axis is None for axis in axes):
            call = _repeated(call, lead[place])
        else:
            call = lazy.provided("the public namespace").vmap(call, in_axes=axes)
    squeezed = [
        reshaped(x, tuple(n for i, n in enumerate(own) if _has(own, len(lead), _at(own, lead, i)))
                 + x.shape[len(own) :])
        for x, own in zip(arrays, leads, strict=True)
    ]  # fmt: skip
    return call(*squeezed)


def _at(own: Shape, lead: Shape, i: int) -> int:
    """Which of all leading axes the i-th of an array's own is."""
    return len(lead) - len(own) + i


def _has(own: Shape, rank: int, place: int) -> bool:
    """Does an array change along this leading axis? One of size 1 is handed on."""
    i = place - (rank - len(own))
    return i >= 0 and own[i] != 1


def _repeated(function: Callable[..., Any], size: Size) -> Callable[..., Any]:
    """The result again for each place of an axis that no array changes along."""

    def call(*args: Any) -> Any:
        once = function(*args)
        parts = once if isinstance(once, tuple) else (once,)
        wide = tuple(broadcast_to(expand_dims(p, axis=0), (size, *asarray(p).shape)) for p in parts)
        return wide if isinstance(once, tuple) else wide[0]

    return call


def _check_sizes(arrays: Sequence[Array], names: Sequence[tuple[str, ...]]) -> None:
    sizes: dict[str, Any] = {}
    for x, core in zip(arrays, names, strict=True):
        if x.ndim < len(core):
            fail(ShapeError, f"vectorize: {x.type} has fewer axes than ({', '.join(core)})")
        for name, size in zip(core, x.shape[x.ndim - len(core) :], strict=True):
            if sizes.setdefault(name, size) != size:
                fail(ShapeError, f"vectorize: axis {name} has size {sizes[name]} and {size}")


def apply_along_axis(
    func1d: Callable[..., Any], axis: int, arr: Any, *args: Any, **kwargs: Any
) -> Any:
    """What a function of vectors makes of each line along an axis; the axes of its result take the
    place of that axis.

    >>> import tetrad as td
    >>> td.apply_along_axis(td.sum, 0, td.asarray([[1, 2], [3, 4]]))
    Array([4, 6], int32)
    """
    x = asarray(arr)
    at = axis_of("apply_along_axis", axis, x.ndim)
    call: Callable[..., Any] = lambda line: func1d(line, *args, **kwargs)  # noqa: E731
    vmap = lazy.provided("the public namespace").vmap
    # axes behind that of the line come after the result's own, those before it stay first
    for i in range(x.ndim - 1 - at):
        call = vmap(call, in_axes=i + 1, out_axes=-1)
    for _ in range(at):
        call = vmap(call)
    return call(x)


def apply_over_axes(func: Callable[..., Any], a: Any, axes: Any) -> Array:
    """A function of an array and an axis applied along each of several axes; what it takes away
    stays as an axis of size 1."""
    x = asarray(a)
    for axis in [axes] if isinstance(axes, int) else axes:
        at = axis_of("apply_over_axes", axis, x.ndim)
        found = asarray(func(x, at))
        x = expand_dims(found, axis=at) if found.ndim == x.ndim - 1 else found
    return x
