"""The way from the threads of schedulers to the event loop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest

from tests.serve.running import model_file
from tetrad.models.decoding.generation import Piece
from tetrad.serve.bridge import Channel, Mailbox
from tetrad.serve.limits import Limits
from tetrad.serve.store import ModelPlace, load_place


class Loop:
    """Counts how often it is woken."""

    def __init__(self) -> None:
        self.calls: list[Callable[[], None]] = []
        self.is_closed = False

    def call_soon_threadsafe(self, call: Callable[[], None]) -> None:
        if self.is_closed:
            raise RuntimeError("Event loop is closed")
        self.calls.append(call)


def mailbox() -> tuple[Any, Mailbox]:
    loop: Any = Loop()
    return loop, Mailbox(loop)


def test_the_loop_is_woken_once_for_all_that_was_posted() -> None:
    loop, box = mailbox()
    channels = [Channel(box, 10) for _ in range(3)]
    for channel in channels:
        channel.listener(1)(Piece("a"))
    assert not loop.calls
    box.wake()
    box.wake()
    assert len(loop.calls) == 1
    loop.calls.pop()()
    assert [channel.items for channel in channels] == [[(1, Piece("a"))]] * 3
    box.wake()
    assert not loop.calls  # there is nothing to hear
    channels[0].listener(0)(Piece("b"))
    box.wake()
    assert len(loop.calls) == 1


def test_what_is_posted_while_letters_are_delivered_wakes_again() -> None:
    loop, box = mailbox()
    channel = Channel(box, 10)
    put = channel.put

    def put_and_post(choice: int, item: Any) -> None:
        put(choice, item)
        if len(channel.items) == 1:
            channel.listener(0)(Piece("second"))
            box.wake()

    channel.put = put_and_post  # type: ignore[method-assign]
    channel.listener(0)(Piece("first"))
    box.wake()
    for call in loop.calls:
        call()
    assert [item.text for _, item in channel.items] == ["first", "second"]
    assert len(loop.calls) == 2 and not box.letters


def test_a_closed_loop_hears_nothing() -> None:
    loop, box = mailbox()
    loop.is_closed = True
    Channel(box, 10).listener(0)(Piece("a"))
    box.wake()
    assert not box.letters


@pytest.mark.parametrize("answers", [1, 4])
def test_a_step_wakes_the_loop_at_most_once(answers: int) -> None:
    """Several answers run side by side; no step speaks to the loop for each of them."""
    woken = list[int]()
    place = ModelPlace("tiny", model_file(), settings={"slots": 4})
    loaded = load_place(place, Limits(), lambda: woken.append(threading.get_ident()))
    scheduler = loaded.scheduler
    assert scheduler is not None
    ends = [threading.Event() for _ in range(answers)]

    def listener(end: threading.Event) -> Callable[[Piece | Exception], None]:
        def hear(news: Piece | Exception) -> None:
            if isinstance(news, Exception) or news.completion is not None:
                end.set()

        return hear

    with scheduler.changed:  # all come at once
        for seed, end in enumerate(ends):
            request = loaded.model.request([1, 2, 3], max_tokens=9, ignore_eos=True, seed=seed)
            scheduler.submit(request, listener(end))
    for end in ends:
        assert end.wait(60)
    loaded.close()
    steps = scheduler.stats().steps
    assert scheduler.thread is not None
    assert woken.count(scheduler.thread.ident or 0) == len(woken) == steps


def test_the_mailbox_reaches_whoever_waits() -> None:
    async def run() -> list[tuple[int, Any]]:
        box = Mailbox(asyncio.get_running_loop())
        channel = Channel(box, 10)

        def speak() -> None:
            channel.listener(2)(Piece("a"))
            box.wake()

        threading.Timer(0.01, speak).start()
        return await asyncio.wait_for(channel.take(), 10)

    assert asyncio.run(run()) == [(2, Piece("a"))]
