"""What tests of the compile cache share: a cache of their own, in a process that has no machine
code yet."""

from __future__ import annotations

from pathlib import Path

import pytest

from tetrad.backends.cpu import code_cache as objects
from tetrad.backends.cpu.cache import ObjectCache


def empty_cache(monkeypatch: pytest.MonkeyPatch, folder: Path) -> ObjectCache:
    """Programs that are checked are not recalled, so none is checked here."""
    monkeypatch.delenv("TETRAD_CHECK", raising=False)
    cache = ObjectCache(folder / "cache")
    monkeypatch.setattr(objects, "disk_cache", lambda: cache)
    monkeypatch.setattr(objects.OBJECTS, "addresses", {})
    monkeypatch.setattr(objects.OBJECTS, "homes", {})
    return cache
