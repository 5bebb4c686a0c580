"""Tokenisers against slow ones written from the definitions, and the rules that hold for all of
them."""

from __future__ import annotations

import struct
import time
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.text.naive import (
    byte_level_metadata,
    naive_bpe,
    naive_scores,
    naive_unigram,
    naive_wordpiece,
    random_merges,
    score_metadata,
)
from tetrad.core.errors import FileFormatError, TetradError, TextError, UnsupportedError
from tetrad.text.bpe_library import word_splitter
from tetrad.text.bytelevel import byte_level_text
from tetrad.text.pretokenizers import PRE_TOKENIZERS, Digits, pre_tokenizer
from tetrad.text.sentencepiece import merge
from tetrad.text.tokenizer import Tokenizer, tokenizer_from_gguf
from tetrad.text.unigram import Charsmap
from tetrad.text.words import group_digits

MERGES = random_merges(1, "abcĠ", 60)
BYTES = byte_level_metadata(MERGES, ("<|im_start|>", "<|im_end|>", "<|im_end|>x"), eos_token_id=256)
BPE = tokenizer_from_gguf(BYTES)

PIECES = [
    "▁",
    "a",
    "b",
    "ab",
    "▁▁",
    "aa",
    "▁▁▁",
    "▁a",
    "aaa",
    "ba",
    "▁ab",
    "bb",
    "é▁",
    "éa",
    "aab",
    "▁▁▁▁",
    "abab",
]
SCORES = {piece: -float(i // 2) for i, piece in enumerate(PIECES)}
SPM = tokenizer_from_gguf(score_metadata(SCORES))
UNIGRAM_PIECES = ["▁a", "ab", "b", "a", "▁", "aab", "ba", "▁ab", "bb", "▁b"]
UNIGRAM_SCORES = {piece: -1.5 - 0.37 * i for i, piece in enumerate(UNIGRAM_PIECES)}
UNIGRAM = tokenizer_from_gguf(
    score_metadata(
        UNIGRAM_SCORES,
        "t5",
        add_space_prefix=True,
        remove_extra_whitespaces=True,
        add_eos_token=True,
    )
)
WORDS = [
    "[PAD]",
    "[UNK]",
    "[CLS]",
    "[SEP]",
    "▁un",
    "▁a",
    "▁b",
    "a",
    "b",
    "ab",
    "aff",
    "able",
    "▁,",
    "▁é",
    "▁e",
]
BERT_DATA: dict[str, Any] = {
    "tokenizer.ggml.model": "bert",
    "tokenizer.ggml.tokens": WORDS,
    "tokenizer.ggml.token_type": [3] * 4 + [1] * (len(WORDS) - 4),
    "tokenizer.ggml.unknown_token_id": 1,
    "tokenizer.ggml.cls_token_id": 2,
    "tokenizer.ggml.seperator_token_id": 3,
    "tokenizer.ggml.padding_token_id": 0,
}
BERT = tokenizer_from_gguf(BERT_DATA)
ALL = {"gpt2": BPE, "llama": SPM, "t5": UNIGRAM, "bert": BERT}
texts = st.text(st.sampled_from("aab bc\n1é中😀'<|_>▁"), max_size=30)


def names(tokenizer: Tokenizer, ids: list[int]) -> list[str]:
    return [tokenizer.token_text(i) for i in ids]


# -- against the definitions -----------------------------------------------------------------------


@given(st.text("abc ", max_size=24))
def test_byte_level_merges_by_rank(text: str) -> None:
    words = word_splitter(pre_tokenizer("gpt-2")).pre_tokenize_str(text)
    want = [part for word, _ in words for part in naive_bpe(byte_level_text(word.encode()), MERGES)]
    assert names(BPE, BPE.encode(text, add_special=False)) == want


@given(st.text("ab é", max_size=24))
@settings(max_examples=300)
def test_pieces_merge_by_score(text: str) -> None:
    want: list[str] = []
    for part in naive_scores(("▁" + text.replace(" ", "▁")) if text else "", SCORES):
        want += [part] if part in SCORES else [f"<0x{byte:02X}>" for byte in part.encode()]
    assert names(SPM, SPM.encode(text, add_special=False)) == want


@given(st.text("ab ", max_size=14))
def test_unigram_finds_the_best_sum(text: str) -> None:
    ready = "▁".join(["", *text.split()])
    got = names(UNIGRAM, UNIGRAM.encode(text, add_special=False))
    best, _ = naive_unigram(ready, UNIGRAM_SCORES)
    assert "".join(got) == ready
    assert sum(UNIGRAM_SCORES[piece] for piece in got) == pytest.approx(best)


@given(st.lists(st.text("abuneafl", min_size=1, max_size=8), max_size=5))
def test_wordpiece_takes_the_longest(words: list[str]) -> None:
    want: list[str] = []
    for word in words:
        want += naive_wordpiece(word, set(WORDS)) or ["[UNK]"]
    assert names(BERT, BERT.encode(" ".join(words), add_special=False)) == want


@given(
    st.text("ab", max_size=40),
    st.dictionaries(st.text("ab", min_size=2, max_size=5), st.integers(0, 6)),
)
def test_merging_with_equal_scores(word: str, ranks: dict[str, int]) -> None:
    assert merge(word, ranks) == naive_scores(
        word, {piece: -float(rank) for piece, rank in ranks.items()}
    )


# -- rules that hold for all -----------------------------------------------------------------------


# "▁" is how pieces spell a space, and "<s>" in a text is a control token for those that have it.
@given(
    st.text(st.characters(exclude_categories=["Cs"]), max_size=40).filter(
        lambda t: "▁" not in t and "s>" not in t
    )
)
def test_decoding_undoes_encoding(text: str) -> None:
    for tokenizer in (BPE, SPM):
        assert tokenizer.decode(tokenizer.encode(text), skip_special=True) == text


@pytest.mark.parametrize("tokenizer", ALL.values(), ids=ALL)
@given(text=texts)
def test_ids_are_in_range(tokenizer: Tokenizer, text: str) -> None:
    assert all(0 <= i < tokenizer.vocab_size for i in tokenizer.encode(text))


@pytest.mark.parametrize("tokenizer", ALL.values(), ids=ALL)
@given(text=texts)
def test_users_cannot_write_control_tokens(tokenizer: Tokenizer, text: str) -> None:
    every = "".join(
        tokenizer.token_text(i) for i in range(tokenizer.vocab_size) if tokenizer.is_special(i)
    )
    ids = tokenizer.encode(every + text, add_special=False, parse_special=False)
    assert [i for i in ids if tokenizer.is_special(i) and i != tokenizer.unk] == []


def test_special_tokens_are_cut_out_longest_first() -> None:
    got = names(BPE, BPE.encode("a<|im_start|>b<|im_end|>x<|im_end|>"))
    assert got == ["a", "<|im_start|>", "b", "<|im_end|>x", "<|im_end|>"]


def test_bos_comes_exactly_once() -> None:
    assert SPM.encode("<s>a") == SPM.encode("a") == [1, *SPM.encode("a", add_special=False)]
    assert SPM.encode("") == [1]
    assert SPM.encode("", add_special=False) == []
    assert UNIGRAM.encode("a</s>")[-2:] != [2, 2]
    assert names(BERT, BERT.encode("a")) == ["[CLS]", "▁a", "[SEP]"]


def test_stop_ids_are_eos_and_ends_of_turn() -> None:
    end = BPE.vocabulary.tokens.index("<|im_end|>")
    assert BPE.stop_ids == {256, end}
    assert BPE.eot == end
    assert SPM.stop_ids == {2}


def test_an_end_of_turn_is_a_control_token_whatever_the_file_says() -> None:
    data = score_metadata({"▁a": -1.0, "<end_of_turn>": -2.0})
    tokenizer = tokenizer_from_gguf(data)
    assert tokenizer.is_special(260)
    assert tokenizer.stop_ids == {2, 260}


def test_the_end_of_a_message_is_no_stop_where_turns_go_on() -> None:
    tokenizer = tokenizer_from_gguf(byte_level_metadata([], ("<|end|>", "<|return|>", "<|call|>")))
    assert sorted(names(tokenizer, sorted(tokenizer.stop_ids))) == ["<|call|>", "<|return|>"]


def test_phi_3_swallows_the_space_after_special_tokens() -> None:
    data = score_metadata(SCORES) | {"general.name": "Phi3"}
    assert tokenizer_from_gguf(data).encode("</s>\n a") == [
        1,
        2,
        *SPM.encode("a", add_special=False),
    ]


def test_unknown_text_without_byte_tokens_is_the_unknown_token() -> None:
    data = {
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.tokens": ["<unk>", "▁"],
        "tokenizer.ggml.token_type": [2, 1],
    }
    assert tokenizer_from_gguf(data).encode("中", add_special=False) == [1, 0]


# -- pre-tokenisers --------------------------------------------------------------------------------

CUTS = {
    "gpt-2": ["Hello", " it", "'s", " 12345", "  ", " x中文", "!?"],
    "smollm": ["Hello", " it", "'s", " ", "1", "2", "3", "4", "5", "  ", " x中文", "!?"],
    "llama-bpe": ["Hello", " it", "'s", " ", "123", "45", "  ", " x中文", "!?"],
    "qwen2": ["Hello", " it", "'s", " ", "1", "2", "3", "4", "5", "  ", " x中文", "!?"],
    "gpt-4o": ["Hello", " it's", " ", "123", "45", "  ", " x中文", "!?"],
    "deepseek-v3": ["Hello", " it", "'s", " ", "123", "45", "  ", " x", "中文", "!?"],
    "bloom": ["Hello", " it's", " 12345", "  ", " x中文", "!?"],
}


@pytest.mark.parametrize("name", CUTS)
def test_words_are_cut_as_the_model_was_trained(name: str) -> None:
    words = word_splitter(pre_tokenizer(name)).pre_tokenize_str("Hello it's 12345   x中文!?")
    assert [word for word, _ in words] == CUTS[name]


@pytest.mark.parametrize("name", PRE_TOKENIZERS)
def test_every_pre_tokeniser_keeps_the_text(name: str) -> None:
    text = "It's 1234567 and3 ÀÉ 中文かな 안녕 😀\r\n\n  end… <sentinel:1> IMGIMGABZ\t"
    data = byte_level_metadata(MERGES, pre=name)
    if name in ("gemma4", "sarvam-moe", "granite-embed-multi-311m"):
        data = score_metadata({"▁": 0.0}, "gemma4", merges=[])
    tokenizer = tokenizer_from_gguf(data)
    assert tokenizer.decode(tokenizer.encode(text, add_special=False)) == text


def test_numbers_are_grouped_unless_a_letter_follows() -> None:
    assert list(group_digits("1234 1234a", Digits.GROUPED_ALONE)) == ["1", "234", " 1234a"]
    assert list(group_digits("1234a", Digits.GROUPED)) == ["1", "234", "a"]


# -- speed -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("unit", ["a", "^", " ", "\n", "1", "😀", "e\u0301", "<|"])
@pytest.mark.parametrize("name", ["gpt2", "llama", "bert"])
def test_time_grows_with_the_text(name: str, unit: str) -> None:
    def seconds(count: int) -> float:
        start = time.process_time()
        ALL[name].encode(unit * count)
        return time.process_time() - start

    seconds(100)
    assert seconds(40_000) <= 16 * max(seconds(10_000), 0.01)


# -- refusals --------------------------------------------------------------------------------------


def test_surrogates_are_refused() -> None:
    with pytest.raises(TextError, match=r"character 1 is the lone surrogate U\+D83D"):
        BPE.encode("a\ud83d")
    with pytest.raises(TextError, match="expected str, got bytes"):
        BPE.encode(b"a")  # type: ignore[arg-type]


@pytest.mark.parametrize("i", [-1, 10**6, 1.5, "1", None])
def test_ids_out_of_range_are_refused(i: Any) -> None:
    for use in (BPE.token_text, BPE.token_bytes, BPE.is_special, lambda i: BPE.decode([i])):
        with pytest.raises(TextError, match="token id: expected an integer in 0 to"):
            use(i)


@pytest.mark.parametrize("tokenizer", ALL.values(), ids=ALL)
def test_bytes_of_all_tokens(tokenizer: Tokenizer) -> None:
    assert tokenizer.every_bytes() == [
        tokenizer.token_bytes(i) for i in range(tokenizer.vocab_size)
    ]


def test_numpy_ids_are_ids() -> None:
    assert BPE.decode(np.array(BPE.encode("abc"))) == "abc"


def test_bytes_without_a_token_are_refused() -> None:
    data = {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "gpt-2",
        "tokenizer.ggml.tokens": ["a"],
        "tokenizer.ggml.merges": [],
    }
    with pytest.raises(TextError, match="no token for byte 0x62"):
        tokenizer_from_gguf(data).encode("ab")


BAD = {
    "tokenizer 'rwkv'": ({"tokenizer.ggml.model": "rwkv"}, UnsupportedError, "supported are gpt2"),
    "pre": ({"tokenizer.ggml.pre": "nonsense"}, UnsupportedError, "known are .*smollm"),
    "no tokens": (
        {"tokenizer.ggml.tokens": None},
        FileFormatError,
        "tokenizer.ggml.tokens: expected an array",
    ),
    "empty": ({"tokenizer.ggml.tokens": []}, FileFormatError, "expected 1 to"),
    "bytes": (
        {"tokenizer.ggml.tokens": ["a", b"\xff"]},
        FileFormatError,
        r"tokens\[1\]: expected a string of valid",
    ),
    "types": (
        {"tokenizer.ggml.token_type": [1]},
        FileFormatError,
        "token_type: expected 259 numbers",
    ),
    "scores": (
        {"tokenizer.ggml.scores": [float("nan")] * 259},
        FileFormatError,
        r"scores\[0\]: expected a finite",
    ),
    "merge": (
        {"tokenizer.ggml.merges": ["a b"]},
        FileFormatError,
        r"merges\[0\]: expected two tokens",
    ),
    "merge of one": (
        {"tokenizer.ggml.merges": ["ab"]},
        FileFormatError,
        r"merges\[0\]: expected two tokens",
    ),
    "bos": (
        {"tokenizer.ggml.bos_token_id": 9999},
        FileFormatError,
        "bos_token_id: expected an id below",
    ),
    "bos type": (
        {"tokenizer.ggml.bos_token_id": "1"},
        FileFormatError,
        "expected a value of type int",
    ),
    "add_bos": ({"tokenizer.ggml.add_bos_token": True}, FileFormatError, "bos_token_id is missing"),
}


@pytest.mark.parametrize("change,error,match", BAD.values(), ids=BAD)
def test_bad_tables_are_refused(
    change: dict[str, object], error: type[TetradError], match: str
) -> None:
    data = byte_level_metadata([], ("<a>", "<b>", "<c>"))
    with pytest.raises(error, match=match):
        tokenizer_from_gguf(data | change)


def test_a_long_special_token_is_refused() -> None:
    with pytest.raises(FileFormatError, match="special tokens of at most 1024"):
        tokenizer_from_gguf(byte_level_metadata([], ("<" * 2000,)))


def test_a_missing_pre_tokeniser_is_said() -> None:
    with pytest.warns(UserWarning, match=r"tokenizer.ggml.pre is missing"):
        tokenizer_from_gguf(byte_level_metadata([]) | {"tokenizer.ggml.pre": None})


# -- the table of replacements ---------------------------------------------------------------------


def charsmap(key: int, target: bytes) -> bytes:
    """A trie with one key of one byte."""
    units = [0] * 512
    units[0] = 256 << 10  # children of the root begin at 256
    node = 256 ^ key
    units[node] = key | 1 << 8 | (node ^ 2) << 10  # has a leaf, found at 2
    units[2] = 1 << 31 | 1  # the string at offset 1
    return struct.pack("<I512I", 4 * len(units), *units) + b"\0" + target + b"\0"


def test_characters_are_replaced() -> None:
    assert Charsmap(charsmap(ord("x"), b"ab"))("axé") == "aabé"
    assert Charsmap(b"")("x") == "x"


@given(st.binary(min_size=1, max_size=60), st.text(max_size=10))
def test_a_broken_table_is_refused_or_harmless(table: bytes, text: str) -> None:
    try:
        Charsmap(table)(text)
    except FileFormatError as error:
        assert "precompiled_charsmap" in str(error)
