"""Every registered kernel: verified, printed and read back, and its answers on the evaluator and on
every back end."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pytest

import tetrad as td
from tests.kernel.programs import arrays_of
from tetrad.core.errors import TrapError, UnsupportedError
from tetrad.kernel import nodes as n
from tetrad.kernel import registry
from tetrad.kernel.build import KernelBuilder
from tetrad.kernel.evaluate import KernelTrap, evaluate
from tetrad.kernel.registry import Entry, Grid, in_region, register
from tetrad.kernel.text import parse, to_text
from tetrad.kernel.verify import problems

ENTRIES = list(registry.entries())
ENTRY = pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.id)
SAMPLES = 8


def evaluated(
    program: n.Program, inputs: Sequence[bytes], args: Mapping[str, int], grid: Grid
) -> list[bytes]:
    """What dispatch promises, on the evaluator: it raises for memory out of range, so no kernel can
    rely on that."""
    arrays = arrays_of(program, inputs, args)
    evaluate(program, arrays, args, grid, races=True)
    return [arrays[b.name].tobytes() for b in program.buffers if b.is_written]


@ENTRY
def test_it_is_a_valid_program_in_a_region_of_its_own(entry: Entry) -> None:
    program = entry.build()
    assert problems(program) == []
    assert [instr.generator for instr in program.body if isinstance(instr, n.Region)] == [entry.id]
    assert len(program.body) == 1


@ENTRY
def test_it_reads_back_as_it_was_printed(entry: Entry) -> None:
    text = to_text(entry.build())
    assert to_text(parse(text)) == text


@ENTRY
def test_it_has_cases_and_says_what_it_does(entry: Entry) -> None:
    assert len(entry.test_inputs()) == len(entry.expected_output()) >= 1
    assert entry.category and entry.__doc__


@ENTRY
def test_the_evaluator_gives_the_expected_bytes(entry: Entry) -> None:
    for inputs, outputs in zip(entry.test_inputs(), entry.expected_output(), strict=True):
        assert evaluated(entry.build(), inputs, entry.args, entry.grid) == list(outputs)


@ENTRY
def test_dispatch_gives_the_expected_bytes(entry: Entry) -> None:
    for inputs, outputs in zip(entry.test_inputs(), entry.expected_output(), strict=True):
        assert td.dispatch(entry.build(), inputs, entry.grid, args=entry.args) == list(outputs)


@ENTRY
def test_samples_of_random_size_agree_with_numpy(entry: Entry) -> None:
    rng = np.random.default_rng(20)
    for _ in range(SAMPLES):
        sample = entry.sample(rng)
        assert problems(sample.program) == []
        case = sample.case
        assert evaluated(sample.program, case.inputs, sample.args, sample.grid) == list(
            case.outputs
        )
        assert td.dispatch(sample.program, case.inputs, sample.grid, args=sample.args) == list(
            case.outputs
        )


def test_the_gather_traps_outside_its_table() -> None:
    gather = registry.entry("tetrad::layout::gather")
    x, at = np.zeros(4, "<f4"), np.array([1, 9, -3], "<i4")
    with pytest.raises(TrapError) as error:
        td.dispatch(gather.build(), [x.tobytes(), at.tobytes()], gather.grid)
    assert (error.value.trap, error.value.value) == (2, 9)
    with pytest.raises(KernelTrap) as wanted:
        evaluated(gather.build(), [x.tobytes(), at.tobytes()], {}, gather.grid)
    assert (wanted.value.code, wanted.value.value) == (2, 9)


# -- registering -----------------------------------------------------------------------------------


def empty(name: str = "empty") -> n.Program:
    return KernelBuilder(name).finish()


def test_an_entry_without_fixtures_says_so() -> None:
    entry = Entry("test::none::bare", "test", (1, 1, 1), {}, empty)
    with pytest.raises(UnsupportedError, match="test::none::bare has no cases"):
        entry.test_inputs()
    with pytest.raises(UnsupportedError, match="has no cases"):
        entry.expected_output()
    with pytest.raises(UnsupportedError, match="has no sampler"):
        entry.sample(np.random.default_rng(0))


def test_ids_are_unique_and_have_three_parts() -> None:
    with pytest.raises(ValueError, match="two kernels are called tetrad::math::add"):
        register("tetrad::math::add", category="math", grid=(1, 1, 1))(empty)
    for bad in ("add", "tetrad::add", "a::::b", "a::b::c::d"):
        with pytest.raises(ValueError, match="package::domain::name"):
            register(bad, category="math", grid=(1, 1, 1))


def test_an_unknown_id_lists_the_known_ones() -> None:
    with pytest.raises(KeyError, match="tetrad::math::add"):
        registry.entry("tetrad::math::nothing")


def test_a_program_that_is_regions_already_keeps_them() -> None:
    inner = in_region("a::b::c", empty())
    assert in_region("d::e::f", inner) is inner
