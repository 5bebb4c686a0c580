"""Conversations, and chat templates written after those of the families that run here: what the
goldens of `transformers` are made from. Imports nothing but the standard library."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
GOLDENS = HERE / "goldens" / "chat_templates.json"
SOURCES = {p.stem: p.read_text("utf-8") for p in sorted((HERE / "chat_templates").glob("*.jinja"))}
BOS, EOS = "<s>", "</s>"
TODAY = datetime(2025, 3, 9, 8, 7)


class Frozen(datetime):
    """A clock that stands still, for templates that ask for the date."""

    @classmethod
    def now(cls, tz: Any = None) -> datetime:  # type: ignore[override]
        return TODAY


def called(id: str, name: str, **arguments: Any) -> dict[str, Any]:
    return {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}


WEATHER = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "The weather in a city, <b>now</b> & 'then'",
        "parameters": {
            "type": "object",
            "properties": {
                "city": {"type": "string", "description": "z. B. Zürich"},
                "days": {"type": "array", "items": {"type": "integer"}},
                "unit": {"type": ["string", "null"], "enum": ["C", "F", None]},
            },
            "required": ["city"],
        },
    },
}
NOW = {
    "type": "function",
    "function": {
        "name": "now",
        "description": "The time",
        "parameters": {"type": "object", "properties": {}},
    },
}
TOOLS = [WEATHER, NOW]
SYSTEM = {"role": "system", "content": "  Be <b>brief</b> & kind. 你好 \n"}
ASK = {"role": "user", "content": "  Wetter in Zürich? 😀\n"}
ONE = {"role": "assistant", "content": "", "tool_calls": [called("abcdefghi", "weather", city="Zürich <&>", days=[1, 2], unit=None)]}  # noqa: E501 # fmt: skip
TWO = {"role": "assistant", "content": "Let me look.", "tool_calls": [called("abcdefghi", "weather", city='"Q" \\ \n'), called("123456789", "now")]}  # noqa: E501 # fmt: skip
SUNNY = {"role": "tool", "tool_call_id": "abcdefghi", "name": "weather", "content": '{"t": 20}'}
NOON = {"role": "tool", "tool_call_id": "123456789", "name": "now", "content": "noon"}
FINE = {"role": "assistant", "content": " Sunny, 20 °C. "}
THANKS = {"role": "user", "content": "Thanks! {{ 7*7 }} {% raw %}"}
THOUGHT = {"role": "assistant", "content": "<think>\nHm.\n</think>\n\nYes."}
APART = {"role": "assistant", "content": "Yes.", "reasoning_content": "Hm, hm."}

CASES: dict[str, dict[str, Any]] = {
    "a question": {"messages": [ASK]},
    "with a system message": {"messages": [SYSTEM, ASK]},
    "several turns": {"messages": [SYSTEM, ASK, FINE, THANKS]},
    "no question": {"messages": [ASK, FINE], "add_generation_prompt": False},
    "tools": {"messages": [ASK], "tools": TOOLS},
    "tools, system": {"messages": [SYSTEM, ASK], "tools": TOOLS},
    "a call": {"messages": [SYSTEM, ASK, ONE], "tools": TOOLS, "add_generation_prompt": False},
    "a result": {"messages": [ASK, ONE, SUNNY], "tools": TOOLS},
    "after a result": {"messages": [ASK, ONE, SUNNY, FINE, THANKS], "tools": TOOLS},
    "two calls": {"messages": [ASK, TWO, SUNNY, NOON], "tools": TOOLS},
    "calls one after another": {"messages": [SYSTEM, ASK, ONE, SUNNY, TWO, SUNNY, NOON, FINE],
                                "tools": TOOLS, "add_generation_prompt": False},
    "thinking off": {"messages": [ASK], "enable_thinking": False},
    "thinking on": {"messages": [ASK], "enable_thinking": True},
    "thoughts": {"messages": [ASK, THOUGHT, THANKS]},
    "thoughts at last": {"messages": [ASK, THOUGHT], "add_generation_prompt": False},
    "thoughts apart": {"messages": [ASK, APART, THANKS, APART], "add_generation_prompt": False},
    "a date": {"messages": [SYSTEM, ASK], "date_string": "1 Jan 2001"},
    "tools with the system": {"messages": [SYSTEM, ASK], "tools": TOOLS,
                              "tools_in_user_message": False},
    "a role out of turn": {"messages": [FINE, ASK]},
}  # fmt: skip
