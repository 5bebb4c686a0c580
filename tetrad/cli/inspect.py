"""Command line: `tetrad inspect`, what is in a model file: keys, tensors, the memory it needs.

Only the header is read; with --html the model is loaded, and one step of decoding is run with every
kernel timed.
"""

from __future__ import annotations

import errno
import math
import os
from pathlib import Path
from typing import Any

import click
import numpy as np

from tetrad.cli.completion import complete_models
from tetrad.cli.console import Columns, note, say, say_json
from tetrad.cli.inspect_kernel import inspect_kernel
from tetrad.cli.inspect_page import write_model_page
from tetrad.cli.models import facts, kind_table, memory_table
from tetrad.cli.options import Command, model_options, model_path, option
from tetrad.explain.inside import decode_step
from tetrad.formats import gguf
from tetrad.hub.describe import Description, opened, printable
from tetrad.hub.fits import gib

FEW = 6  # elements of an array that are shown
LONG = 100  # characters of a value that are shown
LONG_TEXT = 10_000  # ... and that are written as JSON


@click.command(cls=Command)
@click.argument("model", shell_complete=complete_models, required=False)
@click.argument("kernel", required=False)
@model_options
@option(
    "-c",
    "--ctx-size",
    "context",
    type=click.IntRange(0),
    default=0,
    help="Tokens of context; 0: the model's.",
)
@option(
    "--json",
    "as_json",
    is_flag=True,
    help="As JSON; arrays of more than a few elements by their length.",
)
@option(
    "--html",
    "page",
    type=click.Path(dir_okay=False, path_type=Path),
    default=None,
    help="Write a page as well.",
)
@option("--arch", default="sm_90", help="With `kernel`: the architecture of the PTX.")
def inspect(
    model: str | None,
    kernel: str | None,
    context: int,
    as_json: bool,
    page: Path | None,
    arch: str,
    **given: Any,
) -> None:
    """The keys and tensors of MODEL and the memory it needs; with --html also the kernels of one
    step.

    `tetrad inspect kernel ID` shows a registered kernel at every stage, from its program to PTX;
    without an ID, a table of all of them.
    """
    if model == "kernel":
        inspect_kernel(kernel, arch, as_json)
        return
    if kernel is not None:
        raise click.UsageError(f"one model at a time, not {model} and {kernel}")
    path = model_path(model, given)
    if page is not None and not page.parent.is_dir():  # said before the work, not after it
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(page))
    found, typed = opened(str(path))
    if as_json:
        say_json(everything(found, typed, context))
    else:
        print_all(found, typed, context)
    if page is not None:
        write_model_page(found, decode_step(path), context or found.context, page)
        note(f"wrote {page}")


def everything(found: Description, typed: dict[str, gguf.Typed], context: int) -> dict[str, Any]:
    return {
        **facts(found, context),
        "keys": {
            key: {"type": value.type, "value": plain_value(value.value)}
            for key, value in typed.items()
        },
        "tensors": [
            {
                "name": t.name,
                "shape": list(t.shape),
                "format": t.format,
                "bytes": t.nbytes,
                "offset": t.offset,
            }
            for t in found.tensors.values()
        ],
    }


def plain_value(value: Any) -> Any:
    if isinstance(value, bytes | str) and len(value) > LONG_TEXT:
        return f"{plain_value(value[:LONG_TEXT])} ... ({len(value)} in all)"
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)  # JSON has no such numbers
    if isinstance(value, str | int | float | bool):
        return value
    if len(value) > FEW:
        return {"length": len(value)}
    return [plain_value(v.value if isinstance(v, gguf.Typed) else v) for v in value]


def print_all(found: Description, typed: dict[str, gguf.Typed], context: int) -> None:
    keys = Columns("KEY", "TYPE", "VALUE")
    for key, value in typed.items():
        keys.add(printable(key), value.type, shown(value.value))
    tensors = Columns("TENSOR", "FORMAT", "SHAPE", "SIZE", "OFFSET", right=("SIZE", "OFFSET"))
    for t in found.tensors.values():
        tensors.add(
            printable(t.name), t.format, " x ".join(map(str, t.shape)), gib(t.nbytes), str(t.offset)
        )
    for table in (keys, tensors, kind_table(found)):
        say(table)
        say()
    # Last: where the numbers it is made of are wrong, all keys were shown before the error.
    say(memory_table(found, context or found.context))
    say()


def shown(value: Any) -> str:
    """A value on one line: text by its beginning, an array by its first elements and its length."""
    if isinstance(value, str | bytes | int | float | bool | np.generic):
        # Cut first: what cannot be printed takes four characters for each.
        text = ascii(value[: LONG + 1]) if isinstance(value, str | bytes) else str(value)
        return text if len(text) <= LONG else f"{text[: LONG - 4]} ..."
    first = ", ".join(
        ascii(plain_value(v.value if isinstance(v, gguf.Typed) else v)) for v in value[:FEW]
    )
    whole = f"[{first}]" if len(value) <= FEW else f"{len(value)}: [{first}, ...]"
    return whole if len(whole) <= LONG else f"{whole[: LONG - 4]} ..."


COMMANDS = {"inspect": inspect}
