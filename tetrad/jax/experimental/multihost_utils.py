"""JAX's names: `jax.experimental.multihost_utils`, for the one process there is."""

from __future__ import annotations

from typing import Any

import numpy as np

from tetrad.core.tree import tree_map
from tetrad.jax._shell.tables import td


def sync_global_devices(name: str) -> None:
    """Nobody to wait for."""


def broadcast_one_to_all(in_tree: Any, is_source: bool | None = None) -> Any:
    return tree_map(np.asarray, in_tree)


def process_allgather(in_tree: Any, tiled: bool = False) -> Any:
    """The values of all processes: with `tiled` joined, else stacked."""
    return tree_map(lambda x: np.asarray(x) if tiled else np.asarray(x)[None], in_tree)


def assert_equal(in_tree: Any, fail_message: str = "") -> None:
    """One process agrees with itself."""


def host_local_array_to_global_array(local_inputs: Any, global_mesh: Any, pspecs: Any) -> Any:
    return tree_map(td.asarray, local_inputs)


global_array_to_host_local_array = host_local_array_to_global_array
