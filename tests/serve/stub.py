"""A server that says what it is told to: the files of the page, and scripted answers.

Receives answers from a test; keeps what the page asked. It speaks HTTP as the real server does.
"""

from __future__ import annotations

import json
import threading
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar

from tetrad.serve.page import page_files

Data = dict[str, Any]


@dataclass
class Answer:
    text: str = "Hello."
    reasoning: str = ""
    calls: tuple[Data, ...] = ()
    piece: int = 12  # characters of a chunk
    delay: float = 0.0  # seconds between chunks
    finish: str = "stop"
    status: int = 200
    error: Data | None = None
    cut: bool = False  # the connection ends in the middle


@dataclass
class Stub:
    """State of the server; tests write answers and read requests."""

    answers: deque[Answer] = field(default_factory=deque)
    asked: list[Data] = field(default_factory=list)
    models: list[str] = field(default_factory=lambda: ["stub-1b"])
    key: str = ""
    left: threading.Event = field(default_factory=threading.Event)  # a client hung up early
    live: Data = field(default_factory=dict)
    inside: Data = field(default_factory=dict)
    server: ThreadingHTTPServer | None = None

    def __enter__(self) -> Stub:
        handler = type("Handler", (StubHandler,), {"stub": self})
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self.server.daemon_threads = True
        threading.Thread(target=self.server.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def __exit__(self, *error: object) -> None:
        assert self.server is not None
        self.server.shutdown()
        self.server.server_close()

    @property
    def url(self) -> str:
        assert self.server is not None
        return f"http://127.0.0.1:{self.server.server_address[1]}/"

    def reset(self) -> None:
        self.answers.clear()
        self.asked.clear()
        self.left.clear()
        self.models, self.key, self.live, self.inside = ["stub-1b"], "", {}, {}


def chunks(answer: Answer) -> Iterator[Data]:
    for name, text in (("reasoning_content", answer.reasoning), ("content", answer.text)):
        for start in range(0, len(text), answer.piece):
            yield choice({name: text[start : start + answer.piece]})
    for number, call in enumerate(answer.calls):
        function = {"name": call["name"], "arguments": ""}
        whole = {"index": number, "id": f"call-{number}", "type": "function"}
        yield choice({"tool_calls": [whole | {"function": function}]})
        for letter in call["arguments"]:
            yield choice({"tool_calls": [{"index": number, "function": {"arguments": letter}}]})
    yield choice({}, answer.finish)
    count = len(answer.text) // 4 + 1
    timings = {"predicted_n": count, "predicted_per_second": 123.4, "prompt_n": 9}
    yield {
        "choices": [],
        "usage": {"prompt_tokens": 9, "completion_tokens": count},
        "timings": timings,
    }


def choice(delta: Data, finish: str | None = None) -> Data:
    return {"choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}


class StubHandler(BaseHTTPRequestHandler):
    stub: ClassVar[Stub]
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: Any) -> None:
        """Silent."""

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        name = "index.html" if path == "/" else path.removeprefix("/page/")
        if name in page_files():
            found = page_files()[name]
            return self.respond(200, found.body, dict(found.headers))
        if not self.is_allowed():
            return None
        settings = {"n_ctx": 2048, "params": {"temperature": 0.7, "top_k": 40}}
        known = {
            "/v1/models": {"data": [{"id": model} for model in self.stub.models]},
            "/props": {"default_generation_settings": settings},
            "/live": self.stub.live,
            "/inside": self.stub.inside,
        }
        data = known.get(path)
        return self.respond_json(200 if data else 404, data or {"error": {"message": "no"}})

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if not self.is_allowed():
            return
        self.stub.asked.append(body)
        answer = self.stub.answers.popleft() if self.stub.answers else Answer()
        if answer.status != 200:
            return self.respond_json(answer.status, {"error": answer.error}, {"Retry-After": "2"})
        self.stream(answer)

    def is_allowed(self) -> bool:
        if not self.stub.key or self.headers["Authorization"] == f"Bearer {self.stub.key}":
            return True
        self.respond_json(401, {"error": {"message": "a key is needed", "code": 401}})
        return False

    def stream(self, answer: Answer) -> None:
        self.close_connection = True
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()
        try:
            self.send_events(answer)
        except (BrokenPipeError, ConnectionResetError):
            self.stub.left.set()

    def send_events(self, answer: Answer) -> None:
        self.wfile.write(b": a comment keeps the connection open\n\n")
        for chunk in chunks(answer):
            if answer.cut and chunk["choices"] and chunk["choices"][0]["finish_reason"]:
                return
            self.wfile.write(f"data: {json.dumps(chunk)}\n\n".encode())
            self.wfile.flush()
            time.sleep(answer.delay)
        if answer.error:
            self.wfile.write(f"data: {json.dumps({'error': answer.error})}\n\n".encode())
            return
        self.wfile.write(b"data: [DONE]\n\n")

    def respond_json(self, status: int, data: Data, headers: Data | None = None) -> None:
        kind = {"Content-Type": "application/json", **(headers or {})}
        self.respond(status, json.dumps(data).encode(), kind)

    def respond(self, status: int, body: bytes, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
