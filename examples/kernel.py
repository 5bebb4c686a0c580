"""A kernel of your own: written with the builder, checked, evaluated on NumPy, and run as machine
code."""

from __future__ import annotations

import numpy as np

import tetrad as td

LANES = 16


def row_sums(rows: int, columns: int) -> td.kernel.Program:
    """y[r] = the sum of row r: one workgroup a row, every lane adds every 16th element, a tree
    joins the lanes."""
    k = td.kernel.build("row_sums", LANES)
    x, y = k.buffer("x", td.float32), k.buffer("y", td.float32, "write", rows)
    row, total = k.group_id(), k.local(0.0, td.float32)
    with k.loop(columns, step=LANES) as start:
        column = start + k.lane()
        with k.when(column < columns, guard=True):
            total.set(total.get() + k.load(x, row * columns + column))
    k.store(y, row, k.reduce_lanes("add", total.get()))
    return k.finish()


def main() -> None:
    x = np.random.default_rng(0).standard_normal((5, 100), dtype=np.float32)
    program = row_sums(5, 100)
    td.kernel.verify(program)
    print(program)
    want = np.zeros(5, np.float32)
    td.kernel.evaluate(program, {"x": x.ravel(), "y": want}, {}, grid=(5, 1, 1))
    (got,) = td.dispatch(program, [x.tobytes()], grid=(5, 1, 1))
    assert got == want.tobytes()
    print("machine code and evaluator agree to the bit:", np.frombuffer(got, np.float32))


if __name__ == "__main__":
    main()
