"""The harness finds what is wrong: missing or wrong fixtures, races, accesses out of range, traps
that do not come, back ends that pretend."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given

import tetrad as td
import tetrad.compiler.dispatch as launches
from tests.kernel.programs import programs, run_random
from tetrad import backends
from tetrad.core.backend import Unavailable
from tetrad.core.dtypes import f32, f64, i32, u32
from tetrad.core.errors import BackendError, BadInputs, CheckError
from tetrad.kernel import nodes as n
from tetrad.kernel import registry
from tetrad.kernel.build import KernelBuilder
from tetrad.kernel.harness import CheckReport, compare, evaluate_bytes, optimised, ulps
from tetrad.kernel.registry import Entry, ExpectedTrap, Fixpoint, Sample
from tetrad.kernel.text import to_text
from tetrad.kernel.verify import problems

ONE, TWO = td.kernel.pack([1, 2], f32), td.kernel.pack([2, 4], f32)


def doubled(wait: float = 2.0, outside: int = 0) -> n.Program:
    """y[i] = 2 * x[i], read `outside` elements further."""
    k = KernelBuilder("doubled", 2)
    x, y = k.buffer("x", f32, count=2), k.buffer("y", f32, "write", 2)
    k.store(y, k.global_id(), k.load(x, k.global_id() + outside) * wait)
    return k.finish()


def entry(
    build: Any = doubled, inputs: Any = ((ONE,),), expected: Any = ((TWO,),), **kw: Any
) -> Entry:
    return Entry("test::harness::one", build, inputs, expected, "test", **kw)


def failed(report: CheckReport) -> dict[str, str]:
    return {step.step: step.detail for step in report.failures}


def test_a_good_entry_passes_and_prints_every_step() -> None:
    report = registry.check(entry())
    report.require()
    lines = str(report).splitlines()
    assert lines[0] == f"test::harness::one  fingerprint {report.fingerprint[:16]}"
    steps = [line.split()[0] for line in lines[1:]]
    assert steps[:4] == ["build", "verify", "text", "bytes"] and "evaluate" in steps
    assert any(line.split()[:3] == ["run", "cpu", "ok"] for line in lines)


# -- fixtures --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("inputs", "expected", "text"),
    [
        ((), (), "0 inputs and 0 expected"),
        ((), ((TWO,),), "0 inputs and 1 expected"),
        (((ONE,),), (), "1 inputs and 0 expected"),
        (((ONE,), (ONE,)), ((TWO,),), "2 inputs and 1 expected"),
        (((),), ((TWO,),), "inputs of case 0: 0 byte strings for 1 buffers ['x']"),
        (((ONE, ONE),), ((TWO,),), "inputs of case 0: 2 byte strings"),
        (((ONE,),), ((),), "expected outputs of case 0: 0 byte strings for 1 buffers ['y']"),
        (((ONE,),), ((TWO, TWO),), "expected outputs of case 0: 2 byte strings"),
        (((ONE[:3],),), ((TWO,),), "inputs of case 0: x has 3 bytes, no whole number of f32"),
        ((([1, 2],),), ((TWO,),), "inputs of case 0: x is list, not bytes"),
        ((3,), ((TWO,),), "inputs of case 0: int, not a list of byte strings"),
    ],
)
def test_fixtures_that_are_missing_or_do_not_fit_fail(
    inputs: Any, expected: Any, text: str
) -> None:
    report = registry.check(entry(inputs=inputs, expected=expected))
    assert text in failed(report)["fixtures"] and not report.ok
    found = failed(report)
    assert all("see the step 'fixtures'" in found[step] for step in ("evaluate", "run cpu"))
    with pytest.raises(CheckError, match="test::harness::one"):
        report.require()


def test_deleting_a_fixture_of_the_library_makes_it_fail() -> None:
    good = registry.entry("tetrad::math::add")
    bad = Entry(good.id, good.build, good.inputs, good.expected[:1], good.category)
    assert "2 inputs and 1 expected" in failed(registry.check(bad))["fixtures"]


def test_a_wrong_answer_names_the_element_on_every_machine() -> None:
    wrong = td.kernel.pack([2, 5], f32)
    found = failed(registry.check(entry(expected=((wrong,),))))
    for step in ("evaluate", "run cpu"):
        assert "case 0: y[1] is" in found[step] and "1 of 2 elements" in found[step]


def test_an_answer_of_another_length() -> None:
    found = failed(registry.check(entry(expected=((TWO[:4],),))))
    assert "y has 8 bytes, 4 were expected" in found["evaluate"]


# -- programs --------------------------------------------------------------------------------------


def test_a_builder_that_fails() -> None:
    def broken() -> n.Program:
        raise RuntimeError("no such size")

    report = registry.check(entry(broken))
    assert failed(report) == {"build": "RuntimeError: no such size"}
    no_program = failed(registry.check(entry(lambda: n.Buffer("x", f32))))
    assert list(no_program) == ["build"] and "'Buffer' object" in no_program["build"]


def test_an_invalid_program() -> None:
    def invalid() -> n.Program:
        k = KernelBuilder("invalid", 2)
        x = k.buffer("x", f32)
        k.store(x, 0, 1.0)
        return k.finish()

    assert "K021" in failed(registry.check(entry(invalid)))["verify"]


def test_an_access_out_of_range_that_dispatch_would_forgive() -> None:
    """A launch reads 0 there; the evaluator raises, so no entry relies on it."""
    answer = td.kernel.pack([4, 0], f32)
    found = failed(registry.check(entry(lambda: doubled(outside=1), expected=((answer,),))))
    assert "has 2 elements, index 2" in found["evaluate"] and "run cpu" not in found


def test_a_race() -> None:
    def racing() -> n.Program:
        k = KernelBuilder("racing", 4)
        y = k.buffer("y", i32, "write", 1)
        k.store(y, k.lane() * 0 // 1 + k.lane() // 4, k.cast(k.lane(), i32))
        return k.finish()

    found = failed(
        registry.check(entry(racing, ((),), ((td.kernel.pack([3], i32),),), grid=(1, 1, 1)))
    )
    assert "RaceError" in found["evaluate"]


def test_a_grid_that_nobody_can_tell() -> None:
    def shifted() -> n.Program:
        k = KernelBuilder("shifted", 2)
        x, y = k.buffer("x", f32, count=2), k.buffer("y", f32, "write", 4)
        k.store(y, k.global_id() + 2, k.load(x, k.global_id()))
        return k.finish()

    wanted = ((td.kernel.pack([0, 0, 1, 2], f32),),)
    found = failed(registry.check(entry(shifted, expected=wanted)))
    assert "the grid cannot be told" in found["evaluate"]
    assert registry.check(entry(shifted, expected=wanted, grid=(1, 1, 1))).ok


# -- traps -----------------------------------------------------------------------------------------


def checked() -> n.Program:
    k = KernelBuilder("checked", 2)
    x, y = k.buffer("x", f32, count=2), k.buffer("y", f32, "write", 2)
    value, i = k.load(x, k.global_id()), k.global_id()
    k.trap(value > 1.5, 7, i)
    k.store(y, i, value)
    return k.finish()


@pytest.mark.parametrize(
    "wanted", [ExpectedTrap(7), ExpectedTrap(7, 1), ExpectedTrap(7, 1, "checked: trap 7")]
)
def test_a_trap_that_must_come(wanted: ExpectedTrap) -> None:
    report = registry.check(entry(checked, expected=(wanted,)))
    assert report.ok, report
    assert "1 trap among them" in str(report)


@pytest.mark.parametrize(
    "wanted", [ExpectedTrap(6), ExpectedTrap(7, 0), ExpectedTrap(7, 1, "another message")]
)
def test_another_trap_fails(wanted: ExpectedTrap) -> None:
    found = failed(registry.check(entry(checked, expected=(wanted,))))
    assert set(found) == {"evaluate", "run cpu"} and "expected ExpectedTrap" in found["evaluate"]


def test_a_trap_that_does_not_come_fails() -> None:
    found = failed(registry.check(entry(expected=(ExpectedTrap(7),))))
    assert "but the launch succeeded" in found["evaluate"]
    assert "but the launch succeeded" in found["run cpu"]


# -- samples ---------------------------------------------------------------------------------------


def test_a_sample_that_disagrees_names_its_sizes() -> None:
    made = entry()
    made.sampler(lambda rng: Sample((3.0,), (ONE,), (TWO,)))
    found = failed(registry.check(made))
    assert "sample 0 of sizes (3.0,): y[0] is" in found["samples"]
    assert "sample 0 of sizes (3.0,)" in found["run cpu"]


def test_a_sampler_that_fails_is_a_line_of_the_report() -> None:
    made = entry()
    made.sampler(lambda rng: 1 / 0)  # type: ignore[arg-type, return-value]
    assert "ZeroDivisionError" in failed(registry.check(made))["samples"]


# -- fixpoints -------------------------------------------------------------------------------------


def halved(most: int) -> Entry:
    """y = x / 2 until it is 0."""

    def build() -> n.Program:
        k = KernelBuilder("halved", 1)
        x, y = k.buffer("x", u32, count=1), k.buffer("y", u32, "write", 1)
        changed, i = k.buffer("changed", u32, "write", 1), k.global_id()
        value = k.load(x, i)
        k.store(y, i, value >> 1)
        k.store(changed, i, k.cast(value.ne(value >> 1), u32))
        return k.finish()

    zero = td.kernel.pack([0], u32)
    given = ((td.kernel.pack([1000], u32),),)
    fixpoint = Fixpoint("changed", {"y": "x"}, most)
    return entry(build, given, ((zero, zero),), fixpoint=fixpoint)


def test_a_fixpoint_is_launched_until_nothing_changes() -> None:
    assert registry.check(halved(11)).ok


def test_a_fixpoint_that_still_changes_is_no_result() -> None:
    found = failed(registry.check(halved(10)))
    assert "still changing after 10 launches" in found["evaluate"]
    assert "still changing after 10 launches" in found["run cpu"]


# -- back ends -------------------------------------------------------------------------------------


class Absent:
    """A back end that cannot run here."""

    name, machine, targets = "absent", None, ()

    def available(self) -> Unavailable:
        return Unavailable("there is no such device", "install its driver")


def test_a_back_end_that_cannot_run_here_is_a_named_gap(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(backends.BACKENDS, "absent", Absent)
    report = registry.check(entry())
    (gap,) = [step for step in report.gaps if step.step == "run absent"]
    assert "there is no such device" in gap.detail and "install its driver" in gap.detail
    assert report.ok


def test_a_back_end_that_was_asked_for_must_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(backends.BACKENDS, "absent", Absent)
    assert "no such device" in failed(registry.check(entry(), backends=["absent"]))["run absent"]
    assert "no back end 'none'" in failed(registry.check(entry(), backends=["none"]))["run none"]
    assert registry.check(entry(), backends=["cpu"]).ok


def test_an_error_without_a_remedy_and_a_pretender_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(backends.BACKENDS, "absent", Absent)

    def silent(*args: Any, **kw: Any) -> list[bytes]:
        raise BackendError("no")

    monkeypatch.setattr(launches, "dispatch", silent)
    assert "says no remedy" in failed(registry.check(entry()))["run absent"]
    monkeypatch.setattr(launches, "dispatch", lambda *args, **kw: [TWO])
    assert "runs, although it says" in failed(registry.check(entry()))["run absent"]


# -- comparing -------------------------------------------------------------------------------------


def test_distances_in_ulps() -> None:
    values = np.float32([1.0, -0.0, np.nan, -1.0, 1e-45])
    others = np.float32([np.nextafter(np.float32(1), np.float32(2)), 0.0, -np.nan, 1.0, -1e-45])
    assert ulps(values, others, f32).tolist() == [1, 1, 0, 2 * 0x3F800000 + 1, 3]
    assert ulps(np.int32([1, 2]), np.int32([1, 3]), i32).tolist() == [0, 1 << 62]
    assert ulps(np.float64([1.0]), np.float64([1.0]), f64).tolist() == [0]


def test_a_tolerance_is_in_ulps_and_zero_by_default() -> None:
    near = np.nextafter(np.float32([2, 4]), np.float32(9)).tobytes()
    assert set(failed(registry.check(entry(expected=((near,),))))) == {"evaluate", "run cpu"}
    assert registry.check(entry(expected=((near,),), tolerance=1)).ok


def test_signed_zeros_differ_and_nans_do_not() -> None:
    program = doubled()
    with pytest.raises(CheckError, match=r"y\[0\]"):
        compare(program, [td.kernel.pack([0.0, 1], f32)], [td.kernel.pack([-0.0, 1], f32)], 0, "x")
    nan = np.array([0x7FC00000, 0x7F800001], "<u4").tobytes()
    compare(program, [nan], [np.float32([np.nan, np.nan]).tobytes()], 0, "x")
    with pytest.raises(CheckError, match="1 outputs expected, got 2"):
        compare(program, [TWO, TWO], [TWO], 0, "x")


def test_the_evaluator_as_a_dispatcher() -> None:
    assert evaluate_bytes(doubled(), [ONE], {}, (1, 1, 1)) == [TWO]
    k = KernelBuilder("unknown")
    k.buffer("y", f32, "write")
    with pytest.raises(BadInputs, match="y is only written and has no count"):
        evaluate_bytes(k.finish(), [], {}, (1, 1, 1))


# -- optimising ------------------------------------------------------------------------------------


@given(programs())
def test_optimising_keeps_the_meaning_and_is_done_once(program: n.Program) -> None:
    once = optimised(program)
    assert problems(once) == [] and to_text(optimised(once)) == to_text(once)
    for got, want in zip(run_random(once), run_random(program), strict=True):
        assert got.tobytes() == want.tobytes()
