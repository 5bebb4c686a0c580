"""Disk and memory are looked at beforehand."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from tetrad.core.errors import HubError
from tetrad.hub.fits import check_fit


def test_a_full_disk_is_seen_beforehand(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.disk_usage", lambda path: SimpleNamespace(free=100 << 20))
    with pytest.raises(
        HubError, match=r"big needs 50.00 MiB more in .*/new/models, where 100.00 MiB are free"
    ):
        check_fit(50 << 20, tmp_path / "new/models", "big")
    check_fit(30 << 20, tmp_path / "new/models", "small")
    check_fit(50 << 20, tmp_path / "new/models", "big", download=1 << 20)
    check_fit(50 << 20, tmp_path / "new/models", "big", force=True)
