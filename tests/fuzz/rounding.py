"""Floating-point states of the host: whatever is set while we trace, compile, evaluate or run, the
bits are the same.

`check(seed)` takes a state, and a random program or one of FUNCTIONS, makes all its results once as
the process begins and once in that state, and compares them: graphs, kernels, machine code, and the
bits of eager, jitted, differentiated and interpreted results. A program compiled in the state is
also run after it.
"""

from __future__ import annotations

import ctypes
import hashlib
import re
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

import tetrad as td
from tests.compiled import difference, run_on_evaluator
from tests.fuzz.grow import grow
from tests.fuzz.program import build, source, values
from tetrad.backends.cpu.isa import current_target
from tetrad.backends.cpu.llvm import compile_object
from tetrad.backends.cpu.memory import Storage
from tetrad.backends.llvm.module import emit_module
from tetrad.compiler.driver import compile_graph
from tetrad.core.errors import TetradError
from tetrad.graph.evaluate import evaluate
from tetrad.schedule.nodes import programs_of

# The control register of SSE: bits 13 and 14 round (down, up, to zero), 15 flushes results, 6 takes
# subnormal operands for zeros, 7 to 12 mask exceptions. (Intel's manual, volume 1, section 10.2.3)
STATES = {
    "rounds down": 0x3F80,
    "rounds up": 0x5F80,
    "rounds to zero": 0x7F80,
    "flushes to zero": 0x9F80,
    "takes subnormals for zeros": 0x1FC0,
    "flushes and takes for zeros": 0x9FC0,
    "rounds down and flushes": 0xBFC0,
    "rounds up and flushes": 0xDFC0,
}
CONTROL_AT = 28  # of fenv_t on x86-64, in glibc and musl
# what -> an array, a text, or a function that gives an array after the state has ended
Results = dict[str, Any]


@contextmanager
def host_state(control: int) -> Iterator[None]:
    """The thread as a host may have left it."""
    library, kept = ctypes.PyDLL(None), ctypes.create_string_buffer(64)
    library.fegetenv(kept)
    changed = ctypes.create_string_buffer(kept.raw, 64)
    struct.pack_into("<I", changed, CONTROL_AT, control)
    library.fesetenv(changed)
    try:
        yield
    finally:
        library.fesetenv(kept)


def control_register() -> int:
    """Of this thread, without the flags of what has happened."""
    kept = ctypes.create_string_buffer(64)
    ctypes.PyDLL(None).fegetenv(kept)
    return int(struct.unpack_from("<I", kept, CONTROL_AT)[0]) & ~0x3F


# -- a random program ------------------------------------------------------------------------------


def results_of_program(seed: int) -> Callable[[], Results]:
    """A function that compiles and runs the program of a seed; its constants and arguments are made
    before."""
    program = grow(seed)
    graph, dims = build(program), program.bindings[0]
    arrays = values(program, dims)

    def results() -> Results:
        compiled = compile_graph(graph)
        kernels = list(dict.fromkeys(programs_of(compiled.schedule)))
        found: Results = {f"kernel {i}": str(kernel) for i, kernel in enumerate(kernels)}
        for kernel in kernels[:1]:
            found["machine code"] = code_of(kernel)
        sizes = tuple(dims[name] for name in compiled.dims)
        given = [Storage.from_numpy(np.ascontiguousarray(a)) for a in arrays]
        done = compiled.run(given, sizes)
        wanted = evaluate(graph, arrays, dims)
        found |= {f"evaluated {i}": a for i, a in enumerate(wanted)}
        found |= {
            f"interpreted {i}": a for i, a in enumerate(run_on_evaluator(compiled, arrays, dims))
        }
        found |= {
            f"run {i}": s.as_numpy(a.dtype, a.shape)
            for i, (s, a) in enumerate(zip(done, wanted, strict=True))
        }
        return found

    return results


def code_of(kernel: Any) -> str:
    text = emit_module({"k": kernel}, current_target(), "plain")
    return hashlib.sha256(compile_object(text, current_target())).hexdigest()


# -- a public function -----------------------------------------------------------------------------

Function = Callable[[Any], Any]

