"""core.source: the user's own line, whatever number of our frames lies above it."""

from __future__ import annotations

import sys
from collections.abc import Callable

from tetrad.core.source import PACKAGE_DIR, Source, taken_from, user_source


def through_the_package(depth: int) -> Callable[[], Source | None]:
    """A function that asks for the user's line from `depth` frames whose code claims to be the
    package's."""
    ask = user_source
    for level in range(depth):
        code = compile(
            "def step():\n    return ask()\n", f"{PACKAGE_DIR}ops/level{level}.py", "exec"
        )
        namespace = {"ask": ask}
        exec(code, namespace)
        ask = namespace["step"]
    return ask


def this_line() -> Source:
    caller = sys._getframe(1)
    return Source(__file__, caller.f_lineno, caller.f_code.co_name)


def test_the_callers_own_line_is_found() -> None:
    found, want = user_source(), this_line()
    assert found == want


def test_frames_of_the_package_are_skipped() -> None:
    for depth in (1, 2, 5):
        found, want = through_the_package(depth)(), this_line()
        assert found == want


def test_a_stage_may_speak_for_another_line() -> None:
    other = Source("model.py", 41, "attention")
    with taken_from(other):
        assert user_source() is other
        with taken_from(None):
            assert user_source() is None
        assert user_source() is other
    assert user_source() == this_line()


def test_prints_short() -> None:
    assert str(Source("/home/someone/model.py", 41, "attention")) == "model.py:41"
