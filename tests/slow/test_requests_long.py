"""A hundred and fifty thousand hostile requests, from seeds never used before; the first seed is
printed."""

from __future__ import annotations

import time

import pytest

from tests.fuzz.requests import check, guest

pytestmark = pytest.mark.slow
REQUESTS, WARM = 150_000, 30_000
MOST_GROWTH = 32 << 20  # bytes, once every kind of large request has been seen


@pytest.mark.timeout(3600)
def test_hostile_requests_are_answered_and_leave_nothing_behind(
    capfd: pytest.CaptureFixture[str],
) -> None:
    seed = first = int(time.time())
    found, begin, warm = [], time.monotonic(), 0
    while guest().requests < REQUESTS and len(found) < 5:
        if not warm and guest().requests > WARM:
            warm = guest().server.settled()["memory"]
        if said := check(seed):
            found.append(f"seed {seed}: {said}")
        seed += 1
    server = guest()
    after = server.server.settled()
    with capfd.disabled():
        print(f"\n{server.requests} requests from seed {first} in {time.monotonic() - begin:.0f} s")
        print(f"before {server.before}\nwarm   {warm} bytes\nafter  {after}")
    assert not found, "\n".join(found)
    assert after["memory"] < warm + MOST_GROWTH
