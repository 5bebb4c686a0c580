"""Core: locks that survive a fork.

A child process has only the thread that forked. A lock that another thread held at that moment
would stay locked for ever; these do not.
"""

from __future__ import annotations

import os
import threading
from contextlib import AbstractContextManager
from typing import Any
from weakref import WeakSet

_small: WeakSet[Any] = WeakSet()


def process_lock() -> AbstractContextManager[bool]:
    """A lock for state that a process has once. Each fork acquires it before and releases it after,
    in both processes, so no state is half changed. Of nested locks create the inner one first:
    handlers run before a fork in reverse order of registration."""
    lock = threading.RLock()
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(
            before=lock.acquire, after_in_parent=lock.release, after_in_child=lock.release
        )
    return lock


def object_lock() -> AbstractContextManager[bool]:
    """A lock for one of many objects, perhaps held for long while a result is computed that is then
    stored in one step. In a child process it is free again, and an unfinished result is computed
    anew."""
    lock = threading.RLock()
    _small.add(lock)
    return lock


def _forked() -> None:
    for lock in list(_small):
        lock._at_fork_reinit()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)
