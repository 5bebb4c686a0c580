"""Chat templates render as `apply_chat_template` of `transformers` does, and calls that a template
writes are read back."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.text.conversations import (
    ASK,
    BOS,
    CASES,
    EOS,
    GOLDENS,
    ONE,
    SOURCES,
    SYSTEM,
    TOOLS,
    TWO,
    Frozen,
)
from tests.text.tools.marked import marked_tokenizer
from tetrad.core.errors import TemplateError
from tetrad.text import sandbox
from tetrad.text.chat import ChatTemplate
from tetrad.text.tools import dialect_of, joined

KNOWN: dict[str, dict[str, Any]] = json.loads(GOLDENS.read_text("utf-8"))
FAMILIES = {
    "qwen2.5": "hermes", "qwen3": "hermes", "hermes": "hermes", "llama3.1": "llama",
    "llama3.2": "llama", "mistral-v3": "mistral", "mistral-v11": "mistral", "phi4-mini": "phi",
    "deepseek-r1": "deepseek", "gemma2": "generic", "gemma3": "generic", "phi3": "generic",
    "phi4": "generic", "smollm2": "generic",
}  # fmt: skip
THINKING = {"qwen3", "deepseek-r1"}
ENDS = ("<|im_end|>", "<|eot_id|>", "</s>", "<end_of_turn>", "<|end|>", "<\uff5cend\u2581of\u2581sentence\uff5c>")  # noqa: E501 # fmt: skip


def test_every_template_has_its_goldens() -> None:
    assert KNOWN.keys() == SOURCES.keys() == FAMILIES.keys()
    assert all(cases.keys() == CASES.keys() for cases in KNOWN.values())


@pytest.mark.parametrize("name", SOURCES)
def test_prompts_are_those_of_transformers(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sandbox, "datetime", Frozen)
    template = ChatTemplate(SOURCES[name], BOS, EOS)
    for case, given in CASES.items():
        want, variables = KNOWN[name][case], dict(given)
        messages = variables.pop("messages")
        if isinstance(want, str):
            assert template.render(messages, **variables) == want, case
            continue
        with pytest.raises(TemplateError) as error:
            template.render(messages, **variables)
        assert want["error"] in str(error.value), case


@pytest.mark.parametrize("name", SOURCES)
@pytest.mark.parametrize("answer", [ONE, TWO], ids=["one call", "two calls"])
def test_calls_are_read_back(name: str, answer: dict[str, Any]) -> None:
    """What a template makes of an answer with calls is what a model of the family would write."""
    template = ChatTemplate(SOURCES[name], BOS, EOS)
    dialect = dialect_of(SOURCES[name], marked_tokenizer())
    assert dialect.family.name == FAMILIES[name]
    # one takes no system message, the other moves it to the last message of the user
    asked = [ASK] if name in ("gemma2", "mistral-v3") else [SYSTEM, ASK]
    before, tools = dialect.prepared(asked, TOOLS)
    if dialect.family.is_single and answer is TWO:
        answer = {**TWO, "tool_calls": TWO["tool_calls"][:1]}
    after, _ = dialect.prepared([*asked, answer], TOOLS)
    prompt = template.render(before, False, tools)
    whole = template.render(after, False, tools)
    said = written(whole[len(common(prompt, whole)) :], template, before, tools)
    parser = dialect.parser(TOOLS)
    found = joined(parser.feed(said) + parser.finish())
    calls = [(c["function"]["name"], c["function"]["arguments"]) for c in answer["tool_calls"]]
    assert [(c.name, json.loads(c.arguments)) for c in found.tool_calls] == calls
    keeps_text = not name.startswith(("llama", "mistral-v3", "hermes"))
    assert found.content == (answer["content"] if keeps_text else "")


def common(first: str, second: str) -> str:
    """What both begin with."""
    differs = (i for i, (a, b) in enumerate(zip(first, second, strict=False)) if a != b)
    return first[: next(differs, min(len(first), len(second)))]


def written(said: str, template: ChatTemplate, before: Any, tools: Any) -> str:
    """The answer itself, without what asks for it, what ends it, and empty reasoning."""
    bare, asked = (template.render(before, asks, tools) for asks in (False, True))
    asked = asked[len(common(asked, bare)) :].rstrip().removesuffix("<think>")
    said = said.removeprefix(asked).lstrip().removeprefix("<think>\n\n</think>").strip()
    for end in ENDS:
        said = said.removesuffix(end).rstrip()
    return said


@pytest.mark.parametrize("name", sorted(THINKING))
def test_templates_that_think(name: str) -> None:
    dialect = dialect_of(SOURCES[name], marked_tokenizer())
    template = ChatTemplate(SOURCES[name], BOS, EOS)
    prompt = template.render([ASK])
    reasoning = dialect.reasoning(prompt)
    assert reasoning is not None and reasoning.opened == (name == "deepseek-r1")
    off = template.render([ASK], **dialect.variables(False))
    off += dialect.closing(off, False)
    assert off.endswith("<think>\n\n</think>\n\n") and dialect.reasoning(off) is None


def test_templates_that_do_not_think() -> None:
    for name in SOURCES.keys() - THINKING:
        dialect = dialect_of(SOURCES[name], marked_tokenizer())
        assert dialect.thinking is None and dialect.closing("x", False) == ""
