"""The reference of the language models obeys the laws it should, and gives the logits that
transformers gave."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.models.reference import (
    Layer,
    Rope,
    feed_forward,
    forward,
    gelu_tanh,
    is_windowed,
    mixture,
    plain_speeds,
    read_config,
    rms_norm,
    rotate,
    route,
    silu,
    soft_cap,
    visible,
)
from tests.models.tiny import (
    CONTROLS,
    MERGES,
    TINY,
    byte_letters,
    llama3_factors,
    prompt,
    tiny_model,
)

Array = np.ndarray
Tensors = dict[str, Array]

# The logits of words 0 to 3 after prompt(48), as `against_transformers.py` printed them
# (transformers 5.22.2).
KNOWN_LOGITS: list[tuple[str, dict[str, Any], list[float]]] = [
    ("llama", {}, [-0.7675, 2.0358, 2.3149, -1.5017]),
    ("llama", {"tied": True, "kv_heads": 4}, [-0.6282, 3.1826, -1.4057, 0.3414]),
    ("llama", {"llama3": True, "rope_base": 500000.0}, [-0.1719, -0.0531, 0.5307, 0.1331]),
    ("llama", {"head_size": 32}, [-0.8703, 1.8407, 4.3470, -1.8454]),
    ("llama", {"window": 9}, [-1.0259, 0.4550, -0.1994, 0.1333]),
    ("mixtral", {}, [1.4730, -0.3571, -0.7450, -0.2529]),
    ("qwen2", {}, [3.7244, -1.4055, 1.4761, -2.3755]),
    ("qwen3", {}, [3.6700, 0.3169, 1.6908, -0.1775]),
    ("qwen3", {"rope_scaling": ("yarn", 4.0)}, [1.1844, 0.6114, 1.8524, 0.6780]),
    ("qwen3moe", {}, [0.3915, 2.2020, 2.2498, 0.0153]),
    ("phi3", {}, [-1.2148, 1.3041, 1.8207, 1.8956]),
    ("phi3", {"rope_size": 8, "tied": True}, [4.7327, 1.9798, 0.2200, 0.9512]),
    ("gemma2", {}, [-1.8512, 2.0606, 2.4169, -1.0384]),
    ("gemma2", {"layers": 46}, [0.4121, 1.3511, 1.4143, -2.6653]),
    ("gemma3", {}, [-0.0416, 3.0956, -0.3667, -3.9833]),
]
every_model = pytest.mark.parametrize("arch", TINY)


@pytest.mark.parametrize(("arch", "overrides", "known"), KNOWN_LOGITS, ids=str)
def test_logits_are_those_of_transformers(
    arch: str, overrides: dict[str, Any], known: list[float]
) -> None:
    logits = forward(*tiny_model(arch, **overrides), prompt(48))
    np.testing.assert_allclose(logits[-1, :4], known, atol=2e-4)


# -- tiny models -----------------------------------------------------------------------------------


@every_model
@pytest.mark.parametrize(
    "overrides", [{}, {"width": 256, "head_size": 64, "hidden": 256}], ids=["small", "wide"]
)
def test_logits_are_well_spread(arch: str, overrides: dict[str, Any]) -> None:
    logits = forward(*tiny_model(arch, seed=3, **overrides), prompt(12), dtype=np.float32)
    assert logits.dtype == np.float32 and logits.shape == (12, 300)
    assert 1 < logits.std() < 3


@every_model
def test_words_follow_one_another(arch: str) -> None:
    """A model that only repeats its last token would make generating from it a weak test."""
    predicted = forward(*tiny_model(arch), prompt(48)).argmax(axis=-1)
    assert len(set(predicted.tolist())) > 24
    assert np.mean(predicted == prompt(48)) < 0.5


@every_model
def test_every_tensor_matters(arch: str) -> None:
    metadata, tensors = tiny_model(arch)
    rng = np.random.RandomState(1)
    for name, tensor in tensors.items():
        # phi3: 32 positions with the short factors, more with the long ones
        length = 30 if "short" in name else 40
        other = tensors | {name: tensor * rng.uniform(0.5, 1.5, tensor.shape)}
        before, after = (forward(metadata, each, prompt(length)) for each in (tensors, other))
        assert np.abs(before - after).max() > 0.01, name


CHANGES = {
    "rope.freq_base": 500.0,
    "rope.freq_base_swa": 500.0,
    "rope.scaling.factor": 2.0,
    "rope.scaling.attn_factor": 1.5,
    "rope.scaling.original_context_length": 64,
    "attention.layer_norm_rms_epsilon": 0.1,
    "attention.sliding_window": 5,
    "attn_logit_softcapping": 2.0,
    "final_logit_softcapping": 3.0,
    "expert_used_count": 1,
}


@every_model
def test_every_number_matters(arch: str) -> None:
    metadata, tensors = tiny_model(arch)
    before = forward(metadata, tensors, prompt(40))
    for name, value in CHANGES.items():
        key = f"{TINY[arch].arch}.{name}"
        if key in metadata:
            after = forward(metadata | {key: value}, tensors, prompt(40))
            assert np.abs(before - after).max() > 0.01, key


def test_a_seed_is_a_model() -> None:
    first, again, other = (tiny_model("llama", seed)[1]["output.weight"] for seed in (0, 0, 1))
    assert np.array_equal(first, again) and not np.array_equal(first, other)


def test_vocabulary_reads_any_text() -> None:
    metadata, _ = tiny_model("llama")
    tokens, kinds = metadata["tokenizer.ggml.tokens"], metadata["tokenizer.ggml.token_type"]
    assert len(tokens) == len(set(tokens)) == len(kinds) == metadata["llama.vocab_size"]
    assert tokens[:256] == byte_letters() and tokens[220] == "Ġ"  # the space, where GPT-2 has it
    assert all({*merge.split(), merge.replace(" ", "")} <= set(tokens) for merge in MERGES)
    assert [tokens[i] for i, kind in enumerate(kinds) if kind == 3] == CONTROLS


def test_unknown_names_are_refused() -> None:
    metadata, tensors = tiny_model("llama")
    with pytest.raises(ValueError, match="'mamba', expected one of gemma2, gemma3, llama"):
        forward({"general.architecture": "mamba"}, tensors, [1])
    del metadata["llama.block_count"]
    with pytest.raises(KeyError, match=r"llama\.block_count is missing"):
        forward(metadata, tensors, [1])
    with pytest.raises(ValueError, match="'ntk', expected none, linear, longrope or yarn"):
        forward(*tiny_model("llama", rope_scaling=("ntk", 2.0)), [1])


# -- which position sees which ---------------------------------------------------------------------


def positions_changed_by(
    place: int, model: tuple[dict[str, Any], Tensors], length: int
) -> list[int]:
    """Where logits change when the token at `place` changes."""
    tokens = prompt(length)
    other = tokens.copy()
    other[place] += 1
    # All lengths of this test are on one side of phi3's trained context.
    before, after = (forward(*model, t, context=128) for t in (tokens, other))
    return np.flatnonzero(np.abs(before - after).max(axis=-1) > 1e-9).tolist()


@every_model
def test_later_tokens_change_nothing(arch: str) -> None:
    model = tiny_model(arch)
    assert positions_changed_by(11, model, 20)[0] == 11
    tokens = prompt(20)
    np.testing.assert_allclose(forward(*model, tokens)[:9], forward(*model, tokens[:9]), atol=1e-9)


@pytest.mark.parametrize(
    ("arch", "layers", "reach"),
    [
        ("llama", 1, 7),  # a window of 8 ends 7 positions back
        ("llama", 2, 14),  # and each layer goes as far again
        ("phi3", 2, 14),
        ("gemma2", 1, 7),
        ("gemma2", 2, None),  # every second layer sees everything
        ("gemma3", 5, 35),
        ("gemma3", 6, None),  # every sixth
    ],
)
def test_windows_cut(arch: str, layers: int, reach: int | None) -> None:
    length = 44
    changed = positions_changed_by(2, tiny_model(arch, layers=layers, window=8), length)
    assert changed == list(range(2, length if reach is None else 2 + reach + 1))


@every_model
def test_a_window_as_long_as_the_text_cuts_nothing(arch: str) -> None:
    window = f"{TINY[arch].arch}.attention.sliding_window"
    metadata, tensors = tiny_model(arch, window=20)
    wide, none, cut = (
        forward(metadata | {window: w}, tensors, prompt(20)) for w in (20, 10**6, 19)
    )
    assert np.array_equal(wide, none)
    assert np.array_equal(cut[:-1], wide[:-1]) and not np.allclose(cut[-1], wide[-1])


def test_period_of_windows() -> None:
    config = read_config(tiny_model("gemma3")[0])
    assert [is_windowed(config, layer) for layer in range(7)] == [True] * 5 + [False, True]
    assert not is_windowed(replace(config, window_period=1), 0)
    assert is_windowed(replace(config, window_period=0), 5)


def test_visible_is_a_band() -> None:
    assert visible(4, 2).astype(int).tolist() == [
        [1, 0, 0, 0],
        [1, 1, 0, 0],
        [0, 1, 1, 0],
        [0, 0, 1, 1],
    ]
    assert visible(3, 0).astype(int).tolist() == [[1, 0, 0], [1, 1, 0], [1, 1, 1]]


# -- heads -----------------------------------------------------------------------------------------


def test_shared_key_heads_are_repeated_key_heads() -> None:
    metadata, tensors = tiny_model("qwen2", kv_heads=2)
    repeated = {
        name: repeat_heads(t, 16) if "attn_k." in name or "attn_v." in name else t
        for name, t in tensors.items()
    }
    alone = forward(metadata | {"qwen2.attention.head_count_kv": 4}, repeated, prompt(9))
    np.testing.assert_allclose(alone, forward(metadata, tensors, prompt(9)), atol=1e-9)


def repeat_heads(rows: Array, head_size: int) -> Array:
    heads = rows.reshape(-1, head_size, *rows.shape[1:])
    return np.repeat(heads, 2, axis=0).reshape(-1, *rows.shape[1:])


@pytest.mark.parametrize(
    ("order", "same"), [([2, 3, 0, 1], True), ([1, 0, 3, 2], True), ([1, 2, 3, 0], False)]
)
def test_order_of_query_heads(order: list[int], same: bool) -> None:
    """Whole groups may change places, with their key heads, and queries inside a group; not queries
    across groups."""
    metadata, tensors = tiny_model("llama")
    groups = [order[0] // 2, order[2] // 2]
    other = dict(tensors)
    for i in range(2):
        other[f"blk.{i}.attn_q.weight"] = reorder(tensors[f"blk.{i}.attn_q.weight"], order)
        other[f"blk.{i}.attn_output.weight"] = reorder(
            tensors[f"blk.{i}.attn_output.weight"].T, order
        ).T
        for name in ("attn_k", "attn_v"):
            other[f"blk.{i}.{name}.weight"] = reorder(tensors[f"blk.{i}.{name}.weight"], groups)
    before, after = (forward(metadata, each, prompt(9)) for each in (tensors, other))
    assert np.allclose(before, after, atol=1e-9) == same


def reorder(rows: Array, order: list[int]) -> Array:
    return rows.reshape(len(order), -1, rows.shape[1])[order].reshape(rows.shape)


def test_stacked_matrices_are_the_matrices() -> None:
    metadata, tensors = tiny_model("phi3")
    apart = dict(tensors)
    for i in range(2):
        qkv, gate_up = apart.pop(f"blk.{i}.attn_qkv.weight"), apart.pop(f"blk.{i}.ffn_up.weight")
        parts = zip(("attn_q", "attn_k", "attn_v"), np.split(qkv, [64, 96]), strict=True)
        halves = zip(("ffn_gate", "ffn_up"), np.split(gate_up, 2), strict=True)
        apart |= {f"blk.{i}.{name}.weight": part for name, part in (*parts, *halves)}
    np.testing.assert_allclose(
        forward(metadata, apart, prompt(9)), forward(metadata, tensors, prompt(9)), atol=1e-9
    )


def test_a_tied_output_is_the_embedding() -> None:
    metadata, tensors = tiny_model("qwen3", tied=True)
    untied = tensors | {"output.weight": tensors["token_embd.weight"]}
    assert np.array_equal(
        forward(metadata, tensors, prompt(5)), forward(metadata, untied, prompt(5))
    )


# -- positions -------------------------------------------------------------------------------------


@given(start=st.integers(0, 10**5), interleaved=st.booleans(), seed=st.integers(0, 99))
def test_products_depend_on_the_distance_alone(start: int, interleaved: bool, seed: int) -> None:
    rope = Rope(plain_speeds(8, 10000.0), 1.0, interleaved)
    q, k = np.random.RandomState(seed).standard_normal((2, 1, 5, 8))
    near, far = (rotate(rope, q, s) @ rotate(rope, k, s).swapaxes(1, 2) for s in (0, start))
    np.testing.assert_allclose(near, far, atol=1e-8)


def test_the_two_pairings_differ_by_a_permutation() -> None:
    halves, pairs = (
        Rope(plain_speeds(8, 100.0), 1.0, interleaved) for interleaved in (False, True)
    )
    x = np.random.RandomState(0).standard_normal((2, 5, 8))
    order = [0, 4, 1, 5, 2, 6, 3, 7]  # channels (i, i + 4) side by side
    np.testing.assert_allclose(rotate(pairs, x[..., order]), rotate(halves, x)[..., order])


def test_turning() -> None:
    x = np.array([[[1.0, 0.0, 7.0]] * 3])
    quarter = Rope(np.array([np.pi / 2]), 1.0, True)
    np.testing.assert_allclose(
        rotate(quarter, x)[0], [[1, 0, 7], [0, 1, 7], [-1, 0, 7]], atol=1e-12
    )
    np.testing.assert_allclose(rotate(replace(quarter, length=2.0), x)[0, 1], [0, 2, 7], atol=1e-12)


def test_phi3_takes_its_factors_by_the_context() -> None:
    model = tiny_model("phi3")
    short, at_end, long = (forward(*model, prompt(32), context=n) for n in (1, 32, 33))
    assert np.array_equal(short, at_end) and not np.allclose(short, long)
    assert np.array_equal(forward(*model, prompt(32)), short)
    assert np.array_equal(forward(*model, prompt(33)), forward(*model, prompt(33), context=128))


def test_llama3_keeps_quick_pairs_and_slows_slow_ones() -> None:
    factors = llama3_factors(32, 500000.0, 8 * 8192)
    assert factors[0] == 1 and factors[-1] == 8
    assert (np.diff(factors) >= 0).all() and len(set(factors)) > 3


# -- parts -----------------------------------------------------------------------------------------


@given(used=st.integers(1, 6), seed=st.integers(0, 99))
def test_shares_of_experts_sum_to_one(used: int, seed: int) -> None:
    logits = np.random.RandomState(seed).standard_normal((5, 6)) * 3
    chosen, shares = route(logits, used)
    np.testing.assert_allclose(shares.sum(axis=-1), 1)
    assert (np.diff(shares, axis=-1) <= 0).all()
    rest = [np.delete(row, picked) for row, picked in zip(logits, chosen, strict=True)]
    kept = np.take_along_axis(logits, chosen, axis=-1)
    assert used == 6 or all(row.min() >= other.max() for row, other in zip(kept, rest, strict=True))


def test_equal_experts_are_one_feed_forward() -> None:
    metadata, tensors = tiny_model("llama")
    config = read_config(metadata)
    x = np.random.RandomState(0).standard_normal((5, config.width))
    dense = Layer({name: tensor.astype(np.float64) for name, tensor in tensors.items()}, 0)
    stacked = {
        f"blk.0.ffn_{n}_exps.weight": np.stack([dense[f"ffn_{n}.weight"]] * 4)
        for n in ("gate", "up", "down")
    }
    router = np.random.RandomState(1).standard_normal((4, config.width))
    experts = Layer({**stacked, "blk.0.ffn_gate_inp.weight": router}, 0)
    got = mixture(replace(config, experts_used=2), experts, x)
    np.testing.assert_allclose(got, feed_forward(config, dense, x), atol=1e-9)


def test_formulas() -> None:
    x = np.array([-1.0, 0.0, 1.0, 3.0])
    np.testing.assert_allclose(silu(x), [-0.268941, 0, 0.731059, 2.857722], atol=1e-6)
    np.testing.assert_allclose(gelu_tanh(x), [-0.158808, 0, 0.841192, 2.996363], atol=1e-6)
    np.testing.assert_allclose(soft_cap(x, 2.0), [-0.924234, 0, 0.924234, 1.810297], atol=1e-6)
    np.testing.assert_allclose(
        rms_norm(np.array([3.0, 4.0]), np.array([1.0, 2.0]), 0.0), [0.848528, 2.262742], atol=1e-6
    )
    assert soft_cap(x, 0.0) is x
    assert (silu(np.array([-1e4, 1e4], np.float32)) == [0, 1e4]).all()


def test_largest_gemmas_scale_queries_by_the_width() -> None:
    def scaled_by(arch: str, layers: int) -> int:
        return round(read_config(tiny_model(arch, layers=layers)[0]).query_scale ** -2)

    assert scaled_by("gemma2", 45) == scaled_by("gemma3", 61) == 32  # channels of a head
    assert scaled_by("gemma2", 46) == scaled_by("gemma3", 62) == 16  # width / heads
