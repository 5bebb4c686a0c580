"""Reading: long chains of elementwise work become a kernel without exhausting Python's stack."""

from __future__ import annotations

from typing import Any

import numpy as np

import tetrad as td


def test_a_long_chain_is_compiled() -> None:
    def chain(x: Any) -> Any:
        for i in range(200):
            x = td.abs(x - i) * 0.5
        return x

    x = np.linspace(-1, 1, 5, dtype=np.float32)
    np.testing.assert_array_equal(np.asarray(td.jit(chain)(x)), np.asarray(chain(td.asarray(x))))
