"""Station 0, shared words: how much memory this process may use.

Receives the files of /proc and /sys, returns bytes: those of the machine, or fewer where a cgroup
allows fewer. Beyond them the system does not refuse memory, it ends the process when it is written.
"""

from __future__ import annotations

import os


def total_memory(root: str = "/") -> int | None:
    """Bytes this process may use: what the machine has, or less if its cgroup says so; None if
    nobody says."""
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
    """Is there memory, with what can be swapped, for something of this size?"""
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
