"""Models, rope: how positions turn queries and keys. Metadata and factors in, a speed per pair of
channels out."""

from __future__ import annotations

import math
from functools import cache

import numpy as np

from tetrad.core.record import record
from tetrad.models.config import MOST_CONTEXT, Metadata

MOST_CHANNELS = 1 << 12  # of a head


@record
class Rope:
    """One speed per pair of channels, in radians a position."""

    speeds: tuple[float, ...]
    length: float = 1.0  # of a turned vector


def read_rope(
    meta: Metadata, size: int, base: float, factors: np.ndarray | None, scaled: bool = True
) -> Rope:
    """Speeds of `size` channels: base^(-2i/size), slowed down by the file's factors and scaling."""
    speeds = base ** (-np.arange(0, size, 2, dtype=np.float64) / size)
    if factors is not None:
        if factors.shape != speeds.shape or not (np.isfinite(factors) & (factors > 0)).all():
            got = (
                factors.min(initial=np.inf)
                if factors.shape == speeds.shape
                else f"shape {list(factors.shape)}"
            )
            raise meta.error("rope factors", f"expected {len(speeds)} numbers above 0, got {got}")
        speeds = speeds / factors
    if not scaled:
        return Rope(tuple(speeds.tolist()))
    kind = meta.word("rope.scaling.type", "linear", ("none", "linear", "yarn", "longrope"))
    length = float(meta.positive("rope.scaling.attn_factor", 1.0))
    if kind in ("none", "longrope"):
        return Rope(tuple(speeds.tolist()), length)
    # the latter: old files
    factor = meta.positive("rope.scaling.factor", meta.positive("rope.scale_linear", 1.0))
    if kind == "linear":
        return Rope(tuple((speeds / factor).tolist()), length)
    return yarn(meta, speeds, size, base, factor, length)


def yarn(
    meta: Metadata, speeds: np.ndarray, size: int, base: float, factor: float, length: float
) -> Rope:
    """YaRN: fast pairs keep their speed, slow ones are slowed by `factor`, between them a ramp."""
    trained = meta.count(
        "rope.scaling.original_context_length", meta.count("context_length", most=MOST_CONTEXT)
    )
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
    return Rope(
        tuple(mixed.tolist()),
        length * (1.0 + 0.1 * math.log(factor)) if factor > 1 and share else length,
    )


@cache
def rope_order(heads: int, size: int, turned: int) -> np.ndarray:
    """Rows of a query or key weight whose rope pairs are (2i, 2i+1), in the order where they are
    (i, i + pairs). One array for all layers."""
    inside = np.arange(size)
    inside[:turned] = np.concatenate([np.arange(0, turned, 2), np.arange(1, turned, 2)])
    return (np.arange(heads)[:, None] * size + inside).reshape(-1)
