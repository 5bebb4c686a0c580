"""Compat, tokenisers: texts to tokens and back, by the file of a model or by Hugging Face's."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, Protocol

from tetrad.core.extras import extra


class TokenSource(Protocol):
    """What a tokeniser needs of a `Llama`."""

    def tokenize(self, text: bytes, add_bos: bool = True, special: bool = False) -> list[int]: ...

    def detokenize(
        self, tokens: Sequence[int], prev_tokens: Sequence[int] | None = None, special: bool = False
    ) -> bytes: ...


class BaseLlamaTokenizer(ABC):
    @abstractmethod
    def tokenize(self, text: bytes, add_bos: bool = True, special: bool = True) -> list[int]:
        """The tokens of a text in UTF-8."""

    @abstractmethod
    def detokenize(
        self, tokens: Sequence[int], prev_tokens: Sequence[int] | None = None, special: bool = False
    ) -> bytes:
        """The bytes of tokens, after those before them."""


class LlamaTokenizer(BaseLlamaTokenizer):
    """The tokeniser of a `Llama` alone."""

    def __init__(self, llama: TokenSource) -> None:
        self.llama = llama

    def tokenize(self, text: bytes, add_bos: bool = True, special: bool = True) -> list[int]:
        return self.llama.tokenize(text, add_bos, special)

    def detokenize(
        self, tokens: Sequence[int], prev_tokens: Sequence[int] | None = None, special: bool = False
    ) -> bytes:
        return self.llama.detokenize(tokens, prev_tokens, special)

    def encode(self, text: str, add_bos: bool = True, special: bool = True) -> list[int]:
        return self.tokenize(text.encode("utf-8", errors="ignore"), add_bos, special)

    def decode(self, tokens: Sequence[int]) -> str:
        return self.detokenize(tokens).decode("utf-8", errors="ignore")


class LlamaHFTokenizer(BaseLlamaTokenizer):
    """A tokeniser of the package transformers."""

    def __init__(self, hf_tokenizer: Any) -> None:
        self.hf_tokenizer = hf_tokenizer

    @classmethod
    def from_pretrained(cls, pretrained_model_name_or_path: str) -> LlamaHFTokenizer:
        package = extra("transformers", "LlamaHFTokenizer", "transformers")
        return cls(package.AutoTokenizer.from_pretrained(pretrained_model_name_or_path))

    def tokenize(self, text: bytes, add_bos: bool = True, special: bool = True) -> list[int]:
        said = text.decode("utf-8", errors="ignore")
        return list(self.hf_tokenizer.encode(said, add_special_tokens=special))

    def detokenize(
        self, tokens: Sequence[int], prev_tokens: Sequence[int] | None = None, special: bool = False
    ) -> bytes:
        before = list(prev_tokens or ())
        whole, known = self._bytes([*before, *tokens], special), self._bytes(before, special)
        return whole[len(known) :]

    def _bytes(self, tokens: list[int], special: bool) -> bytes:
        said = self.hf_tokenizer.decode(tokens, skip_special_tokens=not special)
        return str(said).encode("utf-8", errors="ignore")
