"""core.errors: the text says what, where, and what to do; each error is also the Python error one
expects."""

from __future__ import annotations

import inspect
import subprocess
import sys

import pytest

from tetrad import errors as public
from tetrad.core import errors
from tetrad.core.errors import TetradError, VerifyError
from tetrad.core.source import Source

ALL = [c for _, c in inspect.getmembers(errors, inspect.isclass) if issubclass(c, TetradError)]


def test_the_text_reads_message_place_hint() -> None:
    source = Source("model.py", 41, "attention")
    error = errors.ShapeError(
        "matmul: inner sizes differ", source=source, hint="transpose one side"
    )
    assert str(error) == (
        "matmul: inner sizes differ\n"
        "  in attention, model.py line 41\n"
        "  hint: transpose one side"
    )  # fmt: skip
    assert (error.message, error.source, error.hint) == (
        "matmul: inner sizes differ",
        source,
        "transpose one side",
    )


def test_the_public_module_has_every_error_and_no_copies() -> None:
    assert public.__all__ == sorted(c.__name__ for c in ALL)
    assert all(getattr(public, c.__name__) is c for c in ALL)


@pytest.mark.parametrize(
    "text",
    [
        "import tetrad.errors; tetrad.errors.ShapeError",
        "from tetrad.errors import ShapeError; import tetrad as td; assert td.errors.ShapeError is "
        "ShapeError",
        "import tetrad as td; import tetrad.errors; assert td.errors is tetrad.errors",
    ],
)
def test_the_errors_are_a_module_that_can_be_imported_first(text: str) -> None:
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_place_and_hint_are_optional() -> None:
    assert str(TetradError("broken")) == "broken"


def test_a_verify_error_leads_with_its_code() -> None:
    error = VerifyError("K011", "expected f32", hint="cast it")
    assert error.code == "K011"
    assert str(error) == "K011: expected f32\n  hint: cast it"


@pytest.mark.parametrize(
    ("error", "builtin"),
    [
        (errors.ShapeError, ValueError),
        (errors.DtypeError, TypeError),
        (errors.BoundsError, IndexError),
        (errors.TraceError, TypeError),
        (errors.UnsupportedError, NotImplementedError),
        (errors.FlagError, ValueError),
        (errors.CompileError, RuntimeError),
    ],
)
def test_each_is_the_builtin_error_one_expects(
    error: type[TetradError], builtin: type[Exception]
) -> None:
    assert issubclass(error, builtin)


@pytest.mark.parametrize("error", ALL)
def test_every_error_says_what_it_is_for(error: type[TetradError]) -> None:
    assert error.__doc__
