"""Kernel language, harness: every step a registered program has to pass, on every back end.

Receives an entry of the registry, returns a report: one line for each step, `ok`, `failed` or `gap`
(a back end that cannot run here and says why, or an entry without a sampler). What is missing or
does not fit counts as failed, never as passed over. Back ends belong to later folders; they are
asked through `core.lazy`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from tetrad.core import lazy
from tetrad.core.dtypes import DType
from tetrad.core.errors import BackendError, BadInputs, CheckError, TetradError, TrapError
from tetrad.core.record import record
from tetrad.core.sizes import bind
from tetrad.kernel import nodes as n
from tetrad.kernel.bytes import from_bytes, to_bytes
from tetrad.kernel.evaluate import KernelTrap, evaluate
from tetrad.kernel.grids.infer import infer_grid
from tetrad.kernel.merge import merged
from tetrad.kernel.registry import Bytes, Entry, Expected, ExpectedTrap, Fixpoint, Grid, Sample
from tetrad.kernel.returns import without_returns
from tetrad.kernel.text import fingerprint, parse, to_text
from tetrad.kernel.verify import problems

Array = np.ndarray[Any, Any]
Args = Mapping[str, int]
Launch = Callable[[n.Program, Bytes, Args, Grid], Bytes]
SEED = 20


@record
class StepResult:
    step: str
    result: str  # ok, failed or gap
    detail: str = ""


@record
class CheckReport:
    """What the harness found about one entry; `print` shows it."""

    id: str
    fingerprint: str
    steps: tuple[StepResult, ...]

    @property
    def failures(self) -> list[StepResult]:
        return [s for s in self.steps if s.result == "failed"]

    @property
    def gaps(self) -> list[StepResult]:
        return [s for s in self.steps if s.result == "gap"]

    @property
    def ok(self) -> bool:
        return not self.failures

    def require(self) -> None:
        """Raise an error that shows the report, if a step failed."""
        if self.failures:
            raise CheckError(str(self), hint=f"look at step {self.failures[0].step!r} first")

    def __str__(self) -> str:
        width = max(len(s.step) for s in self.steps)
        lines = [f"{self.id}  fingerprint {self.fingerprint[:16]}"]
        lines += [f"  {s.step:{width}}  {s.result:6}  {s.detail}".rstrip() for s in self.steps]
        return "\n".join(lines)


class Gap(Exception):
    """A step that cannot be done here, for a reason that it names."""


def check(entry: Entry, backends: Sequence[str] | None = None, samples: int = 8) -> CheckReport:
    """All steps for one entry. Without `backends`: every one there is, and one that cannot run here
    is a gap; those that the caller names must run."""
    built: list[n.Program] = []
    drawn: list[Sample] = []
    results = [attempt("build", partial(build, entry, built))]
    if not built:
        return CheckReport(entry.id, "none", tuple(results))
    program = built[0]
    results += [
        attempt("verify", partial(verify_step, program)),
        attempt("text", partial(text_step, program)),
        attempt("bytes", partial(bytes_step, program)),
        attempt("fixtures", partial(fixtures_step, entry, program)),
        attempt("optimise", partial(optimise_step, program)),
        attempt("evaluate", partial(witness_step, entry, program)),
        attempt("samples", partial(dual_oracle_step, entry, samples, drawn)),
    ]
    names = tuple(lazy.provided("targets").BACKENDS) if backends is None else backends
    run = run_step if backends is None else run_or_raise
    results += [attempt(f"run {b}", partial(run, entry, program, b, drawn)) for b in names]
    return CheckReport(entry.id, fingerprint(program), tuple(results))


def attempt(step: str, function: Callable[[], str]) -> StepResult:
    """Whatever a program or a fixture does wrong becomes a line of the report."""
    try:
        return StepResult(step, "ok", function())
    except Gap as gap:
        return StepResult(step, "gap", str(gap))
    except Exception as error:
        told = error.message if isinstance(error, TetradError) else str(error)
        return StepResult(step, "failed", f"{type(error).__name__}: {told}")


# -- steps -----------------------------------------------------------------------------------------


def build(entry: Entry, built: list[n.Program]) -> str:
    program = entry.build()
    if not isinstance(program, n.Program):
        raise CheckError(f"build() gives a {type(program).__name__}, not a Program")
    built.append(program)
    return f"kernel {program.name}"


def verify_step(program: n.Program) -> str:
    found = problems(program)
    if found:
        raise found[0]
    if not program.body or not all(isinstance(instr, n.Region) for instr in program.body):
        raise CheckError("an instruction stands outside of a region")
    return f"{len(program.buffers)} buffers, {count(program)} instructions"


def text_step(program: n.Program) -> str:
    text = to_text(program)
    again = parse(text)
    if to_text(again) != text or fingerprint(again) != fingerprint(program):
        raise CheckError("the text of the program does not read back as the same program")
    return f"{len(text.splitlines())} lines"


def bytes_step(program: n.Program) -> str:
    data = to_bytes(program)
    again = from_bytes(data)
    if to_text(again) != to_text(program) or to_bytes(again) != data:
        raise CheckError("the bytes of the program do not read back as the same program")
    return f"{len(data)} bytes"


def fixtures_step(entry: Entry, program: n.Program) -> str:
    """Cases are there, as many inputs as outputs, and each has what the program reads and
    writes."""
    if not entry.inputs or len(entry.inputs) != len(entry.expected):
        raise CheckError(
            f"{len(entry.inputs)} inputs and {len(entry.expected)} expected outputs: an entry has "
            "at least one case, and an answer for each"
        )
    read = [b for b in program.buffers if not b.is_scratch and b.access != "write"]
    written = [b for b in program.buffers if b.is_written]
    for i, (given, wanted) in enumerate(zip(entry.inputs, entry.expected, strict=True)):
        refuse_content(f"inputs of case {i}", given, read)
        if not isinstance(wanted, ExpectedTrap):
            refuse_content(f"expected outputs of case {i}", wanted, written)
    return number(len(entry.inputs), "case")


def optimise_step(program: n.Program) -> str:
    """What the compiler does to kernels: applied twice it gives what it gives once."""
    once = optimised(program)
    found = problems(once)
    if found:
        raise found[0]
    if fingerprint(optimised(once)) != fingerprint(once):
        raise CheckError("optimised again, the program is another")
    return f"{count(program)} instructions become {count(once)}"


def optimised(program: n.Program) -> n.Program:
    """The program as the compiler's passes over kernels write it: branches in the place of early
    returns, the values that effects need and no others."""
    found = merged([without_returns(program)])
    if found is None:
        raise CheckError("the program cannot be compared with itself")
    return found.program


def refuse_content(what: str, case: Bytes, buffers: list[n.Buffer]) -> None:
    """A byte string for each buffer, of whole elements."""
    if not isinstance(case, list | tuple):
        raise CheckError(f"{what}: {type(case).__name__}, not a list of byte strings")
    if len(case) != len(buffers):
        names = [b.name for b in buffers]
        raise CheckError(f"{what}: {len(case)} byte strings for {len(buffers)} buffers {names}")
    for buffer, data in zip(buffers, case, strict=True):
        if not isinstance(data, bytes | bytearray | memoryview):
            raise CheckError(f"{what}: {buffer.name} is {type(data).__name__}, not bytes")
        if len(data) % buffer.dtype.nbytes:
            raise CheckError(
                f"{what}: {buffer.name} has {len(data)} bytes, no whole number of {buffer.dtype}"
            )


def witness_step(entry: Entry, program: n.Program) -> str:
    """The evaluator gives the expected bytes, before and after optimising; it checks bounds, index
    overflow and races."""
    cases_of(entry, optimised(program), evaluate_bytes)
    return cases_of(entry, program, evaluate_bytes)


def dual_oracle_step(entry: Entry, number: int, drawn: list[Sample]) -> str:
    """The evaluator agrees with an independent implementation, at random sizes. The back ends get
    the same samples."""
    if entry.expected and all(isinstance(wanted, ExpectedTrap) for wanted in entry.expected):
        return "no outputs: every case traps"
    if not entry.has_sampler:
        raise Gap("no sampler: nothing but the written cases is tested")
    rng = np.random.default_rng(SEED)
    drawn += [entry.sample(rng) for _ in range(number)]
    return samples_of(entry, drawn, evaluate_bytes)


def run_step(entry: Entry, program: n.Program, backend: str, samples: Sequence[Sample]) -> str:
    """As `run_or_raise`; a back end that cannot run here must say why and what to do."""
    lacking = lazy.provided("targets").BACKENDS[backend]().available()
    if lacking is None:
        return run_or_raise(entry, program, backend, samples)
    try:
        run_or_raise(entry, program, backend, samples)
    except BackendError as error:
        if error.hint:
            raise Gap(f"{error.message}; {error.hint}") from None
        raise CheckError(f"the error of back end {backend} says no remedy: {error}") from None
    raise CheckError(f"back end {backend} runs, although it says {lacking.reason}")


def run_or_raise(entry: Entry, program: n.Program, backend: str, samples: Sequence[Sample]) -> str:
    """The back end gives the expected bytes, and those of the evaluator: of the optimised program
    for the cases, of the program as it was built for samples."""

    def launch(program: n.Program, inputs: Bytes, args: Args, grid: Grid) -> Bytes:
        found: Bytes = lazy.provided("kernel launches").dispatch(
            program, inputs, grid, backend, args=args
        )
        if entry.tolerance:  # without one, both give the expected bits
            wanted = evaluate_bytes(program, inputs, args, grid)
            compare(program, found, wanted, entry.tolerance, "against the evaluator")
        return found

    cases = cases_of(entry, optimised(program), launch)
    return f"{cases}, {samples_of(entry, samples, launch)}" if samples else cases


# -- lenses ----------------------------------------------------------------------------------------


def cases_of(entry: Entry, program: n.Program, launch: Launch) -> str:
    try:
        fixtures_step(entry, program)
    except CheckError:
        raise CheckError("the cases do not fit the program: see the step 'fixtures'") from None
    grid = grid_of(entry)
    for i, (given, wanted) in enumerate(zip(entry.inputs, entry.expected, strict=True)):
        compare_case(entry, program, given, wanted, entry.args, grid, launch, f"case {i}")
    traps = sum(isinstance(wanted, ExpectedTrap) for wanted in entry.expected)
    told = number(len(entry.inputs), "case")
    return f"{told}, {number(traps, 'trap')} among them" if traps else told


def samples_of(entry: Entry, samples: Sequence[Sample], launch: Launch) -> str:
    for i, sample in enumerate(samples):
        program = entry.build(*sample.sizes)
        found = problems(program)
        if found:
            raise found[0]
        grid = sample.grid or entry.grid_for(*sample.sizes)
        grid = grid or inferred(program, sample.inputs, sample.args)
        label = f"sample {i} of sizes {sample.sizes}"
        wanted = sample.outputs
        compare_case(entry, program, sample.inputs, wanted, sample.args, grid, launch, label)
    return number(len(samples), "sample")


def compare_case(
    entry: Entry,
    program: n.Program,
    given: Bytes,
    wanted: Expected,
    args: Args,
    grid: Grid,
    launch: Launch,
    label: str,
) -> None:
    if isinstance(wanted, ExpectedTrap):
        expect_trap(program, given, wanted, args, grid, launch, label)
        return
    if entry.fixpoint is None:
        got = launch(program, given, args, grid)
    else:
        got = run_to_fixpoint(program, given, args, grid, entry.fixpoint, launch)
    compare(program, got, wanted, entry.tolerance, label)


def expect_trap(
    program: n.Program,
    given: Bytes,
    wanted: ExpectedTrap,
    args: Args,
    grid: Grid,
    launch: Launch,
    label: str,
) -> None:
    try:
        launch(program, given, args, grid)
    except (KernelTrap, TrapError) as trap:
        code = trap.code if isinstance(trap, KernelTrap) else trap.trap
        value = trap.value if wanted.value is not None else None
        if (code, value) != (wanted.code, wanted.value) or wanted.message not in trap.message:
            raise CheckError(f"{label}: expected {wanted}, got {trap.message}") from None
        return
    raise CheckError(f"{label}: expected {wanted}, but the launch succeeded")


def run_to_fixpoint(
    program: n.Program, given: Bytes, args: Args, grid: Grid, fixpoint: Fixpoint, launch: Launch
) -> Bytes:
    """Launch until the flag reads 0. A result that still changes is no result."""
    read = [b.name for b in program.buffers if not b.is_scratch and b.access != "write"]
    written = [b.name for b in program.buffers if b.is_written]
    inputs = dict(zip(read, given, strict=True))
    for _ in range(fixpoint.most):
        outputs = dict(
            zip(written, launch(program, list(inputs.values()), args, grid), strict=True)
        )
        if not any(outputs[fixpoint.flag]):
            return list(outputs.values())
        inputs |= {into: outputs[out] for out, into in fixpoint.carry.items()}
    raise CheckError(f"{program.name}: still changing after {fixpoint.most} launches")


def compare(program: n.Program, got: Bytes, wanted: Bytes, tolerance: int, label: str) -> None:
    """Byte for byte; floats within the tolerance, any NaN equal to any NaN."""
    written = [b for b in program.buffers if b.is_written]
    if len(got) != len(wanted):
        raise CheckError(f"{label}: {len(wanted)} outputs expected, got {len(got)}")
    for buffer, have, want in zip(written, got, wanted, strict=True):
        if len(have) != len(want):
            raise CheckError(
                f"{label}: {buffer.name} has {len(have)} bytes, {len(want)} were expected"
            )
        if have != want:
            compare_elements(buffer, have, want, tolerance, label)


def compare_elements(
    buffer: n.Buffer, have: bytes, want: bytes, tolerance: int, label: str
) -> None:
    got, wanted = (np.frombuffer(data, buffer.dtype.np) for data in (have, want))
    wrong = ulps(got, wanted, buffer.dtype) > tolerance
    if wrong.any():
        i = int(np.argmax(wrong))
        raise CheckError(
            f"{label}: {buffer.name}[{i}] is {got[i]!r}, expected {wanted[i]!r}; {wrong.sum()} of "
            f"{wrong.size} elements differ by more than {tolerance} ULPs"
        )


def ulps(a: Array, b: Array, dtype: DType) -> Array:
    """The distance in representable numbers, 0 between NaNs; of integers, 0 or a lot."""
    bits = [x.view(f"i{x.itemsize}").astype(object) for x in (a, b)]
    if not dtype.is_float:
        return np.where(a == b, 0, 1 << 62)
    lowest = -(1 << (8 * a.itemsize - 1))
    steps = [np.where(x < 0, lowest - x - 1, x) for x in bits]  # -0 stands just below +0
    both = (a != a) & (b != b)
    return np.where(both, 0, np.abs(steps[0] - steps[1]))


# -- launches on the evaluator ---------------------------------------------------------------------


def evaluate_bytes(program: n.Program, inputs: Bytes, args: Args, grid: Grid) -> list[bytes]:
    """What dispatch promises, on the evaluator: bytes in, bytes out. An access out of range, an
    index overflow and a race raise an error, so no registered program can rely on them."""
    arrays = arrays_of(program, inputs, args)
    evaluate(program, arrays, args, grid, races=True)
    return [arrays[b.name].tobytes() for b in program.buffers if b.is_written]


def arrays_of(program: n.Program, inputs: Bytes, args: Args) -> dict[str, Array]:
    """The buffers of a program as dispatch makes them: those it reads from bytes, those it writes
    full of zeros."""
    waiting, arrays = list(inputs), {}
    for b in program.buffers:
        if b.access == "write":
            if b.count is None:
                raise BadInputs(f"{program.name}: {b.name} is only written and has no count")
            arrays[b.name] = np.zeros(bind(b.count, args), b.dtype.np)
        elif not b.is_scratch:
            arrays[b.name] = np.frombuffer(waiting.pop(0), b.dtype.np).copy()
    return arrays


def grid_of(entry: Entry) -> Grid:
    """The entry's own, or that which dispatch infers for its first case."""
    if entry.grid is not None:
        return entry.grid
    return inferred(entry.build(), entry.inputs[0] if entry.inputs else (), entry.args)


def inferred(program: n.Program, inputs: Bytes, args: Args) -> Grid:
    arrays = arrays_of(program, inputs, args)
    counts = {b: arrays[b.name].size for b in program.buffers if not b.is_scratch}
    found = infer_grid(program, counts)
    if found is None:
        raise BadInputs(
            f"{program.name}: the grid cannot be told from the program",
            hint="register it with grid=(x, y, z), or a function of its sizes",
        )
    return found  # type: ignore[return-value]  # counts are numbers, so it is


def count(program: n.Program) -> int:
    """Instructions, those of inner blocks included."""
    return sum(1 for _ in n.walk(program.body))


def number(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
