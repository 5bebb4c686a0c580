"""Station 0, shared words: the type of an array, dtype and shape, as every IR prints it."""

from __future__ import annotations

from dataclasses import dataclass

from tetrad.core.dtypes import DType
from tetrad.core.sizes import Shape, Size, is_static, product


@dataclass(frozen=True, slots=True)
class ArrayType:
    """Element type and axis sizes of a dense row-major array.

    >>> from tetrad.core.dtypes import f32
    >>> ArrayType(f32, (8, 16))
    f32[8,16]
    """

    dtype: DType
    shape: Shape

    @property
    def rank(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> Size:
        return product(self.shape)

    @property
    def nbytes(self) -> Size:
        return self.size * self.dtype.nbytes

    @property
    def is_static(self) -> bool:
        return is_static(self.shape)

    def with_shape(self, shape: Shape) -> ArrayType:
        return ArrayType(self.dtype, shape)

    def with_dtype(self, dtype: DType) -> ArrayType:
        return ArrayType(dtype, self.shape)

    def __str__(self) -> str:
        return f"{self.dtype}[{','.join(map(str, self.shape))}]"

    __repr__ = __str__


def row_strides(shape: Shape) -> tuple[Size, ...]:
    """Elements between neighbours along each axis of a dense row-major array."""
    strides: list[Size] = []
    step: Size = 1
    for n in reversed(shape):
        strides.append(step)
        step = step * n
    return tuple(reversed(strides))
