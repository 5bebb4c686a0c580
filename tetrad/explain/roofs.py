"""Explain, roofs: what this machine can do at best, measured with kernels made the way all others
are.

Receives nothing but the machine; returns bytes a nanosecond at several working sets (first cache to
memory) and f32 operations a nanosecond, for one thread and for all. Takes a fraction of a second,
once per process.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import numpy as np

from tetrad.backends.cpu.compile import KERNELS
from tetrad.backends.cpu.isa import current_target
from tetrad.backends.cpu.pool import run
from tetrad.backends.cpu.table import KernelEntry, Table, Word
from tetrad.core.dtypes import f32, u32
from tetrad.core.limits import available_threads
from tetrad.core.machine import LANES, Machine
from tetrad.core.record import record
from tetrad.kernel.build import KernelBuilder
from tetrad.kernel.nodes import Program

STRETCH = 4096  # elements one workgroup reads
READERS = 4  # vectors in flight per trip
# bytes; the last is more than a core's share of any cache
WORKING_SETS = (64 << 10, 1 << 20, 8 << 20, 64 << 20)
TRIPS = 4096  # of the arithmetic loop, per workgroup
SAMPLES = 3
SHORTEST_NS = 200_000  # a sample lasts at least this long, so that starting workers does not count


@record
class Roofs:
    """Best rates for a number of threads: bytes a nanosecond (= GB/s) by working set, f32
    operations a nanosecond."""

    threads: int
    bandwidth: dict[int, float]
    flops: float

    @property
    def memory(self) -> float:
        return self.bandwidth[max(self.bandwidth)]

    @property
    def cache(self) -> float:
        return max(self.bandwidth.values())

    def bandwidth_for(self, nbytes: int) -> float:
        """The roof over a kernel that touches so many bytes: what was measured at the largest
        working set within it."""
        inside = [size for size in self.bandwidth if size <= nbytes]
        return self.bandwidth[max(inside, default=min(self.bandwidth))]


@cache
def measure_roofs(threads: int | None = None) -> Roofs:
    """The roofs for so many threads; None: all this process may use."""
    count = available_threads() if threads is None else threads
    addresses = KERNELS.load([reading(), arithmetic(current_target().machine)], current_target())
    memory = np.ones(max(WORKING_SETS) // 4, np.uint32)
    bandwidth = {
        size: read_rate(addresses[reading()], memory, size, count) for size in WORKING_SETS
    }
    return Roofs(
        count, bandwidth, flop_rate(addresses[arithmetic(current_target().machine)], count)
    )


@cache
def reading() -> Program:
    """y[group] = xor of a stretch of x: nothing but loads."""
    k = KernelBuilder("roof_read", LANES)
    x, y = k.buffer("x", u32), k.buffer("y", u32, "write")
    sums = [k.local(0, u32) for _ in range(READERS)]
    first = k.group_id() * STRETCH
    with k.loop(STRETCH // (LANES * READERS), always=True) as trip:
        for v, total in enumerate(sums):
            total.set(
                total.get() ^ k.load(x, first + trip * (LANES * READERS) + v * LANES + k.lane())
            )
    every = sums[0].get() ^ sums[1].get() ^ sums[2].get() ^ sums[3].get()
    k.store(y, k.group_id() * LANES + k.lane(), every)
    return k.finish()


@cache
def arithmetic(machine: Machine) -> Program:
    """y[group] = long chains of fma, as many side by side as keep every unit busy and still fit the
    registers."""
    k = KernelBuilder("roof_fma", LANES)
    x, y = k.buffer("x", f32), k.buffer("y", f32, "write")
    sums = [k.local(float(i), f32) for i in range(chains(machine))]
    a, b = k.load(x, k.lane()), k.load(x, LANES + k.lane())
    with k.loop(TRIPS, always=True):
        for total in sums:
            total.set(k.fma(total.get(), a, b))
    every = sums[0].get()
    for total in sums[1:]:
        every = every + total.get()
    k.store(y, k.group_id() * LANES + k.lane(), every)
    return k.finish()


def chains(machine: Machine) -> int:
    """Two units with a latency of four or five cycles want ten registers of accumulators."""
    registers = LANES * 32 // machine.vector_bits
    return max(2, 10 // registers)


def read_rate(address: int, memory: np.ndarray, size: int, threads: int) -> float:
    groups = size // 4 // STRETCH
    repeats = 1
    results = np.zeros(groups * LANES, np.uint32)
    words = pointers(memory, results, groups, memory.size, results.size)

    def table() -> Table:
        # No barriers in between: they would weigh more than the reading of a small working set.
        entry = KernelEntry(address, words, groups, name="read", barrier=False)
        return Table([entry] * repeats, heavy=True)

    while best_ns(table, threads, 1) < SHORTEST_NS and repeats < 1024:
        repeats *= 2
    return repeats * size / best_ns(table, threads, SAMPLES)


def flop_rate(address: int, threads: int) -> float:
    groups = 4 * threads
    operands = np.repeat(np.array([0.5, 1.0], np.float32), LANES)
    results = np.zeros(groups * LANES, np.float32)
    words = pointers(operands, results, groups, operands.size, results.size)
    spent = best_ns(
        lambda: Table([KernelEntry(address, words, groups, name="fma")], heavy=True),
        threads,
        SAMPLES,
    )
    return 2 * LANES * chains(current_target().machine) * TRIPS * groups / spent


def pointers(x: np.ndarray, y: np.ndarray, groups: int, *counts: int) -> tuple[Word, ...]:
    """The argument words of a kernel of two buffers (codegen.module says what they are)."""
    numbers = (x.ctypes.data, y.ctypes.data, groups, 1, *counts, 0)
    return tuple(Word(-1, n) for n in numbers)


def best_ns(table: Callable[[], Table], threads: int, samples: int) -> float:
    made = table()
    outcomes = (run(made, [], threads, profile=True, apart=False) for _ in range(samples))
    return min(float(sum(outcome.entry_ns)) for outcome in outcomes if outcome is not None)
