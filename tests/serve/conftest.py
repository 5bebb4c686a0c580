"""One server for all tests of a module that change nothing about it."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest

from tests.serve.running import Running, running


@pytest.fixture(scope="module")
def server() -> Iterator[Running]:
    with running() as found:
        yield found


@pytest.fixture(scope="module")
def client(server: Running) -> Iterator[httpx.Client]:
    with server.client() as found:
        yield found
