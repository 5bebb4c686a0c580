"""Core: the type of an array, its dtype and shape, printed as in every IR: f32[8,16]."""

from __future__ import annotations

from tetrad.core.dtypes import DType
from tetrad.core.record import record
from tetrad.core.sizes import Shape, Size, ceil_div, is_static, product


@record
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
        return product(self.storage_shape) * self.dtype.np.itemsize

    @property
    def storage_shape(self) -> Shape:
        """The shape of the NumPy array in memory: the array's own, or for quantised blocks the
        bytes of each row, for integers of four bits all bytes."""
        if not self.dtype.is_quantized or self.dtype.is_float8:
            return self.shape
        if self.dtype.is_nibble:
            return (ceil_div(self.size, 2),)
        *outer, last = self.shape
        if self.dtype.rows > 1:
            outer[-1] = ceil_div(outer[-1], self.dtype.rows) * self.dtype.rows
        return (*outer, ceil_div(last, self.dtype.block) * self.dtype.block_bytes)

    @property
    def is_static(self) -> bool:
        return is_static(self.shape)

    def with_shape(self, shape: Shape) -> ArrayType:
        return ArrayType(self.dtype, shape)

    def with_dtype(self, dtype: DType) -> ArrayType:
        return ArrayType(dtype, self.shape)

    def __hash__(self) -> int:
        # the hash of a dtype is a call, as NumPy's has the same
        return hash((self.dtype.short_name, self.shape))

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
