"""Text, tools, gemma: FunctionGemma and Gemma 4: a name and arguments in a notation of their own.

    <start_function_call>call:weather{city:<escape>Oslo<escape>,days:[1,2]}<end_function_call>

Keys have no quotes and texts stand between marks, so arguments are made into JSON while they come,
and the grammar of a schema is written here. The templates of Gemma 2 and 3 know no tools: see
`generic`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

from tetrad.core.record import record
from tetrad.text.tools.definitions import NAME, Tool
from tetrad.text.tools.family import Messages
from tetrad.text.tools.incoming import Incoming, Output, Steps
from tetrad.text.tools.lark import Lark, literal
from tetrad.text.tools.loose import LooseSchema
from tetrad.text.tools.reading import DEEPEST, LONGEST_WORD, SCALAR, WORD, Sink

KEY = re.compile(r"[^:,{}\[\]<>\s\"]*")


@record
class GemmaCalls:
    """Marks around a call, around a text, and that before a result, which a model may write as
    well."""

    open: str = "<start_function_call>"
    close: str = "<end_function_call>"
    quote: str = "<escape>"
    result: str = "<start_function_response>"
    name: str = "gemma"
    is_bare: bool = False
    is_single: bool = False

    @staticmethod
    def of(template: str) -> GemmaCalls:
        if "<start_function_call>" in template:
            return GemmaCalls()
        return GemmaCalls("<|tool_call>", "<tool_call|>", '<|"|>', "<|tool_response>")

    @property
    def opens(self) -> tuple[str, ...]:
        return (self.open,)

    @property
    def marks(self) -> tuple[str, ...]:
        return (self.open, self.close, self.quote, self.result)

    def read(self, source: Incoming, output: Output, mark: str) -> Steps[bool]:
        yield from source.space()
        if not (yield from source.takes("call:")):
            return False
        name = yield from source.word(NAME, 64)
        if name not in output.names:
            return False
        source.take(len(name))
        if (yield from source.space()) != "{":
            return False
        output.begin(name)
        if not (yield from loose_value(source, output.arguments, self.quote)):
            return False
        output.end()
        yield from source.takes(self.close)
        yield from source.takes(self.result)
        return True

    def calls(self, lark: Lark, tools: Sequence[Tool], parallel: bool) -> str:
        for i, tool in enumerate(tools):
            schema = LooseSchema(lark, self.quote, tool.parameters, f"arguments_{i}")
            lark.rule(
                f"call_{i}", f"{literal('call:' + tool.name)} {schema.value(tool.parameters)}"
            )
        one = lark.rule("one", " | ".join(f"call_{i}" for i in range(len(tools))))
        body = lark.rule("body", f"{one} {lark.mark(self.close)}")
        more = f"({lark.mark(self.open)} {body})*" if parallel else ""
        return f"{body} {more} {lark.mark(self.result)}?"

    def prepared(self, messages: Messages, tools: Sequence[Tool]) -> tuple[Messages, Any]:
        return messages, [tool.source for tool in tools] or None


def loose_value(source: Incoming, sink: Sink, quote: str) -> Steps[bool]:
    """One value, as JSON to the sink."""
    inside: list[str] = []
    while True:
        found = yield from loose_opened(source, sink, quote, inside)
        if found is None or len(inside) > DEEPEST:
            return False
        while found and inside:
            following = yield from source.space()
            if following == ",":
                sink(source.take(1))
                break
            if following != inside.pop():
                return False
            sink(source.take(1))
        if not inside:
            return True
        if inside[-1] == "}" and found and not (yield from loose_key(source, sink)):
            return False


def loose_opened(source: Incoming, sink: Sink, quote: str, inside: list[str]) -> Steps[bool | None]:
    """What begins here: True if it is complete, False if a member follows, None if it is no
    value."""
    first = yield from source.space()
    if first in ("{", "["):
        sink(source.take(1))
        inside.append("}" if first == "{" else "]")
        if (yield from source.space()) == inside[-1]:
            inside.pop()
            sink(source.take(1))
            return True
        return False if first == "[" or (yield from loose_key(source, sink)) else None
    if (yield from source.takes(quote)):
        return True if (yield from loose_text(source, sink, quote)) else None
    word = yield from source.word(WORD, LONGEST_WORD)
    if not SCALAR.fullmatch(word):
        return None
    sink(source.take(len(word)))
    return True


def loose_key(source: Incoming, sink: Sink) -> Steps[bool]:
    yield from source.space()
    key = yield from source.word(KEY, LONGEST_WORD)
    if not key:
        return False
    source.take(len(key))
    if not (yield from source.takes(":")):
        return False
    sink(json.dumps(key, ensure_ascii=False) + ":")
    return True


def loose_text(source: Incoming, sink: Sink, quote: str) -> Steps[bool]:
    """Text up to the quote that ends it."""
    sink('"')
    while not source.text.startswith(quote, source.at):
        stop = source.text.find(quote, source.at)
        begun = source.begun((quote,)) if stop < 0 else len(source.text) - stop
        sink(
            json.dumps(source.take(len(source.text) - begun - source.at), ensure_ascii=False)[1:-1]
        )
        if source.ended and stop < 0:
            return False
        if stop < 0:
            yield
    source.take(len(quote))
    sink('"')
    return True
