"""Arrays changed in place: what a program sees is as if every update made a new array."""

from __future__ import annotations

import numpy as np
import pytest

import tetrad as td
from tetrad.compiler.driver import compile_graph
from tetrad.ops.attention.cache import put_cache, put_scales
from tetrad.ops.dynamic.op import dynamic_slice, dynamic_update_slice
from tetrad.passes import plan_loop
from tetrad.schedule.nodes import Launch, Loop
from tetrad.tracing.array import Array

LAYERS, SLOTS, HEADS, LENGTH, CHANNELS = 2, 3, 2, 32, 32
SLOT, POSITION = np.array([0, 2, 1], np.int32), np.array([5, 17, 31], np.int32)
ROWS = np.random.default_rng(0).standard_normal((3, HEADS, CHANNELS)).astype(np.float32)


def caches() -> tuple[np.ndarray, np.ndarray]:
    front = (LAYERS, SLOTS, HEADS)
    keys = np.zeros((*front, LENGTH // 16, CHANNELS, 16), np.float16)
    return keys, np.zeros((*front, LENGTH, CHANNELS), np.float16)


@td.jit
def layer(keys: Array, values: Array, rows: Array, index: Array) -> tuple[Array, Array, Array]:
    keys = put_cache(keys, rows, index, SLOT, POSITION)
    values = put_cache(values, rows * 2, index, SLOT, POSITION)
    return td.sum(keys.astype(td.float32)) + td.sum(values.astype(td.float32)), keys, values


def network(keys: Array, values: Array, rows: Array) -> tuple[Array, Array, Array]:
    total = td.zeros(())
    for i in range(LAYERS):
        part, keys, values = layer(keys, values, rows, np.int32(i))
        total = total + part
    return total, keys, values


def expected() -> tuple[np.ndarray, np.ndarray]:
    keys, values = caches()
    for t, (s, p) in enumerate(zip(SLOT, POSITION, strict=True)):
        keys[:, s, :, p // 16, :, p % 16] = ROWS[t]
        values[:, s, :, p] = 2 * ROWS[t]
    return keys, values


def test_updates_reach_through_calls_and_leave_the_callers_arrays_alone() -> None:
    given = [td.asarray(c) for c in caches()]
    _, keys, values = td.jit(network)(*given, ROWS)
    np.testing.assert_array_equal(np.asarray(keys), expected()[0])
    np.testing.assert_array_equal(np.asarray(values), expected()[1])
    assert not any(np.asarray(c).any() for c in given)


@pytest.mark.parametrize("rows, kernels", [(100, 0), (5000, 1)])
def test_a_large_argument_is_copied_by_a_kernel(rows: int, kernels: int) -> None:
    x = np.arange(rows * 20, dtype=np.float32).reshape(rows, 20)
    given, places = td.asarray(x), np.array([3, 3, 99])

    def change(x: Array, u: Array) -> tuple[Array, Array]:
        return x.at[places].add(u), td.sum(x)

    for donated in ((), (0,)):
        call = td.jit(change, donate_argnums=donated)
        names = [k.name for k in td.explain(call)(given, td.ones((3, 20))).kernels]
        assert sum(name.startswith("copy") for name in names) == (0 if donated else kernels)
    want = x.copy()
    np.add.at(want, places, 1.0)
    for _ in range(2):
        changed, total = td.jit(change)(given, td.ones((3, 20)))
        np.testing.assert_array_equal(np.asarray(changed), want)
        np.testing.assert_allclose(float(total), x.sum(dtype=np.float64), rtol=1e-6)
        np.testing.assert_array_equal(np.asarray(given), x)


def test_a_donated_array_is_changed_where_it_lies() -> None:
    owned = td.jit(lambda a, b: (a + 0, b + 0))(*caches())
    places = [a._storage.ptr for a in owned]
    _, keys, values = td.jit(network, donate_argnums=(0, 1))(*owned, ROWS)
    assert [keys._storage.ptr, values._storage.ptr] == places
    assert all(a.is_deleted for a in owned)
    np.testing.assert_array_equal(np.asarray(keys), expected()[0])


def test_what_others_still_need_is_copied_first() -> None:
    def twice(keys: Array, rows: Array) -> tuple[Array, Array, Array]:
        zero = np.int32(0)
        return (
            put_cache(keys, rows, zero, SLOT, POSITION),
            put_cache(keys, -rows, zero, SLOT, POSITION),
            keys,
        )

    first, second, old = (np.asarray(a) for a in td.jit(twice)(caches()[0], ROWS))
    np.testing.assert_array_equal(first, -second)
    assert first.any() and not old.any()


def test_a_constant_and_a_reshaped_array_can_be_updated() -> None:
    _, values = caches()
    inside = td.jit(lambda rows: put_cache(td.asarray(values), rows, np.int32(1), SLOT, POSITION))
    flat = td.jit(
        lambda v, rows: (
            put_cache(td.reshape(v, values.shape), rows, np.int32(1), SLOT, POSITION),
            v.sum(),
        ),
        donate_argnums=0,
    )
    want = values.copy()
    want[1, SLOT, :, POSITION] = ROWS
    np.testing.assert_array_equal(np.asarray(inside(ROWS)), want)
    np.testing.assert_array_equal(np.asarray(inside(ROWS)), want)
    np.testing.assert_array_equal(np.asarray(flat(td.asarray(values.reshape(-1)), ROWS)[0]), want)


def test_an_update_can_be_reshaped_for_others() -> None:
    x, place = np.arange(48, dtype=np.float32).reshape(6, 8), td.asarray(2)
    changed = td.jit(lambda x, i: x.at[i].add(1).at[-1, ::2].max(44.5))(td.asarray(x), place)
    want = x + (np.arange(6) == 2)[:, None]
    want[-1, ::2] = np.maximum(want[-1, ::2], 44.5)
    np.testing.assert_array_equal(np.asarray(changed), want)

    solved = td.jit(lambda a, b: td.linalg.solve(a, td.zeros(6).at[1:-1].set(b)))(
        td.eye(6), td.ones(4)
    )
    np.testing.assert_array_equal(np.asarray(solved), [0, 1, 1, 1, 1, 0])


@pytest.mark.parametrize("position", [-1, 32])
def test_positions_outside_the_cache_are_errors(position: int) -> None:
    places = np.array([5, 17, position], np.int32)
    put = td.jit(lambda v, rows: put_cache(v, rows, np.int32(0), SLOT, places))
    with pytest.raises(IndexError, match="put_cache"):
        put(caches()[1], ROWS)


@pytest.mark.parametrize("is_interleaved", [True, False], ids=["keys", "values"])
def test_a_cache_of_eight_bits_holds_codes_and_scales(is_interleaved: bool) -> None:
    front, channels = (LAYERS, SLOTS, HEADS), 64
    rows = np.random.default_rng(1).standard_normal((3, HEADS, channels)).astype(np.float32)
    shape = (*front, LENGTH // 16, channels, 16) if is_interleaved else (*front, LENGTH, channels)
    small = (*front, LENGTH // 16, 2, 16) if is_interleaved else (*front, LENGTH, 2)

    def both(codes: Array, scales: Array, rows: Array) -> tuple[Array, Array]:
        where = (np.int32(1), SLOT, POSITION)
        return put_cache(codes, rows, *where), put_scales(scales, rows, *where)

    given = np.zeros(shape, np.int8), np.zeros(small, np.float16), rows
    codes, scales = (np.asarray(a) for a in td.jit(both)(*given))
    for found, want in zip((codes, scales), both(*map(td.asarray, given)), strict=True):
        np.testing.assert_array_equal(found, np.asarray(want))
    for t, (s, p) in enumerate(zip(SLOT, POSITION, strict=True)):
        at = (
            (1, s, slice(None), p // 16, slice(None), p % 16)
            if is_interleaved
            else (1, s, slice(None), p)
        )
        back = codes[at].astype(np.float32) * np.repeat(scales[at].astype(np.float32), 32, axis=-1)
        assert np.abs(back - rows[t]).max() < np.abs(rows[t]).max() / 200


def test_a_row_that_is_read_before_the_update_needs_no_copy(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """In every step a row of the carried buffer is computed from another one; the buffer itself is
    never copied."""

    def fill(rows: Array) -> Array:
        def step(rows: Array, i: Array) -> tuple[Array, None]:
            before = dynamic_slice(rows, td.stack([i - 1, 0]), sizes=(1, 5))
            return dynamic_update_slice(rows, before * 2 + 1, td.stack([i, 0])), None

        return td.scan(step, rows, td.arange(1, 8, dtype=td.int32))[0]

    program = compile_graph(td.trace(fill)(td.zeros((8, 5))))
    (kernel,) = program.schedule.steps
    assert isinstance(kernel, Launch) and kernel.updates == kernel.writes
    monkeypatch.setattr(plan_loop, "is_small", lambda *bodies: False)
    (loop,) = compile_graph(td.trace(fill)(td.zeros((8, 5)))).schedule.steps
    assert isinstance(loop, Loop)
    assert loop.outputs[0] is loop.inputs[0]  # where it lay
    assert not any(
        slot.kind == "temp" and slot.type.size == 40
        for step in loop.body.steps
        for slot in step.writes
    )
    want = np.repeat(2.0 ** np.arange(8) - 1, 5).reshape(8, 5)
    np.testing.assert_array_equal(np.asarray(td.jit(fill)(td.zeros((8, 5)))), want)


def test_a_row_that_is_read_after_the_update_is_the_old_one() -> None:
    def both(x: Array) -> tuple[Array, Array]:
        new = dynamic_update_slice(x, td.ones(2), td.asarray([1]))
        return new, dynamic_slice(x, td.sum(new, keepdims=True).astype(td.int32) - 2, sizes=(3,))

    new, old = td.jit(both)(td.zeros(6))
    assert np.asarray(new).tolist() == [0, 1, 1, 0, 0, 0] and np.asarray(old).tolist() == [0, 0, 0]


def test_calls_whose_argument_is_read_and_updated() -> None:
    @td.jit
    def inner(x: Array) -> tuple[Array, Array]:
        return dynamic_update_slice(x, td.ones(2), td.asarray([1])), td.sum(x * 2)

    new, total = td.jit(lambda x: inner(x + 1))(td.zeros(6))
    assert np.asarray(new).tolist() == [1, 1, 1, 1, 1, 1] and total.item() == 12


def test_loops_keep_what_they_must_not_change() -> None:
    def f(x: Array, y: Array) -> tuple[Array, ...]:
        def step(c: tuple[Array, Array], _: None) -> tuple[tuple[Array, Array], Array]:
            a, b = c
            return (
                dynamic_update_slice(b, td.ones(1), td.asarray([0])),
                a + 1,
            ), dynamic_update_slice(x, a[:1], td.asarray([3]))

        (a, b), rows = td.scan(step, (x, y), length=3)
        picked = td.switch(
            1,
            [lambda v: (v, v), lambda v: (dynamic_update_slice(v, td.ones(1), td.asarray([0])), v)],
            x,
        )
        return a, b, rows, *picked, x

    given = np.arange(5, dtype=np.float32), np.full(5, 7, np.float32)
    for got, want in zip(td.jit(f)(*given), f(*map(td.asarray, given)), strict=True):
        np.testing.assert_array_equal(np.asarray(got), np.asarray(want))


def test_a_carry_changed_in_place_may_be_a_result_of_every_step_as_well() -> None:
    def f(x: Array, y: Array) -> tuple[Array, Array, Array]:
        def step(x: Array, i: Array) -> tuple[Array, tuple[Array, Array]]:
            x = td.dynamic_update_index_in_dim(x, td.dynamic_index_in_dim(y, i) * 2, i + 1, 0)
            return x, (x, x)

        final, (rows, same) = td.scan(step, x, td.arange(3, dtype=td.int32))
        return final, rows, same

    @td.jit
    def twice(x: Array) -> tuple[Array, Array]:
        x = dynamic_update_slice(x, td.ones(1), td.asarray([1]))
        return x, x

    given = np.arange(4, dtype=np.float32), np.full(4, 7, np.float32)
    for got, want in zip(td.jit(f)(*given), f(*map(td.asarray, given)), strict=True):
        np.testing.assert_array_equal(np.asarray(got), np.asarray(want))
    for got in td.jit(lambda x: twice(x + 1))(given[0]):
        assert np.asarray(got).tolist() == [1, 1, 3, 4]
