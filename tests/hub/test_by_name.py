"""`td.load` by name: found where it is held, fetched where it is not."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import tetrad as td
from tests.hub.server import Site
from tests.hub.stores import ollama_model
from tetrad.core.errors import HubError
from tetrad.hub.by_name import path_of


def test_a_model_that_another_program_holds_is_loaded_in_place(
    folder: Path, tmp_path: Path, tiny_file: Path
) -> None:
    name = "registry.ollama.ai/library/qwen3/4b"
    blob = ollama_model(tmp_path / "ollama", name, tiny_file.read_bytes())
    assert td.load("qwen3:4b").path == str(blob)


def test_a_url_is_fetched_once(folder: Path, site: Site, tiny_file: Path) -> None:
    site.files["/tiny.gguf"] = tiny_file.read_bytes()
    path = path_of(f"{site.address}/tiny.gguf")
    assert path == str(folder / "tiny.gguf") == path_of(f"{site.address}/tiny.gguf")
    assert site.whole == ["/tiny.gguf"]


def test_offline_says_how_to_get_it(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(HubError, match=r"(?s)is not on this machine.*`tetrad pull qwen3:4b`"):
        td.load("qwen3:4b")


def test_paths_stay_paths_and_names_of_nothing_say_so(folder: Path) -> None:
    for word in ("none.gguf", "./none", "/no/such/file"):
        with pytest.raises(FileNotFoundError):
            td.load(word)
    with pytest.raises(FileNotFoundError):
        td.load(Path("smollm2"))
    with pytest.raises(HubError, match=r"there is no model 'qwen33'; did you mean qwen3:"):
        td.load("qwen33")


def test_a_path_loads_nothing_of_the_hub(tiny_file: Path) -> None:
    program = (
        "import sys, tetrad as td\n"
        f"td.load({str(tiny_file)!r})\n"
        "print(*[name for name in sys.modules if name.startswith('tetrad.hub')])"
    )
    run = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert run.stdout.strip() == ""
