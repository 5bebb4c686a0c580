"""JAX's names, types of numbers: `jnp.float32` and its like are the dtypes of `td`."""

from __future__ import annotations

from typing import Any

from tetrad.jax._shell.tables import td

SCALARS = {
    name: name
    for name in """
        bfloat16 complex64 complex128 float16 float32 float64 float8_e4m3fn float8_e5m2
        float8_e4m3fnuz float8_e5m2fnuz int4 int8 int16 int32 int64 uint4 uint8 uint16 uint32
        uint64 bool
    """.split()  # noqa: SIM905
} | {
    "bool_": "bool", "float_": "float64", "int_": "int64", "uint": "uint64",
    "complex_": "complex128", "single": "float32", "double": "float64", "csingle": "complex64",
    "cdouble": "complex128",
}  # fmt: skip


def scalar_type(name: str) -> Any:
    return getattr(td, SCALARS[name])
