"""Text to token ids and back.

Receives the metadata of a GGUF file; returns a `Tokenizer`. Which algorithm runs between special
tokens is the choice of the file (`tokenizer.ggml.model`); each has a module of its own.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping

import numpy as np

from tetrad.core import lazy
from tetrad.core.errors import FileFormatError, TextError
from tetrad.core.extras import check_extra
from tetrad.core.record import field, record
from tetrad.text.bpe import Encoder, bpe_encoder
from tetrad.text.bytelevel import byte_level_bytes
from tetrad.text.pretokenizers import PreTokenizer, pre_tokenizer
from tetrad.text.sentencepiece import ScoreEncoder, byte_of, piece_bytes
from tetrad.text.special import Splitter
from tetrad.text.vocabulary import (
    CHARSMAP,
    END_NAMES,
    MAX_SPECIAL_LENGTH,
    SPECIAL,
    SPLIT_FIRST,
    TokenKind,
    Vocabulary,
    entry,
    number_array,
    read_vocabulary,
    wrong,
)

# of Phi-3, whose other special tokens take the space after them
NOT_STRIPPING = ("<unk>", "<s>", "<|endoftext|>")


@record(eq=False)
class Tokenizer:
    """Encodes and decodes with one vocabulary. Made by `tokenizer_from_gguf`; safe to share between
    threads."""

    vocabulary: Vocabulary = field(repr=False)
    stop_ids: frozenset[int]  # tokens that end a turn
    adds_bos: bool
    adds_eos: bool
    # a space is put before a text that starts or follows a special token, and removed by decode
    space_prefix: bool
    byte_level: bool
    # special tokens that swallow the white space after them
    strips_after: frozenset[int] = field(repr=False)
    encode_text: Encoder = field(repr=False)
    all_special: Splitter = field(repr=False)
    user_defined: Splitter = field(repr=False)
    # see `known`
    pieces: dict[int, tuple[bytes, bool, bool]] = field(repr=False, default_factory=dict)

    @property
    def vocab_size(self) -> int:
        return len(self.vocabulary.tokens)

    @property
    def bos(self) -> int | None:
        return self.vocabulary.bos

    @property
    def eos(self) -> int | None:
        return self.vocabulary.eos

    @property
    def eot(self) -> int | None:
        return self.vocabulary.eot

    @property
    def pad(self) -> int | None:
        return self.vocabulary.pad

    @property
    def unk(self) -> int | None:
        return self.vocabulary.unk

    def guarded(self, text: str, guard: str) -> str:
        """Text with a character inside what looks like control tokens: `encode` with that guard
        takes it for text."""
        parts = []
        for piece in self.all_special.split(text):
            word = piece if isinstance(piece, str) else self.token_text(piece)
            is_control = isinstance(piece, int) and self.is_special(piece)
            parts.append(word[:1] + guard + word[1:] if is_control else word)
        return "".join(parts)

    def encode(
        self, text: str, add_special: bool = True, parse_special: bool = True, guard: str = ""
    ) -> list[int]:
        """Ids of `text`.

        `add_special` puts the tokens around it that the model expects, BOS exactly once. With
        `parse_special` False, text that looks like a control token stays text: what users write
        cannot end a turn. `guard` is a character that is left out once control tokens are found:
        what is `guarded` stays text as well.
        """
        check_text(text)
        ids: list[int] = []
        fresh = True  # at the start, or after a token that was cut out
        for piece in (self.all_special if parse_special else self.user_defined).split(text):
            if isinstance(piece, int):
                ids.append(piece)
                fresh = True
                continue
            piece = piece.replace(guard, "") if guard else piece
            if ids and ids[-1] in self.strips_after and fresh:
                piece = piece.lstrip()
            if piece:
                ids += self.encode_text(" " + piece if self.space_prefix and fresh else piece)
                fresh = False
        return self.framed(ids) if add_special else ids

    def framed(self, ids: list[int]) -> list[int]:
        """BOS in front and EOS behind where the model wants them and they are not there yet."""
        front, back = self.bos, self.vocabulary.sep if self.vocabulary.model == "bert" else self.eos
        before = [front] if self.adds_bos and front is not None and ids[:1] != [front] else []
        behind = [back] if self.adds_eos and back is not None and ids[-1:] != [back] else []
        return before + ids + behind

    def encode_pair(
        self, first: str, second: str, most: int | None = None
    ) -> tuple[list[int], list[int]]:
        """Ids of two texts together, and which part each is of: only folders say how."""
        raise TextError(
            "encode_pair: a GGUF file does not say how two texts stand together",
            hint="load the model from a Hugging Face folder",
        )

    def decode(self, ids: Iterable[int], skip_special: bool = False) -> str:
        """Text of `ids`; bytes that are no UTF-8 become U+FFFD."""
        parts, fresh = [], True
        for i in ids:
            piece, fresh = self.piece(i, fresh, skip_special)
            parts.append(piece)
        return b"".join(parts).decode(errors="replace")

    def piece(self, i: int, fresh: bool, skip_special: bool) -> tuple[bytes, bool]:
        """The bytes of a token where it stands, and whether the next one stands fresh.

        `fresh`: at the start or after a special token, where encoding has put a space that is none
        of the text.
        """
        text, cut_out, special = self.pieces.get(i) or self.known(i)
        if cut_out:
            return b"" if special and skip_special else text, True
        return text[1:] if fresh and self.strips_space and text[:1] == b" " else text, False

    def known(self, i: int) -> tuple[bytes, bool, bool]:
        """Bytes of a token, whether encoding cuts it out first, whether it is special; remembered
        for decoding."""
        self.pieces[i] = found = (
            self.token_bytes(i),
            self.kind(i) in SPLIT_FIRST,
            self.is_special(i),
        )
        return found

    @property
    def strips_space(self) -> bool:
        return self.space_prefix or self.vocabulary.model in ("t5", "bert")

    def token_text(self, i: int) -> str:
        """The token as the vocabulary spells it."""
        return self.vocabulary.tokens[self.checked(i)]

    def token_bytes(self, i: int) -> bytes:
        """The bytes that the token stands for."""
        return self.bytes_of(self.vocabulary.tokens[self.checked(i)], self.vocabulary.kinds[i])

    def every_bytes(self) -> list[bytes]:
        """The bytes of all tokens, which is quicker than one by one."""
        return [
            self.bytes_of(*token)
            for token in zip(self.vocabulary.tokens, self.vocabulary.kinds, strict=True)
        ]

    def bytes_of(self, text: str, kind: int) -> bytes:
        if kind in SPLIT_FIRST:
            return text.encode()
        byte = byte_of(text) if kind == TokenKind.BYTE else None
        if byte is not None:
            return bytes([byte])
        return byte_level_bytes(text) if self.byte_level else piece_bytes(text)

    def is_special(self, i: int) -> bool:
        """Whether the token steers the model rather than being text: control and unknown tokens."""
        return self.kind(i) in SPECIAL

    def kind(self, i: int) -> int:
        return self.vocabulary.kinds[self.checked(i)]

    def checked(self, i: int) -> int:
        if isinstance(i, int | np.integer) and 0 <= i < self.vocab_size:
            return int(i)
        raise TextError(f"token id: expected an integer in 0 to {self.vocab_size - 1}, got {i!r}")


def check_text(text: str) -> None:
    if not isinstance(text, str):
        raise TextError(
            f"encode: expected str, got {type(text).__name__}",
            hint="decode bytes first: data.decode()",
        )
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise TextError(
            f"encode: character {error.start} is the lone surrogate "
            f"U+{ord(text[error.start]):04X}, which is no text",
            hint="it comes from bytes decoded with errors='surrogateescape', or from half of a "
            "UTF-16 pair",
        ) from None


def tokenizer_from_gguf(metadata: Mapping[str, object]) -> Tokenizer:
    """The tokeniser that the metadata of a GGUF file describes.

    >>> tokenizer = tokenizer_from_gguf({
    ...     "tokenizer.ggml.model": "llama",
    ...     "tokenizer.ggml.tokens": ["<unk>", "<s>", "</s>", "▁", "a", "▁a"],
    ...     "tokenizer.ggml.scores": [0, 0, 0, -2.0, -3.0, -1.0],
    ...     "tokenizer.ggml.token_type": [2, 3, 3, 1, 1, 1]})
    >>> tokenizer.encode("a a</s>"), tokenizer.decode([1, 5, 5])
    ([1, 5, 5, 2], '<s>a a')
    """
    check_extra("tokenizers", "a tokeniser")  # some texts load it only later
    vocabulary = read_vocabulary(metadata)
    prefix = bool_of(metadata, "add_space_prefix", vocabulary.model in ("llama", "t5"))
    pre = pre_tokenizer_of(metadata, vocabulary.model)
    by_text = special_tokens(vocabulary)
    normal = {
        text: i for text, i in by_text.items() if vocabulary.kinds[i] == TokenKind.USER_DEFINED
    }
    return Tokenizer(
        vocabulary=vocabulary,
        stop_ids=stop_ids(vocabulary),
        adds_bos=adds(
            metadata,
            vocabulary,
            "bos",
            vocabulary.model in ("llama", "bert") or bool(pre and pre.add_bos),
        ),
        adds_eos=adds(metadata, vocabulary, "eos", vocabulary.model in ("t5", "bert")),
        space_prefix=prefix and vocabulary.model == "llama",
        byte_level=pre is not None and pre.byte_level,
        strips_after=strips_after(metadata, by_text),
        encode_text=text_encoder(metadata, vocabulary, pre, prefix),
        all_special=Splitter(by_text),
        user_defined=Splitter(normal),
    )


def text_encoder(
    metadata: Mapping[str, object], vocabulary: Vocabulary, pre: PreTokenizer | None, prefix: bool
) -> Encoder:
    if pre is not None:
        return bpe_encoder(vocabulary, pre)
    if vocabulary.model == "llama":
        return ScoreEncoder(vocabulary)
    if vocabulary.model == "t5":
        squeeze = bool_of(metadata, "remove_extra_whitespaces", False)
        unigram = lazy.module("tetrad.text.unigram")  # which loads the library
        charsmap = charsmap_of(metadata)
        return unigram.unigram_encoder(vocabulary, charsmap, prefix=prefix, squeeze=squeeze)  # type: ignore[no-any-return]
    lowercase = bool_of(metadata, "normalizer.lowercase", True)
    accents = bool_of(metadata, "normalizer.strip_accents", lowercase)
    wordpiece = lazy.module("tetrad.text.wordpiece")
    return wordpiece.wordpiece_encoder(vocabulary, lowercase=lowercase, strip_accents=accents)  # type: ignore[no-any-return]


def bool_of(metadata: Mapping[str, object], name: str, default: bool) -> bool:
    value = entry(metadata, f"tokenizer.ggml.{name}", bool)
    return default if value is None else value


def pre_tokenizer_of(metadata: Mapping[str, object], model: str) -> PreTokenizer | None:
    """How words are cut before ranked merges; None for models without."""
    if model not in ("gpt2", "gemma4"):
        return None
    name = entry(metadata, "tokenizer.ggml.pre", str)
    if name is None and model == "gpt2":
        warnings.warn(
            "tokenizer.ggml.pre is missing: words are cut as in files of that age ('default'); "
            "tokens may be wrong. Convert the model again",
            stacklevel=3,
        )
    return pre_tokenizer("gemma4" if model == "gemma4" else name or "default")


def charsmap_of(metadata: Mapping[str, object]) -> bytes:
    value = metadata.get(CHARSMAP)
    if value is None:
        return b""
    if isinstance(value, bytes):
        return value
    array = number_array(CHARSMAP, value)
    if array.ndim != 1 or array.dtype.kind not in "iu":
        raise wrong(CHARSMAP, "an array of bytes", f"shape {array.shape} of {array.dtype}")
    return array.astype(np.uint8).tobytes()


def adds(metadata: Mapping[str, object], vocabulary: Vocabulary, name: str, default: bool) -> bool:
    """Whether BOS or EOS is added; a file that asks for a token must have it."""
    key = f"tokenizer.ggml.add_{name}_token"
    asked = entry(metadata, key, bool)
    if asked and getattr(vocabulary, name) is None and vocabulary.model != "bert":
        raise FileFormatError(
            f"is true, but tokenizer.ggml.{name}_token_id is missing", file="", part=key
        )
    return default if asked is None or vocabulary.model == "bert" else asked


def special_tokens(vocabulary: Vocabulary) -> dict[str, int]:
    """Text to id of the tokens that are cut out first."""
    found = {
        vocabulary.tokens[i]: i for i in vocabulary.ids_of(*SPLIT_FIRST) if vocabulary.tokens[i]
    }
    longest = max(map(len, found), default=0)
    if longest > MAX_SPECIAL_LENGTH:
        raise wrong(
            "tokenizer.ggml.tokens",
            f"special tokens of at most {MAX_SPECIAL_LENGTH} characters",
            longest,
        )
    return found


def strips_after(metadata: Mapping[str, object], by_text: dict[str, int]) -> frozenset[int]:
    """GGUF does not say which special tokens take the white space after them; Phi-3 is the one
    known model."""
    name = (entry(metadata, "general.name", str) or "").lower()
    if "phi-3" not in name and "phi3" not in name:
        return frozenset()
    return frozenset(i for text, i in by_text.items() if text not in NOT_STRIPPING)


def stop_ids(vocabulary: Vocabulary) -> frozenset[int]:
    """EOS, end of turn, and every control token whose name says that it ends one."""
    named = {vocabulary.tokens[i]: i for i in vocabulary.ids_of(TokenKind.CONTROL)}
    ends = {name: i for name, i in named.items() if name in END_NAMES}
    if {"<|return|>", "<|call|>"} <= ends.keys() or {"<|flush|>", "<|calls|>"} <= ends.keys():
        ends.pop("<|end|>", None)  # there it ends a message, and the turn goes on
    roles = {i for i in (vocabulary.eos, vocabulary.eot) if i is not None}
    return frozenset(ends.values()) | (
        roles if "<|return|>" not in ends else roles - {named.get("<|end|>")}
    )
