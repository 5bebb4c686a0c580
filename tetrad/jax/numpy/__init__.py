"""JAX's names: `jax.numpy`. Functions of `td` under NumPy's names, and the few whose conventions
differ from ours; `tetrad.jax.numpy.linalg` and `.fft` lie beside."""

from __future__ import annotations

from typing import Any

import numpy as np

from tetrad.core import lazy
from tetrad.jax._shell import scalars, tables
from tetrad.jax._shell.keys import SHAPING, taking_keys
from tetrad.jax.numpy.differing import DIFFERING
from tetrad.tracing.array import Array

FOLDERS = ("fft", "linalg")
TABLE = tables.same("""
    abs absolute acos acosh add all allclose amax amin angle any append apply_along_axis
    apply_over_axes arange arccos arccosh arcsin arcsinh arctan arctan2 arctanh argmax argmin
    argpartition argsort argwhere around array array_equal array_equiv array_split asarray asin
    asinh astype atan atan2 atanh atleast_1d atleast_2d atleast_3d average bartlett bincount
    bitwise_and bitwise_count bitwise_invert bitwise_left_shift bitwise_not bitwise_or
    bitwise_right_shift bitwise_xor blackman block broadcast_arrays broadcast_shapes broadcast_to
    c_ can_cast cbrt ceil choose clip column_stack compress concat concatenate conj conjugate
    convolve copy copysign corrcoef correlate cos cosh count_nonzero cov cross cumprod cumsum
    cumulative_prod cumulative_sum deg2rad degrees delete diag diag_indices diag_indices_from
    diagflat diagonal diff digitize divide divmod dot dsplit dstack e ediff1d einsum einsum_path
    empty empty_like equal euler_gamma exp exp2 expand_dims expm1 extract eye fabs fill_diagonal
    finfo flatnonzero flip fliplr flipud float_power floor floor_divide fmax fmin fmod frexp
    from_dlpack frombuffer fromfile fromfunction fromiter fromstring full full_like gcd
    geomspace gradient greater greater_equal hamming hanning heaviside histogram2d
    histogram_bin_edges histogramdd hsplit hstack hypot i0 identity iinfo imag indices inf inner
    insert interp intersect1d invert isclose iscomplex iscomplexobj isdtype isfinite isin isinf
    isnan isneginf isposinf isreal isrealobj isscalar issubdtype iterable ix_ kaiser kron lcm ldexp
    left_shift less less_equal lexsort linspace load log log10 log1p log2 logaddexp logaddexp2
    logical_and logical_not logical_or logical_xor logspace mask_indices matmul matrix_transpose
    matvec max maximum mean median meshgrid mgrid min minimum mod modf moveaxis multiply nan
    nan_to_num nanargmax nanargmin nancumprod nancumsum nanmax nanmean nanmedian nanmin
    nanpercentile nanprod nanquantile nanstd nansum nanvar ndim negative newaxis nextafter nonzero
    not_equal ogrid ones ones_like outer packbits pad partition percentile permute_dims pi piecewise
    place poly polyadd polyder polydiv polyfit polyint polymul polysub polyval positive pow power
    prod ptp put put_along_axis quantile r_ rad2deg radians ravel ravel_multi_index
    real reciprocal remainder repeat reshape resize result_type right_shift rint roll rollaxis roots
    rot90 round s_ save savez searchsorted select setdiff1d setxor1d shape sign signbit sin sinc
    sinh size sort sort_complex spacing split sqrt square squeeze stack std subtract sum swapaxes
    tan tanh tensordot tile transpose trapezoid tri tril tril_indices
    tril_indices_from trim_zeros triu triu_indices triu_indices_from true_divide trunc union1d
    unique unique_all unique_counts unique_inverse unique_values unpackbits unravel_index unstack
    unwrap vander var vdot vecdot vecmat vectorize vsplit vstack where zeros zeros_like
""") | {"trapz": "trapezoid"}
NUMPY_TYPES = """
    generic number integer signedinteger unsignedinteger inexact floating complexfloating
    character flexible object_ get_printoptions set_printoptions printoptions index_exp
""".split()  # noqa: SIM905
ndarray = Array
dtype = np.dtype


def __getattr__(name: str) -> Any:
    if name in FOLDERS:
        return lazy.module(f"tetrad.jax.numpy.{name}")
    if name in DIFFERING:
        value: Any = DIFFERING[name]
    elif name in NUMPY_TYPES:
        value = getattr(np, name)
    elif name in scalars.SCALARS:
        value = scalars.scalar_type(name)
    else:
        value = tables.reexported(globals(), TABLE, name)
        value = taking_keys(value) if name in SHAPING else value
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return tables.listed(globals(), TABLE, DIFFERING, NUMPY_TYPES, scalars.SCALARS, FOLDERS)
