"""Station 0, shared words: locks that no thread of another process keeps locked.

Gives such locks. A child process has only the thread that forked: what another one held would stay
locked for ever.
"""

from __future__ import annotations

import os
import threading
from contextlib import AbstractContextManager
from typing import Any
from weakref import WeakSet

_small: WeakSet[Any] = WeakSet()


def process_lock() -> AbstractContextManager[bool]:
    """For things of which a process has one. It is taken before each fork and given back after it,
    in both processes: nothing is half changed then. Where one is taken inside another, the inner is
    made first: the last is taken first.
    """
    lock = threading.RLock()
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(
            before=lock.acquire, after_in_parent=lock.release, after_in_child=lock.release
        )
    return lock


def object_lock() -> AbstractContextManager[bool]:
    """For one of many objects, held perhaps for long, while something is made that is then entered
    in one step. In a child process it is free again, and what another thread was about to make is
    made anew."""
    lock = threading.RLock()
    _small.add(lock)
    return lock


def _forked() -> None:
    for lock in list(_small):
        lock._at_fork_reinit()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)
