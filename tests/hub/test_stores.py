"""Models that other programs hold: found, used where they lie, never believed and never deleted."""

from __future__ import annotations

import json
import os
import random
from pathlib import Path

import pytest

from tests.hub.stores import MODEL, hub_model, ollama_model, write
from tests.models.folders import golden_folder
from tetrad.core.errors import HubError
from tetrad.hub.folder import find, held, held_models, remove, to_remove
from tetrad.hub.pull import local
from tetrad.hub.reference import resolve

LIBRARY = "registry.ollama.ai/library"


@pytest.fixture
def place(folder: Path, tmp_path: Path) -> Path:
    """Where the stores are, each in the folder that the fixture of all tests names."""
    return tmp_path


def names() -> dict[str, str]:
    return {model.name: model.holder for model in held_models()}


def test_all_stores_are_seen_with_who_holds_them(place: Path) -> None:
    ollama_model(place / "ollama", f"{LIBRARY}/qwen3/4b", b"1")
    ollama_model(place / "ollama", "registry.ollama.ai/someone/own/latest", b"2")
    ollama_model(place / "ollama", "hf.co/org/repo/Q8_0", b"3")
    hub_model(place / "hugging-face", "org/cached", "a-Q4_K_M.gguf", b"4")
    write(place / "home/.lmstudio/models/org/studio/b-Q8_0.gguf", b"5")
    write(place / "llama.cpp/org_cpp_c-Q8_0.gguf", b"6")
    write(place / "llama.cpp/manifest=org=cpp=latest.json", "{}")
    write(place / "llama.cpp/loose.gguf", b"7")
    write(place / "models/mine.gguf", b"8")
    assert names() == {
        "mine": "tetrad",
        "org/cached/a-Q4_K_M": "Hugging Face",
        "hf.co/org/repo:Q8_0": "ollama",
        "qwen3:4b": "ollama",
        "someone/own:latest": "ollama",
        "org/studio/b-Q8_0": "LM Studio",
        "loose": "llama.cpp",
        "org/cpp/c-Q8_0": "llama.cpp",
    }


@pytest.mark.parametrize("word", ["qwen3:4b", "QWEN3:4b", "hf.co/org/repo:Q8_0", "org/repo:q8_0",
                                  "someone/own:latest", "mine-own", "mine-own:latest"])  # fmt: skip
def test_models_of_ollama_by_the_names_they_have_there(place: Path, word: str) -> None:
    blobs = {
        name: ollama_model(place / "ollama", name, name.encode())
        for name in (
            f"{LIBRARY}/qwen3/4b",
            "hf.co/org/repo/Q8_0",
            "registry.ollama.ai/someone/own/latest",
            f"{LIBRARY}/mine-own/latest",
        )
    }
    assert local(word) in blobs.values()


def test_the_table_and_what_ollama_calls_latest(place: Path) -> None:
    eight = ollama_model(place / "ollama", f"{LIBRARY}/qwen3/latest", b"8b")
    other = ollama_model(place / "ollama", f"{LIBRARY}/smollm2/latest", b"1.7b")
    assert local("qwen3") == local("qwen3:8b") == local("qwen3:latest") == eight
    assert local("qwen3:4b") is None and local("qwen3:8b-q8_0") is None
    assert local("smollm2") is None and local("smollm2:latest") == other


def test_a_name_of_somebody_else_is_not_the_table(place: Path) -> None:
    ollama_model(place / "ollama", "registry.ollama.ai/someone/qwen3/4b", b"other")
    assert local("qwen3:4b") is None


def test_a_known_model_from_its_repository_wherever_it_is_held(place: Path) -> None:
    path = write(place / "home/.lmstudio/models/Qwen/Qwen3-4B-GGUF/Qwen3-4B-Q4_K_M.gguf", b"1")
    assert local("qwen3:4b") == path == local("Qwen/Qwen3-4B-GGUF")
    assert local("qwen3:4b-q8_0") is None
    assert local("https://hf.co/Qwen/Qwen3-4B-GGUF/blob/main/Qwen3-4B-Q4_K_M.gguf") == path


def test_the_snapshot_of_the_cache_is_the_one_of_main(place: Path) -> None:
    cache = place / "hugging-face"
    new = hub_model(cache, "org/repo", "a.gguf", b"new", "second")
    hub_model(cache, "org/repo", "a.gguf", b"old", "first")
    write(cache / "models--org--repo/refs/main", "second\n")
    found = find("org/repo/a")
    assert found is not None and found.path == new


