"""The picture in the README: `python -m tests.serve.picture MODEL.gguf docs/serve-page.png`.

Receives a model file; asks it two questions through the page at a real server, and writes what is
then seen. The figures in it are those of the moment, so the machine should be idle.
"""

from __future__ import annotations

import sys
from pathlib import Path

from tests.serve.browser import ask, launch, profile
from tests.serve.running import running
from tetrad.serve.store import ModelPlace

SIZE = {"width": 1200, "height": 820}
SETTINGS = "localStorage['tetrad.settings'] = JSON.stringify({temperature: '0', max_tokens: '300'})"
QUESTIONS = ("Why is the sky blue? Answer in two sentences.", "Write a Python function is_even(n).")


def draw(model: Path, picture: Path) -> None:
    place = ModelPlace(model.name.partition(".")[0], model, settings={"slots": 4})
    with running(place) as server:
        for browser in launch():
            for tabs in profile(browser, f"{server.url}/", viewport=SIZE):
                page = tabs.open()
                page.evaluate(SETTINGS)
                ask(page, "Name three rivers of Europe.")  # from here on the model is loaded
                page.locator("article[aria-busy=false]").get_by_text("tokens/s").wait_for()
                page.get_by_role("button", name="New conversation").click()
                page.get_by_text("What shall we look into?").wait_for()
                for number, question in enumerate(QUESTIONS):
                    ask(page, question)
                    done = f"article:nth-child({2 * number + 2})[aria-busy=false]"
                    page.locator(done).get_by_text("tokens/s").wait_for()
                page.screenshot(path=picture)


if __name__ == "__main__":
    draw(Path(sys.argv[1]), Path(sys.argv[2]))
