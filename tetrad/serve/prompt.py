"""Serve, prompt: what is done to a question before anything is evaluated. A `ChatRequest` in;
requests for the scheduler, and parsers for what comes back, out.

Templates, tokens, settings and grammars: all of it runs in a thread, off the event loop.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tetrad.core import lazy
from tetrad.core.errors import TetradError
from tetrad.core.record import field, record, replace
from tetrad.models.decoding.generation import Request
from tetrad.models.decoding.settings import checked
from tetrad.serve.errors import invalid, public
from tetrad.serve.store import LoadedModel
from tetrad.text.tools import AnswerParser

if TYPE_CHECKING:
    from tetrad.models.model import Model

Prompt = str | list[int]


@record
class ChatRequest:
    """What is asked for: messages, or prompts to be continued; `n` answers to each."""

    model: str | None
    settings: dict[str, Any]  # of `Model.generate`
    messages: Sequence[Mapping[str, Any]] | None = None
    prompts: Sequence[Prompt] = ()
    tools: Sequence[Mapping[str, Any]] | None = None
    tool_choice: str | Mapping[str, Any] | None = None  # None: auto, where there are tools
    parallel: bool = True  # several calls in one answer
    think: bool | None = None  # None: as the model does
    apart: bool = True  # reasoning is no part of the text
    variables: dict[str, Any] = field(default_factory=dict)  # of the chat template
    n: int = 1
    tenant: str = ""
    shares: bool = True  # keys and values of earlier requests of the tenant
    priority: int = 0
    seconds: float = 0.0  # until it is given up; 0: as the server says

    def completing(self, prompt: Prompt) -> ChatRequest:
        """The same for a prompt that no template is put around."""
        return replace(self, messages=None, prompts=(prompt,))


@record
class Prepared:
    """One request for each choice, and what reads its answer: nothing where that is plain text."""

    requests: list[Request]
    parsers: list[AnswerParser | None]


def prepare(loaded: LoadedModel, request: ChatRequest, variables: Mapping[str, Any]) -> Prepared:
    """`variables` are those that the server gives to every template."""
    if loaded.model.parts.programs.is_encoder:
        raise invalid(f"{loaded.name} embeds texts; it does not write any", "model")
    settings = {**loaded.model.recommended, **loaded.place.defaults, **request.settings}
    checked(**settings)
    if request.messages is not None:
        return prepare_chat(loaded.model, request, settings, variables)
    prompts = [plain_prompt(loaded.model, prompt) for prompt in request.prompts]
    made = [
        one for tokens in prompts for one in loaded.model.numbered(tokens, request.n, **settings)
    ]
    return Prepared(made, [None] * len(made))


def plain_prompt(model: Model, prompt: Prompt) -> list[int]:
    try:
        return model.prompt_tokens(prompt)
    except TetradError as error:
        raise public(error, "prompt") from error


def prepare_chat(
    model: Model, request: ChatRequest, settings: dict[str, Any], variables: Mapping[str, Any]
) -> Prepared:
    """A conversation: the template, the grammar of its tools, and parsers for what comes."""
    check_variables(request.variables)
    try:
        turn = model.turn(
            request.messages or (),
            tools=request.tools or None,
            tool_choice=request.tool_choice,
            parallel_tool_calls=request.parallel,
            think=request.think,
            template={**variables, **request.variables},
            grammar=settings.get("grammar"),
            json_schema=settings.get("json_schema"),
        )
        made = model.numbered(turn.tokens, request.n, **{**settings, **turn.settings})
    except TetradError as error:
        raise public(error, "messages") from error
    reasoning = turn.reasoning if request.apart else None
    if turn.tools is None and reasoning is None:
        return Prepared(made, [None] * len(made))
    return Prepared(made, [turn.dialect.parser(turn.tools, reasoning) for _ in made])


def check_variables(variables: Mapping[str, Any]) -> None:
    """A request may set plain variables of a template, and none of those that are the server's."""
    reserved = lazy.module("tetrad.text.chat").RESERVED
    for name in variables:
        if name in reserved or not name.isidentifier() or name.startswith("_"):
            said = f"chat_template_kwargs: {name[:40]!r} is no variable that a request can set"
            raise invalid(said, "chat_template_kwargs", "invalid_value")
