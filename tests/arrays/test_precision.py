"""`precision=` is taken as in JAX and changes nothing: f32 is computed in f32."""

from __future__ import annotations

import enum
from typing import Any

import numpy as np
import pytest

import tetrad as td
from tetrad.core.errors import TraceError


class Precision(enum.Enum):
    DEFAULT = 0
    HIGHEST = 2


A, B = (td.asarray(np.random.default_rng(i).normal(size=(3, 3)).astype(np.float32)) for i in (0, 1))
X, W = td.reshape(td.arange(9.0), (1, 1, 3, 3)), td.ones((1, 1, 2, 2))
CALLS = {
    "matmul": lambda p: td.matmul(A, B, precision=p),
    "vecdot": lambda p: td.vecdot(A, B, precision=p),
    "tensordot": lambda p: td.tensordot(A, B, 1, precision=p),
    "einsum": lambda p: td.einsum("ij,jk->ik", A, B, precision=p, optimize="optimal"),
    "dot": lambda p: td.dot(A, B, precision=p),
    "inner": lambda p: td.inner(A, B, precision=p),
    "vdot": lambda p: td.vdot(A, B, precision=p),
    "conv_general_dilated": lambda p: td.nn.conv_general_dilated(
        X, W, (1, 1), "VALID", precision=p
    ),
}


@pytest.mark.parametrize("name", CALLS)
def test_every_precision_is_the_highest(name: str) -> None:
    call: Any = CALLS[name]
    wanted = call(None).tolist()
    for precision in (
        "highest", "default", "high", "float32", "tensorfloat32", Precision.HIGHEST,
        (Precision.DEFAULT, Precision.HIGHEST), ("highest", None),
    ):  # fmt: skip
        assert call(precision).tolist() == wanted
    with pytest.raises(TraceError, match=f"^{name}: there is no precision 'exact'"):
        call("exact")


def test_a_convolution_gives_the_type_that_is_preferred() -> None:
    half = X.astype(td.float16)
    found = td.nn.conv_general_dilated(
        half, W.astype(td.float16), (1, 1), "VALID", preferred_element_type=td.float32
    )
    assert found.dtype == td.float32 and found[0, 0].tolist() == [[8, 12], [20, 24]]
