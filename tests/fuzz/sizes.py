"""Functions called with many sizes of a Dim, in a child process whose memory is measured.

What must hold: the most memory that the process ever had is within a bound of what its largest call
alone took, results are those of one program for every size, and when the function goes its memory
goes too.

    python -m tests.fuzz.sizes SEED COUNT [PLANT]    the child: one line, "right" or what is not
"""

from __future__ import annotations

import gc
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

import tetrad as td
from tetrad.backends.cpu import executable as ready
from tetrad.backends.cpu import memory

MOST = 2 << 20  # elements of the largest input: 8 MB
BOUND = 64.0  # MB beyond the largest call alone
# MB that may stay when the function is gone: blocks for the next results, scratch of the workers
LEFT = 64.0
COUNT = 60

FUNCTIONS: dict[str, Callable[[Any], Any]] = {
    "sums": lambda x: td.cumulative_sum(td.cumulative_sum(x * 0.5) * x),
    "many results": lambda x: (x + 1.0, td.cumulative_sum(x), x * x, td.sum(x)),
    "a loop": lambda x: td.fori_loop(0, 2, lambda i, y: td.cumulative_sum(y) * 0.5, x),
    "sorted": lambda x: td.cumulative_sum(td.sort(x)),
    "halves": lambda x: td.concat(
        [td.cumulative_sum(x), td.astype(x, td.float16).astype(td.float32)]
    ),
}
ORDERS = ("up", "down", "any", "two in turn")


def sizes(order: str, count: int, rng: np.random.Generator) -> Iterator[int]:
    for i in range(count):
        steps = {"up": i + 1, "down": count - i, "two in turn": (i // 2 + 1) if i % 2 else count}
        yield int(rng.integers(1, MOST + 1)) if order == "any" else MOST * steps[order] // count


def check(seed: int, count: int = COUNT, plant: str = "") -> str | None:
    """None if all holds for the function and the sizes of this seed, else what does not."""
    command = [
        sys.executable,
        "-m",
        "tests.fuzz.sizes",
        str(seed),
        str(count),
        *([plant] if plant else []),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    if done.returncode == 0 and done.stdout.strip() == "right":
        return None
    return f"{' '.join(command[1:])}: {done.stdout.strip()} {done.stderr[-2000:]}"


def megabytes(line: str) -> float:
    """Of this process: VmRSS now, VmHWM at most so far."""
    with open("/proc/self/status") as file:
        return next(int(one.split()[1]) for one in file if one.startswith(line)) / 1024


def measured(seed: int, count: int) -> str:
    rng = np.random.default_rng(seed)
    name, order = str(rng.choice(sorted(FUNCTIONS))), ORDERS[rng.integers(len(ORDERS))]
    calls_at_once = int(rng.integers(1, 3))
    told = f"{name}, {count} sizes, {order}, {calls_at_once} calls at once"
    whole = rng.standard_normal(MOST, dtype=np.float32)
    f = td.jit(FUNCTIONS[name], dims=({0: td.Dim("n", max=MOST)},))
    small = [np.asarray(part).tobytes() for part in parts(f(whole[:1000]))]
    before = megabytes("VmRSS")
    with ThreadPoolExecutor(calls_at_once) as pool:
        list(pool.map(f, [whole] * calls_at_once))
        alone = megabytes("VmHWM")
        for n in sizes(order, count, rng):
            list(pool.map(f, [whole[:n]] * calls_at_once))
    if (most := megabytes("VmHWM")) > alone + BOUND:
        return f"{told}: {most:.0f} MB at most, the largest call alone has {alone:.0f}"
    if [np.asarray(part).tobytes() for part in parts(f(whole[:1000]))] != small or f.compiles != 1:
        return f"{told}: the first size has other results now, or {f.compiles} programs"
    del f
    if (left := megabytes("VmRSS")) > before + LEFT:
        return (
            f"{told}: {left:.0f} MB are left when the function is gone, {before:.0f} were "
            "there "
            "before"
        )
    return "right"


def parts(result: Any) -> tuple[Any, ...]:
    return result if isinstance(result, tuple) else (result,)


def each_size_its_arena(arenas: memory.Arenas, nbytes: int) -> memory.Storage:
    """A defect: an arena for every size, kept."""
    made = memory.Storage.allocate(nbytes)
    KEPT.append(made)
    return made


KEPT: list[memory.Storage] = []

if __name__ == "__main__":
    gc.disable()  # what goes, goes without being searched for
    if sys.argv[3:] == ["arenas"]:
        memory.Arenas.take = each_size_its_arena  # type: ignore[method-assign]
        ready.MOST_IDLE = 0  # none comes back to be used again
    elif sys.argv[3:] == ["results"]:
        memory.SPARE_BYTES = memory.KEEP_BYTES  # freed results of every size are kept
    print(measured(int(sys.argv[1]), int(sys.argv[2])))
