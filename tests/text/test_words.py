"""Cutting ASCII text with Python's patterns against the library, for every pre-tokeniser."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tetrad.text.library import word_splitter
from tetrad.text.pretokenizers import FAMILIES, PreTokenizer
from tetrad.text.words import ascii_pattern, ascii_words, word_cutter

SAMPLES = {name: family for name, (family, _) in FAMILIES.items()}
BY_LIBRARY = {"deepseek-llm", "kimi-k2"}  # `$` and intersections mean something else in Python
LETTERS, SIGNS = "aAbBzZ09'sStTlLdDmMvVeErRIMG", ".,!?$+<=>^~|`#%&()*-/:;@[]\\_{}\""
ascii_texts = st.text(st.sampled_from(LETTERS + SIGNS + " \t\n\r\v\f\x1c\x1f\x7f\0"), max_size=40)


@pytest.mark.parametrize("name", SAMPLES)
def test_which_are_written_out(name: str) -> None:
    assert all(ascii_pattern(pattern) for pattern in SAMPLES[name].patterns) == (name not in BY_LIBRARY)


@pytest.mark.parametrize("name", sorted(SAMPLES.keys() - BY_LIBRARY))
@given(text=ascii_texts | st.text(st.characters(max_codepoint=127), max_size=20))
@settings(max_examples=60)
def test_the_same_words(name: str, text: str) -> None:
    want = [word for word, _ in word_splitter(SAMPLES[name]).pre_tokenize_str(text)] if text else []
    patterns = [pattern for one in SAMPLES[name].patterns if (pattern := ascii_pattern(one))]
    assert [word for word in ascii_words(text, patterns) if word] == want


@given(st.text(st.sampled_from("aé1 中\n😀'"), max_size=12))
def test_other_text_is_cut_by_the_library(text: str) -> None:
    pre: PreTokenizer = SAMPLES["gpt-2"]
    assert word_cutter(pre)(text) == [word for word, _ in word_splitter(pre).pre_tokenize_str(text)] or not text


def test_classes_without_ascii_match_nothing() -> None:
    assert ascii_pattern(r"\p{M}*[^\p{N}\p{Lu}]").pattern == "[\x80]*[^0-9A-Z]"  # type: ignore[union-attr]
