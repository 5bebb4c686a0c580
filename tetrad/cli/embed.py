"""Command line: `tetrad embed`, texts as vectors, and `tetrad rerank`, texts by how well they
answer a query.

Receives words, lines of stdin or of a file; prints JSON, or writes a file of vectors (.npy or
.jsonl).
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import click
import numpy as np

from tetrad.cli.completion import complete_models
from tetrad.cli.console import counting_bar, note, say
from tetrad.cli.options import (
    READABLE,
    ModelCommand,
    as_text,
    load_options,
    load_settings,
    model_options,
    model_path,
    names_model,
    option,
    read_text,
)
from tetrad.core.visible import one_line
from tetrad.formats.replace import replaced
from tetrad.models.model import Model, load

POOLINGS = ("mean", "cls", "last")
FORMATS = ("array", "json")
DTYPES = ("f32", "bf16", "int8")
TOGETHER = 256  # texts between two steps of the progress bar
SAMPLE = 32  # texts on which less exact products are measured
NORMS = {None: None, "2": True, "-1": False}
WRITERS = (".npy", ".jsonl")

file_option = option(
    "-f", "--file", "source", type=READABLE, default=None,
    help="A file with texts, a line each; - is stdin.",
)  # fmt: skip
truncate_option = option("--truncate", is_flag=True, help="Cut texts that are too long.")


@click.command(cls=ModelCommand)
@click.argument("model", shell_complete=complete_models, required=False)
@click.argument("texts", nargs=-1, metavar="[TEXT]...")
@model_options
@load_options
@option("-p", "--prompt", default=None, help="A text.")
@file_option
@option(
    "--embd-separator",
    "separator",
    default="\n",
    show_default=False,
    help="What stands between texts of a file.",
)
@option(
    "--pooling",
    type=click.Choice(POOLINGS),
    default=None,
    help="How; default: as the model says, or mean.",
)
@option(
    "--embd-normalize",
    "norm",
    type=click.Choice(["-1", "2"]),
    default=None,
    help="2: of length 1; -1: as it is; default: as the model says, or 2.",
)
@option(
    "--normalize/--no-normalize",
    "normalize",
    default=None,
    show_default=False,
    help="The same, in other words.",
)
@option(
    "--embd-output-format",
    "output",
    type=click.Choice(FORMATS),
    default="array",
    help="json: as OpenAI has it.",
)
@option(
    "-o",
    "--output",
    "target",
    type=click.Path(dir_okay=False, path_type=Path),
    default=None,
    help="Write to a .npy or .jsonl file.",
)
@option(
    "--dtype",
    type=click.Choice(DTYPES),
    default="f32",
    help="Products of an encoder; the loss is measured on some of the texts and printed.",
)
@truncate_option
def embed(
    model: str | None, texts: tuple[str, ...], prompt: str | None, source: Path | None, **given: Any
) -> None:
    """The vectors of TEXT, or of the lines of stdin, as JSON or a file."""
    if names_model(given) and model is not None:
        texts, model = (model, *texts), None
    separator, pooling, output, target, dtype, truncate = (
        given.pop(name)
        for name in ("separator", "pooling", "output", "target", "dtype", "truncate")
    )
    check_target(target)
    how = {"pooling": pooling, "normalize": asked_norm(given), "truncate": truncate}
    together, given["batch"] = given["batch"] or TOGETHER, None
    path = model_path(model, given)
    said = given_texts([*texts, *([] if prompt is None else [prompt])], source, separator)
    settings = load_settings(given)
    loaded = load(path, dtype="" if dtype == "f32" else dtype, **settings)
    vectors = embedded(loaded, said, max(together, 1), how)
    if dtype != "f32":
        note(loss(load(path, **settings), said[:SAMPLE], vectors, dtype, how))
    if target is not None:
        write_vectors(target, vectors)
    else:
        print_vectors(vectors, output)


def check_target(target: Path | None) -> None:
    if target is not None and target.suffix not in WRITERS:
        raise click.UsageError(
            f"-o {target}: expected a name that ends with {' or '.join(WRITERS)}"
        )
    if target is not None and not target.parent.is_dir():
        raise click.UsageError(f"-o {target}: there is no folder {target.parent}")


def asked_norm(given: dict[str, Any]) -> bool | None:
    norm, normalize = NORMS[given.pop("norm")], given.pop("normalize")
    if norm is not None and normalize is not None and norm != normalize:
        raise click.UsageError("give one of --embd-normalize and --normalize")
    return norm if normalize is None else normalize


def embedded(model: Model, texts: list[str], together: int, how: dict[str, Any]) -> np.ndarray:
    """All vectors, with a bar that follows where there are many; long texts do not wait for short
    ones: the numbers are the same in any company."""
    parts = []
    with counting_bar("embedding", len(texts), shown=len(texts) > together) as report:
        for start in range(0, len(texts), together):
            parts.append(model.embed(texts[start : start + together], **how))
            report(min(start + together, len(texts)))
    return np.concatenate(parts)


def loss(exact: Model, texts: list[str], found: np.ndarray, dtype: str, how: dict[str, Any]) -> str:
    """How near vectors are to those of f32, in words."""
    wanted = exact.embed(texts, **how).astype(np.float64)
    made = found[: len(texts)].astype(np.float64)
    lengths = np.linalg.norm(wanted, axis=1) * np.linalg.norm(made, axis=1)
    cosines = (wanted * made).sum(axis=1) / np.maximum(lengths, 1e-30)
    return (
        f"{dtype}: mean cosine {cosines.mean():.6f} with f32, smallest {cosines.min():.6f}, "
        f"on {len(texts)} texts"
    )


def write_vectors(target: Path, vectors: np.ndarray) -> None:
    """A file of vectors, all or nothing."""
    with replaced(str(target), "vectors") as file:
        if target.suffix == ".npy":
            np.lib.format.write_array(file, vectors, allow_pickle=False)
            return
        for vector in vectors:
            file.write(json.dumps(vector.tolist()).encode() + b"\n")


def print_vectors(vectors: np.ndarray, output: str) -> None:
    rows = vectors.tolist()
    if output == "json":
        data = [
            {"object": "embedding", "index": i, "embedding": vector}
            for i, vector in enumerate(rows)
        ]
        say(json.dumps({"object": "list", "data": data}))
    else:
        say(json.dumps(rows[0] if len(rows) == 1 else rows))


@click.command(cls=ModelCommand)
@click.argument("model", shell_complete=complete_models, required=False)
@click.argument("query", required=False)
@click.argument("texts", nargs=-1, metavar="[TEXT]...")
@model_options
@load_options
@file_option
@option("--json", "as_json", is_flag=True, help="All texts in their order, with their numbers.")
@truncate_option
def rerank(
    model: str | None,
    query: str | None,
    texts: tuple[str, ...],
    source: Path | None,
    as_json: bool,
    truncate: bool,
    **given: Any,
) -> None:
    """TEXT, or the lines of stdin, by how well they answer QUERY: the best first."""
    if names_model(given) and model is not None:
        texts, query, model = (*([] if query is None else [query]), *texts), model, None
    if query is None:
        raise click.UsageError("which query? tetrad rerank MODEL QUERY [TEXT]...")
    path = model_path(model, given)
    said = given_texts([*texts], source, "\n")
    loaded = load(path, **load_settings(given))
    scores = loaded.rerank(as_text(query), said, truncate=truncate).tolist()
    if as_json:
        say(json.dumps([{"index": i, "score": score} for i, score in enumerate(scores)]))
        return
    for i in sorted(range(len(said)), key=lambda i: -scores[i]):
        say(f"{scores[i]:.6f}\t{one_line(said[i])}")


def given_texts(words: list[str], source: Path | None, separator: str) -> list[str]:
    if source is None and not words:
        if sys.stdin.isatty():
            raise click.UsageError("which text? Give TEXT, -p, -f FILE, or pipe it in")
        source = Path("-")
    lines = (
        []
        if source is None
        else [line for line in read_text(source).split(separator) if line.strip()]
    )
    if not words and not lines:
        raise click.UsageError(f"there is no text in {'stdin' if str(source) == '-' else source}")
    return [*map(as_text, words), *lines]


COMMANDS = {"embed": embed, "rerank": rerank}
