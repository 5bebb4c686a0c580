"""Serve, server: sockets, signals and the end. An app in; an exit code out.

SIGTERM and Ctrl-C let what runs come to its end for a while, refuse what is new, and tell those who
are left. A second signal does not wait.
"""

from __future__ import annotations

import asyncio
import errno
import signal
import ssl
import time

from tetrad.core.errors import TetradError
from tetrad.serve.app import App
from tetrad.serve.connection import Connection

FINE, CUT, INTERRUPTED = 0, 1, 130
LOOK_SECONDS, TELL_SECONDS = 0.02, 2.0
BACKLOG = 1024


class AddressError(TetradError, OSError):
    """An address that the server cannot listen at."""


class Server:
    """Listens at one address, until it is told to stop."""

    def __init__(
        self,
        app: App,
        host: str = "127.0.0.1",
        port: int = 8080,
        *,
        drain_seconds: float = 30.0,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self.app, self.host, self.port = app, host, port
        self.drain_seconds, self.tls = drain_seconds, tls
        self.stops = 0
        self.stopping = asyncio.Event()
        self.listener: asyncio.Server

    async def start(self) -> None:
        """From now on requests are answered."""
        loop = asyncio.get_running_loop()
        try:
            self.listener = await loop.create_server(
                lambda: Connection(self.app), self.host, self.port, backlog=BACKLOG, ssl=self.tls
            )
        except (OSError, OverflowError) as error:
            raise self.refused(error) from None
        self.port = self.listener.sockets[0].getsockname()[1]
        self.app.store.start()

    def refused(self, error: Exception) -> AddressError:
        place = f"{self.host} port {self.port}"
        if isinstance(error, OSError) and error.errno == errno.EADDRINUSE:
            return AddressError(
                f"{place} is in use by another program",
                hint="choose another with --port, or --port 0 for any that is free",
            )
        said = getattr(error, "strerror", None) or str(error)
        return AddressError(
            f"cannot listen at {place}: {said}", hint="--host and --port say where to listen"
        )

    async def run(self) -> int:
        """Serves until a signal; the exit code."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self.stop)
        await self.stopping.wait()
        return await self.end()

    def stop(self) -> None:
        self.stops += 1
        self.stopping.set()

    async def end(self) -> int:
        """Lets go of everything; whether something had to be cut."""
        app = self.app
        app.is_draining = True
        app.log.write("stopping", running=app.running)
        for connection in list(app.connections):
            connection.close_if_idle()
        await self.wait_idle(self.drain_seconds)
        was_cut = app.running > 0
        app.store.close()
        await self.wait_idle(TELL_SECONDS)
        self.listener.close()
        for connection in list(app.connections):
            connection.hang_up()
        app.log.write("stopped", cut=was_cut)
        return INTERRUPTED if self.stops > 1 else CUT if was_cut else FINE

    async def wait_idle(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        while self.app.running and time.monotonic() < end and self.stops < 2:
            await asyncio.sleep(LOOK_SECONDS)
