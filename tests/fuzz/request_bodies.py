"""Fuzzing requests, bodies: every field of every endpoint, with every kind of value that it should
not have.

Values are written as JSON would be, also where that is none: NaN, numbers without end, half a
character. `cases(rng)` gives bodies that differ from a good one in one to three fields, or in their
grammar.
"""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from msgspec.structs import fields

from tetrad.serve import schema
from tetrad.serve.anthropic.messages import MessagesBody
from tetrad.serve.ollama.generate import OllamaChat, OllamaPrompt
from tetrad.serve.ollama.models import EmbedBody, ShowBody
from tetrad.serve.openai.responses import ResponsesBody

Raw = dict[str, bytes]
SAMPLING = (*schema.SAMPLING, *schema.SWITCHES, *schema.SPELT)
HELLO = [{"role": "user", "content": "hello"}]
# Anthropic's errors have no place for a field; the tiny model cannot rank at all.
SILENT = ("/v1/messages", "/v1/messages/count_tokens", "/v1/rerank")


@dataclass(frozen=True)
class Endpoint:
    """Where a body goes, a good one, and the names of all that it may hold."""

    path: str
    good: dict[str, Any]
    names: tuple[str, ...]

    @property
    def tells_fields(self) -> bool:
        """OpenAI's errors name the field that is wrong."""
        return self.path.startswith("/v1/") and self.path not in SILENT


def endpoint(path: str, body: type, good: dict[str, Any], *more: str) -> Endpoint:
    return Endpoint(path, good, (*(field.encode_name for field in fields(body)), *more))


CHAT = {"messages": HELLO, "max_tokens": 2, "seed": 1}
OLLAMA = {"model": "tiny", "stream": False, "options": {"num_predict": 2, "seed": 1}}
ENDPOINTS = (
    endpoint("/v1/chat/completions", schema.ChatBody, CHAT, *SAMPLING),
    endpoint(
        "/v1/completions",
        schema.CompletionBody,
        {"prompt": "hello", "max_tokens": 2, "seed": 1},
        *SAMPLING,
    ),
    endpoint("/v1/embeddings", schema.EmbeddingBody, {"input": "hello"}),
    endpoint("/v1/rerank", schema.RerankBody, {"query": "a", "documents": ["b", "c"]}),
    endpoint("/tokenize", schema.TokenizeBody, {"content": "hello"}),
    endpoint("/detokenize", schema.DetokenizeBody, {"tokens": [1, 2]}),
    endpoint("/apply-template", schema.TemplateBody, {"messages": HELLO}),
    endpoint(
        "/v1/messages",
        MessagesBody,
        {"model": "tiny", "messages": HELLO, "max_tokens": 2},
    ),
    endpoint(
        "/v1/messages/count_tokens",
        MessagesBody,
        {"model": "tiny", "messages": HELLO, "max_tokens": 2},
    ),
    endpoint("/v1/responses", ResponsesBody, {"input": "hello", "max_output_tokens": 2}),
    endpoint("/api/chat", OllamaChat, {**OLLAMA, "messages": HELLO}),
    endpoint("/api/generate", OllamaPrompt, {**OLLAMA, "prompt": "hello"}),
    endpoint("/api/embed", EmbedBody, {"model": "tiny", "input": "hello"}),
    endpoint("/api/show", ShowBody, {"model": "tiny"}),
)

# -- values ----------------------------------------------------------------------------------------

