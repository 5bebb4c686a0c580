"""Text, tools, messages: calls and results in a conversation, as chat templates want them.

Receives messages as the OpenAI API has them; returns such with arguments as data, which templates
write themselves.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from tetrad.core.errors import SettingError
from tetrad.text.tools.family import Messages


def plain_messages(messages: Messages) -> list[Mapping[str, Any]]:
    """Calls with arguments as data; content that is None beside calls is empty text."""
    return [with_calls(m, f"messages[{i}]") for i, m in enumerate(messages)]


def with_calls(message: Mapping[str, Any], place: str) -> Mapping[str, Any]:
    if not isinstance(message, Mapping) or not message.get("tool_calls"):
        return message
    calls = message["tool_calls"]
    if not isinstance(calls, list | tuple):
        raise SettingError(f"{place}.tool_calls", "a list of calls", calls)
    found = [plain_call(call, f"{place}.tool_calls[{i}]") for i, call in enumerate(calls)]
    content = message.get("content")
    return {**message, "content": "" if content is None else content, "tool_calls": found}


def plain_call(call: object, place: str) -> Mapping[str, Any]:
    given = call if isinstance(call, Mapping) else {}
    function = given.get("function")
    if not isinstance(function, Mapping) or not isinstance(function.get("name"), str):
        expected = '{"id": ..., "type": "function", "function": {"name": ..., "arguments": ...}}'
        raise SettingError(place, expected, call)
    arguments = parsed(function.get("arguments"))
    return {**given, "type": "function", "function": {**function, "arguments": arguments}}


def parsed(arguments: object) -> object:
    """Arguments as data; text that is no JSON object stays text.

    >>> parsed('{"a": 1}'), parsed(None), parsed("{oops")
    ({'a': 1}, {}, '{oops')
    """
    if arguments is None or arguments == "":
        return {}
    if not isinstance(arguments, str):
        return arguments
    try:
        found = json.loads(arguments)
    except (ValueError, RecursionError):
        return arguments
    return found if isinstance(found, dict) else arguments


def written(value: object) -> str:
    """JSON as the templates write it."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
