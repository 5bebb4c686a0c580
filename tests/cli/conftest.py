"""What the tests of commands share: a tiny model, commands run in this process."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from tests.models.tiny import tiny_model
from tetrad.cli.main import main
from tetrad.formats import gguf


@pytest.fixture(scope="session")
def tiny_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("tiny") / "tiny-F32.gguf"
    gguf.write(path, *tiny_model("llama", context=512))
    return path


Invoke = Callable[..., Result]


@pytest.fixture
def invoke(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Invoke:
    """A command, run here; what it raises by mistake is raised."""
    monkeypatch.delenv("TETRAD_THREADS", raising=False)

    def run(*words: str | Path, input: str | None = None, code: int = 0) -> Result:
        result = CliRunner().invoke(
            main, [str(word) for word in words], input=input, prog_name="tetrad"
        )
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        assert result.exit_code == code, result.output
        return result

    return run
