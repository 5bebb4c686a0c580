"""Core: how many threads and how much memory this process may use.

Reads the environment and the files of /proc and /sys. Threads: TETRAD_THREADS if set, else the
cores of the affinity mask, but no more than the quota of the cgroup pays for. Memory: that of the
machine, or the smaller limit of a cgroup. Linux does not refuse an allocation beyond the limit, it
kills the process that writes to it; so large allocations are checked beforehand.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

from tetrad.core.flags import flag

V1_MOUNTS = ("cpu", "cpu,cpuacct", "cpuacct,cpu")  # below sys/fs/cgroup
V2_MOUNTS = ("", "unified")


def available_threads(root: str = "/") -> int:
    """At least 1. TETRAD_THREADS may exceed the cores: whoever sets it asked for it."""
    asked = flag("TETRAD_THREADS")
    return int(asked) if asked else max(1, min(affinity(), quota_threads(root) or affinity()))


def affinity() -> int:
    """Cores the calling thread may run on."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def quota_threads(root: str) -> int | None:
    """The whole cores that the tightest quota pays for (at least 1), or None without a quota. One
    thread more would be throttled while the others wait for it at a barrier."""
    shares = [share for share in cgroup_shares(root) if share]
    return max(1, int(min(shares))) if shares else None


def cgroup_shares(root: str) -> Iterator[float | None]:
    """The shares of all cgroups of this process and their ancestors; a container may see only the
    upper part of its path."""
    for line in read(os.path.join(root, "proc/self/cgroup")).splitlines():
        number, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        version, mounts = (v2_share, V2_MOUNTS) if number == "0" else (v1_share, V1_MOUNTS)
        if number != "0" and "cpu" not in controllers.split(","):
            continue
        parts = [part for part in path.split("/") if part not in ("", ".")]
        for mount in mounts:
            for depth in range(len(parts), -1, -1):
                yield version(os.path.join(root, "sys/fs/cgroup", mount, *parts[:depth]))


def v2_share(folder: str) -> float | None:
    """cpu.max: quota and period in microseconds, or `max`."""
    quota, _, period = read(os.path.join(folder, "cpu.max")).strip().partition(" ")
    return share(quota, period)


def v1_share(folder: str) -> float | None:
    """cpu.cfs_quota_us is -1 without a limit."""
    quota = read(os.path.join(folder, "cpu.cfs_quota_us")).strip()
    return (
        share(quota, read(os.path.join(folder, "cpu.cfs_period_us")).strip())
        if quota.isdecimal()
        else None
    )


def share(quota: str, period: str) -> float | None:
    """Cores, or None where there is no limit or no number.

    >>> share("150000", "100000"), share("max", "100000"), share("-1", "100000")
    (1.5, None, None)
    """
    if not (quota.isdecimal() and period.isdecimal()) or int(period) == 0:
        return None
    return int(quota) / int(period)


# -- memory ----------------------------------------------------------------------------------------


def total_memory(root: str = "/") -> int | None:
    """Bytes this process may use: those of the machine, or the limit of its cgroup; None if
    unknown."""
    limits = [machine_memory(root), number(os.path.join(root, "sys/fs/cgroup/memory.max"))]
    limits.append(number(os.path.join(root, "sys/fs/cgroup/memory/memory.limit_in_bytes")))
    return min((limit for limit in limits if limit), default=None)


def machine_memory(root: str, name: str = "MemTotal") -> int | None:
    lines = read(os.path.join(root, "proc/meminfo")).splitlines()
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
    text = read(path).strip()
    return int(text) if text.isdecimal() else None


def read(path: str) -> str:
    """The text of a file; empty if there is no such file."""
    try:
        with open(path, errors="replace") as file:
            return file.read()
    except OSError:
        return ""
