"""Explain, bisect: where a wrong answer comes from. One call is evaluated after every station of
the compiler.

Receives a function and arguments; returns a `Bisection`. Every station is compared with the one
before it on the same inputs, kernel by kernel, so a fault shows where it is made and not where it
is noticed:

    trace     the traced graph on the evaluator, against the function run eagerly
    passes    the graph after each pass, against the graph before it: exact, unless a rule that
              fired has a licence
    lower     each kernel on the kernel evaluator, against its nodes on the graph's: within the
              ULPs that the ops state
    codegen   each kernel as machine code, against the kernel evaluator: to the bit, and nothing
              written beside it
    schedule  the whole program in its arena, with all threads, against the kernel evaluator: to
              the bit
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tetrad.backends.cpu.encode import running, scratch_layout
from tetrad.backends.cpu.encode_loops import NUMBER
from tetrad.backends.cpu.memory import Storage
from tetrad.backends.cpu.pool import run
from tetrad.backends.cpu.table import Entry, Table, Word
from tetrad.compiler import pipeline
from tetrad.core.sizes import bind
from tetrad.core.source import Source
from tetrad.explain.bounds import bounded_graph, bounded_nodes, exact
from tetrad.explain.call import PreparedCall, prepare
from tetrad.explain.compare import first_apart, told_apart
from tetrad.graph.build import call as call_op
from tetrad.graph.build import make_graph
from tetrad.graph.evaluate import Values, evaluate, evaluate_node
from tetrad.graph.group import Group
from tetrad.graph.nested import innermost_first, replace_graphs
from tetrad.graph.nodes import Graph, Node
from tetrad.passes.fused import lines_of
from tetrad.passes.rewrite import Fired, RuleLog
from tetrad.passes.step import Pass
from tetrad.schedule.evaluate import Memory, value_of
from tetrad.schedule.evaluate import evaluate as evaluate_schedule
from tetrad.schedule.nodes import Launch, Leaf, Schedule, Slot, Step
from tetrad.tracing.signature import check_function

Arguments = dict[Graph, list[np.ndarray]]  # what each graph is called with
FILL = 0xA5  # of memory that a kernel is about to write, as in the interpreter
FENCE = 4096  # bytes on both sides of it, where nobody may write


@dataclass(frozen=True, slots=True)
class Difference:
    """What a station got wrong: of which kernel, node or rule, from which line of the user's, and
    how."""

    what: str
    source: Source | None
    detail: str

    def __str__(self) -> str:
        place = (
            [f"  in {self.source.function}, {self.source.file} line {self.source.line}"]
            if self.source
            else []
        )
        return "\n".join([self.what, *place, f"  {self.detail}"])


@dataclass(frozen=True, slots=True)
class Checked:
    """One station: what was compared, and the first difference."""

    station: str
    what: str
    difference: Difference | None


@dataclass(frozen=True, slots=True)
class Bisection:
    """The stations that were looked at, in order; the last one differs, or none does."""

    name: str
    checked: tuple[Checked, ...]

    @property
    def difference(self) -> Difference | None:
        return self.checked[-1].difference

    @property
    def station(self) -> str | None:
        """The first station that differs: trace, passes, lower, codegen or schedule."""
        return None if self.difference is None else self.checked[-1].station

    @property
    def agrees(self) -> bool:
        return self.difference is None

    def __str__(self) -> str:
        lines = [f"bisect {self.name}"]
        lines += [
            f"  {c.station:9} {'agrees ' if c.difference is None else 'DIFFERS'}  {c.what}"
            for c in self.checked
        ]
        if self.difference is None:
            return "\n".join([*lines, "every station gives the same answer"])
        return "\n".join([*lines, "", f"first difference: {self.station}: {self.difference}"])

    __repr__ = __str__


def bisect(function: Callable[..., Any]) -> Callable[..., Bisection]:
    """Finds the first station of the compiler that gives another answer for this call.

    >>> import tetrad as td
    >>> bisect(lambda x: td.sum(x * 2))(td.ones(100)).agrees
    True
    """

    check_function("bisect", function)

    def bisected(*args: Any, **kwargs: Any) -> Bisection:
        call = prepare(function, args, kwargs)
        found: list[Checked] = []
        for checked in stations(call):
            found.append(checked)
            if checked.difference is not None:
                break
        return Bisection(call.jitted.signature.name, tuple(found))

    return bisected


def stations(call: PreparedCall) -> Iterator[Checked]:
    """Each station, checked when asked for. A function that calls compiled ones runs them compiled
    even when it is run eagerly, so there the eager answer is questioned last."""
    nested = any(node.op is call_op for node in call.graph.nodes())
    if not nested:
        yield check_trace(call, stated=False)
    yield check_passes(call)
    look = KernelComparison(call)
    yield look.lower()
    yield look.codegen()
    yield check_schedule(call, look)
    if nested:
        yield check_trace(call, stated=True)


# -- trace and passes ------------------------------------------------------------------------------


def check_trace(call: PreparedCall, stated: bool) -> Checked:
    """`stated`: the eager run contains compiled code, which may differ by the ULPs that ops
    state."""
    what = f"graph of {len(call.graph.nodes())} nodes against the function itself"
    found = first_apart(call.eager(), bounded_graph(call.graph, call.arrays, call.dims, stated))
    if found is None:
        return Checked("trace", what, None)
    output = call.graph.outputs[found[0]]
    name = f"result {found[0]} of {call.graph.name}, {lines_of(call.graph)[output]}"
    detail = (
        f"{found[1]}\n  hint: a function that reads other state may give another answer each time"
    )
    return Checked("trace", what, Difference(name, output.source, detail))


def check_passes(call: PreparedCall) -> Checked:
    steps = [step for step in pipeline.PIPELINE if isinstance(step, Pass)]
    graph, what = call.graph, f"after {', '.join(step.name for step in steps)}"
    for step in steps:
        after, fired = applied(step, graph)
        licensed = any(f.rule.licence for rules in fired.values() for f in rules)
        want = bounded_graph(graph, call.arrays, call.dims, stated=licensed)
        found = first_apart(evaluate(after, call.arrays, call.dims), want)
        if found is not None:
            return Checked("passes", what, blame(step, graph, fired, call, found[1]))
        graph = after
    return Checked("passes", what, None)


def applied(step: Pass, graph: Graph) -> tuple[Graph, dict[Graph, list[Fired]]]:
    """One pass on a graph and those inside it, and the rules that fired in each."""
    if step.is_whole:
        return step.run(graph, None), {}
    done: dict[Graph, Graph] = {}
    fired: dict[Graph, list[Fired]] = {}
    for part in innermost_first(graph):
        log = RuleLog()
        done[part] = step.run(replace_graphs(part, done), log)
        fired[part] = log.fired
    return done[graph], fired


def blame(
    step: Pass, graph: Graph, fired: Mapping[Graph, list[Fired]], call: PreparedCall, detail: str
) -> Difference:
    """The first rule whose two sides differ, or the pass when each rule is right by itself."""
    inputs: Arguments = {}
    collect_inputs(graph, call.arrays, call.dims, inputs)
    for part, rules in fired.items():
        for rule in rules if part in inputs else ():
            pair = make_graph("rule", part.inputs, [rule.before, rule.after])
            licensed = rule.rule.licence is not None
            (want, distance), (got, _) = bounded_graph(
                pair, inputs[part], call.dims, stated=licensed
            )
            told = told_apart(got, want, distance)
            if told is not None:
                return Difference(f"pass {step.name}, rule {rule}", rule.before.source, told)
    return Difference(f"pass {step.name} on graph {graph.name}", None, detail)


def collect_inputs(
    graph: Graph, arrays: Sequence[np.ndarray], dims: dict[str, int], found: Arguments
) -> None:
    """What each graph is called with, the first time."""
    if graph in found:
        return
    found[graph] = list(arrays)
    values: dict[Node, Values] = {
        node: (array,) for node, array in zip(graph.inputs, arrays, strict=True)
    }
    for node in graph.nodes():
        if node not in values:
            values[node] = evaluate_node(node, [values[i] for i in node.inputs], dims)
        if node.op is call_op:
            collect_inputs(node.param("graph"), [values[i][0] for i in node.inputs], dims, found)


# -- kernels, one by one ---------------------------------------------------------------------------


@dataclass(slots=True)
class KernelComparison:
    """One run of all kernels on the kernel evaluator; each is compared with its nodes and with its
    machine code."""

    call: PreparedCall
    owners: dict[Leaf, Schedule] = field(init=False)
    last: dict[tuple[Group, Slot], Leaf] = field(init=False)  # that writes to a slot for a group
    wrong_lowering: Difference | None = None
    wrong_code: Difference | None = None
    memory: Memory = field(default_factory=dict)  # of the outermost graph, after its last kernel
    results: list[np.ndarray] = field(init=False)

    def __post_init__(self) -> None:
        lowered = self.call.executable.schedule
        self.owners = dict(owned_launches(lowered))
        self.last = {
            (launch.group, s): launch
            for launch in self.owners
            if launch.group
            for s in launch.writes
        }
        self.results = evaluate_schedule(lowered, self.call.arrays, self.call.dims, self.watch)

    @property
    def kernels(self) -> int:
        return sum(isinstance(step, Launch) for step in self.owners)

    def lower(self) -> Checked:
        what = f"{self.kernels} kernels on the kernel evaluator against the nodes they compute"
        return Checked("lower", what, self.wrong_lowering)

    def codegen(self) -> Checked:
        what = f"{self.kernels} kernels as machine code against the kernel evaluator"
        return Checked("codegen", what, self.wrong_code)

    def watch(self, launch: Leaf, before: Memory, memory: Memory) -> None:
        lowered = self.owners[launch]
        if lowered is self.call.executable.schedule:
            self.memory = memory
        self.wrong_lowering = self.wrong_lowering or self.compare_nodes(
            launch, lowered, before, memory
        )
        if isinstance(launch, Launch):
            self.wrong_code = self.wrong_code or self.compare_code(launch, before, memory)

    def compare_nodes(
        self, launch: Leaf, lowered: Schedule, before: Memory, memory: Memory
    ) -> Difference | None:
        """Against the graph evaluator, given the same memory; only nodes that are complete after
        this launch."""
        dims, group = self.call.dims, launch.group
        if group is None:
            return self.compare_copy(launch, lowered, memory)
        places = {node: lowered.slots[node] for node in group.outputs if node in lowered.slots}
        written = [node for node, slot in places.items() if self.last.get((group, slot)) is launch]
        inside = set(group.members)
        known = {
            node: exact(
                shaped(
                    node, value_of(slot, before if is_changed(launch, slot) else memory, dims), dims
                )
            )
            for node, slot in lowered.slots.items()
            if node not in inside and (slot in memory or slot.literal is not None)
        }
        for node, (want, distance) in zip(
            written, bounded_nodes(written, known, dims), strict=True
        ):
            # a result may be written as what it is a reshape of
            made = shaped(node, value_of(lowered.slots[node], memory, dims), dims)
            detail = told_apart(made, want, distance)
            if detail is not None:
                line = lines_of(lowered.graph)[node]
                return Difference(
                    f"kernel {launch.name} ({group.kind}), {line}", node.source, detail
                )
        return None

    def compare_copy(self, launch: Leaf, lowered: Schedule, memory: Memory) -> Difference | None:
        """A launch without nodes of its own puts an output where the caller wants it."""
        dims = self.call.dims
        for slot, node in zip(lowered.outputs, lowered.graph.outputs, strict=True):
            if slot in launch.writes:
                want = value_of(lowered.slots[node], memory, dims)
                detail = told_apart(value_of(slot, memory, dims), want)
                if detail is not None:
                    return Difference(
                        f"copy {launch.name} of {lines_of(lowered.graph)[node]}",
                        node.source,
                        detail,
                    )
        return None

    def compare_code(self, launch: Launch, before: Memory, memory: Memory) -> Difference | None:
        """The same kernel as machine code, alone and with all threads, on copies of the same
        memory."""
        dims = self.call.dims
        for threads in (1, None):
            own = run_alone(self.call, launch, before, threads)
            for slot in launch.slots:
                detail = strayed(own[slot])
                if slot in launch.writes and detail is None:
                    got = own[slot].as_numpy(slot.type.dtype.np, value_of(slot, memory, dims).shape)
                    detail = told_apart(got, value_of(slot, memory, dims))
                if detail is not None:
                    how = "one thread" if threads == 1 else "all threads"
                    what = f"kernel {launch.name} with {how}, {slot.name}: {slot.type}"
                    return Difference(what, launch.source, detail)
        return None


def shaped(node: Node, array: np.ndarray, dims: Mapping[str, int]) -> np.ndarray:
    """What a slot holds as a node sees it: a reshape of something in memory is the same memory."""
    return array.reshape([bind(n, dims) for n in node.type.storage_shape])


def is_changed(launch: Leaf, slot: Slot) -> bool:
    """Does a launch change a part of what a slot held?"""
    return slot in launch.updates and slot in launch.writes


def owned_launches(lowered: Schedule) -> Iterator[tuple[Leaf, Schedule]]:
    for step in lowered.steps:
        if isinstance(step, Leaf):
            yield step, lowered
        else:
            yield from (pair for body in step.bodies for pair in owned_launches(body))


@dataclass(frozen=True, slots=True)
class Fixed:
    """Slots at addresses of their own."""

    storages: Mapping[Slot, Storage]

    def word(self, slot: Slot) -> Word:
        return Word(NUMBER, self.storages[slot].ptr)


def run_alone(
    call: PreparedCall, launch: Launch, before: Memory, threads: int | None
) -> dict[Slot, Storage]:
    """Machine code of one launch on copies: what it reads or changes as it was, what is new filled
    with a pattern."""
    own: dict[Slot, Storage] = {}
    for slot in launch.slots:
        array = value_of(slot, before, call.dims)
        is_new = slot in launch.writes and slot not in launch.updates
        own[slot] = fenced(np.full(array.nbytes, FILL, np.uint8) if is_new else array)
    scratch = scratch_layout(launch.program, call.dims)
    entry = call.executable.encoder.kernel_entry(launch, call.dims, Fixed(own), scratch, tag=0)
    if entry is not None:
        run(Table([entry], scratch[-1], heavy=True), [], threads)
    return own


def fenced(array: np.ndarray) -> Storage:
    """A copy of an array's bytes inside a larger block, whose other bytes are the fences."""
    block = Storage.allocate(array.nbytes + 2 * FENCE)
    raw = bytes_of(block)
    raw[:] = FILL
    raw[FENCE : FENCE + array.nbytes] = np.frombuffer(array.tobytes(), np.uint8)
    return Storage(block.ptr + FENCE, array.nbytes, block)


