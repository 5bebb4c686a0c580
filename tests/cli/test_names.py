"""Commands on models by name: held by other programs, elsewhere, known, and folders."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import patch

import pytest
from huggingface_hub import constants

from tests.cli.conftest import Invoke
from tests.hub.server import Site, serving
from tests.hub.stores import ollama_model
from tests.models.folders import golden_folder
from tests.models.tiny import tiny_model
from tetrad.formats import gguf
from tetrad.hub.known import KNOWN

QWEN = "registry.ollama.ai/library/qwen3/4b"


@pytest.fixture
def hub(folder: Path, tmp_path: Path, tiny_file: Path) -> Iterator[Site]:
    """A hub with the repository of qwen3:4b: one quant that runs, and one that does not."""
    metadata, tensors = tiny_model("llama")
    odd = tmp_path / "odd.gguf"
    gguf.write(odd, metadata | {"general.architecture": "rwkv9\x1b[2J"}, tensors)
    files = {
        "Qwen3-4B-Q4_K_M.gguf": tiny_file.read_bytes(),
        "Qwen3-4B-IQ2_XXS.gguf": odd.read_bytes(),
    }
    with serving() as site:
        repo = "Qwen/Qwen3-4B-GGUF"
        siblings = [
            {"rfilename": name, "size": len(data), "blobId": "0",
             "lfs": {"sha256": hashlib.sha256(data).hexdigest(), "size": len(data),
                     "pointerSize": 1}}
            for name, data in files.items()
        ]  # fmt: skip
        info = {"id": repo, "modelId": repo, "siblings": siblings, "private": False, "tags": []}
        site.files[f"/api/models/{repo}"] = json.dumps(info).encode()
        site.files |= {f"/{repo}/resolve/main/{name}": data for name, data in files.items()}
        address = f"{site.address}/{{repo_id}}/resolve/{{revision}}/{{filename}}"
        with (
            patch.object(constants, "ENDPOINT", site.address),
            patch.object(constants, "HUGGINGFACE_CO_URL_TEMPLATE", address),
        ):
            yield site


def fetched(site: Site) -> list[str]:
    return [path for path in site.whole if path.endswith(".gguf")]


def test_a_model_of_ollama_is_listed_run_and_not_deleted(
    invoke: Invoke, tmp_path: Path, tiny_file: Path
) -> None:
    blob = ollama_model(tmp_path / "ollama", QWEN, tiny_file.read_bytes())
    (line,) = invoke("list").stdout.splitlines()[1:]
    assert line.split()[0] == "qwen3:4b" and line.split()[-2:] == ["ollama", "yes"]
    (found,) = json.loads(invoke("list", "--json").stdout)
    assert (found["held_by"], found["path"], found["runs"]) == ("ollama", str(blob), "yes")
    assert str(blob) in invoke("show", "qwen3:4b").stdout
    assert invoke("run", "qwen3:4b", "-p", "Hi", "-n", "3", "-no-cnv").stdout
    said = invoke("rm", "-y", "qwen3:4b", code=1).output
    assert "is held by ollama" in said and "`ollama rm qwen3:4b`" in said and blob.exists()


@pytest.mark.parametrize(
    "word",
    [
        "qwen3:4b",
        "hf.co/Qwen/Qwen3-4B-GGUF:Q4_K_M",
        "https://huggingface.co/Qwen/Qwen3-4B-GGUF/blob/main/Qwen3-4B-Q4_K_M.gguf?download=true",
        "https://huggingface.co/Qwen/Qwen3-4B-GGUF/tree/main",
    ],
)
def test_show_reads_the_header_pull_the_file_and_both_say_that_it_runs(
    invoke: Invoke, hub: Site, folder: Path, word: str
) -> None:
    shown = invoke("show", word)
    assert shown.stdout.endswith("runs here\n") and "architecture    llama" in shown.stdout
    assert fetched(hub) == [] and not folder.exists()
    assert "runs here" in invoke("pull", word).stderr
    assert (folder / "Qwen/Qwen3-4B-GGUF/Qwen3-4B-Q4_K_M.gguf").exists()
    assert len(fetched(hub)) == 1 and "is there already" in invoke("pull", word).stdout


def test_what_does_not_run_is_told_with_another_quant_before_it_is_fetched(
    invoke: Invoke, hub: Site, folder: Path
) -> None:
    word = "qwen3:4b-iq2_xxs"
    for command, code in (("show", 0), ("pull", 1), ("run", 1)):
        said = invoke(command, word, input="Hi", code=code).output
        assert r"does not run here: the architecture 'rwkv9\x1b[2J' is not known" in said
        assert "take Qwen/Qwen3-4B-GGUF:Q4_K_M (" in said and "\x1b" not in said
    assert fetched(hub) == [] and not folder.exists()
    invoke("pull", word, "--force")
    assert len(fetched(hub)) == 1
    assert "no: the architecture" in invoke("list").stdout


def test_json_of_a_model_elsewhere(invoke: Invoke, hub: Site) -> None:
    found = json.loads(invoke("show", "qwen3:4b", "--json").stdout)
    assert found["runs"] and found["problems"] == [] and found["architecture"] == "llama"
    assert "Qwen3-4B-Q4_K_M" in found["path"]


def test_the_packed_model_says_what_it_is_without_a_header(invoke: Invoke) -> None:
    said = invoke("show", "smollm2", code=1).output
    assert "`tetrad pull smollm2` fetches it: 135M parameters" in said and "apache-2.0" in said


def test_the_table_of_names(invoke: Invoke, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = invoke("list", "--known").stdout.splitlines()
    assert len(lines) == len(KNOWN) + 1 and lines[1].split()[0] == "smollm2:135m"
    monkeypatch.setattr("tetrad.hub.fits.total_memory", lambda: 10**9)
    found = {line["name"]: line for line in json.loads(invoke("list", "--known", "--json").stdout)}
    assert found["smollm2:135m"]["fits"] and not found["llama3.3:70b"]["fits"]
    assert found["gemma3:1b"]["licence"] == "gemma"


def test_names_that_are_nearly_those_of_the_table(invoke: Invoke) -> None:
    assert "did you mean qwen3:4b" in invoke("show", "qwen3:4", code=1).output


def test_folders_are_shown_and_inspected(invoke: Invoke, tmp_path: Path) -> None:
    folder = golden_folder(tmp_path / "bert", "bert")
    shown = invoke("show", folder).stdout
    assert "architecture    bert" in shown and shown.endswith("runs here\n")
    printed = invoke("inspect", folder).stdout
    assert "bert.block_count" in printed and "token_embd.weight" in printed
    found = json.loads(invoke("inspect", folder, "--json").stdout)
    assert found["keys"]["bert.block_count"]["type"] == "i64" and found["tensors"]


def test_a_folder_among_the_models_has_a_name_and_can_be_deleted(
    invoke: Invoke, folder: Path
) -> None:
    golden_folder(folder / "org/bert", "bert")
    (line,) = invoke("list").stdout.splitlines()[1:]
    assert line.split()[0] == "org/bert" and line.split()[-1] == "yes"
    assert "bert" in invoke("show", "org/bert").stdout
    assert "deleted org/bert" in invoke("rm", "-y", "org/bert").stdout
    assert not (folder / "org").exists()
