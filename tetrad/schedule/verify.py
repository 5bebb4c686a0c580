"""The schedule language, verify: the rules every schedule obeys when it is lowered or read.

Receives a schedule, returns nothing, or raises a `VerifyError` whose code names the broken rule:

    S001  the inputs of a schedule are input slots, each at its own position
    S002  an output slot is at its own position among the outputs
    S003  what a step reads, and every output, was written before: it is an input, a constant, or
          an earlier step wrote it
    S004  a launch has one slot for each storage buffer of its kernel, and a formula for each
          argument
    S005  a buffer has the element type of its slot; one that is quantised or complex is read as
          whole numbers of another type
    S006  a launch writes the slots of the buffers its kernel writes, and no constant
    S007  an update is a written slot, whose other content stays: what a write-only buffer fills in
          part may be empty before; a slot read in part is one of the launch
    S008  a result in place is written, and takes over a slot of the same launch that it only reads
    S009  the slots of a step that runs schedules match their inputs and outputs in number, element
          type and bytes
    S010  sizes, grids, lengths and costs are not negative
    S011  every Dim stands in the type of an input of the outermost schedule, with one bound
    S012  a constant slot has an array of its bytes, and no other slot has one
    S013  a host call has a number or memory for each letter of its form, not too many of them;
          what it splits is one of its numbers; every system starts inside its slots, and no
          constant is written
"""

from __future__ import annotations

from collections.abc import Sequence

from tetrad.core.dtypes import DType, bf16, bool_, i8, u8, u32
from tetrad.core.errors import VerifyError
from tetrad.core.sizes import Named, Size, dims_of, is_below
from tetrad.core.types import ArrayType
from tetrad.kernel.nodes import Buffer
from tetrad.schedule.lapack import MOST_ARGUMENTS, lengths
from tetrad.schedule.nodes import (
    Call,
    Callback,
    Control,
    HostCall,
    HostMemory,
    HostRoom,
    Launch,
    Loop,
    Schedule,
    Slot,
    Step,
    Switch,
    While,
    innermost_first,
)
from tetrad.schedule.text import slots_of


def verify(schedule: Schedule) -> None:
    """Check the schedule and every schedule that its steps run."""
    for part in innermost_first(schedule):
        verify_one(part)
    verify_dims(schedule)


def verify_one(schedule: Schedule) -> None:
    """Check one schedule, not those that its steps run."""
    for position, slot in enumerate(schedule.inputs):
        if slot.kind != "input" or slot.position != position:
            raise _error("S001", schedule, None, f"input {position} is {_shown(slot)}")
    for position, slot in enumerate(schedule.outputs):
        if slot.kind == "output" and schedule.outputs.index(slot) != slot.position:
            raise _error("S002", schedule, None, f"output {position} is {_shown(slot)}")
    for slot in slots_of(schedule):
        verify_slot(schedule, slot)
    written = set(schedule.inputs)
    for step in schedule.steps:
        if isinstance(step, Launch):
            verify_launch(schedule, step)
        elif isinstance(step, HostCall):
            verify_host_call(schedule, step)
        elif isinstance(step, Callback):
            verify_callback(schedule, step)
        else:
            verify_control(schedule, step)
        verify_order(schedule, step, written)
        written |= step.writes
    for slot in schedule.outputs:
        if not is_there(slot, written):
            raise _error("S003", schedule, None, f"no step writes the output {_shown(slot)}")


def _error(code: str, schedule: Schedule, step: Step | None, message: str) -> VerifyError:
    where = schedule.graph.name if step is None else f"{schedule.graph.name}: {step.name}"
    return VerifyError(code, f"{where}: {message}", source=None if step is None else step.source)


def _shown(slot: Slot) -> str:
    place = "" if slot.position < 0 else f" {slot.position}"
    return f"{slot.kind}{place} {slot.name}: {slot.type}"


def is_there(slot: Slot, written: set[Slot]) -> bool:
    """Has the slot its content? One of no bytes has."""
    return slot in written or slot.kind == "constant" or slot.type.nbytes == 0


# -- slots -----------------------------------------------------------------------------------------


def verify_slot(schedule: Schedule, slot: Slot) -> None:
    if any(is_below(n, 0) for n in slot.type.shape):
        raise _error("S010", schedule, None, f"{_shown(slot)} has a negative size")
    held = None if slot.literal is None else slot.literal.held.nbytes
    wanted = slot.type.nbytes if slot.kind == "constant" else None
    if held != wanted:
        raise _error("S012", schedule, None, f"{_shown(slot)} has an array of {held} bytes")


def verify_order(schedule: Schedule, step: Step, written: set[Slot]) -> None:
    for slot in step.reads - filled_in_part(step):
        if not is_there(slot, written):
            raise _error(
                "S003", schedule, step, f"reads {_shown(slot)}, which no step before wrote"
            )


