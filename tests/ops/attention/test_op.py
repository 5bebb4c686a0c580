"""ops.attention: what it means, by the vectors of the specification; its types; its errors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.ops.caches import as_floats, interleaved, random_cache
from tetrad.core.dtypes import DType, bf16, f16, f32, f64, i8, i32
from tetrad.core.errors import BoundsError, DtypeError, ShapeError
from tetrad.core.sizes import Dim, Size
from tetrad.core.types import ArrayType
from tetrad.ops.attention.op import attention

Array = np.ndarray
D = 16
HALF = 2**-0.5  # the scale of two channels
Q = [[1, 0], [0, 1], [1, 1]]
K = [[1, 0], [0, 1], [1, -1]]
V = [[1, 2], [3, 4], [5, 6]]


def padded(rows: list[list[float]], count: int, dtype: DType) -> Array:
    made = np.zeros((count, D), dtype.np)
    made[: len(rows), :2] = rows
    return made


def two_channels(
    q: list[list[float]], k: list[list[float]], v: list[list[float]], **given: Any
) -> Array:
    """Attention of one head whose other channels are zero."""
    keys, values = (padded(rows, 256, f32).reshape(1, 1, 1, 256, D) for rows in (k, v))
    queries = padded(q, len(q), f32).reshape(len(q), -1, D)
    place = np.int32(given.pop("position", range(len(q))))
    slots = np.zeros(len(q), np.int32)
    return attention(queries, interleaved(keys), values, np.int32(0), slots, place, **given)[
        :, 0, :2
    ]


@pytest.mark.parametrize(
    ("settings", "want"),
    [
        ({}, [[1, 2], [2.339523, 3.339523], [2.593327, 3.593327]]),
        ({"position": [2, 2, 2]}, [[3, 4], [2.712068, 3.712068], [2.593327, 3.593327]]),
        ({"window": 1}, V),
        ({"window": 2}, [[1, 2], [2.339523, 3.339523], [3.660477, 4.660477]]),
        ({"window": 3}, [[1, 2], [2.339523, 3.339523], [2.593327, 3.593327]]),
    ],
)
def test_masks_of_the_specification(settings: dict[str, Any], want: list[list[float]]) -> None:
    np.testing.assert_allclose(two_channels(Q, K, V, scale=HALF, **settings), want, atol=1e-6)


def test_scale_and_softcap_of_the_specification() -> None:
    eye, values, both = [[1, 0], [0, 1]], [[1, 2], [3, 4]], [1, 1]
    scaled = two_channels(eye, eye, values, position=both, scale=1.0)
    np.testing.assert_allclose(scaled, [[1.537883, 2.537883], [2.462117, 3.462117]], atol=1e-6)
    capped = two_channels(eye, eye, values, position=both, scale=HALF, softcap=1.0)
    np.testing.assert_allclose(capped, [[1.704639, 2.704639], [2.295361, 3.295361]], atol=1e-6)


def test_heads_share_the_keys_of_their_group() -> None:
    rng = np.random.default_rng(0)
    k, v = random_cache(rng, f32, (1, 1, 2, 256, D))
    q = rng.standard_normal((1, 6, D)).astype(np.float32)
    numbers = np.int32(0), np.int32([0]), np.int32([99])
    together = attention(q, k, v, *numbers, scale=0.25)
    for head in range(6):
        one = slice(head // 3, head // 3 + 1)
        alone = attention(q[:, head : head + 1], k[:, :, one], v[:, :, one], *numbers, scale=0.25)
        np.testing.assert_array_equal(alone[:, 0], together[:, head])


@pytest.mark.parametrize("dtype", [f16, bf16, i8], ids=str)
def test_elements_are_what_their_storage_says(dtype: DType) -> None:
    rng = np.random.default_rng(1)
    cache = random_cache(rng, dtype, (2, 2, 1, 256, 32))
    q = rng.standard_normal((3, 2, 32)).astype(np.float32)
    numbers = np.int32(1), np.int32([0, 1, 1]), np.int32([255, 0, 31])
    got = attention(q, *cache[:2], *numbers, *cache[2:], scale=0.2)
    np.testing.assert_allclose(
        got, attention(q, *as_floats(cache), *numbers, scale=0.2), rtol=1e-6, atol=1e-7
    )


def test_padding_gives_zeros() -> None:
    got = two_channels(Q, K, V, position=[-1, 1, -7], scale=HALF)
    np.testing.assert_array_equal(got[[0, 2]], np.zeros((2, 2)))
    assert got[1].all()


def test_a_key_that_is_not_seen_does_not_matter() -> None:
    broken = [*V[:2], [np.nan, np.inf]]
    np.testing.assert_array_equal(
        two_channels(Q, K, V, scale=HALF)[:2], two_channels(Q, K, broken, scale=HALF)[:2]
    )
    assert np.isnan(two_channels(Q, K, broken, scale=HALF)[2, 0])


@pytest.mark.parametrize(
    ("layer", "slot", "position", "text"),
    [
        (1, 0, 0, "layer 1 is out of range: the cache has 1 layers"),
        (-1, 0, 0, "layer -1 is out of range"),
        (0, 2, 0, "slot 2 is out of range: the cache has 2 slots"),
        (0, -1, 0, "slot -1 is out of range"),
        (0, 0, 256, "position 256 is out of range: the cache has 256 positions"),
    ],
)
def test_tokens_lie_in_the_cache(layer: int, slot: int, position: int, text: str) -> None:
    k, v = random_cache(np.random.default_rng(2), f16, (1, 2, 1, 256, D))
    with pytest.raises(BoundsError, match=f"^attention: {text}"):
        attention(
            np.ones((1, 1, D), np.float32),
            k,
            v,
            np.int32(layer),
            np.int32([slot]),
            np.int32([position]),
            scale=1,
        )


# -- types -----------------------------------------------------------------------------------------


def types(
    tokens: Size = 5,
    heads: int = 6,
    channels: int = 32,
    keys: int = 512,
    dtype: DType = f16,
    groups: int = 2,
) -> list[ArrayType]:
    outer = (1, 3, groups)
    k, v = (
        ArrayType(dtype, (*outer, *rest)) for rest in ((keys // 16, channels, 16), (keys, channels))
    )
    numbers = [ArrayType(i32, ()), ArrayType(i32, (tokens,)), ArrayType(i32, (tokens,))]
    return [ArrayType(f32, (tokens, heads, channels)), k, v, *numbers]


def scales() -> list[ArrayType]:
    return [ArrayType(f16, (1, 3, 2, 32, 1, 16)), ArrayType(f16, (1, 3, 2, 512, 1))]


def test_the_result_has_the_type_of_the_queries() -> None:
    seq = Dim("seq")
    assert attention.type(*types(seq), scale=1.0) == ArrayType(f32, (seq, 6, 32))
    assert attention.type(*types(dtype=i8), *scales(), scale=1.0) == ArrayType(f32, (5, 6, 32))


def replaced(place: int, kind: ArrayType) -> list[ArrayType]:
    made = types()
    made[place] = kind
    return made


@pytest.mark.parametrize(
    ("given", "settings", "error", "text"),
    [
        (replaced(0, ArrayType(f64, (5, 6, 32))), {}, DtypeError, "takes f32, got f64"),
        (types(dtype=i32), {}, DtypeError, "takes f16, bf16, f32, i8, got i32"),
        (replaced(0, ArrayType(f32, (5, 32))), {}, ShapeError, "expected q [T,H,D]"),
        (
            types(keys=528),
            {},
            ShapeError,
            "keys come in 256s and channels in 16s, got f16[1,3,2,528,32]",
        ),
        (types(channels=24), {}, ShapeError, "keys come in 256s and channels in 16s"),
        (
            replaced(1, ArrayType(f16, (1, 3, 2, 32, 16, 32))),
            {},
            ShapeError,
            "k and v are not one cache",
        ),
        (
            replaced(1, ArrayType(f32, (1, 3, 2, 32, 32, 16))),
            {},
            ShapeError,
            "k and v are not one cache",
        ),
        (types(heads=5), {}, ShapeError, "q f32[5,5,32] does not fit v f16[1,3,2,512,32]"),
        (replaced(4, ArrayType(i32, (4,))), {}, ShapeError, "a slot and a position for each token"),
        (replaced(5, ArrayType(f32, (5,))), {}, DtypeError, "takes i32, i64, got f32"),
        ([*types(), *scales()], {}, DtypeError, "only a cache of i8 has scales"),
        (types(dtype=i8), {}, ShapeError, "a cache of i8 needs a scale for every 32 channels"),
        (types(), {"window": -1}, ShapeError, "must not be negative, got -1 and 0.0"),
        (types(), {"softcap": -1.0}, ShapeError, "must not be negative, got 0 and -1.0"),
    ],
)
def test_type_rules_say_what_is_wrong(
    given: list[ArrayType], settings: dict[str, Any], error: type[Exception], text: str
) -> None:
    with pytest.raises(error) as caught:
        attention.type(*given, scale=1.0, **settings)
    assert str(caught.value).startswith("attention: ")
    assert text in str(caught.value)


def test_only_the_number_of_tokens_may_be_a_dim() -> None:
    keys = Dim("keys", max=4) * 256
    with pytest.raises(ShapeError, match="only the number of tokens may be a Dim"):
        attention.type(*replaced(2, ArrayType(f16, (1, 3, 2, keys, 32))), scale=1.0)
