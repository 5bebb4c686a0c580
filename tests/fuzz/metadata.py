"""Fuzzing metadata: every key of a model with values of every wrong type, through loading and every
command.

A tiny model gets one to three keys changed: numbers at the edges of every type, NaN and infinity,
texts, bytes that are no text, arrays of all of those. Whatever comes of it is a result in numbers
or an error of our own.
"""

from __future__ import annotations

import os
import random
import tempfile
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from click.testing import CliRunner

import tetrad as td
from tests.models.tiny import TINY, tiny_model
from tetrad.cli.main import main
from tetrad.core.errors import TetradError
from tetrad.formats import gguf
from tetrad.formats.gguf.layout import SCALARS

Metadata = dict[str, Any]

# Keys that models here do not have, but that are read where they are.
OTHERS = (
    "general.alignment", "general.license", "general.file_type", "general.sampling.temp",
    "general.sampling.top_k",
    "general.sampling.top_p", "split.count", "split.no", "split.tensors.count",
    "tokenizer.ggml.scores",
    "tokenizer.ggml.add_eos_token", "tokenizer.ggml.add_space_prefix",
    "tokenizer.ggml.unknown_token_id",
    "tokenizer.ggml.eot_token_id", "tokenizer.ggml.precompiled_charsmap",
    "tokenizer.chat_template.tool_use",
)  # fmt: skip
OWN = (
    "rope.scaling.type", "rope.scaling.factor", "rope.scale_linear", "rope.scaling.attn_factor",
    "pooling_type",
    "rope.scaling.original_context_length", "rope.scaling.yarn_ext_factor",
    "rope.scaling.yarn_beta_fast",
    "attention.sliding_window", "expert_weights_norm", "attention.key_length",
    "attention.value_length",
    "attention.scale", "rope.dimension_count", "expert_weights_scale", "leading_dense_block_count",
)  # fmt: skip
FLOATS = (float("nan"), float("inf"), float("-inf"), 0.0, -1.0, 1e-45, 1e38, 0.5)
TEXTS: tuple[str | bytes, ...] = (
    "",
    "llama",
    "\x1b[2J",
    "\u202e",
    b"\xff\xfe",
    "{{ 1 / 0 }}",
    "{% for",
    "a" * 70_000,
)
PROMPT = "hello 123"


# -- values ----------------------------------------------------------------------------------------


def scalar(rng: random.Random, kind: str) -> gguf.Typed:
    if kind == "bool":
        return gguf.Typed(kind, rng.random() < 0.5)
    if kind[0] == "f":
        return gguf.Typed(kind, rng.choice(FLOATS))
    bits, low = int(kind[1:]), 0 if kind[0] == "u" else -(1 << int(kind[1:]) - 1)
    edges = (
        low,
        low + 1,
        0,
        1,
        2,
        3,
        17,
        100,
        low + (1 << bits) - 1,
        rng.randrange(low, low + (1 << bits)),
    )
    return gguf.Typed(kind, rng.choice([edge for edge in edges if low <= edge < low + (1 << bits)]))


def array(rng: random.Random, depth: int) -> gguf.Typed:
    count = rng.choice((0, 1, 2, 7, 300))
    element = rng.choice((*SCALARS, "str", "array" if depth < 3 else "u8"))
    if element == "str":
        return gguf.Typed("[str]", [rng.choice(TEXTS[:6]) for _ in range(count)])
    if element == "array":
        return gguf.Typed("[array]", [array(rng, depth + 1) for _ in range(min(count, 7))])
    return gguf.Typed(f"[{element}]", [scalar(rng, element).value for _ in range(count)])


def value(rng: random.Random) -> gguf.Typed:
    which = rng.random()
    if which < 0.55:
        return scalar(rng, rng.choice(tuple(SCALARS)))
    return gguf.Typed("str", rng.choice(TEXTS)) if which < 0.7 else array(rng, 1)


def tokenizer(rng: random.Random) -> Metadata:
    """Mostly that of the model, else another algorithm over the same tokens, which read other
    keys."""
    if rng.random() < 0.6:
        return {}
    scores = np.array([-rng.random() for _ in range(300)], np.float32)
    other = {
        "tokenizer.ggml.model": rng.choice(("llama", "t5", "bert")),
        "tokenizer.ggml.scores": scores,
    }
    return {
        **other,
        "tokenizer.ggml.unknown_token_id": 0,
        "tokenizer.ggml.precompiled_charsmap": b"",
    }


