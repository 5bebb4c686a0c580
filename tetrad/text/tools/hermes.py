"""Text, tools, hermes: `<tool_call>` and `</tool_call>` around JSON, as Hermes, Qwen and many after
them write calls.

    <tool_call>
    {"name": "weather", "arguments": {"city": "Oslo"}}
    </tool_call>
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tetrad.core.record import record
from tetrad.text.tools.definitions import Tool
from tetrad.text.tools.family import Messages
from tetrad.text.tools.incoming import Incoming, Output, Steps
from tetrad.text.tools.lark import Lark, literal
from tetrad.text.tools.reading import closed_calls

OPEN, CLOSE = "<tool_call>", "</tool_call>"


@record
class HermesCalls:
    """Each call in a block of its own; a list in a block is read as well."""

    name: str = "hermes"
    opens: tuple[str, ...] = (OPEN,)
    marks: tuple[str, ...] = (OPEN, CLOSE)
    is_bare: bool = False
    is_single: bool = False

    def read(self, source: Incoming, output: Output, mark: str) -> Steps[bool]:
        return (yield from closed_calls(source, output, CLOSE))

    def calls(self, lark: Lark, tools: Sequence[Tool], parallel: bool) -> str:
        body = object_rules(lark, tools, "arguments")
        one = lark.rule("block", f'"\\n" ({body}) "\\n" {lark.mark(CLOSE)}')
        return f'{one} ("\\n" {lark.mark(OPEN)} {one})*' if parallel else one

    def prepared(self, messages: Messages, tools: Sequence[Tool]) -> tuple[Messages, Any]:
        return messages, [tool.source for tool in tools] or None


def object_rules(lark: Lark, tools: Sequence[Tool], key: str) -> str:
    """One call of any of the tools, as an object; `key` is that of its arguments."""
    for i, tool in enumerate(tools):
        before = literal(f'{{"name": "{tool.name}", "{key}": ')
        lark.rule(f"call_{i}", f'{before} {lark.json(f"arguments_{i}", tool.parameters)} "}}"')
    return " | ".join(f"call_{i}" for i in range(len(tools)))
