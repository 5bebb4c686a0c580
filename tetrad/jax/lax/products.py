"""JAX's names, `jax.lax`: products and convolutions, with JAX's dimension numbers."""

from __future__ import annotations

import string
from collections.abc import Sequence
from typing import Any, NamedTuple

from tetrad.core.errors import ShapeError, UnsupportedError
from tetrad.jax._shell.tables import td
from tetrad.jax.lax.reductions import padtype_to_pads
from tetrad.tracing.array import Array, fail
from tetrad.tracing.operands import as_array, dtype_of

SPATIAL = "DHW"


class ConvDimensionNumbers(NamedTuple):
    """Which axis is what: batch or outputs first, then channels, then the spatial axes."""

    lhs_spec: Sequence[int]
    rhs_spec: Sequence[int]
    out_spec: Sequence[int]


def dot_general(
    lhs: Any,
    rhs: Any,
    dimension_numbers: Any,
    precision: Any = None,
    preferred_element_type: Any = None,
    **_: Any,
) -> Any:
    """A product that adds up over some axes and keeps others as a batch: the axes of the result
    are those of the batch, of the left, of the right."""
    (left, right), (left_batch, right_batch) = dimension_numbers
    a, b = as_array(lhs), as_array(rhs)
    if preferred_element_type is not None and a.dtype.kind in "iub":
        a, b = a.astype(preferred_element_type), b.astype(preferred_element_type)
    letters = iter(string.ascii_letters)
    names_a = [next(letters) for _ in range(a.ndim)]
    names_b = [next(letters) for _ in range(b.ndim)]
    for i, j in [*zip(left, right, strict=True), *zip(left_batch, right_batch, strict=True)]:
        if a.shape[i] != b.shape[j]:
            fail(
                ShapeError,
                f"lax.dot_general: axis {i} of {a.type} and axis {j} of {b.type} differ in size",
            )
        names_b[j] = names_a[i]
    result = [names_a[i] for i in left_batch]
    result += [n for i, n in enumerate(names_a) if i not in (*left, *left_batch)]
    result += [n for j, n in enumerate(names_b) if j not in (*right, *right_batch)]
    made = td.einsum(f"{''.join(names_a)},{''.join(names_b)}->{''.join(result)}", a, b)
    return made if preferred_element_type is None else made.astype(preferred_element_type)


def dot(
    lhs: Any, rhs: Any, *, dimension_numbers: Any = None, precision: Any = None,
    preferred_element_type: Any = None, **_: Any,
) -> Any:  # fmt: skip
    """A product of vectors and matrices."""
    a, b = as_array(lhs), as_array(rhs)
    numbers = dimension_numbers or (((a.ndim - 1,), (0,)), ((), ()))
    return dot_general(a, b, numbers, precision, preferred_element_type)


def batch_matmul(lhs: Any, rhs: Any, precision: Any = None) -> Any:
    return td.matmul(lhs, rhs)


def conv_dimension_numbers(
    lhs_shape: Sequence[int], rhs_shape: Sequence[int], dimension_numbers: Any
) -> ConvDimensionNumbers:
    """Letters of axes as numbers of axes."""
    if isinstance(dimension_numbers, ConvDimensionNumbers):
        return dimension_numbers
    rank = len(lhs_shape)
    if dimension_numbers is None:
        return ConvDimensionNumbers(*[tuple(range(rank))] * 3)
    lhs, rhs, out = dimension_numbers
    spatial = [c for c in rhs if c not in "OI"]

    def numbered(spec: str, first: str, second: str) -> tuple[int, ...]:
        return tuple(spec.index(c) for c in (first, second, *spatial))

    return ConvDimensionNumbers(
        numbered(lhs, "N", "C"), numbered(rhs, "O", "I"), numbered(out, "N", "C")
    )


def lettered(spec: Sequence[int], first: str, second: str) -> str:
    rank = len(spec)
    names = first + second + SPATIAL[len(SPATIAL) - (rank - 2) :]
    letters = [""] * rank
    for axis, letter in zip(spec, names, strict=True):
        letters[axis] = letter
    return "".join(letters)


