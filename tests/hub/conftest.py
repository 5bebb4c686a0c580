"""What the tests of the hub share: a server, an empty folder of models, the bytes of a tiny one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.hub.server import Site, serving
from tests.models.tiny import tiny_model
from tetrad.formats import gguf


@pytest.fixture
def site() -> Iterator[Site]:
    with serving() as made:
        yield made


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where models are; nothing of the machine's own is seen."""
    place = tmp_path / "models"
    monkeypatch.setenv("TETRAD_MODELS", str(place))
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hugging-face"))
    return place


@pytest.fixture(scope="session")
def tiny_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("tiny") / "tiny-F32.gguf"
    gguf.write(path, *tiny_model("llama"))
    return path
