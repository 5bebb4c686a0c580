"""Text, tools, reasoning: how a model marks what it thinks before it answers.

Receives the source of a chat template, or a prompt made with it; says which marks stand around
reasoning, whether the prompt has opened it, and how it is switched off.
"""

from __future__ import annotations

import re

from tetrad.core.record import record

MARKS = (("<think>", "</think>"), ("[THINK]", "[/THINK]"))
SWITCHES = ("enable_thinking", "thinking")  # variables of templates


@record
class Reasoning:
    """The marks around reasoning. `opened`: the prompt ends inside, so the answer starts there."""

    begin: str
    end: str
    opened: bool = False


def reasoning_marks(template: str) -> Reasoning | None:
    """The marks that a template knows; None for a model that does not think aloud.

    >>> reasoning_marks("{% if enable_thinking %}<think>...</think>{% endif %}")
    Reasoning(begin='<think>', end='</think>', opened=False)
    """
    return next((Reasoning(a, b) for a, b in MARKS if a in template or b in template), None)


def reasoning_in(marks: Reasoning | None, prompt: str) -> Reasoning | None:
    """How the answer to this prompt begins: inside of reasoning, before it, or (None) after a
    block that the prompt has closed.

    >>> reasoning_in(Reasoning("<think>", "</think>"), "...<think>\\n").opened
    True
    >>> reasoning_in(Reasoning("<think>", "</think>"), "...<think>\\n\\n</think>\\n\\n")
    """
    tail = prompt.rstrip()
    if marks is None or tail.endswith(marks.end):
        return None
    return Reasoning(marks.begin, marks.end, tail.endswith(marks.begin))


def switch_of(template: str) -> str | None:
    """The variable by which a template switches reasoning on and off."""
    return next((name for name in SWITCHES if re.search(rf"\b{name}\b", template)), None)


def closed_by(marks: Reasoning | None, prompt: str) -> str:
    """What to put behind a prompt so that the model does not think: an empty block, or the end of
    one that is open.

    >>> closed_by(Reasoning("<think>", "</think>"), "<|assistant|>")
    '<think>\\n\\n</think>\\n\\n'
    """
    found = reasoning_in(marks, prompt)
    if found is None:
        return ""
    lines = "\n" * max(0, 2 - (len(prompt) - len(prompt.rstrip("\n"))))
    return f"{lines}{found.end}\n\n" if found.opened else f"{found.begin}\n\n{found.end}\n\n"
