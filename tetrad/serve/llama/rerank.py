"""Serve, llama.cpp, rerank: POST /v1/rerank. A query and texts in; the texts' numbers by how well
they answer it out, the best first."""

from __future__ import annotations

from typing import Any

from tetrad.serve.app import ApiCall, Response, Route, json_response
from tetrad.serve.errors import invalid
from tetrad.serve.schema import RerankBody, body_as


async def rerank(call: ApiCall) -> Response:
    body = body_as(RerankBody, await call.data())
    texts, most = documents(body), call.app.limits.texts
    if not texts or len(texts) > most:
        raise invalid(f"documents: expected 1 to {most} texts, got {len(texts)}", "documents")
    async with call.store.using(body.model) as loaded:
        call.notes["model"] = loaded.name
        model = loaded.model
        scores, count = await call.store.compute(
            loaded, lambda: scored(model, body.query, texts, body.truncate)
        )
        order = sorted(range(len(texts)), key=lambda i: (-scores[i], i))
        data = {
            "object": "list",
            "model": loaded.name,
            "results": [
                result(i, scores[i], texts[i] if body.return_documents else None)
                for i in order[: body.top_n]
            ],
            "usage": {"prompt_tokens": count, "total_tokens": count},
        }
        return json_response(data)


def documents(body: RerankBody) -> list[str]:
    """Texts, as Cohere, Jina or TEI spell them."""
    given = body.texts if body.documents is None else body.documents
    found = [one.get("text") if isinstance(one, dict) else one for one in given or []]
    if not all(isinstance(text, str) for text in found):
        raise invalid("documents: expected texts, or objects with a text", "documents")
    return [text for text in found if isinstance(text, str)]


def scored(model: Any, query: str, texts: list[str], truncate: bool) -> tuple[list[float], int]:
    scores = model.rerank(query, texts, truncate=truncate).tolist()
    return scores, sum(len(model.pair_tokens(query, text, truncate)[0]) for text in texts)


def result(index: int, score: float, text: str | None) -> dict[str, Any]:
    shown = {} if text is None else {"document": {"text": text}}
    return {"index": index, "relevance_score": score, **shown}


ROUTES = [Route("POST", path, rerank) for path in ("/v1/rerank", "/rerank", "/v1/reranking")]
