"""Attention, compiled: what NumPy says, and the same bits however tokens, blocks and threads are
put together."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import pytest

import tetrad as td
from tests.compiled import difference, run, run_on_evaluator
from tests.ops.caches import as_floats, interleaved, random_cache
from tetrad.backends.cpu.executable import Executable
from tetrad.backends.cpu.isa import LEVELS
from tetrad.backends.cpu.isa.x86_64 import V3, V4
from tetrad.backends.cpu.llvm import assembly, compile_object
from tetrad.backends.llvm.module import emit_module
from tetrad.backends.llvm.target import Target
from tetrad.compiler.driver import compile_graph
from tetrad.compiler.pipeline import lower_graph
from tetrad.core.dtypes import DType, as_dtype, bf16, f16, f32, i8, i32
from tetrad.core.sizes import Dim, Size
from tetrad.core.types import ArrayType
from tetrad.graph.build import make_graph, make_parameter
from tetrad.graph.nodes import Graph
from tetrad.kernel.verify import verify
from tetrad.lower.lower import Lowerer
from tetrad.ops.attention.kernel import Split, heads_alone, split_of
from tetrad.ops.attention.op import attention
from tetrad.schedule.nodes import Launch, programs_of

Array = np.ndarray
tokens = Dim("tokens", max=64)
EDGES = (0, 15, 16, 255, 256, 257, 511)


@dataclass(frozen=True)
class Kind:
    """What a program is compiled for."""

    heads: int = 3
    groups: int = 1
    channels: int = 16
    keys: int = 512
    slots: int = 1
    layers: int = 1
    dtype: DType = f16
    window: int = 0
    softcap: float = 0.0

    @property
    def cache(self) -> tuple[int, ...]:
        return (self.layers, self.slots, self.groups, self.keys, self.channels)

    @property
    def settings(self) -> dict[str, Any]:
        return {"scale": self.channels**-0.5, "window": self.window, "softcap": self.softcap}


def graph_of(kind: Kind, count: Size) -> Graph:
    numbers = [ArrayType(i32, ()), ArrayType(i32, (count,)), ArrayType(i32, (count,))]
    k, v, *scales = (
        ArrayType(as_dtype(a.dtype), a.shape)
        for a in random_cache(np.random.default_rng(0), kind.dtype, kind.cache)
    )
    types = [ArrayType(f32, (count, kind.heads, kind.channels)), k, v, *numbers, *scales]
    inputs = [make_parameter(t, i, fresh=True) for i, t in enumerate(types)]
    return make_graph("attention", inputs, [attention(*inputs, **kind.settings)])


@cache
def compiled(kind: Kind, count: Size = tokens) -> Executable:
    return compile_graph(graph_of(kind, count))


@cache
def jitted(kind: Kind) -> Any:
    return td.jit(lambda *args: attention(*args, **kind.settings))


@dataclass(frozen=True)
class Data:
    """Operands of one call; `only` picks tokens of it."""

    q: Array
    cache: tuple[Array, ...]
    layer: int
    slot: Array
    position: Array

    def only(self, which: Any) -> Data:
        return Data(self.q[which], self.cache, self.layer, self.slot[which], self.position[which])

    def arrays(self) -> list[Array]:
        k, v, *scales = self.cache
        numbers = [np.array(self.layer, np.int32), self.slot, self.position]
        return [np.ascontiguousarray(a).reshape(a.shape) for a in (self.q, k, v, *numbers, *scales)]


def data_of(kind: Kind, position: Any, slot: Any = None, seed: int = 0) -> Data:
    rng, place = np.random.default_rng(seed), np.array(position, np.int32)
    q = rng.standard_normal((place.size, kind.heads, kind.channels)).astype(np.float32)
    slots = np.zeros(place.size, np.int32) if slot is None else np.array(slot, np.int32)
    return Data(q, tuple(random_cache(rng, kind.dtype, kind.cache)), kind.layers - 1, slots, place)


def result(kind: Kind, data: Data, count: Size = tokens, threads: int = 1) -> Array:
    dims = {} if isinstance(count, int) else {"tokens": data.q.shape[0]}
    return run(compiled(kind, count), data.arrays(), dims, threads)[0]


def assert_means_the_same(got: Array, kind: Kind, data: Data) -> None:
    """Within 32 units in the last place of the largest value of the cache, weighed by how steep exp
    may be."""
    want = attention(*data.arrays(), **kind.settings)
    largest = np.abs(as_floats(list(data.cache))[1]).max()
    np.testing.assert_allclose(got, want, rtol=0, atol=32 * 2.0**-23 * largest)


# -- against NumPy ---------------------------------------------------------------------------------


@pytest.mark.parametrize("window", [0, 1, 17, 200, 256, 300, 1000])
def test_every_mask(window: int) -> None:
    kind = Kind(window=window)
    data = data_of(kind, EDGES)
    assert_means_the_same(result(kind, data), kind, data)


@pytest.mark.parametrize(("heads", "groups"), [(1, 1), (4, 1), (7, 1), (8, 1), (13, 1), (6, 3)])
def test_heads_of_a_group(heads: int, groups: int) -> None:
    kind = Kind(heads, groups, layers=2)
    for count, positions in ((tokens, range(250, 263)), (1, [300])):
        data = data_of(kind, positions)
        got = result(kind, data, count)
        assert_means_the_same(got, kind, data)


@pytest.mark.parametrize("channels", [16, 48, 64, 80])
def test_channels(channels: int) -> None:
    kind = Kind(channels=channels)
    data = data_of(kind, range(300, 309))
    assert_means_the_same(result(kind, data), kind, data)


def test_softcap() -> None:
    kind = Kind(softcap=0.7, window=270)
    data = data_of(kind, EDGES)
    assert_means_the_same(result(kind, data), kind, data)


def test_through_jit() -> None:
    kind = Kind()
    data = data_of(kind, EDGES)
    got = jitted(kind)(*data.arrays())
    assert difference(np.asarray(got), result(kind, data)) is None


@pytest.mark.parametrize("dtype", [f16, i8], ids=str)
def test_bisect_finds_every_station_in_order(dtype: DType) -> None:
    kind = Kind(2, channels=32, dtype=dtype)
    story = str(
        td.bisect(lambda *args: attention(*args, **kind.settings))(*data_of(kind, [300]).arrays())
    )
    assert "every station gives the same answer" in story, story


@pytest.mark.parametrize(
    "kind", [Kind(2, window=100, slots=2), Kind(1, channels=32, dtype=i8)], ids=["mixed", "i8"]
)
def test_machine_code_is_the_evaluator(kind: Kind) -> None:
    data = data_of(kind, [0, 256, 257, 258, 30], np.arange(5) // 4 % kind.slots)
    for count, part in ((tokens, data), (2, data.only(slice(1, 3)))):
        dims = {} if isinstance(count, int) else {"tokens": 5}
        program = compiled(kind, count)
        for each in programs_of(program.schedule):
            verify(each)
        (want,) = run_on_evaluator(program, part.arrays(), dims)
        assert difference(result(kind, part, count), want) is None


# -- the same bits ---------------------------------------------------------------------------------


@pytest.mark.parametrize("window", [0, 260])
@pytest.mark.parametrize("slots", [1, 3])
def test_a_token_does_not_depend_on_the_tokens_beside_it(slots: int, window: int) -> None:
    """One call of nine tokens, nine calls of one, and everything between, spread over workgroups or
    not."""
    kind = Kind(slots=slots, window=window)
    data = data_of(kind, [0, 255, 256, 257, 511, 3, 300, 301, 302], np.arange(9) * 5 % 7 % slots)
    whole = result(kind, data, threads=2)
    for t in range(9):
        assert difference(result(kind, data.only([t]), 1), whole[[t]]) is None, t
    for count in range(1, 10):
        few = data.only(slice(9 - count, 9))
        assert difference(result(kind, few), whole[9 - count :]) is None, count
    for count in (2, 4, 5, 9):
        few = data.only(slice(9 - count, 9))
        assert difference(result(kind, few, count), whole[9 - count :]) is None, count


def test_tiles_of_mixed_slots() -> None:
    kind = Kind(1, slots=4)
    rng = np.random.default_rng(8)
    slot, position = rng.integers(0, 4, 29), rng.integers(0, 512, 29)
    data = data_of(kind, position, slot)
    got = result(kind, data)
    assert_means_the_same(got, kind, data)
    order = np.lexsort((position, slot))  # now tiles of one slot
    assert difference(result(kind, data.only(order)), got[order]) is None


@pytest.mark.parametrize("count", [tokens, 1], ids=["whole", "spread"])
def test_threads_change_nothing(count: Size) -> None:
    kind = Kind()
    data = data_of(kind, range(499, 500) if count == 1 else range(200, 264))
    alone = result(kind, data, count)
    for threads in (2, 3):
        assert difference(result(kind, data, count, threads), alone) is None


@pytest.mark.parametrize("count", [tokens, 3], ids=["whole", "spread"])
def test_room_for_more_keys_changes_nothing(count: Size) -> None:
    kind, roomy = Kind(slots=2), Kind(slots=3, keys=2048)
    data = data_of(kind, [10, 511, 256], [0, 1, 1])
    rng, wide = np.random.default_rng(3), []
    for array, other in zip(data.cache, random_cache(rng, f16, roomy.cache), strict=True):
        other[:, :2, :, : array.shape[3]] = array
        wide.append(other)
    more = Data(data.q, tuple(wide), data.layer, data.slot, data.position)
    assert difference(result(roomy, more, count), result(kind, data, count)) is None


@pytest.mark.parametrize("dtype", [f16, bf16, i8], ids=str)
def test_storage_changes_nothing_but_the_elements(dtype: DType) -> None:
    kind, plain = Kind(channels=32, dtype=dtype), Kind(channels=32, dtype=f32)
    data = data_of(kind, EDGES)
    same = Data(data.q, tuple(as_floats(list(data.cache))), data.layer, data.slot, data.position)
    assert difference(result(kind, data), result(plain, same)) is None
    assert difference(result(kind, data.only([6]), 1), result(plain, same.only([6]), 1)) is None


# -- special values --------------------------------------------------------------------------------


@pytest.mark.parametrize("which", [0, 1], ids=["key", "value"])
@pytest.mark.parametrize("broken", [np.nan, np.inf])
def test_a_broken_key_or_value_reaches_only_those_who_see_it(which: int, broken: float) -> None:
    kind = Kind(1, dtype=f32, window=300)
    data = data_of(kind, [257, 258, 259, 260, 261, 262, 511])
    spoilt = [a.copy() for a in data.cache]
    place = (0, 0, 0, 259 // 16, 0, 259 % 16) if which == 0 else (0, 0, 0, 259, 0)
    spoilt[which][place] = broken
    worse = Data(data.q, tuple(spoilt), 0, data.slot, data.position)
    before, after = result(kind, data), result(kind, worse)
    assert difference(after[:2], before[:2]) is None
    assert not np.isfinite(after[2:, 0, 0]).any() or which == 0
    np.testing.assert_array_equal(
        np.isnan(after), np.isnan(attention(*worse.arrays(), **kind.settings))
    )
    for t in (1, 3, 6):
        assert difference(result(kind, worse.only([t]), 1), after[[t]]) is None


@pytest.mark.parametrize("count", [tokens, 1], ids=["whole", "spread"])
def test_a_block_of_scores_at_minus_infinity_counts_nothing(count: Size) -> None:
    kind = Kind(1, dtype=f32)
    keys, values = np.full((2, 1, 1, 1, 512, 16), 0.0, np.float32)
    keys[..., :256, 0], values[..., 300:, 1] = -np.inf, 1.0
    data = Data(
        np.ones((1, 1, 16), np.float32),
        (interleaved(keys), values),
        0,
        np.int32([0]),
        np.int32([511]),
    )
    got = result(kind, data, count)
    np.testing.assert_allclose(got[0, 0, :2], [0.0, 212 / 256], rtol=1e-6)


@pytest.mark.parametrize("count", [tokens, 4], ids=["whole", "spread"])
def test_padding_gives_zeros(count: Size) -> None:
    kind = Kind()
    data = data_of(kind, [-1, 40, -5, 41])
    got = result(kind, data, count)
    assert_means_the_same(got, kind, data)
    np.testing.assert_array_equal(got[[0, 2]], np.zeros_like(got[[0, 2]]))


@pytest.mark.parametrize("count", [5, 1], ids=["whole", "spread"])
@pytest.mark.parametrize(
    ("name", "value"), [("layer", 1), ("layer", -1), ("slot", 2), ("slot", -1), ("position", 512)]
)
def test_tokens_lie_in_the_cache(name: str, value: int, count: int) -> None:
    kind = Kind(slots=2)
    data = data_of(kind, [7] * count)
    arrays = data.arrays()
    arrays[{"layer": 3, "slot": 4, "position": 5}[name]].reshape(-1)[-1] = value
    with pytest.raises(IndexError, match=f"attention: {name} {value} is out of range"):
        jitted(kind)(*arrays)


# -- the code --------------------------------------------------------------------------------------


def test_tiles_are_full() -> None:
    assert split_of(3, tokens, 6) == Split(2, 3)
    assert split_of(4, tokens, 6) == Split(3, 2)
    assert split_of(7, tokens, 6) == Split(6, 1)
    assert split_of(8, tokens, 12) == Split(3, 4)
    assert split_of(3, 1, 6) == Split(1, 3)
    assert [heads_alone(shared, 6) for shared in (1, 6, 7, 8, 13)] == [1, 6, 4, 4, 5]


def launches(target: Target, kind: Kind, count: Size) -> list[Launch]:
    return [
        step
        for step in lower_graph(graph_of(kind, count), Lowerer(target.machine)).steps
        if isinstance(step, Launch)
    ]


def test_blocks_nobody_sees_are_left_alone() -> None:
    """Checks then expect no results there."""
    blocks, join = launches(V3, Kind(keys=1024), 1)
    assert blocks.updates == blocks.writes and not join.updates


@pytest.mark.parametrize("target", LEVELS.values(), ids=lambda target: target.name)
def test_every_level_compiles(target: Target) -> None:
    for count in (tokens, 1):
        for launch in launches(target, Kind(window=9), count):
            assert compile_object(emit_module({"attention": launch.program}, target), target)


@pytest.mark.parametrize("count", [tokens, 1], ids=["whole", "spread"])
@pytest.mark.parametrize("target", [V3, V4], ids=lambda target: target.name)
def test_inner_loops_do_not_spill(target: Target, count: Size) -> None:
    launch, *_ = launches(target, Kind(channels=64), count)
    text = assembly(emit_module({"attention": launch.program}, target), target)
    converting = [b for b in re.split(r"^\.LBB\w+:.*$", text, flags=re.M) if "vcvtph2ps" in b]
    loops = [b for b in converting if b.count("vfmadd") >= 4 * 8]  # unrolled, and busy
    assert len(loops) >= 2  # scores and values
    for loop in loops:
        lines = loop.splitlines()
        last = max(i for i, line in enumerate(lines) if "vfmadd" in line)
        assert [
            line for line in lines[:last] if "mm" in line and re.search(r"\(%r[sb]p\)", line)
        ] == []


@pytest.mark.parametrize("dtype", [f16, f32, i8], ids=str)
@pytest.mark.parametrize("window", [0, 5])
def test_keys_that_a_token_does_not_see_have_no_effect_be_they_nan(
    dtype: DType, window: int
) -> None:
    """One that some tokens of a chunk see, and places that nobody has written yet."""
    kind = Kind(dtype=dtype, window=window, channels=32, heads=4, groups=2)
    data = data_of(kind, range(300, 320))
    k, v, *scales = made = [a.copy() for a in data.cache]
    keys, values = scales or (k, v)
    for at in (310, *range(320, 400)):
        keys[..., at // 16, :, at % 16], values[..., at, :] = np.nan, np.inf
    dirty = Data(data.q, tuple(made), data.layer, data.slot, data.position)
    hidden = [i for i in range(20) if i < 10 or (window and i >= 10 + window)]
    np.testing.assert_array_equal(result(kind, dirty)[hidden], result(kind, data)[hidden])
    eager = np.asarray(attention(*dirty.arrays(), **kind.settings))
    assert np.isfinite(eager[hidden]).all() and np.isnan(result(kind, dirty)[10]).all()
