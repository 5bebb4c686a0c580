"""Serve, llama.cpp, props: GET /props, what a model is and what a request gets that names no
settings."""

from __future__ import annotations

from typing import Any

from tetrad.core.version import __version__
from tetrad.models.decoding.settings import DEFAULTS
from tetrad.serve.app import ApiCall, Response, Route, json_response
from tetrad.serve.llama.query import asked_model
from tetrad.serve.schema import SAMPLING
from tetrad.serve.store import LoadedModel


async def props(call: ApiCall) -> Response:
    async with call.store.using(asked_model(call)) as loaded:
        return json_response(facts(loaded))


def facts(loaded: LoadedModel) -> dict[str, Any]:
    model, metadata = loaded.model, loaded.model.metadata
    tokenizer = model.tokenizer
    bos, eos = (
        "" if i is None else tokenizer.token_text(i) for i in (tokenizer.bos, tokenizer.eos)
    )
    chosen = {name: DEFAULTS[name] for name in SAMPLING} | model.recommended
    return {
        "model_alias": loaded.name,
        "model_name": model.name,
        "total_slots": len(model.engine.slots),
        "chat_template": str(metadata.get("tokenizer.chat_template", "")),
        "bos_token": bos,
        "eos_token": eos,
        "build_info": f"tetrad {__version__}",
        "default_generation_settings": {"n_ctx": model.context, "params": chosen},
    }


ROUTES = [Route("GET", "/props", props)]
