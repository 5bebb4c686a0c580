"""The public names: `tetrad.<name>` for each of them; the package loads this module when the first
one is used.

Array functions follow the Python array API standard (2025.12); `jit` carries the name it has in
JAX. The compiler, and LLVM with it, is loaded by the first compilation.
"""

# ruff: noqa: F401  (imported to be found here)

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tetrad import errors, kernel
from tetrad.arrays import functions
from tetrad.compiler.jit import jit
from tetrad.core import lazy, tree
from tetrad.core.config import config
from tetrad.core.dtypes import (
    FLOAT8,
    DType,
    bf16,
    bool_,
    c64,
    c128,
    f16,
    f32,
    f64,
    i4,
    i8,
    i16,
    i32,
    i64,
    u4,
    u8,
    u16,
    u32,
    u64,
)
from tetrad.core.flags import check_environment
from tetrad.core.sizes import Dim
from tetrad.core.tracebacks import install
from tetrad.tracing.array import Array
from tetrad.tracing.conversions import API_VERSIONS
from tetrad.tracing.switches import read_flags
from tetrad.tracing.trace import Spec, eval_shape, trace

if TYPE_CHECKING:
    from tetrad import nn as nn
    from tetrad import typing as typing
    from tetrad.arrays.functions import *  # noqa: F403
    from tetrad.formats import safetensors as safetensors
    from tetrad.nn import logsumexp as logsumexp
    from tetrad.tracing.loops import cond, fori_loop, scan, switch, while_loop

check_environment()
read_flags()
install()

__array_api_version__ = API_VERSIONS[-1]

bfloat16, float16, float32, float64 = bf16, f16, f32, f64
float8_e4m3fn, float8_e5m2, float8_e4m3fnuz, float8_e5m2fnuz = FLOAT8
complex64, complex128 = c64, c128
int4, int8, int16, int32, int64 = i4, i8, i16, i32, i64
uint4, uint8, uint16, uint32, uint64 = u4, u8, u16, u32, u64
bool = bool_
ndarray, ShapeDtypeStruct = Array, Spec  # as JAX calls them
tree_map, tree_flatten, tree_unflatten = tree.map, tree.flatten, tree.unflatten
tree_leaves, tree_structure = tree.leaves, tree.structure
e, pi, inf, nan = 2.718281828459045, 3.141592653589793, float("inf"), float("nan")
newaxis = None
euler_gamma = 0.5772156649015329
single, double, csingle, cdouble = f32, f64, c64, c128
# folders, loaded when first used
SPACES = (
    "debug", "explain", "fft", "linalg", "nn", "optim", "quant", "random", "special", "stats",
)  # fmt: skip
FORMATS = ("safetensors",)  # folders of formats, likewise
HOMES = {  # module -> names of it, loaded when first used
    "arrays.ravel": ("ravel_pytree",),
    "arrays.segments": ("segment_max", "segment_min", "segment_prod", "segment_sum"),
    "compiler.dispatch": ("dispatch",),
    "debug.modes": ("disable_jit",),
    "explain.bisect": ("bisect",),
    "formats.trees": ("load_tree", "save"),
    "linalg._implicit": ("custom_linear_solve", "custom_root"),
    "models.lm": ("load",),
    "nn": ("logsumexp",),
    "solvers.minimize": ("OptimizeResults", "minimize"),
    "solvers.ode": ("odeint",),
    "special": ("i0",),
    "tracing.callbacks": ("callback", "io_callback", "pure_callback"),
    "tracing.scopes": ("named_call", "named_scope"),
    "tracing.loops": ("cond", "fori_loop", "scan", "switch", "while_loop"),
    "transforms.collectives": ("all_to_all", "ppermute", "pshuffle", "psum_scatter"),
    "transforms.custom": ("custom_jvp", "custom_vjp", "stop_gradient"),
    "transforms.derivatives": ("grad", "jvp", "linearize", "value_and_grad", "vjp"),
    "transforms.jacobians": ("hessian", "jacfwd", "jacrev", "wirtinger"),
    "transforms.linear_transpose": ("linear_transpose",),
    "transforms.recomputed": ("checkpoint", "checkpoint_name", "checkpoint_policies", "remat"),
    "transforms.rows": ("associative_scan", "map"),
    "transforms.vmap": (
        "all_gather", "axis_index", "axis_size", "pmax", "pmean", "pmin", "psum", "vmap",
    ),
}  # fmt: skip
HOME = {name: home for home, names in HOMES.items() for name in names}
NEEDS_EXTRA = (
    "load",
)  # not in __all__: a star import must not ask for packages that only some want


def __getattr__(name: str) -> Any:
    """What is loaded when it is first used; elementwise functions are made from their ops."""
    if name in SPACES:
        return lazy.module(f"tetrad.{name}")
    if name == "typing":
        return lazy.module("tetrad.typing")
    if name in FORMATS:
        return lazy.module(f"tetrad.formats.{name}")
    if name == "__all__":
        return public_names()
    if name not in HOME and name not in functions.__all__ and not functions.is_elementwise(name):
        advice = lazy.module("tetrad.arrays.suggestions").advice(name, __dir__())
        raise AttributeError(f"tetrad has no function {name!r}{advice}")
    home = lazy.module(f"tetrad.{HOME[name]}") if name in HOME else functions
    globals()[name] = value = getattr(home, name)
    return value


def __dir__() -> list[str]:
    return [*public_names(), *NEEDS_EXTRA, "__array_api_version__"]


def public_names() -> list[str]:
    """What a star import brings. To list them loads every op, so it waits until somebody asks."""
    return [
        *PLAIN,
        *SPACES,
        *FORMATS,
        *(name for name in HOME if name not in NEEDS_EXTRA),
        *functions.__dir__(),
    ]


PLAIN = (
    "Array", "DType", "Dim", "ShapeDtypeStruct", "Spec", "config", "errors", "eval_shape", "jit",
    "kernel", "ndarray", "trace", "tree", "tree_flatten", "tree_leaves", "tree_map",
    "tree_structure", "tree_unflatten", "typing", "bool_", "euler_gamma", "single", "double",
    "csingle", "cdouble",
    "bfloat16", "bool", "complex64", "complex128", "float16", "float32", "float64", "int8", "int16",
    "float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz", "int32", "int64",
    "uint8", "uint16", "uint32", "uint64", "e", "inf", "nan", "newaxis", "pi",
)  # fmt: skip
