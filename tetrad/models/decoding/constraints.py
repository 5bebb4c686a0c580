"""Models, constraints: grammars and JSON schemas as masks over the vocabulary, through the
`llguidance` library.

Receives a grammar and the tokens chosen so far, returns which tokens may come next, as the words of
bits that the op `sample` takes. The library is an extra, loaded when a request first has a grammar.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from tetrad.core.errors import SettingError, UnsupportedError
from tetrad.core.extras import extra
from tetrad.models.decoding.sampling import mask_words
from tetrad.text.vocabulary import TokenKind

if TYPE_CHECKING:
    from tetrad.text.tokenizer import Tokenizer

# of a grammar; plain text may be GBNF or Lark, it can be told which
KINDS = ("gbnf", "lark", "regex")
UNFOLLOWED = "it leads to a place from which no text completes it, or is too large"
# Between the parts of JSON: as in llama.cpp, so that a model cannot write spaces for ever.
JSON_SPACE = {"whitespace_flexible": True, "whitespace_pattern": r"( |\n{1,2}[ \t]{0,20})"}
NEVER = (TokenKind.UNUSED, TokenKind.CONTROL, TokenKind.UNKNOWN)  # tokens that are no text


ESCAPE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|.)", re.DOTALL)


def spelt_out(gbnf: str) -> str:
    r"""Characters that GBNF names by numbers of four or eight digits, which the library does not
    know, as themselves.

    >>> spelt_out(r'root ::= "\u00e9" [\u4e00-\u9fff] "\\u00e9"')
    'root ::= "é" [一-鿿] "\\\\u00e9"'
    """

    def character(match: re.Match[str]) -> str:
        number = int(match[1] or match[2] or "0", 16)
        if number < 0x80:  # a quote, a bracket: two digits keep it apart
            return f"\\x{number:02x}" if match[1] or match[2] else match[0]
        return match[0] if number > sys.maxunicode or 0xD800 <= number < 0xE000 else chr(number)

    return ESCAPE.sub(character, gbnf)


class Constraint(Protocol):
    """What restricts the tokens of an answer: asked before each token, told of each."""

    def mask(self) -> np.ndarray | None:
        """u32[1, words]: a bit for every token that may come; None when the text is complete."""

    def accept(self, token: int) -> None:
        """The token has come."""

    def forced(self) -> list[int]:
        """Tokens that spell what must come next; a draft, as other tokens may spell the same."""


class GrammarConstraint:
    """A grammar in the middle of a text."""

    def __init__(self, matcher: Any, words: int) -> None:
        self.matcher = matcher
        self.words = np.zeros((1, words), np.uint32)

    def mask(self) -> np.ndarray | None:
        if self.matcher.is_stopped():
            self._check()
            return None
        self.matcher.unsafe_compute_mask_ptr(self.words.ctypes.data, self.words.nbytes)
        self._check()
        return self.words

    def accept(self, token: int) -> None:
        self.matcher.consume_token(token)
        self._check()

    def forced(self) -> list[int]:
        return [] if self.matcher.is_stopped() else list(self.matcher.compute_ff_tokens())

    def _check(self) -> None:
        if self.matcher.is_error():
            # what follows is a dump of the library's
            said = self.matcher.get_error().partition("<state>")[0].strip()
            raise SettingError("grammar", "one that can be followed", said[:300], hint=UNFOLLOWED)


class Grammars:
    """Makes constraints for one vocabulary; what they share is made once."""

    def __init__(self, tokenizer: Tokenizer, vocab: int) -> None:
        self.tokenizer, self.vocab = tokenizer, vocab

    @cached_property
    def library(self) -> Any:
        return extra("llguidance", "a grammar or JSON schema")

    @cached_property
    def vocabulary(self) -> Any:
        """The tokens as the library wants them."""
        ends = sorted(self.tokenizer.stop_ids)
        if not ends:
            raise UnsupportedError(
                "the model has no token that ends an answer, so it cannot follow a grammar"
            )
        wrapped = self.library.TokenizerWrapper(Bytes(self.tokenizer, self.vocab, ends[0]))
        return self.library.LLTokenizer(wrapped, n_vocab=self.vocab, eos_token=ends)

    def constraint(
        self, grammar: str | Mapping[str, str] | None, json_schema: Any = None
    ) -> Constraint | None:
        """What was asked for, or None. A grammar is text (GBNF or Lark), or a mapping: {"regex":
        "[a-z]+"}."""
        if grammar is not None and json_schema is not None:
            raise SettingError("grammar", "either a grammar or a json_schema", "both")
        if grammar is None and json_schema is None:
            return None
        name = "json_schema" if grammar is None else "grammar"
        text = self._schema(json_schema) if grammar is None else self._grammar(grammar)
        matcher = self.library.LLMatcher(self.vocabulary, text, log_level=0)
        if matcher.is_error():
            raise SettingError(
                name,
                "one that is valid",
                grammar or json_schema,
                hint=matcher.get_error().strip()[:300],
            )
        return GrammarConstraint(matcher, mask_words(self.vocab))

    def _grammar(self, grammar: str | Mapping[str, str]) -> str:
        given = {"gbnf": grammar} if isinstance(grammar, str) else grammar
        kind, text = next(iter(given.items()), ("", "")) if isinstance(given, Mapping) else ("", "")
        if kind not in KINDS or not isinstance(text, str) or len(given) != 1:
            raise SettingError(
                "grammar", f"text, or a mapping with one of {', '.join(KINDS)}", grammar
            )
        try:
            return self.library.grammar_from(kind, spelt_out(text) if kind == "gbnf" else text)  # type: ignore[no-any-return]
        except ValueError as error:
            raise SettingError(
                "grammar", "one that is valid", text, hint=str(error)[:300]
            ) from None

    def _schema(self, schema: Any) -> str:
        """A schema as text or as data; True is any JSON object."""
        found: Any = {"type": "object"} if schema is True else schema
        try:
            found = json.loads(found) if isinstance(found, str) else found
            text: str = self.library.LLMatcher.grammar_from_json_schema(
                json.dumps(found), defaults=JSON_SPACE
            )
            return text
        except (ValueError, TypeError) as error:
            raise SettingError(
                "json_schema", "a JSON schema", schema, hint=str(error)[:300]
            ) from None


class Bytes:
    """A tokeniser as `llguidance` sees one: the bytes of every token, and those that are no
    text."""

    def __init__(self, tokenizer: Tokenizer, vocab: int, end: int) -> None:
        known = tokenizer.vocab_size
        self.tokenizer = tokenizer
        self.tokens = tokenizer.every_bytes() + [b""] * (vocab - known)
        self.special_token_ids = [i for i in range(known) if tokenizer.kind(i) in NEVER]
        self.bos_token_id, self.eos_token_id = tokenizer.bos, end

    def __call__(self, text: str) -> list[int]:
        return self.tokenizer.encode(text, add_special=False, parse_special=False)
