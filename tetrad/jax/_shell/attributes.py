"""JAX's names, attributes of arrays that only JAX's arrays have: where they are, and what is known
of them while a function is traced."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tetrad.jax._shell.devices import SingleDeviceSharding
from tetrad.jax._shell.tables import td
from tetrad.tracing.array import TracedArray
from tetrad.tracing.operators import MORE
from tetrad.tracing.trace import Spec


@dataclass(frozen=True)
class ArrayShard:
    """The part of an array that a device holds: all of it."""

    device: Any
    data: Any
    index: tuple[slice, ...]
    replica_id: int = 0


def shards(x: Any) -> list[ArrayShard]:
    return [ArrayShard(td.devices()[0], x, (slice(None),) * x.ndim)]


def waits(x: Any) -> Callable[[], None]:
    return lambda: None


ATTRIBUTES: dict[str, Callable[[Any], Any]] = {
    "addressable_data": lambda x: lambda index: x,
    "addressable_shards": shards,
    "aval": lambda x: Spec(x.shape, x.dtype),
    "committed": lambda x: True,
    "copy_to_host_async": waits,
    "global_shards": shards,
    "is_fully_addressable": lambda x: True,
    "is_fully_replicated": lambda x: True,
    "on_device_size_in_bytes": lambda x: lambda: x.nbytes,
    "sharding": lambda x: SingleDeviceSharding(),
    "weak_type": lambda x: isinstance(x, TracedArray) and x.weak is not None,
}


def add() -> None:
    """Give arrays these attributes."""
    MORE.update(ATTRIBUTES)
