"""The native loop, its text: the LLVM module that executes schedules, put together from the files
beside this one.

Receives a target, returns module text for `backends.cpu.llvm`. Everything in it runs without the
GIL and without Python. All workers execute the same table in lockstep; worker 0 is the caller.

Two rules keep the lockstep. What steers control flow (trip count, loop condition, branch index) is
read by all, then a barrier, then decided, so no worker can overwrite it before all have seen it.
And trouble (a trap, Ctrl-C) ends loops only through `agreed`, which the last worker to reach a
barrier writes before it lets the others go.
"""

from __future__ import annotations

import re

from tetrad.backends.cpu.isa import family_of
from tetrad.backends.cpu.native import (
    ANYTIME,
    APART,
    CONTEXT,
    EXIT,
    FLAGS,
    HOOK,
    KINDS,
    MARK,
    POOL,
    PROCESSOR_WORDS,
)
from tetrad.backends.cpu.native.entries import ENTRIES, argument_loads, arguments
from tetrad.backends.cpu.native.loops import LOOPS
from tetrad.backends.cpu.native.runs import RUNS
from tetrad.backends.cpu.native.signals import SIGNALS
from tetrad.backends.cpu.native.waiting import FUTEX, NAP, WAITING
from tetrad.backends.llvm.target import Target
from tetrad.schedule.lapack import MOST_ARGUMENTS

# A worker's frame, on its stack: 64-bit words, the first is the address of the run context.
FRAME = {
    "WORKER": 1,
    "THREADS": 2,
    "AREA": 3,  # address of this worker's scratch
    "PATIENCE": 4,  # ticks it will spin at the next barrier
    "AGREED_AT": 5,  # address of `agreed`
    "TURN": 6,  # which word of `claims` the next shared entry counts in
    "TIMED": 7,  # nonzero: entries are timed apart
}

# Ticks of the time-stamp counter (2 to 4 a nanosecond).
IDLE_TICKS = 150_000  # a worker without work spins about 50 us before it sleeps
LONG_TICKS = 150_000  # at a barrier it starts with the same patience, ...
SHORT_TICKS = 1_000  # ... and loses it where waiting did not help: more threads than cores
PIECES = 8  # of a worker's range, where ranges are shared
YIELDS = 4  # times it offers its core to others before it sleeps
WATCH_TICKS = 15_000  # a worker that does not run for about 5 us waits for its processor
LOOK_TICKS = 600_000  # worker 0 looks for those after it did not for about 200 us
STAY_TICKS = 300_000  # a worker that was brought is sent away again after about 100 us, ...
MOST_STAY_TICKS = 30_000_000  # ... after twice as long each time it comes back ...
SOON_TICKS = 3_000_000  # ... within about 1 ms

INTRINSICS = """
declare i64 @llvm.umin.i64(i64, i64)
declare i64 @llvm.umax.i64(i64, i64)
declare i64 @llvm.smin.i64(i64, i64)
declare i64 @llvm.smax.i64(i64, i64)
declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)
"""


def native_text(target: Target, futex: bool | None = None) -> str:
    """The module; `futex` False takes the portable way to sleep, None takes what the target's
    system has."""
    family = family_of(target)
    if futex is None:
        futex = "linux" in target.triple
    numbers = {
        **CONTEXT, **POOL, **FRAME, **KINDS, **FLAGS, **family.system_calls,
        "HOOK": HOOK, "ANYTIME": ANYTIME, "APART": APART, "EXIT": EXIT, "YIELDS": YIELDS,
        "PIECES": PIECES,
        "PIECES_LESS": PIECES - 1,
        "WATCH_TICKS": WATCH_TICKS, "LOOK_TICKS": LOOK_TICKS, "PROCESSOR_WORDS": PROCESSOR_WORDS,
        "STAY_TICKS": STAY_TICKS, "MOST_STAY_TICKS": MOST_STAY_TICKS, "SOON_TICKS": SOON_TICKS,
        "MARK": MARK, "MOST_ARGUMENTS": MOST_ARGUMENTS,
        "ARGUMENT_LOADS": argument_loads(), "ARGUMENTS": arguments(),
        "IDLE_TICKS": IDLE_TICKS, "LONG_TICKS": LONG_TICKS, "SHORT_TICKS": SHORT_TICKS,
    }  # fmt: skip
    sleeping = FUTEX if futex else NAP
    body = (
        INTRINSICS + family.loop["DECLARE"] + WAITING + ENTRIES + LOOPS + sleeping + SIGNALS + RUNS
    )
    words = {**family.loop, **{name: str(number) for name, number in numbers.items()}}
    filled = re.sub(r"\$([A-Za-z_]\w*)", lambda place: words[place[1]], body)
    return f'target triple = "{target.triple}"\n{filled}'
