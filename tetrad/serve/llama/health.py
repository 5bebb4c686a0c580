"""Serve, llama.cpp, health: whether the server can answer. No key is needed."""

from __future__ import annotations

from tetrad.serve.app import ApiCall, Response, Route, json_response
from tetrad.serve.errors import unavailable


async def health(call: ApiCall) -> Response:
    if call.app.is_draining:
        raise unavailable("the server is shutting down", 10)
    if call.store.loading and not call.store.loaded:
        raise unavailable("Loading model", 1)
    return json_response({"status": "ok"})


ROUTES = [
    Route("GET", "/health", health, is_public=True),
    Route("GET", "/v1/health", health, is_public=True),
]
