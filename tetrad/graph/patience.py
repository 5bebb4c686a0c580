"""Graph language, patience: how much a while loop may compute on NumPy.

Whoever evaluates a graph and can do better with a long one says how many operations he waits for;
a loop that takes more raises `OutOfPatience`. Without a limit a loop goes on.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from threading import local


class OutOfPatience(Exception):
    """A loop takes longer than somebody waits."""


class Left(local):
    """Operations that are left, in each thread; None: as many as there are."""

    count: int | None = None


left = Left()


@contextmanager
def limited(count: int) -> Iterator[None]:
    """While inside, loops may compute so much. A limit further out stays."""
    before = left.count
    if before is None:
        left.count = count
    try:
        yield
    finally:
        left.count = before


def spend(count: int) -> None:
    """Note that so many operations are about to be computed."""
    if left.count is None:
        return
    left.count -= count
    if left.count < 0:
        raise OutOfPatience
