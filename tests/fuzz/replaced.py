"""Fuzzing files that change: models come and go at a few paths, which are written in every way
between their uses.

What a model predicts is what its file held when it was opened; or, if that was changed where it
lies, an error says so.
"""

from __future__ import annotations

import gc
import os
import random
import shutil
import tempfile
from functools import cache
from pathlib import Path

import numpy as np

import tetrad as td
from tests.models.tiny import tiny_model
from tetrad.core.errors import FileChangedError
from tetrad.formats import gguf
from tetrad.models.model import Model

TOKENS = [17, 114, 211, 8]
# the embedding is large enough to stay in the file; the third lies otherwise
WORDS = (1100, 1100, 1300)
STEPS = 14


def source(folder: Path, number: int) -> Path:
    """A model; norms are equal in all of them, as constants of equal content are one constant."""
    metadata, tensors = tiny_model("llama", seed=number, words=WORDS[number], layers=1)
    norms = {
        name: tensor for name, tensor in tiny_model("llama", layers=1)[1].items() if "norm" in name
    }
    path = folder / f"source-{number}.gguf"
    gguf.write(path, {"general.alignment": 64, **metadata}, tensors | norms)
    return path


@cache
def expected(number: int) -> bytes:
    """Its logits, from a path that never changes."""
    with tempfile.TemporaryDirectory() as folder:
        return logits(td.load(source(Path(folder), number), context=64))


def logits(model: Model) -> bytes:
    model.engine.slots[0].length = 0  # evaluated anew, not found in the cache
    return np.asarray(model.logits(TOKENS)).tobytes()


def put(rng: random.Random, content: Path, path: Path) -> str:
    """The content takes the path, in one of the ways programs do that."""
    how = rng.choice(("renamed", "written over", "deleted first"))
    if how == "renamed":
        shutil.copyfile(content, path.with_suffix(".new"))
        path.with_suffix(".new").replace(path)
        return how
    if how == "deleted first":
        path.unlink(missing_ok=True)
    shutil.copyfile(content, path)
    later(path)
    return how


def later(path: Path) -> None:
    """A time of its own for each change: the clocks of file systems are coarser than this test is
    quick."""
    later.ticks = getattr(later, "ticks", 0) + 1  # type: ignore[attr-defined]
    now = path.stat().st_mtime_ns + later.ticks * 1000  # type: ignore[attr-defined]
    os.utime(path, ns=(now, now))


class Trial:
    """Models by path, each with the number of what it was loaded from, and whether its file was
    changed in place."""

    def __init__(self, rng: random.Random, folder: Path) -> None:
        self.rng, self.folder = rng, folder
        self.sources = [source(folder, number) for number in range(len(WORDS))]
        self.there: dict[Path, int] = {}
        self.models: list[tuple[Path, int, Model]] = []
        self.changed: set[int] = set()  # ids of models whose file was written over
        self.log: list[str] = []

    def step(self) -> str | None:
        action = self.rng.choice((self.write, self.load, self.load, self.use, self.use, self.drop))
        return action()

    def write(self) -> None:
        path, number = self.folder / f"{self.rng.randrange(2)}.gguf", self.rng.randrange(len(WORDS))
        inode = path.stat().st_ino if path.exists() else None
        how = put(self.rng, self.sources[number], path)
        self.log.append(f"{path.name} is {number}, {how}")
        self.there[path] = number
        if how == "written over":
            self.changed |= {
                id(m) for _, _, m in self.models if any(f.identity.inode == inode for f in files(m))
            }

    def load(self) -> str | None:
        if not self.there:
            return None
        path = self.rng.choice(sorted(self.there))
        self.log.append(f"load {path.name}")
        self.models.append((path, self.there[path], td.load(path, context=64)))
        return self.compare(*self.models[-1])

    def use(self) -> str | None:
        return self.compare(*self.rng.choice(self.models)) if self.models else None

    def drop(self) -> None:
        if self.models:
            path, number, model = self.models.pop(self.rng.randrange(len(self.models)))
            self.log.append(f"drop {number} of {path.name}")
            self.changed.discard(id(model))

    def compare(self, path: Path, number: int, model: Model) -> str | None:
        try:
            got = logits(model)
        except FileChangedError:
            return None if id(model) in self.changed else f"{path.name} ({number}) was not changed"
        if id(model) in self.changed:
            return f"{path.name} ({number}) was written over, unnoticed"
        return (
            None if got == expected(number) else f"{path.name}: other logits than those of {number}"
        )


def files(model: Model) -> tuple[gguf.Pin, ...]:
    return model.parts.programs.files


def check(seed: int) -> str | None:
    rng = random.Random(seed)
    for number in range(len(WORDS)):
        expected(number)
    collects = gc.isenabled()
    gc.enable() if rng.random() < 0.5 else gc.disable()
    try:
        with tempfile.TemporaryDirectory() as folder:
            trial = Trial(rng, Path(folder))
            for _ in range(STEPS):
                if (found := trial.step()) is not None:
                    return f"seed {seed}: {found}; {'; '.join(trial.log)}"
    finally:
        gc.enable() if collects else gc.disable()
    return None
