"""A server for tests of clients: answers as it is told to, and remembers what it was asked."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Answer = Callable[["StubHandler", Any], None]


class StubHandler(BaseHTTPRequestHandler):
    """`answers` has what is done for a path."""

    answers: dict[str, Answer]
    asked: list[tuple[str, Any, str | None]]

    def do_GET(self) -> None:
        self.respond(None)

    def do_POST(self) -> None:
        self.respond(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))

    def respond(self, body: Any) -> None:
        self.asked.append((self.path, body, self.headers.get("Authorization")))
        try:
            self.answers[self.path](self, body)
        except ConnectionError:  # who asked has gone
            self.asked.append(("gone", None, None))

    def give(self, found: Any, status: int = 200) -> None:
        self.raw(json.dumps(found).encode(), status)

    def raw(self, data: bytes, status: int = 200, kind: str = "application/json") -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.end_headers()
        self.wfile.write(data)

    def event(self, found: Any) -> None:
        self.wfile.write(b"data: " + json.dumps(found).encode() + b"\n\n")
        self.wfile.flush()

    def log_message(self, *words: Any) -> None:
        """Nothing."""


@contextmanager
def stub(**answers: Answer) -> Iterator[tuple[str, list[tuple[str, Any, str | None]]]]:
    """Its address, and what it was asked. A path is spelt with _ for /."""
    asked: list[tuple[str, Any, str | None]] = []
    paths = {"/" + name.replace("_", "/"): answer for name, answer in answers.items()}
    kind = type("Handler", (StubHandler,), {"answers": paths, "asked": asked})
    with ThreadingHTTPServer(("127.0.0.1", 0), kind) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        try:
            yield f"127.0.0.1:{server.server_port}", asked
        finally:
            server.shutdown()
            thread.join()


def models(*names: str) -> Answer:
    return lambda handler, body: handler.give({"data": [{"id": name} for name in names]})


def chat(*deltas: dict[str, str], last: dict[str, Any] | None = None, done: bool = True) -> Answer:
    """A stream of these, as OpenAI has it."""

    def answer(handler: StubHandler, body: Any) -> None:
        handler.raw(b": a comment\n\n", kind="text/event-stream")
        for delta in deltas:
            handler.event({"choices": [{"index": 0, "delta": delta}]})
        if done:
            handler.event({"choices": [{"delta": {}, "finish_reason": "stop"}], **(last or {})})
            handler.wfile.write(b"data: [DONE]\n\n")

    return answer
