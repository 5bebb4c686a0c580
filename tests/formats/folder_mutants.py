"""Damaged folders of models: config.json, the files of the tokeniser or the header of the tensors
with some of its words changed. Whatever comes of it is a model that gives numbers, or an error of
our own.

Some mutants are still models, with other settings.
"""

from __future__ import annotations

import random
import re
import warnings
from collections import Counter
from pathlib import Path

import numpy as np

import tetrad as td
from tests.formats.safetensors_mutants import EDGES, framed
from tests.models.folders import golden_folder, names, tokens
from tetrad.core.errors import TetradError

FILES = (*("config.json",) * 4, "tokenizer.json", "tokenizer_config.json", "model.safetensors")
WORDS = [
    *EDGES,
    "0.5",
    "-0.5",
    "1e-45",
    "1e38",
    "1e999",
    '"gelu"',
    '"\\u0000"',
    '"llama"',
    "[1]",
    "{}",
]
TOKEN = re.compile(rb'"(?:[^"\\]|\\.)*"|-?[\d.]+(?:[eE][-+]?\d+)?|true|false|null|[{}\[\],:]')


def damaged(rng: random.Random, data: bytes) -> bytes:
    """One word of a text, or two, are others, or gone; now and then a byte is."""
    for _ in range(rng.choice((1, 1, 1, 2))):
        found = [*TOKEN.finditer(data)]
        if rng.random() < 0.7:
            found = [word for word in found if word[0][:1] not in b"{}[],:"]
        if not found or rng.random() < 0.1:
            at = rng.randrange(len(data) + 1)
            data = data[:at] + rng.randbytes(rng.randint(0, 3)) + data[at + 1 :]
            continue
        old = rng.choice(found)
        new = rng.choice([rng.choice(WORDS).encode(), rng.choice(found)[0], b""])
        data = data[: old.start()] + new + data[old.end() :]
    return data


def damaged_tensors(rng: random.Random, data: bytes) -> bytes:
    """The header of a safetensors file, or where the file ends."""
    if rng.random() < 0.1:
        return data[: rng.randrange(len(data))]
    length = int.from_bytes(data[:8], "little")
    return framed(damaged(rng, data[8 : 8 + length]), data[8 + length :])


def try_folder(folder: Path, computes: bool) -> str:
    """What comes of it; an error that is not ours goes through."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            with td.load(folder, kv="f32", context=16) as model:
                if computes and hasattr(model, "embed"):
                    found = model.embed([tokens(4)], normalize=False)
                    assert np.asarray(found).dtype.kind == "f"
        except TetradError as error:
            return type(error).__name__
    return "a model"


def campaign(first: int, count: int, folder: Path, every: int = 20) -> Counter[str]:
    """Outcomes of mutants `first` on; one in `every` computes."""
    kinds = names()
    whole = {name: golden_folder(folder / name, name) for name in kinds}
    outcomes: Counter[str] = Counter()
    for number in range(first, first + count):
        rng = random.Random(number)
        target = whole[rng.choice(kinds)]
        file = target / rng.choice(FILES)
        kept = file.read_bytes()
        change = damaged_tensors if file.suffix == ".safetensors" else damaged
        try:
            file.write_bytes(change(rng, kept))
            outcomes[try_folder(target, number % every == 0)] += 1
        except Exception as error:
            raise AssertionError(f"mutant {number}: {target.name}/{file.name}") from error
        finally:
            file.write_bytes(kept)
    return outcomes
