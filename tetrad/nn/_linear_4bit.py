"""Linear layers whose weight stays packed in 4 bits, as `td.nn.linear_4bit` and
`td.nn.linear_4bit_affine_grouped`.

Receives rows, words u32[inputs / 8, outputs] that hold eight inputs of one output, and what goes
with them; returns rows of outputs. Here operands are checked and brought to the form of the ops;
the meaning, the order of the sums and the derivatives are in `ops/linear_4bit`. `td.nn` loads this
module when it is first used.
"""

from __future__ import annotations

import operator
from typing import Any, NoReturn

import numpy as np

from tetrad.arrays import functions as td
from tetrad.arrays.int4 import (
    check_activations,
    check_rounded,
    check_shape,
    in_floats,
    with_codes,
)
from tetrad.core.dtypes import DType, u32
from tetrad.core.errors import DtypeError, SettingError, ShapeError, TraceError
from tetrad.core.floats import guarded
from tetrad.core.sizes import Size
from tetrad.ops.int4.op import BLOCK, WORD
from tetrad.ops.linear_4bit.int8 import linear_4bit_int8
from tetrad.ops.linear_4bit.op import group_count
from tetrad.ops.linear_4bit.op import linear_4bit as linear_4bit_op
from tetrad.tracing.array import Array, TracedArray, fail
from tetrad.tracing.operands import as_array

LIMIT = 1 << 32  # words, scales and zero points are counted in 32 bits


@guarded
def linear_4bit(x: Any, w: Any, b: Any = None, *, activations: str | None = None) -> Array:
    """b + x @ nibbles, for rows x [..., inputs] and words w [inputs / 8, outputs], which may also
    be flat: bits 4 (k % 8) and up of w[k // 8, i] are what input k of output i is multiplied with,
    0 to 15.

    The sum begins at the bias and goes from the first input to the last; each product is rounded,
    then added, so an output has the same bits whatever is computed beside it. f16 and bf16 are
    computed in f32 and rounded once. `activations="int8"` rounds x to 8 bits first, with a scale
    for every 32 inputs, and multiplies integers: off by at most max|x| / 254 for each x. It takes
    no f64; derivatives are those without rounding.

    >>> import tetrad as td
    >>> w = td.asarray([[0x87654321, 0x11111111]], dtype=td.uint32)
    >>> linear_4bit(td.arange(1.0, 9.0), w, td.asarray([0.0, 100.0]))
    Array([204., 136.], float32)
    """
    name = "linear_4bit"
    check_activations(name, activations)
    inputs, outputs = sizes_of(name, x, w, b)
    check_sizes(name, inputs, outputs)
    words = matrix_of(name, w, inputs, outputs)
    (rows, *given), dtype = in_floats(name, x, *optional(b))
    check_rounded(name, activations, dtype)
    check_bias(name, given, outputs)
    if activations is None:
        result = linear_4bit_op(rows, words, *given)
    else:
        result = by_codes(rows, words, given, 0)
    return td.astype(result, dtype)


@guarded
def linear_4bit_affine_grouped(
    x: Any,
    w: Any,
    scale: Any,
    zero_point: Any,
    b: Any = None,
    *,
    group_size: int,
    activations: str | None = None,
    strict: bool = False,
) -> Array:
    """b + x @ ((nibbles - zero_point) * scale), with a scale and a zero point for every
    `group_size` inputs of an output: both are [groups, outputs], the last group may be short.

    Words, order and `activations` are those of `linear_4bit`; a group must then be whole words.
    Zero points may be of any number type; `strict` refuses those that are not 0 to 15.

    >>> import tetrad as td
    >>> w = td.asarray([[0x87654321, 0]], dtype=td.uint32)
    >>> scale, zero_point = td.asarray([[0.5, 1], [2, 1]]), td.asarray([[1, 0], [4, 0]])
    >>> b = td.asarray([0.0, 3.0])
    >>> linear_4bit_affine_grouped(td.arange(1.0, 9.0), w, scale, zero_point, b, group_size=4)
    Array([150.,   3.], float32)
    """
    name = "linear_4bit_affine_grouped"
    check_activations(name, activations)
    inputs, outputs = sizes_of(name, x, w, b, scale)
    size = check_group_size(name, inputs, outputs, group_size)
    groups = group_count(inputs, size)
    words = matrix_of(name, w, inputs, outputs)
    if strict:
        check_zero_points(name, as_array(zero_point))
    (rows, factors, zeros, *given), dtype = affine_floats(name, x, scale, zero_point, b)
    check_rounded(name, activations, dtype)
    check_bias(name, given, outputs)
    rest = [
        sidecar(name, "scales", factors, groups, outputs),
        sidecar(name, "zero points", zeros, groups, outputs),
        *given,
    ]
    if activations is None:
        result = linear_4bit_op(rows, words, *rest, group_size=size)
    else:
        check_whole_words(name, inputs, size)
        result = by_codes(rows, words, rest, size)
    return td.astype(result, dtype)


# -- checks ----------------------------------------------------------------------------------------


def fix(message: str) -> NoReturn:
    fail(ShapeError, f"Fix: {message}")