def changed(rng: random.Random, metadata: Metadata, arch: str) -> tuple[Metadata, Metadata]:
    """The metadata with some keys changed, and those."""
    keys = [*metadata, *OTHERS, *(f"{arch}.{own}" for own in OWN)]
    changes = {key: value(rng) for key in rng.sample(keys, rng.choice((1, 1, 2, 3)))}
    return {**metadata, **changes}, changes


# -- what is done with them ------------------------------------------------------------------------


def evaluate(path: Path) -> None:
    """One step, in every way that gives numbers."""
    model = td.load(path, context=64)
    tokens = model.prompt_tokens(PROMPT)[:8]
    for ask in (
        model.logits,
        lambda tokens: model.logits(tokens, last=True),
        lambda tokens: model.embed([tokens]),
    ):
        assert are_numbers(ask(tokens)), "NaN or infinity passed on"
    model.generate(PROMPT, max_tokens=1, **model.recommended)


def are_numbers(found: np.ndarray) -> bool:
    """A logit of -inf is one: a token that cannot come."""
    return not (np.isnan(found) | np.isposinf(found)).any()


def chat(path: Path) -> None:
    td.load(path, context=256).chat([{"role": "user", "content": "hi"}], max_tokens=1)


def commands(path: Path, text: Path) -> list[list[str]]:
    model = ["-m", str(path)]
    return [
        *(["show", *model, *json] for json in ([], ["--json"])),
        *(["inspect", *model, *json] for json in ([], ["--json"])),
        *(["list", *json] for json in ([], ["--json"])),
        ["run", *model, "-p", PROMPT, "-n", "1", "-c", "64"],
        ["embed", *model, "-c", "64", "-p", PROMPT],
        ["perplexity", *model, "-f", str(text), "-c", "16", "--chunks", "1"],
        ["tokenize", *model, "-p", PROMPT],
    ]


def run(words: list[str], whole: str) -> str | None:
    """What is wrong with how a command ended; `list` always ends well, and names the model that is
    in order."""
    result = CliRunner().invoke(main, words, prog_name="tetrad", input="")
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        return f"{words[0]}: {type(result.exception).__name__}: {result.exception}"
    if words[0] == "list" and (result.exit_code != 0 or whole not in result.output):
        return f"list: exit code {result.exit_code}: {result.output[:300]}"
    said_nan = words[0] in ("embed", "perplexity") and "nan" in result.stdout.lower()
    return (
        f"{words[0]}: NaN passed on, exit code {result.exit_code}"
        if result.exit_code == 0 and said_nan
        else None
    )


def called(function: Callable[[Path], None], path: Path) -> str | None:
    try:
        function(path)
    except (TetradError, MemoryError):
        return None
    except Exception as error:
        return f"{function.__name__}: {type(error).__name__}: {error}"
    return None


@contextmanager
def alone(folder: Path) -> Iterator[None]:
    """With no models but those of the folder; a warning is an error, as it is in the tests."""
    before = {name: os.environ.get(name) for name in ("TETRAD_MODELS", "HF_HUB_CACHE")}
    os.environ.update(dict.fromkeys(before, str(folder)))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            yield
    finally:
        for name, old in before.items():
            os.environ.pop(name) if old is None else os.environ.update({name: old})


def check(seed: int) -> str | None:
    rng = random.Random(seed)
    arch = rng.choice(("llama", "mixtral", "qwen2", "phi3", "gemma3"))
    metadata, tensors = tiny_model(arch, layers=1, context=256)
    metadata |= tokenizer(rng)
    made, changes = changed(rng, metadata, TINY[arch].arch)
    with tempfile.TemporaryDirectory() as name, alone(Path(name)):
        folder = Path(name)
        path, text = folder / "changed.gguf", folder / "text.txt"
        gguf.write(folder / "whole.gguf", metadata, tensors)
        text.write_text("the quick brown fox jumps over the lazy dog " * 4)
        if (found := written(path, made, tensors)) is None:
            return None  # the writer refused it
        found = next(filter(None, (called(function, path) for function in (evaluate, chat))), "")
        found = found or next(
            filter(None, (run(words, "whole") for words in commands(path, text))), ""
        )
    return f"seed {seed}, {arch} with {changes!r:.600}: {found}" if found else None


def written(path: Path, metadata: Metadata, tensors: dict[str, np.ndarray]) -> Path | None:
    try:
        gguf.write(path, metadata, tensors)
    except TetradError:
        return None
    return path
