"""Command line: `tetrad tokenize`, a text as the model sees it. Only the metadata of the model are
read."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from tetrad.cli.completion import complete_models
from tetrad.cli.console import say, write
from tetrad.cli.options import (
    READABLE,
    ModelCommand,
    as_text,
    model_options,
    model_path,
    names_model,
    option,
    read_text,
)
from tetrad.formats import gguf
from tetrad.text.tokenizer import tokenizer_from_gguf


@click.command(cls=ModelCommand)
@click.argument("model", shell_complete=complete_models, required=False)
@click.argument("text", required=False)
@model_options
@option("-p", "--prompt", default=None, help="The text.")
@option(
    "-f", "--file", "source", type=READABLE, default=None, help="A file with the text; - is stdin."
)
@click.option("--stdin", "piped", is_flag=True, help="The text is stdin.")
@option("--ids", is_flag=True, help="Only the ids, as a Python list.")
@click.option(
    "--no-bos", is_flag=True, help="Without the tokens that the model wants around a text."
)
@click.option(
    "--no-parse-special", is_flag=True, help="Text that looks like a control token stays text."
)
@click.option("--show-count", is_flag=True, help="Also the number of tokens.")
def tokenize(
    model: str | None,
    text: str | None,
    prompt: str | None,
    source: Path | None,
    piped: bool,
    ids: bool,
    no_bos: bool,
    no_parse_special: bool,
    show_count: bool,
    **given: Any,
) -> None:
    """The tokens of TEXT, or of stdin, one per line: id -> 'piece'."""
    if names_model(given) and text is None:
        model, text = None, model
    with gguf.open_file(model_path(model, given)) as file:
        tokenizer = tokenizer_from_gguf(file.metadata)
    words = given_text(text if text is not None else prompt, Path("-") if piped else source)
    found = tokenizer.encode(words, add_special=not no_bos, parse_special=not no_parse_special)
    if ids:
        say(found)
    else:
        for i in found:
            write(f"{i:6} -> '{tokenizer.token_bytes(i).decode(errors='replace')}'", end="\n")
    if show_count:
        say(f"Total number of tokens: {len(found)}")


def given_text(text: str | None, source: Path | None) -> str:
    if source is not None:
        return read_text(source)
    if text is not None:
        return as_text(text)
    if sys.stdin.isatty():
        raise click.UsageError("which text? Give TEXT, -f FILE, or pipe it in")
    return read_text(Path("-"))


COMMANDS = {"tokenize": tokenize}
