"""The table of back ends: what is asked for by name is there, or an error says what is.

The compiler needs no more of one than the protocol.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

import tetrad as td
from tests.modules import ROOT, parse
from tetrad.backends import BACKENDS, backend_named, target_names
from tetrad.backends.cpu import isa
from tetrad.backends.cpu.backend import CPU
from tetrad.core.backend import Backend, BufferContent, Unavailable
from tetrad.core.dtypes import f32
from tetrad.core.errors import BackendError, FlagError, Rejected
from tetrad.core.flags import flag
from tetrad.core.limits import available_threads
from tetrad.core.machine import Machine, RegisterTile
from tetrad.kernel.build import KernelBuilder
from tetrad.kernel.evaluate import evaluate
from tetrad.kernel.nodes import Buffer, Program


class Evaluator:
    """A second back end: runs kernels on the evaluator, with little memory for a workgroup."""

    name = "evaluator"
    targets = ("paper",)
    machine = Machine(128, RegisterTile(1, 1), RegisterTile(1, 1), 1, workgroup_bytes=64)
    lacking: Unavailable | None = None

    def available(self) -> Unavailable | None:
        return self.lacking

    def prepare(self) -> None: ...

    def begin(self, program: Any) -> None: ...

    def compile(self, schedule: Any) -> Any: ...

    def launch(
        self,
        program: Program,
        contents: Mapping[Buffer, BufferContent],
        args: Mapping[str, int],
        grid: tuple[int, int, int],
    ) -> list[bytes]:
        arrays = {
            b.name: np.frombuffer(held.data or bytes(held.nbytes), b.dtype.np).copy()
            for b, held in contents.items()
        }
        evaluate(program, arrays, args, grid)
        return [arrays[b.name].tobytes() for b in contents if b.is_written]

    def storage(self, array: np.ndarray) -> np.ndarray:
        return array


@pytest.fixture
def second(monkeypatch: pytest.MonkeyPatch) -> Evaluator:
    made = Evaluator()
    monkeypatch.setitem(BACKENDS, "evaluator", lambda: made)
    return made


def halves(scratch: int = 0) -> Program:
    k = KernelBuilder("halves", 4)
    x, y = k.buffer("x", f32), k.buffer("y", f32, "write", count=4)
    if scratch:
        k.scratch("held", f32, scratch)
    k.store(y, k.lane(), k.load(x, k.lane()) * 0.5)
    return k.finish()


DATA = np.arange(4, dtype=np.float32).tobytes()


def test_the_cpu_is_a_back_end() -> None:
    made: Backend = CPU
    assert backend_named("cpu", "test") is made
    assert made.machine.parallel_groups == available_threads()
    assert made.machine.f32_tile == isa.current_target().machine.f32_tile


def test_a_program_runs_on_the_back_end_that_is_asked_for(second: Evaluator) -> None:
    made: Backend = second
    assert td.dispatch(halves(), [DATA], backend=made.name) == td.dispatch(halves(), [DATA])


def test_an_unknown_back_end_is_an_error_that_lists_what_is_there(second: Evaluator) -> None:
    with pytest.raises(BackendError) as error:
        td.dispatch(halves(), [DATA], backend="abacus")
    assert str(error.value) == (
        "dispatch: there is no back end 'abacus'\n  hint: back ends: cpu, cuda, evaluator"
    )


def test_a_back_end_that_cannot_be_used_says_why_and_what_to_do(second: Evaluator) -> None:
    second.lacking = Unavailable("it found no pencil", "sharpen one")
    with pytest.raises(BackendError) as error:
        td.dispatch(halves(), [DATA], backend="evaluator")
    assert str(error.value) == (
        "dispatch: back end 'evaluator' cannot be used here: it found no pencil\n"
        "  hint: sharpen one; back ends: cpu, cuda, evaluator"
    )
    assert error.value.code == "1002"


def test_a_processor_without_a_file_has_no_cpu_back_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(isa.platform, "machine", lambda: "z80")
    isa.host_family.cache_clear()
    try:
        found = CPU.available()
    finally:
        monkeypatch.undo()
        isa.host_family.cache_clear()
    assert found == Unavailable("no code for processors of type z80", "known: x86_64, aarch64")


def test_the_machine_limits_the_memory_of_a_workgroup(second: Evaluator) -> None:
    td.dispatch(halves(16), [DATA], backend="evaluator")
    td.dispatch(halves(17), [DATA])
    with pytest.raises(Rejected, match="K004"):
        td.dispatch(halves(17), [DATA], backend="evaluator")


def test_the_flag_of_targets_knows_those_of_every_back_end(second: Evaluator) -> None:
    assert target_names() == (*isa.LEVELS, "paper")
    assert flag("TETRAD_TARGET", {"TETRAD_TARGET": "paper"}) == "paper"
    with pytest.raises(FlagError) as error:
        flag("TETRAD_TARGET", {"TETRAD_TARGET": "papyrus"})
    assert str(error.value) == (
        "TETRAD_TARGET='papyrus' is not valid\n  hint: allowed: host, " + ", ".join(target_names())
    )


@pytest.mark.parametrize("name", ["dispatch", "jit"])
def test_the_compiler_asks_only_the_table(name: str) -> None:
    """Files of the compiler that know no back end by name stay so."""
    path = f"tetrad/compiler/{name}.py"
    text = (ROOT / path).read_text()
    assert parse(path, text) and "backends.cpu" not in text
