"""Compat, grammars: what an answer may be, as llama-cpp-python passes it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tetrad.compat.arguments import closed


class LlamaGrammar:
    """A grammar for `grammar=`: GBNF text, or a JSON schema."""

    def __init__(
        self, text: str | None = None, schema: Any = None, *, _grammar: str | None = None
    ) -> None:
        self.text, self.schema = _grammar if text is None else text, schema

    @classmethod
    def from_string(cls, grammar: str, verbose: bool = True) -> LlamaGrammar:
        return cls(text=grammar)

    @classmethod
    def from_file(cls, file: str | Path, verbose: bool = True) -> LlamaGrammar:
        return cls(text=Path(file).read_text(encoding="utf-8"))

    @classmethod
    def from_json_schema(cls, json_schema: str, verbose: bool = True) -> LlamaGrammar:
        return cls(schema=closed(json.loads(json_schema)))


JSON_GBNF = r"""
root ::= object
value ::= object | array | string | number | ("true" | "false" | "null") ws
object ::= "{" ws (string ":" ws value ("," ws string ":" ws value)*)? "}" ws
array ::= "[" ws (value ("," ws value)*)? "]" ws
string ::= "\"" ([^"\\\x7F\x00-\x1F] | "\\" (["\\bfnrt/] | "u" hex hex hex hex))* "\"" ws
hex ::= [0-9a-fA-F]
number ::= "-"? ("0" | [1-9] [0-9]*) ("." [0-9]+)? ([eE] [-+]? [0-9]+)? ws
ws ::= [ \t\n]*
"""  # any object
