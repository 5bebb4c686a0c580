"""A server in a process of its own, with a tiny model: `with process() as server` starts it and
takes it down, `server.state()` tells what it holds.

`python -m tests.serve.process SETTINGS` is that process. It is the server of `tetrad serve` with
one route more, which counts what must not grow: slots, tasks, threads, open files, memory.
"""

from __future__ import annotations

import asyncio
import faulthandler
import gc
import http.client
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.serve.running import model_file, until
from tetrad.serve.app import ApiCall, App, Response, Route, json_response
from tetrad.serve.limits import Limits
from tetrad.serve.routes import all_routes
from tetrad.serve.server import Server
from tetrad.serve.store import ModelPlace, ModelStore

STATE = "/tests/state"
HOME = Path(__file__).parents[2]
START_SECONDS = 120.0  # on a machine that compiles beside


class ServerProcess:
    """A running server, from the outside."""

    def __init__(self, child: subprocess.Popen[str], port: int, log: Path) -> None:
        self.child, self.port, self.log = child, port, log

    @property
    def is_alive(self) -> bool:
        return self.child.poll() is None

    def ask(self, method: str, path: str, body: Any = None, seconds: float = 60.0) -> Any:
        """One request on a connection of its own: JSON in, JSON out."""
        link = http.client.HTTPConnection("127.0.0.1", self.port, timeout=seconds)
        try:
            link.request(method, path, None if body is None else json.dumps(body))
            return json.loads(link.getresponse().read())
        finally:
            link.close()

    def state(self) -> dict[str, int]:
        found: dict[str, int] = self.ask("GET", STATE)
        return found

    def settled(self, seconds: float = 10.0) -> dict[str, int]:
        """What it holds once nothing runs any more, or after so long."""
        end = time.monotonic() + seconds
        while (found := self.state()) and (found["running"] or found["slots"] or found["links"]):
            if time.monotonic() > end:
                break
            time.sleep(0.01)
        return found

    def stop(self, seconds: float = 30.0) -> int:
        """SIGTERM; the exit code."""
        self.child.send_signal(signal.SIGTERM)
        return self.child.wait(seconds)


@contextmanager
def process(folder: Path, *, threads: int = 2, **settings: Any) -> Iterator[ServerProcess]:
    """`settings`: slots, context, seconds to drain, and fields of `Limits`."""
    log = folder / "server.log"
    given = {"context": 512, "slots": 4, **settings}
    given["path"] = str(model_file(context=given["context"]))
    command = [sys.executable, "-m", "tests.serve.process", json.dumps(given)]
    with log.open("w") as errors:
        child = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=errors, text=True, cwd=HOME,
            env={**os.environ, "PYTHONPATH": str(HOME), "TETRAD_THREADS": str(threads)},
        )  # fmt: skip
    assert child.stdout is not None
    try:
        port = child.stdout.readline().strip()
        assert port, log.read_text()
        server = ServerProcess(child, int(port), log)
        until(lambda: bool(server.state()), START_SECONDS)
        yield server
    finally:
        child.terminate()
        try:
            child.wait(30)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()
        child.stdout.close()


def open_files(pid: int | str = "self") -> int:
    return len(os.listdir(f"/proc/{pid}/fd"))


def resident(pid: int | str = "self") -> int:
    """Bytes of memory that a process holds."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


# -- the process -----------------------------------------------------------------------------------


def main(given: dict[str, Any]) -> int:
    faulthandler.register(signal.SIGUSR1)  # what all threads do, for who wonders why it hangs
    return asyncio.run(serve(given))


async def serve(given: dict[str, Any]) -> int:
    own = {name: given[name] for name in ("context", "slots")}
    drain = given.get("drain", 20.0)
    limits = Limits(**{n: v for n, v in given.items() if n not in (*own, "path", "drain")})
    store = ModelStore([ModelPlace("tiny", Path(given["path"]), settings=own)], limits=limits)
    app = App(store, [*all_routes(), Route("GET", STATE, state, is_public=True)])
    server = Server(app, port=0, drain_seconds=drain)
    await server.start()
    await store.load(store.places[0])
    print(server.port, flush=True)
    return await server.run()


async def state(call: ApiCall) -> Response:
    """What there is now, besides this request and its connection."""
    gc.collect()
    app = call.app
    stats = [one.scheduler.stats() for one in app.store.loaded.values() if one.scheduler]
    return json_response(
        {
            "slots": sum(slot.state != "free" for one in stats for slot in one.slots),
            "queued": sum(one.queued for one in stats),
            "users": sum(one.users for one in app.store.loaded.values()),
            "running": app.running - 1,
            "links": len(app.connections) - 1,
            "reading": app.reading,
            "tasks": len(asyncio.all_tasks()) - 1,
            "threads": threading.active_count(),
            "files": open_files(),
            "memory": resident(),
        }
    )


if __name__ == "__main__":
    sys.exit(main(json.loads(sys.argv[1])))
