"""Names of others: which may become names of files here, and where those may lie."""

from __future__ import annotations

from pathlib import Path

import pytest

from tetrad.core.errors import HubError
from tetrad.hub.hugging_face import matching_files
from tetrad.hub.names import place_below, plain_path
from tetrad.hub.reference import is_repo

PLAIN = (
    "a.gguf",
    "Q4_K_M/a-Q4_K_M-00001-of-00003.gguf",
    "modèle (1)+v2@x.gguf",
    "a/b/c/d.gguf",
    "nulls",
)


@pytest.mark.parametrize("path", PLAIN)
def test_plain_names(path: str) -> None:
    assert plain_path(path, "here") == path


REFUSED = {
    "begins with": ("../a.gguf", "a/../../b.gguf", ".bashrc", "~/a", "-rf", " a"),
    "is empty": ("/etc/passwd", "a//b", "", "a/"),
    "ends with": ("a.", "a /b"),
    "contains '": ("a\\..\\b", "C:a", "a*", "a?", "a|b"),
    "cannot be seen": ("a\x00b", "a\nb", "a\u202eb", "a\udc80b", "a\x1b[2J"),
    "is a device": ("nul.gguf", "COM1", "a/con"),
    "more than 200 bytes": ("x" * 201, "ü" * 101),
    "more than 7 folders": ("/".join("a" * 9),),
    "expected the name of a file, got": (7, None, b"a", ["a"]),
}


@pytest.mark.parametrize(
    ("why", "path"), [(why, path) for why, paths in REFUSED.items() for path in paths]
)
def test_names_that_are_refused(path: object, why: str) -> None:
    with pytest.raises(HubError, match=why):
        plain_path(path, "here")


def test_links_that_lead_out_are_not_followed(tmp_path: Path) -> None:
    folder, outside = tmp_path / "models", tmp_path / "outside"
    folder.mkdir()
    outside.mkdir()
    (folder / "org").symlink_to(outside)
    (folder / "inside").symlink_to(folder)
    (folder / "loop").symlink_to(folder / "loop")
    with pytest.raises(HubError, match="leads out of the folder of models"):
        place_below(folder, "org/repo/a.gguf", "here")
    with pytest.raises(HubError, match="leads"):
        place_below(folder, "loop/a.gguf", "here")
    assert place_below(folder, "inside/a.gguf", "here") == folder / "inside/a.gguf"
    # the folder itself may be a link: that is its owner's choice
    (tmp_path / "link").symlink_to(folder)
    assert place_below(tmp_path / "link", "a/b.gguf", "here") == tmp_path / "link/a/b.gguf"


OTHER = (
    "../repo",
    "org/..",
    "./repo",
    "org/repo/file",
    "org//repo",
    "org",
    "org/a.gguf",
    "ö/r",
    "-o/r",
)


@pytest.mark.parametrize("word", OTHER)
def test_words_that_are_no_repository(word: str) -> None:
    assert not is_repo(word)


def test_sets_that_are_not_whole_or_without_end() -> None:
    one, two = "a-Q4_K_M-00001-of-00003.gguf", "a-Q4_K_M-00002-of-00003.gguf"
    with pytest.raises(
        HubError, match=r"has 2 of 3 files of the set; 'a-Q4_K_M-00003-of-00003.gguf' is missing"
    ):
        matching_files("r", [one, two], None, None)
    with pytest.raises(HubError, match="expected a set of 1 to 999 files, got 99999"):
        matching_files("r", ["a-Q4_K_M-00001-of-99999.gguf"], None, None)
