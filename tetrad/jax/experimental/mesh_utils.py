"""JAX's names: `jax.experimental.mesh_utils`: the one device in a grid."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tetrad.jax._shell.devices import make_mesh


def create_device_mesh(mesh_shape: Sequence[int], devices: Any = None, **_: Any) -> np.ndarray:
    """The device in a grid of this shape."""
    return make_mesh(mesh_shape, [f"axis {i}" for i in range(len(mesh_shape))]).devices


def create_hybrid_device_mesh(
    mesh_shape: Sequence[int], dcn_mesh_shape: Sequence[int], devices: Any = None, **_: Any
) -> np.ndarray:
    return create_device_mesh(
        [a * b for a, b in zip(mesh_shape, dcn_mesh_shape, strict=True)], devices
    )
