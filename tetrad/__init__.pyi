# What type checkers see of the package: made by `python -m tests.stubs`.
# ruff: noqa
# fmt: off
from typing import Any

from tetrad.core.config import ProcessSettings as ProcessSettings
from tetrad.core.dtypes import DType as DType
from tetrad.tracing.array import Array as Array

from tetrad.tracing.array import Array as Array
from tetrad.core.dtypes import DType as DType
from tetrad.tracing.device import ArrayDevice as _Device
Device = _Device
from tetrad.core.sizes import Dim as Dim
from tetrad.solvers.minimize import OptimizeResults as OptimizeResults
from tetrad.tracing.trace import Spec as _ShapeDtypeStruct
ShapeDtypeStruct = _ShapeDtypeStruct
from tetrad.tracing.trace import Spec as Spec
__array_api_version__: str
from tetrad.arrays.type_info import __array_namespace_info__ as __array_namespace_info__
__version__: str
def abs(x: Any) -> Array: ...
def absolute(x: Any) -> Array: ...
def acos(x: Any) -> Array: ...
def acosh(x: Any) -> Array: ...
def add(x: Any, y: Any) -> Array: ...
from tetrad.arrays.statistics import all as all
from tetrad.transforms.vmap import all_gather as all_gather
from tetrad.transforms.collectives import all_to_all as all_to_all
from tetrad.arrays.numpy.comparing import allclose as allclose
from tetrad.arrays.statistics import max as _amax
amax = _amax
from tetrad.arrays.statistics import min as _amin
amin = _amin
from tetrad.arrays.numpy.elementwise import angle as angle
from tetrad.arrays.statistics import any as any
from tetrad.arrays.numpy.joining import append as append
from tetrad.arrays.numpy.calling import apply_along_axis as apply_along_axis
from tetrad.arrays.numpy.calling import apply_over_axes as apply_over_axes
from tetrad.arrays.creation import arange as arange
def arccos(x: Any) -> Array: ...
def arccosh(x: Any) -> Array: ...
def arcsin(x: Any) -> Array: ...
def arcsinh(x: Any) -> Array: ...
def arctan(x: Any) -> Array: ...
def arctan2(y: Any, x: Any) -> Array: ...
def arctanh(x: Any) -> Array: ...
from tetrad.arrays.statistics import argmax as argmax
from tetrad.arrays.statistics import argmin as argmin
from tetrad.arrays.numpy.ordering import argpartition as argpartition
from tetrad.arrays.sorting import argsort as argsort
from tetrad.arrays.sized import argwhere as argwhere
from tetrad.arrays.numpy.elementwise import round as _around
around = _around
from tetrad.arrays.creation import array as array
from tetrad.arrays.numpy.comparing import array_equal as array_equal
from tetrad.arrays.numpy.comparing import array_equiv as array_equiv
from tetrad.arrays.numpy.text import array_repr as array_repr
from tetrad.arrays.numpy.joining import array_split as array_split
from tetrad.arrays.numpy.text import array_str as array_str
from tetrad.arrays.creation import asarray as asarray
def asin(x: Any) -> Array: ...
def asinh(x: Any) -> Array: ...
from tetrad.transforms.rows import associative_scan as associative_scan
from tetrad.arrays.manipulation import astype as astype
def atan(x: Any) -> Array: ...
def atan2(y: Any, x: Any) -> Array: ...
def atanh(x: Any) -> Array: ...
from tetrad.arrays.numpy.arranging import atleast_1d as atleast_1d
from tetrad.arrays.numpy.arranging import atleast_2d as atleast_2d
from tetrad.arrays.numpy.arranging import atleast_3d as atleast_3d
from tetrad.arrays.numpy.averages import average as average
from tetrad.transforms.vmap import axis_index as axis_index
from tetrad.transforms.vmap import axis_size as axis_size
from tetrad.arrays.numpy.windows import bartlett as bartlett
bfloat16: DType
from tetrad.arrays.numpy.histograms import bincount as bincount
from tetrad.explain.bisect import bisect as bisect
from tetrad.arrays.numpy.bits import bitcast as bitcast
def bitwise_and(x: Any, y: Any) -> Array: ...
from tetrad.arrays.numpy.elementwise import bitwise_count as bitwise_count
def bitwise_invert(x: Any) -> Array: ...
def bitwise_left_shift(x: Any, y: Any) -> Array: ...
def bitwise_not(x: Any) -> Array: ...
def bitwise_or(x: Any, y: Any) -> Array: ...
def bitwise_right_shift(x: Any, y: Any) -> Array: ...
def bitwise_xor(x: Any, y: Any) -> Array: ...
from tetrad.arrays.numpy.windows import blackman as blackman
from tetrad.arrays.numpy.joining import block as block
from tetrad.arrays.numpy.devices import block_until_ready as block_until_ready
bool: DType
bool_: DType
from tetrad.arrays.manipulation import broadcast_arrays as broadcast_arrays
from tetrad.arrays.manipulation import broadcast_shapes as broadcast_shapes
from tetrad.arrays.manipulation import broadcast_to as broadcast_to
c_: Any
from tetrad.tracing.callbacks import callback as callback
from tetrad.arrays.type_info import can_cast as can_cast
from tetrad.arrays.numpy.elementwise import cbrt as cbrt
cdouble: DType
def ceil(x: Any) -> Array: ...
from tetrad.transforms.recomputed import checkpoint as checkpoint
from tetrad.transforms.recomputed import checkpoint_name as checkpoint_name
checkpoint_policies: Any
from tetrad.arrays.numpy.choosing import choose as choose
from tetrad.arrays.functions import clip as clip
from tetrad.arrays.numpy.arranging import column_stack as column_stack
def complex(re: Any, im: Any) -> Array: ...
complex128: DType
complex64: DType
complexfloating: type[Any]
from tetrad.arrays.sized import compress as compress
from tetrad.arrays.manipulation import concat as concat
from tetrad.arrays.manipulation import concat as _concatenate
concatenate = _concatenate
from tetrad.tracing.loops import cond as cond
config: ProcessSettings
def conj(x: Any) -> Array: ...
def conjugate(x: Any) -> Array: ...
from tetrad.arrays.numpy.signals import convolve as convolve
from tetrad.arrays.numpy.arranging import copy as copy
def copysign(x: Any, y: Any) -> Array: ...
from tetrad.arrays.numpy.averages import corrcoef as corrcoef
from tetrad.arrays.numpy.signals import correlate as correlate
def cos(x: Any) -> Array: ...
def cosh(x: Any) -> Array: ...
from tetrad.arrays.statistics import count_nonzero as count_nonzero
from tetrad.arrays.numpy.averages import cov as cov
from tetrad.arrays.numpy.products import cross as cross
csingle: DType
from tetrad.arrays.numpy.running import cumprod as cumprod
from tetrad.arrays.numpy.running import cumsum as cumsum
from tetrad.arrays.statistics import cumulative_prod as cumulative_prod
from tetrad.arrays.statistics import cumulative_sum as cumulative_sum
from tetrad.transforms.custom import custom_jvp as custom_jvp
from tetrad.linalg._implicit import custom_linear_solve as custom_linear_solve
from tetrad.linalg._implicit import custom_root as custom_root
from tetrad.transforms.custom import custom_vjp as custom_vjp
from tetrad import debug as debug
from tetrad.arrays.numpy.devices import default_backend as default_backend
from tetrad.arrays.numpy.elementwise import deg2rad as deg2rad
from tetrad.arrays.numpy.elementwise import rad2deg as _degrees
degrees = _degrees
from tetrad.arrays.numpy.joining import delete as delete
from tetrad.arrays.numpy.devices import device_count as device_count
from tetrad.arrays.numpy.devices import device_get as device_get
from tetrad.arrays.numpy.devices import device_put as device_put
from tetrad.arrays.numpy.devices import devices as devices
from tetrad.arrays.numpy.grids import diag as diag
from tetrad.arrays.numpy.grids import diag_indices as diag_indices
from tetrad.arrays.numpy.grids import diag_indices_from as diag_indices_from
from tetrad.arrays.numpy.grids import diagflat as diagflat
from tetrad.arrays.numpy.products import diagonal as diagonal
from tetrad.arrays.statistics import diff as diff
from tetrad.arrays.numpy.histograms import digitize as digitize
from tetrad.debug.modes import disable_jit as disable_jit
from tetrad.compiler.dispatch import dispatch as dispatch
def divide(x: Any, y: Any) -> Array: ...
from tetrad.arrays.numpy.elementwise import divmod as divmod
from tetrad.arrays.numpy.products import dot as dot
double: DType
from tetrad.arrays.numpy.joining import dsplit as dsplit
from tetrad.arrays.numpy.arranging import dstack as dstack
from tetrad.arrays.numpy.dtypes import dtype as dtype
from tetrad.arrays.dynamic import dynamic_index_in_dim as dynamic_index_in_dim
from tetrad.arrays.dynamic import dynamic_slice as dynamic_slice
from tetrad.arrays.dynamic import dynamic_slice_in_dim as dynamic_slice_in_dim
from tetrad.arrays.dynamic import dynamic_update_index_in_dim as dynamic_update_index_in_dim
from tetrad.arrays.dynamic import dynamic_update_slice as dynamic_update_slice
from tetrad.arrays.dynamic import dynamic_update_slice_in_dim as dynamic_update_slice_in_dim
e: float
from tetrad.arrays.numpy.running import ediff1d as ediff1d
from tetrad.arrays.einsum import einsum as einsum
from tetrad.arrays.numpy.text import einsum_path as einsum_path
from tetrad.arrays.creation import empty as empty
from tetrad.arrays.creation import empty_like as empty_like
def equal(x: Any, y: Any) -> Array: ...
def erf(x: Any) -> Array: ...
def erfc(x: Any) -> Array: ...
from tetrad import errors as errors
euler_gamma: float
from tetrad.tracing.trace import eval_shape as eval_shape
def exp(x: Any) -> Array: ...
def exp2(x: Any) -> Array: ...
from tetrad.arrays.manipulation import expand_dims as expand_dims
from tetrad import explain as explain
def expm1(x: Any) -> Array: ...
from tetrad.arrays.sized import extract as extract
from tetrad.arrays.creation import eye as eye
from tetrad.arrays.numpy.elementwise import fabs as fabs
from tetrad import fft as fft
from tetrad.arrays.numpy.grids import fill_diagonal as fill_diagonal
from tetrad.arrays.type_info import finfo as finfo
from tetrad.arrays.numpy.elementwise import fix as fix
from tetrad.arrays.sized import flatnonzero as flatnonzero
from tetrad.arrays.manipulation import flip as flip
from tetrad.arrays.numpy.arranging import fliplr as fliplr
from tetrad.arrays.numpy.arranging import flipud as flipud
float16: DType
float32: DType
float64: DType
float8_e4m3fn: DType
float8_e4m3fnuz: DType
float8_e5m2: DType
float8_e5m2fnuz: DType
from tetrad.arrays.numpy.elementwise import float_power as float_power
floating: type[Any]
def floor(x: Any) -> Array: ...
def floor_divide(x: Any, y: Any) -> Array: ...
from tetrad.arrays.numpy.elementwise import fmax as fmax
from tetrad.arrays.numpy.elementwise import fmin as fmin
from tetrad.arrays.numpy.elementwise import fmod as fmod
from tetrad.tracing.loops import fori_loop as fori_loop
from tetrad.arrays.numpy.elementwise import frexp as frexp
from tetrad.arrays.creation import from_dlpack as from_dlpack
from tetrad.arrays.numpy.text import frombuffer as frombuffer
from tetrad.arrays.numpy.text import fromfile as fromfile
from tetrad.arrays.numpy.grids import fromfunction as fromfunction
from tetrad.arrays.numpy.text import fromiter as fromiter
from tetrad.arrays.numpy.text import fromstring as fromstring
from tetrad.arrays.creation import full as full
from tetrad.arrays.creation import full_like as full_like
from tetrad.arrays.numpy.elementwise import gcd as gcd
generic: type[Any]
from tetrad.arrays.numpy.grids import geomspace as geomspace
get_printoptions: Any
from tetrad.transforms.derivatives import grad as grad
from tetrad.arrays.numpy.running import gradient as gradient
def greater(x: Any, y: Any) -> Array: ...
def greater_equal(x: Any, y: Any) -> Array: ...
from tetrad.arrays.numpy.windows import hamming as hamming
from tetrad.arrays.numpy.windows import hanning as hanning
from tetrad.arrays.numpy.elementwise import heaviside as heaviside
from tetrad.transforms.jacobians import hessian as hessian
from tetrad.arrays.numpy.histograms import histogram as histogram
from tetrad.arrays.numpy.histograms import histogram2d as histogram2d
from tetrad.arrays.numpy.histograms import histogram_bin_edges as histogram_bin_edges
from tetrad.arrays.numpy.histograms import histogramdd as histogramdd
from tetrad.arrays.numpy.joining import hsplit as hsplit
from tetrad.arrays.numpy.arranging import hstack as hstack
def hypot(x: Any, y: Any) -> Array: ...
from tetrad.special.bessel import i0 as i0
from tetrad.arrays.numpy.products import identity as identity
from tetrad.arrays.type_info import iinfo as iinfo
def imag(x: Any) -> Array: ...
from tetrad.arrays.numpy.comparing import in1d as in1d
index_exp: Any
from tetrad.arrays.numpy.grids import indices as indices
inexact: type[Any]
inf: float
from tetrad.arrays.numpy.products import inner as inner
from tetrad.arrays.numpy.joining import insert as insert
int16: DType
int32: DType
int64: DType
int8: DType
integer: type[Any]
from tetrad.arrays.numpy.lines import interp as interp
from tetrad.arrays.sets import intersect1d as intersect1d
def invert(x: Any) -> Array: ...
from tetrad.tracing.callbacks import io_callback as io_callback
from tetrad.arrays.numpy.comparing import isclose as isclose
from tetrad.arrays.numpy.elementwise import iscomplex as iscomplex
from tetrad.arrays.numpy.comparing import iscomplexobj as iscomplexobj
from tetrad.arrays.type_info import isdtype as isdtype
def isfinite(x: Any) -> Array: ...
from tetrad.arrays.sorting import isin as isin
def isinf(x: Any) -> Array: ...
def isnan(x: Any) -> Array: ...
from tetrad.arrays.numpy.elementwise import isneginf as isneginf
from tetrad.arrays.numpy.elementwise import isposinf as isposinf
from tetrad.arrays.numpy.elementwise import isreal as isreal
from tetrad.arrays.numpy.comparing import isrealobj as isrealobj
from tetrad.arrays.numpy.comparing import isscalar as isscalar
from tetrad.arrays.numpy.dtypes import issubdtype as issubdtype
from tetrad.arrays.numpy.comparing import iterable as iterable
from tetrad.arrays.numpy.grids import ix_ as ix_
from tetrad.transforms.jacobians import jacfwd as jacfwd
from tetrad.transforms.jacobians import jacrev as jacrev
from tetrad.compiler.jit import jit as jit
from tetrad.transforms.derivatives import jvp as jvp
from tetrad.arrays.numpy.windows import kaiser as kaiser
from tetrad import kernel as kernel
from tetrad.arrays.numpy.products import kron as kron
from tetrad.arrays.numpy.elementwise import lcm as lcm
from tetrad.arrays.numpy.elementwise import ldexp as ldexp
def left_shift(x: Any, y: Any) -> Array: ...
def less(x: Any, y: Any) -> Array: ...
def less_equal(x: Any, y: Any) -> Array: ...
from tetrad.arrays.numpy.ordering import lexsort as lexsort
from tetrad import linalg as linalg
from tetrad.transforms.linear_transpose import linear_transpose as linear_transpose
from tetrad.transforms.derivatives import linearize as linearize
from tetrad.arrays.creation import linspace as linspace
from tetrad.models.model import load as load
from tetrad.formats.trees import load_tree as load_tree
from tetrad.arrays.numpy.devices import local_device_count as local_device_count
from tetrad.arrays.numpy.devices import local_devices as local_devices
def log(x: Any) -> Array: ...
def log10(x: Any) -> Array: ...
def log1p(x: Any) -> Array: ...
def log2(x: Any) -> Array: ...
def logaddexp(x: Any, y: Any) -> Array: ...
from tetrad.arrays.numpy.elementwise import logaddexp2 as logaddexp2
def logical_and(x: Any, y: Any) -> Array: ...
def logical_not(x: Any) -> Array: ...
def logical_or(x: Any, y: Any) -> Array: ...
def logical_xor(x: Any, y: Any) -> Array: ...
from tetrad.arrays.numpy.grids import logspace as logspace
from tetrad.nn import logsumexp as logsumexp
from tetrad.transforms.rows import map as map
from tetrad.arrays.numpy.grids import mask_indices as mask_indices
from tetrad.arrays.linear import matmul as matmul
from tetrad.arrays.manipulation import matrix_transpose as matrix_transpose
from tetrad.arrays.numpy.products import matvec as matvec
from tetrad.arrays.statistics import max as max
def maximum(x: Any, y: Any) -> Array: ...
from tetrad.arrays.statistics import mean as mean
from tetrad.arrays.numpy.quantiles import median as median
from tetrad.arrays.creation import meshgrid as meshgrid
mgrid: Any
from tetrad.arrays.statistics import min as min
from tetrad.solvers.minimize import minimize as minimize
def minimum(x: Any, y: Any) -> Array: ...
def mod(x: Any, y: Any) -> Array: ...
from tetrad.arrays.numpy.elementwise import modf as modf
from tetrad.arrays.manipulation import moveaxis as moveaxis
def multiply(x: Any, y: Any) -> Array: ...
from tetrad.tracing.scopes import named_call as named_call
from tetrad.tracing.scopes import named_scope as named_scope
nan: float
from tetrad.arrays.numpy.nan import nan_to_num as nan_to_num
from tetrad.arrays.numpy.nan import nanargmax as nanargmax
from tetrad.arrays.numpy.nan import nanargmin as nanargmin
from tetrad.arrays.numpy.nan import nancumprod as nancumprod
from tetrad.arrays.numpy.nan import nancumsum as nancumsum
from tetrad.arrays.numpy.nan import nanmax as nanmax
from tetrad.arrays.numpy.nan import nanmean as nanmean
from tetrad.arrays.numpy.quantiles import nanmedian as nanmedian
from tetrad.arrays.numpy.nan import nanmin as nanmin
from tetrad.arrays.numpy.quantiles import nanpercentile as nanpercentile
from tetrad.arrays.numpy.nan import nanprod as nanprod
from tetrad.arrays.numpy.quantiles import nanquantile as nanquantile
from tetrad.arrays.numpy.nan import nanstd as nanstd
from tetrad.arrays.numpy.nan import nansum as nansum
from tetrad.arrays.numpy.nan import nanvar as nanvar
from tetrad.tracing.array import Array as _ndarray
ndarray = _ndarray
from tetrad.arrays.numpy.arranging import ndim as ndim
def negative(x: Any) -> Array: ...
newaxis: None
def nextafter(x: Any, y: Any) -> Array: ...
from tetrad import nn as nn
from tetrad.arrays.sized import nonzero as nonzero
def not_equal(x: Any, y: Any) -> Array: ...
number: type[Any]
from tetrad.solvers.ode import odeint as odeint
ogrid: Any
from tetrad.arrays.creation import ones as ones
from tetrad.arrays.creation import ones_like as ones_like
from tetrad import optim as optim
from tetrad.arrays.numpy.products import outer as outer
from tetrad.arrays.numpy.ordering import packbits as packbits
from tetrad.arrays.manipulation import pad as pad
from tetrad.arrays.numpy.ordering import partition as partition
from tetrad.arrays.numpy.quantiles import percentile as percentile
from tetrad.arrays.manipulation import permute_dims as permute_dims
pi: float
from tetrad.arrays.numpy.choosing import piecewise as piecewise
from tetrad.arrays.numpy.choosing import place as place
from tetrad.transforms.vmap import pmax as pmax
from tetrad.transforms.vmap import pmean as pmean
from tetrad.transforms.vmap import pmin as pmin
from tetrad.arrays.numpy.polynomials import poly as poly
from tetrad.arrays.numpy.polynomials import polyadd as polyadd
from tetrad.arrays.numpy.polynomials import polyder as polyder
from tetrad.arrays.numpy.polynomials import polydiv as polydiv
from tetrad.arrays.numpy.polynomials import polyfit as polyfit
from tetrad.arrays.numpy.polynomials import polyint as polyint
from tetrad.arrays.numpy.polynomials import polymul as polymul
from tetrad.arrays.numpy.polynomials import polysub as polysub
from tetrad.arrays.numpy.polynomials import polyval as polyval
from tetrad.arrays.functions import positive as positive
from tetrad.arrays.functions import pow as pow
from tetrad.arrays.functions import pow as _power
power = _power
from tetrad.transforms.collectives import ppermute as ppermute
printoptions: Any
from tetrad.arrays.numpy.devices import process_count as process_count
from tetrad.arrays.numpy.devices import process_index as process_index
from tetrad.arrays.statistics import prod as prod
from tetrad.arrays.numpy.dtypes import promote_types as promote_types
from tetrad.transforms.collectives import pshuffle as pshuffle
from tetrad.transforms.vmap import psum as psum
from tetrad.transforms.collectives import psum_scatter as psum_scatter
from tetrad.arrays.numpy.averages import ptp as ptp
from tetrad.tracing.callbacks import pure_callback as pure_callback
from tetrad.arrays.numpy.choosing import put as put
from tetrad.arrays.numpy.choosing import put_along_axis as put_along_axis
from tetrad import quant as quant
from tetrad.arrays.numpy.quantiles import quantile as quantile
r_: Any
from tetrad.arrays.numpy.elementwise import rad2deg as rad2deg
from tetrad.arrays.numpy.elementwise import deg2rad as _radians
radians = _radians
from tetrad import random as random
from tetrad.arrays.numpy.arranging import ravel as ravel
from tetrad.arrays.numpy.grids import ravel_multi_index as ravel_multi_index
from tetrad.arrays.ravel import ravel_pytree as ravel_pytree
def real(x: Any) -> Array: ...
def reciprocal(x: Any) -> Array: ...
def remainder(x: Any, y: Any) -> Array: ...
from tetrad.transforms.recomputed import checkpoint as _remat
remat = _remat
from tetrad.arrays.manipulation import repeat as repeat
from tetrad.arrays.manipulation import reshape as reshape
from tetrad.arrays.numpy.joining import resize as resize
from tetrad.arrays.type_info import result_type as result_type
def right_shift(x: Any, y: Any) -> Array: ...
from tetrad.arrays.numpy.elementwise import rint as rint
from tetrad.arrays.manipulation import roll as roll
from tetrad.arrays.numpy.arranging import rollaxis as rollaxis
from tetrad.arrays.numpy.polynomials import roots as roots
from tetrad.arrays.numpy.arranging import rot90 as rot90
from tetrad.arrays.numpy.elementwise import round as round
def rsqrt(x: Any) -> Array: ...
s_: Any
from tetrad.formats import safetensors as safetensors
from tetrad.formats.trees import save as save
from tetrad.arrays.numpy.text import savez as savez
from tetrad.tracing.loops import scan as scan
from tetrad.arrays.functions import scatter_add as scatter_add
from tetrad.arrays.sorting import searchsorted as searchsorted
from tetrad.arrays.segments import segment_max as segment_max
from tetrad.arrays.segments import segment_min as segment_min
from tetrad.arrays.segments import segment_prod as segment_prod
from tetrad.arrays.segments import segment_sum as segment_sum
from tetrad.arrays.numpy.choosing import select as select
set_printoptions: Any
from tetrad.arrays.sets import setdiff1d as setdiff1d
from tetrad.arrays.sets import setxor1d as setxor1d
from tetrad.arrays.numpy.arranging import shape as shape
def sigmoid(x: Any) -> Array: ...
def sign(x: Any) -> Array: ...
def signbit(x: Any) -> Array: ...
signedinteger: type[Any]
def sin(x: Any) -> Array: ...
from tetrad.arrays.numpy.elementwise import sinc as sinc
single: DType
def sinh(x: Any) -> Array: ...
from tetrad.arrays.numpy.arranging import size as size
from tetrad.arrays.sorting import sort as sort
from tetrad.arrays.numpy.ordering import sort_complex as sort_complex
from tetrad.arrays.numpy.elementwise import spacing as spacing
from tetrad import special as special
from tetrad.arrays.numpy.joining import split as split
def sqrt(x: Any) -> Array: ...
from tetrad.arrays.functions import square as square
from tetrad.arrays.manipulation import squeeze as squeeze
from tetrad.arrays.manipulation import stack as stack
from tetrad import stats as stats
from tetrad.arrays.statistics import std as std
from tetrad.transforms.custom import stop_gradient as stop_gradient
def subtract(x: Any, y: Any) -> Array: ...
from tetrad.arrays.statistics import sum as sum
from tetrad.arrays.numpy.arranging import swapaxes as swapaxes
from tetrad.tracing.loops import switch as switch
from tetrad.arrays.functions import take as take
from tetrad.arrays.functions import take_along_axis as take_along_axis
def tan(x: Any) -> Array: ...
def tanh(x: Any) -> Array: ...
from tetrad.arrays.linear import tensordot as tensordot
from tetrad.arrays.manipulation import tile as tile
from tetrad.arrays.sorting import top_k as top_k
from tetrad.arrays.sorting import topk as topk
from tetrad.tracing.trace import trace as trace
from tetrad.arrays.manipulation import transpose as transpose
from tetrad.arrays.numpy.lines import trapezoid as trapezoid
from tetrad.arrays.numpy.lines import trapezoid as _trapz
trapz = _trapz
from tetrad.core import tree as tree
from tetrad.core.tree import flatten as _tree_flatten
tree_flatten = _tree_flatten
from tetrad.core.tree import leaves as _tree_leaves
tree_leaves = _tree_leaves
from tetrad.core.tree import tree_map as tree_map
from tetrad.core.tree import structure as _tree_structure
tree_structure = _tree_structure
from tetrad.core.tree import unflatten as _tree_unflatten
tree_unflatten = _tree_unflatten
from tetrad.arrays.numpy.grids import tri as tri
from tetrad.arrays.creation import tril as tril
from tetrad.arrays.numpy.grids import tril_indices as tril_indices
from tetrad.arrays.numpy.grids import tril_indices_from as tril_indices_from
from tetrad.arrays.numpy.joining import trim_zeros as trim_zeros
from tetrad.arrays.creation import triu as triu
from tetrad.arrays.numpy.grids import triu_indices as triu_indices
from tetrad.arrays.numpy.grids import triu_indices_from as triu_indices_from
def true_divide(x: Any, y: Any) -> Array: ...
def trunc(x: Any) -> Array: ...
from tetrad import typing as typing
uint16: DType
uint32: DType
uint64: DType
uint8: DType
from tetrad.arrays.sets import union1d as union1d
from tetrad.arrays.sets import unique as unique
from tetrad.arrays.sets import unique_all as unique_all
from tetrad.arrays.sets import unique_counts as unique_counts
from tetrad.arrays.sets import unique_inverse as unique_inverse
from tetrad.arrays.sets import unique_values as unique_values
from tetrad.arrays.numpy.ordering import unpackbits as unpackbits
from tetrad.arrays.numpy.grids import unravel_index as unravel_index
unsignedinteger: type[Any]
from tetrad.arrays.manipulation import unstack as unstack
from tetrad.arrays.numpy.running import unwrap as unwrap
from tetrad.transforms.derivatives import value_and_grad as value_and_grad
from tetrad.arrays.numpy.grids import vander as vander
from tetrad.arrays.statistics import var as var
from tetrad.arrays.numpy.products import vdot as vdot
from tetrad.arrays.linear import vecdot as vecdot
from tetrad.arrays.numpy.products import vecmat as vecmat
from tetrad.arrays.numpy.calling import vectorize as vectorize
from tetrad.transforms.derivatives import vjp as vjp
from tetrad.transforms.vmap import vmap as vmap
from tetrad.arrays.numpy.joining import vsplit as vsplit
from tetrad.arrays.numpy.arranging import vstack as vstack
from tetrad.arrays.sized import where as where
from tetrad.tracing.loops import while_loop as while_loop
from tetrad.transforms.jacobians import wirtinger as wirtinger
from tetrad.arrays.creation import zeros as zeros
from tetrad.arrays.creation import zeros_like as zeros_like
