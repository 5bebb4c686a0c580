"""A real Chromium for tests of the page: one a module, and for each test a profile of its own.

Every page is watched: what it throws, what the Content-Security-Policy stopped, and every request.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
ARGUMENTS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--mute-audio"]
WATCH = """
window.broken = [];
addEventListener("securitypolicyviolation", event => window.broken.push(event.violatedDirective));
window.alert = window.confirm = window.prompt = () => window.broken.push("a dialog");
"""


@dataclass
class Profile:
    """A browser profile at one server: pages, and what was seen of them."""

    context: Any
    url: str
    pages: list[Any] = field(default_factory=list)
    thrown: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)

    def open(self, hash: str = "") -> Any:
        page = self.context.new_page()
        page.on("pageerror", lambda error: self.thrown.append(str(error)))
        page.on("request", lambda request: self.requests.append(request.url))
        page.add_init_script(WATCH)
        page.goto(self.url + hash)
        page.wait_for_selector("#model span, #model select, dialog[open]")
        self.pages.append(page)
        return page

    def check(self) -> None:
        """Nothing was thrown, nothing stopped by the policy, and nothing asked of anybody else."""
        assert self.thrown == []
        own = ("data:", "blob:", self.url)
        assert [url for url in self.requests if not url.startswith(own)] == []
        for page in self.pages:
            assert page.evaluate("window.broken") == []


def launch() -> Iterator[Any]:
    if CHROMIUM is None:
        pytest.skip("no chromium here: apt-get install chromium")
    playwright = pytest.importorskip("playwright.sync_api", exc_type=ImportError)
    with playwright.sync_playwright() as engine:
        browser = engine.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        yield browser
        browser.close()


def profile(browser: Any, url: str, **settings: Any) -> Iterator[Profile]:
    context = browser.new_context(**settings)
    context.set_default_timeout(30_000)  # machines may be busy
    made = Profile(context, url)
    yield made
    made.check()
    context.close()


def ask(page: Any, text: str) -> None:
    page.fill("#prompt", text)
    page.press("#prompt", "Enter")


def answered(page: Any, text: str) -> Any:
    """The last answer, once it is complete and holds the text."""
    last = page.locator("article.assistant[aria-busy=false]").last
    last.locator(".prose").get_by_text(text).first.wait_for()
    return last


def until(page: Any, expression: str, seconds: float = 30) -> None:
    """Waits for JavaScript to be true. Playwright's own way needs `eval`: the policy forbids it."""
    end = time.monotonic() + seconds
    while not page.evaluate(expression):
        assert time.monotonic() < end, expression
        page.wait_for_timeout(30)
