"""Cutting ASCII text with Python's patterns against the library, for every pre-tokeniser."""

from __future__ import annotations

import gc
import re
import time
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tetrad.text.bpe_library import word_splitter
from tetrad.text.pretokenizers import FAMILIES, PreTokenizer, pre_tokenizer
from tetrad.text.words import ascii_pattern, ascii_words, word_cutter

SAMPLES = {name: family for name, (family, _) in FAMILIES.items()}
BY_LIBRARY = {"deepseek-llm", "kimi-k2"}  # `$` and intersections mean something else in Python
LETTERS, SIGNS = "aAbBzZ09'sStTlLdDmMvVeErRIMG", '.,!?$+<=>^~|`#%&()*-/:;@[]\\_{}"'
ascii_texts = st.text(st.sampled_from(LETTERS + SIGNS + " \t\n\r\v\f\x1c\x1f\x7f\0"), max_size=40)


@pytest.mark.parametrize("name", SAMPLES)
def test_which_are_written_out(name: str) -> None:
    assert all(ascii_pattern(pattern) for pattern in SAMPLES[name].patterns) == (
        name not in BY_LIBRARY
    )


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
    assert (
        word_cutter(pre)(text) == [word for word, _ in word_splitter(pre).pre_tokenize_str(text)]
        or not text
    )


def test_classes_without_ascii_match_nothing() -> None:
    assert ascii_pattern(r"\p{M}*[^\p{N}\p{Lu}]").pattern == "[\x80]*[^0-9A-Z]"  # type: ignore[union-attr]


# -- time ------------------------------------------------------------------------------------------

TEXTS = {  # what makes patterns look ahead, or back, over and over
    "spaces": " ", "tabs": "\t", "lines": "\n", "letters": "a", "capitals": "A", "digits": "1",
    "marks": "\u0301",
    "signs": "!", "apostrophes": "'", "wide spaces": "\u00a0", "letters and spaces": "a ",
    "han": "\u4e2d",
}  # fmt: skip
ENDS = {"nothing": "", "a letter": "x", "a digit": "1", "an emoji": "\U0001f600"}


def timed(cut: Callable[[str], list[str]], text: str) -> tuple[list[str], float]:
    """The words, and the time of this thread, in which no garbage of other tests is looked for."""
    gc.disable()
    begin = time.thread_time()
    words = cut(text)
    seconds = time.thread_time() - begin
    gc.enable()
    return words, seconds


@pytest.mark.parametrize("family", sorted(FAMILIES))
def test_cutting_takes_time_in_proportion(family: str) -> None:
    """A quadratic pattern takes more than a second for one of these at least."""
    cut = word_cutter(FAMILIES[family][0])
    for name, unit in TEXTS.items():
        is_space = unit in " \u00a0"
        for end_name, end in ENDS.items() if is_space else [("nothing", "")]:
            text = unit * (300_000 if is_space else 30_000) + end
            words, seconds = timed(cut, text)
            assert seconds < 0.5 + 5e-6 * len(words), (name, end_name)
            assert sum(map(len, words)) == len(text)


def test_long_white_space_is_halved_as_before() -> None:
    """Jais 2: the rule for the ends of lines holds after signs, not after white space that was cut
    off."""
    cut = word_cutter(pre_tokenizer("jais-2"))
    assert [len(word) for word in cut(" " * 1300 + "x")] == [512, 512, 256, 16, 2, 1, 2]
    assert cut("!\n  \n x") == cut("!\n  \n x")
    for text in (
        "  \n  \n   a",
        "!\n  \n x",
        "a  \r\n\t b",
        "\t\t\n" + " " * 700 + "\n" + " " * 9 + "z",
    ):
        assert cut(text) == old_halves(text)


def old_halves(text: str) -> list[str]:
    """The pattern as the model spells it."""
    spelt = re.sub(r"\(\?<!\[\^\\S\\r\\n\]\)", "", pre_tokenizer("jais-2").patterns[0], count=1)
    return word_cutter(PreTokenizer((spelt,)))(text)
