"""Downloads: whole or not at all, going on where they stopped, right under two at once."""

from __future__ import annotations

import errno
import hashlib
import io
import os
import random
import threading
from pathlib import Path

import pytest

from tests.hub.server import Site, serving
from tetrad.core.errors import HubError
from tetrad.hub.download import Remote, copy, download, silent

DATA = random.Random(0).randbytes(3_000_000)
SHA = hashlib.sha256(DATA).hexdigest()


def get(site: Site, target: Path, **known: str) -> Path:
    download(Remote(f"{site.address}/file", **known), target, pause=0)
    return target


def test_a_file_arrives_with_progress_and_leaves_nothing_beside_it(
    site: Site, tmp_path: Path
) -> None:
    site.files["/file"] = DATA
    steps: list[tuple[int, int | None]] = []
    target = tmp_path / "deep" / "file.gguf"
    download(
        Remote(f"{site.address}/file", sha256=SHA),
        target,
        lambda done, total: steps.append((done, total)),
    )
    assert (
        target.read_bytes() == DATA
        and steps[0] == (0, len(DATA))
        and steps[-1] == (len(DATA), len(DATA))
    )
    assert [path.name for path in target.parent.iterdir() if not path.name.startswith(".")] == [
        "file.gguf"
    ]


@pytest.mark.parametrize("known", [{}, {"sha256": SHA}])
def test_a_broken_connection_goes_on_where_it_stopped(
    site: Site, tmp_path: Path, known: dict[str, str]
) -> None:
    site.files["/file"], site.breaks = DATA, [1_000_000, 1_500_000]
    assert get(site, tmp_path / "file", **known).read_bytes() == DATA
    assert [asked for _, asked in site.seen] == [None, "bytes=1000000-", "bytes=2500000-"]


def test_the_next_command_goes_on_where_the_last_gave_up(site: Site, tmp_path: Path) -> None:
    site.files["/file"], site.breaks = DATA, [100_000] * 5
    with pytest.raises(HubError, match=r"tried 5 times\n  hint: what has arrived is kept"):
        get(site, tmp_path / "file")
    assert not (tmp_path / "file").exists() and len(site.seen) == 5
    assert get(site, tmp_path / "file").read_bytes() == DATA
    assert site.seen[-1] == ("/file", "bytes=500000-")


def test_a_file_that_changed_meanwhile_starts_anew(site: Site, tmp_path: Path) -> None:
    site.files["/file"], site.breaks = DATA, [100_000] * 5
    with pytest.raises(HubError):
        get(site, tmp_path / "file")
    site.files["/file"] = DATA[::-1]
    assert get(site, tmp_path / "file").read_bytes() == DATA[::-1]


@pytest.mark.parametrize("lacks", ["has_ranges", "has_tags"])
def test_servers_that_cannot_go_on(site: Site, tmp_path: Path, lacks: str) -> None:
    """Without a tag or a checksum what has arrived may belong to another file: it is fetched
    again."""
    setattr(site, lacks, False)
    site.files["/file"], site.breaks = DATA, [100_000]
    assert get(site, tmp_path / "file").read_bytes() == DATA


def test_a_partial_file_that_is_too_long_is_dropped(site: Site, tmp_path: Path) -> None:
    site.files["/file"] = DATA
    (tmp_path / "file.part").write_bytes(DATA + b"more")
    assert get(site, tmp_path / "file", sha256=SHA).read_bytes() == DATA


def test_wrong_content_is_refused_and_not_kept(site: Site, tmp_path: Path) -> None:
    site.files["/file"] = DATA
    with pytest.raises(HubError, match=f"the content is wrong: sha256 {SHA}, expected 00"):
        get(site, tmp_path / "file", sha256="00")
    assert [path for path in tmp_path.iterdir() if not path.name.startswith(".")] == []


def test_the_servers_final_word_is_not_asked_for_twice(site: Site, tmp_path: Path) -> None:
    with pytest.raises(HubError, match="the server says 404"):
        get(site, tmp_path / "file")
    assert len(site.seen) == 1


def test_a_size_that_differs_from_the_known_one(site: Site, tmp_path: Path) -> None:
    site.files["/file"] = DATA
    with pytest.raises(HubError, match=f"expected 7 bytes, the server has {len(DATA)}"):
        download(Remote(f"{site.address}/file", nbytes=7), tmp_path / "file")


