"""Serve, log: one line an event, for people (key=value) or programs (JSON). No prompts unless they
are asked for.

Values come from clients: whatever would steer a terminal, or begin a line of its own, is escaped.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any, TextIO

from tetrad.core.visible import json_visible, one_line

LONGEST = 2000  # characters of a value


class Log:
    """Where a server says what it does."""

    def __init__(
        self, stream: TextIO | None = None, *, as_json: bool = False, prompts: bool = False
    ) -> None:
        self.stream, self.as_json, self.shows_prompts = stream or sys.stderr, as_json, prompts

    def write(self, event: str, **fields: Any) -> None:
        now = time.time()
        stamp = (
            time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(now)) + f".{int(now * 1000) % 1000:03}Z"
        )
        data = {"time": stamp, "event": event, **fields}
        line = json_line(data) if self.as_json else plain_line(data)
        try:
            self.stream.write(line + "\n")
            self.stream.flush()
        except (OSError, ValueError):  # nobody reads it, or it is closed: no reason to stop serving
            pass


def json_line(data: dict[str, Any]) -> str:
    return json_visible(json.dumps(data, ensure_ascii=False, default=str))


def plain_line(data: dict[str, Any]) -> str:
    r"""
    >>> plain_line({"event": "answer", "path": "/a b\x1b", "ms": 1.5})
    'event=answer path="/a b\\x1b" ms=1.5'
    """
    return " ".join(f"{name}={shown(value)}" for name, value in data.items() if value is not None)


def shown(value: Any) -> str:
    text = one_line(str(value)[:LONGEST])
    is_plain = text and not any(c in ' "=' for c in text)
    return text if is_plain else '"' + text.replace('"', '\\"') + '"'
