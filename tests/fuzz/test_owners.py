"""Nothing that an owner does with an array changes a result or a program; and where it does, the
generator notices."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.fuzz.owners import check
from tetrad.arrays import creation
from tetrad.graph.nodes import Literal
from tetrad.tracing import array, operands

FEW, ENOUGH = 30, 120


def test_what_we_hold_does_not_change() -> None:
    wrong = [message for seed in range(FEW) if (message := check(seed))]
    assert wrong == []


def sharing(literal: Literal, values: np.ndarray, origin: Literal | None = None) -> None:
    """Constants compared by content, in memory of somebody else."""
    literal.held = np.ascontiguousarray(values).reshape(np.shape(values))
    literal._origin, literal.is_read = origin, False
    content: object = (
        literal.held.tobytes() if literal.held.nbytes <= Literal.SMALL else id(literal)
    )
    literal.key = (literal.held.dtype, literal.held.shape, content)


def shown(x: Any, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
    seen: np.ndarray = x.memory.view()
    seen.flags.writeable = False
    return seen


def plant(name: str, patch: pytest.MonkeyPatch) -> None:
    if name == "small constants are shared":
        patch.setattr(Literal, "__init__", sharing)
    elif name == "large constants are shared":
        patch.setattr(array, "value_seen", lambda x: x)
    elif name == "a read-only flag is believed":
        for module in (operands, creation):
            patch.setattr(
                module, "is_lasting", lambda values, or_mapped=False: not values.flags.writeable
            )
    elif name == "results are borrowed":
        patch.setattr(operands, "kept", lambda x: x)
    else:
        patch.setattr(array.Array, "__array__", shown)


@pytest.mark.parametrize(
    "name",
    [
        "small constants are shared",
        "large constants are shared",
        "a read-only flag is believed",
        "results are borrowed",
        "exports can be made writable",
    ],
)
def test_a_planted_defect_is_noticed(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(name, monkeypatch)
    assert any(check(seed) for seed in range(ENOUGH))
