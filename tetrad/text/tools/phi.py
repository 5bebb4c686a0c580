"""Text, tools, phi: Phi-4-mini: a list of calls between `<|tool_call|>` and `<|/tool_call|>`.

    <|tool_call|>[{"name": "weather", "arguments": {"city": "Oslo"}}]<|/tool_call|>

Its template takes the tools as text, in the system message, and knows no calls: they are written
into the content here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tetrad.core.record import record
from tetrad.text.tools.definitions import Tool
from tetrad.text.tools.family import Messages
from tetrad.text.tools.hermes import object_rules
from tetrad.text.tools.incoming import Incoming, Output, Steps
from tetrad.text.tools.lark import Lark
from tetrad.text.tools.messages import written
from tetrad.text.tools.reading import closed_calls

OPEN, CLOSE = "<|tool_call|>", "<|/tool_call|>"


@record
class PhiCalls:
    """All calls in one list."""

    name: str = "phi"
    opens: tuple[str, ...] = (OPEN,)
    marks: tuple[str, ...] = (OPEN, CLOSE)
    is_bare: bool = False
    is_single: bool = False

    def read(self, source: Incoming, output: Output, mark: str) -> Steps[bool]:
        return (yield from closed_calls(source, output, CLOSE))

    def calls(self, lark: Lark, tools: Sequence[Tool], parallel: bool) -> str:
        one = lark.rule("one", object_rules(lark, tools, "arguments"))
        more = f'(", " {one})*' if parallel else ""
        return f'"[" {one} {more} "]" {lark.mark(CLOSE)}'

    def prepared(self, messages: Messages, tools: Sequence[Tool]) -> tuple[Messages, Any]:
        found = [with_list(message) for message in messages]
        if not tools:
            return found, None
        if not found or found[0].get("role") != "system":
            found.insert(0, {"role": "system", "content": ""})
        listed = written([tool.source["function"] for tool in tools])
        return [{**found[0], "tools": listed}, *found[1:]], None


def with_list(message: Mapping[str, Any]) -> Mapping[str, Any]:
    """A message with its calls written into its content."""
    if not message.get("tool_calls"):
        return message
    calls = [call["function"] for call in message["tool_calls"]]
    listed = written([{"name": c["name"], "arguments": c["arguments"]} for c in calls])
    rest = {name: value for name, value in message.items() if name != "tool_calls"}
    return {**rest, "content": f"{message.get('content') or ''}{OPEN}{listed}{CLOSE}"}
