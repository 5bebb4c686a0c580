"""Encoders against the NumPy reference; the same bits alone and side by side; what they cannot do
is said."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tetrad as td
from tests.models.encoders import CLS, SEP, forward, tiny_encoder
from tests.models.loaded import stored
from tests.modules import ROOT
from tetrad.core.errors import ContextError, FileFormatError, SettingError, UnsupportedError
from tetrad.formats import gguf
from tetrad.models.arch import Keeps
from tetrad.models.embedding import TOKENS, groups_of
from tetrad.models.model import Model

ARCHS = ("bert", "nomic-bert")
TEXTS = ["the cat sat on a mat", "dogs ran fast", "", "a b c d e f g h i j", "the slow dog"] * 4
WIDE = {"width": 256, "heads": 4, "hidden": 256}  # room for blocks of 256


def write(path: Path, arch: str, keys: dict[str, Any] | None = None, **sizes: Any) -> Path:
    metadata, tensors = tiny_encoder(arch, **sizes)
    gguf.write(path, metadata | (keys or {}), tensors)
    return path


@pytest.fixture(scope="module", params=ARCHS)
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Model:
    return td.load(write(tmp_path_factory.mktemp("models") / "tiny.gguf", request.param))


@cache
def reference_states(arch: str, tokens: tuple[int, ...]) -> np.ndarray:
    return forward(*tiny_encoder(arch), np.array(tokens))


def states(model: Model, text: str) -> np.ndarray:
    return reference_states(model.config.arch, tuple(model.tokenizer.encode(text)))


def test_vectors_are_those_of_the_reference(model: Model) -> None:
    found = model.embed(TEXTS, normalize=False)
    expected = np.array([states(model, text).mean(axis=0) for text in TEXTS])
    assert np.abs(found - expected).max() < 1e-5 * expected.std()


@pytest.mark.parametrize("pooling, row", [(2, 0), (3, -1)])
@pytest.mark.parametrize("arch", ARCHS)
def test_pooling_is_that_of_the_file(tmp_path: Path, arch: str, pooling: int, row: int) -> None:
    model = td.load(write(tmp_path / "tiny.gguf", arch, {f"{arch}.pooling_type": pooling}))
    found, expected = model.embed("the cat sat", normalize=False), states(model, "the cat sat")[row]
    assert np.abs(found - expected).max() < 1e-5


@pytest.mark.parametrize("format", ["f16", "q8_0", "q4_k"])
@pytest.mark.parametrize("arch", ARCHS)
def test_weights_of_any_storage(tmp_path: Path, arch: str, format: str) -> None:
    metadata, tensors = tiny_encoder(arch, **WIDE)
    large = {name: stored(t, format) for name, t in tensors.items() if t.ndim == 2 and len(t) > 200}
    gguf.write(
        tmp_path / "tiny.gguf", metadata, tensors | {name: raw for name, (raw, _) in large.items()}
    )
    model, text = td.load(tmp_path / "tiny.gguf"), "the cat sat on a mat"
    tokens = np.array(model.tokenizer.encode(text))
    expected = forward(
        metadata, tensors | {name: numbers for name, (_, numbers) in large.items()}, tokens
    ).mean(axis=0)
    found = model.embed(text, normalize=False)
    # Activations are rounded to 8 bits before low-bit products: about 1 % of noise after two blocks
    # of six products.
    assert np.abs(found - expected).max() < (1e-4 if format == "f16" else 0.1) * expected.std()


def test_side_by_side_texts_have_the_bits_they_have_alone(model: Model) -> None:
    together = model.embed(TEXTS)
    for text, vector in zip(TEXTS, together, strict=True):
        np.testing.assert_array_equal(model.embed(text), vector)


def test_threads_share_the_slots_and_none_waits_forever(model: Model) -> None:
    expected, found = model.embed(TEXTS), dict[int, np.ndarray]()

    def ask(number: int) -> None:
        found[number] = model.embed(TEXTS)

    threads = [threading.Thread(target=ask, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for vectors in found.values():
        np.testing.assert_array_equal(vectors, expected)
    assert len(found) == 4


def test_a_later_word_changes_the_states_before_it(model: Model) -> None:
    """Else it would be a decoder."""
    first, other = (model.tokenizer.encode(text) for text in ("the cat sat", "the cat ran"))
    rows = [states(model, text)[1] for text in ("the cat sat", "the cat ran")]
    assert first[:3] == other[:3] and first[0] == CLS and first[-1] == SEP
    assert np.abs(rows[0] - rows[1]).max() > 0.01


def test_a_text_as_long_as_the_context_and_one_longer(tmp_path: Path) -> None:
    # more than a chunk of a decoder
    model = td.load(write(tmp_path / "tiny.gguf", "bert", context=700))
    tokens = [2, *(4 + i % 30 for i in range(698)), 3]
    expected = forward(*tiny_encoder("bert", context=700), np.array(tokens)).mean(axis=0)
    assert np.abs(model.embed([tokens], normalize=False)[0] - expected).max() < 1e-5
    with pytest.raises(ContextError, match=r"701.*700"):
        model.embed([[*tokens, 3]])


def test_no_more_context_than_the_model_has(tmp_path: Path) -> None:
    with pytest.raises(SettingError, match="context: expected at most the 128 tokens"):
        td.load(write(tmp_path / "tiny.gguf", "bert"), context=129)


def test_generating_is_refused_by_name(model: Model) -> None:
    arch = model.config.arch
    asked = {
        "generate": lambda: model.generate("the"),
        "chat": lambda: model.chat([{"role": "user", "content": "the"}]),
        "logits": lambda: model.logits([2, 4, 3]),
    }
    for name, ask in asked.items():
        with pytest.raises(
            UnsupportedError, match=rf"{name}: {arch} is an encoder(.|\n)*model\.embed"
        ):
            ask()


def test_the_engine_of_decoders_refuses_texts(model: Model) -> None:
    assert model.engine.keeps is Keeps.NOTHING
    sequence = model.engine.start([2, 4, 3])
    with pytest.raises(SettingError, match="one of an encoder"):
        model.engine.step([(sequence, [2, 4, 3])])
    model.engine.free(sequence)


@pytest.mark.parametrize("count", [1, 7, 8, 9, 40])
def test_a_text_has_its_bits_beside_any_others(model: Model, count: int) -> None:
    rng = np.random.default_rng(count)
    texts = [rng.integers(4, 40, rng.integers(1, 128)).tolist() for _ in range(count)]
    together = model.embed(texts)
    for i in range(0, count, 5):
        np.testing.assert_array_equal(model.embed([texts[i]])[0], together[i])
    np.testing.assert_array_equal(model.embed(texts[::-1])[::-1], together)


@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("dtype, near", [("f32", 1e-5), ("bf16", 0.02), ("int8", 0.05)])
def test_products_in_another_type(tmp_path: Path, arch: str, dtype: str, near: float) -> None:
    path = write(tmp_path / "tiny.gguf", arch, **WIDE)
    model, exact = td.load(path, dtype=dtype), td.load(path).embed(TEXTS)
    found = model.embed(TEXTS)
    error = np.abs(found - exact).max() / np.abs(exact).max()
    assert error < near and (dtype == "f32") == (error == 0)
    for text, vector in zip(TEXTS[:5], found, strict=False):
        np.testing.assert_array_equal(model.embed(text), vector)


def test_a_type_that_products_do_not_have(tmp_path: Path) -> None:
    path = write(tmp_path / "tiny.gguf", "bert")
    with pytest.raises(SettingError, match="dtype: expected one of f32, bf16, int8, got 'int4'"):
        td.load(path, dtype="int4")


def test_types_of_tokens_change_their_states(model: Model) -> None:
    text = np.int32([2, 4, 3, 5, 3])
    plain, same, other = (
        next(model.encoder.states([text], types))
        for types in (None, [np.zeros(5, np.int32)], [np.int32([0, 0, 0, 1, 1])])
    )
    np.testing.assert_array_equal(plain, same)
    assert np.abs(plain - other).max() > 0.01


@pytest.mark.parametrize(
    "lengths", [[], [5], [2000], [300] * 20, [1] * 3000, [512, 513, 512], [1000, 30, 1000, 30]]
)
def test_steps_take_texts_in_order_and_are_about_equal(lengths: list[int]) -> None:
    groups = list(groups_of(lengths))
    assert [i for group in groups for i in group] == list(range(len(lengths)))
    sizes = [sum(lengths[i] for i in group) for group in groups]
    assert all(size <= TOKENS or len(g) == 1 for size, g in zip(sizes, groups, strict=True))
    if lengths == [300] * 20:
        assert max(sizes) - min(sizes) <= 300


@pytest.mark.parametrize(
    "key, value, message",
    [
        ("attention.causal", True, "expected false"),
        ("attention.head_count", 3, "multiple of 16"),
        ("attention.layer_norm_epsilon", 0.0, "above 0"),
        ("context_length", 99, "position_embd"),
        ("pooling_type", 4, "pooling_type"),
    ],
)
def test_numbers_that_make_no_encoder(tmp_path: Path, key: str, value: Any, message: str) -> None:
    with pytest.raises(FileFormatError, match=message):
        td.load(write(tmp_path / "tiny.gguf", "bert", {f"bert.{key}": value})).embed("the cat")


def test_a_second_process_finds_the_program_on_disk(tmp_path: Path) -> None:
    path = write(tmp_path / "tiny.gguf", "bert")
    script = (
        "import sys, tetrad as td\ntd.load(sys.argv[1]).embed('the cat')\n"
        "print(*sorted(sys.modules))"
    )
    kept = {name: value for name, value in os.environ.items() if name != "TETRAD_CHECK"}
    settings = {"cwd": ROOT, "env": kept | {"TETRAD_CACHE_DIR": str(tmp_path / "cache")}}
    first, second = (
        set(subprocess.run([sys.executable, "-c", script, str(path)], capture_output=True,
        text=True, check=True,
                           **settings).stdout.split())
        for _ in range(2)
    )  # fmt: skip
    heavy = {"tetrad.ops", "tetrad.compiler.jit", "tetrad.models.layers"}
    assert heavy <= first and not heavy & second
