"""Text, tools, generic: tools for models whose chat template knows none.

The tools are told to the model in the system message, one JSON object a line; calls are written as
Hermes and Qwen write them, and results come back in a message of the user:

    <tool_call>
    {"name": "weather", "arguments": {"city": "Oslo"}}
    </tool_call>
    <tool_response>
    {"name": "weather", "content": "-3 degrees"}
    </tool_response>
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from tetrad.core.record import record
from tetrad.text.tools.definitions import Tool
from tetrad.text.tools.family import Messages
from tetrad.text.tools.hermes import CLOSE, OPEN, HermesCalls
from tetrad.text.tools.incoming import Incoming, Output, Steps
from tetrad.text.tools.lark import Lark
from tetrad.text.tools.messages import written

NO_SYSTEM = re.compile(r"raise_exception\([^)]*[Ss]ystem")
TOLD = """You can call these functions. Each line describes one as JSON:
{tools}

To call a function, write nothing but its name and its arguments as JSON, like this:
{open}
{{"name": "the name", "arguments": {{"parameter": "value"}}}}
{close}
For several calls write several such blocks. Call a function only if it helps; otherwise answer \
as usual."""


@record
class GenericCalls:
    """Hermes' way of writing, told to the model by us. `has_system`: the template takes a system
    message."""

    has_system: bool = True
    form: HermesCalls = HermesCalls()
    name: str = "generic"
    opens: tuple[str, ...] = (OPEN,)
    marks: tuple[str, ...] = (OPEN, CLOSE)
    is_bare: bool = False
    is_single: bool = False

    @staticmethod
    def of(template: str) -> GenericCalls:
        return GenericCalls(NO_SYSTEM.search(template) is None)

    def read(self, source: Incoming, output: Output, mark: str) -> Steps[bool]:
        return self.form.read(source, output, mark)

    def calls(self, lark: Lark, tools: Sequence[Tool], parallel: bool) -> str:
        return self.form.calls(lark, tools, parallel)

    def prepared(self, messages: Messages, tools: Sequence[Tool]) -> tuple[Messages, Any]:
        if not tools and not any(m.get("tool_calls") or m["role"] == "tool" for m in messages):
            return messages, None
        told = told_to(messages, instructions(tools), self.has_system) if tools else messages
        return as_text(told), None


def instructions(tools: Sequence[Tool]) -> str:
    lines = "\n".join(written(tool.source["function"]) for tool in tools)
    return TOLD.format(tools=lines, open=OPEN, close=CLOSE)


def told_to(messages: Messages, text: str, has_system: bool) -> list[Mapping[str, Any]]:
    """The messages, with a text in that of the system, or before the first one of the user."""
    found = list(messages)
    role = "system" if has_system else "user"
    if found and found[0].get("role") == role and isinstance(found[0].get("content"), str):
        said = found[0]["content"]
        both = f"{said}\n\n{text}" if has_system else f"{text}\n\n{said}"
        return [{**found[0], "content": both}, *found[1:]]
    return [{"role": role, "content": text}, *found]


def as_text(messages: Messages) -> list[Mapping[str, Any]]:
    """Calls and results as text; results that follow each other, and what the user says after them,
    are one message, as many templates want turns to alternate."""
    found: list[Mapping[str, Any]] = []
    was_result = False
    for message in messages:
        shown, is_result = shown_as_text(message), message.get("role") == "tool"
        if was_result and shown["role"] == "user" and isinstance(shown.get("content"), str):
            found[-1] = {**found[-1], "content": f"{found[-1]['content']}\n{shown['content']}"}
        else:
            found.append(shown)
            was_result = is_result
    return found


def shown_as_text(message: Mapping[str, Any]) -> Mapping[str, Any]:
    if message.get("role") == "tool":
        result = written(message.get("content"))
        if isinstance(message.get("name"), str):
            result = f'{{"name": "{message["name"]}", "content": {written(result)}}}'
        return {"role": "user", "content": f"<tool_response>\n{result}\n</tool_response>"}
    if not message.get("tool_calls"):
        return message
    blocks = [call_block(call["function"]) for call in message["tool_calls"]]
    content = message.get("content")
    said = [content] if isinstance(content, str) and content else []
    return {"role": "assistant", "content": "\n".join([*said, *blocks])}


def call_block(function: Mapping[str, Any]) -> str:
    shown = f'{{"name": "{function["name"]}", "arguments": {written(function["arguments"])}}}'
    return f"{OPEN}\n{shown}\n{CLOSE}"
