"""One compiled program for every batch size: an axis marked with a Dim."""

from __future__ import annotations

import numpy as np

import tetrad as td

batch = td.Dim("batch", max=1024)


@td.jit(dims=({0: batch}, None))
def normalise(x: td.Array, weight: td.Array) -> td.Array:
    return td.nn.rms_norm(x, weight)


def main() -> None:
    rng = np.random.default_rng(0)
    weight = rng.standard_normal(300, dtype=np.float32)
    rows = rng.standard_normal((1000, 300), dtype=np.float32)
    whole = np.asarray(normalise(rows, weight))
    for count in (1, 7, 64, 999):
        part = np.asarray(normalise(rows[:count], weight))
        # the same bits, whatever else is in the batch
        assert part.tobytes() == whole[:count].tobytes()
    print(f"five batch sizes, {normalise.compiles} compilation: {normalise.signatures[0]}")
    try:
        normalise(np.ones((2000, 300), np.float32), weight)
    except td.errors.ShapeError as error:
        print(f"beyond its bound: {error.message}")


if __name__ == "__main__":
    main()
