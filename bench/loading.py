"""Bench, loading: how quickly weights are laid out for the kernels, by compiled code and by NumPy,
and what a checksum of the same bytes would cost. `python bench/loading.py [model.gguf]`; a model
adds how long it takes to load.
"""

from __future__ import annotations

import hashlib
import sys
import time
import zlib
from collections.abc import Callable

import numpy as np

from tetrad.formats import gguf
from tetrad.models.weight_layout import interleaver, load_weights, room
from tetrad.quant.lanes import LANES, ROWS

ROWS_OF_RAW, COLUMNS = 8192, 2048


def best(run: Callable[[], object], times: int) -> float:
    """Seconds of processor time, of all threads: others on the machine do not count."""
    found = []
    for _ in range(times):
        start = time.process_time()
        run()
        found.append(time.process_time() - start)
    return min(found)


def compiled_seconds(name: str, raw: np.ndarray) -> float:
    lay_out, size = interleaver(name).jitted, raw.shape[1] * LANES[name].super_bytes
    groups, row = len(raw) // ROWS, raw[0].size
    memory, places = room(groups * size), np.arange(groups) * size
    starts = np.arange(0, raw.size, row).reshape(groups, ROWS)

    def run() -> None:
        nonlocal memory
        memory = lay_out(memory, raw.reshape(-1), starts, places, np.int64(raw.shape[1]))

    run()
    return best(run, 9)


def rates(name: str) -> str:
    lanes = LANES[name]
    shape = (ROWS_OF_RAW, COLUMNS // lanes.format.block, lanes.format.nbytes)
    raw = np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)
    few = raw[:1024].reshape(1024, -1)
    compiled, numpy = compiled_seconds(name, raw), best(lambda: lanes.interleave(few), 3)
    return f"{name:8} {raw.nbytes / compiled / 1e9:9.2f} {few.nbytes / numpy / 1e9:9.3f}"


def main(arguments: list[str]) -> None:
    print("format    compiled     NumPy   (GB of the file a second of processor time)")
    for name in LANES:
        print(rates(name))
    data = np.random.default_rng(0).integers(0, 256, 1 << 26, dtype=np.uint8)
    for what, run in (
        ("SHA-256", lambda: hashlib.sha256(data).digest()),
        ("CRC-32", lambda: zlib.crc32(data)),
    ):
        print(f"{what:8} {data.nbytes / best(run, 3) / 1e9:9.2f}")
    for path in arguments:
        with gguf.open_file(path) as file:
            load_weights(file, lambda name: None)
            start = time.perf_counter()
            load_weights(file, lambda name: None)
            print(f"{path}: weights laid out in {time.perf_counter() - start:.3f} s")


if __name__ == "__main__":
    main(sys.argv[1:])