@pytest.mark.parametrize("variable", ["HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "HF_HOME"])
def test_variables_of_the_cache(
    place: Path, monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    monkeypatch.delenv("HF_HUB_CACHE")
    monkeypatch.setenv(variable, str(place / "elsewhere"))
    inner = "elsewhere/hub" if variable == "HF_HOME" else "elsewhere"
    hub_model(place / inner, "org/repo", "a.gguf", b"1")
    assert "org/repo/a" in names()


def test_a_folder_of_the_cache_is_a_model(place: Path, tmp_path: Path) -> None:
    source = golden_folder(tmp_path / "tiny", "bert")
    for path in source.rglob("*"):
        if path.is_file():
            file = str(path.relative_to(source))
            hub_model(place / "hugging-face", "org/bert", file, path.read_bytes())
    found = held(resolve("org/bert"))
    assert found is not None and found.path.name == "abc" and found.holder == "Hugging Face"
    config = place / "hugging-face/models--org--bert/snapshots/abc/config.json"
    config.unlink()
    config.symlink_to(source / "config.json")  # out of the cache
    assert held(resolve("org/bert")) is None


def test_lm_studio_points_to_its_home_and_its_settings_to_the_models(place: Path) -> None:
    write(place / "home/.lmstudio-home-pointer", f"{place / 'studio'}\n")
    write(place / "studio/models/a/b/one.gguf", b"1")
    write(place / "studio/settings.json", json.dumps({"downloadsFolder": str(place / "big")}))
    write(place / "big/a/b/two.gguf", b"2")
    write(place / "home/.cache/lm-studio/models/a/b/mmproj-x.gguf", b"3")
    assert names() == dict.fromkeys(("a/b/one", "a/b/two"), "LM Studio")


@pytest.mark.parametrize("pointed", ["", "relative", "/", "\x00", "/no/such", "x" * 5000])
def test_pointers_to_nowhere(place: Path, pointed: str) -> None:
    write(place / "home/.lmstudio-home-pointer", pointed)
    write(place / "home/.lmstudio/settings.json", json.dumps({"downloadsFolder": pointed}))
    assert names() == {}


def test_nothing_of_others_is_deleted(place: Path) -> None:
    blob = ollama_model(place / "ollama", f"{LIBRARY}/qwen3/4b", b"1")
    with pytest.raises(
        HubError, match=r"(?s)qwen3:4b is held by ollama, in .*`ollama rm qwen3:4b`"
    ):
        to_remove("qwen3:4b")
    with pytest.raises(HubError, match="is held by ollama"):
        remove(held_models()[0])
    assert blob.exists()


# -- stores that mean no good ----------------------------------------------------------------------


def test_links_out_of_a_store_are_not_followed(place: Path) -> None:
    secret = write(place / "secret.gguf", b"secret")
    blob = ollama_model(place / "ollama", f"{LIBRARY}/a/b", b"secret")
    blob.unlink()
    blob.symlink_to(secret)
    link = hub_model(place / "hugging-face", "org/repo", "a.gguf", b"1")
    link.unlink()
    link.symlink_to(secret)
    for folder in ("home/.lmstudio/models/x/y", "llama.cpp"):
        (place / folder).mkdir(parents=True)
        (place / folder / "a.gguf").symlink_to(secret)
        (place / folder / "loop.gguf").symlink_to("loop.gguf")
        os.mkfifo(place / folder / "pipe.gguf")
    (place / "llama.cpp/folder").symlink_to(place)
    assert names() == {}


@pytest.mark.parametrize(
    "changes",
    [
        {"digest": "sha256:../../../secret"},
        {"digest": "sha256:" + "0" * 63},
        {"digest": "md5:" + "0" * 64},
        {"digest": 7},
        {"digest": None},
        {"size": 2},
        {"size": True},
        {"size": "1"},
        {"mediaType": "application/vnd.ollama.image.adapter"},
    ],
)
def test_manifests_that_are_wrong(place: Path, changes: dict[str, object]) -> None:
    ollama_model(place / "ollama", f"{LIBRARY}/a/b", b"1", **changes)
    assert names() == {}


@pytest.mark.parametrize("name", [f"{LIBRARY}/a", f"{LIBRARY}/a/b/c", f"{LIBRARY}/-a/b",
                                  f"{LIBRARY}/.a/b", f"{LIBRARY}/a b/c", f"{LIBRARY}/ü/b",
                                  f"{LIBRARY}/a/\x1b[2J", f"{LIBRARY}/{'x' * 190}/b"])  # fmt: skip
def test_manifests_in_strange_places(place: Path, name: str) -> None:
    ollama_model(place / "ollama", name, b"1")
    assert names() == {}


def test_an_adapter_makes_another_model(place: Path) -> None:
    blob = ollama_model(place / "ollama", f"{LIBRARY}/a/b", b"1")
    digest = blob.name.replace("-", ":")
    kinds = (MODEL, "application/vnd.ollama.image.adapter")
    layers = [{"mediaType": kind, "digest": digest, "size": 1} for kind in kinds]
    write(place / "ollama/manifests" / LIBRARY / "a/b", json.dumps({"layers": layers}))
    assert names() == {}


def test_mutated_manifests_and_settings_give_models_or_none(place: Path) -> None:
    rng = random.Random(0)
    blob = ollama_model(place / "ollama", f"{LIBRARY}/a/b", b"1")
    settings = write(place / "home/.lmstudio/settings.json", json.dumps({"downloadsFolder": "/x"}))
    for path in (place / "ollama/manifests" / LIBRARY / "a/b", settings):
        sound = path.read_bytes()
        for _ in range(400):
            path.write_bytes(mutated(sound, rng))
            assert {model.path for model in held_models()} <= {blob}
        path.write_bytes(sound)
    for size in (2 << 20, 100_000):  # too large; too deep
        write(place / "ollama/manifests" / LIBRARY / "a/b", b"[" * size)
        assert names() == {}


def mutated(data: bytes, rng: random.Random) -> bytes:
    """Some bytes changed, left out, or put twice."""
    made = bytearray(data)
    for _ in range(rng.randint(1, 4)):
        at, length = rng.randrange(len(made) or 1), rng.randint(0, 8)
        part = bytes(rng.choice(b'{}[]",:0a\\\x00\xff') for _ in range(rng.randint(0, 4)))
        made[at : at + length] = rng.choice((part, part * 9, bytes(made[:at])[-40:]))
    return bytes(made)


def test_a_huge_folder_is_not_walked_to_its_end(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tetrad.hub.stored.MOST_ENTRIES", 10)
    for i in range(30):
        write(place / f"llama.cpp/a{i:02}.gguf", b"1")
    assert len(held_models()) == 10


def test_folders_that_are_files_and_those_that_are_not_ours_to_read(place: Path) -> None:
    for name in ("ollama", "llama.cpp", "hugging-face", "home/.lmstudio"):
        write(place / name, b"a file")
    assert names() == {}
