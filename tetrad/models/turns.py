"""Models, turns: one step at a time on a model, in the order they were asked for.

Threads enter with `with turns:`; who waits longest goes next. A plain lock would let the thread
that steps without pause take it again and again while the others starve.
"""

from __future__ import annotations

import threading
from collections import deque


class FairTurns:
    """A lock that goes to whoever has waited longest."""

    def __init__(self) -> None:
        self.lock, self.is_taken = threading.Lock(), False
        self.waiting: deque[threading.Lock] = deque()

    def __enter__(self) -> None:
        with self.lock:
            if not self.is_taken:
                self.is_taken = True
                return
            mine = threading.Lock()
            mine.acquire()
            self.waiting.append(mine)
        try:
            mine.acquire()  # released by whoever hands the turn over
        except BaseException:  # an interrupt: leave the line, or pass on what has just come
            self._give_up(mine)
            raise

    def _give_up(self, mine: threading.Lock) -> None:
        with self.lock:
            if mine in self.waiting:
                self.waiting.remove(mine)
                return
        self.__exit__()

    def __exit__(self, *_: object) -> None:
        with self.lock:
            if self.waiting:
                self.waiting.popleft().release()
            else:
                self.is_taken = False

    def forked(self) -> None:
        """A child process has none of the threads."""
        self.lock, self.is_taken = threading.Lock(), False
        self.waiting.clear()
