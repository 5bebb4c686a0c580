"""core.limits: threads by flag, affinity and quotas of both versions of cgroups, and memory, on
trees of files made here."""

from __future__ import annotations

from pathlib import Path

import pytest

from tetrad.core import limits
from tetrad.core.errors import FlagError


def write(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


V1 = "9:name=systemd:/\n3:cpuset:/elsewhere\n2:cpu,cpuacct:/docker/abc\n0::/\n"
CASES = {
    "no files at all": ({}, None),
    "v2 without a limit": (
        {"proc/self/cgroup": "0::/a\n", "sys/fs/cgroup/a/cpu.max": "max 100000\n"},
        None,
    ),
    "v2 with a limit": (
        {"proc/self/cgroup": "0::/a\n", "sys/fs/cgroup/a/cpu.max": "350000 100000\n"},
        3,
    ),
    "v2, the parent is tighter": (
        {
            "proc/self/cgroup": "0::/a/b\n",
            "sys/fs/cgroup/a/b/cpu.max": "800000 100000",
            "sys/fs/cgroup/a/cpu.max": "200000 100000",
        },
        2,
    ),
    "v2, a container sees only its own root": (
        {"proc/self/cgroup": "0::/kubepods/pod1\n", "sys/fs/cgroup/cpu.max": "400000 100000"},
        4,
    ),
    "less than one core": (
        {"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "50000 100000"},
        1,
    ),
    "v1 with a limit": (
        {
            "proc/self/cgroup": V1,
            "sys/fs/cgroup/cpu,cpuacct/docker/abc/cpu.cfs_quota_us": "200000\n",
            "sys/fs/cgroup/cpu,cpuacct/docker/abc/cpu.cfs_period_us": "100000\n",
        },
        2,
    ),
    "v1 without a limit": (
        {
            "proc/self/cgroup": V1,
            "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "-1\n",
            "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000\n",
        },
        None,
    ),
    "hybrid, v1 below unified": (
        {
            "proc/self/cgroup": "1:cpu:/x\n0::/x\n",
            "sys/fs/cgroup/cpu/x/cpu.cfs_quota_us": "300000",
            "sys/fs/cgroup/cpu/x/cpu.cfs_period_us": "100000",
            "sys/fs/cgroup/unified/x/cpu.max": "max 100000",
        },
        3,
    ),
    "rubbish": (
        {"proc/self/cgroup": "x\n\n::\n0::/a\n", "sys/fs/cgroup/a/cpu.max": "lots of it"},
        None,
    ),
    "a period of zero": ({"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "100 0"}, None),
}


@pytest.mark.parametrize(("files", "want"), CASES.values(), ids=CASES.keys())
def test_quota_of_the_cgroup(tmp_path: Path, files: dict[str, str], want: int | None) -> None:
    assert limits.quota_threads(write(tmp_path, files)) == want


def test_never_more_than_the_affinity_or_the_quota(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TETRAD_THREADS", raising=False)
    monkeypatch.setattr(limits, "affinity", lambda: 8)
    assert limits.available_threads(tmp_path) == 8
    write(tmp_path, {"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "300000 100000"})
    assert limits.available_threads(tmp_path) == 3
    monkeypatch.setattr(limits, "affinity", lambda: 2)
    assert limits.available_threads(tmp_path) == 2


def test_the_flag_is_taken_at_its_word(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TETRAD_THREADS", "17")
    assert limits.available_threads(tmp_path) == 17
    monkeypatch.setenv("TETRAD_THREADS", "many")
    with pytest.raises(FlagError):
        limits.available_threads(tmp_path)


def test_this_machine_has_at_least_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TETRAD_THREADS", raising=False)
    assert 1 <= limits.available_threads() <= limits.affinity()


@pytest.mark.parametrize(("cores", "threads"), [(6, 6), (None, 1)])
def test_systems_without_an_affinity_have_all_their_cores(
    cores: int | None, threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(limits.os, "sched_getaffinity", raising=False)
    monkeypatch.setattr(limits.os, "cpu_count", lambda: cores)
    assert limits.affinity() == threads


def test_the_affinity_of_the_calling_thread_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        limits.os, "sched_getaffinity", lambda who: {0, 3, 5} if who == 0 else set(), raising=False
    )
    assert limits.affinity() == 3


def test_memory_is_the_least_of_machine_and_cgroup(tmp_path: Path) -> None:
    assert limits.total_memory(tmp_path) is None
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/meminfo").write_text("MemTotal:       16 kB\nMemFree: 1 kB\n")
    assert limits.total_memory(tmp_path) == 16384
    (tmp_path / "sys/fs/cgroup").mkdir(parents=True)
    (tmp_path / "sys/fs/cgroup/memory.max").write_text("max\n")
    assert limits.total_memory(tmp_path) == 16384
    (tmp_path / "sys/fs/cgroup/memory.max").write_text("4096\n")
    assert limits.total_memory(tmp_path) == 4096


def test_what_exceeds_memory_and_swap_is_refused(tmp_path: Path) -> None:
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/meminfo").write_text("MemTotal: 2097152 kB\nSwapTotal: 1048576 kB\n")
    limits.check_memory(3 << 30, "weights", tmp_path)
    with pytest.raises(MemoryError, match=r"weights take 3.00 GiB, this process may use 2.00 GiB"):
        limits.check_memory((3 << 30) + 1, "weights", tmp_path)
