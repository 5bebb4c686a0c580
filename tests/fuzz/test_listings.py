"""Hostile listings: a share of them with every test run, and the defects that the generator must
notice."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.fuzz.listings import check
from tetrad.hub import download, pull

SEEDS = range(60)


@pytest.mark.parametrize("first", range(0, len(SEEDS), 20))
def test_hostile_listings_do_no_harm(first: int) -> None:
    assert [found for seed in SEEDS[first : first + 20] if (found := check(seed))] == []


def trusting_names(monkeypatch: pytest.MonkeyPatch) -> None:
    """Names are taken as they come."""
    monkeypatch.setattr("tetrad.hub.hugging_face.plain_path", lambda path, where: path)
    monkeypatch.setattr(pull, "place_below", lambda folder, path, where: folder / path)


def deleting(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is no model is deleted, whoever has put it there."""
    kept = pull.checked
    monkeypatch.setattr(pull, "checked", lambda path, fetched: kept(path, [path]))


def following_links(monkeypatch: pytest.MonkeyPatch) -> None:
    def opened(path: Path, mode: str) -> Any:
        return open(path, mode)

    monkeypatch.setattr(download, "opened", opened)


def unbounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """More is taken than was declared."""

    class Endless(int):
        def __lt__(self, other: object) -> bool:
            return False

    kept = download.copy
    monkeypatch.setattr(download, "copy", lambda *given, most: kept(*given, most=Endless()))


PLANTS = (trusting_names, deleting, following_links, unbounded)


@pytest.mark.parametrize("plant", PLANTS, ids=lambda plant: plant.__name__)
def test_a_planted_defect_is_found(plant: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch)
    found: Iterator[str | None] = (check(seed) for seed in range(600))
    assert any(found), f"{plant.__name__}: not found"
