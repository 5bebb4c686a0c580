"""Serve, bridge: from the threads of schedulers to the event loop. Pieces of answers in; lists of
them out, for whoever awaits them.

A step of a scheduler speaks to many requests; the loop is woken once, when the step is over, and so
has the next one, which needs no interpreter, for its own work. Nothing here blocks a scheduler: an
answer whose client does not read is given up when too much of it waits.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any

from tetrad.models.decoding.generation import Piece
from tetrad.serve.errors import ApiError

Item = Piece | Exception
Listener = Callable[[Item], None]


class Mailbox:
    """What threads have said and the loop has not heard yet."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.letters: deque[tuple[Channel, int, Item]] = deque()
        self.is_called = False

    def post(self, channel: Channel, choice: int, item: Item) -> None:
        """From any thread. It is heard after the next `wake`."""
        self.letters.append((channel, choice, item))

    def wake(self) -> None:
        """From any thread: whatever was posted is to be heard."""
        if self.letters and not self.is_called:
            self.is_called = True
            try:
                self.loop.call_soon_threadsafe(self.deliver)
            except RuntimeError:  # the loop is closed: nobody listens any more
                self.letters.clear()

    def deliver(self) -> None:
        self.is_called = False  # first: what is posted from now on calls again
        while self.letters:
            channel, choice, item = self.letters.popleft()
            channel.put(choice, item)


class Channel:
    """What is said to one request, by choice, until it is taken."""

    def __init__(self, mailbox: Mailbox, most: int) -> None:
        self.mailbox, self.most = mailbox, most
        self.items: list[tuple[int, Item]] = []
        self.waiter: asyncio.Future[None] | None = None
        self.jobs: list[Any] = []
        self.is_given_up = False

    def listener(self, choice: int) -> Listener:
        post = self.mailbox.post
        return lambda item: post(self, choice, item)

    def put(self, choice: int, item: Item) -> None:
        if self.is_given_up:
            return
        self.items.append((choice, item))
        if len(self.items) > self.most:
            self.cancel()
            self.items = [(choice, ApiError(503, "the answer was not read", kind="server_error"))]
        if self.waiter is not None and not self.waiter.done():
            self.waiter.set_result(None)

    async def take(self) -> list[tuple[int, Item]]:
        """All that has been said since the last time; waits for something."""
        if not self.items:
            self.waiter = self.mailbox.loop.create_future()
            await self.waiter
        found, self.items = self.items, []
        return found

    def cancel(self) -> None:
        """Nothing more is wanted."""
        self.is_given_up = True
        for job in self.jobs:
            job.cancel()
