"""Serve, strict JSON: a body in; plain data out, or an error that says what is wrong with it.

Refused, beside what is no JSON: keys that occur twice, NaN and infinity, numbers too large for a
float, whole numbers of more than 19 digits, deep nesting, and anything but an object.
"""

from __future__ import annotations

import json
import math
import re
from typing import Any

from tetrad.serve.errors import invalid
from tetrad.serve.limits import Limits

STRING = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"')
BRACKET = re.compile(rb"[\[\]{}]")
OPENING = b"[{"


def read_object(body: bytes, limits: Limits) -> dict[str, Any]:
    """The object that a body holds."""
    if not body:
        raise invalid("the body is empty: expected a JSON object")
    try:
        found = decoder(limits.digits).decode(body.decode())
    except UnicodeDecodeError:
        raise invalid("the body is no UTF-8") from None
    except json.JSONDecodeError as error:
        raise invalid(f"the body is no JSON: {error.msg} at character {error.pos}") from None
    except RecursionError:
        raise too_deep(limits) from None
    check_depth(body, limits)
    check_characters(body, found)
    if not isinstance(found, dict):
        raise invalid("expected a JSON object as the body")
    return found


def check_depth(body: bytes, limits: Limits) -> None:
    """Of valid JSON, whose strings therefore end: the expression reads each once."""
    if body.count(b"[") + body.count(b"{") <= limits.depth:
        return
    depth = 0
    for match in BRACKET.finditer(STRING.sub(b"", body)):
        depth += 1 if match[0] in OPENING else -1
        if depth > limits.depth:
            raise too_deep(limits)


def check_characters(body: bytes, found: Any) -> None:
    """Half of a pair of escapes is no character, and no text that could be answered with."""
    if b"\\ud" in body or b"\\uD" in body:
        try:
            json.dumps(found, ensure_ascii=False).encode()
        except UnicodeEncodeError:
            raise invalid("a string holds half of a character, which is no Unicode") from None


def too_deep(limits: Limits) -> Exception:
    return invalid(f"the body is nested more than {limits.depth} deep")


def decoder(digits: int) -> json.JSONDecoder:
    def whole(text: str) -> int:
        if len(text.lstrip("-")) > digits:
            raise invalid(f"a whole number has more than {digits} digits")
        return int(text)

    return json.JSONDecoder(
        object_pairs_hook=unique, parse_constant=no_number, parse_float=finite, parse_int=whole
    )


def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        seen: set[str] = set()
        twice = next(name for name, _ in pairs if name in seen or seen.add(name))  # type: ignore[func-returns-value]
        raise invalid(f"the key {twice[:100]!r} occurs twice in an object", twice[:100])
    return found


def finite(text: str) -> float:
    found = float(text)
    if math.isinf(found):
        raise invalid(f"the number {text[:40]} is too large")
    return found


def no_number(text: str) -> float:
    raise invalid(f"{text} is no JSON")
