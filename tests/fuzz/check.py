"""The oracles of a program. Receives a `Program`, returns None when everything agrees, else a
`Failure`.

    1  every kernel obeys the rules of the kernel language
    2  machine code = kernel evaluator, to the bit, with one and with two threads, whatever memory
       held before; nothing is written outside of results
    3  a new size of a Dim compiles nothing
    4  the *witness*, the same program without calls and with every step as an output, gives the
       same bits on the evaluator: neither fusion nor calls nor rewriting changes a result
    5  in the witness every step is what its op says for the operands it had there: exactly, within
       the declared ulps, or for sums within n * eps * sum|x| (tests/oracle.py). Errors cannot add
       up: each step starts from given operands
    6  a program of exact steps only gives the same bits when evaluated with NumPy
    7  through jit, with strided arrays as arguments, the results are the same
    8  the same program differentiated or batched (tests/fuzz/transforms.py) obeys 1, 2 and 5, and
       its results have the bits they had before; a row of a batch has the bits of the program run
       on that row

4 and 5 together compare compiled programs with the meaning of the graph and need no tolerance for
conditioning.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

import tetrad as td
from tests.compiled import difference, evaluate_lowered, run, run_on_evaluator
from tests.fuzz.program import Dims, Program, Step, build, replay, value, values
from tests.fuzz.transforms import ROWS, Derived, arguments, derived, row
from tests.oracle import disagreement, is_exact
from tetrad.backends.cpu.compile import KERNELS
from tetrad.backends.cpu.executable import Executable
from tetrad.backends.cpu.isa import current_target
from tetrad.compiler.driver import compile_graph
from tetrad.core.errors import TetradError, UnsupportedError
from tetrad.core.op import REGISTRY
from tetrad.graph.build import make_graph
from tetrad.graph.evaluate import bind_value, evaluate
from tetrad.graph.nodes import Graph
from tetrad.graph.verify import verify as verify_graph
from tetrad.kernel.verify import verify as verify_kernel
from tetrad.schedule.nodes import programs_of

Arrays = list[np.ndarray]
RUNS = ((1, 0xFF), (2, 0x7F))  # threads, what memory held before


@dataclass(frozen=True)
class Failure:
    """`kind` names the oracle, so that shrinking keeps to one defect."""

    kind: str
    detail: str

    def __str__(self) -> str:
        return f"{self.kind}: {self.detail}"


def check(program: Program) -> Failure | None:
    return next(failures(program), None)


def failures(program: Program) -> Iterator[Failure]:
    try:
        graph = build(program)
        verify_graph(graph)
        compiled = compile_graph(graph)
        for kernel in programs_of(compiled.schedule):
            verify_kernel(kernel, current_target().machine.workgroup_bytes)
    except Exception as error:
        yield Failure(f"compiling raises {type(error).__name__}", str(error))
        return
    before = KERNELS.compiled
    for position, dims in enumerate(program.bindings):
        arrays = values(program, dims)
        yield from attempts("running", machine_failures, compiled, arrays, dims)
        if KERNELS.compiled != before:
            yield Failure("a new size compiles", f"{KERNELS.compiled - before} modules for {dims}")
        if position == 0:
            yield from attempts("the witness", witness_failures, program, compiled, arrays, dims)
            yield from attempts(
                "evaluating", eager_failures, program, graph, compiled, arrays, dims
            )
    if program.via_jit and not any(program.bindings):
        yield from attempts("jit", jit_failures, program, compiled)
    if program.transform:
        yield from attempts(program.transform, transform_failures, program, compiled)


def attempts(what: str, find: Callable[..., Iterator[Failure]], *args: Any) -> Iterator[Failure]:
    """The failures found; an exception on the way is one as well."""
    try:
        yield from find(*args)
    except AssertionError as error:
        yield Failure(f"{what} writes where it must not", str(error))
    except Exception as error:
        yield Failure(f"{what} raises {type(error).__name__}", str(error))


def machine_failures(
    compiled: Executable, arrays: Arrays, dims: dict[str, int]
) -> Iterator[Failure]:
    want = run_on_evaluator(compiled, arrays, dims)
    for threads, poison in RUNS:
        got = run(compiled, arrays, dims, threads, poison)
        yield from differences(
            "machine code and evaluator differ", got, want, f"{threads} threads, {dims}"
        )


def differences(
    kind: str, got: Sequence[np.ndarray], want: Sequence[np.ndarray], where: str
) -> Iterator[Failure]:
    for i, (a, b) in enumerate(zip(got, want, strict=True)):
        found = difference(a, b)
        if found:
            yield Failure(kind, f"output {i}, {where}: {found}")


def witness_failures(
    program: Program, compiled: Executable, arrays: Arrays, dims: dict[str, int]
) -> Iterator[Failure]:
    graph = build(program, calls=False, every_step=True)
    found = evaluate_lowered(graph, arrays, dims)
    count = len(program.outputs)
    want = run_on_evaluator(compiled, arrays, dims)
    yield from differences("what else is computed changes a result", want, found[:count], str(dims))
    steps = iter(found[count:])
    at_hand: Arrays = []
    inputs = iter(arrays)
    for i, item in enumerate(program.items):
        if isinstance(item, Step):
            at_hand.append(next(steps))
            yield from step_failures(i, item, at_hand, dims)
        else:
            at_hand.append(value(item, dims) if item.constant else next(inputs))


def step_failures(i: int, step: Step, at_hand: Arrays, dims: dict[str, int]) -> Iterator[Failure]:
    params = {name: bind_value(v, dims) for name, v in step.params.items()}
    found = disagreement(
        REGISTRY[step.op], [at_hand[o] for o in step.operands], params, [at_hand[i]]
    )
    if found:
        yield Failure(f"{step.op} and its reference differ", f"item {i}, {params}: {found}")


def eager_failures(
    program: Program, graph: Graph, compiled: Executable, arrays: Arrays, dims: dict[str, int]
) -> Iterator[Failure]:
    types = program.types
    steps = [item for item in program.items if isinstance(item, Step)]
    if not all(is_exact(REGISTRY[s.op], [types[o].dtype for o in s.operands]) for s in steps):
        return
    got = run_on_evaluator(compiled, arrays, dims)
    yield from differences(
        "compiled and evaluated graphs differ", got, evaluate(graph, arrays, dims), str(dims)
    )


def jit_failures(program: Program, compiled: Executable) -> Iterator[Failure]:
    leaves = [value(item, {}) for item in program.items if not isinstance(item, Step)]
    function = td.jit(replay(program))
    try:
        results = function(*(strided(a, i) for i, a in enumerate(leaves)))
    except TetradError as error:
        yield Failure("jit refuses the program", str(error))
        return
    got = [np.asarray(r) for r in results]
    yield from differences(
        "jit differs", got, run(compiled, values(program, {})), "strided arguments"
    )


def transform_failures(program: Program, compiled: Executable) -> Iterator[Failure]:
    dims = program.bindings[0]
    try:
        found = derived(program, build(program))
    except UnsupportedError:  # an op said why
        return
    if found is None:
        return
    verify_graph(found.graph)
    whole = compile_graph(found.graph)
    for kernel in programs_of(whole.schedule):
        verify_kernel(kernel, current_target().machine.workgroup_bytes)
    arrays = values(program, dims)
    given = arguments(program, found, arrays, dims)
    yield from machine_failures(whole, given, dims)
    got = run_on_evaluator(whole, given, dims)
    if program.transform == "vmap":
        yield from row_failures(found, compiled, arrays, got, dims)
    else:
        want = run_on_evaluator(compiled, arrays, dims)
        yield from differences(
            f"{program.transform} changes a value", got[: found.kept], want, str(dims)
        )
        yield from node_failures(program, given, dims)


def row_failures(
    found: Derived, compiled: Executable, arrays: Arrays, got: Arrays, dims: Dims
) -> Iterator[Failure]:
    for i in range(ROWS):
        mine = [row(a, i) if flag else a for a, flag in zip(arrays, found.inputs, strict=True)]
        rows = [a[i].copy() if flag else a for a, flag in zip(got, found.batched, strict=True)]
        yield from differences(
            "a row of a batch differs", rows, run_on_evaluator(compiled, mine, dims), f"row {i}"
        )


def node_failures(program: Program, given: Arrays, dims: Dims) -> Iterator[Failure]:
    """Every op of the derived graph is what its reference says for the operands it had."""
    found = derived(program, build(program, calls=False))
    assert found is not None
    nodes = [n for n in found.graph.nodes() if n.op.kind != "structural"]
    every = make_graph("every node", found.graph.inputs, nodes)
    at_hand = dict(zip(found.graph.inputs, given, strict=True))
    at_hand |= {n: n.param("value").array for n in found.graph.nodes() if n.op.name == "constant"}
    at_hand |= zip(nodes, evaluate_lowered(every, given, dims), strict=True)
    for node in nodes:
        params = {name: bind_value(v, dims) for name, v in node.params}
        if len(node.types) == 1 and all(i in at_hand for i in node.inputs):
            wrong = disagreement(
                node.op, [at_hand[i] for i in node.inputs], params, [at_hand[node]]
            )
            if wrong:
                yield Failure(
                    f"{node.op.name} and its reference differ in a derivative", f"{params}: {wrong}"
                )


def strided(array: np.ndarray, variant: int) -> np.ndarray:
    """The same values in memory that is not dense: every second element, turned around, odd offset,
    another order."""
    if array.ndim == 0 or variant % 5 == 4:
        raw = np.empty(array.nbytes + 1, np.uint8)[1:]
        raw[:] = np.frombuffer(array.tobytes(), np.uint8)
        return raw.view(array.dtype).reshape(array.shape)
    if variant % 5 == 0:
        wide = np.zeros((*array.shape[:-1], 2 * array.shape[-1]), array.dtype)
        wide[..., ::2] = array
        return wide[..., ::2]
    if variant % 5 == 1:
        return np.ascontiguousarray(array[::-1])[::-1]
    if variant % 5 == 2:
        return np.asfortranarray(array)
    return np.concatenate([array[:1], array])[1:] if array.shape[0] else array
