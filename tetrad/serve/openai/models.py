"""Serve, OpenAI, models: GET /v1/models, and one of them by its name."""

from __future__ import annotations

from urllib.parse import unquote

from tetrad.serve.app import ApiCall, Response, Route, json_response
from tetrad.serve.errors import ApiError
from tetrad.serve.openai.shapes import Json
from tetrad.serve.store import ModelPlace, ModelStore

PREFIX = "/v1/models/"


async def list_models(call: ApiCall) -> Response:
    shown = [entry(call.store, place) for place in call.store.places]
    return json_response({"object": "list", "data": shown})


async def one_model(call: ApiCall) -> Response:
    name = unquote(call.head.path[len(PREFIX) :])
    place = call.store.by_name.get(name)
    if place is None:
        said = f"the model {name[:200]!r} does not exist here"
        raise ApiError(404, said, param="model", code="model_not_found")
    return json_response(entry(call.store, place))


def entry(store: ModelStore, place: ModelPlace) -> Json:
    """Beside what OpenAI has: other names, and what a loaded model is."""
    data: Json = {
        "id": place.name,
        "object": "model",
        "created": place.made,
        "owned_by": "tetrad",
        "aliases": list(place.aliases),
    }
    loaded = store.loaded.get(place.name)
    if loaded is not None:
        config = loaded.model.config
        data["meta"] = {
            "n_vocab": config.vocab, "n_ctx": loaded.model.context, "n_ctx_train": config.context,
            "n_embd": config.width,
        }  # fmt: skip
    return data | {"status": {"value": "loaded" if loaded is not None else "unloaded"}}


ROUTES = [
    Route("GET", "/v1/models", list_models),
    Route("GET", "/models", list_models),
    Route("GET", PREFIX, one_model),
]
