"""Text, tools, llama: Llama 3.1 and later: an answer that is a JSON object is a call; so is one
after `<|python_tag|>`.

    {"name": "weather", "parameters": {"city": "Oslo"}}
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tetrad.core.record import record
from tetrad.text.tools.definitions import Tool
from tetrad.text.tools.family import Messages
from tetrad.text.tools.hermes import object_rules
from tetrad.text.tools.incoming import Incoming, Output, Steps
from tetrad.text.tools.lark import Lark
from tetrad.text.tools.reading import json_call

TAG = "<|python_tag|>"


@record
class LlamaCalls:
    """`is_single`: the template takes one call a message."""

    is_single: bool = False
    name: str = "llama"
    opens: tuple[str, ...] = (TAG,)
    marks: tuple[str, ...] = (TAG,)
    is_bare: bool = True

    @staticmethod
    def of(template: str) -> LlamaCalls:
        return LlamaCalls("single tool-call" in template)

    def read(self, source: Incoming, output: Output, mark: str) -> Steps[bool]:
        """Calls, with semicolons between several."""
        is_read = False
        while (yield from source.space()) == "{":
            if not (yield from json_call(source, output)):
                return False
            is_read = True
            yield from source.space()
            yield from source.takes(";")
        return is_read

    def calls(self, lark: Lark, tools: Sequence[Tool], parallel: bool) -> str:
        one = lark.rule("one", object_rules(lark, tools, "parameters"))
        return f'{one} ("; " {one})*' if parallel else one

    def prepared(self, messages: Messages, tools: Sequence[Tool]) -> tuple[Messages, Any]:
        found = list(one_by_one(messages)) if self.is_single else messages
        return found, [tool.source for tool in tools] or None


def one_by_one(messages: Messages) -> Iterator[Mapping[str, Any]]:
    """Messages with several calls as several messages, each before its result."""
    waiting: list[Mapping[str, Any]] = []  # messages of calls whose results are still to come
    for message in messages:
        if message.get("role") == "tool":
            if waiting:
                yield waiting.pop(of_result(waiting, message))
            yield message
            continue
        yield from waiting
        calls = message.get("tool_calls") or [None]
        waiting = [{**message, "tool_calls": [call]} for call in calls] if len(calls) > 1 else []
        if not waiting:
            yield message
    yield from waiting


def of_result(waiting: Sequence[Mapping[str, Any]], result: Mapping[str, Any]) -> int:
    """Which call a result belongs to: by its id, or in order."""
    ids = [message["tool_calls"][0].get("id") for message in waiting]
    wanted = result.get("tool_call_id")
    return ids.index(wanted) if wanted is not None and wanted in ids else 0
