"""Compat, states: evaluated sequences that programs keep, in memory or in a folder.

A file of a state holds arrays and numbers alone: reading one runs nothing of it.
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

CAPACITY = 2 << 30


@dataclass(frozen=True)
class LlamaState:
    """What `save_state` gives: tokens that were evaluated, with their keys and values."""

    input_ids: np.ndarray
    scores: np.ndarray  # f32[1, vocabulary]: after the last token
    n_tokens: int
    llama_state: bytes
    llama_state_size: int
    seed: int


class BaseLlamaCache(ABC):
    """States by the tokens they hold; a sequence finds the one that begins as it does the
    longest."""

    def __init__(self, capacity_bytes: int = CAPACITY) -> None:
        self.capacity_bytes = capacity_bytes

    @property
    @abstractmethod
    def cache_size(self) -> int:
        """Bytes of all states."""

    @abstractmethod
    def keys(self) -> Iterable[tuple[int, ...]]: ...

    @abstractmethod
    def __getitem__(self, key: Sequence[int]) -> LlamaState: ...

    @abstractmethod
    def __setitem__(self, key: Sequence[int], value: LlamaState) -> None: ...

    def __contains__(self, key: Sequence[int]) -> bool:
        return self._find_longest_prefix_key(tuple(key)) is not None

    def _find_longest_prefix_key(self, key: tuple[int, ...]) -> tuple[int, ...] | None:
        found = max(self.keys(), key=lambda other: common_length(other, key), default=None)
        return found if found is not None and common_length(found, key) else None

    def _found(self, key: Sequence[int]) -> tuple[int, ...]:
        found = self._find_longest_prefix_key(tuple(key))
        if found is None:
            raise KeyError("no state begins with the first of these tokens")
        return found


def common_length(a: Sequence[int], b: Sequence[int]) -> int:
    """How many tokens both begin with."""
    return next(
        (i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b))
    )


class LlamaRAMCache(BaseLlamaCache):
    """In memory: the one that was not asked for the longest goes first."""

    def __init__(self, capacity_bytes: int = CAPACITY) -> None:
        super().__init__(capacity_bytes)
        self.cache_state: OrderedDict[tuple[int, ...], LlamaState] = OrderedDict()

    @property
    def cache_size(self) -> int:
        return sum(state.llama_state_size for state in self.cache_state.values())

    def keys(self) -> Iterable[tuple[int, ...]]:
        return self.cache_state

    def __getitem__(self, key: Sequence[int]) -> LlamaState:
        found = self._found(key)
        self.cache_state.move_to_end(found)
        return self.cache_state[found]

    def __setitem__(self, key: Sequence[int], value: LlamaState) -> None:
        self.cache_state[tuple(key)] = value
        self.cache_state.move_to_end(tuple(key))
        while self.cache_size > self.capacity_bytes and self.cache_state:
            self.cache_state.popitem(last=False)


LlamaCache = LlamaRAMCache


class LlamaDiskCache(BaseLlamaCache):
    """In a folder, a file a state: the oldest goes first."""

    def __init__(
        self, cache_dir: str = ".cache/llama_cache", capacity_bytes: int = CAPACITY
    ) -> None:
        super().__init__(capacity_bytes)
        self.folder = Path(cache_dir)
        self.folder.mkdir(parents=True, exist_ok=True)

    @property
    def files(self) -> list[Path]:
        """The oldest first."""
        return sorted(self.folder.glob("*.npz"), key=lambda file: file.stat().st_mtime_ns)

    @property
    def cache_size(self) -> int:
        return sum(file.stat().st_size for file in self.files)

    def keys(self) -> Iterable[tuple[int, ...]]:
        for file in self.files:
            with np.load(file, allow_pickle=False) as held:
                yield tuple(held["key"].tolist())

    def _file(self, key: Sequence[int]) -> Path:
        name = hashlib.sha256(np.array(key, np.int64).tobytes()).hexdigest()
        return self.folder / f"{name}.npz"

    def __getitem__(self, key: Sequence[int]) -> LlamaState:
        with np.load(self._file(self._found(key)), allow_pickle=False) as held:
            data, seed = held["state"].tobytes(), int(held["seed"])
            ids, scores = held["input_ids"], held["scores"]
        return LlamaState(ids, scores, len(ids), data, len(data), seed)

    def __setitem__(self, key: Sequence[int], value: LlamaState) -> None:
        np.savez(
            self._file(key),
            key=np.array(key, np.int64),
            input_ids=value.input_ids,
            scores=value.scores,
            state=np.frombuffer(value.llama_state, np.uint8),
            seed=np.array(value.seed),
        )
        files = self.files
        while self.cache_size > self.capacity_bytes and files:
            files.pop(0).unlink()
