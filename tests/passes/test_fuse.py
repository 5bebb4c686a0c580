"""Which nodes share a kernel: what is computed at many indices gets memory, so that kernels stay small."""

from __future__ import annotations

import time

import tetrad as td
from tetrad.compiler.driver import current_target, programs_of
from tetrad.lower.lower import Lowerer
from tetrad.passes.fuse import fuse
from tetrad.passes.pipeline import optimise


def test_halves_of_an_array_that_meet_again_do_not_double_the_code() -> None:
    """A product is differentiated in pairs; read where it is needed, its last element would be computed 512 times."""
    graph = td.trace(td.grad(td.prod))(td.Spec((512,)))
    programs = programs_of(Lowerer(current_target()).lower(optimise(graph)))
    assert 2 < len(programs) < 40
    assert max(len(str(p)) for p in programs) < 30_000


def test_a_little_work_is_done_twice_rather_than_kept() -> None:
    def neighbours(x: td.Array) -> td.Array:
        y = x * 2 + 1
        return y[1:] - y[:-1]

    graph = td.trace(neighbours)(td.Spec((100,)))
    assert len(programs_of(Lowerer(current_target()).lower(optimise(graph)))) == 1


def test_chains_whose_steps_read_each_other_twice_take_no_longer() -> None:
    """There are 2 to the power of 60 ways from the product down to its operand."""

    def deep(x: td.Array, w: td.Array) -> td.Array:
        for _ in range(60):
            x = x * x + x
        return x @ w

    started = time.perf_counter()
    fuse(td.trace(deep)(td.Spec((8, 8)), td.Spec((8, 8))))
    assert time.perf_counter() - started < 5
