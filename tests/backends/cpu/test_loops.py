"""Loops whose bodies see bases of their own: rows that move on, carries that go to and fro, one
worker or all."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from tests.backends.cpu.kernels import LANES, N, kernel
from tetrad.backends.cpu.pool import Trapped, run
from tetrad.backends.cpu.table import FOREVER, Base, Carry, Entry, LoopEntry, Table, Word
from tetrad.core.errors import CompileError

# By a thread: a signal handler of Python would wait for the native code that hangs.
pytestmark = pytest.mark.timeout(60, method="thread")
GROUPS = -(-N // LANES)
ROW = 8 * N


def mix(x: int, y: int) -> Entry:
    """y[i] = 3 x[i] + x[(i + 7) mod n]: every worker reads what others wrote."""
    return kernel("mix", (Word(x, 0), Word(y, 0)), GROUPS, n=N, shift=7, offset=0)


def mixed(x: np.ndarray) -> np.ndarray:
    return 3 * x + np.roll(x, -7)


def addresses(*arrays: np.ndarray) -> list[int]:
    return [a.ctypes.data for a in arrays]


def data(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).integers(-9, 9, shape or (N,))


teams = pytest.mark.parametrize("threads", [1, 2, 3])
alone = pytest.mark.parametrize("alone", [False, True])


@teams
@alone
@pytest.mark.parametrize("count", [0, 1, 2, 5])
@pytest.mark.parametrize("reverse", [False, True])
def test_rows_move_by_their_stride(threads: int, alone: bool, count: int, reverse: bool) -> None:
    xs, ys = data(max(count, 1), N), np.zeros((max(count, 1), N), np.int64)
    start, stride = ((count - 1) * ROW, -ROW) if reverse and count else (0, ROW)
    bases = Base(Word(0, start), stride), Base(Word(1, start), stride)
    table = Table((LoopEntry((mix(0, 1),), Word(-1, count), bases=bases, alone=alone),))
    run(table, addresses(xs, ys), threads)
    for x, y in zip(xs[:count], ys, strict=False):
        np.testing.assert_array_equal(y, mixed(x))


def carried(count: int, init: Word, home: Word, spare: Word, alone: bool) -> Table:
    """home = mixed(mixed(... init)), count times."""
    first = home if count % 2 else spare
    carry = Carry(0, 1, home, spare, ROW)
    return Table(
        (
            LoopEntry(
                (mix(0, 1),),
                Word(-1, count),
                bases=(Base(init), Base(first)),
                carries=(carry,),
                alone=alone,
            ),
        )
    )


@teams
@alone
@pytest.mark.parametrize("count", [0, 1, 2, 7, 200])
def test_a_carry_goes_to_and_fro_and_ends_at_home(threads: int, alone: bool, count: int) -> None:
    init, home, spare = data(), np.zeros(N, np.int64), np.zeros(N, np.int64)
    run(
        carried(count, Word(0, 0), Word(1, 0), Word(2, 0), alone),
        addresses(init, home, spare),
        threads,
    )
    want = data()
    for _ in range(count):
        want = mixed(want)
    np.testing.assert_array_equal(home, want)
    np.testing.assert_array_equal(init, data())


@teams
@alone
@pytest.mark.parametrize("first", [1, 2])
def test_a_carry_that_ends_elsewhere_is_taken_home(threads: int, alone: bool, first: int) -> None:
    """Who does not know the number of trips begins anywhere; the result is copied where it
    belongs."""
    init, home, spare = data(), np.zeros(N, np.int64), np.zeros(N, np.int64)
    bases, carry = (
        (Base(Word(0, 0)), Base(Word(first, 0))),
        Carry(0, 1, Word(1, 0), Word(2, 0), ROW),
    )
    table = Table(
        (LoopEntry((mix(0, 1),), Word(-1, 3), bases=bases, carries=(carry,), alone=alone),)
    )
    run(table, addresses(init, home, spare), threads)
    np.testing.assert_array_equal(home, mixed(mixed(mixed(data()))))


@teams
@alone
def test_a_carry_lives_in_the_rows_of_a_result(threads: int, alone: bool) -> None:
    init, home, rows = data(), np.zeros(N, np.int64), np.zeros((5, N), np.int64)
    bases, carry = (Base(Word(0, 0)), Base(Word(2, 0), ROW)), Carry(0, 1, Word(1, 0), None, ROW)
    # reads what the loop left at home
    after = kernel("mix", (Word(1, 0), Word(0, 0)), GROUPS, n=N, shift=7, offset=0)
    table = Table(
        (LoopEntry((mix(0, 1),), Word(-1, 5), bases=bases, carries=(carry,), alone=alone), after)
    )
    run(table, addresses(init, home, rows), threads)
    want: Sequence[np.ndarray] = [data()]
    for _ in range(5):
        want = [*want, mixed(want[-1])]
    np.testing.assert_array_equal(rows, want[1:])
    np.testing.assert_array_equal(init, mixed(want[-1]))


@teams
@alone
def test_loops_inside_loops(threads: int, alone: bool) -> None:
    inner = carried(3, Word(0, 0), Word(1, 0), Word(2, 0), alone).entries
    bases = Base(Word(0, 0), ROW), Base(Word(1, 0), ROW), Base(Word(2, 0))
    xs, ys, spare = data(4, N), np.zeros((4, N), np.int64), np.zeros(N, np.int64)
    run(Table((LoopEntry(inner, Word(-1, 4), bases=bases),)), addresses(xs, ys, spare), threads)
    for x, y in zip(xs, ys, strict=True):
        np.testing.assert_array_equal(y, mixed(mixed(mixed(x))))


@teams
@alone
def test_a_trap_ends_an_endless_loop(threads: int, alone: bool) -> None:
    trap = kernel("trap_from", (Word(0, 0),), 1, first=0)
    bases = Base(Word(0, 0)), Base(Word(1, 0)), Base(Word(2, 0))
    loop = LoopEntry((mix(1, 2), trap), Word(-1, FOREVER), bases=bases, alone=alone)
    x, a, b = np.zeros(LANES, np.int64), data(), data()
    for _ in range(20):
        with pytest.raises(Trapped):
            run(Table((mix(1, 2), loop, mix(2, 1))), addresses(x, a, b), threads)


def test_what_runs_alone_needs_no_others() -> None:
    assert carried(3, Word(0, 0), Word(1, 0), Word(2, 0), False).width == GROUPS
    assert carried(3, Word(0, 0), Word(1, 0), Word(2, 0), True).width == 0


def test_a_body_must_be_given_all_its_bases() -> None:
    with pytest.raises(CompileError, match="loop gives 1 bases, its body needs 2"):
        Table((LoopEntry((mix(0, 1),), Word(-1, 3), bases=(Base(Word(0, 0)),)),))
