"""Serve, routes: every place that answers, in one list. A new API is one more line."""

from __future__ import annotations

from tetrad.serve import pages
from tetrad.serve.anthropic import messages
from tetrad.serve.app import Route
from tetrad.serve.llama import health, props, rerank, state, tokens
from tetrad.serve.ollama import generate
from tetrad.serve.ollama import models as ollama_models
from tetrad.serve.openai import chat, completions, embeddings, models, responses

APIS = (
    chat, completions, embeddings, models, responses, messages, generate, ollama_models, health,
    props, state, tokens, rerank,
)  # fmt: skip


def all_routes(*, page: bool = True, metrics: bool = True, slots: bool = True) -> list[Route]:
    """What a server answers at; the page, the numbers and the slots may be left out."""
    hidden = {*(() if metrics else ("/metrics",)), *(() if slots else ("/slots",))}
    found = [route for api in APIS for route in api.ROUTES if route.path not in hidden]
    return [*found, *pages.ROUTES] if page else found
