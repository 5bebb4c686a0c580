"""Arrays, einsum: any Einstein sum as transpose, reshape, multiply, matmul and sum.

Receives subscripts and arrays; operands are contracted two at a time, in the order NumPy's path
finder suggests; returns one array. Sizes may be symbolic.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tetrad.arrays.indexing import permuted, reshaped, sliced
from tetrad.arrays.linear import check_precision, in_dtype, product_in
from tetrad.core.dtypes import DType, bool_
from tetrad.core.errors import ShapeError
from tetrad.core.sizes import Size, SizeExpr, product
from tetrad.tracing.array import Array, fail
from tetrad.tracing.operands import apply, convert, expand, owned, run

Labels = str  # one letter per axis
Term = tuple[Array, Labels]
# the module `string` compiles a pattern as it loads
LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"


def einsum(
    subscripts: Any,
    /,
    *operands: Any,
    dtype: Any = None,
    preferred_element_type: Any = None,
    precision: Any = None,
    optimize: Any = True,
) -> Array:
    """The Einstein sum: axes with the same letter are matched, letters missing on the right are
    summed. `dtype` is that of the sums and the result, if not that of the operands; JAX calls it
    `preferred_element_type`; `precision` as in `matmul`. The order of products is chosen here,
    whatever `optimize` says. The letters may also follow each operand, and come last for the
    result, as lists of numbers.

    >>> import tetrad as td
    >>> td.einsum("ij,jk->ik", td.eye(2), td.asarray([[1.0, 2.0], [3.0, 4.0]]))
    Array([[1., 2.],
           [3., 4.]], float32)
    """
    if not isinstance(subscripts, str):
        subscripts, operands = _spelled(subscripts, *operands)
    check_precision("einsum", precision)
    arrays, kind = in_dtype("einsum", [owned(x) for x in operands], dtype, preferred_element_type)
    inputs, output = _parse(subscripts, arrays)
    terms = [_diagonals(x, labels, subscripts) for x, labels in zip(arrays, inputs, strict=True)]
    sizes = _sizes(terms, subscripts)
    for group in _path(terms, output):
        chosen = [terms[i] for i in group]
        terms = [term for i, term in enumerate(terms) if i not in group]
        needed = set(output).union(*(labels for _, labels in terms))
        terms.append(_contract_all(chosen, needed, kind))
    x, labels = _sum_out(terms[0], set(output), kind)
    x = permuted(x, [labels.index(letter) for letter in output if letter in labels])
    # a letter whose every axis had size 1 was dropped on the way
    shape = tuple(sizes[letter] for letter in output)
    ones = tuple(sizes[letter] if letter in labels else 1 for letter in output)
    return convert(expand(reshaped(x, ones), shape), kind)


def _spelled(*given: Any) -> tuple[str, tuple[Any, ...]]:
    """x, [0, 1], y, [1, 2], [0, 2] -> "AB,BC->AC", (x, y)"""
    lists = given[1::2] if len(given) % 2 == 0 else (*given[1::2], given[-1])
    if not all(isinstance(one, list | tuple) for one in lists):
        fail(
            ShapeError,
            "einsum: expected a text of letters first, or after each operand a list of numbers",
            'td.einsum("ij,jk->ik", x, y), or td.einsum(x, [0, 1], y, [1, 2], [0, 2])',
        )
    words = ["".join(map(_letter, one)) for one in lists]
    count = len(given) // 2
    return ",".join(words[:count]) + "".join(f"->{w}" for w in words[count:]), given[
        : 2 * count : 2
    ]


def _letter(number: Any) -> str:
    if number is ...:
        return "..."
    if not isinstance(number, int) or not 0 <= number < len(LETTERS):
        fail(ShapeError, f"einsum: axes are numbers from 0 to {len(LETTERS) - 1}, got {number!r}")
    return sorted(LETTERS)[number]


def _parse(subscripts: str, arrays: Sequence[Array]) -> tuple[list[Labels], Labels]:
    """Letters per operand and of the result; an ellipsis becomes capital-free fresh letters."""
    left, arrow, right = subscripts.replace(" ", "").partition("->")
    parts = left.split(",")
    if len(parts) != len(arrays):
        fail(
            ShapeError, f"einsum: {subscripts!r} describes {len(parts)} operands, got {len(arrays)}"
        )
    used = set(subscripts)
    fresh = [c for c in LETTERS if c not in used]
    inputs = [_spell(part, x, fresh, subscripts) for part, x in zip(parts, arrays, strict=True)]
    widest = max(
        [x.ndim - len(part) + 3 for part, x in zip(parts, arrays, strict=True) if "..." in part],
        default=0,
    )
    dots = "".join(fresh[:widest][::-1])
    if not arrow:
        named = "".join(parts).replace(".", "")
        right = ("..." if dots else "") + "".join(
            sorted(c for c in set(named) if named.count(c) == 1)
        )
    output = right.replace("...", dots)
    _check_output(output, inputs, subscripts)
    return inputs, output


def _spell(part: str, x: Array, fresh: Sequence[str], subscripts: str) -> Labels:
    """The letters of one operand; ellipsis axes are lettered from the right, so that they
    broadcast."""
    letters = part.replace("...", "")
    extra = x.ndim - len(letters)
    if not all(c in LETTERS for c in letters) or part.count(".") not in (0, 3):
        fail(
            ShapeError,
            f"einsum: cannot read {part!r} in {subscripts!r}",
            "letters, commas, '...' and '->'",
        )
    if extra < 0 or (extra and "..." not in part):
        fail(ShapeError, f"einsum: {part!r} has {len(letters)} letters for {x.type}")
    return part.replace("...", "".join(fresh[:extra][::-1]))


def _check_output(output: Labels, inputs: Sequence[Labels], subscripts: str) -> None:
    known = set("".join(inputs))
    if len(set(output)) != len(output) or not set(output) <= known:
        fail(
            ShapeError,
            f"einsum: the result {output!r} of {subscripts!r} repeats a letter or has an "
            "unknown one",
        )


def _diagonals(x: Array, labels: Labels, subscripts: str) -> Term:
    """A letter twice in one operand: its diagonal, by reading a flattened square with a step of n +
    1."""
    for letter in labels:
        while labels.count(letter) > 1:
            first = labels.index(letter)
            second = labels.index(letter, first + 1)
            n = x.shape[first]
            if x.shape[second] != n or isinstance(n, SizeExpr):
                fail(
                    ShapeError,
                    f"einsum: {letter!r} in {subscripts!r} names axes of sizes {n} and "
                    f"{x.shape[second]}",
                )
            rest = [axis for axis in range(x.ndim) if axis not in (first, second)]
            x = _diagonal(permuted(x, [first, second, *rest]), n)
            labels = letter + "".join(labels[axis] for axis in rest)
    return x, labels


def _diagonal(x: Array, n: int) -> Array:
    """[n, n, ...] -> [n, ...]"""
    rest = x.shape[2:]
    flat = reshaped(x, (n * n, *rest))
    return sliced(flat, (0,) * flat.ndim, (n, *rest), (n + 1, *(1,) * len(rest)))


def _sizes(terms: Sequence[Term], subscripts: str) -> dict[str, Size]:
    sizes: dict[str, Size] = {}
    for x, labels in terms:
        for letter, size in zip(labels, x.shape, strict=True):
            known = sizes.setdefault(letter, size)
            if known == 1:
                sizes[letter] = size
            elif size not in (1, known):
                fail(
                    ShapeError, f"einsum: {letter!r} in {subscripts!r} has sizes {known} and {size}"
                )
    return sizes


def _path(terms: Sequence[Term], output: Labels) -> list[tuple[int, ...]]:
    """Which operands to contract, step by step; each result goes to the end of the list."""
    if len(terms) < 3:
        return [tuple(range(len(terms)))] if len(terms) == 2 else []
    stand_ins = [
        np.broadcast_to(np.int8(0), [n if isinstance(n, int) else n.max for n in x.shape])
        for x, _ in terms
    ]
    text = ",".join(labels for _, labels in terms) + "->" + output
    return [tuple(step) for step in np.einsum_path(text, *stand_ins, optimize="greedy")[0][1:]]


def _contract_all(terms: Sequence[Term], needed: set[str], kind: DType) -> Term:
    result = terms[0]
    for i, term in enumerate(terms[1:], 1):
        later = needed.union(*(labels for _, labels in terms[i + 1 :]))
        result = _contract(result, term, later, kind)
    return result


def _sum_out(term: Term, needed: set[str], kind: DType) -> Term:
    """Letters nobody needs any more are summed, in this type; the sum of booleans is whether one
    holds, as in products."""
    x, labels = term
    axes = tuple(axis for axis, letter in enumerate(labels) if letter not in needed)
    if not axes:
        return term
    total = "reduce_any" if kind is bool_ else "reduce_sum"
    return run(total, convert(x, kind), axes=axes), "".join(
        letter for letter in labels if letter in needed
    )


def _drop_ones(term: Term, other: Term) -> Term:
    """An axis of size 1 that meets a larger one is left out: the product broadcasts over it."""
    x, labels = term
    theirs = dict(zip(other[1], other[0].shape, strict=True))
    kept = [
        (n, c)
        for n, c in zip(x.shape, labels, strict=True)
        if not (n == 1 and theirs.get(c, 1) != 1)
    ]
    return reshaped(x, tuple(n for n, _ in kept)), "".join(c for _, c in kept)


def _contract(left: Term, right: Term, needed: set[str], kind: DType) -> Term:
    """Two operands into one, by a matrix product over the letters both have and nobody else
    needs."""
    left, right = _drop_ones(left, right), _drop_ones(right, left)
    left, right = (
        _sum_out(left, needed | set(right[1]), kind),
        _sum_out(right, needed | set(left[1]), kind),
    )
    shared = [c for c in left[1] if c in right[1]]
    batch = "".join(c for c in shared if c in needed)
    inner = "".join(c for c in shared if c not in needed)
    rows = "".join(c for c in left[1] if c not in shared)
    columns = "".join(c for c in right[1] if c not in shared)
    size = dict(zip(left[1], left[0].shape, strict=True)) | dict(
        zip(right[1], right[0].shape, strict=True)
    )
    a = _grouped(left, (batch, rows, inner), size)
    b = _grouped(right, (batch, inner, columns), size)
    product_of = product_in(a, b, kind) if inner else _times(convert(a, kind), convert(b, kind))
    labels = batch + rows + columns
    return reshaped(product_of, tuple(size[c] for c in labels)), labels


def _times(a: Array, b: Array) -> Array:
    return apply("multiply", a, b)


def _grouped(term: Term, groups: tuple[Labels, ...], size: dict[str, Size]) -> Array:
    """The operand with one axis per group of letters."""
    x, labels = term
    moved = permuted(x, [labels.index(c) for group in groups for c in group])
    return reshaped(moved, tuple(product(size[c] for c in group) for group in groups))
