"""Models, config: the numbers of a model, read from GGUF metadata and checked before anything is allocated.

Receives metadata, returns a `Config`. What an architecture adds or does differently is said in its own file.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from tetrad.core.errors import FileFormatError
from tetrad.core.record import record

# Far above any model; larger is a damaged file.
MOST = {
    "block_count": 1 << 12,
    "context_length": 1 << 27,
    "attention.key_length": 1 << 12,
    "rope.dimension_count": 1 << 12,
}


@record
class Rope:
    """How positions turn queries and keys: one speed per pair of channels, in radians a position."""

    speeds: tuple[float, ...]
    length: float = 1.0  # of a turned vector


@record
class Config:
    """The numbers of a model that its layers need."""

    arch: str
    layers: int
    width: int
    heads: int
    kv_heads: int
    head_size: int
    hidden: int
    vocab: int
    context: int
    epsilon: float
    rope: Rope
    scale: float  # of attention scores
    is_interleaved: bool = False  # the file pairs rope channels (2i, 2i+1); rows are reordered on loading
    window: int = 0  # positions a windowed layer sees; 0: all
    window_period: int = 0  # 0: every layer has the window; n: every layer but the last of each n
    local_rope: Rope | None = None  # of windowed layers, where it differs
    score_cap: float = 0.0
    logit_cap: float = 0.0
    embedding_scale: float = 1.0
    experts: int = 0
    experts_used: int = 0
    expert_hidden: int = 0
    normalises_experts: bool = True  # the weights of the chosen experts add up to one

    def window_of(self, layer: int) -> int:
        is_global = self.window_period > 0 and layer % self.window_period == self.window_period - 1
        return 0 if is_global else self.window

    def rope_of(self, layer: int) -> Rope:
        is_local = self.window > 0 and self.window_of(layer) > 0
        return self.local_rope if is_local and self.local_rope is not None else self.rope


class Metadata:
    """Metadata of one file: typed access that names the key when something is wrong. `context` is the number of
    positions the caller prepares for, 0 for all the model can."""

    def __init__(self, values: Mapping[str, Any], path: str, arch: str, context: int = 0) -> None:
        self.values, self.path, self.arch, self.context = values, path, arch, context

    def error(self, key: str, problem: str) -> FileFormatError:
        return FileFormatError(f"{self.arch}: {problem}", file=self.path, part=f"key {key}")

    def number(self, name: str, default: float | None = None) -> float:
        key = f"{self.arch}.{name}"
        value = self.values.get(key, default)
        if isinstance(value, np.generic):
            value = value.item()
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
            raise self.error(key, f"expected a number, got {'nothing' if value is None else repr(value)[:60]}")
        return value

    def positive(self, name: str, default: float | None = None, above: float = 0.0) -> float:
        if (value := self.number(name, default)) <= above:
            raise self.error(f"{self.arch}.{name}", f"expected a number above {above:g}, got {value}")
        return value

    def count(self, name: str, default: int | None = None, least: int = 1) -> int:
        value = self.number(name, default)
        most = MOST.get(name, 1 << 24)
        if value != int(value) or not least <= value <= most:
            raise self.error(f"{self.arch}.{name}", f"expected a whole number from {least} to {most}, got {value}")
        return int(value)

    def word(self, name: str, default: str, known: tuple[str, ...]) -> str:
        key = f"{self.arch}.{name}"
        value = self.values.get(key, default)
        if not isinstance(value, str) or value not in known:
            raise self.error(key, f"{value!r:.60} is not supported; known: {', '.join(known)}")
        return value

    def flag(self, name: str, default: bool) -> bool:
        key = f"{self.arch}.{name}"
        if not isinstance(value := self.values.get(key, default), bool | np.bool_):
            raise self.error(key, f"expected true or false, got {value!r:.60}")
        return bool(value)


def base_config(meta: Metadata, vocab: int, factors: np.ndarray | None = None) -> dict[str, Any]:
    """The fields every decoder has; an architecture passes them to `Config`, changed where it differs."""
    width, heads = meta.count("embedding_length"), meta.count("attention.head_count")
    head_size = meta.count("attention.key_length", width // heads)
    if heads % (kv_heads := meta.count("attention.head_count_kv", heads)):
        raise meta.error(f"{meta.arch}.attention.head_count_kv", f"{heads} heads are not shared evenly by {kv_heads}")
    if head_size % 16 or meta.count("attention.value_length", head_size) != head_size:
        raise meta.error(f"{meta.arch}.attention.key_length", f"heads of {head_size} channels are not supported yet")
    if (size := meta.count("rope.dimension_count", head_size)) % 2 or size > head_size:
        raise meta.error(f"{meta.arch}.rope.dimension_count", f"{size} of {head_size} channels cannot turn in pairs")
    return {
        "arch": meta.arch,
        "layers": meta.count("block_count"),
        "width": width,
        "heads": heads,
        "kv_heads": kv_heads,
        "head_size": head_size,
        "hidden": meta.count("feed_forward_length", 0, least=0),
        "vocab": vocab,
        "context": meta.count("context_length"),
        "epsilon": meta.positive("attention.layer_norm_rms_epsilon"),
        "rope": read_rope(meta, size, meta.positive("rope.freq_base", 10000.0, above=1.0), factors),
        "scale": head_size**-0.5,
        "window": meta.count("attention.sliding_window", 0, least=0),
    }


def expert_config(meta: Metadata) -> dict[str, Any]:
    """The fields of a mixture of experts."""
    experts = meta.count("expert_count")
    if (used := meta.count("expert_used_count")) > experts:
        raise meta.error(f"{meta.arch}.expert_used_count", f"{used} experts a token, but there are only {experts}")
    return {
        "experts": experts,
        "experts_used": used,
        "expert_hidden": meta.count("expert_feed_forward_length", meta.count("feed_forward_length", 0, least=0)),
        "normalises_experts": meta.flag("expert_weights_norm", True),
    }


def read_rope(meta: Metadata, size: int, base: float, factors: np.ndarray | None, scaled: bool = True) -> Rope:
    """Speeds of `size` channels: base^(-2i/size), slowed down by the file's factors and scaling."""
    speeds = base ** (-np.arange(0, size, 2, dtype=np.float64) / size)
    if factors is not None:
        if factors.shape != speeds.shape or not (np.isfinite(factors) & (factors > 0)).all():
            got = factors.min(initial=np.inf) if factors.shape == speeds.shape else f"shape {list(factors.shape)}"
            raise meta.error("rope factors", f"expected {len(speeds)} numbers above 0, got {got}")
        speeds = speeds / factors
    if not scaled:
        return Rope(tuple(speeds.tolist()))
    kind = meta.word("rope.scaling.type", "linear", ("none", "linear", "yarn", "longrope"))
    length = float(meta.positive("rope.scaling.attn_factor", 1.0))
    if kind in ("none", "longrope"):
        return Rope(tuple(speeds.tolist()), length)
    factor = meta.positive("rope.scaling.factor", meta.positive("rope.scale_linear", 1.0))  # the latter: old files
    if kind == "linear":
        return Rope(tuple((speeds / factor).tolist()), length)
    return yarn(meta, speeds, size, base, factor, length)


def yarn(meta: Metadata, speeds: np.ndarray, size: int, base: float, factor: float, length: float) -> Rope:
    """YaRN: fast pairs keep their speed, slow ones are slowed by `factor`, between them a ramp."""
    trained = meta.count("rope.scaling.original_context_length", meta.count("context_length"))
    low, high = (
        size * math.log(trained / (turns * 2 * math.pi)) / (2 * math.log(base))
        for turns in (
            meta.positive("rope.scaling.yarn_beta_fast", 32.0),
            meta.positive("rope.scaling.yarn_beta_slow", 1.0),
        )
    )
    low, high = max(math.floor(low), 0), min(math.ceil(high), size - 1)
    ramp = np.clip((np.arange(size // 2) - low) / max(high - low, 0.001), 0, 1)
    kept = (1 - ramp) * (share := meta.number("rope.scaling.yarn_ext_factor", 1.0))
    mixed = speeds / factor * (1 - kept) + speeds * kept
    return Rope(tuple(mixed.tolist()), length * (1.0 + 0.1 * math.log(factor)) if factor > 1 and share else length)