def bytes_of(storage: Storage) -> np.ndarray:
    return storage.as_numpy(np.dtype(np.uint8), (storage.nbytes,))


def strayed(inner: Storage) -> str | None:
    """Where the fences around a copy were written to, if they were."""
    raw = bytes_of(inner.owner)
    outside = np.concatenate([raw[:FENCE], raw[FENCE + inner.nbytes : inner.nbytes + 2 * FENCE]])
    found = np.flatnonzero(outside != FILL)
    if not found.size:
        return None
    at = int(found[0])
    where = f"{FENCE - at} bytes before it" if at < FENCE else f"{at - FENCE} bytes after its end"
    return f"{found.size} bytes outside it were written to, the first {where}"


# -- the whole program -----------------------------------------------------------------------------


def check_schedule(call: PreparedCall, look: KernelComparison) -> Checked:
    what = "the whole program in its arena against the kernel evaluator"
    found = first_apart(results_of(call), look.results)
    if found is None:
        return Checked("schedule", what, None)
    place = misplaced(call, look)
    if place is not None:
        return Checked("schedule", what, place)
    output = call.graph.outputs[found[0]]
    return Checked(
        "schedule",
        what,
        Difference(f"result {found[0]} of {call.graph.name}", output.source, found[1]),
    )


def results_of(call: PreparedCall) -> list[np.ndarray]:
    made = call.bound.run(call.storages())
    shapes = [
        tuple(bind(n, call.dims) for n in slot.type.storage_shape)
        for slot in call.executable.schedule.outputs
    ]
    kinds = [slot.type.dtype.np for slot in call.executable.schedule.outputs]
    return [
        storage.as_numpy(kind, shape).copy()
        for storage, kind, shape in zip(made, kinds, shapes, strict=True)
    ]


