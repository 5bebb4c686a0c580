"""Arrays, devices: the CPU, under the names JAX has for machines, and moving to it and back.

Receives trees of arrays, returns them: arrays live in memory, so nothing moves.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tetrad.arrays.creation import asarray
from tetrad.core.errors import UnsupportedError
from tetrad.core.tree import flatten, tree_map
from tetrad.tracing.array import Array, fail
from tetrad.tracing.device import CPU
from tetrad.tracing.device import ArrayDevice as Device


def devices(backend: str | None = None) -> list[Device]:
    """The machines there are: one CPU, whose cores a program shares.

    >>> import tetrad as td
    >>> td.devices()
    [CpuDevice(id=0)]
    """
    if backend not in (None, "cpu"):
        fail(UnsupportedError, f"devices: there is no back end {backend!r}", "back ends: cpu")
    return [CPU]


def local_devices(
    process_index: int | None = None, backend: str | None = None, host_id: int | None = None
) -> list[Device]:
    """The machines of this process: all there are."""
    return devices(backend)


def device_count(backend: str | None = None) -> int:
    """How many machines there are."""
    return len(devices(backend))


def local_device_count(backend: str | None = None) -> int:
    """How many machines this process has."""
    return len(devices(backend))


def process_count(backend: str | None = None) -> int:
    """How many processes compute together: this one."""
    return 1


def process_index(backend: str | None = None) -> int:
    """The number of this process."""
    return 0


def default_backend() -> str:
    """The kind of machine that programs run on."""
    return "cpu"


def device_put(
    x: Any, device: Any = None, *, src: Any = None, donate: bool = False,
    may_alias: bool | None = None,
) -> Any:  # fmt: skip
    """A tree with arrays for leaves, on the CPU; `device` may be a sharding, or a tree of them.

    >>> import tetrad as td
    >>> td.device_put({"w": [1.0, 2.0]}, td.devices()[0])
    {'w': [Array(1., float32), Array(2., float32)]}
    """
    if any(one != CPU for one in _devices_of(device)):
        fail(UnsupportedError, f"device_put: there is no device {device!r}", "devices: cpu")
    return tree_map(asarray, x)


def _devices_of(device: Any) -> list[Any]:
    """Those of a tree of devices, and of shardings: objects that list them."""
    leaves = flatten(device)[0]
    return [one for leaf in leaves for one in getattr(leaf, "device_set", [leaf])]


def device_get(x: Any) -> Any:
    """A tree with NumPy arrays for leaves, in place where it can be.

    >>> import tetrad as td
    >>> td.device_get((td.ones(2), 3))
    (array([1., 1.], dtype=float32), 3)
    """
    return tree_map(lambda leaf: np.asarray(leaf) if isinstance(leaf, Array) else leaf, x)


def block_until_ready(x: Any) -> Any:
    """The tree itself: a call returns when its results are there."""
    return x
