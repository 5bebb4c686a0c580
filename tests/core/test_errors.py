"""core.errors: the text says what, where, and what to do; each error is also the Python error one expects."""

from __future__ import annotations

import inspect

import pytest

from tetrad.core import errors
from tetrad.core.errors import TetradError, VerifyError
from tetrad.core.source import Source

ALL = [c for _, c in inspect.getmembers(errors, inspect.isclass) if issubclass(c, TetradError)]


def test_the_text_reads_message_place_hint() -> None:
    source = Source("model.py", 41, "attention")
    error = errors.ShapeError("matmul: inner sizes differ", source=source, hint="transpose one side")
    assert str(error) == (
        "matmul: inner sizes differ\n"
        "  in attention, model.py line 41\n"
        "  hint: transpose one side"
    )  # fmt: skip
    assert (error.message, error.source, error.hint) == ("matmul: inner sizes differ", source, "transpose one side")


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
def test_each_is_the_builtin_error_one_expects(error: type[TetradError], builtin: type[Exception]) -> None:
    assert issubclass(error, builtin)


@pytest.mark.parametrize("error", ALL)
def test_every_error_says_what_it_is_for(error: type[TetradError]) -> None:
    assert error.__doc__
