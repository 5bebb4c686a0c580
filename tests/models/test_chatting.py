"""Conversations: tools are called and parsed, reasoning is apart, bounded and switched off; marks
that are control tokens are seen."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import tetrad as td
from tests.models.tiny import tiny_model
from tests.text.tools.test_grammars import TOOLS, fits
from tetrad.core.errors import SettingError
from tetrad.formats import gguf
from tetrad.models.model import Model
from tetrad.text.tools import joined

pytest.importorskip("llguidance")

CONTROL, USER_DEFINED = 3, 4
MARKS = ("<tool_call>", "</tool_call>", "<think>", "</think>")
HI = [{"role": "user", "content": "hi"}]
TEMPLATE = (
    "{% if tools %}<tools>{{ tools | tojson }}</tools><tool_call>{% endif %}"
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}"
    "{% for c in m.tool_calls %}<tool_call>\n{{ c.function | tojson }}\n</tool_call>{% endfor %}"
    "<|im_end|>\n{% endfor %}<|im_start|>assistant\n"
    "{% if open %}<think>\n{% elif enable_thinking is defined and not enable_thinking %}"
    "<think>\n\n</think>\n\n{% endif %}"
)


def made(path: Path, kind: int, template: str = TEMPLATE) -> Model:
    metadata, tensors = tiny_model("llama", context=1024)
    tokens, kinds = metadata["tokenizer.ggml.tokens"], metadata["tokenizer.ggml.token_type"]
    for i, mark in enumerate(MARKS, len(tokens) - len(MARKS)):
        tokens[i], kinds[i] = mark, kind
    gguf.write(path, metadata | {"tokenizer.chat_template": template}, tensors)
    return td.load(path)


@pytest.fixture(scope="module", params=[CONTROL, USER_DEFINED], ids=["control", "defined"])
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Model:
    return made(tmp_path_factory.mktemp("chat") / "tiny.gguf", request.param)


def token(model: Model, text: str) -> int:
    return model.tokenizer.encode(text, add_special=False)[0]


@pytest.mark.parametrize("seed", range(3))
def test_required_tools_are_called(model: Model, seed: int) -> None:
    found = model.chat(
        HI, tools=TOOLS, tool_choice="required", parallel_tool_calls=False,
        think=False, max_tokens=400, seed=seed, temperature=1.5,
    )  # fmt: skip
    assert found.finish_reason == "stop" and len(found.tool_calls) == 1
    assert found.content == "" and "<tool_call>" in found.text
    call = found.tool_calls[0]
    assert fits(call.name, json.loads(call.arguments))


def test_a_stream_is_the_same_answer(model: Model) -> None:
    given: dict[str, Any] = {
        "tools": TOOLS, "tool_choice": "required", "parallel_tool_calls": False, "think": False,
        "max_tokens": 400, "seed": 4,
    }  # fmt: skip
    whole = model.chat(HI, **given)
    *pieces, last = model.chat(HI, stream=True, **given)
    assert "".join(piece.text for piece in (*pieces, last)) == whole.text
    assert last.completion.tool_calls[0].arguments == whole.tool_calls[0].arguments
    turn = model.turn(HI, tools=TOOLS, tool_choice="required", think=False)
    parser = turn.parser()
    events = [e for piece in (*pieces, last) for e in parser.feed(piece.text)] + parser.finish()
    assert joined(events).tool_calls[0].arguments == whole.tool_calls[0].arguments
    stream = model.chat(HI, stream=True, **given)
    next(stream)
    stream.cancel()
    stream.close()


def test_a_call_in_free_text(model: Model) -> None:
    """A model that wants to call does so at once; the mark is seen though it may be a control
    token."""
    liked = {token(model, "<tool_call>"): 100.0}
    found = model.chat(HI, tools=TOOLS, parallel_tool_calls=False, think=False, logit_bias=liked,
                       max_tokens=400, seed=1)  # fmt: skip
    assert len(found.tool_calls) == 1 and found.content == ""
    free = model.chat(HI, tools=TOOLS, tool_choice="none", think=False, max_tokens=5, seed=1)
    assert free.tool_calls == () and free.content == free.text


@pytest.mark.parametrize("budget", [0, 1, 7])
@pytest.mark.parametrize("choice", ["none", "required"])
def test_reasoning_ends_at_its_budget(model: Model, budget: int, choice: str) -> None:
    """A model that never stops to think must, also under a grammar; then it answers."""
    never = {i: -1e9 for i in (token(model, "</think>"), *model.tokenizer.stop_ids)}
    found = model.chat(
        HI, tools=TOOLS, tool_choice=choice, parallel_tool_calls=False, logit_bias=never, seed=2,
        template={"open": True}, reasoning_budget=budget, max_tokens=300, temperature=1.0,
    )  # fmt: skip
    thought = found.text.partition("</think>")[0]
    count = found.tokens.index(token(model, "</think>"))
    assert budget <= count <= budget + 3  # a character is not cut
    assert found.reasoning == thought.strip()
    assert bool(found.tool_calls) == (choice == "required" and found.finish_reason == "stop")


def test_an_answer_that_does_not_think_has_no_budget(model: Model) -> None:
    settings = {"max_tokens": 12, "seed": 3, "think": False}
    free = model.chat(HI, **settings)
    assert model.chat(HI, reasoning_budget=2, **settings).text == free.text


def test_reasoning_the_model_begins_itself(model: Model) -> None:
    liked = {token(model, "<think>"): 50.0}
    found = model.chat(HI, logit_bias=liked, reasoning_budget=3, max_tokens=20, seed=1,
                       json_schema={"const": {"a": 1}})  # fmt: skip
    assert found.text.startswith("<think>")
    assert 4 <= found.tokens.index(token(model, "</think>")) <= 7
    assert json.loads(found.content) == {"a": 1}


def test_reasoning_is_switched_off(model: Model, tmp_path: Path) -> None:
    assert model.turn(HI, think=False).prompt.endswith("assistant\n<think>\n\n</think>\n\n")
    assert model.turn(HI, think=False).reasoning is None
    assert model.turn(HI).prompt.endswith("assistant\n")
    opened = model.turn(HI, template={"open": True})
    assert opened.reasoning is not None and opened.reasoning.opened
    always = made(tmp_path / "always.gguf", USER_DEFINED, "{{ messages[0].content }}<think>\n")
    assert always.turn(HI, think=False).prompt == "hi<think>\n\n</think>\n\n"


def test_a_model_without_tools_is_told_of_them(tmp_path: Path) -> None:
    source = (
        "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>{% endfor %}"
    )
    model = made(tmp_path / "plain.gguf", USER_DEFINED, source)
    call = {"id": "c", "type": "function", "function": {"name": "now", "arguments": "{}"}}
    asked = [
        {"role": "system", "content": "Be kind."},
        *HI,
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c", "name": "now", "content": "noon"},
        {"role": "user", "content": "and?"},
    ]
    prompt = model.turn(asked, tools=TOOLS).prompt
    assert '"name": "weather"' in prompt and prompt.startswith("<|im_start|>system\nBe kind.")
    assert '<tool_call>\n{"name": "now", "arguments": {}}\n</tool_call>' in prompt
    assert "user\n<tool_response>" in prompt and "tool\n" not in prompt
    assert "weather" not in model.turn(HI, tools=TOOLS, tool_choice="none").prompt


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"tools": [{"type": "function"}]}, r"tools\[0\].function"),
        ({"tool_choice": "required"}, "tool_choice"),
        ({"tools": TOOLS, "grammar": 'root ::= "a"'}, "grammar"),
        ({"template": 3}, "template"),
        ({"json_schema": "{"}, "json_schema"),
        ({"reasoning_budget": "x"}, "reasoning_budget"),
    ],
)
def test_what_is_wrong_is_said(model: Model, given: dict[str, Any], said: str) -> None:
    with pytest.raises(SettingError, match=said):
        model.chat(HI, **given)
