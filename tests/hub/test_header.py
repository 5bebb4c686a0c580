"""Headers of models elsewhere, by range, and what is said before a download."""

from __future__ import annotations

import random
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from tests.hub.server import Site
from tests.models.tiny import TINY, tiny_model
from tetrad.core.errors import FileFormatError, HubError, TetradError
from tetrad.formats import gguf
from tetrad.hub import header
from tetrad.hub.describe import describe
from tetrad.hub.download import Remote
from tetrad.hub.header import remote_description
from tetrad.hub.hugging_face import ModelFiles, Offer
from tetrad.hub.pull import instead, pull
from tetrad.hub.verdict import judge


def put(site: Site, data: bytes) -> Remote:
    site.files["/a.gguf"] = data
    return Remote(f"{site.address}/a.gguf")


@pytest.mark.parametrize("arch", TINY)
def test_what_is_read_from_afar_is_what_the_file_says(
    site: Site, tmp_path: Path, arch: str
) -> None:
    path = tmp_path / "tiny.gguf"
    gguf.write(path, *tiny_model(arch))
    found, here = remote_description("x", [put(site, path.read_bytes())]), describe(str(path))
    assert found.metadata.keys() == here.metadata.keys()
    assert {(t.name, t.shape, t.format) for t in found.tensors.values()} == {
        (t.name, t.shape, t.format) for t in here.tensors.values()
    }
    assert judge(found).runs and judge(here).line == "runs here"


@pytest.mark.parametrize("has_ranges", [True, False])
def test_only_as_much_is_fetched_as_the_header_takes(
    site: Site, tiny_file: Path, monkeypatch: pytest.MonkeyPatch, has_ranges: bool
) -> None:
    monkeypatch.setattr(header, "FIRST", 1000)
    site.has_ranges = has_ranges
    remote = put(site, tiny_file.read_bytes() + bytes(8 << 20))
    assert remote_description("x", [remote]).architecture == "llama"
    asked = [span for _, span in site.seen]
    assert asked[:2] == ["bytes=0-999", "bytes=1000-3999"] and len(asked) <= 4


def test_a_header_that_never_ends_is_left(
    site: Site, monkeypatch: pytest.MonkeyPatch, tiny_file: Path
) -> None:
    monkeypatch.setattr(header, "MAX_HEADER_BYTES", 4000)
    monkeypatch.setattr(header, "FIRST", 1000)
    with pytest.raises(FileFormatError, match="are left"):
        remote_description("x", [put(site, tiny_file.read_bytes())])
    assert len(site.seen) == 2


def test_servers_that_send_something_else(site: Site, tiny_file: Path) -> None:
    remote = put(site, tiny_file.read_bytes())
    site.span_shift = 7
    with pytest.raises(HubError, match="sends another part than was asked for"):
        remote_description("x", [remote])
    with pytest.raises(HubError, match="its header cannot be read: Not Found"):
        remote_description("x", [Remote(f"{site.address}/none")])
    site.span_shift, site.files["/a.gguf"] = 0, b"<!doctype html>"
    with pytest.raises(FileFormatError, match="a GGUF file with"):
        remote_description("x", [remote])


def test_a_server_that_dawdles_is_left(
    site: Site, tiny_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(header, "LONGEST", -1.0)
    with pytest.raises(HubError, match="its header cannot be read: more than"):
        remote_description("x", [put(site, tiny_file.read_bytes())])


def test_mutated_headers_raise_our_errors_only(site: Site, tiny_file: Path) -> None:
    rng, sound = random.Random(0), tiny_file.read_bytes()
    for _ in range(150):
        data = bytearray(sound)
        for _ in range(rng.randint(1, 6)):
            data[rng.randrange(12_000)] = rng.randrange(256)
        try:
            judge(remote_description("x", [put(site, bytes(data))]))
        except TetradError:
            continue


# -- verdicts --------------------------------------------------------------------------------------


def changed(
    tmp_path: Path, metadata: dict[str, object], tensors: dict[str, object] | None = None
) -> Path:
    old, weights = tiny_model("llama")
    path = tmp_path / "changed.gguf"
    gguf.write(path, old | metadata, weights | (tensors or {}))
    return path


IQ = gguf.Raw("iq2_xxs", (4, 256), bytes(4 * 66))


@pytest.mark.parametrize(
    ("metadata", "tensors", "said"),
    [
        ({"general.architecture": "rwkv9"}, {}, "the architecture 'rwkv9' is not known"),
        ({}, {"blk.0.x.weight": IQ}, "the tensor type iq2_xxs is not supported"),
        ({"tokenizer.ggml.model": "runes"}, {}, "the tokeniser 'runes' is not known"),
        ({"tokenizer.ggml.pre": "odd\x1b"}, {}, r"the pre-tokeniser 'odd\x1b' is not known"),
        ({"llama.block_count": gguf.Typed("u32", 9)}, {}, "tensor blk.2."),
        ({}, {"v.blk.0.x": np.zeros((2, 2), np.float32)}, "are not part of this architecture"),
    ],
)
def test_why_a_model_does_not_run(
    tmp_path: Path, metadata: dict[str, object], tensors: dict[str, object], said: str
) -> None:
    line = judge(describe(str(changed(tmp_path, metadata, tensors)))).line
    assert line.startswith("does not run here: ") and said in line


def test_memory_that_is_not_there_and_memory_that_is_taken(
    tiny_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = describe(str(tiny_file))
    monkeypatch.setattr("tetrad.hub.verdict.machine_memory", lambda root, name: 1000)
    assert "are free now" in judge(found).line and judge(found).runs
    monkeypatch.setattr("tetrad.hub.verdict.total_memory", lambda: 2000)
    assert "of memory, this machine has 1.95 KiB" in judge(found).line and not judge(found).runs


def test_a_pull_says_whether_it_runs_and_fetches_nothing_that_does_not(
    site: Site, folder: Path, tmp_path: Path, tiny_file: Path
) -> None:
    heard: list[str] = []
    remote = put(site, changed(tmp_path, {"general.architecture": "rwkv9"}).read_bytes())
    with pytest.raises(HubError, match=r"(?s)does not run here: the architecture.*--force"):
        pull(remote.url, tell=heard.append)
    assert not folder.exists() and site.whole == [] and heard == []
    assert pull(remote.url, force=True).exists()
    site.files["/b.gguf"] = tiny_file.read_bytes()
    pull(f"{site.address}/b.gguf", tell=heard.append)
    assert heard == [f"{site.address}/b.gguf runs here"]


def test_another_quant_that_runs_and_fits(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    offers = (Offer("F16", 9 << 20), Offer("IQ2_M", 3 << 20), Offer("Q4_K_M", 2 << 20))
    choice = ModelFiles("org/repo", (("a-F16.gguf", Remote("x")),), offers)
    monkeypatch.setattr("tetrad.hub.fits.total_memory", lambda: 8 << 20)
    assert instead(choice) == "take org/repo:Q4_K_M (2.00 MiB)"
    monkeypatch.setattr("shutil.disk_usage", lambda path: SimpleNamespace(free=1 << 20))
    assert instead(choice) == ""
