"""Bench, dispatch: a small program over resident buffers against a jitted call of the same work.

Gives one row, for the table of kernels (`kernels.py`).
"""

from __future__ import annotations

import numpy as np
from common import Budget, Row, measure

import tetrad as td

SIZE = 64
AT_LEAST = 0.5


def dispatch_row(budget: Budget) -> Row:
    """z = 2 x + y: what a call costs, not what it computes."""
    k = td.kernel.build("scaled_sum")
    x, y = k.buffer("x", td.float32, count=SIZE), k.buffer("y", td.float32, count=SIZE)
    z, i = k.buffer("z", td.float32, "write", count=SIZE), k.global_id()
    k.store(z, i, k.load(x, i) * 2.0 + k.load(y, i))
    program, values = k.finish(), np.arange(SIZE, dtype=np.float32)
    held = [td.kernel.resident(values), td.kernel.resident(values), td.kernel.resident(SIZE, "f32")]
    jitted, array = td.jit(lambda x, y: x * 2 + y), td.asarray(values)
    td.dispatch(program, held)
    is_right = held[2].read().tolist() == jitted(array, array).tolist()
    timing = measure(
        {
            "ours": lambda: td.dispatch(program, held),
            "theirs": lambda: jitted(array, array),
        },
        budget,
    )
    ours, theirs = timing.best["ours"], timing.best["theirs"]
    return Row(
        "dispatch of a small resident program", ours, "s", theirs / ours, AT_LEAST,
        "a jitted call", theirs, timing.foreign, is_right,
    )  # fmt: skip
