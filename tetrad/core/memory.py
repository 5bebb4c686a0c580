"""Core: how much memory this process may use.

Reads the files of /proc and /sys, returns bytes: those of the machine, or the smaller limit of a
cgroup. Linux does not refuse an allocation beyond the limit, it kills the process that writes to
it; so large allocations are checked beforehand.
"""

from __future__ import annotations

import os


def total_memory(root: str = "/") -> int | None:
    """Bytes this process may use: those of the machine, or the limit of its cgroup; None if
    unknown."""
    limits = [machine_memory(root), number(os.path.join(root, "sys/fs/cgroup/memory.max"))]
    limits.append(number(os.path.join(root, "sys/fs/cgroup/memory/memory.limit_in_bytes")))
    return min((limit for limit in limits if limit), default=None)


def machine_memory(root: str, name: str = "MemTotal") -> int | None:
    try:
        with open(os.path.join(root, "proc/meminfo")) as file:
            lines = file.read().splitlines()
    except OSError:
        return None
    found = next((line.split() for line in lines if line.startswith(f"{name}:")), None)
    return int(found[1]) << 10 if found else None


def check_memory(nbytes: int, what: str, root: str = "/") -> None:
    """Raise MemoryError if `nbytes` exceed memory plus swap."""
    memory = total_memory(root)
    if memory is not None and nbytes > memory + (machine_memory(root, "SwapTotal") or 0):
        message = (
            f"{what} take {nbytes / 2**30:.2f} GiB, this process may use {memory / 2**30:.2f} GiB"
        )
        raise MemoryError(f"tetrad: {message}")


def number(path: str) -> int | None:
    try:
        with open(path) as file:
            text = file.read().strip()
    except OSError:
        return None
    return int(text) if text.isdecimal() else None
