"""Text, tools, dialect: how one model calls tools and thinks, from the text of its chat template.

Receives the template's source and the tokeniser; returns a `ToolDialect`: a grammar that makes
calls parse and fit their schemas, a parser that takes them out of an answer, and messages as the
template wants them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from tetrad.core.record import record
from tetrad.text.tokenizer import Tokenizer
from tetrad.text.tools.deepseek import MARKS, DeepSeekCalls
from tetrad.text.tools.definitions import checked_tools, chosen_tools
from tetrad.text.tools.family import Messages, ToolFamily
from tetrad.text.tools.gemma import GemmaCalls
from tetrad.text.tools.generic import GenericCalls
from tetrad.text.tools.hermes import HermesCalls
from tetrad.text.tools.lark import Lark, escaped, token_of
from tetrad.text.tools.llama import LlamaCalls
from tetrad.text.tools.messages import plain_messages
from tetrad.text.tools.mistral import MistralCalls
from tetrad.text.tools.parser import AnswerParser
from tetrad.text.tools.phi import PhiCalls
from tetrad.text.tools.reasoning import (
    Reasoning,
    closed_by,
    reasoning_in,
    reasoning_marks,
    switch_of,
)

SPACE = r"/[ \n]{0,4}/"  # between reasoning and what must follow


@record(eq=False)
class ToolDialect:
    """Calls and reasoning of one model."""

    family: ToolFamily
    tokenizer: Tokenizer
    thinking: Reasoning | None  # the marks that the template knows
    switch: str | None  # its variable that switches reasoning on and off

    @property
    def preserved(self) -> tuple[str, ...]:
        """Marks that are control tokens here: `preserved_tokens` of a generation shows them."""
        around = (self.thinking.begin, self.thinking.end) if self.thinking else ()
        return tuple(mark for mark in (*self.family.marks, *around) if self._is_control(mark))

    def _is_control(self, mark: str) -> bool:
        token = token_of(self.tokenizer, mark)
        return token is not None and self.tokenizer.is_special(token)

    def reasoning(self, prompt: str) -> Reasoning | None:
        """How an answer to this prompt begins; None if it does not begin with reasoning."""
        return reasoning_in(self.thinking, prompt)

    def variables(self, think: bool | None) -> dict[str, bool]:
        """What to tell the template where reasoning is switched on or off."""
        return {} if think is None or self.switch is None else {self.switch: think}

    def closing(self, prompt: str, think: bool | None) -> str:
        """What to put behind the prompt where reasoning is off and the template has not said so."""
        return closed_by(self.thinking, prompt) if think is False else ""

    def prepared(self, messages: Messages, tools: object = None) -> tuple[Messages, Any]:
        """Messages and the variable `tools`, for the template."""
        return self.family.prepared(plain_messages(messages), checked_tools(tools))

    def can_call(self, tools: object, choice: object = None) -> bool:
        """May an answer call tools?"""
        return chosen_tools(checked_tools(tools), choice)[0] != "none"

    def parser(self, tools: object, reasoning: Reasoning | None = None) -> AnswerParser:
        """A parser for one answer. Without tools every call is text."""
        names = frozenset(tool.name for tool in checked_tools(tools))
        return AnswerParser(self.family, names, reasoning)

    def grammar(
        self,
        tools: object,
        choice: object = None,
        parallel: bool = True,
        reasoning: Reasoning | None = None,
        schema: Mapping[str, Any] | bool | None = None,
    ) -> str | None:
        """Lark, for the setting `grammar` as {"lark": ...}; None where nothing is to be
        constrained.

        `choice` is "none", "auto" (text, or text and then calls), "required", or names a tool. With
        `schema`, what is said besides calls is JSON that fits it.
        """
        kind, chosen = chosen_tools(checked_tools(tools), choice)
        lark = Lark(self.tokenizer)
        first = thinking_rule(lark, reasoning)
        said = None if schema is None else said_rule(lark, schema)
        if kind == "none":
            return None if said is None else lark.text(f"{first} {said}")
        calls = self.family.calls(lark, chosen, parallel and not self.family.is_single)
        opening = "" if self.family.is_bare else lark.mark(self.family.opens[0])
        if kind == "required":
            return lark.text(f"{first} {opening} {calls}")
        if said is not None:
            return lark.text(f"{first} ({opening} {calls} | {said})")
        return lark.text(f"{first} ({self._auto(lark, reasoning, calls)})")

    def _auto(self, lark: Lark, reasoning: Reasoning | None, calls: str) -> str:
        """Free text, or free text and then calls."""
        body = lark.rule("calls", calls)
        # what would be read as something else
        never = [r"[ \t\r\n]*\{"] if self.family.is_bare else []
        if reasoning is not None and not reasoning.opened:
            never.append(r"[ \t\r\n]*" + escaped(reasoning.begin))
        free = lark.until("free", self.family.opens[0], never)
        text = lark.text_without("text", self.family.opens, never)
        return f"{free} {body} | {text}" + (f" | {body}" if self.family.is_bare else "")


def thinking_rule(lark: Lark, reasoning: Reasoning | None) -> str:
    """Reasoning before everything else: to its end where the prompt has opened it."""
    if reasoning is None:
        return ""
    rest = f"{lark.until('thought', reasoning.end)} {SPACE}"
    return rest if reasoning.opened else f"({lark.mark(reasoning.begin)} {rest})?"


def said_rule(lark: Lark, schema: Mapping[str, Any] | bool) -> str:
    fits = schema if isinstance(schema, Mapping) else {"type": "object"}
    return lark.json("said", fits, is_lenient=False)


# what a template says, the most telling first, and what its family is made from
FAMILIES: tuple[tuple[str, Callable[[str], ToolFamily]], ...] = (
    (MARKS[0], DeepSeekCalls.of),
    (r"<start_function_call>|<\|tool_call>", GemmaCalls.of),
    (r"\[TOOL_CALLS\]", MistralCalls.of),
    (r"<tool_call>", lambda _: HermesCalls()),
    (r"<\|tool\|>|<\|tool_call\|>", lambda _: PhiCalls()),
    (r"<\|python_tag\|>|<\|start_header_id\|>", LlamaCalls.of),
)


def dialect_of(template_source: str, tokenizer: Tokenizer) -> ToolDialect:
    """The dialect that a chat template shows; templates that know nothing of tools get a generic
    one."""
    knows_tools = re.search(r"\btools\b", template_source)
    known = [make for text, make in FAMILIES if knows_tools and re.search(text, template_source)]
    family = (known or [GenericCalls.of])[0](template_source)
    return ToolDialect(
        family, tokenizer, reasoning_marks(template_source), switch_of(template_source)
    )
