"""JAX's names, devices and shardings: there is one device, the CPU, and every array is on it.

Meshes and shardings describe that one device; what would need a second one is an error.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from tetrad.core.errors import SettingError, UnsupportedError
from tetrad.core.tree import tree_map
from tetrad.jax._shell.tables import td
from tetrad.tracing.array import Array, fail


def process_indices(backend: str | None = None) -> list[int]:
    return [0]


def device_put_replicated(x: Any, devices: Sequence[Any]) -> Any:
    """A tree of arrays with a leading axis for the devices: one."""
    check_one(devices)
    return tree_map(lambda leaf: td.asarray(leaf)[None], x)


def device_put_sharded(shards: Sequence[Any], devices: Sequence[Any]) -> Any:
    check_one(devices)
    return tree_map(lambda leaf: td.asarray(leaf)[None], shards[0])


def check_one(given: Sequence[Any]) -> None:
    if len(given) != 1:
        fail(UnsupportedError, f"there is one device, got {len(given)}", "jax.devices()")


# -- meshes ----------------------------------------------------------------------------------------


class AxisType(enum.Enum):
    """Who decides how an axis is spread: with one device, nobody."""

    Auto = 0
    Explicit = 1
    Manual = 2


class PartitionSpec(tuple[Any, ...]):
    """Which axes of a mesh the axes of an array are spread over."""

    UNCONSTRAINED = "UNCONSTRAINED"

    def __new__(cls, *partitions: Any, **_: Any) -> PartitionSpec:
        return super().__new__(cls, partitions)

    def __repr__(self) -> str:
        return f"PartitionSpec({', '.join(map(repr, self))})"


P = PartitionSpec


class Mesh:
    """Devices in a grid with named axes; here a grid of one."""

    def __init__(
        self, devices: Any, axis_names: Any = (), axis_types: Any = None, **_: Any
    ) -> None:
        self.devices = np.asarray(devices, dtype=object)
        self.axis_names = (axis_names,) if isinstance(axis_names, str) else tuple(axis_names)
        self.axis_types = axis_types or (AxisType.Auto,) * len(self.axis_names)
        check_one(list(self.devices.ravel()))

    @property
    def shape(self) -> Mapping[str, int]:
        return dict(zip(self.axis_names, self.devices.shape, strict=True))

    @property
    def size(self) -> int:
        return int(self.devices.size)

    @property
    def empty(self) -> bool:
        return not self.axis_names

    @property
    def abstract_mesh(self) -> Mesh:
        return self

    def __enter__(self) -> Mesh:
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def __repr__(self) -> str:
        sizes = ", ".join(f"{name!r}: {n}" for name, n in self.shape.items())
        return f"Mesh({sizes})"


AbstractMesh = Mesh


def make_mesh(
    axis_shapes: Sequence[int], axis_names: Sequence[str], axis_types: Any = None, *,
    devices: Any = None,
) -> Mesh:  # fmt: skip
    """A mesh of this shape; it has room for one device."""
    if int(np.prod(axis_shapes)) != 1:
        raise ValueError(f"mesh {tuple(axis_shapes)} needs more devices than there are (1)")
    grid = np.empty(tuple(axis_shapes), object)
    grid[...] = td.devices()[0]
    return Mesh(grid, axis_names, axis_types)


@contextmanager
def set_mesh(mesh: Any) -> Iterator[Any]:
    """A mesh that is meant until the block ends."""
    yield mesh


use_mesh = set_mesh


def get_abstract_mesh() -> Mesh:
    return Mesh(np.asarray(td.devices()[:1], object).reshape(()), ())


get_mesh = get_abstract_mesh


class Sharding:
    """Where the parts of an array are: all on the one device."""

    @property
    def device_set(self) -> set[Any]:
        return set(td.devices())

    addressable_devices = device_set
    is_fully_replicated = is_fully_addressable = True
    memory_kind = "device"
    num_devices = 1

    def shard_shape(self, global_shape: Sequence[int]) -> tuple[int, ...]:
        return tuple(global_shape)

    def is_equivalent_to(self, other: Any, ndim: int) -> bool:
        return isinstance(other, Sharding)

    def devices_indices_map(self, global_shape: Sequence[int]) -> dict[Any, Any]:
        return {td.devices()[0]: tuple(slice(None) for _ in global_shape)}


class SingleDeviceSharding(Sharding):
    def __init__(self, device: Any = None, **_: Any) -> None:
        self.device = td.devices()[0] if device is None else device

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SingleDeviceSharding)

    def __hash__(self) -> int:
        return hash("SingleDeviceSharding")

    def __repr__(self) -> str:
        return f"SingleDeviceSharding(device={self.device!r})"


class NamedSharding(Sharding):
    def __init__(self, mesh: Mesh, spec: Any, **_: Any) -> None:
        self.mesh = mesh
        self.spec = spec if isinstance(spec, PartitionSpec) else PartitionSpec(*spec)
        named = [n for part in self.spec for n in (part if isinstance(part, tuple) else (part,))]
        unknown = [n for n in named if isinstance(n, str) and n not in mesh.axis_names]
        if unknown and unknown != [PartitionSpec.UNCONSTRAINED]:
            raise ValueError(f"{self.spec} names {unknown[0]!r}; {mesh} has {mesh.axis_names}")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, NamedSharding) and self.spec == other.spec

    def __hash__(self) -> int:
        return hash(self.spec)

    def __repr__(self) -> str:
        return f"NamedSharding(mesh={self.mesh}, spec={self.spec})"


def reshard(xs: Any, out_shardings: Any) -> Any:
    return td.device_put(xs)


def shard_map(
    f: Callable[..., Any] | None = None, /, *, out_specs: Any = None, in_specs: Any = None,
    mesh: Any = None, axis_names: Any = None, check_vma: bool = True, **_: Any,
) -> Any:  # fmt: skip
    """The function over the parts of its arguments: with one device, over the whole of them."""
    names = tuple(axis_names or getattr(mesh, "axis_names", ()))

    def mapped(function: Callable[..., Any]) -> Callable[..., Any]:
        whole = function
        for name in names:
            whole = one_part(whole, name)
        return whole

    return mapped if f is None else mapped(f)


def one_part(function: Callable[..., Any], name: str) -> Callable[..., Any]:
    """The function under a named axis of size 1."""

    def called(*args: Any) -> Any:
        batched = td.vmap(function, axis_name=name)(*tree_map(lambda x: td.asarray(x)[None], args))
        return tree_map(lambda x: x[0], batched)

    return called


def pmap(
    fun: Callable[..., Any], axis_name: Any = None, *, in_axes: Any = 0, out_axes: Any = 0,
    static_broadcasted_argnums: Any = (), devices: Any = None, axis_size: int | None = None,
    donate_argnums: Any = (), **_: Any,
) -> Callable[..., Any]:  # fmt: skip
    """A function of a leading axis with one entry for each device: one."""
    mapped = td.jit(
        td.vmap(fun, in_axes, out_axes, axis_name or "pmap", axis_size),
        static_argnums=static_broadcasted_argnums or (),
    )

    def called(*args: Any) -> Any:
        for leaf in td.tree.leaves(args):
            if getattr(leaf, "ndim", 0) and leaf.shape[0] != 1 and in_axes == 0:
                raise ValueError(f"pmap: axis 0 has size {leaf.shape[0]}, there is 1 device")
        return mapped(*args)

    return called


def make_array_from_callback(shape: Any, sharding: Any, data_callback: Any, **_: Any) -> Any:
    return td.asarray(data_callback(tuple(slice(None) for _ in shape)))


def make_array_from_process_local_data(sharding: Any, local_data: Any, *_: Any) -> Any:
    return td.asarray(local_data)


def make_array_from_single_device_arrays(shape: Any, sharding: Any, arrays: Any, **_: Any) -> Array:
    if len(arrays) != 1:
        raise SettingError("arrays", "one array, as there is one device", len(arrays))
    return td.asarray(arrays[0])  # type: ignore[no-any-return]
