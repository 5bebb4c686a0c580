"""Numbers of a model: ropes, windows and scales as the reference reads them, for every kind of architecture."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.models import reference
from tests.models.tiny import tiny_model
from tetrad.models import load  # noqa: F401  (it knows every architecture)
from tetrad.models.arch import architecture_named
from tetrad.models.config import Config, Metadata

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


def read(metadata: dict[str, Any], tensors: dict[str, np.ndarray], context: int = 0) -> Config:
    arch = architecture_named(metadata["general.architecture"], "file")
    words = len(tensors["token_embd.weight"])
    return arch.config(
        Metadata(metadata, "file", arch.name, context),
        words,
        lambda n: tensors[n].astype(float) if n in tensors else None,
    )


@pytest.mark.parametrize(("arch", "changes", "context"), VARIANTS)
def test_positions_are_those_of_the_reference(arch: str, changes: dict[str, Any], context: int) -> None:
    metadata, tensors = tiny_model(arch, **changes)
    config, known = read(metadata, tensors, context), reference.read_config(metadata)
    ropes = reference.read_ropes(metadata, known, tensors, context or config.context)
    for layer in range(config.layers):
        windowed = reference.is_windowed(known, layer)
        assert config.window_of(layer) == (known.window if windowed else 0)
        np.testing.assert_allclose(config.rope_of(layer).speeds, ropes[windowed].speeds, rtol=1e-12)
        assert config.rope_of(layer).length == pytest.approx(ropes[windowed].length, rel=1e-12)
    assert config.scale == pytest.approx(known.query_scale, rel=1e-12)
    assert (config.score_cap, config.logit_cap) == (known.score_cap, known.logit_cap)


def test_experts_share_their_weight_unless_the_file_says_otherwise() -> None:
    metadata, tensors = tiny_model("qwen3moe")
    assert read(metadata, tensors).normalises_experts
    assert not read(metadata | {"qwen3moe.expert_weights_norm": False}, tensors).normalises_experts


def test_mixtral_is_a_llama_with_experts() -> None:
    config = read(*tiny_model("mixtral"))
    assert (config.experts, config.experts_used, config.expert_hidden) == (4, 2, 128)
    assert read(*tiny_model("llama")).experts == 0


def test_yarn_without_a_mix_is_linear_and_old_files_name_the_factor_otherwise() -> None:
    metadata, tensors = tiny_model("llama")
    linear = read(metadata | {"llama.rope.scaling.factor": 4.0}, tensors)
    yarn = {"llama.rope.scaling.type": "yarn", "llama.rope.scaling.factor": 4.0}
    assert read(metadata | yarn | {"llama.rope.scaling.yarn_ext_factor": 0.0}, tensors).rope == linear.rope
    assert read(metadata | yarn, tensors).rope != linear.rope
    assert read(metadata | {"llama.rope.scale_linear": 4.0}, tensors).rope == linear.rope
