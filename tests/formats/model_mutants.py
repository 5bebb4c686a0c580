"""Damaged models: mutants of files that can be loaded, through loading, one step, and the commands
that read files.

Whatever the bytes: numbers, or an error of our own. Some mutants are still models, with other
weights or settings.
"""

from __future__ import annotations

from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any

import tetrad as td
from tests.formats.gguf_bytes import BOOL, F32, I32, STR, U32, Bytes
from tests.formats.gguf_mutants import mutant
from tests.fuzz.metadata import alone, are_numbers, run
from tests.models.tiny import tiny_model
from tetrad.core.errors import TetradError
from tetrad.formats import gguf

ARCHITECTURES = ("llama", "mixtral", "qwen2", "gemma2")
TOKENS = [17, 114, 211, 8]


@cache
def model_file(arch: str) -> Bytes:
    """A tiny model, byte by byte, with the places of its numbers."""
    metadata, tensors = tiny_model(arch, layers=1, context=256)
    b = Bytes().head(len(tensors), len(metadata))
    for key, value in metadata.items():
        add_key(b, key, value)
    offset = 0
    for name, tensor in tensors.items():
        b.tensor(name, list(tensor.shape[::-1]), 0, offset)
        offset += -(-tensor.nbytes // 32) * 32
    b.pad()
    for tensor in tensors.values():
        b.raw(tensor.tobytes()).pad()
    return b


def add_key(b: Bytes, key: str, value: Any) -> None:
    kinds = {bool: BOOL, int: U32, float: F32, str: STR}
    if isinstance(value, list):
        b.array(key, I32 if isinstance(value[0], int) else STR, value)
    else:
        b.key(key, kinds[type(value)], value)


def one_step(path: Path) -> str:
    """How it went: that it was refused, or that there were numbers, after a prompt and after one
    more token."""
    try:
        model = td.load(path, context=64)
        assert are_numbers(model.logits(TOKENS)), "NaN or infinity passed on"
        model.generate(TOKENS, max_tokens=1, temperature=0)
    except (TetradError, MemoryError) as error:
        return type(error).__name__
    return "ran"


def try_model(path: Path) -> str:
    outcome = one_step(path)
    for command in (["show"], ["inspect"], ["inspect", "--json"], ["list"]):
        problem = run(command if command == ["list"] else [*command, "-m", str(path)], "whole")
        assert problem is None, problem
    return outcome


def campaign(first: int, count: int, folder: Path) -> Counter[str]:
    """How many ended in which way."""
    path, outcomes = folder / "mutant.gguf", Counter[str]()
    gguf.write(folder / "whole.gguf", *tiny_model("llama", layers=1))
    with alone(folder):
        for number in range(first, first + count):
            path.write_bytes(mutant(number, model_file(ARCHITECTURES[number % len(ARCHITECTURES)])))
            try:
                outcomes[try_model(path)] += 1
            except Exception as error:
                raise AssertionError(f"mutant {number}: {type(error).__name__}: {error}") from error
    return outcomes
