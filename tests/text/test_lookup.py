"""Looking strings up against a dictionary of them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tetrad.formats.strings import Strings
from tetrad.text import lookup
from tetrad.text.lookup import StringTable, spans, spans_of

texts = (
    st.text("ab\0é", max_size=4)
    | st.text("ab", min_size=7, max_size=17)
    | st.text("a", max_size=130)
)
tables = st.lists(texts, max_size=60)


def found(table: list[str], wanted: list[str]) -> list[int]:
    return StringTable(spans_of(Strings.of(table))).find(spans_of(Strings.of(wanted))).tolist()


@given(tables, tables)
@settings(max_examples=200)
def test_finds_what_a_dictionary_finds(table: list[str], wanted: list[str]) -> None:
    places = {text: i for i, text in enumerate(table)}
    assert found(table, wanted + table) == [places.get(text, -1) for text in wanted + table]


@given(st.lists(st.tuples(texts, texts), max_size=30), tables)
@settings(max_examples=200)
def test_strings_with_a_gap_are_those_without_it(
    pairs: list[tuple[str, str]], others: list[str]
) -> None:
    whole = spans_of(Strings.of(f"{left} {right}" for left, right in pairs))
    gaps = np.array([len(left.encode()) for left, _ in pairs], np.int64)
    made = spans(whole.data, whole.starts, whole.lengths - 1, gaps)
    table = others + [left + right for left, right in pairs[::2]]
    places = {text: i for i, text in enumerate(table)}
    got = StringTable(spans_of(Strings.of(table))).find(made).tolist()
    assert got == [places.get(left + right, -1) for left, right in pairs]


@given(tables, tables)
def test_every_place_of_some_strings(table: list[str], wanted: list[str]) -> None:
    assert StringTable(spans_of(Strings.of(table))).places(wanted) == [
        i for i, text in enumerate(table) if text in wanted
    ]


@pytest.mark.parametrize("bits", [0, 1, 7])
def test_strings_of_the_same_hash_are_told_apart(
    bits: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    few = np.uint64((1 << bits) - 1)
    whole = lookup.hashes
    monkeypatch.setattr(lookup, "hashes", lambda some: whole(some) & few)
    table = [f"token {i % 250}" for i in range(300)]
    places = {text: i for i, text in enumerate(table)}
    assert found(table, [*table, "token", "token 1 "]) == [*map(places.__getitem__, table), -1, -1]


def test_a_large_vocabulary_has_few_levels() -> None:
    made = StringTable(spans_of(Strings.of(f"▁token{i}" for i in range(100_000))))
    assert len(made.tables) <= 6 and not made.rest
    assert np.array_equal(made.find(made.spans), np.arange(100_000))
