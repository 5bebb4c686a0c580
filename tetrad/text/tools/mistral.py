"""Text, tools, mistral: `[TOOL_CALLS]` and then a list, or, from version 11 on, a name and
arguments.

    [TOOL_CALLS][{"name": "weather", "arguments": {"city": "Oslo"}}]
    [TOOL_CALLS]weather[ARGS]{"city": "Oslo"}
    [TOOL_CALLS]weather[CALL_ID]abcdefghi[ARGS]{"city": "Oslo"}
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from typing import Any

from tetrad.core.record import record
from tetrad.text.tools.definitions import NAME, Tool
from tetrad.text.tools.events import LETTERS
from tetrad.text.tools.family import Messages
from tetrad.text.tools.hermes import object_rules
from tetrad.text.tools.incoming import Incoming, Output, Steps
from tetrad.text.tools.lark import Lark, literal
from tetrad.text.tools.reading import json_calls, json_value

OPEN, CALL_ID, ARGS = "[TOOL_CALLS]", "[CALL_ID]", "[ARGS]"
LETTERS_AND_DIGITS = re.compile(r"[A-Za-z0-9]*")
ID = re.compile(r"[A-Za-z0-9]{9}")


@record
class MistralCalls:
    """`is_named`: a name and its arguments stand behind each mark; `has_ids`: an id between
    them."""

    is_named: bool = False
    has_ids: bool = False
    name: str = "mistral"
    opens: tuple[str, ...] = (OPEN,)
    marks: tuple[str, ...] = (OPEN, CALL_ID, ARGS)
    is_bare: bool = False
    is_single: bool = False

    @staticmethod
    def of(template: str) -> MistralCalls:
        return MistralCalls(ARGS in template, CALL_ID in template)

    def read(self, source: Incoming, output: Output, mark: str) -> Steps[bool]:
        if (yield from source.space()) in ("[", "{"):
            return (yield from json_calls(source, output))
        name = yield from source.word(NAME, 64)
        if name not in output.names:
            return False
        source.take(len(name))
        id = ""
        if (yield from source.takes(CALL_ID)):
            id = yield from source.word(LETTERS_AND_DIGITS, 64)
            source.take(len(id))
        yield from source.takes(ARGS)
        if (yield from source.space()) != "{":
            return False
        output.begin(name, id)
        is_read = yield from json_value(source, output.arguments)
        if is_read:
            output.end()
        return is_read

    def calls(self, lark: Lark, tools: Sequence[Tool], parallel: bool) -> str:
        if not self.is_named:
            one = lark.rule("one", object_rules(lark, tools, "arguments"))
            return f'" "? "[" {one} (", " {one})* "]"' if parallel else f'" "? "[" {one} "]"'
        between = f"{lark.mark(CALL_ID)} /{ID.pattern}/ " if self.has_ids else ""
        for i, tool in enumerate(tools):
            body = lark.json(f"arguments_{i}", tool.parameters)
            lark.rule(f"call_{i}", f"{literal(tool.name)} {between}{lark.mark(ARGS)} {body}")
        one = lark.rule("one", " | ".join(f"call_{i}" for i in range(len(tools))))
        return f"{one} ({lark.mark(OPEN)} {one})*" if parallel else one

    def prepared(self, messages: Messages, tools: Sequence[Tool]) -> tuple[Messages, Any]:
        return [with_ids(message) for message in messages], [tool.source for tool in tools] or None


def with_ids(message: Mapping[str, Any]) -> Mapping[str, Any]:
    """The templates want ids of nine letters and digits: others are made into such."""
    if message.get("tool_calls"):
        calls = [{**call, "id": short_id(call.get("id"))} for call in message["tool_calls"]]
        return {**message, "tool_calls": calls}
    if message.get("role") == "tool":
        return {**message, "tool_call_id": short_id(message.get("tool_call_id"))}
    return message


def short_id(given: object) -> str:
    """
    >>> short_id("abcdefghi"), len(short_id("call_17"))
    ('abcdefghi', 9)
    """
    if isinstance(given, str) and ID.fullmatch(given):
        return given
    digest = hashlib.sha256(str(given).encode(errors="replace")).digest()
    return "".join(LETTERS[byte % len(LETTERS)] for byte in digest[:9])
