"""Programs that nobody vouches for: the evaluator and machine code agree on accesses out of range,
and the text says what they are."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import tetrad as td
from tetrad.core.dtypes import i32, i64, index
from tetrad.core.errors import BoundsError
from tetrad.core.record import replace
from tetrad.kernel import nodes as n
from tetrad.kernel.build import KernelBuilder, Val
from tetrad.kernel.evaluate import evaluate

At = Callable[[KernelBuilder, n.Buffer], Val]
PLACES: dict[str, At] = {
    "own": lambda k, at: k.global_id(),
    "before": lambda k, at: k.global_id() - 5,
    "behind": lambda k, at: k.global_id() + 9,
    "backwards": lambda k, at: k.index(7) - k.global_id(),
    "twice": lambda k, at: k.global_id() * 2,
    "by data": lambda k, at: k.cast(k.load(at, k.global_id()), index),
    "far": lambda k, at: k.arg("zero") + (1 << 40),
    "one": lambda k, at: k.index(3),
    "none": lambda k, at: k.arg("zero") - 1,
    "of the group": lambda k, at: k.group_id() * 11,
}


def program(where: At, what: str) -> n.Program:
    """Sixteen elements, of which some invocations touch one and others miss."""
    k = KernelBuilder("guarded", 8)
    x, at = k.buffer("x", i32, count=16), k.buffer("at", i64, count=16)
    s, y = k.scratch("s", i32, 5), k.buffer("y", i32, "readwrite", count=16)
    place = where(k, at)
    if what == "store":
        with k.when(k.load(at, k.global_id()).ne(2)):
            k.store(y, place, 7, hint="same")
    elif what == "load":
        k.store(y, k.global_id(), k.load(x, place) + 1)
    elif what == "atomic":
        k.atomic("add", y, place, 3)
    else:
        k.store(s, k.lane() + 1, 5)
        k.barrier()
        k.store(y, k.global_id(), k.load(s, place) + k.load(s, k.lane()))
    return k.finish()


@pytest.mark.parametrize("what", ["load", "store", "atomic", "scratch"])
@pytest.mark.parametrize("where", PLACES.values(), ids=PLACES)
def test_evaluator_and_machine_agree(where: At, what: str) -> None:
    made = program(where, what)
    x, y = np.arange(16, dtype=np.int32) * 10, np.arange(16, dtype=np.int32)
    at = np.array([3, 99, -1, 2, 0, 15, 16, -(1 << 40)] * 2)
    memory = {"x": x, "at": at, "y": y.copy()}
    args = dict.fromkeys(made.args, 0)
    evaluate(replace(made, guarded=True), memory, args, (3, 1, 1))
    (got,) = td.dispatch(made, [x, at, y], (3, 1, 1), args=args)
    assert np.frombuffer(got, np.int32).tolist() == memory["y"].tolist()


def test_others_are_told_of_an_access_out_of_range() -> None:
    made = program(PLACES["far"], "load")
    memory = {
        "x": np.zeros(16, np.int32),
        "at": np.zeros(16, np.int64),
        "y": np.zeros(16, np.int32),
    }
    with pytest.raises(BoundsError, match="has 16 elements, index"):
        evaluate(made, memory, {"zero": 0}, (1, 1, 1))


def test_the_text_says_it_and_the_fingerprint_differs() -> None:
    made = program(PLACES["own"], "load")
    guarded = replace(made, guarded=True)
    again = td.kernel.parse(str(guarded))
    assert again.guarded
    assert str(again) == str(guarded)
    assert td.kernel.fingerprint(again) == td.kernel.fingerprint(guarded)
    assert td.kernel.fingerprint(made) != td.kernel.fingerprint(guarded)
    assert td.kernel.from_bytes(td.kernel.to_bytes(guarded)).guarded
