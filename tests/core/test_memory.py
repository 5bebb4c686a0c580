"""How much memory there is, as the system tells it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tetrad.core.memory import check_memory, total_memory


def test_memory_is_the_least_of_machine_and_cgroup(tmp_path: Path) -> None:
    assert total_memory(tmp_path) is None
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/meminfo").write_text("MemTotal:       16 kB\nMemFree: 1 kB\n")
    assert total_memory(tmp_path) == 16384
    (tmp_path / "sys/fs/cgroup").mkdir(parents=True)
    (tmp_path / "sys/fs/cgroup/memory.max").write_text("max\n")
    assert total_memory(tmp_path) == 16384
    (tmp_path / "sys/fs/cgroup/memory.max").write_text("4096\n")
    assert total_memory(tmp_path) == 4096


def test_what_exceeds_memory_and_swap_is_refused(tmp_path: Path) -> None:
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/meminfo").write_text("MemTotal: 2097152 kB\nSwapTotal: 1048576 kB\n")
    check_memory(3 << 30, "weights", tmp_path)
    with pytest.raises(MemoryError, match=r"weights take 3.00 GiB, this process may use 2.00 GiB"):
        check_memory((3 << 30) + 1, "weights", tmp_path)
