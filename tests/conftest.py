"""What every test run shares: a clean environment, a private cache, settings of hypothesis, a
folder of no models."""

from __future__ import annotations

import os
import signal
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

# need an emulator, or other libraries; run by hand
collect_ignore = ["emulated"]
collect_ignore_glob = ["*/against_*.py"]

# These choose what is tested; any other flag would change what tests print or where they write.
KEPT_FLAGS = ("TETRAD_TARGET", "TETRAD_CHECK", "TETRAD_THREADS")

# Compiling inside a test takes as long as it takes; the limit on a whole test is in pyproject.toml.
# Every run draws the same examples, so that a change is what fails a test;
# `--hypothesis-profile=explore` draws new ones.
settings.register_profile("tetrad", deadline=None, derandomize=True)
settings.register_profile("explore", deadline=None, max_examples=1000)
settings.load_profile("tetrad")


@pytest.hookimpl(wrapper=True)
def pytest_cmdline_main(config: pytest.Config) -> Iterator[None]:
    """Runs before any module of the package is imported, so that the package sees this
    environment."""
    for name in [n for n in os.environ if n.startswith("TETRAD_") and n not in KEPT_FLAGS]:
        del os.environ[name]
    # Hundreds of processes are started, which would compile the package's sources anew each time.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    sys.dont_write_bytecode = False
    if (
        signal.getsignal(signal.SIGINT) is signal.SIG_IGN
        and threading.current_thread() is threading.main_thread()
    ):
        # As under nohup. Children inherit what is ignored, and tests of Ctrl-C would wait for ever.
        signal.signal(signal.SIGINT, signal.default_int_handler)
    with tempfile.TemporaryDirectory(prefix="tetrad-tests-") as cache:
        os.environ["TETRAD_CACHE_DIR"] = cache
        return (yield)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Processes that share a run must find the same names."""
    places = [item.nodeid for item in items if " at 0x" in item.nodeid]
    if places:
        raise pytest.UsageError(f"give ids to the cases of {places[0]}: an address is in its name")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where models are; nothing of the machine's own is seen."""
    place = tmp_path / "models"
    monkeypatch.setenv("TETRAD_MODELS", str(place))
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hugging-face"))
    monkeypatch.setenv("OLLAMA_MODELS", str(tmp_path / "ollama"))
    monkeypatch.setenv("LLAMA_CACHE", str(tmp_path / "llama.cpp"))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    return place
