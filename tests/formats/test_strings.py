"""Strings in one piece of memory against a list of the same strings."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tetrad.formats.strings import Strings

texts = st.text(st.sampled_from("a\0é中😀\x7f"), max_size=6) | st.sampled_from(
    ["", "x" * 127, "é" * 64, "y" * 300]
)
raws = st.binary(max_size=3)


@given(st.lists(texts | raws, max_size=12))
def test_strings_are_the_list_they_were_made_of(items: list[str | bytes]) -> None:
    want = [one if isinstance(one, str) else readable(one) for one in items]
    made = Strings.of(items)
    assert list(made) == want == [made[i] for i in range(len(made))]
    assert [made.data[s : s + n] for s, n in zip(*made.places(), strict=True)] == [
        one.encode() if isinstance(one, str) else one for one in want
    ]


def readable(raw: bytes) -> str | bytes:
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return raw


@given(st.lists(texts | raws, max_size=12))
def test_the_first_that_is_no_text(items: list[str | bytes]) -> None:
    want = next((i for i, one in enumerate(Strings.of(items)) if isinstance(one, bytes)), None)
    assert Strings.of(items).first_bytes() == want


@pytest.mark.parametrize("at", [0, 255, 256, 700, 999])
def test_one_among_many_that_is_no_text(at: int) -> None:
    items: list[str | bytes] = ["word", "é" * 100] * 500
    assert Strings.of(items).first_bytes() is None
    items[at] = b"a\xc3"  # and the length that follows could be the rest of a character
    items[(at + 1) % 1000] = "x" * 0xA9
    assert Strings.of(items).first_bytes() == at


def test_places_are_wide_enough_to_add() -> None:
    assert [places.dtype for places in Strings.of(["a", "bc"]).places()] == [np.int64, np.int64]
