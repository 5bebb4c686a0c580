"""Text, tools, lark: the rules of a grammar for llguidance, put together.

Receives the tokens of a vocabulary that are marks; returns pieces of Lark. A mark that is one token
is written as that token: the library holds control tokens apart from text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

from tetrad.text.tokenizer import Tokenizer

# Between the parts of JSON, so that a model cannot write spaces for ever.
JSON_SPACE = {"whitespace_flexible": True, "whitespace_pattern": r"( |\n{1,2}[ \t]{0,20})"}
ANYTHING = r"(.|\n)"


class Lark:
    """Rules by name, and what marks are in one vocabulary."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.tokenizer = tokenizer
        self.rules: dict[str, str] = {}

    def rule(self, name: str, body: str) -> str:
        """Gives a rule its name, which is returned."""
        self.rules[name] = body
        return name.partition("[")[0]

    def mark(self, text: str) -> str:
        """A mark: its token, or its letters."""
        token = token_of(self.tokenizer, text)
        return literal(text) if token is None else f"<[{token}]>"

    def until(self, name: str, mark: str, never: Iterable[str] = ()) -> str:
        """Any text, and the mark behind it. The text does not begin with what the expressions in
        `never` say."""
        token = token_of(self.tokenizer, mark)
        excluded = "".join(f" & ~/{one}{ANYTHING}*/" for one in never)
        if token is not None and self.tokenizer.is_special(token):
            text = f"/{ANYTHING}+/ & ~/{ANYTHING}*{escaped(mark)}{ANYTHING}*/{excluded}"
            before = self.rule(name.upper(), text)
            return self.rule(name, f"{before}? <[{token}]>")
        return self.rule(f"{name}[lazy]", f"/{ANYTHING}*{escaped(mark)}/{excluded}")

    def text_without(self, name: str, marks: Iterable[str], never: Iterable[str] = ()) -> str:
        """Any text, to the end of the answer, that holds none of the marks."""
        held = "".join(f" & ~/{ANYTHING}*{escaped(mark)}{ANYTHING}*/" for mark in marks)
        excluded = "".join(f" & ~/{one}{ANYTHING}*/" for one in never)
        return self.rule(name.upper(), f"/{ANYTHING}*/{held}{excluded}")

    def json(self, name: str, schema: Mapping[str, Any], is_lenient: bool = True) -> str:
        """A value that fits a schema; where `is_lenient`, but for words that cannot be followed."""
        how = {**JSON_SPACE, "lenient": is_lenient}
        return self.rule(name, "%json " + json.dumps({"x-guidance": how, **schema}))

    def text(self, start: str) -> str:
        """The whole grammar."""
        rules = {"start": start, **self.rules}
        return "".join(f"{name}: {body}\n" for name, body in rules.items())


def token_of(tokenizer: Tokenizer, text: str) -> int | None:
    """The token that is this text, cut out before others; None where it is several."""
    found = list(tokenizer.all_special.split(text))
    return found[0] if len(found) == 1 and isinstance(found[0], int) else None


def literal(text: str) -> str:
    r"""
    >>> literal('say "a"\n')
    '"say \\"a\\"\\n"'
    """
    return json.dumps(text, ensure_ascii=False)


def escaped(text: str) -> str:
    r"""Text in a regular expression between slashes.

    >>> escaped("</a|b>")
    '<\\/a\\|b>'
    """
    return re.sub(r"([\\/.^$*+?()\[\]{}|])", r"\\\1", text)
