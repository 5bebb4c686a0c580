"""A small classifier: parameters in a dict, compiled once, compared with NumPy, and explained."""

from __future__ import annotations

import numpy as np

import tetrad as td

Params = dict[str, np.ndarray]


def make_params(rng: np.random.Generator, inputs: int, hidden: int, classes: int) -> Params:
    def matrix(rows: int, columns: int) -> np.ndarray:
        return rng.standard_normal((rows, columns), dtype=np.float32) / np.float32(np.sqrt(rows))

    return {
        "w1": matrix(inputs, hidden), "b1": np.zeros(hidden, np.float32),
        "w2": matrix(hidden, classes), "b2": np.zeros(classes, np.float32),
    }  # fmt: skip


@td.jit
def classify(params: dict[str, td.Array], x: td.Array) -> td.Array:
    """Probabilities of the classes, one row for each row of x."""
    hidden = td.nn.gelu(x @ params["w1"] + params["b1"])
    return td.nn.softmax(hidden @ params["w2"] + params["b2"])


def classify_numpy(params: Params, x: np.ndarray) -> np.ndarray:
    """The same in float64."""
    p = {name: value.astype(np.float64) for name, value in params.items()}
    h = x.astype(np.float64) @ p["w1"] + p["b1"]
    h = 0.5 * h * (1 + np.tanh(np.sqrt(2 / np.pi) * (h + 0.044715 * h**3)))
    e = np.exp(h @ p["w2"] + p["b2"])
    return e / e.sum(axis=-1, keepdims=True)


def main() -> None:
    rng = np.random.default_rng(0)
    params, x = make_params(rng, 64, 128, 10), rng.standard_normal((32, 64), dtype=np.float32)
    got = np.asarray(classify(params, x))
    error = np.abs(got - classify_numpy(params, x)).max()
    assert error < 1e-5, error
    print(f"{got.shape[0]} rows, largest difference from float64: {error:.1e}")
    print(td.explain(classify)(params, x))


if __name__ == "__main__":
    main()
