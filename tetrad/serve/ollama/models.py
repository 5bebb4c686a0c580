"""Serve, ollama, models: GET /api/tags, /api/ps, /api/version, POST /api/show and /api/embed.

What a model is comes from its metadata alone: no weight is read for it.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from msgspec import Struct

from tetrad.core.version import __version__
from tetrad.hub.describe import Description, describe
from tetrad.serve.app import ApiCall, Response, Route, json_response
from tetrad.serve.errors import invalid
from tetrad.serve.ollama.shapes import named, ollama_error, options_as_chat, seconds_of, timestamp
from tetrad.serve.openai.embeddings import shortened
from tetrad.serve.openai.shapes import Json
from tetrad.serve.schema import body_as
from tetrad.serve.store import LoadedModel, ModelPlace, ModelStore

if TYPE_CHECKING:
    from tetrad.models.model import Model

NEVER = "9999-12-31T23:59:59Z"  # when a model goes that stays for ever
LONGEST = 4096  # characters of a text that /api/show tells, numbers of a list
TOKENIZER = "tokenizer."


class ShowBody(Struct):
    model: str | None = None
    name: str | None = None
    verbose: bool = False


class EmbedBody(Struct, forbid_unknown_fields=True, kw_only=True):
    model: str
    input: str | list[str] | None = None
    prompt: str | None = None
    truncate: bool = True
    dimensions: int | None = None
    options: dict[str, Any] | None = None
    keep_alive: str | int | float | None = None


async def version(call: ApiCall) -> Response:
    return json_response({"version": __version__})


async def tags(call: ApiCall) -> Response:
    places = call.store.places
    found = await call.store.in_thread(lambda: [entry(place) for place in places])
    return json_response({"models": found})


def entry(place: ModelPlace) -> Json:
    """A model as `ollama list` shows it. Its digest is of its name, size and time: files
    are large."""
    found = describe(str(place.path))
    seen = f"{place.name} {found.weight_bytes} {place.made}"
    return {
        "name": place.name,
        "model": place.name,
        "modified_at": timestamp(place.made),
        "size": found.weight_bytes,
        "digest": hashlib.sha256(seen.encode()).hexdigest(),
        "details": details(found),
    }


def details(found: Description) -> Json:
    return {
        "parent_model": "", "format": "gguf", "family": found.architecture,
        "families": [found.architecture], "parameter_size": size_name(found.parameters),
        "quantization_level": found.quant,
    }  # fmt: skip


def size_name(count: int) -> str:
    """
    >>> size_name(134_515_008), size_name(4_022_468_096)
    ('134.52M', '4.0B')
    """
    return f"{count / 1e9:.1f}B" if count >= 1e9 else f"{count / 1e6:.2f}M"


async def running(call: ApiCall) -> Response:
    store, loaded = call.store, list(call.store.loaded.values())
    found = await store.in_thread(lambda: [shown_loaded(store, one) for one in loaded])
    return json_response({"models": found})


def shown_loaded(store: ModelStore, loaded: LoadedModel) -> Json:
    keep, idle = store.keeps(loaded), time.monotonic() - loaded.used
    until = NEVER if keep < 0 else timestamp(time.time() + max(0.0, keep - idle))
    more = {"expires_at": until, "size_vram": 0, "context_length": loaded.model.context}
    return entry(loaded.place) | more


async def show(call: ApiCall) -> Response:
    body = body_as(ShowBody, await call.data())
    place = call.store.find(named(body.model or body.name))
    return json_response(await call.store.in_thread(described, place, body.verbose))


def described(place: ModelPlace, is_verbose: bool) -> Json:
    found = describe(str(place.path))
    template = found.metadata.get("tokenizer.chat_template")
    is_encoder = f"{found.architecture}.pooling_type" in found.metadata
    return {
        "modelfile": "",
        "parameters": "",
        "template": template if isinstance(template, str) else "",
        "license": str(found.metadata.get("general.license", "")),
        "details": details(found),
        "model_info": {
            key: shown_value(key, value, is_verbose) for key, value in found.metadata.items()
        },
        "capabilities": ["embedding"] if is_encoder else capabilities(template),
        "modified_at": timestamp(place.made),
    }


def capabilities(template: object) -> list[str]:
    text = template if isinstance(template, str) else ""
    found = ["completion", "embedding"]
    return [*found, "tools", *(["thinking"] if "<think>" in text else [])]


def shown_value(key: str, value: Any, is_verbose: bool) -> Any:
    """Lists of a vocabulary, and long texts, are told only to who asks for them."""
    is_long = isinstance(value, Sequence | np.ndarray) and len(value) > LONGEST
    if is_long and not (is_verbose and key.startswith(TOKENIZER)):
        return None
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    is_list = isinstance(value, Sequence) and not isinstance(value, str)
    return [shown_value(key, one, is_verbose) for one in value] if is_list else value


async def embed(call: ApiCall) -> Response:
    body = body_as(EmbedBody, await call.data())
    given = body.input if body.input is not None else body.prompt
    if given is None:
        raise invalid("input is needed, and missing", "input")
    texts = [given] if isinstance(given, str) else given
    if len(texts) > call.app.limits.texts:
        raise invalid(f"input: at most {call.app.limits.texts} texts, got {len(texts)}", "input")
    async with call.store.using(named(body.model)) as loaded:
        options_as_chat(body.options, loaded.model.context)
        if (keep := seconds_of(body.keep_alive)) is not None:
            loaded.keep_alive = keep
        call.notes["model"] = loaded.name
        vectors, count = await call.store.compute(loaded, vectors_of, loaded.model, texts, body)
    if call.route.path == "/api/embeddings":  # the older endpoint, for one text
        return json_response({"embedding": vectors[0] if vectors else []})
    nanoseconds = int((time.monotonic() - call.begin) * 1e9)
    return json_response(
        {
            "model": body.model, "embeddings": vectors, "total_duration": nanoseconds,
            "load_duration": 0, "prompt_eval_count": count,
        }
    )  # fmt: skip


def vectors_of(model: Model, texts: list[str], body: EmbedBody) -> tuple[list[list[float]], int]:
    """In a thread: vectors, and how many tokens were read for them."""
    if not texts:
        return [], 0
    tokens = [model.text_tokens(text, body.truncate) for text in texts]
    found = shortened(model.embed(tokens), body.dimensions, model.normalizes)
    return found.tolist(), sum(map(len, tokens))


ROUTES = [
    Route("GET", "/api/version", version, shape=ollama_error),
    Route("GET", "/api/tags", tags, shape=ollama_error),
    Route("GET", "/api/ps", running, shape=ollama_error),
    Route("POST", "/api/show", show, shape=ollama_error),
    Route("POST", "/api/embed", embed, shape=ollama_error),
    Route("POST", "/api/embeddings", embed, shape=ollama_error),
]
