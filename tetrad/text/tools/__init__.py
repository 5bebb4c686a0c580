"""Tools and reasoning: what a model's chat template makes of them, a grammar for calls, a parser
for answers. One file a family of models; `dialect_of` finds the family."""

from tetrad.text.tools.dialect import ToolDialect, dialect_of
from tetrad.text.tools.events import (
    Answer,
    AnswerEvent,
    CallArguments,
    CallBegins,
    ReasoningDelta,
    TextDelta,
    ToolCall,
    joined,
)
from tetrad.text.tools.parser import AnswerParser
from tetrad.text.tools.reasoning import Reasoning

__all__ = [
    "Answer",
    "AnswerEvent",
    "AnswerParser",
    "CallArguments",
    "CallBegins",
    "Reasoning",
    "ReasoningDelta",
    "TextDelta",
    "ToolCall",
    "ToolDialect",
    "dialect_of",
    "joined",
]