def sizes_of(name: str, x: Any, w: Any, b: Any, *scale: Any) -> tuple[int, int]:
    """Inputs, from the rows; outputs, from the matrix of words or, if that is flat, the bias or the
    matrix of scales, or else from the number of words."""
    rows, words = as_array(x), as_array(w)
    if words.dtype is not u32:
        hint = "a word holds eight inputs of one output"
        fail(DtypeError, f"{name}: expected packed words, uint32, got {words.type}", hint)
    if not rows.ndim or words.ndim not in (1, 2):
        wanted = "rows [..., inputs] and words [inputs / 8, outputs] or flat"
        fail(ShapeError, f"{name}: expected {wanted}, got {rows.type} and {words.type}")
    inputs = known(name, rows.shape[-1])
    vectors = [side for side in map(as_array, optional(b)) if side.ndim == 1]
    matrices = [side for side in map(as_array, scale) if side.ndim == 2]
    for side in [words] * (words.ndim == 2) + vectors + matrices:
        return inputs, known(name, side.shape[-1])
    return inputs, known(name, words.shape[0]) // max(inputs // WORD, 1)


def known(name: str, size: Size) -> int:
    if not isinstance(size, int):
        hint = "leave the axis out of dims=; leading axes of x may be symbolic"
        fail(ShapeError, f"{name}: inputs and outputs must be known, got the size {size}", hint)
    return size


def check_sizes(name: str, inputs: int, outputs: int) -> None:
    check_positive(name, inputs, outputs)
    check_words(name, inputs, outputs)


def check_positive(name: str, inputs: int, outputs: int) -> None:
    if inputs == 0:
        fix(f"{name}: in_dim=0, so the reduction is empty; give x at least 8 inputs")
    if outputs == 0:
        fix(f"{name}: out_dim=0, so the output is empty; give w at least one column")


def check_words(name: str, inputs: int, outputs: int) -> None:
    if inputs % WORD:
        up = -(-inputs // WORD) * WORD
        fix(
            f"{name}: in_dim={inputs} is not divisible by 8, and a word holds 8 inputs; pad x and "
            f"w with zeros to in_dim={up}"
        )
    check_count(name, inputs // WORD * outputs, "words")


def check_count(name: str, count: int, what: str) -> None:
    if count >= LIMIT:
        fix(f"{name}: the number of {what}, {count}, overflows u32; split the outputs")


def check_group_size(name: str, inputs: int, outputs: int, group_size: Any) -> int:
    check_positive(name, inputs, outputs)
    if isinstance(group_size, bool | np.bool_) or not hasattr(group_size, "__index__"):
        raise SettingError(f"{name}: group_size", "a number of inputs, an int", group_size)
    size = operator.index(group_size)
    if size <= 0:
        fix(f"{name}: group_size={size}, but a group size must be > 0; give the inputs of a group")
    check_words(name, inputs, outputs)
    check_count(name, group_count(inputs, size) * outputs, "scales")
    return size


def check_bias(name: str, given: list[Array], outputs: int) -> None:
    for bias in given:
        check_shape(name, "a bias", bias, (outputs,))


def check_whole_words(name: str, inputs: int, size: int) -> None:
    if size % WORD and size < inputs:
        message = f"{name}: rows in 8 bits take groups of whole words, got group_size={size}"
        fail(ShapeError, message, "leave out activations=, or take a group size that 8 divides")


def check_zero_points(name: str, zero_point: Array) -> None:
    if isinstance(zero_point, TracedArray):
        hint = "check them outside, where their values are there"
        fail(TraceError, f"{name}: strict asks for the values of zero points under jit", hint)
    values = np.asarray(zero_point)
    wrong = values[~((values >= 0) & (values <= 15))]
    if wrong.size:
        raise SettingError(f"{name}: zero_point", "numbers from 0 to 15", wrong.flat[0].item())


def matrix_of(name: str, w: Any, inputs: int, outputs: int) -> Array:
    words = as_array(w)
    shape = (inputs // WORD, outputs)
    if words.shape not in (shape, (shape[0] * outputs,)):
        hint = "is the data cut off? input k of output i is in word [k // 8, i]"
        message = f"{name}: {inputs} inputs and {outputs} outputs take words {list(shape)}"
        fail(ShapeError, f"{message}, got {words.type}", hint)
    return td.reshape(words, shape)


def sidecar(name: str, what: str, side: Array, groups: int, outputs: int) -> Array:
    """Scales or zero points as [groups, outputs]; they may be flat, as words may."""
    if side.shape == (groups * outputs,):
        return td.reshape(side, (groups, outputs))
    check_shape(name, f"{what} for each of {groups} groups", side, (groups, outputs))
    return side


# -- the form of the ops ---------------------------------------------------------------------------


def optional(x: Any) -> tuple[Any, ...]:
    return () if x is None else (x,)


def affine_floats(
    name: str, x: Any, scale: Any, zero_point: Any, b: Any
) -> tuple[list[Array], DType]:
    """Operands as floats. Zero points that are integers have no say in the type; as u32 they stay
    what they are."""
    zeros = as_array(zero_point)
    if not zeros.dtype.is_integer:
        return in_floats(name, x, scale, zeros, *optional(b))
    (rows, factors, *given), dtype = in_floats(name, x, scale, *optional(b))
    held = zeros if zeros.dtype is u32 else td.astype(zeros, rows.dtype)
    return [rows, factors, held, *given], dtype


def by_codes(rows: Array, words: Array, rest: list[Array], size: int) -> Array:
    """Rows in 8 bits, blocks as long as groups allow, at most 32 inputs."""
    of_group = size // WORD if 0 < size < rows.shape[-1] else BLOCK
    block = next(n for n in range(BLOCK, 0, -1) if of_group % n == 0)
    made: Array = linear_4bit_int8(
        *with_codes(rows, words, block), *rest, block=block, group_size=size
    )
    return made
