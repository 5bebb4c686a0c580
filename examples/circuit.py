"""A differentiable circuit: Kirchhoff's laws as a linear solve, time as a scan, resistances by
gradient descent."""

from __future__ import annotations

from typing import Any

import numpy as np

import tetrad as td

NODES, STEPS, DT = 6, 40, 0.25


def static() -> None:
    """Voltages of three nodes from the currents into them, and how their sum depends on every
    conductance."""
    a, b = np.array([[2.0, 1, 0], [1, 3, 1], [0, 1, 2]]), np.array([1.0, 2, 3])
    total, (da, db) = td.value_and_grad(lambda a, b: td.sum(td.linalg.solve(a, b)), argnums=(0, 1))(
        a, b
    )
    np.testing.assert_allclose(total, 2, rtol=1e-12)
    np.testing.assert_allclose(da, [[-0.25, 0, -0.75], [0, 0, 0], [-0.25, 0, -0.75]], atol=1e-12)
    np.testing.assert_allclose(db, [0.5, 0, 0.5], atol=1e-12)
    print(
        f"three nodes: sum of voltages {float(total):.2f}, by the currents "
        f"{np.asarray(db).round(2)}"
    )


# -- in time ---------------------------------------------------------------------------------------


def chain_matrix(n: int, dt: float) -> np.ndarray:
    """Backward Euler for a chain of n equal capacitors, joined by equal resistors and leaking at
    both ends."""
    return (1 + 2 * dt) * np.eye(n) - dt * (np.eye(n, k=1) + np.eye(n, k=-1))


def final(a: td.Array, c: td.Array, xs: td.Array) -> td.Array:
    """Voltages after the last step: each solves (I + dt G) next = now + what flows in."""
    return td.scan(lambda c, x: (td.linalg.solve(a, c + x), None), c, xs)[0]


def discharging() -> None:
    """Four nodes, one of them charged: where the charge is after five steps, and how much of each
    stays after three."""
    a, nothing = chain_matrix(4, 0.05), np.zeros((5, 4))
    after = final(a, np.eye(4)[1], nothing)
    want = [0.145277406469901, 0.660351038757152, 0.147364583538478, 0.019809376942064]
    np.testing.assert_allclose(after, want, atol=1e-12)
    kept = td.grad(lambda c: td.sum(final(a, c, nothing[:3])))(np.eye(4)[1])
    want = [0.874778933419886, 0.988117228910112, 0.988117228910112, 0.874778933419886]
    np.testing.assert_allclose(kept, want, atol=1e-12)
    print(f"four nodes discharging: {np.asarray(after).round(4)}")


def driven() -> None:
    """One pulse into the first of three nodes; then the sum of the final voltages by the start and
    by every input."""
    pulse = np.zeros((4, 3))
    pulse[0, 0] = 1
    after = final(chain_matrix(3, 0.1), np.zeros(3), pulse)
    np.testing.assert_allclose(
        after, [0.517426643152104, 0.172361678867289, 0.035173556732351], atol=1e-12
    )

    xs, c = 0.1 * (np.arange(9.0).reshape(3, 3) - 4), np.array([0.5, 0, -0.5])
    gradient = td.value_and_grad(
        lambda c, xs: td.sum(final(chain_matrix(3, 0.1), c, xs)), argnums=(0, 1)
    )
    total, (dc, dxs) = td.jit(gradient)(c, xs)
    np.testing.assert_allclose(total, 0.09739851527335, atol=1e-12)
    np.testing.assert_allclose(
        dc, [0.78022189874019, 0.931795893392492, 0.78022189874019], atol=1e-12
    )
    np.testing.assert_allclose(dxs[0], dc, atol=1e-12)
    np.testing.assert_allclose(
        dxs[2], [0.915492957746479, 0.985915492957746, 0.915492957746479], atol=1e-12
    )
    print(f"three nodes in time: after a pulse {np.asarray(after).round(4)}")


# -- resistances from measurements -----------------------------------------------------------------


def ladder(resistances: td.Array) -> td.Array:
    """The matrix I + dt G of a ladder of capacitors: resistor i joins nodes i and i + 1, the last
    goes to ground."""
    steps = td.asarray(np.eye(NODES) - np.eye(NODES, k=1))  # row i: voltage across resistor i
    return np.eye(NODES) + DT * steps.T @ (steps / resistances[:, None])


def transient(log_r: td.Array) -> td.Array:
    """The voltage of every node over time, while a source feeds the first one."""
    matrix, source = ladder(td.exp(log_r)), DT * np.eye(NODES)[0]

    def step(c: td.Array, _: None) -> tuple[td.Array, td.Array]:
        c = td.linalg.solve(matrix, c + source)
        return c, c

    return td.scan(step, np.zeros(NODES), length=STEPS)[1]


def loss(log_r: td.Array, seen: td.Array) -> td.Array:
    return td.mean(td.square((transient(log_r) - seen) / td.max(seen, axis=0)))


optimiser = td.optim.adam(td.optim.cosine_decay_schedule(0.1, 400))


@td.jit(donate_argnums=(0, 1))
def train(log_r: td.Array, state: Any, seen: td.Array) -> tuple[td.Array, Any, td.Array]:
    value, gradient = td.value_and_grad(loss)(log_r, seen)
    updates, state = optimiser.update(gradient, state, log_r)
    return td.optim.apply_updates(log_r, updates), state, value


def fit() -> None:
    true = np.array([0.5, 2.0, 1.0, 0.25, 1.5, 0.7])
    seen = np.asarray(td.jit(transient)(np.log(true)))
    log_r = td.zeros(NODES, dtype=td.float64)  # every resistance is 1 at first
    state = optimiser.init(log_r)
    for _ in range(400):
        log_r, state, value = train(log_r, state, seen)
    found = np.exp(np.asarray(log_r))
    print(f"ladder: loss {float(value):.1e}, resistances {found.round(3)}, true {true}")
    np.testing.assert_allclose(found, true, rtol=0.01)


def main() -> None:
    static()
    discharging()
    driven()
    fit()


if __name__ == "__main__":
    main()
