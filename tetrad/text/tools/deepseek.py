"""Text, tools, deepseek: DeepSeek R1, V3 and models distilled from them: marks of their own around
each call, and around all of them.

    <|tool_calls_begin|><|tool_call_begin|>function<|tool_sep|>weather
    ```json
    {"city": "Oslo"}
    ```<|tool_call_end|><|tool_calls_end|>

The bars are U+FF5C and the lines U+2581. From V3.1 on the name stands before the separator, and
the arguments right behind it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tetrad.core.record import record
from tetrad.text.tools.definitions import NAME, Tool
from tetrad.text.tools.family import Messages
from tetrad.text.tools.incoming import Incoming, Output, Steps
from tetrad.text.tools.lark import Lark, literal
from tetrad.text.tools.reading import json_value

WORDS = ("tool calls begin", "tool call begin", "tool sep", "tool call end", "tool calls end")
MARKS = tuple("<\uff5c" + words.replace(" ", "\u2581") + "\uff5c>" for words in WORDS)
ALL, BEGIN, SEP, END, ALL_END = MARKS
FENCE, FENCE_END = "\n```json\n", "\n```"


@record
class DeepSeekCalls:
    """`is_fenced`: arguments stand between fences, behind the word `function`."""

    is_fenced: bool = True
    name: str = "deepseek"
    opens: tuple[str, ...] = (ALL,)
    marks: tuple[str, ...] = MARKS
    is_bare: bool = False
    is_single: bool = False

    @staticmethod
    def of(template: str) -> DeepSeekCalls:
        return DeepSeekCalls("```json" in template)

    def read(self, source: Incoming, output: Output, mark: str) -> Steps[bool]:
        yield from source.space()
        if not (yield from source.takes(BEGIN)):
            return False
        while (yield from self._read_one(source, output)):
            yield from source.space()
            if not (yield from source.takes(BEGIN)):
                yield from source.takes(ALL_END)
                return True
        return False

    def _read_one(self, source: Incoming, output: Output) -> Steps[bool]:
        """A call in either form: only a fence tells a type before the separator from a name."""
        name = yield from source.word(NAME, 64)
        source.take(len(name))
        if not (yield from source.takes(SEP)):
            return False
        if (yield from source.peek()) != "{":
            name = yield from source.word(NAME, 64)
            source.take(len(name))
            yield from source.space()
            yield from source.takes("```json")
        if name not in output.names or (yield from source.space()) != "{":
            return False
        output.begin(name)
        if not (yield from json_value(source, output.arguments)):
            return False
        output.end()
        yield from source.space()
        yield from source.takes("```")
        yield from source.takes(END)
        return True

    def calls(self, lark: Lark, tools: Sequence[Tool], parallel: bool) -> str:
        for i, tool in enumerate(tools):
            body, sep = lark.json(f"arguments_{i}", tool.parameters), lark.mark(SEP)
            before = f'"function" {sep} {literal(tool.name + FENCE)}'
            fenced = f"{before} {body} {literal(FENCE_END)}"
            lark.rule(
                f"call_{i}", fenced if self.is_fenced else f"{literal(tool.name)} {sep} {body}"
            )
        any_call = " | ".join(f"call_{i}" for i in range(len(tools)))
        one = lark.rule("one", f"{lark.mark(BEGIN)} ({any_call}) {lark.mark(END)}")
        between = '"\\n" ' if self.is_fenced else ""
        more = f"({between}{one})*" if parallel else ""
        return f"{one} {more} {lark.mark(ALL_END)}"

    def prepared(self, messages: Messages, tools: Sequence[Tool]) -> tuple[Messages, Any]:
        return messages, [tool.source for tool in tools] or None
