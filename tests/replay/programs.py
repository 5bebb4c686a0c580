"""Replay, programs: names and graphs that stand for all that the compiler is asked to do. The same
list every time.

Every conformance case of every op; what the benches measure; derivatives, loops, transforms of
Fourier, sorts, systems of equations; products of every low-bit format; the steps of a model of
every architecture.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

import tetrad as td
from tests.models.loaded import CONTEXT, SLOTS, loaded
from tests.models.tiny import TINY
from tests.test_conformance import OPS, drawn, graph_of
from tetrad.core.sizes import Dim
from tetrad.graph.nodes import Graph
from tetrad.quant.lanes import LANES

Named = Iterator[tuple[str, Graph]]
S = td.Spec
KEY = S((2,), td.uint32)
ROWS = Dim("rows", max=512)


def programs() -> Named:
    yield from conformance()
    for name, (function, *operands) in {**BENCHED, **TRANSFORMED, **SPECIAL}.items():
        yield name, td.trace(function)(*operands)
    yield from low_bit()
    yield from model_steps()


def conformance() -> Named:
    for op in OPS:
        for dtype in op.dtypes:
            for i, case in enumerate(drawn(op, dtype, 2)):
                yield f"{op.name} {dtype} {i}", graph_of(op, case)


# -- what the benches measure ----------------------------------------------------------------------


def matmul(m: int, k: int, n: int) -> tuple[Any, ...]:
    return (td.matmul, S((m, k)), S((k, n)))


def layers(x: Any, *weights: Any) -> Any:
    for weight in weights:
        x = td.nn.gelu(x @ weight)
    return x


def loss(params: Any, x: Any, y: Any) -> Any:
    hidden = td.nn.relu(x @ params["w0"] + params["b0"])
    return td.mean(td.nn.logsumexp(hidden @ params["w1"] + params["b1"], axis=-1) - y)


OPTIMISER = td.optim.adam(1e-3)
PARAMS = {"w0": S((784, 256)), "b0": S((256,)), "w1": S((256, 10)), "b1": S((10,))}


def training_step(params: Any, mean: Any, square: Any, x: Any, y: Any) -> Any:
    value, gradients = td.value_and_grad(loss)(params, x, y)
    state = OPTIMISER.init(params)
    updates, _ = OPTIMISER.update(gradients, state, params)
    return td.optim.apply_updates(params, updates), value, mean, square


BENCHED: dict[str, tuple[Any, ...]] = {
    "add one": (lambda x: x + 1, S((16,))),
    "elementwise": (lambda x, y, z: td.tanh(x) * y + td.exp(-z * z), *[S((4 << 20,))] * 3),
    "softmax": (td.nn.softmax, S((4096, 1024))),
    "softmax of any rows": (td.nn.softmax, S((ROWS, 1000))),
    "logsumexp": (lambda x: td.nn.logsumexp(x, axis=-1), S((4096, 1024))),
    "layer norm": (td.nn.layer_norm, S((4096, 1024)), S((1024,)), S((1024,))),
    "mean and variance": (lambda x: (td.mean(x, axis=-1), td.var(x, axis=-1)), S((4096, 1024))),
    "sum of all": (td.sum, S((4096, 4096))),
    "sum of columns": (lambda x: td.sum(x, axis=0), S((4096, 4096))),
    "sum of rows": (lambda x: td.sum(x, axis=1), S((4096, 4096))),
    "transpose": (lambda x: td.permute_dims(x, (1, 0)) + 0, S((4096, 4096))),
    **{f"matmul {n}": matmul(n, n, n) for n in (64, 256, 512, 1024, 2048)},
    "matmul 1x4096x4096": matmul(1, 4096, 4096),
    "matmul 64x4096x4096": matmul(64, 4096, 4096),
    "matmul of any rows": (td.matmul, S((ROWS, 256)), S((256, 384))),
    "matmul, bias, gelu": (
        lambda x, w, b: td.nn.gelu(x @ w + b),
        S((512, 512)),
        S((512, 512)),
        S((512,)),
    ),
    "twelve layers": (layers, S((32, 64)), *[S((64, 64))] * 12),
    "training step": (training_step, PARAMS, PARAMS, PARAMS, S((1024, 784)), S((1024,))),
}


# -- derivatives, batches, loops -------------------------------------------------------------------


def rnn(w: Any, u: Any, xs: Any) -> Any:
    def cell(h: Any, x: Any) -> Any:
        h = td.tanh(h @ w + x @ u)
        return h, h

    return td.sum(td.scan(cell, td.zeros((xs.shape[1], w.shape[0])), xs)[1] ** 2)


def recurrence(x: Any, xs: Any) -> Any:
    return td.scan(lambda c, v: (0.9 * c + v, c * v), x, xs)


def newton(x: Any) -> Any:
    return td.while_loop(
        lambda s: td.abs(s[0] * s[0] - x) > 1e-5,
        lambda s: ((s[0] + x / s[0]) / 2, s[1] + 1),
        (x, 0),
    )


def attention(q: Any, k: Any, v: Any) -> Any:
    return td.nn.dot_product_attention(q, k, v, is_causal=True)


def attention_loss(q: Any, k: Any, v: Any) -> Any:
    return td.sum(attention(q, k, v) ** 2)


def norm_loss(x: Any, weight: Any, bias: Any) -> Any:
    return td.sum(td.nn.layer_norm(x, weight, bias) ** 2)


HEADS = [S((2, 70, 4, 16)), S((2, 70, 2, 16)), S((2, 70, 2, 16))]

TRANSFORMED: dict[str, tuple[Any, ...]] = {
    "grad of a perceptron": (td.grad(loss), PARAMS, S((32, 784)), S((32,))),
    "hessian": (td.hessian(lambda x: td.sum(td.sin(x) * x**3)), S((9,))),
    "jacfwd": (td.jacfwd(lambda x: td.cumulative_sum(td.exp(x))), S((12,))),
    "grad per example": (
        td.vmap(td.grad(loss), in_axes=(None, 0, 0)),
        PARAMS,
        S((8, 784)),
        S((8,)),
    ),
    "scan": (rnn, S((32, 32)), S((16, 32)), S((24, 4, 16))),
    "grad of a scan": (td.grad(rnn, argnums=(0, 1)), S((32, 32)), S((16, 32)), S((24, 4, 16))),
    "scalar scan": (recurrence, S(()), S((1000,))),
    "grad of a scalar scan": (
        td.grad(lambda x, xs: td.sum(recurrence(x, xs)[1])),
        S(()),
        S((1000,)),
    ),
    "batched scan": (td.vmap(recurrence), S((17,)), S((17, 50))),
    "while": (newton, S(())),
    "cond": (lambda p, x: td.cond(p, td.sin, td.cos, x), S((), td.bool), S((33,))),
    "checkpoint": (
        td.grad(lambda x: td.sum(td.checkpoint(lambda y: td.sin(td.exp(y)))(x))),
        S((40,)),
    ),
    "attention": (attention, *HEADS),
    "grad of attention": (td.grad(attention_loss, argnums=(0, 1, 2)), *HEADS),
    "grad of layer norm": (td.grad(norm_loss), S((6, 70)), S((70,)), S((70,))),
    "updates in a loop": (
        lambda x: td.fori_loop(0, 9, lambda i, c: c.at[i].set(c[i - 1] * 2 + 1), x),
        S((40,)),
    ),
}


# -- ops with kernels of their own -----------------------------------------------------------------

SPECIAL: dict[str, tuple[Any, ...]] = {
    **{f"fft {n}": (td.fft.fft, S((3, n), td.complex64)) for n in (8, 60, 97, 1024, 5000)},
    "rfft": (lambda x: td.abs(td.fft.rfft(x)), S((20, 300))),
    "irfft": (lambda x: td.fft.irfft(td.fft.rfft(x)), S((4, 256))),
    "fft of two axes": (td.fft.fft2, S((2, 30, 40), td.complex64)),
    **{f"sort {n}": (td.sort, S((5, n))) for n in (8, 100, 3000)},
    "argsort": (td.argsort, S((5, 300), td.int32)),
    "topk": (lambda x: td.topk(x, 7), S((3, 900))),
    "cumulative sum": (lambda x: td.cumulative_sum(x, axis=1), S((3, 5000))),
    "scatter": (lambda x, i, v: x.at[i].add(v), S((30, 18)), S((20,), td.int32), S((20, 18))),
    "gather": (lambda x, i: td.take(x, i, axis=0), S((30, 18)), S((20,), td.int32)),
    "take along": (lambda x, i: td.take_along_axis(x, i, axis=1), S((5, 18)), S((5, 7), td.int64)),
    "solve small": (td.linalg.solve, S((20, 4, 4)), S((20, 4, 1))),
    "solve large": (td.linalg.solve, S((2, 40, 40), td.float64), S((2, 40, 3), td.float64)),
    "grad of a solve": (
        td.grad(lambda a, b: td.sum(td.linalg.solve(a, b))),
        S((3, 12, 12)),
        S((3, 12, 2)),
    ),
    "cholesky": (td.linalg.cholesky, S((3, 20, 20))),
    "qr": (td.linalg.qr, S((2, 12, 7))),
    "svd": (td.linalg.svd, S((2, 9, 7))),
    "eigh": (td.linalg.eigh, S((2, 9, 9))),
    "inverse": (td.linalg.inv, S((4, 6, 6))),
    "random normal": (lambda key: td.random.normal(key, (1000,)), KEY),
    "random permutation": (lambda key: td.random.permutation(key, 100), KEY),
    "concat": (lambda *xs: td.concat(list(xs), axis=1), *[S((6, n)) for n in (3, 16, 40, 1)]),
    "einsum": (lambda a, b: td.einsum("bij,bkj->bik", a, b), S((3, 20, 30)), S((3, 25, 30))),
    "int8 product": (td.matmul, S((33, 70), td.int8), S((70, 40), td.int8)),
    "complex product": (td.matmul, S((9, 20), td.complex64), S((20, 24), td.complex64)),
    "half product": (td.matmul, S((33, 300), td.float16), S((300, 40), td.float16)),
}


# These share one generator, in turn; every other format has numbers of its own, so that a new one
# changes none.
IN_TURN = ("q4_0", "q4_1", "q5_0", "q5_1", "q8_0", "q4_k", "q5_k", "q6_k")


def low_bit() -> Named:
    """Products of rows with weights of every format that has products, few rows and many."""
    shared = np.random.default_rng(0)
    for name in (*IN_TURN, *sorted(LANES.keys() - set(IN_TURN))):
        rng = shared if name in IN_TURN else np.random.default_rng(0)
        weight = td.quant.quantize(rng.standard_normal((48, 512), np.float32), name)
        for rows in (1, 5, 64, ROWS):
            yield f"{name}, {rows} rows", td.trace(product_with(weight))(S((rows, 512)))


def product_with(weight: Any) -> Callable[[Any], Any]:
    return lambda x: x @ weight.dequantize().mT


# i8 needs heads of 32 channels
CACHES = {"f32": (td.float16, td.float32), "low-bit": (td.float16, td.int8)}


def model_steps() -> Named:
    """One token, and any number of them, of every architecture; floats and low-bit weights, both
    kinds of caches."""
    for arch in TINY:
        for stored in ("f32", "low-bit"):
            parts = loaded(arch, stored).parts
            for cache in CACHES[stored]:
                caches = [S(c.shape, c.dtype) for c in parts.programs.state(SLOTS, CONTEXT, cache)]
                for count in (1, Dim("tokens", max=512)):
                    numbers = [S((count,), td.int32)] * 3 + [
                        S((count if count == 1 else ROWS,), td.int32)
                    ]
                    yield (
                        f"{arch} {stored} {cache} {count}",
                        td.trace(parts.programs.step.step)(*numbers, *caches),
                    )
