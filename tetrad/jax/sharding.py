"""JAX's names: `jax.sharding`, of the one device there is."""

from __future__ import annotations

from typing import Any

from tetrad.jax._shell.devices import (
    AbstractMesh,
    AxisType,
    Mesh,
    NamedSharding,
    PartitionSpec,
    Sharding,
    SingleDeviceSharding,
    get_abstract_mesh,
    get_mesh,
    reshard,
    set_mesh,
    use_mesh,
)

PositionalSharding = SingleDeviceSharding
make_single_device_sharding = SingleDeviceSharding


def auto_axes(fun: Any, *_: Any, **__: Any) -> Any:
    """The function: no axis is spread."""
    return fun


explicit_axes = auto_axes
use_abstract_mesh = set_mesh
__all__ = [
    "AbstractMesh", "AxisType", "Mesh", "NamedSharding", "PartitionSpec", "Sharding",
    "SingleDeviceSharding", "auto_axes", "explicit_axes", "get_abstract_mesh", "get_mesh",
    "reshard", "set_mesh", "use_abstract_mesh", "use_mesh",
]  # fmt: skip
