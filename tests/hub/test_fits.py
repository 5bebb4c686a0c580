"""Disk and memory are looked at beforehand."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from tetrad.core.errors import HubError
from tetrad.hub.fits import check_fit, total_memory


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


def test_a_full_disk_is_seen_beforehand(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.disk_usage", lambda path: SimpleNamespace(free=100 << 20))
    with pytest.raises(HubError, match=r"big needs 50.00 MiB more in .*/new/models, where 100.00 MiB are free"):
        check_fit(50 << 20, tmp_path / "new/models", "big")
    check_fit(30 << 20, tmp_path / "new/models", "small")
    check_fit(50 << 20, tmp_path / "new/models", "big", download=1 << 20)
    check_fit(50 << 20, tmp_path / "new/models", "big", force=True)
