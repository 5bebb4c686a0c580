"""Ten thousand requests of which a third is given up, and one question a thousand times with 1, 2
and 4 threads."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from pathlib import Path

import pytest

from tests.serve.process import process
from tests.serve.soak import Soak, grown, same_answers

pytestmark = pytest.mark.slow


@pytest.mark.timeout(1800)
def test_ten_thousand_requests(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with process(tmp_path, context=1024) as server:
        soak = Soak(server, seed=int(time.time()))

        async def run(count: int) -> None:
            if not soak.expected:
                await soak.alone()
            await soak.run(count)

        asyncio.run(run(1000))
        before, begin = server.settled(), time.monotonic()
        asyncio.run(run(10_000))
        after = server.settled()
        with capfd.disabled():
            print(f"\n{dict(soak.counts)} in {time.monotonic() - begin:.0f} s")
            print(f"before {before}\nafter  {after}")
        assert not soak.wrong, "\n".join(soak.wrong[:5])
        assert not grown(before, after, 16 << 20)
        assert "internal error" not in server.log.read_text()


@pytest.mark.timeout(1800)
def test_one_answer(tmp_path: Path) -> None:
    found: Counter[str] = Counter()
    for threads in (1, 2, 4):
        with process(tmp_path, threads=threads, context=1024) as server:
            found += asyncio.run(same_answers(server, 1000))
    assert len(found) == 1 and found.total() == 3000
