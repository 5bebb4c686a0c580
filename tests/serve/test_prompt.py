"""What a server makes of a question: calls are seen also where their marks are control tokens."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests.models.test_chatting import CONTROL, HI, TEMPLATE, made
from tests.text.tools.test_grammars import TOOLS
from tetrad.serve.prompt import ChatRequest, prepare
from tetrad.serve.store import LoadedModel
from tetrad.text.tools import dialect_of, joined

pytest.importorskip("llguidance")


def test_marks_that_are_control_tokens_are_seen(tmp_path: Path) -> None:
    model = made(tmp_path / "tiny.gguf", CONTROL)
    dialect = dialect_of(TEMPLATE, model.tokenizer)
    place = SimpleNamespace(defaults={})
    loaded: Any = SimpleNamespace(
        name="tiny", model=model, place=place, dialect=lambda has_tools: dialect
    )
    asked = ChatRequest(None, {"max_tokens": 400, "seed": 1}, HI, tools=TOOLS, think=False,
                        tool_choice="required", parallel=False)  # fmt: skip
    found = prepare(cast(LoadedModel, loaded), asked, {})
    (request,), (parser,) = found.requests, found.parsers
    assert request.settings["preserved_tokens"] == dialect.preserved != () and parser is not None
    text = model.generate(request.tokens, **request.settings).text
    answer = joined(parser.feed(text) + parser.finish())
    assert len(answer.tool_calls) == 1 and answer.content == ""
