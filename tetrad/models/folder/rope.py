"""Models, folders, rope: how positions turn, from config.json.

Receives settings, old (`rope_theta`, `rope_scaling`) or new (`rope_parameters`); returns metadata
as GGUF has them, and the factors that GGUF keeps in tensors.
"""

from __future__ import annotations

import math

import numpy as np

from tetrad.models.config import MOST_CONTEXT
from tetrad.models.folder.settings import FolderSettings
from tetrad.models.rope import MOST_CHANNELS

KINDS = ("default", "linear", "yarn", "llama3", "longrope")


def rope_settings(s: FolderSettings, layers: str = "") -> FolderSettings:
    """The fields of one rope; `layers` names the kind of layers, where there are several."""
    said = s.inner(s.first_of("rope_parameters", "rope_scaling"))
    if layers and isinstance(said.fields.get(layers), dict):
        said = said.inner(layers)
    return said.with_fields({"rope_theta": said.value("rope_theta", s.value("rope_theta", 1e4))})


def kind_of(said: FolderSettings) -> str:
    return said.word(said.first_of("rope_type", "type"), "default", KINDS)


def rope_keys(s: FolderSettings, layers: str = "") -> dict[str, object]:
    """Metadata of the rope."""
    said = rope_settings(s, layers)
    keys: dict[str, object] = {"rope.freq_base": said.positive("rope_theta")}
    kind = kind_of(said)
    if kind == "linear":
        keys |= {"rope.scaling.type": "linear", "rope.scaling.factor": said.positive("factor")}
    if kind == "yarn":
        keys |= yarn_keys(s, said)
    if kind == "longrope":
        original = original_context(s, said)
        keys |= {
            "rope.scaling.type": "longrope",
            "rope.scaling.original_context_length": original,
            "rope.scaling.attn_factor": longrope_length(s, said, original),
        }
    return keys


def yarn_keys(s: FolderSettings, said: FolderSettings) -> dict[str, object]:
    factor = said.positive("factor")
    usual = 1 + 0.1 * math.log(factor) if factor > 1 else 1.0
    return {
        "rope.scaling.type": "yarn",
        "rope.scaling.factor": factor,
        "rope.scaling.original_context_length": original_context(s, said),
        "rope.scaling.yarn_beta_fast": said.positive("beta_fast", 32.0),
        "rope.scaling.yarn_beta_slow": said.positive("beta_slow", 1.0),
        "rope.scaling.attn_factor": said.positive("attention_factor", usual) / usual,
    }


def original_context(s: FolderSettings, said: FolderSettings) -> int:
    """What the model was first trained for."""
    name = "original_max_position_embeddings"
    where = said if said.has(name) else s
    return where.count(name, s.count("max_position_embeddings"), most=MOST_CONTEXT)


def longrope_length(s: FolderSettings, said: FolderSettings, original: int) -> float:
    """The length of a turned vector."""
    factor = s.count("max_position_embeddings", most=MOST_CONTEXT) / original
    usual = math.sqrt(1 + math.log(factor) / math.log(original)) if factor > 1 else 1.0
    return said.positive("attention_factor", usual)


def rope_factors(s: FolderSettings) -> dict[str, np.ndarray]:
    """The tensors that a GGUF file has for the ropes of Llama 3 and Phi 3."""
    said = rope_settings(s)
    kind = kind_of(said)
    if kind == "longrope":
        return {
            f"rope_factors_{name}.weight": np.array(
                said.numbers(f"{name}_factor", MOST_CHANNELS), np.float32
            )
            for name in ("long", "short")
        }
    return {"rope_freqs.weight": llama3_factors(s, said)} if kind == "llama3" else {}


def turned_channels(s: FolderSettings) -> int:
    size = s.count("head_dim", s.count("hidden_size") // s.count("num_attention_heads"))
    said = rope_settings(s)
    where = said if said.has("partial_rotary_factor") else s
    return int(size * where.positive("partial_rotary_factor", 1.0))


def llama3_factors(s: FolderSettings, said: FolderSettings) -> np.ndarray:
    """By how much each pair of channels is slowed down: not at all where it turns often in the
    context of the first training, by `factor` where it hardly does, between the two by a ramp."""
    size = turned_channels(s)
    speeds = said.positive("rope_theta") ** (-np.arange(0, size, 2, dtype=np.float64) / size)
    turns = original_context(s, said) * speeds / (2 * np.pi)
    low, high = said.positive("low_freq_factor"), said.positive("high_freq_factor")
    if high <= low:
        raise said.error("high_freq_factor", f"expected more than low_freq_factor, {low}")
    share = np.clip((turns - low) / (high - low), 0, 1)  # of the speed that stays
    return (1 / ((1 - share) / said.positive("factor") + share)).astype(np.float32)
