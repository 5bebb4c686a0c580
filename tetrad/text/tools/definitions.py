"""Text, tools, definitions: tools as a request brings them, checked once and for all.

Receives what somebody sent; returns `Tool`s, or a SettingError that names the field. Schemas are
bounded in size and depth, and refer to nothing outside of themselves.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from tetrad.core.errors import SettingError
from tetrad.core.record import record

MOST_TOOLS = 128
DEEPEST = 64
MOST_PARTS = 20_000  # values in the schemas of all tools
MOST_TEXT = 1 << 20  # characters in them
NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}")
TYPES = ("string", "number", "integer", "boolean", "object", "array", "null")
HINT = 'a tool looks like {"type": "function", "function": {"name": ..., "parameters": {...}}}'
NAMED = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas")
SINGLE = (
    "items", "additionalProperties", "not", "if", "then", "else", "contains", "propertyNames",
    "additionalItems", "unevaluatedProperties", "unevaluatedItems",
)  # fmt: skip
SEVERAL = ("anyOf", "oneOf", "allOf", "prefixItems")
# beside these, properties do not say everything
OPEN = {"additionalProperties", "patternProperties", "unevaluatedProperties",
        "$ref", "allOf", "anyOf", "oneOf", "if"}  # fmt: skip


@record
class Tool:
    """A function that a model may call. `source` is as it was given, for the chat template."""

    name: str
    description: str
    parameters: Mapping[str, Any]
    source: Mapping[str, Any]


def checked_tools(given: object) -> tuple[Tool, ...]:
    """
    >>> [tool.name for tool in checked_tools([{"type": "function", "function": {"name": "f"}}])]
    ['f']
    """
    if given is None:
        return ()
    if not isinstance(given, Sequence) or isinstance(given, str | bytes):
        raise SettingError("tools", "a list of tools", given, hint=HINT)
    if len(given) > MOST_TOOLS:
        raise SettingError("tools", f"at most {MOST_TOOLS} tools", f"{len(given)}")
    size = Size()
    found = tuple(checked_tool(tool, f"tools[{i}]", size) for i, tool in enumerate(given))
    seen: dict[str, int] = {}
    for i, tool in enumerate(found):
        if seen.setdefault(tool.name, i) != i:
            raise SettingError(
                f"tools[{i}].function.name", "a name that no other tool has", tool.name
            )
    return found


def checked_tool(given: object, place: str, size: Size) -> Tool:
    if isinstance(given, Tool):
        return given
    if not isinstance(given, Mapping):
        raise SettingError(place, "a mapping", given, hint=HINT)
    if given.get("type", "function") != "function":
        raise SettingError(f"{place}.type", "'function'", given["type"], hint=HINT)
    function = given.get("function")
    if not isinstance(function, Mapping):
        raise SettingError(f"{place}.function", "a mapping", function, hint=HINT)
    name, described = function.get("name"), function.get("description")
    if not isinstance(name, str) or not NAME.fullmatch(name):
        expected = "1 to 64 letters, digits, dots, dashes and underscores"
        raise SettingError(f"{place}.function.name", expected, name)
    if described is not None and not isinstance(described, str):
        raise SettingError(f"{place}.function.description", "text", described)
    schema = function.get("parameters")
    schema = {"type": "object", "properties": {}} if schema is None or schema == {} else schema
    size.count(given, place)
    check_object(schema, f"{place}.function.parameters")
    return Tool(name, described or "", closed(schema), given)


def check_object(schema: object, place: str) -> None:
    """The schema of an object, which arguments are."""
    if not isinstance(schema, Mapping):
        raise SettingError(place, "a JSON schema", schema)
    if schema.get("type", "object") != "object":
        raise SettingError(f"{place}.type", "'object', as arguments have names", schema["type"])
    check_schema(schema, place, schema)


class Size:
    """Counts what is given, so that it stays within bounds."""

    def __init__(self) -> None:
        self.parts = self.characters = 0

    def count(self, value: object, place: str, depth: int = 0) -> None:
        """Plain data only: nothing else is JSON."""
        if depth > DEEPEST:
            raise SettingError(place, f"a schema of at most {DEEPEST} levels", "more")
        self.parts += 1
        if isinstance(value, str):
            self.characters += len(value)
        elif isinstance(value, Mapping):
            for key, part in value.items():
                if not isinstance(key, str):
                    raise SettingError(place, "keys that are text", key)
                self.characters += len(key)
                self.count(part, f"{place}.{key}"[:200], depth + 1)
        elif isinstance(value, list | tuple):
            for i, part in enumerate(value):
                self.count(part, f"{place}[{i}]"[:200], depth + 1)
        elif value is not None and not isinstance(value, bool | int | float):
            raise SettingError(place, "text, a number, a list or a mapping", value)
        if self.parts > MOST_PARTS or self.characters > MOST_TEXT:
            raise SettingError("tools", f"at most {MOST_PARTS} values and {MOST_TEXT} characters",
                               "more")  # fmt: skip


def check_schema(schema: object, place: str, root: Mapping[str, Any]) -> None:
    """What would otherwise be found out in the middle of an answer; unknown words are let pass."""
    if isinstance(schema, bool):
        return
    if not isinstance(schema, Mapping):
        raise SettingError(place, "a JSON schema", schema)
    check_words(schema, place, root)
    for word in NAMED:
        parts = schema.get(word, {})
        if not isinstance(parts, Mapping):
            raise SettingError(f"{place}.{word}", "schemas by name", parts)
        for name, part in parts.items():
            check_schema(part, f"{place}.{word}.{name}", root)
    for word in SINGLE:
        if word in schema and not (word == "items" and isinstance(schema[word], list)):
            check_schema(schema[word], f"{place}.{word}", root)
    for word in SEVERAL:
        parts = schema.get(word, [True])
        if not isinstance(parts, list | tuple) or not parts:
            raise SettingError(f"{place}.{word}", "a list of schemas", parts)
        for i, part in enumerate(parts):
            check_schema(part, f"{place}.{word}[{i}]", root)


def check_words(schema: Mapping[str, Any], place: str, root: Mapping[str, Any]) -> None:
    kinds = schema.get("type", [])
    for kind in [kinds] if isinstance(kinds, str) else kinds if isinstance(kinds, list) else [None]:
        if kind not in TYPES:
            raise SettingError(f"{place}.type", f"one of {', '.join(TYPES)}", schema["type"])
    required = schema.get("required", [])
    if not isinstance(required, list | tuple) or not all(isinstance(n, str) for n in required):
        raise SettingError(f"{place}.required", "a list of names", required)
    choices = schema.get("enum", [None])
    if not isinstance(choices, list | tuple) or not choices:
        raise SettingError(f"{place}.enum", "a list of values", choices)
    if "$ref" in schema:
        check_reference(schema["$ref"], f"{place}.$ref", root)
    if isinstance(schema.get("pattern", ""), str):
        return
    raise SettingError(f"{place}.pattern", "a regular expression", schema["pattern"])


def check_reference(given: object, place: str, root: Mapping[str, Any]) -> None:
    """A reference leads into the same schema, and at last to something else than a reference."""
    found = given
    seen: set[str] = set()
    while True:
        if not isinstance(found, str) or not (found == "#" or found.startswith("#/")):
            raise SettingError(place, "a place in this schema, such as '#/$defs/name'", found)
        if found in seen or len(seen) > DEEPEST:
            raise SettingError(place, "a reference that leads somewhere", given)
        seen.add(found)
        target = pointed(root, found)
        if not isinstance(target, Mapping | bool):
            raise SettingError(place, "a place that is in this schema", given)
        if isinstance(target, bool) or "$ref" not in target:
            return
        found = target["$ref"]


def pointed(root: object, pointer: str) -> object:
    """What a JSON pointer leads to; None if there is nothing."""
    for name in pointer.split("/")[1:]:
        name = name.replace("~1", "/").replace("~0", "~")
        if isinstance(root, Mapping):
            root = root.get(name)
        elif isinstance(root, list) and name.isdecimal() and int(name) < len(root):
            root = root[int(name)]
        else:
            return None
    return root


def closed(schema: Any) -> Any:
    """Objects have the properties that their schema names, and no others, where it does not say
    otherwise: a model that may invent arguments does.

    >>> closed({"properties": {"a": {"type": "integer"}}})
    {'properties': {'a': {'type': 'integer'}}, 'additionalProperties': False}
    """
    if not isinstance(schema, Mapping):
        return schema
    found = {word: closed_word(word, part) for word, part in schema.items()}
    is_whole = "properties" in schema and not OPEN & schema.keys()
    return found | {"additionalProperties": False} if is_whole else found


def closed_word(word: str, part: Any) -> Any:
    if word in NAMED:
        return {name: closed(one) for name, one in part.items()}
    if word in SEVERAL and word != "allOf":
        return [closed(one) for one in part]
    return closed(part) if word in SINGLE else part


# -- which tools -----------------------------------------------------------------------------------


def chosen_tools(tools: Sequence[Tool], choice: object) -> tuple[str, tuple[Tool, ...]]:
    """ "none", "auto" or "required", and the tools that may be called then.

    >>> chosen_tools((), None)
    ('none', ())
    """
    if choice is None or choice in ("auto", "none"):
        return ("auto" if tools and choice != "none" else "none"), tuple(tools)
    if not tools:
        raise SettingError("tool_choice", "'none' or 'auto', as there are no tools", choice)
    if choice in ("required", "any"):
        return "required", tuple(tools)
    function = choice.get("function") if isinstance(choice, Mapping) else None
    name = function.get("name") if isinstance(function, Mapping) else None
    named = tuple(tool for tool in tools if tool.name == name)
    if not named:
        known = ", ".join(tool.name for tool in tools[:10])
        expected = (
            "'none', 'auto', 'required' or "
            '{"type": "function", "function": {"name": one of the tools}}'
        )
        raise SettingError("tool_choice", expected, choice, hint=f"tools: {known}")
    return "required", named
