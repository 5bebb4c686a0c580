"""Tools as requests bring them: errors that name the field, and bounds on size, depth and
references."""

from __future__ import annotations

import time
from contextlib import suppress
from typing import Any

import pytest

from tests.text.tools.marked import marked_tokenizer, written_by_chance
from tests.text.tools.templates import TEMPLATES
from tetrad.core.errors import SettingError
from tetrad.text.tools import dialect_of
from tetrad.text.tools.definitions import MOST_TOOLS, checked_tools, chosen_tools
from tetrad.text.tools.messages import plain_messages


def tool(name: Any = "f", **schema: Any) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name, "parameters": schema}}


def nested(depth: int) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "integer"}
    for _ in range(depth):
        schema = {"type": "object", "properties": {"x": schema}}
    return schema


AT = "tools[0].function.parameters"
WRONG: list[tuple[Any, str]] = [
    ("f", "tools"),
    ([3], "tools[0]"),
    ([{"type": "web_search"}], "tools[0].type"),
    ([{"type": "function"}], "tools[0].function"),
    ([tool(None)], "tools[0].function.name"),
    ([tool("a b")], "tools[0].function.name"),
    ([tool("x" * 65)], "tools[0].function.name"),
    ([tool("f"), tool("g"), tool("f")], "tools[2].function.name"),
    ([{"function": {"name": "f", "description": 3}}], "tools[0].function.description"),
    ([{"function": {"name": "f", "parameters": []}}], AT),
    ([tool(type="array")], AT + ".type"),
    ([tool(properties=[])], AT + ".properties"),
    ([tool(properties={"x": {"type": "int"}})], AT + ".properties.x.type"),
    ([tool(properties={"x": {"type": ["string", 3]}})], AT + ".properties.x.type"),
    ([tool(properties={"x": 3})], AT + ".properties.x"),
    ([tool(properties={"x": {"items": {"enum": []}}})], AT + ".properties.x.items.enum"),
    ([tool(properties={"x": {"anyOf": []}})], AT + ".properties.x.anyOf"),
    ([tool(properties={"x": {"pattern": 3}})], AT + ".properties.x.pattern"),
    ([tool(required="x")], AT + ".required"),
    ([tool(properties={"x": {"$ref": "http://a/b"}})], AT + ".properties.x.$ref"),
    ([tool(properties={"x": {"$ref": "#/$defs/no"}})], AT + ".properties.x.$ref"),
    ([tool(**{"$defs": {"a": {"$ref": "#/$defs/a"}}})], AT + ".$defs.a.$ref"),
    ([tool(properties={"x": {"const": {1, 2}}})], AT + ".properties.x.const"),
    ([tool(f"f{i}") for i in range(1000)], "tools"),
    ([tool(properties={f"x{i}": True for i in range(30_000)})], "tools"),
    ([tool(description="x" * 2_000_000)], "tools"),
    ([tool(**nested(5000))], AT + ".properties.x.properties"),
    ([tool(**nested(40))], AT + ".properties.x.properties"),
]


@pytest.mark.parametrize(("tools", "place"), WRONG, ids=range(len(WRONG)))
def test_what_is_wrong_is_named(tools: Any, place: str) -> None:
    begin = time.perf_counter()
    with pytest.raises(SettingError) as error:
        checked_tools(tools)
    assert str(error.value).startswith(place)
    assert time.perf_counter() - begin < 1


def test_choices() -> None:
    tools = checked_tools([tool("f"), tool("g")])
    assert chosen_tools(tools, None) == ("auto", tools)
    assert chosen_tools(tools, "none")[0] == "none" and chosen_tools((), "auto")[0] == "none"
    named = chosen_tools(tools, {"type": "function", "function": {"name": "g"}})
    assert named == ("required", tools[1:])
    for wrong in ("g", 3, {"function": {"name": "h"}}, {"function": None}, []):
        with pytest.raises(SettingError, match="tool_choice"):
            chosen_tools(tools, wrong)
    with pytest.raises(SettingError, match="no tools"):
        chosen_tools((), "required")


def test_hostile_schemas_are_compiled_in_bounded_time() -> None:
    """References that double at every level, and as many tools as there may be."""
    pytest.importorskip("llguidance")
    dialect = dialect_of(TEMPLATES["hermes"], marked_tokenizer())
    for word in ("anyOf", "allOf", "oneOf"):
        defs: dict[str, Any] = {
            f"a{i}": {word: [{"$ref": f"#/$defs/a{i + 1}"}] * 2} for i in range(40)
        }
        defs["a40"] = {"type": "object", "properties": {"x": {"const": 1}}, "required": ["x"]}
        schema = {"$defs": defs, "properties": {"x": {"$ref": "#/$defs/a0"}}, "required": ["x"]}
        lark = dialect.grammar([tool(**schema)], "required", parallel=False)
        begin = time.perf_counter()
        with suppress(SettingError):  # it is allowed to be too much
            written_by_chance(dialect.tokenizer, lark or "", 1, 200)
        assert time.perf_counter() - begin < 5
    many = [tool(f"f{i}", properties={"x": {"enum": [i]}}) for i in range(MOST_TOOLS)]
    text, is_over = written_by_chance(dialect.tokenizer, dialect.grammar(many, "required") or "", 1)
    assert is_over and '"f' in text


def test_calls_in_messages() -> None:
    call = {"id": "1", "function": {"name": "f", "arguments": '{"a": 1}'}}
    found = plain_messages([{"role": "assistant", "content": None, "tool_calls": [call]}])[0]
    assert found["content"] == "" and found["tool_calls"][0]["function"]["arguments"] == {"a": 1}
    for wrong, place in (
        ({"tool_calls": 3}, "tool_calls"),
        ({"tool_calls": [{"function": {}}]}, "tool_calls[0]"),
    ):
        with pytest.raises(SettingError) as error:
            plain_messages([{"role": "user", "content": ""}, {"role": "assistant", **wrong}])
        assert str(error.value).startswith(f"messages[1].{place}")