def misplaced(call: PreparedCall, look: KernelComparison) -> Difference | None:
    """The first step of the schedule that leaves something else in memory, found by running ever
    longer parts of it."""
    entries, steps = call.bound.table.entries, list(running(call.executable.schedule, call.dims))
    last = {slot: step for step in steps for slot in step.writes}  # memory is as it leaves it
    for i, step in enumerate(steps):
        slots = step.slots if isinstance(step, Leaf) else (*step.inputs, *step.outputs)
        contents = run_part(call, entries[: i + 1], slots)
        for slot in (s for s in slots if last.get(s) is step):
            detail = told_apart(contents[slot], value_of(slot, look.memory, call.dims))
            if detail is not None:
                return Difference(
                    f"step {i}, {step_name(step)}, {slot.name}: {slot.type}", step.source, detail
                )
    return None


def step_name(step: Step) -> str:
    return f"kernel {step.name}" if isinstance(step, Launch) else step.name


def run_part(
    call: PreparedCall, entries: Sequence[Entry], slots: Sequence[Slot]
) -> dict[Slot, np.ndarray]:
    """Run these entries in a fresh arena; what the slots then hold."""
    lowered, dims = call.executable.schedule, call.dims
    outputs = [Storage.allocate(bind(slot.type.nbytes, dims)) for slot in lowered.outputs]
    held = [*call.storages(), *outputs, Storage.allocate(call.bound.encoded.arena_bytes)]
    table = Table(entries, call.bound.table.scratch_bytes, heavy=call.bound.table.heavy)
    run(table, [s.ptr for s in held])
    where = call.executable.encoder.places(lowered, dims)
    contents = {}
    for slot in slots:
        word = where.word(slot)
        if word.base != NUMBER:
            nbytes = bind(slot.type.nbytes, dims)
            part = Storage(held[word.base].ptr + word.value, nbytes, held[word.base])
            contents[slot] = part.as_numpy(
                slot.type.dtype.np, tuple(bind(n, dims) for n in slot.type.storage_shape)
            ).copy()
    return contents
