"""Serve, schema: what bodies of requests may hold. Plain data in; typed records out, or an error
that names the field.

Settings that draw tokens are those of `models/decoding/settings.py`, by their names there and in
llama.cpp; their ranges are checked where they are used. A field that is unknown is refused, as
OpenAI does; fields of OpenAI and llama.cpp that mean nothing here are listed and passed over.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from typing import Annotated, Any, Literal, TypeVar

import msgspec
from msgspec import Meta, Struct

from tetrad.models.decoding.settings import RULES, Free
from tetrad.serve.errors import ApiError, invalid
from tetrad.serve.limits import Limits

T = TypeVar("T")
# by their own names in JSON; the others there have their own fields, or are no data
SAMPLING = (
    *(name for name, rule in RULES.items() if not isinstance(rule, Free)
      and name not in ("max_tokens", "logprobs", "stop")),
)  # fmt: skip
SWITCHES = ("ignore_eos", "penalize_prompt", "temperature_first", "shift")
SPELT = {  # names of llama.cpp and of other servers
    "n_keep": "keep",
    "repetition_penalty": "repeat_penalty",
    "typ_p": "typical_p",
    "context_shift": "shift",
}
IGNORED = frozenset(
    {
        "user", "store", "metadata", "service_tier", "safety_identifier", "prompt_cache_key",
        "prompt_cache_retention", "verbosity", "modalities", "id_slot", "min_keep",
        "return_progress", "timings_per_token", "post_sampling_probs",
        "parse_tool_calls", "return_tokens",
    }
)  # fmt: skip
PLACE = re.compile(r"(.*) - at `(?:key in )?\$([^`]*)`$", re.DOTALL)
UNKNOWN = re.compile(r"Object contains unknown field `(.*)`", re.DOTALL)
MISSING = re.compile(r"Object missing required field `(.*)`", re.DOTALL)

Count = Annotated[int, Meta(ge=-1)]
Texts = str | list[str]


class StreamOptions(Struct, forbid_unknown_fields=True):
    include_usage: bool = False
    include_obfuscation: bool = False  # as padding against guesses by length; nothing here


class JsonSchema(Struct):
    schema: dict[str, Any] | bool
    name: str = ""
    strict: bool | None = None
    description: str | None = None


class ResponseFormat(Struct, forbid_unknown_fields=True):
    type: Literal["text", "json_object", "json_schema"]
    json_schema: JsonSchema | None = None
    schema: dict[str, Any] | None = None  # beside json_object, as llama.cpp has it


class AnswerBody(Struct, forbid_unknown_fields=True, kw_only=True):
    """What chats and completions have in common."""

    model: str | None = None
    stream: bool = False
    stream_options: StreamOptions | None = None
    n: Annotated[int, Meta(ge=1)] = 1
    max_tokens: Count | None = None
    n_predict: Count | None = None
    stop: Texts | None = None
    logit_bias: dict[str, float] | list[tuple[int | str, float | bool]] | None = None
    grammar: str | dict[str, str] | None = None
    json_schema: dict[str, Any] | None = None
    response_format: ResponseFormat | None = None
    cache_prompt: bool = True


class ChatBody(AnswerBody, kw_only=True):
    messages: Annotated[list[dict[str, Any]], Meta(min_length=1)]
    max_completion_tokens: Count | None = None
    logprobs: bool = False
    top_logprobs: Annotated[int, Meta(ge=0, le=20)] = 0
    tools: list[dict[str, Any]] | None = None
    tool_choice: str | dict[str, Any] | None = None
    parallel_tool_calls: bool = True
    reasoning_effort: Literal["none", "minimal", "low", "medium", "high", "xhigh"] | None = None
    reasoning_format: Literal["none", "auto", "deepseek"] = "auto"
    chat_template_kwargs: dict[str, Any] | None = None


class CompletionBody(AnswerBody, kw_only=True):
    prompt: str | list[Any]
    suffix: str | None = None
    echo: bool = False
    best_of: int | None = None
    logprobs: Annotated[int, Meta(ge=0, le=20)] | None = None


class EmbeddingBody(Struct, forbid_unknown_fields=True):
    input: str | list[Any]
    model: str | None = None
    encoding_format: Literal["float", "base64"] = "float"
    dimensions: Annotated[int, Meta(ge=1)] | None = None
    truncate: bool = False


class RerankBody(Struct, forbid_unknown_fields=True):
    query: str
    documents: list[str | dict[str, Any]] | None = None
    texts: list[str] | None = None
    model: str | None = None
    top_n: Annotated[int, Meta(ge=0)] | None = None
    return_documents: bool = False
    truncate: bool = True


class TokenizeBody(Struct, forbid_unknown_fields=True):
    content: str | None = None
    prompt: str | None = None
    model: str | None = None
    add_special: bool = False
    parse_special: bool = True
    with_pieces: bool = False


class DetokenizeBody(Struct, forbid_unknown_fields=True):
    tokens: list[int]
    model: str | None = None


class TemplateBody(Struct, forbid_unknown_fields=True):
    messages: list[dict[str, Any]]
    model: str | None = None
    tools: list[dict[str, Any]] | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    add_generation_prompt: bool = True


# -- from data to records --------------------------------------------------------------------------


def body_as(kind: type[T], data: Mapping[str, Any]) -> T:
    """The record, of fields that are there and not null."""
    known = {name: value for name, value in data.items() if value is not None}
    try:
        return msgspec.convert(
            {name: value for name, value in known.items() if name not in IGNORED}, kind
        )
    except msgspec.ValidationError as error:
        raise explained(str(error), kind) from None


def explained(text: str, kind: type) -> ApiError:
    """
    >>> error = explained("Expected `int`, got `str` - at `$.max_tokens`", ChatBody)
    >>> error.param, error.message
    ('max_tokens', 'max_tokens: expected int, got str')
    """
    match = PLACE.fullmatch(text)
    said, place = (match[1], match[2].lstrip(".")) if match else (text, "")
    if unknown := UNKNOWN.fullmatch(said):
        return unknown_parameter(join(place, unknown[1]), kind)
    if missing := MISSING.fullmatch(said):
        name = join(place, missing[1])
        return invalid(f"{name} is needed, and missing", name, "missing_required_parameter")
    code = "invalid_type" if ", got `" in said else "invalid_value"
    plain = said.replace("`", "")
    return invalid(f"{place}: {plain[:1].lower()}{plain[1:]}"[:500], place or None, code)


def join(place: str, name: str) -> str:
    return f"{place}.{name}" if place else name


def unknown_parameter(name: str, kind: type) -> ApiError:
    fields = [*getattr(kind, "__struct_fields__", ()), *SAMPLING]
    close = get_close_matches(name, fields, n=1)
    meant = f" Did you mean {close[0]!r}?" if close else ""
    return invalid(f"Unknown parameter: {name[:100]!r}.{meant}", name[:100], "unknown_parameter")


def split_settings(data: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """(settings that draw tokens, by their names here; the other fields)."""
    settings, rest = {}, {}
    for name, value in data.items():
        own = SPELT.get(name, name)
        if own in SWITCHES and value is not None and not isinstance(value, bool):
            raise invalid(f"{name}: expected a bool, got {kind_of(value)}", name, "invalid_type")
        if own in SAMPLING or own in SWITCHES:
            settings[own] = value
        else:
            rest[name] = value
    return {name: value for name, value in settings.items() if value is not None}, rest


def kind_of(value: object) -> str:
    names = {str: "a string", int: "an integer", float: "a number", list: "an array"}
    return names.get(type(value), "an object")


def answer_settings(body: AnswerBody, settings: dict[str, Any], limits: Limits) -> dict[str, Any]:
    """All settings of `generate` that a chat or a completion has asked for."""
    if body.n > limits.choices:
        raise invalid(f"n: at most {limits.choices}, got {body.n}", "n", "integer_above_max_value")
    stop = [body.stop] if isinstance(body.stop, str) else body.stop or []
    if len(stop) > limits.stops:
        raise invalid(f"stop: at most {limits.stops} texts, got {len(stop)}", "stop")
    # an empty text would end every answer before it begins; OpenAI's clients send some
    found = {**settings, "stop": [text for text in stop if text]}
    if (bias := body.logit_bias) is not None:
        found["logit_bias"] = biases(bias)
    return found | constraint_of(body, limits)


def biases(
    given: Mapping[str, float] | Sequence[tuple[int | str, float | bool]],
) -> dict[int, float]:
    """OpenAI's mapping, or the pairs of llama.cpp, in which false forbids a token."""
    pairs = given.items() if isinstance(given, Mapping) else given
    found: dict[int, float] = {}
    for token, bias in pairs:
        if not str(token).isdecimal():
            raise invalid(f"logit_bias: expected ids of tokens, got {token!r:.40}", "logit_bias")
        found[int(token)] = float("-inf") if bias is False else float(bias)
    return found


def constraint_of(body: AnswerBody, limits: Limits) -> dict[str, Any]:
    """The grammar or the schema that an answer must follow."""
    schema = schema_of(body.response_format)
    given = {"grammar": body.grammar, "json_schema": body.json_schema, "response_format": schema}
    named = [name for name, value in given.items() if value is not None]
    if len(named) > 1:
        raise invalid(f"give one of {' and '.join(named)}", named[-1], "invalid_value")
    if not named:
        return {}
    value = given[named[0]]
    if len(msgspec.json.encode(value)) > limits.grammar:
        raise invalid(f"{named[0]}: more than {limits.grammar} bytes", named[0], "too_large")
    return {"grammar" if named[0] == "grammar" else "json_schema": value}


def schema_of(wanted: ResponseFormat | None) -> dict[str, Any] | bool | None:
    if wanted is None or wanted.type == "text":
        return None
    if wanted.type == "json_object":
        return wanted.schema or {"type": "object"}
    if wanted.json_schema is None:
        name = "response_format.json_schema"
        raise invalid(f"{name} is needed, and missing", name, "missing_required_parameter")
    return wanted.json_schema.schema
