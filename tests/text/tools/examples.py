"""Answers of every family, with what they hold."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from tetrad.text.tools.deepseek import MARKS, DeepSeekCalls
from tetrad.text.tools.family import ToolFamily
from tetrad.text.tools.gemma import GemmaCalls
from tetrad.text.tools.generic import GenericCalls
from tetrad.text.tools.hermes import HermesCalls
from tetrad.text.tools.llama import LlamaCalls
from tetrad.text.tools.mistral import MistralCalls
from tetrad.text.tools.phi import PhiCalls

NAMES = frozenset({"weather", "add", "now"})
Call = tuple[str, Any]
OSLO = ("weather", {"city": "Oslo"})
OSLO_TEXT = '{"city": "Oslo"}'
SUM: Call = ("add", {"a": [1, -2.5e3, {"b": None}], "c": True})
ODD: Call = ("weather", {"city": 'Ǻ "q" \\ \n </tool_call> {[ 😀'})
ODD_TEXT = r'{"city": "Ǻ \"q\" \\ \n </tool_call> {[ \ud83d\ude00"}'
SUM_TEXT = '{"a": [1, -2.5e3, {"b": null}], "c": true}'


@dataclass(frozen=True)
class Example:
    text: str
    calls: list[Call] = field(default_factory=list)
    content: str = ""
    reasoning: str = ""


HERMES = [
    Example(f'<tool_call>\n{{"name": "weather", "arguments": {OSLO_TEXT}}}\n</tool_call>', [OSLO]),
    Example(
        "<think>\nWhich?\n</think>\n\nLet me see.\n<tool_call>\n"
        f'{{"name": "add", "arguments": {SUM_TEXT}}}\n</tool_call>\n<tool_call>\n'
        f'{{"name": "weather", "arguments": {ODD_TEXT}}}\n</tool_call>',
        [SUM, ODD], "Let me see.", "Which?",
    ),
    Example('<tool_call>{"arguments": {"city": "Oslo"}, "id": 3, "name": "weather"}', [OSLO]),
    Example('<tool_call>{"name": "now"}</tool_call> done', [("now", {})], "done"),
    Example('a <tool_call>[{"name": "now", "arguments": null}, '
            '{"name": "weather", "arguments": "{\\"city\\": \\"Oslo\\"}"}]</tool_call>',
            [("now", {}), OSLO], "a"),
    Example("1 < 2, <tool_call> is a mark, <tool", [], "1 < 2, <tool_call> is a mark, <tool"),
    Example('<tool_call>\n{"name": "weather"', [], '<tool_call>\n{"name": "weather"'),
    Example('<tool_call>{"name": "now", "arguments": 3}</tool_call>',
            [], '<tool_call>{"name": "now", "arguments": 3}</tool_call>'),
    Example('<tool_call>{"x": 01}\n<tool_call>{"name": "now", "arguments": {}}</tool_call>!',
            [("now", {})], '<tool_call>{"x": 01}!'),
    Example("Nothing to call." + " " * 99 + "\n", [], "Nothing to call." + " " * 99 + "\n"),
]  # fmt: skip
LLAMA = [
    Example(f'{{"name": "weather", "parameters": {OSLO_TEXT}}}', [OSLO]),
    Example(f'<|python_tag|>{{"name": "weather", "parameters": {OSLO_TEXT}}}; '
            f'{{"type": "function", "name": "add", "parameters": {SUM_TEXT}}}', [OSLO, SUM]),
    Example('<think>Now?</think>\n\n{"name": "now", "parameters": {}}', [("now", {})], "", "Now?"),
    Example(' {"name": "Oslo", "size": 3}', [], ' {"name": "Oslo", "size": 3}'),
    Example('{"size": 3, "name": "now"}', [], '{"size": 3, "name": "now"}'),
    Example('Use {"name": "now", "parameters": {}}.', [],
            'Use {"name": "now", "parameters": {}}.'),
]  # fmt: skip
MISTRAL = [
    Example(f'[TOOL_CALLS] [{{"name": "weather", "arguments": {OSLO_TEXT}, "id": "abcdefghi"}}, '
            f'{{"name": "add", "arguments": {SUM_TEXT}}}]', [OSLO, SUM]),
    Example(f"Right.[TOOL_CALLS]weather[ARGS]{OSLO_TEXT}[TOOL_CALLS]add[ARGS]{SUM_TEXT}",
            [OSLO, SUM], "Right."),
    Example(f"[TOOL_CALLS]weather[CALL_ID]abcdefghi[ARGS]{ODD_TEXT}", [ODD]),
    Example("[TOOL_CALLS]now{}", [("now", {})]),
    Example("[TOOL_CALLS]nowhere[ARGS]{}", [], "[TOOL_CALLS]nowhere[ARGS]{}"),
    Example("[TOOL", [], "[TOOL"),
]  # fmt: skip
PHI = [
    Example(f'Yes. <|tool_call|>[{{"name": "weather", "arguments": {OSLO_TEXT}}}, '
            '{"name": "now", "arguments": {}}]<|/tool_call|>', [OSLO, ("now", {})], "Yes."),
    Example(f'<|tool_call|>{{"name": "add", "arguments": {SUM_TEXT}}}', [SUM]),
    Example("<|tool_call|>[]", [], "<|tool_call|>[]"),
]  # fmt: skip
ALL, BEGINS, SEP, ENDS, OVER = MARKS
DEEPSEEK = [
    Example(f"<think>\nOslo.\n</think>\n\nSo:{ALL}{BEGINS}function{SEP}weather\n"
            f"```json\n{OSLO_TEXT}\n```{ENDS}\n{BEGINS}function{SEP}add\n```json\n{SUM_TEXT}\n```"
            f"{ENDS}{OVER}", [OSLO, SUM], "So:", "Oslo."),
    Example(f"{ALL}{BEGINS}weather{SEP}{OSLO_TEXT}{ENDS}{BEGINS}now{SEP}{{}}{ENDS}{OVER}",
            [OSLO, ("now", {})]),
    Example(f"{ALL}{BEGINS}function", [],
            f"{ALL}{BEGINS}function"),
]  # fmt: skip
QUOTED = 'Ǻ "q" \\ \n {[ 😀'
GEMMA = [
    Example("<start_function_call>call:weather{city:<escape>Oslo<escape>}<end_function_call>",
            [OSLO]),
    Example("Yes.\n<start_function_call>call:add{a:[1,-2.5e3,{b:null}],c:true}<end_function_call>"
            f"<start_function_call>call:weather{{city:<escape>{QUOTED}<escape>}}<end_function_call>"
            "<start_function_response>", [SUM, ("weather", {"city": QUOTED})], "Yes."),
    Example("<start_function_call>call:now{}", [("now", {})]),
    Example("<start_function_call>call:nobody{}", [], "<start_function_call>call:nobody{}"),
    Example("a <start_function_call>now{}", [], "a <start_function_call>now{}"),
]  # fmt: skip
EXAMPLES: list[tuple[ToolFamily, list[Example]]] = [
    (HermesCalls(), HERMES),
    (GenericCalls(), HERMES),
    (LlamaCalls(), LLAMA),
    (MistralCalls(), MISTRAL),
    (PhiCalls(), PHI),
    (DeepSeekCalls(), DEEPSEEK),
    (GemmaCalls(), GEMMA),
]
