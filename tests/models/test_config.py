"""Numbers of a model: ropes, windows and scales as the reference reads them, for every kind of
architecture."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.models import reference
from tests.models.tiny import tiny_model
from tetrad.core.errors import UnsupportedError
from tetrad.core.record import fields
from tetrad.models.arch import architecture_named, known_names
from tetrad.models.config import Metadata
from tetrad.models.decoder import Decoder, Experts, Gated

VARIANTS: list[tuple[str, dict[str, Any], int]] = [
    ("llama", {}, 0),
    ("llama", {"llama3": True, "rope_base": 500000.0}, 0),
    ("llama", {"window": 20}, 0),
    ("llama", {"rope_scaling": ("linear", 4.0)}, 0),
    ("llama", {"rope_scaling": ("yarn", 4.0)}, 0),
    ("qwen2", {}, 0),
    ("qwen3", {"rope_scaling": ("yarn", 2.0)}, 0),
    ("phi3", {}, 0),
    ("phi3", {}, 32),
    ("phi3", {}, 33),
    ("phi3", {"rope_size": 8}, 0),
    ("phi3", {"trained_context": 0}, 0),
    ("gemma2", {}, 0),
    ("gemma2", {"layers": 46}, 0),
    ("gemma3", {}, 0),
    ("gemma3", {"layers": 62, "rope_scaling": None}, 0),
]


def read(metadata: dict[str, Any], tensors: dict[str, np.ndarray], context: int = 0) -> Any:
    arch = architecture_named(metadata["general.architecture"], "file")
    words = len(tensors["token_embd.weight"])
    return arch.config(
        Metadata(metadata, "file", arch.name, context),
        words,
        lambda n: tensors[n].astype(float) if n in tensors else None,
    )


@pytest.mark.parametrize(("arch", "changes", "context"), VARIANTS)
def test_positions_are_those_of_the_reference(
    arch: str, changes: dict[str, Any], context: int
) -> None:
    metadata, tensors = tiny_model(arch, **changes)
    config, known = read(metadata, tensors, context), reference.read_config(metadata)
    ropes = reference.read_ropes(metadata, known, tensors, context or config.context)
    kinds = architecture_named(arch, "file").kinds(config)
    for layer, kind in enumerate(kinds):
        windowed = reference.is_windowed(known, layer)
        assert kind.window == (known.window if windowed else 0)
        np.testing.assert_allclose(kind.rope.speeds, ropes[windowed].speeds, rtol=1e-12)
        assert kind.rope.length == pytest.approx(ropes[windowed].length, rel=1e-12)
    assert len(kinds) == known.layers


@pytest.mark.parametrize(
    ("arch", "layers"), [("gemma2", 3), ("gemma2", 46), ("gemma3", 7), ("gemma3", 62)]
)
def test_scales_and_caps_are_those_of_the_reference(arch: str, layers: int) -> None:
    metadata, tensors = tiny_model(arch, layers=layers)
    config, known = read(metadata, tensors), reference.read_config(metadata)
    assert config.scale == pytest.approx(known.query_scale, rel=1e-12)
    assert (config.score_cap, config.logit_cap) == (known.score_cap, known.logit_cap)


def test_a_config_has_what_its_architecture_has_and_nothing_else() -> None:
    for arch in ("llama", "qwen2", "qwen3", "qwen3moe", "phi3"):
        assert type(read(*tiny_model(arch))) is Decoder
    assert not {"window_period", "score_cap", "local_rope"} & set(fields(Decoder))
    assert {*fields(read(*tiny_model("gemma3")))} - {*fields(read(*tiny_model("gemma2")))} == {
        "local_rope"
    }


def test_experts_share_their_weight_unless_the_file_says_otherwise() -> None:
    metadata, tensors = tiny_model("qwen3moe")
    assert read(metadata, tensors).feed_forward.is_normalised
    assert not read(
        metadata | {"qwen3moe.expert_weights_norm": False}, tensors
    ).feed_forward.is_normalised


def test_mixtral_is_a_llama_with_experts() -> None:
    assert read(*tiny_model("mixtral")).feed_forward == Experts(4, 2, 128, is_normalised=True)
    assert read(*tiny_model("llama")).feed_forward == Gated(160)


def test_yarn_without_a_mix_is_linear_and_old_files_name_the_factor_otherwise() -> None:
    metadata, tensors = tiny_model("llama")
    linear = read(metadata | {"llama.rope.scaling.factor": 4.0}, tensors)
    yarn = {"llama.rope.scaling.type": "yarn", "llama.rope.scaling.factor": 4.0}
    assert (
        read(metadata | yarn | {"llama.rope.scaling.yarn_ext_factor": 0.0}, tensors).rope
        == linear.rope
    )
    assert read(metadata | yarn, tensors).rope != linear.rope
    assert read(metadata | {"llama.rope.scale_linear": 4.0}, tensors).rope == linear.rope


@pytest.mark.parametrize("name", known_names())
def test_every_file_registers_the_architecture_it_is_called_like(name: str) -> None:
    """And its functions are the package's own, so that its programs are found on disk."""
    arch = architecture_named(name, "file")
    assert arch.name == name
    assert all(function.__module__.startswith("tetrad.models.") for function in arch.functions())


@pytest.mark.parametrize(
    "name", ["nomic_bert", "__init__", "../llama", "os", "", None, 3, ["llama"]]
)
def test_names_that_are_no_architecture(name: object) -> None:
    with pytest.raises(UnsupportedError, match=r"is not known\n  hint: known: bert, "):
        architecture_named(name, "file")
