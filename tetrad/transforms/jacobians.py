"""Transforms, Jacobians: `jacfwd`, `jacrev` and `hessian`, as in JAX, and `wirtinger`.

Receives functions of trees of arrays, returns functions that give whole matrices of derivatives:
`jvp` or `vjp` of every unit vector, in one batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import update_wrapper
from typing import Any

import numpy as np

from tetrad.core.errors import DtypeError, ShapeError
from tetrad.core.tree import TreeDef, flatten, unflatten
from tetrad.tracing.array import Array, fail
from tetrad.tracing.operands import as_array, convert, run
from tetrad.tracing.signature import check_function
from tetrad.transforms.derivatives import (
    INTEGERS,
    Argnums,
    Function,
    checked_numbers,
    is_one,
    jvp,
    named,
    vjp,
)
from tetrad.transforms.forward import is_differentiable
from tetrad.transforms.vmap import vmap


def only_arguments(
    fun: Function, args: Sequence[Any], kwargs: dict[str, Any], argnums: Argnums, what: str
) -> tuple[Function, tuple[Any, ...]]:
    """The function of the arguments in argnums alone, and those arguments."""
    numbers = checked_numbers(argnums, what)
    for number in numbers:
        if not -len(args) <= number < len(args):
            fail(
                ShapeError,
                f"{what}: argnums has {number}, the function was called with {len(args)} arguments",
            )
    places = [n % len(args) for n in numbers]

    def partial(*chosen: Any) -> Any:
        whole = list(args)
        for place, value in zip(places, chosen, strict=True):
            whole[place] = value
        return fun(*whole, **kwargs)

    return update_wrapper(partial, fun), tuple(args[p] for p in places)


def check_leaves(
    chosen: Sequence[Any], numbers: Sequence[int], what: str, holomorphic: bool
) -> None:
    for number, argument in zip(numbers, chosen, strict=True):
        leaves, tree = flatten(argument)
        for leaf, name in zip(leaves, tree.leaf_names(f"argument {number}"), strict=True):
            kind = as_array(leaf).type
            if not is_differentiable(kind):
                message = f"{what}: {name} is {kind}, only floats have derivatives"
                fail(DtypeError, message, "convert it with astype, or choose other argnums")
            if holomorphic and not kind.dtype.is_complex:
                fail(DtypeError, f"{what}: holomorphic needs complex arguments, {name} is {kind}")


def check_real(leaves: Sequence[Array], what: str) -> None:
    """A complex number changes in two directions, and a column for each is no complex matrix."""
    for x in leaves:
        if x.dtype.is_complex:
            hint = (
                "set holomorphic=True if the function is holomorphic; else td.wirtinger, or split "
                "the argument"
            )
            fail(
                DtypeError,
                f"{what}: an argument is {x.type}, one direction does not tell how it changes",
                hint,
            )


def basis(leaves: Sequence[Array]) -> list[Array]:
    """For each leaf the unit changes of all leaves, one a row: [total, *shape of the leaf]."""
    total = sum(size_of(x) for x in leaves)
    made, start = [], 0
    for x in leaves:
        rows = np.zeros((total, size_of(x)), x.dtype.np)
        rows[start : start + size_of(x)] = np.eye(size_of(x), dtype=x.dtype.np)
        made.append(as_array(rows.reshape(total, *x.shape)))
        start += size_of(x)
    return made


def size_of(x: Array) -> int:
    if not isinstance(x.size, int):
        fail(ShapeError, f"a matrix of derivatives needs sizes that are known, got {x.type}")
    return x.size


def jacfwd(
    fun: Function, argnums: Argnums = 0, has_aux: bool = False, holomorphic: bool = False
) -> Function:
    """All partial derivatives, forward: one direction for each number that goes in.

    >>> import tetrad as td
    >>> td.jacfwd(lambda x: x * x)(td.asarray([1.0, 2.0]))
    Array([[2., 0.],
           [0., 4.]], float32)
    """
    return by_columns("jacfwd", fun, argnums, has_aux, holomorphic)


def by_columns(
    what: str, fun: Function, argnums: Argnums, has_aux: bool, holomorphic: bool
) -> Function:
    """`jacfwd`, called `what` in what is said of it."""
    check_function(what, fun)

    def wrapped(*args: Any, **kwargs: Any) -> Any:
        partial, chosen = only_arguments(fun, args, kwargs, argnums, what)
        leaves, tree = flatten(chosen)
        check_leaves(chosen, checked_numbers(argnums, what), what, holomorphic)
        arrays = [as_array(leaf) for leaf in leaves]
        if not holomorphic:
            check_real(arrays, what)
        primals = unflatten(tree, arrays)

        def change(*directions: Any) -> Any:
            found = jvp(partial, primals, unflatten(tree, directions), has_aux)
            return (found[1], found[2]) if has_aux else (found[1], None)

        columns, aux = vmap(change, out_axes=(-1, None))(*basis(arrays))
        outputs, shape = flatten(columns)
        split = [cut_last(column, arrays) for column in outputs]
        result = unflatten(shape, [pack(parts, tree, argnums) for parts in split])
        return (result, aux) if has_aux else result

    return named(wrapped, fun, "jacfwd")


def jacrev(
    fun: Function, argnums: Argnums = 0, has_aux: bool = False, holomorphic: bool = False
) -> Function:
    """All partial derivatives, in reverse: one sweep for each number that comes out.

    >>> import tetrad as td
    >>> td.jacrev(lambda x: x * x)(td.asarray([1.0, 2.0]))
    Array([[2., 0.],
           [0., 4.]], float32)
    """
    return by_rows("jacrev", fun, argnums, has_aux, holomorphic)


def by_rows(
    what: str, fun: Function, argnums: Argnums, has_aux: bool, holomorphic: bool
) -> Function:
    """`jacrev`, called `what` in what is said of it."""
    check_function(what, fun)

    def wrapped(*args: Any, **kwargs: Any) -> Any:
        partial, chosen = only_arguments(fun, args, kwargs, argnums, what)
        leaves, tree = flatten(chosen)
        check_leaves(chosen, checked_numbers(argnums, what), what, holomorphic)
        value, back, *aux = vjp(
            partial, *unflatten(tree, [as_array(leaf) for leaf in leaves]), has_aux=has_aux
        )
        outputs, shape = flatten(value)
        check_outputs(outputs, holomorphic, what)
        rows, _ = flatten(vmap(lambda *seeds: back(unflatten(shape, seeds)))(*basis(outputs)))
        # for each argument leaf, one for each output
        parts = [cut_first(row, outputs) for row in rows]
        result = unflatten(
            shape, [pack([p[i] for p in parts], tree, argnums) for i in range(len(outputs))]
        )
        return (result, aux[0]) if has_aux else result

    return named(wrapped, fun, "jacrev")


def check_outputs(outputs: Sequence[Array], holomorphic: bool, what: str) -> None:
    for y in outputs:
        if not is_differentiable(y.type) or (y.dtype.is_complex and not holomorphic):
            hint = "set holomorphic=True, or take real parts" if y.dtype.is_complex else INTEGERS
            fail(DtypeError, f"{what}: a result is {y.type}, it must be a float", hint)


def pack(parts: Sequence[Array], tree: TreeDef, argnums: Argnums) -> Any:
    chosen = unflatten(tree, parts)
    return chosen[0] if is_one(argnums) else chosen


def cut_last(columns: Array, leaves: Sequence[Array]) -> list[Array]:
    """[*output, total] into one [*output, *leaf] for each leaf."""
    made, start, outer = [], 0, columns.shape[:-1]
    for x in leaves:
        sizes = (*outer, size_of(x))
        part = run(
            "slice",
            columns,
            starts=(*(0,) * len(outer), start),
            sizes=sizes,
            steps=(1,) * len(sizes),
        )
        made.append(run("reshape", part, shape=(*outer, *x.shape)))
        start += size_of(x)
    return made


def cut_first(rows: Array, outputs: Sequence[Array]) -> list[Array]:
    """[total, *leaf] into one [*output, *leaf] for each output."""
    made, start, inner = [], 0, rows.shape[1:]
    for y in outputs:
        sizes = (size_of(y), *inner)
        part = run(
            "slice", rows, starts=(start, *(0,) * len(inner)), sizes=sizes, steps=(1,) * len(sizes)
        )
        made.append(run("reshape", part, shape=(*y.shape, *inner)))
        start += size_of(y)
    return made


def hessian(
    fun: Function, argnums: Argnums = 0, has_aux: bool = False, holomorphic: bool = False
) -> Function:
    """All second derivatives: forward over reverse.

    >>> import tetrad as td
    >>> td.hessian(lambda x: td.sum(x * x * x))(td.asarray([1.0, 2.0]))
    Array([[ 6.,  0.],
           [ 0., 12.]], float32)
    """
    gradient = by_rows("hessian", fun, argnums, has_aux, holomorphic)
    return by_columns("hessian", gradient, argnums, has_aux, holomorphic)


def wirtinger(fun: Function, argnums: int = 0) -> Function:
    """The derivatives of one (complex) number by a complex argument and by its conjugate: (df/dz,
    df/dconj(z)).

    >>> import tetrad as td
    >>> z = td.asarray(1 + 2j)
    >>> td.wirtinger(lambda z: td.real(z * td.conj(z)))(z)
    (Array(1.-2.j, complex64), Array(1.+2.j, complex64))
    """
    check_function("wirtinger", fun)

    def wrapped(*args: Any, **kwargs: Any) -> Any:
        partial, (z,) = only_arguments(fun, args, kwargs, argnums, "wirtinger")
        if not as_array(z).dtype.is_complex:
            fail(DtypeError, f"wirtinger: the argument must be complex, got {as_array(z).type}")
        value, back = vjp(partial, as_array(z))
        if value.shape or not is_differentiable(value.type):
            fail(
                ShapeError,
                f"wirtinger: {partial.__name__} must return one number, it returns {value.type}",
            )
        # back gives f_x - i f_y for the real part of f, and for the imaginary part with the
        # cotangent -i
        (by_real,) = back(convert(1.0, value.dtype))
        if not value.dtype.is_complex:
            return 0.5 * by_real, 0.5 * run("conj", by_real)
        (by_imag,) = back(convert(-1j, value.dtype))
        return 0.5 * (by_real + 1j * by_imag), 0.5 * (
            run("conj", by_real) + 1j * run("conj", by_imag)
        )

    return named(wrapped, fun, "wirtinger")
