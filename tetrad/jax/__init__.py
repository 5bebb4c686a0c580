"""JAX's names: `import tetrad.jax as jax`, for programs that were written for JAX.

A shell: names, settings and conventions are JAX's, what is computed is what `td` computes.
Importing it gives the process JAX's conventions (`tetrad.jax.conventions`); `install` puts it where
`import jax` looks, for libraries (docs/jax.md).
"""

from __future__ import annotations

from typing import Any

from tetrad.core import lazy
from tetrad.jax import conventions
from tetrad.jax._shell import attributes, tables
from tetrad.jax._shell.configuration import config as config
from tetrad.tracing.array import Array as Array

conventions.use()
attributes.add()

__version__ = "0.10.2"  # the version whose names these are
__version_info__ = (0, 10, 2)
FOLDERS = """
    _src test_util ad_checkpoint api_util core custom_derivatives debug distributed
    dlpack dtypes errors experimental extend flatten_util image interpreters lax monitoring nn
    numpy ops profiler random scipy sharding stages tree
    tree_util typing version
""".split()  # noqa: SIM905
TABLE = tables.same("""
    Device block_until_ready checkpoint custom_jvp custom_vjp default_backend device_count
    device_get device_put devices disable_jit eval_shape grad hessian jacfwd jacrev jvp
    linear_transpose linearize local_device_count local_devices named_call named_scope process_count
    process_index pure_callback remat value_and_grad vjp vmap ShapeDtypeStruct
""") | {
    "jacobian": "jacrev", "host_id": "process_index", "host_count": "process_count",
    **{f"tree_{n}": f"tree.{n}" for n in ["map", "leaves", "flatten", "unflatten", "structure"]},
}  # fmt: skip
HOMES = {  # module of this folder -> names of it
    "_shell.devices": """
        AxisType NamedSharding P device_put_replicated device_put_sharded
        make_array_from_callback make_array_from_process_local_data
        make_array_from_single_device_arrays make_mesh pmap process_indices reshard set_mesh
        shard_map
    """,
    "_shell.configuration": "debug_infs debug_nans default_prng_impl disable_x64 enable_x64",
    "_shell.transforms": """
        checking_leaks clear_caches closure_convert custom_gradient effects_barrier
        ensure_compile_time_eval fwd_and_bwd jit live_arrays make_jaxpr typeof
    """,
    "_shell.installation": "install uninstall",
    "ad_checkpoint": "checkpoint_policies",
    "dtypes": "float0",
}
HOME = {name: home for home, names in HOMES.items() for name in names.split()}
SETTINGS = """
    check_tracer_leaks debug_key_reuse default_device default_matmul_precision
    enable_checks enable_custom_prng explain_cache_misses legacy_prng_key log_compiles
    numpy_dtype_promotion numpy_rank_promotion threefry_partitionable transfer_guard
    transfer_guard_device_to_device transfer_guard_device_to_host transfer_guard_host_to_device
""".split()  # noqa: SIM905


def __getattr__(name: str) -> Any:
    if name in FOLDERS:
        return lazy.module(f"tetrad.jax.{name}")
    if name in HOME:
        value = getattr(lazy.module(f"tetrad.jax.{HOME[name]}"), name)
    elif name in SETTINGS:
        value = lazy.module("tetrad.jax._shell.configuration").without_effect(f"jax_{name}")
    else:
        return tables.reexported(globals(), TABLE, name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return tables.listed(globals(), TABLE, HOME, SETTINGS, FOLDERS)
