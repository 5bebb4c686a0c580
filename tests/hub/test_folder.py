"""Models on this machine: what they are called, and which one a word means."""

from __future__ import annotations

from pathlib import Path

import pytest

from tetrad.core.errors import FlagError, HubError
from tetrad.hub.folder import find, held_models, remove
from tetrad.hub.stored import quant_of

FILES = (
    "SmolLM2-135M-Instruct.Q4_1.gguf",
    "org/repo-GGUF/repo-Q4_K_M.gguf",
    "org/repo-GGUF/repo-Q8_0.gguf",
    "org/big-GGUF/Q6_K/big-Q6_K-00001-of-00002.gguf",
    "org/big-GGUF/Q6_K/big-Q6_K-00002-of-00002.gguf",
    "fetching.gguf.part",
)


@pytest.fixture
def filled(folder: Path) -> Path:
    for name in FILES:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(b"12345")
    return folder


def test_names_are_paths_without_the_ending_and_shards_are_one_model(filled: Path) -> None:
    found = {model.name: model.nbytes for model in held_models()}
    assert found == {
        "org/big-GGUF/Q6_K/big-Q6_K": 10,
        "org/repo-GGUF/repo-Q4_K_M": 5,
        "org/repo-GGUF/repo-Q8_0": 5,
        "SmolLM2-135M-Instruct.Q4_1": 5,
    }


def test_a_folder_that_is_a_file_is_told(filled: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TETRAD_MODELS", str(filled / FILES[0]))
    with pytest.raises(FlagError, match="is not a directory"):
        list(held_models())


def test_an_empty_folder_or_none(folder: Path) -> None:
    assert held_models() == [] and find("anything") is None


@pytest.mark.parametrize(
    ("word", "name"),
    [
        ("SmolLM2-135M-Instruct.Q4_1", FILES[0]),
        ("smollm2-135m-instruct.q4_1", FILES[0]),
        ("SmolLM2-135M-Instruct:Q4_1", FILES[0]),
        ("smollm2-135m-instruct", FILES[0]),
        ("repo:q8_0", FILES[2]),
        ("org/repo-GGUF/repo-Q8_0", FILES[2]),
        ("org/repo-GGUF", FILES[1]),
        ("org/repo-GGUF:Q8_0", FILES[2]),
        ("org/repo-GGUF:q8_0", FILES[2]),
        ("repo-Q8_0", FILES[2]),
        ("org/big-GGUF:Q6_K", FILES[3]),
    ],
)
def test_what_a_word_means(filled: Path, word: str, name: str) -> None:
    found = find(word)
    assert found is not None and found.path == filled / name


@pytest.mark.parametrize(
    "word", ["org/repo-GGUF:Q2_K", "other", "org/repo", "s", "smollm2", "org", "repo-Q8_0.gguf"]
)
def test_no_word_is_completed(filled: Path, word: str) -> None:
    assert find(word) is None


def test_a_word_that_means_several_lists_them(filled: Path) -> None:
    with pytest.raises(
        HubError,
        match="'repo' may mean 2 models: org/repo-GGUF/repo-Q4_K_M, org/repo-GGUF/repo-Q8_0",
    ):
        find("repo")


def test_names_that_differ_in_case_only(filled: Path) -> None:
    (filled / "Smollm2-135m-instruct.Q4_1.gguf").write_bytes(b"1")
    for name in ("Smollm2-135m-instruct.Q4_1", "SmolLM2-135M-Instruct.Q4_1"):
        found = find(name)
        assert found is not None and found.name == name
    with pytest.raises(HubError, match="may mean 2 models"):
        find("smollm2-135m-instruct.q4_1")


def test_removing_frees_the_files_and_the_folders_left_empty(filled: Path) -> None:
    big = find("org/big-GGUF")
    assert big is not None and remove(big) == 10
    assert sorted(path.name for path in (filled / "org").iterdir()) == ["repo-GGUF"]
    assert find("org/big-GGUF") is None and (filled / FILES[0]).exists()


def test_the_cache_of_hugging_face_is_read_and_never_deleted_from(
    folder: Path, tmp_path: Path
) -> None:
    path = tmp_path / "hugging-face/models--org--repo/snapshots/abc/repo-Q4_K_M.gguf"
    path.parent.mkdir(parents=True)
    path.write_bytes(b"123")
    found = find("org/repo")
    assert found is not None and found.path == path
    with pytest.raises(HubError, match="is held by Hugging Face, in "):
        remove(found)
    assert path.exists()


@pytest.mark.parametrize(
    ("name", "quant"),
    [
        ("Llama-3.2-1B-Instruct-Q4_K_M", "Q4_K_M"),
        ("model-UD-IQ2_XXS", "UD-IQ2_XXS"),
        ("gemma-3-1b-it-qat-q4_0", "Q4_0"),
        ("ggml-model-bf16", "BF16"),
        ("Qwen3-4B", ""),
    ],
)
def test_quants_in_names(name: str, quant: str) -> None:
    assert quant_of(name) == quant
