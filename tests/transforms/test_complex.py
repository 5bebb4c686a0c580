"""Second derivatives through complex numbers, against what they are by hand."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tetrad as td

X = np.random.default_rng(0).standard_normal(4)
LOSSES = {  # of each element, and its second derivative
    "joined": (lambda x: td.real(td.complex(x, 2 * x) * td.conj(td.complex(x, x * x))), 2 + 12 * X),
    "size": (lambda x: td.abs(td.complex(x, x * x)) ** 2, 2 + 12 * X**2),
    "direction": (lambda x: td.real(td.sign(td.complex(td.cos(x), td.sin(x))) * 3), -3 * np.cos(X)),
    "angle": (lambda x: td.angle(td.complex(td.cos(x), td.sin(x))) ** 2, 2 + 0 * X),
}


def by_forward_over_reverse(loss: Callable[[Any], Any]) -> Any:
    return td.jvp(td.grad(loss), (X,), (np.ones(4),))[1]


def by_reverse_over_reverse(loss: Callable[[Any], Any]) -> Any:
    return td.grad(lambda x: td.sum(td.grad(loss)(x)))(X)


def by_forward_over_forward(loss: Callable[[Any], Any]) -> Any:
    def along(e: np.ndarray) -> Any:
        return td.jvp(lambda x: td.jvp(loss, (x,), (e,))[1], (X,), (e,))[1]

    return td.stack([along(e) for e in np.eye(4)])


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize(
    "way", [by_forward_over_reverse, by_reverse_over_reverse, by_forward_over_forward]
)
def test_second_derivatives(name: str, way: Callable[..., Any]) -> None:
    function, want = LOSSES[name]
    np.testing.assert_allclose(way(lambda x: td.sum(function(x))), want, rtol=1e-12)


def test_at_zero_the_direction_does_not_turn() -> None:
    _, change = td.jvp(td.sign, (np.zeros(2, np.complex128),), (np.ones(2, np.complex128),))
    np.testing.assert_array_equal(change, 0)
