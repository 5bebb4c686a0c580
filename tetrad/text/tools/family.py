"""Text, tools, family: what distinguishes the families of models that call tools.

A family is one file: how its calls are read, which grammar writes them, and how the messages of a
conversation must look for its templates.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from tetrad.text.tools.definitions import Tool
from tetrad.text.tools.incoming import Incoming, Output, Steps
from tetrad.text.tools.lark import Lark

Messages = Sequence[Mapping[str, Any]]


class ToolFamily(Protocol):
    """How models of one descent write calls."""

    @property
    def name(self) -> str: ...

    @property
    def opens(self) -> tuple[str, ...]:
        """Marks that begin calls; a grammar writes the first."""

    @property
    def marks(self) -> tuple[str, ...]:
        """All marks of calls: those that are control tokens must be shown to a parser."""

    @property
    def is_bare(self) -> bool:
        """May an answer that is nothing but calls begin without a mark?"""

    @property
    def is_single(self) -> bool:
        """Has an answer one call at most?"""

    def read(self, source: Incoming, output: Output, mark: str) -> Steps[bool]:
        """What follows a mark that opens calls; False if it is none."""

    def calls(self, lark: Lark, tools: Sequence[Tool], parallel: bool) -> str:
        """What follows the first mark in a grammar, to the end of the last call."""

    def prepared(self, messages: Messages, tools: Sequence[Tool]) -> tuple[Messages, Any]:
        """Messages and the variable `tools` as the templates of the family want them."""