def filled_in_part(step: Step) -> frozenset[Slot]:
    """Slots of which a launch writes some elements and reads none."""
    if not isinstance(step, Launch):
        return frozenset()
    return step.updates & {slot for buffer, slot in step.buffers() if buffer.access == "write"}


# -- launches --------------------------------------------------------------------------------------


def verify_launch(schedule: Schedule, launch: Launch) -> None:
    storage = [b for b in launch.program.buffers if not b.is_scratch]
    if len(storage) != len(launch.slots):
        message = f"has {len(launch.slots)} slots for {len(storage)} buffers"
        raise _error("S004", schedule, launch, message)
    if set(launch.args) != set(launch.program.args):
        given, wanted = (", ".join(sorted(args)) for args in (launch.args, launch.program.args))
        raise _error("S004", schedule, launch, f"is given {given or 'nothing'}, takes {wanted}")
    for buffer, slot in zip(storage, launch.slots, strict=True):
        verify_buffer(schedule, launch, buffer, slot)
    verify_marks(schedule, launch)
    if any(is_below(n, 0) for n in (launch.groups, launch.flops)):
        message = f"has {launch.groups} workgroups and {launch.flops} operations"
        raise _error("S010", schedule, launch, message)


def verify_buffer(schedule: Schedule, launch: Launch, buffer: Buffer, slot: Slot) -> None:
    if not is_element(buffer.dtype, slot.type):
        message = f"buffer {buffer.name} of {buffer.dtype} lies in {_shown(slot)}"
        raise _error("S005", schedule, launch, message)
    if buffer.is_written and (slot not in launch.writes or slot.kind == "constant"):
        message = f"buffer {buffer.name} is written, {_shown(slot)} is not"
        raise _error("S006", schedule, launch, message)


def is_element(dtype: DType, kind: ArrayType) -> bool:
    """May a kernel read arrays of this type as elements of the dtype? Bytes and halves also as
    words."""
    is_words = dtype is u32 and kind.dtype in (i8, u8, bf16)
    if dtype is kind.dtype or not (kind.dtype.is_quantized or kind.dtype.is_complex or is_words):
        return dtype is kind.dtype
    return not isinstance(kind.nbytes, int) or kind.nbytes % dtype.np.itemsize == 0


def verify_marks(schedule: Schedule, launch: Launch) -> None:
    written = {slot for buffer, slot in launch.buffers() if buffer.is_written}
    if launch.writes != written:
        names = ", ".join(sorted(slot.name for slot in launch.writes ^ written))
        raise _error("S006", schedule, launch, f"says it writes other slots than it does: {names}")
    if not (launch.updates <= written and launch.partly <= set(launch.slots)):
        raise _error("S007", schedule, launch, "updates or reads in part what it does not hold")
    for result, source in launch.inplace:
        if result not in written or source in written or source not in launch.slots:
            message = f"{_shown(result)} cannot take over {_shown(source)}"
            raise _error("S008", schedule, launch, message)


def verify_callback(schedule: Schedule, step: Callback) -> None:
    """It writes what is not read at the same time, and no constant."""
    for slot in step.outputs:
        if slot in step.inputs or slot.kind == "constant" or step.outputs.count(slot) > 1:
            raise _error("S006", schedule, step, f"cannot write {_shown(slot)}")


# -- host calls ------------------------------------------------------------------------------------

ACCESS = ("read", "write", "readwrite")


def verify_host_call(schedule: Schedule, call: HostCall) -> None:
    problem = form_problem(call)
    if problem is not None:
        raise _error("S013", schedule, call, problem)
    rooms = [part.nbytes for part in call.memory if isinstance(part, HostRoom)]
    if any(is_below(n, 0) for n in (call.systems, call.flops, *call.numbers, *rooms)):
        raise _error("S010", schedule, call, f"has {call.systems} systems, or a negative size")
    for part in call.operands:
        if not is_inside(part, call):
            raise _error("S013", schedule, call, f"may not {part.access} {_shown(part.slot)}")


def form_problem(call: HostCall) -> str | None:
    """What is wrong with the operands of a call, apart from where they lie."""
    integers, memory = sum(c in "ij" for c in call.form), call.form.count("m")
    capitals = lengths(call.form)
    if len(call.form) != integers + memory + capitals:
        return f"the form {call.form!r} has other letters than i, j, m and capitals"
    if (len(call.numbers), len(call.memory)) != (integers, memory):
        given = f"{len(call.numbers)} numbers and {len(call.memory)} memory"
        return f"the form {call.form!r} does not fit {given}"
    if len(call.form) + capitals > MOST_ARGUMENTS:
        return f"the form {call.form!r} has more than {MOST_ARGUMENTS} arguments, lengths included"
    if call.split is not None and not (0 <= call.split[0] < integers and call.split[1] > 0):
        return f"splits number {call.split[0]} of {integers} by {call.split[1]}"
    return None


