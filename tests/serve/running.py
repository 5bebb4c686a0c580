"""A server in a thread of its own, on a free port, with a tiny model; started and taken down by
tests."""

from __future__ import annotations

import asyncio
import io
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import httpx

from tests.models.loaded import write_model
from tetrad.serve.app import App
from tetrad.serve.limits import Limits
from tetrad.serve.log import Log
from tetrad.serve.routes import all_routes
from tetrad.serve.server import Server
from tetrad.serve.store import ModelPlace, ModelStore

SLOTS = 4
FOLDER = TemporaryDirectory(prefix="tetrad-serve-")  # for as long as the tests run


@cache
def model_file(arch: str = "llama", context: int = 512) -> Path:
    path = Path(FOLDER.name) / f"{arch}-{context}.gguf"
    write_model(str(path), arch, "f32", context=context)
    return path


def tiny_place(name: str = "tiny", **settings: Any) -> ModelPlace:
    return ModelPlace(name, model_file(), settings={"slots": SLOTS, **settings})


class Running:
    """A server, seen from another thread."""

    def __init__(self, server: Server, loop: asyncio.AbstractEventLoop, log: io.StringIO) -> None:
        self.server, self.loop, self.log = server, loop, log
        self.app, self.port = server.app, server.port

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def client(self, **settings: Any) -> httpx.Client:
        return httpx.Client(base_url=self.url, timeout=60, trust_env=False, **settings)

    def raw(self, data: bytes, *, seconds: float = 5.0) -> bytes:
        """What comes back for these bytes, until the server closes or is quiet for so long."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=seconds) as sock:
            sock.sendall(data)
            return read_all(sock)

    def on_loop(self, function: Callable[[], Any]) -> Any:
        async def call() -> Any:
            return function()

        return asyncio.run_coroutine_threadsafe(call(), self.loop).result(10)

    def stop(self) -> None:
        """Asks for the end; a server that has come to its end already hears nothing."""
        try:
            self.loop.call_soon_threadsafe(self.server.stop)
        except RuntimeError:
            assert self.loop.is_closed()

    def is_idle(self) -> bool:
        return self.app.running == 0


def read_all(sock: socket.socket) -> bytes:
    found = b""
    try:
        while part := sock.recv(65536):
            found += part
    except TimeoutError:
        pass
    except ConnectionResetError:
        pass
    return found


def until(holds: Callable[[], bool], seconds: float = 20.0) -> float:
    """Waits until something holds; how long that took."""
    begin = time.monotonic()
    while not holds():
        assert time.monotonic() - begin < seconds, "it never came to hold"
        time.sleep(0.002)
    return time.monotonic() - begin


@contextmanager
def running(
    *places: ModelPlace, limits: Limits | None = None, store: dict[str, Any] | None = None,
    drain: float = 5.0, **settings: Any,
) -> Iterator[Running]:  # fmt: skip
    ready: list[Running] = []
    started = threading.Event()
    text = io.StringIO()

    async def serve() -> None:
        log = Log(text)
        models = ModelStore(places or (tiny_place(),), limits=limits, log=log, **(store or {}))
        server = Server(App(models, all_routes(), **settings), port=0, drain_seconds=drain)
        await server.start()
        ready.append(Running(server, asyncio.get_running_loop(), text))
        started.set()
        await server.stopping.wait()
        await server.end()

    thread = threading.Thread(target=lambda: asyncio.run(serve()), daemon=True)
    thread.start()
    assert started.wait(30)
    try:
        yield ready[0]
    finally:
        ready[0].stop()
        thread.join(30)
        assert not thread.is_alive()
