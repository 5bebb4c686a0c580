"""Serve, OpenAI, embeddings: POST /v1/embeddings. Texts, or tokens, in; vectors, as numbers or
their bytes in base64, out.
"""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any

import numpy as np

from tetrad.core.errors import TetradError
from tetrad.serve.app import ApiCall, Response, Route, json_response
from tetrad.serve.errors import invalid, public
from tetrad.serve.openai.completions import prompts_of
from tetrad.serve.openai.shapes import Json
from tetrad.serve.schema import EmbeddingBody, body_as

if TYPE_CHECKING:
    from tetrad.models.model import Model


async def embed(call: ApiCall) -> Response:
    body = body_as(EmbeddingBody, await call.data())
    texts, most = prompts_of_input(body.input), call.app.limits.texts
    if len(texts) > most:
        raise invalid(f"input: at most {most} texts, got {len(texts)}", "input")
    async with call.store.using(body.model) as loaded:
        call.notes["model"] = loaded.name
        check_dimensions(body, loaded.model.config.width)
        return await call.store.compute(loaded, answered, loaded.model, loaded.name, texts, body)


def prompts_of_input(given: str | list[Any]) -> list[Any]:
    try:
        return prompts_of(given)
    except Exception:
        said = "input: expected a string, strings, tokens, or lists of tokens"
        raise invalid(said, "input", "invalid_type") from None


def check_dimensions(body: EmbeddingBody, width: int) -> None:
    if body.dimensions is not None and body.dimensions > width:
        said = f"dimensions: at most {width}, those of the model, got {body.dimensions}"
        raise invalid(said, "dimensions", "integer_above_max_value")


def answered(model: Model, name: str, texts: list[Any], body: EmbeddingBody) -> Response:
    """In a thread: the vectors, and the answer with them."""
    try:
        tokens = [model.text_tokens(text, body.truncate) for text in texts]
    except TetradError as error:
        raise public(error, "input") from error
    vectors = shortened(model.embed(tokens), body.dimensions, model.normalizes)
    count = sum(map(len, tokens))
    return json_response(
        {
            "object": "list",
            "data": [entry(i, vector, body.encoding_format) for i, vector in enumerate(vectors)],
            "model": name,
            "usage": {"prompt_tokens": count, "total_tokens": count},
        }
    )


def shortened(vectors: np.ndarray, dimensions: int | None, normalizes: bool) -> np.ndarray:
    """The first of the dimensions, of length 1 again."""
    if dimensions is None:
        return vectors
    cut = vectors[:, :dimensions].astype(np.float64)
    if normalizes:
        cut /= np.maximum(np.linalg.norm(cut, axis=1, keepdims=True), 1e-12)
    return cut.astype(np.float32)


def entry(index: int, vector: np.ndarray, encoding: str) -> Json:
    shown: Any = vector.tolist()
    if encoding == "base64":
        shown = base64.b64encode(vector.astype("<f4").tobytes()).decode()
    return {"object": "embedding", "index": index, "embedding": shown}


ROUTES = [Route("POST", "/v1/embeddings", embed), Route("POST", "/embeddings", embed)]