def is_inside(part: HostMemory, call: HostCall) -> bool:
    """May the routine do so with this slot, and does each call start inside it?"""
    if part.access not in ACCESS or (part.access != "read" and part.slot.kind == "constant"):
        return False
    moves = (call.systems - 1) * part.per_system + (call.blocks - 1) * part.per_block
    room = part.slot.type.size - part.offset - moves
    is_idle = call.systems == 0 or call.blocks == 0
    return is_idle or not (is_below(room, 1) or is_below(part.offset, 0))


# -- steps that run schedules ----------------------------------------------------------------------


def verify_control(schedule: Schedule, step: Control) -> None:
    for inputs, outputs, body in signatures(schedule, step):
        for what, slots, wanted in (
            ("inputs", inputs, [s.type for s in body.inputs]),
            ("outputs", outputs, [s.type for s in body.outputs]),
        ):
            if len(slots) != len(wanted):
                message = f"gives {len(slots)} {what} to {body.graph.name}, which has {len(wanted)}"
                raise _error("S009", schedule, step, message)
            for given, kind in zip(slots, wanted, strict=True):
                if given.dtype is not kind.dtype or given.nbytes != kind.nbytes:
                    message = f"gives {given} to {body.graph.name} for {kind}"
                    raise _error("S009", schedule, step, message)
    if isinstance(step, Loop) and is_below(step.length, 0):
        raise _error("S010", schedule, step, f"runs {step.length} times")


Types = list[ArrayType]


def signatures(schedule: Schedule, step: Control) -> list[tuple[Types, Types, Schedule]]:
    """The types of inputs and outputs that a step gives to each schedule it runs."""
    inputs, outputs = [s.type for s in step.inputs], [s.type for s in step.outputs]
    match step:
        case Call():
            return [(inputs, outputs, step.body)]
        case Switch():
            return [(inputs, outputs, branch) for branch in step.branches]
        case Loop():
            first = step.consts + step.carries
            verify_carries(schedule, step, step.carries)
            xs, ys = map(rows_of, (inputs[first:], outputs[step.carries :]))
            return [([*inputs[:first], *xs], [*outputs[: step.carries], *ys], step.body)]
        case While():
            asked, fixed = step.condition_consts, step.condition_consts + step.body_consts
            verify_carries(schedule, step, len(outputs))
            flag = [ArrayType(bool_, ())]
            return [
                ([*inputs[:asked], *inputs[fixed:]], flag, step.condition),
                (inputs[asked:], outputs, step.body),
            ]


def verify_carries(schedule: Schedule, step: Loop | While, carries: int) -> None:
    if len(step.spares) != carries or (isinstance(step, Loop) and len(step.rows) != carries):
        raise _error("S009", schedule, step, f"has {len(step.spares)} spares, {carries} carries")


def rows_of(kinds: Sequence[ArrayType]) -> Types:
    return [kind.with_shape(kind.shape[1:]) for kind in kinds]


# -- Dims ------------------------------------------------------------------------------------------


def verify_dims(schedule: Schedule) -> None:
    known = {d for slot in schedule.inputs for n in slot.type.shape for d in dims_of(n)}
    if len({d.name for d in known}) != len(known):
        raise _error("S011", schedule, None, "a Dim has several bounds")
    for part in innermost_first(schedule):
        for dim in sorted(dims_in(part) - known, key=lambda d: (d.name, d.max)):
            message = f"no input has an axis with the Dim {dim.name} (max {dim.max})"
            raise _error("S011", part, None, message)


def dims_in(schedule: Schedule) -> set[Named]:
    """The Dims that formulas of a schedule mention."""
    sizes: list[Size] = [n for slot in slots_of(schedule) for n in slot.type.shape]
    for step in schedule.steps:
        if isinstance(step, Launch):
            sizes += [step.groups, step.flops, *step.args.values()]
            sizes += step.extents or ()
            # those of a user's kernel have names of its own, which arguments tell
            buffers = () if step.program.guarded else step.program.buffers
            sizes += [b.count for b in buffers if b.count is not None]
        elif isinstance(step, HostCall):
            sizes += [step.systems, step.flops, *step.numbers]
            sizes += [n for part in step.memory for n in sizes_of(part)]
        elif isinstance(step, Loop):
            sizes.append(step.length)
    return {dim for size in sizes for dim in dims_of(size)}


def sizes_of(part: HostMemory | HostRoom) -> tuple[Size, ...]:
    if isinstance(part, HostRoom):
        return (part.nbytes,)
    return part.offset, part.per_system, part.per_block
