"""What the tests of the kernel language share: one-expression programs, edge values, and random
valid programs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from hypothesis import strategies as st

from tetrad.core.dtypes import DType, bool_, f32, f64, i32, i64, u8, u32
from tetrad.core.sizes import Dim
from tetrad.kernel import nodes as n
from tetrad.kernel.build import KernelBuilder, Val
from tetrad.kernel.evaluate import evaluate
from tetrad.kernel.harness import arrays_of as arrays_of
from tetrad.kernel.verify import verify

LANES = 8
ARITHMETIC = (f32, f64, i32, i64, u8, u32, bool_)


def elementwise(f: Callable[..., Val], *dtypes: DType, name: str = "elementwise") -> n.Program:
    """y[i] = f(x0[i], x1[i], ...) for i below n."""
    k = KernelBuilder(name, workgroup=LANES)
    size = k.arg("n")
    inputs = [k.buffer(f"x{i}", dtype) for i, dtype in enumerate(dtypes)]
    i = k.global_id()
    with k.when(i < size):
        result = f(k, *(k.load(x, i) for x in inputs))
        k.store(k.buffer("y", result.dtype, "write"), i, result)
    return k.finish()


def apply(f: Callable[..., Val], dtypes: tuple[DType, ...], *arrays: Any) -> np.ndarray:
    """f over arrays, through a verified program and the evaluator."""
    program = elementwise(f, *dtypes)
    verify(program)
    size = len(arrays[0])
    y = np.zeros(size, program.buffers[-1].dtype.np)
    inputs = {
        f"x{i}": np.asarray(a, d.np) for i, (a, d) in enumerate(zip(arrays, dtypes, strict=True))
    }
    evaluate(program, {**inputs, "y": y}, {"n": size}, (-(-size // LANES), 1, 1))
    return y


def edges(dtype: DType) -> list[Any]:
    """Values where meanings differ: 0, 1, the ends, signed zeros, infinities, NaN, subnormals,
    ties."""
    if dtype is bool_:
        return [False, True]
    if not dtype.is_float:
        low, high = int(np.iinfo(dtype.np).min), int(np.iinfo(dtype.np).max)
        some = {low, low + 1, -7, -1, 0, 1, 2, 3, 7, 31, 33, high // 3, high - 1, high}
        some |= {1 << dtype.bits - 1, (1 << dtype.bits - 1) - 1}  # the highest bit of a word
        return sorted(v for v in some if low <= v <= high)
    info = np.finfo(dtype.np)
    positive = [
        0.0,
        float(info.smallest_subnormal),
        float(info.tiny),
        0.3,
        0.5,
        1.0,
        1.5,
        2.5,
        3e9,
        float(info.max),
    ]
    positive += [0.49999997, float(2 ** (info.nmant - 1) + 0.5), float("inf")]
    return [*positive, *(-v for v in positive), float("nan")]


def same_bits(got: np.ndarray, want: np.ndarray) -> np.ndarray:
    """Element by element; any NaN equals any NaN."""
    assert got.dtype == want.dtype
    words = np.dtype(f"u{got.dtype.itemsize}")
    equal = got.view(words) == want.view(words)
    return equal | (np.isnan(got) & np.isnan(want)) if got.dtype.kind == "f" else equal


# -- random programs -------------------------------------------------------------------------------


@st.composite
def programs(draw: st.DrawFn) -> n.Program:
    """A small valid program: arithmetic of several types, locals, loops, branches, scratch,
    regions."""
    return _Grower(draw).program()


class _Grower:
    def __init__(self, draw: st.DrawFn) -> None:
        self.draw = draw
        self.k = KernelBuilder(
            draw(st.sampled_from(["p", 'odd "name"\n', "größe"])),
            workgroup=draw(st.sampled_from([1, 4, 16])),
        )
        k = self.k
        self.x = k.buffer(
            "x", f32, count=draw(st.sampled_from([None, 64, Dim("seq", max=64) * 2 + 64]))
        )
        self.s = k.buffer("s", i32, "workgroup", 64, zeroed=draw(st.booleans()))
        self.y = k.buffer("y", f32, "readwrite")
        self.n = k.arg("n")
        self.returns = 0

    def program(self) -> n.Program:
        k = self.k
        value = k.load(self.x, k.lane())
        self.locals = [k.local(1.5, f32), k.local(k.cast(value, i32))]
        self.statements([value, k.cast(value, i32), k.lane()], 3)
        self.k.store(self.y, k.lane(), self.locals[0].get())
        return k.finish()

    def statements(self, values: list[Val], depth: int) -> None:
        for _ in range(self.draw(st.integers(1, 5))):
            getattr(self, self.draw(st.sampled_from(self.kinds(depth))))(values, depth)

    def kinds(self, depth: int) -> list[str]:
        return ["value", "value", "value", "assign", "touch_scratch"] + (
            ["loop", "branch", "region", "leave"] if depth else []
        )

    def pick(self, values: list[Val], dtype: DType) -> Val:
        return self.draw(st.sampled_from([v for v in values if v.dtype is dtype]))

    def value(self, values: list[Val], depth: int) -> None:
        k, dtype = self.k, self.draw(st.sampled_from([f32, i32]))
        a, b = self.pick(values, dtype), self.pick(values, dtype)
        ops = n.FLOAT_BINARY if dtype is f32 else n.INT_BINARY
        made = [
            lambda: k.binary(self.draw(st.sampled_from(ops)), a, b),
            lambda: k.unary(
                self.draw(st.sampled_from(n.FLOAT_UNARY if dtype is f32 else n.INT_UNARY)), a
            ),
            lambda: k.select(k.compare(self.draw(st.sampled_from(n.COMPARISONS)), a, b), a, b),
            lambda: k.cast(a, i32 if dtype is f32 else f32),
            lambda: k.bitcast(a, i32 if dtype is f32 else f32),
            lambda: k.const(self.draw(_literals(dtype)), dtype),
            lambda: k.cast(k.any(a < b), dtype),
            lambda: self.locals[0 if dtype is f32 else 1].get(),
        ]
        values.append(self.draw(st.sampled_from(made))())

    def assign(self, values: list[Val], depth: int) -> None:
        local = self.draw(st.sampled_from(self.locals))
        local.set(self.pick(values, local.node.dtype))

    def touch_scratch(self, values: list[Val], depth: int) -> None:
        self.k.store(self.s, self.k.lane() + self.draw(st.integers(0, 48)), self.pick(values, i32))

    def loop(self, values: list[Val], depth: int) -> None:
        with self.k.loop(
            self.n, start=self.draw(st.integers(0, 2)), step=self.draw(st.integers(1, 3))
        ) as i:
            self.statements([*values, self.k.cast(i, i32)], depth - 1)

    def branch(self, values: list[Val], depth: int) -> None:
        with self.k.when(self.pick(values, i32) < self.pick(values, i32)):
            self.statements(list(values), depth - 1)
        if self.draw(st.booleans()):
            with self.k.otherwise():
                self.statements(list(values), depth - 1)

    def leave(self, values: list[Val], depth: int) -> None:
        """Some invocations return, perhaps after some more statements."""
        self.returns += 1
        if self.returns > 8:
            return
        with self.k.when(self.pick(values, i32) < self.pick(values, i32)):
            self.statements(list(values), 0)
            self.k.return_()

    def region(self, values: list[Val], depth: int) -> None:
        with self.k.region(self.draw(st.sampled_from(["core::relu", 'a "b"']))):
            self.statements(values, depth - 1)


def _literals(dtype: DType) -> st.SearchStrategy[Any]:
    return st.floats(width=32) if dtype is f32 else st.integers(-(2**31), 2**31 - 1)


def run_random(program: n.Program) -> tuple[np.ndarray, ...]:
    """What a program of `programs()` leaves in memory."""
    x = np.linspace(-3, 40, 192).astype(np.float32)
    y = np.zeros(64, np.float32)
    evaluate(program, {"x": x, "y": y}, {"n": 4, "seq": 3}, (1, 1, 1))
    return (y,)