def test_two_at_once_fetch_it_once(site: Site, tmp_path: Path) -> None:
    site.files["/file"] = DATA
    threads = [threading.Thread(target=get, args=(site, tmp_path / "file")) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (tmp_path / "file").read_bytes() == DATA and len(site.seen) == 1


def test_a_token_is_not_shown_to_another_server(site: Site, tmp_path: Path) -> None:
    with serving() as other:
        other.files["/file"], site.redirects["/file"] = DATA, f"{other.address}/file"
        download(
            Remote(f"{site.address}/file", headers={"Authorization": "Bearer secret"}),
            tmp_path / "file",
        )
        assert (site.tokens, other.tokens) == (["Bearer secret"], [None])


def test_what_does_not_fit_is_refused_before_it_is_fetched(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site.files["/file"] = DATA
    monkeypatch.setattr("tetrad.hub.fits.total_memory", lambda: 1_000_000)
    with pytest.raises(
        HubError,
        match=r"file has 2.86 MiB, and this machine has 976.56 KiB of memory(.|\n)*--force",
    ):
        get(site, tmp_path / "file")
    assert not (tmp_path / "file.part").exists()
    download(Remote(f"{site.address}/file"), tmp_path / "file", force=True)
    assert (tmp_path / "file").read_bytes() == DATA


class Full(io.BytesIO):
    """A file on a disk that is full."""

    name = "model.gguf.part"

    def write(self, data: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


class Broken(io.BytesIO):
    """An answer whose connection breaks."""

    def read(self, size: int | None = -1) -> bytes:
        raise ConnectionResetError(errno.ECONNRESET, os.strerror(errno.ECONNRESET))


def test_a_full_disk_is_told_with_the_way_on_and_a_broken_connection_is_not_taken_for_one() -> None:
    with pytest.raises(
        HubError, match=r"(?s)model.gguf.part: No space left on device, after .*make room"
    ):
        copy(io.BytesIO(b"data"), Full(), 0, 4, silent, most=4)
    with pytest.raises(ConnectionResetError):
        copy(Broken(), io.BytesIO(), 0, 4, silent, most=4)


# -- servers that mean no good ---------------------------------------------------------------------


def hidden(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir() if not path.name.endswith(".lock")]


def test_no_more_is_written_than_was_declared(site: Site, tmp_path: Path) -> None:
    site.files["/file"], site.is_chunked = DATA, True
    with pytest.raises(
        HubError, match=r"the server sends more than it declared: the limit is 2.00 KiB"
    ):
        download(Remote(f"{site.address}/file", nbytes=2048), tmp_path / "file")
    assert hidden(tmp_path) == []


def test_no_more_is_written_than_fits_where_no_size_is_declared(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site.files["/file"], site.is_chunked = DATA, True
    monkeypatch.setattr("tetrad.hub.fits.total_memory", lambda: 1_000_000)
    with pytest.raises(
        HubError, match=r"the server sends more than fits here, and declared no size"
    ):
        get(site, tmp_path / "file")
    assert hidden(tmp_path) == []
    monkeypatch.setattr("tetrad.hub.fits.total_memory", lambda: 4_000_000)
    assert get(site, tmp_path / "file").read_bytes() == DATA


def test_an_answer_that_goes_on_elsewhere_is_not_appended(site: Site, tmp_path: Path) -> None:
    site.files["/file"], site.breaks, site.span_shift = DATA, [100_000], 7
    assert get(site, tmp_path / "file").read_bytes() == DATA
    assert [asked for _, asked in site.seen] == [None, "bytes=100000-", None]


def test_a_whole_partial_file_without_a_checksum_is_fetched_again(
    site: Site, tmp_path: Path
) -> None:
    """It may belong to another file of the same size."""
    site.files["/file"] = DATA
    (tmp_path / "file.part").write_bytes(DATA[::-1])
    (tmp_path / "file.part.tag").write_text('"old"')
    download(Remote(f"{site.address}/file", nbytes=len(DATA)), tmp_path / "file")
    assert (tmp_path / "file").read_bytes() == DATA


@pytest.mark.parametrize("name", ["file.part", ".file.lock"])
def test_nothing_is_written_through_a_link(site: Site, tmp_path: Path, name: str) -> None:
    site.files["/file"] = DATA
    victim, folder = tmp_path / "victim", tmp_path / "models"
    victim.write_bytes(b"mine")
    folder.mkdir()
    (folder / name).symlink_to(victim)
    with pytest.raises(HubError, match="expected a file or none, found a link"):
        get(site, folder / "file")
    assert victim.read_bytes() == b"mine"


@pytest.mark.parametrize("leads_to", ["ftp://127.0.0.1/file", "file:///etc/passwd"])
def test_a_server_that_leads_elsewhere_than_to_the_web(
    site: Site, tmp_path: Path, leads_to: str
) -> None:
    site.redirects["/file"] = leads_to
    with pytest.raises(HubError, match=r"which is no safe way on|is not allowed"):
        get(site, tmp_path / "file")


@pytest.mark.parametrize("tag", ['"a\x0bb"', '"' + "x" * 300 + '"', "plain", 'W/"weak"'])
def test_a_tag_that_cannot_be_trusted_is_not_kept(site: Site, tmp_path: Path, tag: str) -> None:
    site.files["/file"], site.breaks, site.tag = DATA, [100_000], tag
    assert get(site, tmp_path / "file").read_bytes() == DATA
    assert [asked for _, asked in site.seen] == [None, None]