# No JSON, or none that is taken: wherever they stand, the answer is 400.
NEVER = (
    b"NaN", b"Infinity", b"-Infinity", b"1e999", b"-1e999", b"9" * 20, b"-" + b"9" * 30,
    b"9" * 5000, b'"\\ud800"', b'"\\udc00x"', b"01", b"+1", b".5", b"1.", b"0x10", b"'a'",
    b"undefined", b"tru", b'"\x01"', b'"\xff\xfe"', b'"a', b"[1,]", b"[" * 40 + b"]" * 40,
    b"[" * 100_000, b'{"a":' * 2000, b"{,}", b'{"a":1,"a":2}', b'"\\x"', b"/*x*/1", b"", b"[1 2]",
    b'{"a" 1}', b"\xef\xbb\xbf1",
)  # fmt: skip
ODD = (
    b"null", b"true", b"false", b"0", b"-0", b"-0.0", b"-1", b"-2", b"1", b"2", b"1.5", b"1e2",
    b"1e308", b"-1e308", b"5e-324", b"2147483648", b"4294967296", b"9223372036854775807",
    b"9223372036854775808", b"-9223372036854775809", b"1e19", b'""', b'"a"', b'"0"', b'"-1"',
    b'"1e999"', b'"\\u0000"', b'" "', b'"tiny"', b'"json"', b'"auto"', b'"none"', b'"required"',
    b'"<|im_start|>"', b'"\\u001b[2J"', b'"\\ud83d\\ude00"', b'"%s%n"', b'"../../etc/passwd"',
    b"[]", b"{}", b"[[]]", b"[{}]", b"[null]", b'[""]', b'["a"]', b"[0]", b"[-1]", b"[1e5]",
    b"[true]", b'["a",1]', b"[[1,2],[3]]", b'[["a"]]', b"[4294967296]", b"[9223372036854775807]",
    b'{"a":1}', b'{"":""}', b'{"0":1}', b'{"-1":1}', b'{"1":1e308}', b'{"999999999":-100}',
    b'{"type":"object"}', b'{"type":"json_object"}', b'{"type":"json_schema"}',
    b'{"type":"json_schema","json_schema":{}}', b'{"type":"function"}',
    b'{"type":"json_schema","json_schema":{"name":"a","schema":{"$ref":"#"}}}', b'{"type":[]}',
    b'{"$ref":"#"}', b'{"$ref":"file:///etc/passwd"}', b'{"$ref":"http://127.0.0.1/"}',
    b'{"pattern":"(a+)+$"}', b'{"enum":[]}', b'{"type":"string","minLength":9223372036854775807}',
    b'{"type":"array","minItems":1000000}', b'{"anyOf":[]}', b'{"not":{}}', b'{"const":1}',
    b'"root ::= root"', b'"root ::= \\"a\\" root | \\"\\""', b'"root ::= ["', b'"x"',
    b'{"lark":"start: start"}', b'{"lark":"start: /(a+)+b/"}', b'{"regex":"(a|a)*c"}',
    b'{"a":{"b":{"c":[{}]}}}', b'{"messages":[]}', b'[{"role":"user"}]',
    b'[{"role":"user","content":[]}]', b'[{"role":"user","content":{}}]',
    b'[{"role":[],"content":"a"}]', b'[{"role":"tool","content":"a"}]', b'[{"content":"a"}]',
    b'[{"role":"assistant","content":null,"tool_calls":[1]}]', b'[{"role":"user","content":[1]}]',
    b'[{"role":"assistant","content":null,"tool_calls":[{"function":{"name":1,"arguments":2}}]}]',
    b'[{"role":"assistant","content":"","tool_calls":{"a":1}}]', b'[{"role":"user","content":1}]',
    b'[{"role":"user","content":[{"type":"image_url","image_url":{"url":"file:///etc/passwd"}}]}]',
    b'[{"role":"user","content":[{"type":"text"}]}]',
    b'[{"role":"user","content":[{"type":"tool_use"}]}]',
    b'[{"role":"user","content":[{"type":"tool_result","content":5}]}]',
    b'[{"role":"system","content":""}]',
    b'[{"role":"assistant","content":"a"},{"role":"user","content":"b","tool_calls":5}]',
    b'[{"type":"function"}]', b'[{"type":"function","function":{}}]',
    b'[{"function":{"name":""}}]',
    b'[{"type":"function","function":{"name":"f","parameters":{"type":"nonsense"}}}]',
    b'[{"type":"function","function":{"name":"f","parameters":[]}}]',
    b'[{"name":"f","input_schema":5}]', b'[{"name":"f","input_schema":{}}]',
    b'[{"type":"message","content":1}]', b'[{"type":"nothing"}]',
    b'[{"type":"function_call_output","output":1}]', b'[{"type":"reasoning","summary":1}]',
    b'{"num_ctx":"a"}', b'{"num_ctx":1e300}', b'{"num_predict":"a"}', b'{"temperature":[]}',
    b'{"stop":5}', b'{"seed":1.5}', b'{"seed":-5}', b'{"include_usage":1}',
    b'{"type":"tool","name":5}', b'{"type":"enabled","budget_tokens":-1}',
    b'{"format":{"type":"json_schema"}}', b'{"effort":5}',
    b'{"type":"function","function":{"name":"nobody"}}', b'{"enable_thinking":{}}', b'{"loop":1}',
    b'{"add_generation_prompt":false}', b'{"bos_token":[]}', b'{"tools":[]}', b'{"self":1}',
    b'{"a b":1}',
)  # fmt: skip


