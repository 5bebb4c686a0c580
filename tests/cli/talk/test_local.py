"""A model that thinks, here: what its template says decides how the answer is read."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.cli.conftest import Invoke
from tests.cli.terminal import seen_at_terminal
from tests.models.tiny import tiny_model
from tetrad.cli.talk.local import LocalPartner
from tetrad.cli.talk.parts import AnswerPart
from tetrad.formats import gguf
from tetrad.text.chat import ChatTemplate

QWEN = (
    "{{ messages[0].content }}{% if enable_thinking is false %}<think>\n\n</think>\n\n{% endif %}"
)
OPENED = "{{ messages[0].content }}<think>\n"


class Scripted:
    """Stands for a model: writes what it was told to, in pieces."""

    name, path, context = "scripted", "scripted.gguf", 64

    def __init__(self, template: str, *pieces: str) -> None:
        self.metadata = {"tokenizer.chat_template": template} if template else {}
        self.template, self.pieces = ChatTemplate(template or "{{ messages }}"), pieces

    def chat_tokens(self, messages: Any, **variables: Any) -> list[int]:
        return [1]

    def generate(self, tokens: list[int], **settings: Any) -> Any:
        for text in self.pieces:
            yield SimpleNamespace(text=text, completion=None)


def parts(template: str, *pieces: str, **variables: Any) -> list[AnswerPart]:
    model: Any = Scripted(template, *pieces)
    turns = [{"role": "user", "content": "Hi"}]
    return list(LocalPartner(model).answer([], turns, {"template": variables})[1])


def joined(found: list[AnswerPart]) -> tuple[str, str, str]:
    thought, text = (
        "".join(p.text for p in found if p.is_thought == is_on) for is_on in (True, False)
    )
    return thought.strip(), text.strip(), "".join(p.raw for p in found)


@pytest.mark.parametrize("template", [QWEN, ""], ids=["known marks", "no template"])
def test_a_thought_comes_apart(template: str) -> None:
    pieces = ("<th", "ink>\nHm", ".</thi", "nk>\n\nYes", ".")
    assert joined(parts(template, *pieces)) == ("Hm.", "Yes.", "".join(pieces))


def test_a_thought_that_the_prompt_began() -> None:
    assert joined(parts(OPENED, "Hm.\n</think>\n\nYes."))[:2] == ("Hm.", "Yes.")


def test_where_thinking_is_off_marks_are_text() -> None:
    found = parts(QWEN, "<think> is a mark", enable_thinking=False)
    assert joined(found)[:2] == ("", "<think> is a mark")


def test_run_shows_or_hides_thoughts(invoke: Invoke, tmp_path: Path) -> None:
    """The prompt opens a thought that the tiny model never ends: all of it is thought."""
    metadata, tensors = tiny_model("llama", context=256)
    path = tmp_path / "thinks.gguf"
    gguf.write(path, metadata | {"tokenizer.chat_template": OPENED}, tensors)
    words = ("run", str(path), "Hi", "--temp", "0", "-n", "6", "--ignore-eos")
    plain = invoke(*words).stdout
    assert plain.strip() and invoke(*words, "--hidethinking").stdout.strip() == ""
    code, seen = seen_at_terminal(*words, piped=b"")
    assert code == 0 and b"\x1b[2mThinking...\n" in seen and b"...done thinking." in seen
    code, seen = seen_at_terminal(*words, "--hide-thinking", piped=b"")
    assert code == 0 and b"hinking..." not in seen
