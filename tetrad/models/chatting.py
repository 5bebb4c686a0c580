"""Models, chatting: a conversation made ready to be answered: its tokens, the grammar of its tools,
and a parser for the answer.

Receives a model, messages and tools as the OpenAI API has them; returns a `ChatTurn`. What is
generated for it is text, which its parser takes apart.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tetrad.core.errors import SettingError
from tetrad.core.record import record, replace
from tetrad.models.decoding.generation import Completion
from tetrad.text.chat import checked_messages, guarded_messages
from tetrad.text.tools import AnswerParser, Reasoning, ToolDialect, joined

if TYPE_CHECKING:
    from tetrad.models.model import Model


@record
class ChatTurn:
    """`settings` go to `generate` (or `request`) with the tokens; the text that comes goes to a
    parser."""

    prompt: str
    tokens: list[int]
    settings: dict[str, Any]
    dialect: ToolDialect
    tools: Any  # that can be called in the answer
    reasoning: Reasoning | None

    def parser(self) -> AnswerParser:
        """A parser for one answer."""
        return self.dialect.parser(self.tools, self.reasoning)

    def completed(self, completion: Completion) -> Completion:
        """The completion, with what its text holds."""
        parser = self.parser()
        found = joined(parser.feed(completion.text) + parser.finish())
        return replace(
            completion,
            content=found.content,
            reasoning=found.reasoning,
            tool_calls=found.tool_calls,
        )


def chat_turn(
    model: Model,
    messages: Sequence[Mapping[str, Any]],
    *,
    tools: Any = None,
    tool_choice: Any = None,
    parallel_tool_calls: bool = True,
    think: bool | None = None,
    template: Mapping[str, Any] | None = None,
    grammar: Any = None,
    json_schema: Any = None,
    chat_template: Any = None,
) -> ChatTurn:
    """What `Model.turn` tells."""
    variables = checked_variables(template)
    chosen = chat_template or (model.parts.tool_template if tools else model.template)
    dialect = model.dialect(chosen.source)
    guarded, guard = guarded_messages(messages, model.tokenizer)
    checked_messages(guarded)
    has_calls = dialect.can_call(tools, tool_choice)
    # templates that know tools are told of those that cannot be called now as well
    known = tools if has_calls or dialect.family.name != "generic" else None
    said, listed = dialect.prepared(guarded, known)
    prompt = chosen.render(said, **{"tools": listed, **dialect.variables(think), **variables})
    prompt += dialect.closing(prompt, think)
    reasoning = dialect.reasoning(prompt)
    schema = None if json_schema is None else schema_data(json_schema)
    made = dialect.grammar(tools, tool_choice, parallel_tool_calls, reasoning, schema)
    settings = grammar_settings(made, has_calls, reasoning, grammar, json_schema)
    if has_calls or reasoning is not None:
        settings["preserved_tokens"] = dialect.preserved
    tokens = model.tokenizer.encode(prompt, guard=guard)
    return ChatTurn(prompt, tokens, settings, dialect, tools if has_calls else None, reasoning)


def grammar_settings(
    made: str | None, has_calls: bool, reasoning: Reasoning | None, grammar: Any, json_schema: Any
) -> dict[str, Any]:
    """The grammar of calls, or what was asked for. A schema holds for what follows reasoning."""
    if grammar is not None:
        if has_calls:
            raise SettingError("grammar", "none beside tools that can be called", grammar)
        return {"grammar": grammar, "json_schema": json_schema}
    if has_calls or (reasoning is not None and made is not None):
        return {"grammar": {"lark": made}, "json_schema": None}
    return {"grammar": None, "json_schema": json_schema}


def schema_data(schema: Any) -> Any:
    """A schema as data; True is any object."""
    try:
        found = json.loads(schema) if isinstance(schema, str) else schema
    except ValueError as error:
        raise SettingError("json_schema", "a JSON schema", schema, hint=str(error)) from None
    if found is True or isinstance(found, Mapping):
        return found
    raise SettingError("json_schema", "a JSON schema", schema)


def checked_variables(template: object) -> Mapping[str, Any]:
    variables = template or {}
    if isinstance(variables, Mapping) and all(isinstance(name, str) for name in variables):
        return variables
    raise SettingError("template", "a mapping of variables", template)
