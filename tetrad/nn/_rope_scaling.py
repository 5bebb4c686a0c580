"""How fast pairs of channels turn: rules by which models read texts longer than they were trained
for, with the names that model files give them.

Receives the size of a head, a base and the settings of a rule; returns a speed for each pair of
channels, in radians a position, and what cosines and sines are multiplied with. `nn._rope` makes
tables of them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from tetrad.core.errors import SettingError

Scaling = Mapping[str, Any]
Speeds = tuple[np.ndarray, float]  # one speed a pair; what tables are multiplied with


def speeds_of(size: int, base: float, scaling: Scaling, length: int | None = None) -> Speeds:
    """Speeds of `size` channels in f64; `length` is how many positions there are, where known."""
    if not base > 0:
        raise SettingError("rope_tables: base", "a number above 0", base)
    rule = scaling.get("rope_type", scaling.get("type", "default"))
    if rule not in RULES:
        raise SettingError("rope_tables: rope_type", "one of " + ", ".join(RULES), rule)
    return RULES[rule](size, base, scaling, length)


def number(scaling: Scaling, name: str, default: float | None = None) -> float:
    value = scaling.get(name, default)
    if isinstance(value, bool) or not isinstance(value, int | float) or not value > 0:
        raise SettingError(f"rope_tables: {name}", "a number above 0", value)
    return float(value)


def plain(size: int, base: float, scaling: Scaling, length: int | None) -> Speeds:
    return base ** (-np.arange(0, size, 2, dtype=np.float64) / size), 1.0


def linear(size: int, base: float, scaling: Scaling, length: int | None) -> Speeds:
    """All pairs are slower by the factor: positions are interpolated."""
    speeds, _ = plain(size, base, scaling, length)
    return speeds / number(scaling, "factor"), 1.0


def dynamic(size: int, base: float, scaling: Scaling, length: int | None) -> Speeds:
    """NTK: a base so large that the slowest pair is interpolated and the fastest is not. As long as
    the text is no longer than those of training, nothing changes; without
    `original_max_position_embeddings` the base is that of the factor."""
    factor = number(scaling, "factor")
    if "original_max_position_embeddings" in scaling:
        trained = number(scaling, "original_max_position_embeddings")
        if length is None:
            raise SettingError("rope_tables: positions", "how many there are (an int)", "an array")
        factor = factor * max(length, trained) / trained - (factor - 1)
    if size <= 2:
        raise SettingError("rope_tables: size", "more than one pair of channels", size)
    return plain(size, base * factor ** (size / (size - 2)), scaling, length)


def yarn(size: int, base: float, scaling: Scaling, length: int | None) -> Speeds:
    """Pairs that turn often in a text of training keep their speed, those that hardly turn are
    interpolated, between them a ramp."""
    speeds, _ = plain(size, base, scaling, length)
    factor = number(scaling, "factor")
    trained = number(scaling, "original_max_position_embeddings")
    low, high = (
        size * math.log(trained / (turns * 2 * math.pi)) / (2 * math.log(base))
        for turns in (number(scaling, "beta_fast", 32.0), number(scaling, "beta_slow", 1.0))
    )
    if scaling.get("truncate", True):
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, size - 1)
    ramp = np.clip((np.arange(size // 2) - low) / max(high - low, 0.001), 0, 1)
    return speeds / factor * ramp + speeds * (1 - ramp), amplitude(scaling, factor)


def amplitude(scaling: Scaling, factor: float) -> float:
    """What cosines and sines are multiplied with, so that scores are as sharp as in training."""
    if scaling.get("attention_factor") is not None:
        return number(scaling, "attention_factor")
    scales = [scaling.get(name) for name in ("mscale", "mscale_all_dim")]
    if all(scales):
        return sharpness(factor, scales[0]) / sharpness(factor, scales[1])
    return sharpness(factor, 1.0)


def sharpness(factor: float, scale: Any) -> float:
    return 0.1 * float(scale) * math.log(factor) + 1.0 if factor > 1 else 1.0


def llama3(size: int, base: float, scaling: Scaling, length: int | None) -> Speeds:
    """Waves shorter than a share of the texts of training stay, longer ones are interpolated,
    between them a smooth change."""
    speeds, _ = plain(size, base, scaling, length)
    factor = number(scaling, "factor")
    trained = number(scaling, "original_max_position_embeddings")
    low, high = (number(scaling, f"{name}_freq_factor") for name in ("low", "high"))
    if not low < high:
        raise SettingError("rope_tables: low_freq_factor", "below high_freq_factor", low)
    turns = trained * speeds / (2 * math.pi)  # in a text of training
    share = np.clip((turns - low) / (high - low), 0, 1)
    return (1 - share) * speeds / factor + share * speeds, 1.0


RULES: dict[str, Callable[[int, float, Scaling, int | None], Speeds]] = {
    "default": plain,
    "linear": linear,
    "dynamic": dynamic,
    "ntk": dynamic,
    "yarn": yarn,
    "llama3": llama3,
}
