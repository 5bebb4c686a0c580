"""What words mean, from the words alone."""

from __future__ import annotations

import random
import string

import pytest

from tetrad.core.errors import HubError, TetradError
from tetrad.hub.known import KNOWN, known_model
from tetrad.hub.reference import Means, resolve
from tetrad.models.arch import known_names

HUB = "https://huggingface.co/org/repo"
Expected = tuple[str, str, str]  # repo, quant, file

REPOS: dict[str, Expected] = {
    "org/repo": ("org/repo", "", ""),
    "org/repo:Q8_0": ("org/repo", "Q8_0", ""),
    "hf.co/org/repo": ("org/repo", "", ""),
    "hf.co/org/repo:q4_k_m": ("org/repo", "q4_k_m", ""),
    "hf.co/org/repo:latest": ("org/repo", "", ""),
    "HF.co/org/repo": ("org/repo", "", ""),
    "huggingface.co/org/repo:Q8_0": ("org/repo", "Q8_0", ""),
    "hf.co/org/repo:a-Q8_0.gguf": ("org/repo", "", "a-Q8_0.gguf"),
    HUB: ("org/repo", "", ""),
    f"{HUB}/": ("org/repo", "", ""),
    f"{HUB}?library=llama-cpp": ("org/repo", "", ""),
    f"{HUB}?show_file_info=a-Q8_0.gguf": ("org/repo", "", "a-Q8_0.gguf"),
    f"{HUB}/tree/main": ("org/repo", "", ""),
    f"{HUB}/tree/main/Q8_0": ("org/repo", "", ""),
    f"{HUB}/blob/main/a.gguf": ("org/repo", "", "a.gguf"),
    f"{HUB}/blob/main/a.gguf?download=true": ("org/repo", "", "a.gguf"),
    f"{HUB}/resolve/main/Q8_0/a%20b.gguf?download=true": ("org/repo", "", "Q8_0/a b.gguf"),
    "hf.co/org/repo/blob/main/a.gguf": ("org/repo", "", "a.gguf"),
    "http://www.huggingface.co/org/repo/resolve/main/a.gguf": ("org/repo", "", "a.gguf"),
}


@pytest.mark.parametrize("word", REPOS)
def test_repositories_however_they_are_spelt(word: str) -> None:
    ref = resolve(word)
    assert (ref.means, ref.repo, ref.quant, ref.file) == (Means.REPO, *REPOS[word])
    assert ref.can_be_fetched


@pytest.mark.parametrize(
    "word", ["a.gguf", "./a", "../a", "~/a", "a/b/c", "/a", "a\\b", "org/a.gguf", "hf.co.gguf"]
)
def test_paths(word: str) -> None:
    ref = resolve(word)
    assert ref.means is Means.PATH and ref.may_be_path and not ref.can_be_fetched


@pytest.mark.parametrize(
    "word", ["my-model", "qwen3:5b", "qwen3:", "qwen3:4b:q8_0", "gpt2", "hf.co"]
)
def test_names_that_only_this_machine_can_know(word: str) -> None:
    ref = resolve(word)
    assert ref.means is Means.NAME and not ref.can_be_fetched


def test_urls_of_others_and_other_revisions() -> None:
    ref = resolve("https://example.org/a.gguf")
    assert (ref.means, ref.url, ref.may_be_path) == (Means.URL, "https://example.org/a.gguf", False)
    ref = resolve(f"{HUB}/blob/abc123/a.gguf?download=true")
    assert (ref.means, ref.url) == (Means.URL, f"{HUB}/resolve/abc123/a.gguf")


def test_a_mirror_is_the_hub(monkeypatch: pytest.MonkeyPatch) -> None:
    word = "https://mirror.example/org/repo/blob/main/a.gguf"
    assert resolve(word).means is Means.URL
    monkeypatch.setenv("HF_ENDPOINT", "https://mirror.example")
    assert (resolve(word).repo, resolve(word).file) == ("org/repo", "a.gguf")


@pytest.mark.parametrize(
    "word",
    [
        "hf.co/org",
        "hf.co/",
        "hf.co/../repo",
        "hf.co/org/..",
        "hf.co/org/repo/blob/main",
        f"{HUB}/discussions/1/x",
        f"{HUB}/blob/main/../../a.gguf",
        f"{HUB}/blob/main/%2e%2e/a.gguf",
        f"{HUB}/blob/main/.hidden.gguf",
        f"{HUB}/tree/abc123",
        f"{HUB}/resolve/..%2fx/a.gguf",
        "https://huggingface.co/datasets/org/repo",
    ],
)
def test_addresses_of_nothing_are_errors_and_never_something_else(word: str) -> None:
    try:
        ref = resolve(word)
    except HubError:
        return
    assert ref.means is Means.REPO and not ref.file  # only what was cut before the dots is left


def test_every_name_of_the_table() -> None:
    for entry in KNOWN:
        ref = resolve(entry.name)
        assert (ref.means, ref.repo, ref.quant, ref.entry) == (
            Means.KNOWN, entry.repo, entry.quant, entry,
        )  # fmt: skip
        assert resolve(entry.repo).repo == entry.repo
    assert len({entry.name for entry in KNOWN}) == len(KNOWN) >= 30


@pytest.mark.parametrize(
    ("word", "name", "quant"),
    [
        ("smollm2", "smollm2:135m", "Q4_1"),
        ("qwen3", "qwen3:8b", "Q4_K_M"),
        ("QWEN3:4B", "qwen3:4b", "Q4_K_M"),
        ("qwen3:q8_0", "qwen3:8b", "Q8_0"),
        ("qwen3:4b-q8_0", "qwen3:4b", "Q8_0"),
        ("llama3.2:3b-instruct-q5_K_M", "llama3.2:3b", "Q5_K_M"),
        ("gemma3:1b-it-q8_0", "gemma3:1b", "Q8_0"),
        ("gemma3:latest", "gemma3:4b", "Q4_K_M"),
        ("nomic-embed-text", "nomic-embed-text:137m", "F16"),
        ("llama3.2:1b-instruct-fp16", "llama3.2:1b", "F16"),
    ],
)
def test_tags_are_sizes_and_quants(word: str, name: str, quant: str) -> None:
    entry = known_model(word)
    assert entry is not None and (entry.name, entry.quant) == (name, quant)


def test_the_architectures_of_the_table_are_known() -> None:
    assert {entry.architecture for entry in KNOWN} <= set(known_names())


def test_no_word_whatever_raises_anything_but_our_errors() -> None:
    rng = random.Random(0)
    odd = ("..", "/", ":", "%2e", "\x00", "\u202e", "?", "https://[")
    pieces = [*REPOS, *(entry.name for entry in KNOWN), *odd]
    for _ in range(3000):
        word = "".join(rng.choice(pieces) for _ in range(rng.randint(1, 3)))
        if rng.random() < 0.5:
            at = rng.randrange(len(word) + 1)
            word = word[:at] + rng.choice(string.printable) + word[at + rng.randint(0, 3) :]
        try:
            ref = resolve(word)
        except TetradError:
            continue
        assert ".." not in ref.repo and ref.repo.count("/") <= 1
        assert not any(part.startswith(".") for part in ref.file.split("/"))
