"""Runs PTX without a device: the text of a module, bytes and a grid in, bytes out.

It reads the text alone and shares nothing with what wrote it, so it shows what the text says.
All threads of a launch are rows of NumPy arrays; those that stand at the earliest instruction go
first, so threads that parted meet again. Barriers, shuffles and votes wait for their block or warp,
and it is an error if they wait for ever, at different instructions, or if one reads or writes
memory that is not its own, not aligned, or in no buffer. What a device does beyond the text (the
order of its memory, its speed) it does not show.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tests.backends.cuda.operations import Memory, compute
from tetrad.backends.cuda.parse import PtxInstruction, PtxModule, parse_ptx

Array = np.ndarray[Any, Any]
Grid = tuple[int, int, int]
WARP = 32
MAX_STEPS = 2_000_000
RUNNING, WAITING, DONE = 0, 1, 2


class SimulationError(AssertionError):
    """The text does something that a device would not survive, or not promise."""


class Machine:
    """One launch: the registers of all threads, and memory."""

    def __init__(self, module: PtxModule, grid: Grid, dynamic: int) -> None:
        self.module = module
        x, y, z = module.bounds
        self.block_threads, self.blocks = x * y * z, grid[0] * grid[1] * grid[2]
        self.threads = self.block_threads * self.blocks
        thread = np.arange(self.threads)
        self.block, own = thread // self.block_threads, thread % self.block_threads
        self.warp = self.block * -(-self.block_threads // WARP) + own // WARP
        self.lane = own % WARP
        self.special = {
            **dict(zip(("%tid.x", "%tid.y", "%tid.z"), split(own, (x, y, z)), strict=True)),
            **dict(zip(("%ctaid.x", "%ctaid.y", "%ctaid.z"), split(self.block, grid), strict=True)),
        }
        self.memory = Memory(module, self.blocks, self.threads, self.block, dynamic)
        self.registers: dict[str, Array] = {}
        self.at = np.zeros(self.threads, np.int64)
        self.state = np.zeros(self.threads, np.int8)
        self.params: dict[str, int] = {}

    # -- operands ----------------------------------------------------------------------------------

    def register(self, name: str) -> Array:
        if name not in self.registers:
            kind = self.module.type_of(name)
            assert kind is not None, name
            dtype = np.bool_ if kind == "pred" else f"u{int(kind[1:]) // 8}"
            poison = np.frombuffer(b"\xa5" * 8, dtype)[:1]
            self.registers[name] = np.repeat(
                poison != 0 if kind == "pred" else poison, self.threads
            )
        return self.registers[name]

    def read(self, operand: str, bits: int, who: Array) -> Array:
        """The operand as unsigned numbers of so many bits; 1: as truths."""
        if operand in self.special:
            return self.special[operand][who].astype(np.uint32)
        if operand in self.memory.symbols:
            return np.full(len(who), self.memory.symbols[operand], np.uint64)
        if operand.startswith("%"):
            held = self.register(operand)[who]
            return held if bits == 1 else held.astype(f"u{bits // 8}")
        return np.full(len(who), literal(operand, bits), np.bool_ if bits == 1 else f"u{bits // 8}")

    def write(self, name: str, value: Array, who: Array) -> None:
        if name != "_":
            held = self.register(name)
            held[who] = value if held.dtype == np.bool_ else value.astype(held.dtype)

    # -- steps -------------------------------------------------------------------------------------

    def run(self) -> None:
        for _ in range(MAX_STEPS):
            running = np.flatnonzero(self.state == RUNNING)
            if len(running):
                first = self.at[running].min()
                self.step(self.module.body[first], running[self.at[running] == first])
            elif not self.release():
                break
        else:
            raise SimulationError("the kernel does not end")
        if (self.state != DONE).any():
            raise SimulationError("threads wait for ever, at line " + self.where())

    def where(self) -> str:
        stuck = self.at[self.state == WAITING]
        return ", ".join(str(self.module.body[i].line) for i in sorted(set(stuck.tolist())))

    def step(self, instr: PtxInstruction, who: Array) -> None:
        self.at[who] += 1
        if instr.guard:
            taken = self.register(instr.guard.removeprefix("!"))[who]
            who = who[~taken if instr.guard.startswith("!") else taken]
        name = instr.name[0]
        if not len(who):
            return
        if name == "ret":
            self.state[who] = DONE
        elif name == "bra":
            self.at[who] = self.module.labels[instr.operands[0]]
        elif name in ("bar", "shfl", "vote"):
            self.state[who] = WAITING
            self.at[who] -= 1
        else:
            compute(self, instr, who)

    # -- waiting -----------------------------------------------------------------------------------

    def release(self) -> bool:
        """Let those go on for whom nobody is missing; False if there are none."""
        waiting = np.flatnonzero(self.state == WAITING)
        is_released = False
        for group in self.groups(waiting):
            instr = self.module.body[int(self.at[group[0]])]
            if (self.at[group] != self.at[group[0]]).any():
                continue
            MEETINGS[instr.name[0]](self, instr, group)
            self.at[group] += 1
            self.state[group] = RUNNING
            is_released = True
        return is_released

    def groups(self, waiting: Array) -> list[Array]:
        """The threads that wait in each block at a barrier, or in each warp for an exchange, if
        they are all that have not left."""
        found = []
        for numbers, names in ((self.block, ("bar",)), (self.warp, ("shfl", "vote"))):
            mine = np.array([self.module.body[i].name[0] in names for i in self.at[waiting]], bool)
            for number in np.unique(numbers[waiting[mine]]):
                all_there = np.flatnonzero((numbers == number) & (self.state != DONE))
                here = waiting[mine & (numbers[waiting] == number)]
                if len(here) == len(all_there):
                    found.append(here)
        return found


def meet_barrier(machine: Machine, instr: PtxInstruction, who: Array) -> None:
    if "red" in instr.name:
        given = machine.read(instr.operands[2], 1, who)
        found = given.any() if "or" in instr.name else given.all()
        machine.write(instr.operands[0], np.full(len(who), found), who)


def meet_vote(machine: Machine, instr: PtxInstruction, who: Array) -> None:
    check_members(machine, instr.operands[2], who)
    given = machine.read(instr.operands[1], 1, who)
    found = given.any() if "any" in instr.name else given.all()
    machine.write(instr.operands[0], np.full(len(who), found), who)


def meet_shuffle(machine: Machine, instr: PtxInstruction, who: Array) -> None:
    """Only shfl.sync.idx over a whole warp: lane j of the source for thread i."""
    goal, source, lane, last, members = instr.operands
    check_members(machine, members, who)
    assert "idx" in instr.name and int(last) == WARP - 1
    values, wanted = machine.read(source, 32, who), machine.read(lane, 32, who)
    place = {int(machine.lane[t]): i for i, t in enumerate(who)}
    missing = [int(j) for j in wanted if int(j) not in place]
    if missing and not machine.params.get("is trapped"):
        left = machine.state == DONE
        if not left[machine.warp == machine.warp[who[0]]].any():
            raise SimulationError(f"line {instr.line}: a shuffle from lane {missing[0]}")
    machine.write(goal, values[[place.get(int(j), 0) for j in wanted]], who)


def check_members(machine: Machine, members: str, who: Array) -> None:
    """Every thread that takes part is named, and nobody else that has not left."""
    mask = int(machine.read(members, 32, who[:1])[0])
    here = {int(lane) for lane in machine.lane[who]}
    if any(not mask >> lane & 1 for lane in here):
        raise SimulationError(f"members {mask:#x} do not name all of {sorted(here)}")


MEETINGS = {"bar": meet_barrier, "vote": meet_vote, "shfl": meet_shuffle}


def split(number: Array, sizes: Sequence[int]) -> tuple[Array, Array, Array]:
    x, y, _ = sizes
    return number % x, number // x % y, number // (x * y)


def literal(text: str, bits: int) -> int:
    if text[:2] in ("0f", "0F", "0d", "0D"):
        return int(text[2:], 16)
    return int(text, 0) & (1 << bits) - 1


def simulate(
    text: str,
    buffers: Mapping[str, Array],
    numbers: Mapping[str, int],
    grid: Grid,
    dynamic: int = 0,
) -> dict[str, Array]:
    """Launch the entry: arrays for its pointers and values for its other parameters, by name; the
    arrays afterwards."""
    module = parse_ptx(text)
    machine = Machine(module, grid, dynamic)
    memory = {name: machine.memory.allocate(array) for name, array in buffers.items()}
    machine.params = {**{name: place for name, place in memory.items()}, **numbers}
    if set(machine.params) != set(module.params):
        raise SimulationError(f"parameters {list(module.params)}, given {list(machine.params)}")
    with np.errstate(all="ignore"):
        machine.run()
    return {
        name: machine.memory.content(memory[name], array.nbytes).view(array.dtype)
        for name, array in buffers.items()
    }
