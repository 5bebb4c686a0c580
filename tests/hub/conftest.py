"""What the tests of the hub share: a server, the bytes of a tiny model."""

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


@pytest.fixture(scope="session")
def tiny_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("tiny") / "tiny-F32.gguf"
    gguf.write(path, *tiny_model("llama"))
    return path
