"""Solvers, ordinary differential equations: `odeint`, with the name and arguments it has in
jax.experimental.ode.

Receives a function, a start and times, returns states at these times. Steps are those of Dormand
and Prince (1980), as long as the error allows. Reverse mode integrates the adjoint equation back,
so it keeps nothing but the states that are returned.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from tetrad.arrays import functions as td
from tetrad.core.dtypes import i32
from tetrad.core.errors import ShapeError
from tetrad.core.tree import flatten, tree_map
from tetrad.linalg._implicit import Closed
from tetrad.linalg._iterative import _as_vector
from tetrad.tracing.array import Array, fail
from tetrad.tracing.context import current_trace
from tetrad.tracing.loops import scan, while_loop
from tetrad.tracing.operands import as_floats, convert
from tetrad.transforms.custom import custom_vjp
from tetrad.transforms.derivatives import vjp

Tree = Any
Slope = Callable[[Array, Array], Array]  # of a state and a time

# where in a step slopes are taken, and how they are weighted; the last row is the step itself
NODES = (1 / 5, 3 / 10, 4 / 5, 8 / 9, 1.0, 1.0)
WEIGHTS = (
    (1 / 5,),
    (3 / 40, 9 / 40),
    (44 / 45, -56 / 15, 32 / 9),
    (19372 / 6561, -25360 / 2187, 64448 / 6561, -212 / 729),
    (9017 / 3168, -355 / 33, 46732 / 5247, 49 / 176, -5103 / 18656),
    (35 / 384, 0.0, 500 / 1113, 125 / 192, -2187 / 6784, 11 / 84),
)
# the difference to the step of order 4
ERRORS = (71 / 57600, 0.0, -71 / 16695, 71 / 1920, -17253 / 339200, 22 / 525, -1 / 40)


def odeint(
    func: Callable[..., Tree], y0: Tree, t: Any, *args: Any, rtol: float = 1.4e-8,
    atol: float = 1.4e-8, mxstep: float = math.inf, hmax: float = math.inf,
) -> Tree:  # fmt: skip
    """States of dy/dt = func(y, t, *args) at times t, which ascend; y0 is that at t[0].

    rtol, atol  how large the error of a step may be, for each number of the state
    mxstep      steps from one time to the next; where more are needed, states are NaN
    hmax        the longest step

    >>> import tetrad as td
    >>> states = td.odeint(lambda y, t: -y, td.asarray(1.0), td.asarray([0.0, 1.0]), rtol=1e-6)
    >>> td.round(states, 4)
    Array([1.    , 0.3679], float32)
    """
    start = tree_map(as_floats, y0)
    vector, back = _as_vector(start)
    times = convert(t, vector.dtype.real)
    if times.ndim != 1 or times.shape[0] == 0:
        fail(ShapeError, f"odeint: times are a vector of at least one, got {times.type}")

    def slope(y: Array, at: Array) -> Array:
        return convert(_as_vector(func(back(y), at, *args))[0], y.dtype)

    settings = (rtol, atol, mxstep, hmax)
    if current_trace() is None:
        states = _forward(slope, vector, times, settings)
    else:
        states = _differentiable(slope, vector, times, settings)
    return _unpacked(states, start)


def _unpacked(states: Array, like: Tree) -> Tree:
    """[times, n] as a tree of [times, ...]."""
    places = iter(_slices(like))

    def part(x: Array) -> Array:
        first, last = next(places)
        return convert(td.reshape(states[:, first:last], (states.shape[0], *x.shape)), x.dtype)

    return tree_map(part, like)


def _slices(like: Tree) -> list[tuple[int, int]]:
    found, at = [], 0
    for x in flatten(like)[0]:
        found.append((at, at + int(x.size)))
        at += int(x.size)
    return found


# -- forwards --------------------------------------------------------------------------------------


def _forward(slope: Slope, y0: Array, times: Array, settings: tuple[float, ...]) -> Array:
    """[times, n]: the state at each time."""
    rtol, atol, most, longest = settings
    first = slope(y0, times[0])
    begin = y0, first, times[0], td.minimum(_first_step(slope, y0, first, times[0], rtol, atol),
                                            longest)  # fmt: skip

    def to_next(state: Any, target: Array) -> Any:
        def goes_on(inner: Any) -> Any:
            return (inner[2] < target) & (inner[4] < most) & (inner[3] > 0)

        def step(inner: Any) -> Any:
            y, f, at, size, count = inner
            is_last = at + size >= target
            now = td.where(is_last, target - at, size)
            y1, f1, error = _step(slope, y, f, at, now)
            ratio = _ratio(error, y, y1, rtol, atol)
            accepts = ratio <= 1.0
            growth = td.clip(0.9 * td.pow(td.maximum(ratio, 1e-10), -0.2), 0.2, 10.0)
            growth = td.where(td.isnan(ratio), 0.2, growth)
            # a step that was cut short says little of how long the next may be
            after = td.where(accepts & is_last, td.maximum(size, now * growth), now * growth)
            return (
                td.where(accepts, y1, y),
                td.where(accepts, f1, f),
                td.where(accepts, td.where(is_last, target, at + now), at),
                td.minimum(after, longest),
                count + 1,
            )

        done = while_loop(goes_on, step, (*state, td.zeros((), dtype=i32)))
        y = td.where(done[2] < target, math.nan, done[0])
        return done[:4], y

    _, states = scan(to_next, begin, times[1:])
    return td.concat([y0[None], states], axis=0)


def _step(slope: Slope, y: Array, f: Array, at: Array, size: Array) -> tuple[Array, Array, Array]:
    """The next state, its slope, and the error of the step."""
    slopes, end = [f], y
    for node, row in zip(NODES, WEIGHTS, strict=True):
        end = y + size * sum((w * k for w, k in zip(row, slopes, strict=True) if w), 0.0 * y)
        slopes.append(slope(end, at + node * size))
    error = size * sum((w * k for w, k in zip(ERRORS, slopes, strict=True) if w), 0.0 * y)
    return end, slopes[-1], error


def _ratio(error: Array, y: Array, y1: Array, rtol: float, atol: float) -> Array:
    """The error in units of what is allowed."""
    allowed = atol + rtol * td.maximum(td.abs(y), td.abs(y1))
    share = td.abs(error) / allowed
    return td.sqrt(td.mean(share * share))


def _first_step(slope: Slope, y: Array, f: Array, at: Array, rtol: float, atol: float) -> Array:
    """By how fast the state and its slope change (Hairer, Norsett and Wanner, II.4)."""
    scale = atol + rtol * td.abs(y)
    size, speed = (td.sqrt(td.sum((td.abs(x) / scale) ** 2)) for x in (y, f))
    is_tiny = (size < 1e-5) | (speed < 1e-5)
    guess = td.where(is_tiny, 1e-6, 0.01 * size / td.where(is_tiny, 1.0, speed))
    ahead = slope(y + guess * f, at + guess)
    bend = td.sqrt(td.sum((td.abs(ahead - f) / scale) ** 2)) / guess
    most = td.maximum(speed, bend)
    is_flat = most <= 1e-15
    step = td.pow(0.01 / td.where(is_flat, 1.0, most), 0.2)
    return td.minimum(100.0 * guess, td.where(is_flat, td.maximum(1e-6, guess * 1e-3), step))


# -- backwards -------------------------------------------------------------------------------------


def _differentiable(slope: Slope, y0: Array, times: Array, settings: tuple[float, ...]) -> Array:
    closed = Closed("func", slope, y0, times[0])

    @custom_vjp
    def states_at(moving: Any, y: Array, at: Array) -> Array:
        return _forward(lambda s, when: closed(moving, closed.others, s, when), y, at, settings)

    def forward(moving: Any, y: Array, at: Array) -> Any:
        states = states_at(moving, y, at)
        return states, (moving, states, at)

    def backward(kept: Any, seeds: Array) -> Any:
        moving, states, at = kept
        return _adjoint(
            lambda m, s, when: closed(m, closed.others, s, when),
            moving,
            states,
            at,
            seeds,
            settings,
        )

    states_at.defvjp(forward, backward)
    return states_at(closed.moving, y0, times)  # type: ignore[no-any-return]


def _adjoint(
    slope: Callable[..., Array], moving: list[Array], states: Array, times: Array, seeds: Array,
    settings: tuple[float, ...],
) -> Any:  # fmt: skip
    """Cotangents of parameters, start and times: from each time back to the one before."""
    n = int(states.shape[1])
    flat, back = (
        _as_vector(moving) if moving else (td.zeros((0,), dtype=states.dtype), lambda _: [])
    )

    def change(state: Array, since: Array) -> Array:
        """In reversed time."""
        y, a = state[:n], state[n : 2 * n]
        value, pull = vjp(lambda m, s: slope(m, s, -since), moving, y)
        by_params, by_state = pull(a)
        params = _as_vector(by_params)[0] if moving else flat
        return td.concat([-value, by_state, convert(params, state.dtype)])

    def interval(carry: Any, each: Any) -> Any:
        a, total = carry
        y, late, early, seed = each
        whole = td.concat([y, a + seed, total])
        end = _forward(change, whole, td.stack([-late, -early]), settings)[1]
        return (end[n : 2 * n], end[2 * n :]), td.sum(slope(moving, y, late) * seed)

    none = td.zeros_like(states[0]), convert(td.zeros_like(flat), states.dtype)
    pieces = states[1:], times[1:], times[:-1], seeds[1:]
    (a, total), by_times = scan(interval, none, pieces, reverse=True)
    by_start = -td.sum(slope(moving, states[0], times[0]) * a)
    by_all = td.concat([by_start[None], by_times])
    return back(convert(total, flat.dtype)), a + seeds[0], by_all
