"""Every architecture against the NumPy reference, with its weights in every kind of storage; equal
bits whatever the chunks and the neighbours."""

from __future__ import annotations

import numpy as np
import pytest

import tetrad as td
from tests.models import reference
from tests.models.eight_bit import activations_in_eight_bits
from tests.models.loaded import format_of, loaded
from tests.models.tiny import TINY, prompt

ARCHS = list(TINY)
LENGTH = 48  # past the windows (8, 24) and the first context of phi3 (32)


def differences(arch: str, kind: str, tokens: np.ndarray | None = None) -> np.ndarray:
    """Of all logits of a prompt, in units of their spread."""
    model, tokens = loaded(arch, kind), prompt(LENGTH) if tokens is None else tokens
    expected = model.expected(tokens)
    return np.abs(model.run(model.caches(), tokens) - expected) / expected.std()


def head_format(arch: str, kind: str) -> str:
    """Of the output matrix, which may be the embedding."""
    tensors = loaded(arch, kind).tensors
    name = "output.weight" if "output.weight" in tensors else "token_embd.weight"
    return format_of(kind, name, tensors[name])


@pytest.mark.parametrize("kind", ["f32", "halves"])
@pytest.mark.parametrize("arch", ARCHS)
def test_float_weights_give_the_logits_of_the_reference(arch: str, kind: str) -> None:
    assert differences(arch, kind).max() < 1e-4  # f32 sums in another order; about 1e-5 is usual


@pytest.mark.parametrize("arch", ARCHS)
def test_low_bit_weights_give_the_logits_of_the_reference_in_eight_bits(arch: str) -> None:
    """The reference rounds activations as we do, so logits agree to f32 rounding until the order of
    a sum tips a code over. That happens to about one activation of 100,000, moves what it enters by
    1/127 and with it later roundings: tokens that see it are apart as far as 8-bit rounding brings
    them (see below), the others stay equal. Codes of a second term, before the output matrix, are
    tipped over more often, one of some hundred, and move logits by 1/127 of 1/127."""
    head = head_format(arch, "low-bit")
    with activations_in_eight_bits(head):
        starts = [differences(arch, "low-bit", part) for part in np.split(prompt(LENGTH), 12)]
        apart = differences(arch, "low-bit")
    assert sum(start.max() < (1 / 127**2 if head == "q8_0" else 1e-5) for start in starts) >= 6
    assert np.sqrt((apart**2).mean()) < 0.03


@pytest.mark.parametrize("arch", ["llama", "qwen3moe"])
def test_widths_that_are_no_multiple_of_256(arch: str) -> None:
    with activations_in_eight_bits("q8_0"):
        assert differences(arch, "q8_0").max() < 1e-4


@pytest.mark.parametrize("arch", ARCHS)
def test_eight_bits_are_close_to_floats(arch: str) -> None:
    """A code is off by at most half a step of 1/127 of the largest of 32, for normal numbers 0.5 %
    of their size on average: each product adds that much noise. Two to seven layers of four make 2
    to 4 %, with norms that amplify 7 %; the largest of 14,400 logits, or one whose expert changed,
    is some times further."""
    apart = differences(arch, "low-bit")
    assert np.sqrt((apart**2).mean()) < 0.1
    assert np.median(apart) < 0.05


@pytest.mark.parametrize("arch", ["llama", "gemma2"])
def test_a_half_precision_cache_is_close(arch: str) -> None:
    model, tokens = loaded(arch, "f32"), prompt(LENGTH)
    expected = model.expected(tokens)
    apart = (model.run(model.caches(td.float16), tokens) - expected) / expected.std()
    # Rounded to 11 bits, keys and values are off by 0.03 % (rms); scores spread by 2, which doubles
    # it, in each layer.
    assert np.sqrt((apart**2).mean()) < 3 * 2 * 3e-4


# -- the same bits ---------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["f32", "low-bit"])
@pytest.mark.parametrize("arch", ARCHS)
def test_chunks_do_not_change_a_bit(arch: str, kind: str) -> None:
    model, tokens = loaded(arch, kind), prompt(LENGTH)
    whole = model.run(model.caches(), tokens)
    caches = model.caches()
    parts = [
        model.run(caches, tokens[a:b], a) for a, b in ((0, 1), (1, 18), (18, 20), (20, LENGTH))
    ]
    np.testing.assert_array_equal(np.concatenate(parts), whole)


@pytest.mark.parametrize("arch", ARCHS)
def test_token_by_token_is_the_same(arch: str) -> None:
    model, tokens = loaded(arch, "low-bit"), prompt(12)
    whole, caches = model.run(model.caches(), tokens), model.caches()
    each = [model.run(caches, tokens[i : i + 1], i, single=True) for i in range(len(tokens))]
    np.testing.assert_array_equal(np.concatenate(each), whole)


@pytest.mark.parametrize("kind", ["f32", "low-bit"])
@pytest.mark.parametrize("arch", ARCHS)
def test_sequences_beside_each_other_are_as_alone(arch: str, kind: str) -> None:
    model, tokens = loaded(arch, kind), prompt(LENGTH)
    texts = {2: tokens[:30], 0: tokens[30:], 1: tokens[7:8]}
    alone = [model.run(model.caches(), text) for text in texts.values()]
    order = np.random.RandomState(0).permutation(LENGTH + 1)
    slots = np.concatenate([np.full(len(text), slot) for slot, text in texts.items()])
    places = np.concatenate([np.arange(len(text)) for text in texts.values()])
    mixed = model.run(
        model.caches(), np.concatenate(list(texts.values()))[order], places[order], slots[order]
    )
    np.testing.assert_array_equal(mixed[np.argsort(order)], np.concatenate(alone))


# -- what is tested has a say ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arch", "key"),
    [
        ("phi3", "attention.sliding_window"),
        ("gemma2", "attention.sliding_window"),
        ("gemma3", "attention.sliding_window"),
        ("gemma2", "attn_logit_softcapping"),
        ("gemma2", "final_logit_softcapping"),
        ("gemma3", "rope.freq_base_swa"),
        ("mixtral", "expert_used_count"),
    ],
)
def test_the_prompt_reaches_what_the_key_says(arch: str, key: str) -> None:
    """Without it the reference answers otherwise, so agreeing with the reference means having
    it."""
    model, tokens = loaded(arch, "f32"), prompt(LENGTH)
    full = f"{model.metadata['general.architecture']}.{key}"
    other = {"expert_used_count": 1, "rope.freq_base_swa": 500.0}.get(key, 0)
    without = reference.forward(model.metadata | {full: other}, model.tensors, tokens, context=128)
    assert np.abs(without - model.expected(tokens)).max() > 0.1
