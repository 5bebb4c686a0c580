"""Text, tools, reading: JSON that comes in pieces, and calls written as JSON.

Receives `Incoming` text and an `Output`. Every function is a generator that yields where it needs
more text, and returns False (or None) where the text is not what it reads. Nothing here recurses.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable

from tetrad.text.tools.incoming import Incoming, Output, Steps

ARGUMENTS = ("arguments", "parameters")
BESIDE = ("id", "type", "index")  # members that may stand beside: any other makes it no call
DEEPEST = 200  # json.loads of those who get the arguments recurses
LONGEST_WORD = 1000
PLAIN = re.compile(r'[^"\\\x00-\x1f]+')  # of a string
ESCAPES = '"\\/bfnrt'
HEX = re.compile(r"[0-9a-fA-F]{4}")
WORD = re.compile(r"[-+.0-9A-Za-z]*")
SCALAR = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][-+]?[0-9]+)?|true|false|null")
Sink = Callable[[str], None]


def ignored(_: str) -> None:
    """A sink for what nobody asked for."""


def json_value(source: Incoming, sink: Sink) -> Steps[bool]:
    """One value, given to the sink as it comes, strictly JSON: what was given could always go
    on."""
    inside: list[str] = []  # the brackets that close what is open
    while True:
        found = yield from opened(source, sink, inside)
        if found is None or len(inside) > DEEPEST:
            return False
        while found and inside:  # a value is complete
            following = yield from source.space()
            if following == ",":
                sink(source.take(1))
                yield from source.space()
                break
            if following != inside.pop():
                return False
            sink(source.take(1))
        if not inside:
            return True
        if inside[-1] == "}" and found and not (yield from json_key(source, sink)):
            return False


def opened(source: Incoming, sink: Sink, inside: list[str]) -> Steps[bool | None]:
    """What begins here: True if it is complete, False if a member follows, None if it is no
    value."""
    first = yield from source.space()
    if first == '"':
        return True if (yield from json_string(source, sink)) else None
    if first not in ("{", "["):
        word = yield from source.word(WORD, LONGEST_WORD)
        if not SCALAR.fullmatch(word):
            return None
        sink(source.take(len(word)))
        return True
    sink(source.take(1))
    close = "}" if first == "{" else "]"
    following = yield from source.space()
    if following == close:
        sink(source.take(1))
        return True
    inside.append(close)
    if first == "{" and not (yield from json_key(source, sink)):
        return None
    return False


def json_key(source: Incoming, sink: Sink) -> Steps[bool]:
    """A key and the colon behind it."""
    if (yield from source.space()) != '"' or not (yield from json_string(source, sink)):
        return False
    if (yield from source.space()) != ":":
        return False
    sink(source.take(1))
    return True


def json_string(source: Incoming, sink: Sink) -> Steps[bool]:
    """A string, its quotes included."""
    sink(source.take(1))
    while first := (yield from source.peek()):
        if first == '"':
            sink(source.take(1))
            return True
        if first == "\\":
            escape = yield from escaped(source)
            if not escape:
                return False
            sink(escape)
        elif text := source.run(PLAIN):
            sink(text)
        else:
            return False
    return False


def escaped(source: Incoming) -> Steps[str]:
    """An escape, whole; empty if it is none."""
    if not (yield from source.has(2)):
        return ""
    if source.text[source.at + 1] in ESCAPES:
        return source.take(2)
    if source.text[source.at + 1] != "u" or not (yield from source.has(6)):
        return ""
    return source.take(6) if HEX.match(source.text, source.at + 2) else ""


def json_text(source: Incoming) -> Steps[str | None]:
    """The text of a string that stands here; None if it is none."""
    if (yield from source.space()) != '"':
        return None
    parts: list[str] = []
    is_string = yield from json_string(source, parts.append)
    return str(json.loads("".join(parts))) if is_string else None


# -- calls -----------------------------------------------------------------------------------------


def closed_calls(source: Incoming, output: Output, close: str) -> Steps[bool]:
    """A call, or a list of calls, and the mark behind it, which may be missing."""
    if not (yield from json_calls(source, output)):
        return False
    yield from source.space()
    yield from source.takes(close)
    return True


def json_calls(source: Incoming, output: Output) -> Steps[bool]:
    """A call, or a list of calls."""
    if (yield from source.space()) != "[":
        return (yield from json_call(source, output))
    source.take(1)
    yield from source.space()
    while (yield from json_call(source, output)):
        if (yield from source.space()) == "]":
            source.take(1)
            return True
        if not (yield from source.takes(",")):
            return False
        yield from source.space()
    return False


def json_call(source: Incoming, output: Output) -> Steps[bool]:
    """One call as an object with a name and arguments, in any order."""
    if not (yield from source.takes("{")):
        return False
    call = ReadCall(source, output)
    while (yield from call.member()):
        following = yield from source.space()
        if following == "}":
            source.take(1)
            return call.complete()
        if following != ",":
            return False
        source.take(1)
    return False


class ReadCall:
    """A call on its way: its name, and arguments that came before it."""

    def __init__(self, source: Incoming, output: Output) -> None:
        self.source, self.output = source, output
        self.name: str | None = None
        self.held: str | None = None
        self.begun = False

    def member(self) -> Steps[bool]:
        key = yield from json_text(self.source)
        if key is None or (yield from self.source.space()) != ":":
            return False
        self.source.take(1)
        if key == "name" and self.name is None:
            self.name = yield from json_text(self.source)
            return self.name in self.output.names
        if key in ARGUMENTS and not self.begun and self.held is None:
            return (yield from self.arguments())
        return key in BESIDE and (yield from json_value(self.source, ignored))

    def arguments(self) -> Steps[bool]:
        """To the output as they come if the call has a name. Arguments in a string are taken out of
        it; null is none at all."""
        if (yield from self.source.space()) == "{" and self.name is not None:
            self.begin(self.name)
            if not (yield from json_value(self.source, self.output.arguments)):
                return False
            self.output.end()
            return True
        parts: list[str] = []
        if not (yield from json_value(self.source, parts.append)):
            return False
        self.held = object_text("".join(parts))
        return self.held is not None

    def begin(self, name: str) -> None:
        self.begun = True
        self.output.begin(name)

    def complete(self) -> bool:
        if self.name is None:
            return False
        if not self.begun:
            self.begin(self.name)
            self.output.arguments(self.held or "{}")
        self.output.end()
        return True


def object_text(text: str) -> str | None:
    """JSON text of an object: as it is, out of a string, or for null.

    >>> object_text('{"a": 1}'), object_text('"{}"'), object_text("null"), object_text("3")
    ('{"a": 1}', '{}', '{}', None)
    """
    value = loaded(text)
    if isinstance(value, str):
        text, value = value, loaded(value)
    return "{}" if text == "null" else text if isinstance(value, dict) else None


def loaded(text: str) -> object:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None
