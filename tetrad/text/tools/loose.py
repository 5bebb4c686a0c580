"""Text, tools, loose: the grammar of a JSON schema for values that are not written as JSON.

Receives a schema, checked; adds rules to a `Lark`. Keys stand without quotes, in the order of the
schema, and texts between marks; numbers are those of JSON.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from tetrad.text.tools.definitions import pointed
from tetrad.text.tools.lark import ANYTHING, Lark, escaped, literal, token_of

ANY = ("string", "number", "boolean", "null")
MOST_ITEMS = 64  # of a list that has no bound


class LooseSchema:
    """Rules for the parts of one schema. What it refers to is a rule as well, made once."""

    def __init__(self, lark: Lark, quote: str, root: Mapping[str, Any], name: str) -> None:
        self.lark, self.quote, self.root, self.name = lark, quote, root, name
        self.count = 0
        self.referred: dict[str, str] = {}

    def fresh(self) -> str:
        self.count += 1
        return f"{self.name}_{self.count}"

    def value(self, schema: Any) -> str:
        """The name of a rule for a value that fits."""
        if not isinstance(schema, Mapping):
            schema = {}
        if "$ref" in schema:
            return self.reference(schema["$ref"])
        if "const" in schema or "enum" in schema:
            choices = [schema["const"]] if "const" in schema else schema["enum"]
            return self.lark.rule(self.fresh(), " | ".join(map(self.written, choices)))
        for word in ("anyOf", "oneOf"):
            if word in schema:
                return self.lark.rule(self.fresh(), " | ".join(map(self.value, schema[word])))
        if "allOf" in schema:
            return self.value(merged(schema))
        kinds = schema.get("type", "object" if "properties" in schema else ANY)
        kinds = [kinds] if isinstance(kinds, str) else kinds
        return self.lark.rule(self.fresh(), " | ".join(self.kind(k, schema) for k in kinds))

    def reference(self, pointer: str) -> str:
        if pointer not in self.referred:
            self.referred[pointer] = name = self.fresh()
            self.lark.rule(name, self.value(pointed(self.root, pointer)))
        return self.referred[pointer]

    def kind(self, kind: str, schema: Mapping[str, Any]) -> str:
        if kind == "string":
            return self.text(schema.get("minLength", 0), schema.get("maxLength", ""))
        if kind == "array":
            return self.listed(schema)
        if kind == "object":
            return self.members(schema)
        return self.lark.json(self.fresh(), {**schema, "type": kind})

    def text(self, least: int, most: int | str) -> str:
        """A text between marks; lazy, so that it ends with the first."""
        size = f"{{{least},{most}}}"
        token, mark = token_of(self.lark.tokenizer, self.quote), self.lark.mark(self.quote)
        if token is not None and self.lark.tokenizer.is_special(token):
            never = f"~/{ANYTHING}*{escaped(self.quote)}{ANYTHING}*/"
            body = self.lark.rule(self.fresh().upper(), f"/{ANYTHING}{size}/ & {never}")
            return f"{mark} {body} {mark}"
        rest = self.lark.rule(f"{self.fresh()}[lazy]", f"/{ANYTHING}{size}{escaped(self.quote)}/")
        return f"{mark} {rest}"

    def listed(self, schema: Mapping[str, Any]) -> str:
        least, most = schema.get("minItems", 0), schema.get("maxItems", MOST_ITEMS)
        one = self.value(schema.get("items", {}))
        if most <= 0:
            return '"[" "]"'
        more = f'("," {one}){{{max(0, least - 1)},{most - 1}}}' if most > 1 else ""
        body = f"{one} {more}"
        return f'"[" {body} "]"' if least else f'"[" ({body})? "]"'

    def members(self, schema: Mapping[str, Any]) -> str:
        """Members in order, with commas between those that are there."""
        rest = first = '""'
        required = schema.get("required", ())
        for key, part in reversed(list(schema.get("properties", {}).items())):
            member = f"{literal(key + ':')} {self.value(part)}"
            skips, skipped = (f" | {first}", f" | {rest}") if key not in required else ("", "")
            first, rest = (
                self.lark.rule(self.fresh(), f"{member} {rest}{skips}"),
                self.lark.rule(self.fresh(), f'"," {member} {rest}{skipped}'),
            )
        return f'"{{" {first} "}}"'

    def written(self, value: Any) -> str:
        """A value as it stands."""
        if isinstance(value, str):
            mark = self.lark.mark(self.quote)
            return f"{mark} {literal(value)} {mark}"
        return literal(json.dumps(value))


def merged(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Parts that must all hold, as far as their members go."""
    found = {word: part for word, part in schema.items() if word != "allOf"}
    for part in schema["allOf"]:
        if isinstance(part, Mapping):
            members = {**found.get("properties", {}), **part.get("properties", {})}
            required = [*found.get("required", ()), *part.get("required", ())]
            found = {**found, **part, "properties": members, "required": required}
    return found
