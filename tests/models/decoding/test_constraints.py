"""Grammars and schemas: answers that follow them, whatever the model would rather say; errors that
name the grammar."""

from __future__ import annotations

import json
import re
import sys
from typing import Any

import pytest

import tetrad as td
from tests.models.tiny import tiny_model
from tetrad.core.errors import SettingError, UnsupportedError
from tetrad.formats import gguf
from tetrad.models.decoding.constraints import GrammarConstraint, Grammars
from tetrad.models.model import Model

pytest.importorskip("llguidance")

SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"enum": ["ring", "world"]},
        "count": {"type": "integer", "minimum": 0, "maximum": 99},
    },
    "required": ["name", "count"],
    "additionalProperties": False,
}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Model:
    path = tmp_path_factory.mktemp("models") / "tiny.gguf"
    gguf.write(path, *tiny_model("llama", context=256))
    return td.load(path)


@pytest.mark.parametrize("seed", range(4))
def test_a_schema_is_followed(model: Model, seed: int) -> None:
    for schema in (SCHEMA, json.dumps(SCHEMA)):
        found = model.generate(
            "the", json_schema=schema, seed=seed, temperature=1.5, max_tokens=240
        )
        assert found.finish_reason == "stop"
        answer = json.loads(found.text)
        assert answer["name"] in ("ring", "world") and 0 <= answer["count"] <= 99


def test_white_space_in_json_comes_to_an_end(model: Model) -> None:
    """A model that would rather write new lines and spaces for ever may not."""
    blank = {
        model.tokenizer.encode(text, add_special=False)[-1]: 50.0 for text in ("\n", " ", "\t")
    }
    found = model.generate(
        "the", json_schema={"const": [1, 2]}, logit_bias=blank, temperature=0.0, max_tokens=200
    )
    assert found.finish_reason == "stop" and json.loads(found.text) == [1, 2]
    assert re.search(r"\s{23}|\n{3}", found.text) is None and " " in found.text


@pytest.mark.parametrize(
    ("grammar", "pattern"),
    [
        ('root ::= "red" | "green" | "blue"', "red|green|blue"),
        ('start: "a" "b"+ "."', r"ab+\."),
        ({"lark": 'start: "x" /[0-9]{2}/'}, "x[0-9]{2}"),
        ({"gbnf": 'root ::= [a-c] [a-c] "!"'}, "[a-c]{2}!"),
        ({"regex": "[0-9]{3}-[0-9]{2}"}, "[0-9]{3}-[0-9]{2}"),
    ],
)
def test_a_grammar_is_followed(model: Model, grammar: Any, pattern: str) -> None:
    for seed in range(3):
        found = model.generate("the", grammar=grammar, seed=seed, max_tokens=100)
        assert found.finish_reason == "stop" and re.fullmatch(pattern, found.text)


def test_speculation_keeps_to_the_grammar(model: Model) -> None:
    settings = {"grammar": {"regex": "(ab ){20}"}, "seed": 1, "max_tokens": 100}
    plain, quick = (model.generate("ab ab ab ab", speculate=n, **settings) for n in (0, 6))
    assert plain.tokens == quick.tokens and plain.text == "ab " * 20 and quick.accepted > 0


def test_what_the_grammar_forces_is_drafted(model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = {"grammar": 'root ::= [a-c] " the world of rings " [a-c]', "seed": 3}
    quick = model.generate("the", **settings)
    assert quick.accepted > 3 and quick.accepted <= quick.drafted
    monkeypatch.setattr(GrammarConstraint, "forced", lambda self: [])
    plain = model.generate("the", **settings)
    assert plain.tokens == quick.tokens and plain.drafted == 0


@pytest.mark.parametrize(
    ("settings", "name"),
    [
        ({"grammar": "root ::= ("}, "grammar"),
        ({"grammar": {"regex": "(("}}, "grammar"),
        ({"grammar": {"perl": "x"}}, "grammar"),
        ({"grammar": {}}, "grammar"),
        ({"grammar": {"regex": "a", "lark": "b"}}, "grammar"),
        ({"json_schema": "{"}, "json_schema"),
        ({"json_schema": {"type": "nothing like it"}}, "json_schema"),
        ({"json_schema": Ellipsis}, "json_schema"),
        ({"json_schema": {}, "grammar": "root ::= [a]"}, "grammar"),
    ],
    ids=str,
)
def test_what_is_no_grammar(model: Model, settings: dict[str, Any], name: str) -> None:
    with pytest.raises(SettingError, match=f"^{name}: expected"):
        model.generate("the", **settings)


def test_a_grammar_that_leads_nowhere(model: Model) -> None:
    with pytest.raises(SettingError) as caught:
        model.generate("the", grammar="root ::= root")
    assert "<state>" not in str(caught.value) and "from which no text completes it" in str(
        caught.value
    )


def test_without_the_library(model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "llguidance", None)  # as if it could not be found
    with pytest.raises(UnsupportedError, match="needs the package llguidance"):
        Grammars(model.tokenizer, 300).constraint("root ::= [a]")


@pytest.mark.parametrize(
    ("grammar", "text"),
    [
        (r'root ::= "\u0041\u00e9\U0001F600"', "Aé😀"),
        (r'root ::= "\x41\u0022\u005c" "\n"', 'A"\\\n'),
        (r"root ::= [\u65e5-\u65e5] [\U0000672c]", "日本"),
        (r'root ::= "\\u0041"', r"\u0041"),
    ],
)
def test_characters_named_by_their_numbers(model: Model, grammar: str, text: str) -> None:
    assert model.generate("the", grammar=grammar, max_tokens=40).text == text
    with pytest.raises(SettingError, match="grammar: expected one that is valid"):
        model.generate("the", grammar=r'root ::= "\ud800"')
