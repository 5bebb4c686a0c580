"""The web page at the real server, with a tiny model: what it says is noise, all else is as it will
be."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest

from tests.serve.browser import Profile, ask, launch, profile, until
from tests.serve.running import Running, running


@pytest.fixture(scope="module")
def server() -> Iterator[Running]:
    with running() as found:
        yield found


@pytest.fixture
def tabs(server: Running) -> Iterator[Profile]:
    for browser in launch():
        yield from profile(browser, f"{server.url}/")


def set_longest(page: Any, tokens: int) -> None:
    page.get_by_role("button", name="Settings").click()
    page.get_by_label("Longest answer").fill(str(tokens))
    page.get_by_role("button", name="Done").click()


def test_a_chat_at_the_real_server(server: Running, tabs: Profile) -> None:
    page = tabs.open()
    assert page.locator("#model").inner_text() == "tiny"
    set_longest(page, 12)
    ask(page, "Hello")
    answer = page.locator("article.assistant[aria-busy=false]")
    answer.get_by_text("tokens/s").wait_for()
    assert "12 tokens" in answer.inner_text() and "ended at the limit" in answer.inner_text()
    page.reload()
    page.locator("article.assistant").get_by_text("12 tokens").wait_for()


def test_the_live_view_and_the_inside_of_the_real_server(server: Running, tabs: Profile) -> None:
    page = tabs.open()
    set_longest(page, 12)
    ask(page, "Hello")
    page.locator("article.assistant[aria-busy=false]").get_by_text("tokens/s").wait_for()
    page.goto(f"{server.url}/#/live")
    page.get_by_text("0 of 4 at work").wait_for()
    assert re.search(r"Tokens written\s+[1-9]", page.locator("#live-view .totals").inner_text())
    page.goto(f"{server.url}/#/inside")
    page.get_by_role("button", name="matmul").first.wait_for()
    assert page.locator("g.node").count() > 10


def test_what_the_server_refuses_is_said(server: Running, tabs: Profile) -> None:
    page = tabs.open()
    ask(page, "word " * 2000)
    page.get_by_role("alert").get_by_text("longer than the model can read").wait_for()
    until(page, "document.querySelector('.send').ariaLabel === 'Send'")
    assert server.is_idle()
