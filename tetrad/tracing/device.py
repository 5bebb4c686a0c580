"""Tracing, devices: the machine that arrays live on, as the array API and JAX tell of it."""

from __future__ import annotations


class ArrayDevice(str):
    """A machine: its name, so `x.device == "cpu"`, and what JAX tells of it."""

    __slots__ = ()
    id = 0
    process_index = 0
    platform = "cpu"
    device_kind = "cpu"
    local_hardware_id = 0

    def __repr__(self) -> str:
        return f"CpuDevice(id={self.id})"

    def memory_stats(self) -> None:
        """JAX tells nothing of a CPU's memory either."""
        return


CPU = ArrayDevice("cpu")
