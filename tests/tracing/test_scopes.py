"""Names for parts of a program stand beside the user's lines."""

from __future__ import annotations

import threading
from functools import partial
from typing import Any

import pytest

import tetrad as td
from tetrad.core.errors import TraceError

X = td.Spec((4,))


def lines(function: Any) -> list[str]:
    return [line for line in str(td.trace(function)(X)).splitlines() if "#" in line]


def test_nodes_carry_the_names_of_their_scopes() -> None:
    def model(x: Any) -> Any:
        with td.named_scope("block"):
            x = td.sin(x)
            with td.named_scope("inner"):
                x = td.exp(x)
        return td.tanh(x)

    sine, exponential, tangent = lines(model)
    assert "sin(" in sine and "# block test_scopes.py:" in sine
    assert "exp(" in exponential and "# block/inner test_scopes.py:" in exponential
    assert "tanh(" in tangent and "# test_scopes.py:" in tangent
    assert abs(float(td.jit(model)(td.ones(4))[0]) - float(model(td.ones(4))[0])) < 1e-6


def test_functions_carry_names() -> None:
    @td.named_scope("decorated")
    def first(x: Any) -> Any:
        return td.cos(x)

    @partial(td.named_call, name="called")
    def second(x: Any) -> Any:
        return td.log1p(first(x))

    assert [line.split("# ")[1].split()[0] for line in lines(second)] == [
        "called/decorated",
        "called",
    ]
    assert "# second" not in "".join(lines(second)) and second.__name__ == "second"


def test_derivatives_and_batches_keep_the_names() -> None:
    def f(x: Any) -> Any:
        with td.named_scope("wave"):
            return td.sum(td.sin(x))

    assert any("# wave" in line and "cos(" in line for line in lines(td.grad(f)))


def test_scopes_end_with_an_error_and_stay_in_their_thread() -> None:
    scope = td.named_scope("one")
    with pytest.raises(ValueError, match="told"), scope:
        raise ValueError("told")
    found: list[str] = []
    with scope, scope:  # entered again while it is entered
        thread = threading.Thread(target=lambda: found.extend(lines(td.sin)))
        thread.start()
        thread.join()
        assert "# one/one " in lines(td.exp)[0]
    assert "one" not in "".join(found) and "one" not in "".join(lines(td.exp))
    with pytest.raises(TraceError, match="a name is a text, got an int"):
        td.named_scope(3)  # type: ignore[arg-type]
