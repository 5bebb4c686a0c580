"""Golden files of the passes: `pytest tests/passes --rewrite-golden` writes them anew; review the
diff."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

GOLDEN = Path(__file__).resolve().parent.parent / "golden" / "passes"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--rewrite-golden",
        action="store_true",
        help="write golden files instead of comparing with them",
    )


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[[str, str], None]:
    """Compare a text with the golden file of that name."""

    def check(name: str, text: str) -> None:
        file = GOLDEN / f"{name}.txt"
        if request.config.getoption("--rewrite-golden", default=False):
            file.write_text(text, encoding="utf-8")
        assert file.read_text(encoding="utf-8") == text

    return check
