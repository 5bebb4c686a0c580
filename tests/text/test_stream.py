"""Streamed text is the decoded text; stop strings are found wherever the parts are cut."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.text.naive import score_metadata
from tetrad.core.errors import TextError
from tetrad.text.stream import Released, StopStrings, StreamDecoder
from tetrad.text.tokenizer import tokenizer_from_gguf

SPM = tokenizer_from_gguf(score_metadata({"▁a": 0.0, "▁": -1.0, "a": -2.0}))


@given(st.lists(st.integers(0, SPM.vocab_size - 1), max_size=30), st.booleans())
def test_streaming_gives_the_decoded_text(ids: list[int], skip: bool) -> None:
    stream = StreamDecoder(SPM, skip_special=skip)
    parts = [stream.feed(i) for i in ids]
    assert "".join([*parts, stream.flush()]) == SPM.decode(ids, skip_special=skip)


@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=20))
def test_characters_are_never_split(text: str) -> None:
    stream = StreamDecoder(SPM)
    shown = [stream.feed(i) for i in SPM.encode(text, parse_special=False)]
    assert "".join(shown) == text.replace("▁", " ")
    assert stream.flush() == ""
    assert "".join(shown).count("\ufffd") == text.count("\ufffd")


def test_a_cut_character_shows_at_the_end() -> None:
    stream = StreamDecoder(SPM)
    assert [stream.feed(3 + byte) for byte in "é".encode()[:1]] == [""]
    assert stream.flush() == "\ufffd"


def test_text_that_continues_keeps_its_space() -> None:
    assert StreamDecoder(SPM).feed(259) == "a"
    assert StreamDecoder(SPM, continues=True).feed(259) == " a"


@given(
    st.text("abc", max_size=20),
    st.lists(st.text("abc", min_size=1, max_size=4), max_size=3),
    st.data(),
)
def test_stop_strings_are_found_however_the_text_is_cut(
    text: str, stops: list[str], data: st.DataObject
) -> None:
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=5)))
    parts = [text[i:j] for i, j in zip([0, *cuts], [*cuts, len(text)], strict=True)]
    finder = StopStrings(stops)
    shown = "".join(finder.feed(part).text for part in parts)
    first = min((text.find(stop) for stop in stops if stop in text), default=None)
    if first is None:
        assert shown + finder.flush() == text
        assert finder.reached is None
    else:
        assert (
            shown + finder.flush() == text[:first]
            or finder.reached is not None
            and text.startswith(shown)
        )
        assert finder.reached in stops


def test_nothing_comes_after_the_stop() -> None:
    stops = StopStrings(["STOP"])
    assert stops.feed("a STOP b") == Released("a ", "STOP")
    assert stops.feed("more") == Released("", "STOP")
    assert stops.flush() == ""


@pytest.mark.parametrize("stops", ["abc", [""], [1]])
def test_wrong_stop_strings_are_refused(stops: list[str]) -> None:
    with pytest.raises(TextError, match="expected a list of non-empty strings"):
        StopStrings(stops)
