"""What notebooks show of explanations and graphs: whole, small, and escaped."""

from __future__ import annotations

from collections.abc import Callable
from html.parser import HTMLParser
from typing import Any

import numpy as np
import pytest

import tetrad as td

HOSTILE = "<script>alert('&\"')</script>"
X = np.ones((8, 8), np.float32)


class Tags(HTMLParser):
    """The tags with their attributes, and the text between."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.texts: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(f"{tag} {attrs}" if attrs else tag)

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


def named(name: str) -> Callable[..., Any]:
    def f(x: Any) -> Any:
        return td.sort(x + 1) @ x

    f.__name__ = f.__qualname__ = name
    return f


@pytest.mark.parametrize("name", ["layer", HOSTILE])
def test_an_explanation_is_a_table_of_its_kernels(name: str) -> None:
    story = td.explain(named(name))(X)
    shown = Tags(story._repr_html_())
    assert {*shown.tags} == {"table", "caption", "code", "tr", "th", "td"}
    assert shown.tags.count("tr") == 1 + len(story.kernels)
    assert shown.texts[0].startswith(name)
    for kernel in story.kernels:
        assert any(kernel.name in text for text in shown.texts)
        assert kernel.limit in shown.texts


def test_arguments_have_hostile_names_too() -> None:
    story = td.explain(lambda tree: tree[HOSTILE] * 2)({HOSTILE: X})
    assert {*Tags(story._repr_html_()).tags} == {"table", "caption", "code", "tr", "th", "td"}


@pytest.mark.parametrize("name", ["layer", HOSTILE])
def test_a_graph_is_its_text_with_source_lines(name: str) -> None:
    graph = td.trace(named(name))(X)
    shown = Tags(graph._repr_html_())
    assert shown.tags == ["pre"]
    assert "".join(shown.texts) == str(graph)
    assert "test_notebook.py:" in str(graph)
