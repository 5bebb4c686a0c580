"""Command line: `tetrad embed`, texts as vectors. One text gives one JSON array, several give an
array of arrays."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import click

from tetrad.cli.console import say
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
from tetrad.models.model import load

POOLINGS = {"mean": 1, "cls": 2, "last": 3}  # as the file numbers them
FORMATS = ("array", "json")


@click.command(cls=ModelCommand)
@click.argument("model", required=False)
@click.argument("texts", nargs=-1, metavar="[TEXT]...")
@model_options
@load_options
@option("-p", "--prompt", default=None, help="A text.")
@option(
    "-f",
    "--file",
    "source",
    type=READABLE,
    default=None,
    help="A file with texts, a line each; - is stdin.",
)
@option(
    "--embd-separator",
    "separator",
    default="\n",
    show_default=False,
    help="What stands between texts of a file.",
)
@option(
    "--pooling",
    type=click.Choice(list(POOLINGS)),
    default=None,
    help="How; default: as the model says, or mean.",
)
@option(
    "--embd-normalize",
    "norm",
    type=click.Choice(["-1", "2"]),
    default="2",
    help="2: of length 1; -1: as it is.",
)
@option(
    "--embd-output-format",
    "output",
    type=click.Choice(FORMATS),
    default="array",
    help="json: as OpenAI has it.",
)
def embed(
    model: str | None, texts: tuple[str, ...], prompt: str | None, source: Path | None, **given: Any
) -> None:
    """The vectors of TEXT, or of the lines of stdin, as JSON."""
    if names_model(given) and model is not None:
        texts, model = (model, *texts), None
    separator, pooling, norm, output = (
        given.pop(name) for name in ("separator", "pooling", "norm", "output")
    )
    path = model_path(model, given)
    overrides = {} if pooling is None else {"pooling_type": POOLINGS[pooling]}
    said = given_texts([*texts, *([] if prompt is None else [prompt])], source, separator)
    loaded = load(path, overrides=overrides, **load_settings(given))
    vectors = loaded.embed(said, normalize=norm == "2").tolist()
    if output == "json":
        data = [
            {"object": "embedding", "index": i, "embedding": vector}
            for i, vector in enumerate(vectors)
        ]
        say(json.dumps({"object": "list", "data": data}))
    else:
        say(json.dumps(vectors[0] if len(vectors) == 1 else vectors))


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


COMMANDS = {"embed": embed}