def conv_general_dilated(
    lhs: Any,
    rhs: Any,
    window_strides: Sequence[int],
    padding: Any,
    lhs_dilation: Sequence[int] | None = None,
    rhs_dilation: Sequence[int] | None = None,
    dimension_numbers: Any = None,
    feature_group_count: int = 1,
    batch_group_count: int = 1,
    precision: Any = None,
    preferred_element_type: Any = None,
    **_: Any,
) -> Any:
    """A convolution of one to three spatial axes, with holes in either side."""
    x, w = as_array(lhs), as_array(rhs)
    numbers = conv_dimension_numbers(x.shape, w.shape, dimension_numbers)
    if batch_group_count != 1:
        fail(UnsupportedError, "lax.conv_general_dilated: batch_group_count is 1 here")
    if x.ndim == 2:
        return conv_without_space(x, w, numbers, feature_group_count)
    strides = tuple(int(s) for s in window_strides)
    spatial = x.ndim - 2
    holes = tuple(lhs_dilation or (1,) * spatial)
    wide = tuple(rhs_dilation or (1,) * spatial)
    sizes = [(x.shape[a] - 1) * h + 1 for a, h in zip(numbers.lhs_spec[2:], holes, strict=True)]
    spans = [(w.shape[a] - 1) * d + 1 for a, d in zip(numbers.rhs_spec[2:], wide, strict=True)]
    letters = (
        lettered(numbers.lhs_spec, "N", "C"),
        lettered(numbers.rhs_spec, "O", "I"),
        lettered(numbers.out_spec, "N", "C"),
    )
    made = td.nn.conv_general_dilated(
        x, w, strides, padtype_to_pads(sizes, spans, strides, padding),
        lhs_dilation=holes, rhs_dilation=wide, dimension_numbers=letters,
        feature_group_count=feature_group_count,
    )  # fmt: skip
    return made if preferred_element_type is None else made.astype(dtype_of(preferred_element_type))


def conv_without_space(x: Array, w: Array, numbers: ConvDimensionNumbers, groups: int) -> Any:
    """Without spatial axes a convolution is a product."""
    if groups != 1:
        fail(UnsupportedError, "lax.conv_general_dilated: groups need a spatial axis")
    rows = td.permute_dims(x, tuple(numbers.lhs_spec))
    made = td.matmul(rows, td.permute_dims(w, tuple(numbers.rhs_spec)).mT)
    return td.permute_dims(made, tuple(numbers.out_spec))


def conv(
    lhs: Any, rhs: Any, window_strides: Sequence[int], padding: str, precision: Any = None,
    preferred_element_type: Any = None,
) -> Any:  # fmt: skip
    return conv_general_dilated(lhs, rhs, window_strides, padding)


def conv_with_general_padding(
    lhs: Any, rhs: Any, window_strides: Sequence[int], padding: Any, lhs_dilation: Any,
    rhs_dilation: Any, precision: Any = None, preferred_element_type: Any = None,
) -> Any:  # fmt: skip
    return conv_general_dilated(lhs, rhs, window_strides, padding, lhs_dilation, rhs_dilation)


def conv_transpose(
    lhs: Any,
    rhs: Any,
    strides: Sequence[int],
    padding: Any,
    rhs_dilation: Sequence[int] | None = None,
    dimension_numbers: Any = None,
    transpose_kernel: bool = False,
    precision: Any = None,
    preferred_element_type: Any = None,
    use_consistent_padding: bool = False,
) -> Any:
    """The convolution that undoes the sizes of one with these strides."""
    x, w = as_array(lhs), as_array(rhs)
    spatial = x.ndim - 2
    if dimension_numbers is None:
        letters = SPATIAL[len(SPATIAL) - spatial :]
        dimension_numbers = (f"N{letters}C", f"{letters}IO", f"N{letters}C")
    numbers = conv_dimension_numbers(x.shape, w.shape, dimension_numbers)
    wide = tuple(rhs_dilation or (1,) * spatial)
    spans = [(w.shape[a] - 1) * d + 1 for a, d in zip(numbers.rhs_spec[2:], wide, strict=True)]
    if isinstance(padding, str):
        padding = [transposed_padding(k, s, padding) for k, s in zip(spans, strides, strict=True)]
    if transpose_kernel:
        w = td.flip(w, axis=tuple(numbers.rhs_spec[2:]))
        o, i, *rest = numbers.rhs_spec
        numbers = numbers._replace(rhs_spec=(i, o, *rest))
    return conv_general_dilated(
        x, w, (1,) * spatial, padding, lhs_dilation=strides, rhs_dilation=wide,
        dimension_numbers=numbers, preferred_element_type=preferred_element_type,
    )  # fmt: skip


def transposed_padding(span: int, stride: int, padding: str) -> tuple[int, int]:
    if padding.upper() == "SAME":
        whole = span + stride - 2
        before = span - 1 if stride > span - 1 else -(-whole // 2)
    else:
        whole = span + stride - 2 + max(span - stride, 0)
        before = span - 1
    return before, whole - before


OWN = """
    ConvDimensionNumbers batch_matmul conv conv_dimension_numbers conv_general_dilated
    conv_transpose conv_with_general_padding dot dot_general
""".split()  # noqa: SIM905