# Of one array f32 or f64 [7, 12] of numbers between about -3 and 3. Each has constants that Python
# or NumPy computes.
FUNCTIONS: dict[str, Function] = {
    "numbers": lambda x: x * 0.1 + 1e-3 - x / 3.0,
    "constants": lambda x: x + td.asarray([0.1 * i for i in range(12)]) + td.exp(td.asarray(0.3)),
    "subnormal constants": lambda x: x * td.asarray(1e-40) * 1e20 + td.asarray(3e-39) * 1e30,
    "linspace": lambda x: x * td.linspace(0.1, 0.7, 12) + td.arange(0.0, 1.2, 0.1)[:12],
    "exp": lambda x: td.exp(x) + td.expm1(x) + td.exp2(x),
    "log": lambda x: td.log(x * x + 0.1) + td.log1p(x * x) + td.log2(x * x + 1.1),
    "trigonometric": lambda x: td.sin(x * 100) + td.cos(x) * td.tan(x) + td.atan(x),
    "pow": lambda x: td.pow(td.abs(x) + 0.1, 1.7) + td.sqrt(td.abs(x)),
    "gelu": lambda x: td.nn.gelu(x) + td.nn.gelu(x, approximate=False),
    "activations": lambda x: (
        td.nn.silu(x) + td.nn.softplus(x) + td.nn.mish(x) + td.nn.selu(x) + td.nn.hard_silu(x)
    ),
    "softmax": lambda x: td.nn.softmax(x) + td.nn.log_softmax(x, axis=0),
    "layer_norm": lambda x: td.nn.layer_norm(x) + td.nn.rms_norm(x),
    "attention": lambda x: td.nn.dot_product_attention(*[td.reshape(x, (1, 7, 2, 6))] * 3),
    "statistics": lambda x: (
        td.mean(x, axis=0) + td.std(x, axis=0) + td.var(x, axis=0, correction=1)
    ),
    "quantile": lambda x: td.quantile(x, 0.3, axis=0) + td.median(x, axis=0),
    "matmul": lambda x: x @ x.mT / 7,
    "norms": lambda x: td.linalg.vector_norm(x, ord=3, axis=1) + td.linalg.vector_norm(x, axis=1),
    "fft": lambda x: td.abs(td.fft.fft(x)) + td.real(td.fft.ifft(x, norm="ortho")),
    "cumulative": lambda x: td.cumulative_sum(x, axis=0) * 0.3,
    "halves": lambda x: (
        x.astype(td.float16).astype(td.float32) + x.astype(td.bfloat16).astype(td.float32)
    ),
    "scan": lambda x: td.scan(lambda c, r: (c * 0.9 + r * 0.1, td.tanh(c)), x[0], x)[1],
    "while": lambda x: td.fori_loop(0, 5, lambda i, c: c * 0.7 + 0.1, x),
    "at": lambda x: x.at[:, 3].multiply(0.1),
    "normal": lambda x: x + td.random.normal(td.random.key(3), (7, 12)),
    "distributions": lambda x: x + td.random.gamma(td.random.key(5), 1.3, (7, 12)),
    "truncated": lambda x: x + td.random.truncated_normal(td.random.key(4), 0.5, 1.7, (7, 12)),
    "initializer": lambda x: x + td.nn.initializers.glorot_normal()(td.random.key(1), (7, 12)),
    "schedule": lambda x: x * td.optim.cosine_decay_schedule(0.1, 100)(7),
    "adam": lambda x: td.optim.adam(0.001).update(x, td.optim.adam(0.001).init(x))[0],
    "vmap": lambda x: td.vmap(lambda row: row / td.sum(row * row) * 0.3)(x),
    "trapezoid": lambda x: td.trapezoid(x, dx=0.1),
    "quantised": lambda x: (
        td.quant.quantize(np.resize(KEPT, (4, 32)).astype(np.float32), "q4_0").dequantize() * 0.7
    ),
}
KEPT = np.random.default_rng(11).normal(size=(4, 32))
ADDRESS = re.compile(r" at 0x[0-9a-f]+")  # of Python functions, which are rules of derivatives
NOT_DIFFERENTIATED = ("quantised", "halves")


def results_of_function(name: str, seed: int) -> Callable[[], Results]:
    function = FUNCTIONS[name]
    kind = np.float64 if seed % 2 else np.float32
    x = np.random.default_rng(seed).normal(size=(7, 12)).astype(kind)

    def results() -> Results:
        own = lambda y: function(y)  # noqa: E731  (a new one each time: it is traced and compiled again)
        jitted = td.jit(own)
        found: Results = {
            "graph": ADDRESS.sub("", str(td.trace(own)(x))),
            "eager": function(td.asarray(x)),
        }
        found |= {"jitted": jitted(x), "jitted, run later": lambda: np.asarray(jitted(x))}
        if name not in NOT_DIFFERENTIATED:
            total = lambda y: td.sum(function(y) * 0.3)  # noqa: E731
            found |= {"gradient": td.grad(total)(x), "jitted gradient": td.jit(td.grad(total))(x)}
        return {
            what: np.asarray(value) if isinstance(value, td.Array) else value
            for what, value in found.items()
        }

    return results


# -- the comparison --------------------------------------------------------------------------------


def check(seed: int) -> str | None:
    """None, or what differs, in which state, and how to see it again."""
    rng = np.random.default_rng(seed)
    state = str(rng.choice(list(STATES)))
    if rng.random() < 0.5:
        name = str(rng.choice(list(FUNCTIONS)))
        found = compared(results_of_function(name, seed), state)
        return found and f"seed {seed}: the host {state}; FUNCTIONS[{name!r}]: {found}"
    found = compared(results_of_program(seed), state)
    return found and f"seed {seed}: the host {state}; {found}\n{source(grow(seed), found)}"


def compared(results: Callable[[], Results], state: str) -> str | None:
    try:
        want = results()
    except TetradError:
        return None  # programs that are refused are another fuzzer's business
    with host_state(STATES[state]):
        got = results()
        left = control_register()
    if left != STATES[state]:
        return f"the host's state was {STATES[state]:#x} before and {left:#x} after"
    for what, value in want.items():
        apart = apart_by(got.get(what), value)
        if apart:
            return f"{what}: {apart}"
    return None


def apart_by(got: Any, want: Any) -> str | None:
    if isinstance(want, str):
        return text_apart(got, want)
    return difference(got(), want()) if callable(want) else difference(got, want)


def text_apart(got: Any, want: str) -> str | None:
    """The first line that differs."""
    if got == want:
        return None
    pairs = zip(str(got).splitlines(), want.splitlines(), strict=False)
    return next(
        (f"got {a.strip()!r}, want {b.strip()!r}" for a, b in pairs if a != b), "one is longer"
    )
