"""Serve, pages: the files of the web page, at `/` and `/page/NAME`. They hold no secrets, so they
need no key; what the page asks for does."""

from __future__ import annotations

from tetrad.serve.app import ApiCall, Response, Route
from tetrad.serve.errors import ApiError
from tetrad.serve.page import PageFile, page_files

PREFIX = "/page/"


async def first(call: ApiCall) -> Response:
    return shown(call, page_files().get("index.html"))


async def file(call: ApiCall) -> Response:
    return shown(call, page_files().get(call.head.path[len(PREFIX) :]))


def shown(call: ApiCall, found: PageFile | None) -> Response:
    if found is None:
        raise ApiError(404, "there is no such file", code="not_found")
    own = {name.lower(): value for name, value in found.headers.items()}
    # what holds for answers of models, that nobody keeps them, does not hold for these
    call.headers = tuple(pair for pair in call.headers if pair[0] not in own)
    held = [tag.strip() for tag in call.head.headers.get("if-none-match", "").split(",")]
    if own["etag"] in held:
        return Response(b"", 304, tuple(own.items()))
    return Response(found.body, 200, tuple(own.items()))


ROUTES = [
    Route("GET", "/", first, is_public=True),
    Route("GET", PREFIX, file, is_public=True),
]
