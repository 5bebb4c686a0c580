"""Serve, app: from the head of a request to the function that answers it. One router and one check:
a route that is not said to be public wants a key.

Host, origin, key and route are looked at before the body is read. Whatever a handler raises becomes
an error in the shape of its API; what was not raised on purpose is told to the log alone.
"""

from __future__ import annotations

import asyncio
import os
import time
import traceback
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

import msgspec

from tetrad.core.record import record
from tetrad.serve.connection import Connection, Reply
from tetrad.serve.errors import ApiError, public, unavailable
from tetrad.serve.keys import PREFLIGHT, Hosts, Keys, Origins
from tetrad.serve.log import Log
from tetrad.serve.store import ModelStore
from tetrad.serve.strict_json import read_object
from tetrad.serve.wire import RequestHead

JSON = (("content-type", "application/json"),)
COMMON = (("x-content-type-options", "nosniff"), ("cache-control", "no-store"))
LARGE = 64 << 10  # bytes of a body that is read in a thread
Pairs = tuple[tuple[str, str], ...]


@record
class Response:
    """A whole answer."""

    body: bytes
    status: int = 200
    headers: Pairs = JSON


def json_response(data: Any, status: int = 200) -> Response:
    return Response(msgspec.json.encode(data), status)


def openai_error(error: ApiError) -> bytes:
    return msgspec.json.encode(error.body())


@record(eq=False)
class Route:
    """A method and a path, and what answers there. A path that ends with a slash stands for all
    that begin so. `shape` gives the body of errors."""

    method: str
    path: str
    handler: Callable[[ApiCall], Awaitable[Response | None]]
    is_public: bool = False
    shape: Callable[[ApiError], bytes] = openai_error


class ApiCall:
    """One request, on its way through a handler."""

    def __init__(
        self, app: App, route: Route, head: RequestHead, tenant: str, peer: str, cors: Pairs
    ):
        self.app, self.route, self.head, self.tenant, self.peer = app, route, head, tenant, peer
        self.id = os.urandom(8).hex()
        self.headers: Pairs = (*COMMON, ("x-request-id", self.id), *cors)
        self.body = b""
        self.reply: Reply
        self.begin = time.monotonic()
        self.notes: dict[str, Any] = {}  # for the log

    @property
    def store(self) -> ModelStore:
        return self.app.store

    async def data(self) -> dict[str, Any]:
        """The body as a JSON object."""
        limits = self.app.limits
        if len(self.body) < LARGE:
            return read_object(self.body, limits)
        return await self.store.in_thread(read_object, self.body, limits)


class App:
    """Everything between connections and handlers."""

    def __init__(
        self,
        store: ModelStore,
        routes: Iterable[Route],
        *,
        keys: Keys | None = None,
        hosts: Hosts | None = None,
        origins: Origins | None = None,
        log: Log | None = None,
    ) -> None:
        self.store, self.limits = store, store.limits
        self.keys, self.hosts = keys or Keys(), hosts or Hosts("127.0.0.1")
        self.origins, self.log = origins or Origins(), log or store.log
        self.routes = {(route.method, route.path): route for route in routes}
        self.prefixes = [route for route in self.routes.values() if route.path.endswith("/")]
        self.methods: dict[str, list[str]] = {}
        for method, path in self.routes:
            self.methods.setdefault(path, []).append(method)
        self.connections: set[Connection] = set()
        self.reading, self.running = 0, 0
        self.is_draining = False
        self.begin = time.monotonic()

    # -- before the body ---------------------------------------------------------------------------

    def admit(self, head: RequestHead, peer: str) -> ApiCall:
        self.hosts.check(head.headers)
        cors = self.origins.headers(head.headers)
        if head.method == "OPTIONS" and cors:
            return ApiCall(self, PREFLIGHT_ROUTE, head, "", peer, cors)
        route = self.route(head)
        is_public = isinstance(route, Route) and route.is_public
        tenant = "" if is_public else self.keys.tenant(head.headers)
        if not isinstance(route, Route):
            raise route
        if self.is_draining and not is_public:
            raise unavailable("the server is shutting down", 10)
        return ApiCall(self, route, head, tenant, peer, cors)

    def route(self, head: RequestHead) -> Route | ApiError:
        method = "GET" if head.method == "HEAD" else head.method
        found = self.routes.get((method, head.path))
        if found is None:
            found = next(
                (r for r in self.prefixes if r.method == method and is_below(head.path, r.path)),
                None,
            )
        if found is not None:
            return found
        if others := self.methods.get(head.path):
            allow = (("allow", ", ".join(others)),)
            return ApiError(405, f"{head.path} takes {' or '.join(others)}", headers=allow)
        return ApiError(404, f"there is nothing at {head.path[:200]}", code="not_found")

    def refused(self, head: RequestHead | None, error: ApiError, peer: str) -> bytes:
        """A request that is not run: noted, and its body in the shape of its route."""
        route = None if head is None else self.route(head)
        path = "" if head is None else head.path
        self.log.write("refused", peer=peer, path=path, status=error.status, error=error.message)
        known = route.path if isinstance(route, Route) else ""
        self.store.metrics.answered(known, error.status, 0.0)
        return route.shape(error) if isinstance(route, Route) else openai_error(error)

    # -- after it ----------------------------------------------------------------------------------

    async def run(self, call: ApiCall, body: bytes, reply: Reply) -> None:
        call.body, call.reply = body, reply
        self.running += 1
        try:
            response = await call.route.handler(call)
            if response is not None:
                reply.whole(response.status, (*call.headers, *response.headers), response.body)
            self.note(call, reply.status)
        except asyncio.CancelledError:
            self.note(call, 499, error="the client has left")
            raise
        except Exception as error:
            self.failed(call, error)
        finally:
            self.running -= 1

    def failed(self, call: ApiCall, error: Exception) -> None:
        """An answer that is an error; in the middle of another, the connection ends."""
        shown = self.shown(call, error)
        self.note(call, shown.status, error=shown.message)
        if not call.reply.is_begun:
            headers = (*call.headers, *JSON, *shown.headers)
            call.reply.whole(shown.status, headers, call.route.shape(shown))

    def shown(self, call: ApiCall, error: Exception) -> ApiError:
        """What the client sees of an error; where that is nothing, the log has it."""
        found = public(error)
        if found.status == 500:
            text = "".join(traceback.format_exception(error))
            self.log.write("internal error", request=call.id, trace=text)
        return found

    def told(self, call: ApiCall, error: Exception) -> ApiError:
        """The same for an answer that has begun: its status says nothing of it, so its line in the
        log does."""
        found = self.shown(call, error)
        call.notes["error"] = found.message
        return found

    def note(self, call: ApiCall, status: int, **more: Any) -> None:
        seconds = time.monotonic() - call.begin
        self.store.metrics.answered(call.route.path, status, seconds)
        self.log.write(
            "answered", request=call.id, peer=call.peer, tenant=call.tenant or None,
            method=call.head.method, path=call.head.path, status=status,
            ms=round(seconds * 1e3, 1), **(call.notes | more),
        )  # fmt: skip


def is_below(path: str, prefix: str) -> bool:
    return len(path) > len(prefix) > 1 and path.startswith(prefix)


async def preflight(call: ApiCall) -> Response:
    return Response(b"", 204, PREFLIGHT)


PREFLIGHT_ROUTE = Route("OPTIONS", "*", preflight, is_public=True)