def huge(rng: random.Random) -> bytes:
    """A value that is only too much."""
    count = rng.choice((70, 3000, 10_000))
    return rng.choice(
        (
            b'"' + b"a " * (count * 5) + b'"',
            b'"' + b"\\u0041" * count + b'"',
            b"[" + b",".join([b"1"] * count) + b"]",
            b"[" + b",".join([b'"ab"'] * count) + b"]",
            b"{" + b",".join(b'"%d":1' % i for i in range(count)) + b"}",
            b"[" + b",".join([b'{"role":"user","content":"a"}'] * count) + b"]",
            b'{"type":"object","properties":{'
            + b",".join(b'"a%d":{"type":"string"}' % i for i in range(count))
            + b"}}",
            b'{"anyOf":[' + b",".join([b'{"type":"string"}'] * count) + b"]}",
            b'"root ::= ' + b"a | " * count + b'b"',
        )
    )


# -- bodies ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class BodyCase:
    """A body; `names` are the fields that were changed, `is_refused` says that 400 is the only
    answer."""

    endpoint: Endpoint
    body: bytes
    names: Sequence[str]
    is_refused: bool


def raw(data: dict[str, Any]) -> Raw:
    return {name: json.dumps(value).encode() for name, value in data.items()}


def joined(members: Raw) -> bytes:
    inner = b",".join(json.dumps(name).encode() + b":" + text for name, text in members.items())
    return b"{" + inner + b"}"


def body_case(rng: random.Random) -> BodyCase:
    place = rng.choice(ENDPOINTS)
    if rng.random() < 0.1:
        return broken_body(rng, place)
    members, names, is_refused = raw(place.good), [], False
    for name in rng.sample((*place.names, "nobody_knows"), rng.choice((1, 1, 1, 2, 2))):
        if name == "keep_alive" and rng.random() < 0.9:  # loads the model again each time
            continue
        kind = rng.random()
        if kind < 0.2:
            value, never = rng.choice(NEVER), True
        else:
            value, never = huge(rng) if kind < 0.23 else rng.choice(ODD), False
        members[name], is_refused = value, is_refused or never
        names.append(name)
    return BodyCase(place, joined(members), names, is_refused)


def broken_body(rng: random.Random, place: Endpoint) -> BodyCase:
    """What is no object, or twice the same, or cut off."""
    good = joined(raw(place.good))
    name = rng.choice(sorted(place.good)).encode()
    bodies = (
        b"", b"null", b"[]", b"1", b'"a"', b"[" * 50, good[: rng.randrange(len(good))],
        good + good, b'{"%b":1,"%b":2}' % (name, name), good[:-1] + b',"%b":1}' % name,
        b"\x00" + good, good + b"\x00", b"\xff" + good, b"a=b",
        b"--x\r\nContent-Disposition: form-data\r\n", good.replace(b'"', b"'"),
        good.decode().encode("utf-16"), b"{" * 20_000, b"[" * 500_000, good[:-1] + b",}",
    )  # fmt: skip
    return BodyCase(place, rng.choice(bodies), (), True)
