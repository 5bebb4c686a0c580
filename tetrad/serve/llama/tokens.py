"""Serve, llama.cpp, tokens: POST /tokenize, /detokenize and /apply-template."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tetrad.serve.app import ApiCall, Response, Route, json_response
from tetrad.serve.errors import invalid
from tetrad.serve.openai.chat import message
from tetrad.serve.prompt import check_variables
from tetrad.serve.schema import DetokenizeBody, TemplateBody, TokenizeBody, body_as

if TYPE_CHECKING:
    from tetrad.models.model import Model
    from tetrad.text.tokenizer import Tokenizer


async def tokenize(call: ApiCall) -> Response:
    body = body_as(TokenizeBody, await call.data())
    text = body.prompt if body.content is None else body.content
    if text is None:
        raise invalid("content is needed, and missing", "content", "missing_required_parameter")
    async with call.store.using(body.model) as loaded:
        return await call.store.in_thread(tokenized, loaded.model.tokenizer, text, body)


def tokenized(tokenizer: Tokenizer, text: str, body: TokenizeBody) -> Response:
    tokens = tokenizer.encode(text, add_special=body.add_special, parse_special=body.parse_special)
    shown: list[Any] = [piece(tokenizer, i) for i in tokens] if body.with_pieces else [*tokens]
    return json_response({"tokens": shown})


def piece(tokenizer: Tokenizer, token: int) -> dict[str, Any]:
    """A token and its text; its bytes, where they are no text alone."""
    data = tokenizer.token_bytes(token)
    try:
        return {"id": token, "piece": data.decode()}
    except UnicodeDecodeError:
        return {"id": token, "piece": list(data)}


async def detokenize(call: ApiCall) -> Response:
    body = body_as(DetokenizeBody, await call.data())
    async with call.store.using(body.model) as loaded:
        text = await call.store.in_thread(loaded.model.tokenizer.decode, body.tokens)
    return json_response({"content": text})


async def apply_template(call: ApiCall) -> Response:
    body = body_as(TemplateBody, await call.data())
    check_variables(body.chat_template_kwargs or {})
    async with call.store.using(body.model) as loaded:
        variables = {**call.store.variables, **(body.chat_template_kwargs or {})}
        return await call.store.in_thread(rendered, loaded.model, body, variables)


def rendered(model: Model, body: TemplateBody, variables: dict[str, Any]) -> Response:
    template = model.parts.tool_template if body.tools else model.template
    messages = [message(one, i) for i, one in enumerate(body.messages)]
    text = template.render(
        messages, add_generation_prompt=body.add_generation_prompt, tools=body.tools, **variables
    )
    return json_response({"prompt": text})


ROUTES = [
    Route("POST", "/tokenize", tokenize),
    Route("POST", "/detokenize", detokenize),
    Route("POST", "/apply-template", apply_template),
]
