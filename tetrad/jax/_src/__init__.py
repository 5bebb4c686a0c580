"""JAX's names: the few of `jax._src`, JAX's private folder, that libraries import all the same.
Most are modules of ours under a second name."""

from __future__ import annotations

import sys

from tetrad.core import lazy

HOMES = {  # module of `jax._src` -> the one of `tetrad.jax` that has its names
    "api": "_shell.transforms", "api_util": "api_util", "config": "_shell.configuration",
    "core": "core", "custom_derivatives": "custom_derivatives", "dtypes": "dtypes",
    "errors": "errors", "flatten_util": "flatten_util", "mesh": "_shell.devices",
    "partition_spec": "_shell.devices", "random": "random", "test_util": "test_util",
    "tree_util": "tree_util", "typing": "typing",
}  # fmt: skip

for _name, _home in HOMES.items():
    sys.modules[f"{__name__}.{_name}"] = globals()[_name] = lazy.module(f"tetrad.jax.{_home}")
