"""Pieces looked up for one text against dictionaries of all pieces, and where words may be cut."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.text.naive import naive_scores, score_metadata
from tetrad.formats.strings import Strings
from tetrad.text.lookup import spans_of
from tetrad.text.sentencepiece import ScoreEncoder, ranks_of, substrings, word_borders
from tetrad.text.tokenizer import tokenizer_from_gguf
from tetrad.text.vocabulary import read_vocabulary

pieces = st.dictionaries(
    st.text("ab▁é", min_size=1, max_size=5), st.integers(-4, 4).map(float), max_size=30
)
texts = st.text("abc é中😀", max_size=30)


@given(pieces, texts)
@settings(max_examples=200)
def test_a_few_pieces_do_as_well_as_all(scores: dict[str, float], text: str) -> None:
    data = score_metadata(scores)
    encoder = ScoreEncoder(read_vocabulary(data))
    few = encoder(text)
    assert encoder.all is None
    encoder.all = encoder.all_pieces()
    assert few == encoder(text)
    names: list[str] = data["tokenizer.ggml.tokens"]  # type: ignore[assignment]
    want: list[str] = []
    for part in naive_scores(text.replace(" ", "▁"), scores):
        want += [part] if part in scores else [f"<0x{byte:02X}>" for byte in part.encode()]
    assert [names[i] for i in few] == want


def test_of_pieces_that_are_there_twice_the_last_usable_counts() -> None:
    data = score_metadata({"a": -1.0, "b": -2.0})
    data["tokenizer.ggml.tokens"] += ["ab", "ab", "ab"]  # type: ignore[operator]
    data["tokenizer.ggml.scores"] += [-3.0, -4.0, 0.0]  # type: ignore[operator]
    data["tokenizer.ggml.token_type"] += [1, 1, 5]  # type: ignore[operator]
    encoder = ScoreEncoder(read_vocabulary(data))
    assert encoder("ab") == encoder.all_pieces().encode(["ab"]) == [262]


def test_text_with_too_many_parts_takes_all_pieces() -> None:
    encoder = ScoreEncoder(read_vocabulary(score_metadata({"ab": -1.0, "x" * 200: -2.0})))
    assert encoder("ab" * 200)[:2] == [259, 259] and encoder.all is not None


@given(st.lists(st.floats(width=32, allow_nan=False), max_size=20))
def test_ranks_are_in_the_order_of_scores(scores: list[float]) -> None:
    array = np.array(scores, np.float32)
    got = ranks_of(array)
    assert (got >= 0).all()
    for better in range(len(scores)):
        assert ((got[better] < got) == (array[better] > array)).all()


@given(
    st.lists(st.text("ab▁é中\n\0", min_size=1, max_size=5), max_size=12),
    st.text("ab▁é中c\n\0", max_size=20),
)
def test_no_piece_reaches_over_a_border(some: list[str], text: str) -> None:
    words = word_borders(spans_of(Strings.of(some))).split(text)
    assert "".join(words) == text
    cuts = {sum(map(len, words[:i])) for i in range(1, len(words))}
    found = [(i, piece) for piece in some for i in range(len(text)) if text.startswith(piece, i)]
    assert not cuts & {i + k for i, piece in found for k in range(1, len(piece))}


def test_parts_of_words() -> None:
    assert sorted(substrings(["aé", ""], 9) or ()) == ["a", "aé", "é"]
    assert substrings(["ab" * 10_000], 100) is None


def test_much_text_after_little() -> None:
    tokenizer = tokenizer_from_gguf(score_metadata({"▁": -1.0, "a": -2.0, "▁a": -0.5}))
    one = tokenizer.encode("a a", add_special=False)
    assert tokenizer.encode("a " * 20_000 + "a", add_special=False)[:2] == one
    assert tokenizer.encode("a a", add_special=False) == one
