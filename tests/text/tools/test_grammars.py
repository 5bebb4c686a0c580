"""Grammars: whatever a model would rather say, its calls parse and their arguments fit their
schemas; in vocabularies where marks are control tokens, tokens of a user, or only letters."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.text.tools.marked import marked_tokenizer, written_by_chance
from tests.text.tools.templates import TEMPLATES
from tetrad.text.tokenizer import Tokenizer
from tetrad.text.tools import Answer, Reasoning, ToolDialect, dialect_of, joined

pytest.importorskip("llguidance")


def tool(name: str, **properties: Any) -> dict[str, Any]:
    schema = {"type": "object", "properties": properties, "required": list(properties)}
    return {"type": "function", "function": {"name": name, "parameters": schema}}


TOOLS = [
    tool(
        "weather",
        city={"type": "string", "maxLength": 4},
        unit={"enum": ["C", "F"]},
        days={"type": "array", "items": {"type": "integer", "minimum": 1, "maximum": 9},
              "maxItems": 2},
    ),
    tool("add", a={"type": "integer", "minimum": -9, "maximum": 9}, b={"type": "boolean"},
         more={"type": "object", "properties": {"x": {"type": "null"}}, "required": ["x"]}),
    {"type": "function", "function": {"name": "now"}},
]  # fmt: skip


def fits(name: str, found: Any) -> bool:
    """Do arguments fit the schemas above?"""
    if name == "now":
        return bool(found == {})
    if name == "add":
        return (
            found.keys() == {"a", "b", "more"}
            and type(found["a"]) is int
            and abs(found["a"]) <= 9
            and type(found["b"]) is bool
            and found["more"] == {"x": None}
        )
    days = found.get("days")
    return (
        found.keys() == {"city", "unit", "days"}
        and isinstance(found["city"], str)
        and len(found["city"]) <= 4
        and found["unit"] in ("C", "F")
        and isinstance(days, list)
        and len(days) <= 2
        and all(type(day) is int and 1 <= day <= 9 for day in days)
    )


def checked(dialect: ToolDialect, text: str, reasoning: Reasoning | None = None) -> Answer:
    parser = dialect.parser(TOOLS, reasoning)
    answer = joined(parser.feed(text) + parser.finish())
    for call in answer.tool_calls:
        assert fits(call.name, json.loads(call.arguments)), text
    return answer


@pytest.fixture(params=["control", "defined", "letters"])
def vocabulary(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(params=TEMPLATES)
def dialect(request: pytest.FixtureRequest, vocabulary: str) -> ToolDialect:
    source = TEMPLATES[request.param]
    plain = dialect_of(source, marked_tokenizer())
    assert plain.family.name == request.param.partition(",")[0]
    marks = (*plain.family.marks, "<think>", "</think>")
    return dialect_of(source, with_marks(vocabulary, marks))


def with_marks(vocabulary: str, marks: tuple[str, ...]) -> Tokenizer:
    if vocabulary == "letters":
        return marked_tokenizer()
    return marked_tokenizer(**{vocabulary: marks})


def test_required_calls_are_calls_and_nothing_else(dialect: ToolDialect) -> None:
    lark = dialect.grammar(TOOLS, "required")
    assert lark is not None
    for seed in range(4):
        text, is_over = written_by_chance(dialect.tokenizer, lark, seed)
        answer = checked(dialect, text)
        assert is_over and answer.tool_calls and answer.content == ""


def test_one_tool_that_was_named(dialect: ToolDialect) -> None:
    choice = {"type": "function", "function": {"name": "add"}}
    lark = dialect.grammar(TOOLS, choice, parallel=False)
    assert lark is not None
    text, is_over = written_by_chance(dialect.tokenizer, lark, 1)
    answer = checked(dialect, text)
    assert is_over and [call.name for call in answer.tool_calls] == ["add"]


def test_free_text_until_a_call(dialect: ToolDialect) -> None:
    """ "auto": text stays text, and after the opening mark comes a call; both happen."""
    lark = dialect.grammar(TOOLS, "auto", parallel=False)
    assert lark is not None
    found = [written_by_chance(dialect.tokenizer, lark, seed, 150) for seed in range(10)]
    answers = [checked(dialect, text) for text, is_over in found if is_over]
    assert any(a.content for a in answers)
    assert all(len(a.tool_calls) <= 1 for a in answers)
    for answer in answers:
        assert not any(mark in answer.content for mark in dialect.family.opens)


def test_a_call_can_be_reached_from_text(dialect: ToolDialect) -> None:
    lark = dialect.grammar(TOOLS, "auto", parallel=False)
    assert lark is not None
    first = "Well: 1 < 2, [T. " + dialect.family.opens[0]
    for seed in range(3):
        text, is_over = written_by_chance(dialect.tokenizer, lark, seed, first=first)
        answer = checked(dialect, text)
        assert is_over and answer.content == "Well: 1 < 2, [T." and len(answer.tool_calls) == 1


@pytest.mark.parametrize("opened", [False, True])
def test_reasoning_comes_first(dialect: ToolDialect, opened: bool) -> None:
    """Marks of calls in it are thoughts (control tokens are not to be had there); what follows it
    is constrained as if it were not there."""
    reasoning = Reasoning("<think>", "</think>", opened)
    thought = "Hm: { " + ("1" if dialect.preserved else dialect.family.opens[0])
    first = ("" if opened else "<think>") + thought + "</think>\n\n"
    for choice, said in (("required", ""), ("auto", "So. " + dialect.family.opens[0])):
        lark = dialect.grammar(TOOLS, choice, True, reasoning)
        assert lark is not None
        text, is_over = written_by_chance(dialect.tokenizer, lark, 5, first=first + said)
        answer = checked(dialect, text, reasoning)
        assert is_over and answer.reasoning == thought and answer.tool_calls
        assert answer.content == ("So." if said else "")
    lark = dialect.grammar(None, None, True, reasoning, {"const": 1})
    assert lark is not None
    text, _ = written_by_chance(dialect.tokenizer, lark, 5, first=first)
    assert checked(dialect, text, reasoning).content == "1"


def test_reasoning_may_be_left_out(dialect: ToolDialect) -> None:
    lark = dialect.grammar(TOOLS, "required", True, Reasoning("<think>", "</think>"))
    first = "{" if dialect.family.is_bare else dialect.family.opens[0]
    text, is_over = written_by_chance(dialect.tokenizer, lark or "", 5, first=first)
    assert is_over and checked(dialect, text).tool_calls


def test_an_answer_can_be_json_beside_calls(dialect: ToolDialect) -> None:
    schema = {"type": "object", "properties": {"ok": {"type": "boolean"}}, "required": ["ok"],
              "additionalProperties": False}  # fmt: skip
    lark = dialect.grammar(TOOLS, "auto", True, None, schema)
    assert lark is not None
    for seed in range(8):
        text, is_over = written_by_chance(dialect.tokenizer, lark, seed)
        answer = checked(dialect, text)
        assert is_over and (answer.tool_calls or json.loads(answer.content).keys() == {"ok"})


def test_nothing_to_constrain() -> None:
    dialect = dialect_of(TEMPLATES["hermes"], marked_tokenizer())
    assert dialect.grammar(None, None) is None and dialect.grammar(TOOLS, "none") is None


def test_only_control_tokens_are_preserved() -> None:
    source = TEMPLATES["hermes"] + "<think>"
    control = marked_tokenizer(control=("<tool_call>", "</think>"), defined=("</tool_call>",))
    assert dialect_of(source, control).preserved == ("<tool_call>", "</think>")
    assert dialect_of(source, marked_tokenizer()).preserved == ()


def test_members_that_may_be_left_out() -> None:
    """The notation of Gemma has a grammar of its own: references, lists, choices, optional
    members."""
    schema = {
        "type": "object",
        "properties": {
            "a": {"type": ["integer", "null"], "minimum": 0, "maximum": 9},
            "b": {"$ref": "#/$defs/tree"},
            "c": {"anyOf": [{"const": "x"}, {"type": "boolean"}]},
        },
        "required": ["b"],
        "$defs": {
            "tree": {
                "type": "object",
                "properties": {"t": {"type": "array", "items": {"$ref": "#/$defs/tree"},
                                     "maxItems": 1}},
            }
        },
    }  # fmt: skip
    tools = [{"type": "function", "function": {"name": "f", "parameters": schema}}]
    dialect = dialect_of(TEMPLATES["gemma"], marked_tokenizer())
    lark = dialect.grammar(tools, "required", parallel=False)
    seen: set[str] = set()
    for seed in range(20):
        text, is_over = written_by_chance(dialect.tokenizer, lark or "", seed)
        parser = dialect.parser(tools)
        (call,) = joined(parser.feed(text) + parser.finish()).tool_calls
        found = json.loads(call.arguments)
        assert is_over and {"b"} <= found.keys() <= {"a", "b", "c"}
        assert isinstance(found["b"], dict) and found.get("c", "x") in ("x", True, False)
        seen |= found.keys()
    assert seen == {"a", "b", "c"}
