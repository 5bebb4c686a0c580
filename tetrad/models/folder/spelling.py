"""Models, folders, spelling: how a folder names what a GGUF file of the same architecture holds.

Receives tables of names, written in the file of an architecture; returns the name of ours that a
tensor of a folder has.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping

import numpy as np

from tetrad.core.record import field, record
from tetrad.models.folder.settings import FolderSettings

# endings of names: those of old checkpoints stand for the same
ENDINGS = {"weight": "weight", "bias": "bias", "gamma": "weight", "beta": "bias"}
Change = Callable[[np.ndarray, FolderSettings], np.ndarray]


def nothing_more(settings: FolderSettings) -> dict[str, np.ndarray]:
    return {}


@record(eq=False)
class FolderNames:
    """The spelling of one architecture. Names stand without their endings (.weight, .bias)."""

    # config.json -> metadata; keys without a dot's worth of prefix are the architecture's own
    keys: Callable[[FolderSettings], dict[str, object]]
    outer: Mapping[str, str]  # ours -> theirs
    layer: str  # what stands before the number of a block
    block: Mapping[str, str]  # ours, short -> theirs, after the number
    prefixes: tuple[str, ...] = ("",)  # what may stand before all of these names
    heads: Mapping[str, str] = field(default_factory=dict)  # ours -> theirs, without the prefix
    # beginnings of names that are not wanted: outputs for training, tables that can be computed
    unused: tuple[str, ...] = ()
    # ours -> what has to be done with its numbers
    changes: Mapping[str, Change] = field(default_factory=dict)
    made: Callable[[FolderSettings], dict[str, np.ndarray]] = nothing_more  # more tensors

    def prefix_of(self, names: Iterable[str]) -> str:
        """What stands before the names of a file; the first where none fits."""
        known = set(names)
        for prefix in self.prefixes:
            if f"{prefix}{self.outer['token_embd']}.weight" in known:
                return prefix
        return self.prefixes[0]

    def ours(self, name: str, prefix: str) -> str | None:
        """The name of ours for one of a folder; None where it has none."""
        stem, _, ending = name.rpartition(".")
        if ending not in ENDINGS:
            return None
        end = ENDINGS[ending]
        if (found := flipped(self.heads).get(stem)) is not None:
            return f"{found}.{end}"
        if not stem.startswith(prefix):
            return None
        stem = stem.removeprefix(prefix)
        if (found := flipped(self.outer).get(stem)) is not None:
            return f"{found}.{end}"
        place = re.fullmatch(rf"{re.escape(self.layer)}(0|[1-9]\d{{0,4}})\.(.+)", stem)
        short = None if place is None else flipped(self.block).get(place[2])
        return None if short is None or place is None else f"blk.{place[1]}.{short}.{end}"

    def is_unused(self, name: str, prefix: str) -> bool:
        """Is it known, and not wanted?"""
        return name.startswith(self.unused) or name.removeprefix(prefix).startswith(self.unused)

    def change_of(self, name: str) -> Change | None:
        """What has to be done with the numbers of a tensor of ours."""
        short = name.split(".", 2)[-1] if name.startswith("blk.") else name
        return self.changes.get(short.rpartition(".")[0])


def flipped(names: Mapping[str, str]) -> dict[str, str]:
    return {theirs: ours for ours, theirs in names.items()}
