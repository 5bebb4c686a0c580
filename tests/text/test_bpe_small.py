"""Merging short texts by ourselves against the `tokenizers` library and against the definition."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tests.text.naive import byte_level_metadata, naive_bpe, random_merges
from tetrad.core.errors import FileFormatError, TextError
from tetrad.formats import gguf
from tetrad.text import bpe
from tetrad.text.bpe import SmallFirst
from tetrad.text.bpe_library import library_encoder
from tetrad.text.bpe_small import WordEncoder
from tetrad.text.bytelevel import BYTE_TO_CHAR, byte_level_text
from tetrad.text.pretokenizers import PreTokenizer, pre_tokenizer
from tetrad.text.tokenizer import tokenizer_from_gguf
from tetrad.text.vocabulary import Vocabulary, read_vocabulary

SMOLLM = Path("~/.cache/tetrad/models/SmolLM2-135M-Instruct.Q4_1.gguf").expanduser()
texts = st.text(st.sampled_from("aaabbc  \n\t12é中😀\u0301'.<"), max_size=60)
WHOLE = PreTokenizer((r"[\s\S]+",))


def both(vocabulary: Vocabulary, pre: PreTokenizer, text: str) -> tuple[list[int], list[int]]:
    return SmallFirst(vocabulary, pre)([text]), library_encoder(vocabulary, pre)([text])


@st.composite
def vocabularies(draw: st.DrawFn) -> dict[str, Any]:
    """Merges that build on each other in several ways, tokens twice, merges twice, bytes without a
    token."""
    chance = random.Random(draw(st.integers(0, 10_000)))
    alphabet = byte_level_text("ab é".encode())
    merges = random_merges(chance.randrange(1000), alphabet, draw(st.integers(0, 40)))
    known = [*alphabet, *(line.replace(" ", "") for line in merges)]
    for _ in range(draw(st.integers(0, 20))):  # other ways to a token that is there
        whole = chance.choice(known)
        cut = chance.randrange(1, max(len(whole), 2))
        if whole[:cut] in known and whole[cut:] in known:
            merges.insert(chance.randrange(len(merges) + 1), f"{whole[:cut]} {whole[cut:]}")
    data = byte_level_metadata(merges, ("<s>", "<unk>"))
    tokens: list[str] = data["tokenizer.ggml.tokens"]  # type: ignore[assignment]
    kinds: list[int] = data["tokenizer.ggml.token_type"]  # type: ignore[assignment]
    tokens += chance.sample(tokens[:-2], 5)
    kinds += [1] * 5
    if draw(st.booleans()):
        for gone in chance.sample(sorted(set(BYTE_TO_CHAR.values()) - set(alphabet)), 40):
            tokens[tokens.index(gone)] = f"gone {gone}"
    if draw(st.booleans()):
        data["tokenizer.ggml.unknown_token_id"] = chance.choice(
            [tokens.index("<unk>"), tokens.index("a")]
        )
    return data


@given(vocabularies(), texts, st.booleans())
@settings(max_examples=150)
def test_the_same_ids_as_the_library(data: dict[str, Any], text: str, ignore_merges: bool) -> None:
    vocabulary = read_vocabulary(data)
    for patterns in (pre_tokenizer("gpt-2").patterns, WHOLE.patterns):
        pre = PreTokenizer(patterns, ignore_merges=ignore_merges)
        try:
            ours, theirs = both(vocabulary, pre, text)
        except TextError as error:
            assert "no token for byte" in str(error)
            continue
        assert ours == theirs


@given(st.integers(0, 500), st.text("abc", max_size=30))
def test_the_same_as_the_definition(seed: int, word: str) -> None:
    merges = random_merges(seed, "abc", 30)
    made = [line.replace(" ", "") for line in merges]
    # else the library takes a candidate for another that makes the same
    assume(len(set(made)) == len(made))
    words = WordEncoder(read_vocabulary(byte_level_metadata(merges)), ignore_merges=False)
    tokens = words.vocabulary.tokens
    assert [tokens[i] for i in words.encode([word.encode()])] == naive_bpe(word, merges)


def test_a_word_that_is_a_token_is_that_token() -> None:
    data = byte_level_metadata(["a b"], ()) | {"tokenizer.ggml.pre": "llama-bpe"}
    data["tokenizer.ggml.tokens"] = [*data["tokenizer.ggml.tokens"], "aba"]  # type: ignore[misc]
    data["tokenizer.ggml.token_type"] = [*data["tokenizer.ggml.token_type"], 1]  # type: ignore[misc]
    tokenizer = tokenizer_from_gguf(data)
    assert [tokenizer.token_text(i) for i in tokenizer.encode("aba abab", add_special=False)] == [
        *("aba", "Ġ", "ab", "ab")
    ]


def test_bytes_without_a_token_become_the_unknown_one_whatever_its_kind() -> None:
    """The library would leave them out."""
    data = {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "gpt-2",
        "tokenizer.ggml.tokens": ["a", "?"],
        "tokenizer.ggml.token_type": [1, 1],
        "tokenizer.ggml.unknown_token_id": 1,
        "tokenizer.ggml.merges": [],
    }
    vocabulary = read_vocabulary(data)
    assert both(vocabulary, pre_tokenizer("gpt-2"), "aéa") == ([0, 1, 1, 0], [0, 1, 1, 0])


@pytest.mark.parametrize("line", ["b", "a  b", " b", "", "ab c", b"\xff b", "<s> a"])
def test_a_line_that_is_no_merge_is_named(line: str) -> None:
    data = byte_level_metadata(["a b"], ("<s>", "<s>a")) | {"tokenizer.ggml.merges": ["a b", line]}
    with pytest.raises(
        FileFormatError, match=r"merges\[1\]: expected (two tokens|a string of valid UTF-8)"
    ):
        tokenizer_from_gguf(data)


def test_the_library_is_made_when_there_is_much_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    made = []
    original = bpe.library_encoder
    monkeypatch.setattr(bpe, "library_encoder", lambda *args: made.append(args) or original(*args))
    encoder = SmallFirst(
        read_vocabulary(byte_level_metadata(random_merges(3, "abĠ", 40))), pre_tokenizer("gpt-2")
    )
    short, long = "ab ba abba ", "ab ba abba " * 1000
    first = encoder([short])
    assert not made
    assert encoder([long]) == (first * 1000) and len(made) == 1
    assert encoder([short]) == first and len(made) == 1


# -- a real vocabulary -----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def smollm() -> tuple[WordEncoder, Any, Any]:
    if not SMOLLM.exists():
        pytest.skip(
            "needs the model that `tetrad pull smollm2` fetches; other vocabularies are tried "
            "without it"
        )
    with gguf.open_file(SMOLLM) as file:
        vocabulary = read_vocabulary(file.metadata)
    pre = pre_tokenizer("smollm")
    encoder = SmallFirst(vocabulary, pre)
    return encoder.words, encoder.cut, library_encoder(vocabulary, pre)


@given(st.text(max_size=80) | texts | st.text(st.characters(max_codepoint=127), max_size=80))
@settings(max_examples=300)
def test_a_real_vocabulary(smollm: tuple[WordEncoder, Any, Any], text: str) -> None:
    words, cut, library = smollm
    assert words.encode([word.encode() for word in cut(text)]) == library([text])


def test_real_text(smollm: tuple[WordEncoder, Any, Any]) -> None:
    words, cut, library = smollm
    for path in sorted(Path(__file__).parents[2].glob("docs/*.md"))[:6]:
        text = path.read_text()
        assert words.encode([word.encode() for word in cut(text)]) == library([text])
