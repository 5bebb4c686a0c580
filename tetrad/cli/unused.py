"""Command line, options without effect: what llama.cpp needs to be told and is decided here, or
always so.

Receives such an option, returns nothing; says on stderr that it changes nothing, and why.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click
from click.core import ParameterSource

from tetrad.cli.console import note

Function = TypeVar("Function", bound=Callable[..., Any])
ON_OR_OFF = ("on", "off", "auto", "enabled", "disabled", "true", "false", "1", "0")


class OnOffOption(click.Option):
    """An option whose value, on, off or auto, may be left out."""


def together(*options: Callable[[Any], Any]) -> Callable[[Function], Function]:
    """Several options as one decorator, in the order they are written."""

    def decorate(function: Function) -> Function:
        for each in reversed(options):
            function = each(function)
        return function

    return decorate


def unused(*names: str, why: str, **settings: Any) -> Callable[[Function], Function]:
    """An option of llama.cpp that is understood and changes nothing here, which is said where it is
    given."""

    def told(ctx: click.Context, param: click.Parameter, value: Any) -> None:
        if ctx.get_parameter_source(param.name or "") == ParameterSource.COMMANDLINE:
            spelling = (param.secondary_opts if value is False else param.opts)[0]
            note(f"note: {spelling} has no effect: {why}")

    return click.option(
        *names, callback=told, expose_value=False, hidden=True, default=None, **settings
    )


MAPPED, TILED = "files are always mapped", "attention is always computed in tiles"
ONE_ANSWER = "here is one answer at a time"
CPU, LOG, THREADS = (
    "everything runs on the CPU",
    "there is no log",
    "-t and the affinity of the process decide",
)
TURNS = "without a prompt it is a chat; with one, one answer"
REUSED = (
    "what a prompt has in common with the last one is always used again, while the program runs"
)
GPU = (
    ("-dev", "--device"), ("-ot", "--override-tensor"), ("-ncmoe", "--n-cpu-moe"), ("-sm",
    "--split-mode"),
    ("-ts", "--tensor-split"), ("-mg", "--main-gpu"), ("-fitt", "--fit-target"), ("-fitc",
    "--fit-ctx"),
)  # fmt: skip
PLACING = (
    ("-C", "--cpu-mask"), ("-Cr", "--cpu-range"), ("--cpu-strict",), ("--prio",), ("--poll",),
    ("--numa",),
    ("-Cb", "--cpu-mask-batch"), ("-Crb", "--cpu-range-batch"), ("--cpu-strict-batch",),
    ("--prio-batch",),
    ("--poll-batch",),
)  # fmt: skip

gpu_option = unused("-ngl", "--gpu-layers", "--n-gpu-layers", "gpu_layers", why=CPU)
flash_option = unused(
    "-fa", "--flash-attn", "flash", cls=OnOffOption, type=click.Choice(ON_OR_OFF, False), why=TILED
)
place_options = together(
    *(unused(*names, why=CPU) for names in GPU), *(unused(*names, why=THREADS) for names in PLACING)
)
# also of a server
machine_options = together(
    place_options,
    gpu_option,
    flash_option,
    unused("--mmap/--no-mmap", "mapped", why=MAPPED),
    unused("--mlock", is_flag=True, why="the system decides what stays in memory"),
    unused("--jinja/--no-jinja", "jinja", why="chat templates are always run as Jinja"),
    *(
        unused(name, is_flag=True, why=LOG)
        for name in ("--log-disable", "--log-prefix", "--log-timestamps")
    ),
    *(
        unused(*names, why=LOG)
        for names in (("--log-file",), ("-lv", "--verbosity", "--log-verbosity"))
    ),
    unused("--log-colors", cls=OnOffOption, type=click.Choice(ON_OR_OFF, False), why=LOG),
    unused("-kvo/-nkvo", "--kv-offload/--no-kv-offload", "kv_offload", why=CPU),
    unused("--op-offload/--no-op-offload", "op_offload", why=CPU),
    unused("-cmoe", "--cpu-moe", is_flag=True, why=CPU),
    unused("--no-host", is_flag=True, why=CPU),
    unused("-fit", "--fit", "fit", cls=OnOffOption, type=click.Choice(ON_OR_OFF, False), why=CPU),
    unused(
        "--repack/--no-repack", " /-nr", "repack", why="weights are always laid out for the kernels"
    ),
    unused("--swa-full", is_flag=True, why="every layer keeps all positions"),
    unused("-dt", "--defrag-thold", why="a cache has no gaps"),
    unused("-dio/-ndio", "--direct-io/--no-direct-io", "direct", why=MAPPED),
    unused("-lm", "--load-mode", why=MAPPED),
    unused(
        "--check-tensors",
        is_flag=True,
        why="a model whose numbers are damaged says so when it runs",
    ),
    unused(
        "-bs", "--backend-sampling", is_flag=True, why="tokens are always chosen in compiled code"
    ),
)
unused_options = together(
    machine_options,
    unused("-np", "--parallel", type=int, why=ONE_ANSWER),
    unused("-cb/-nocb", "--cont-batching/--no-cont-batching", "batching", why=ONE_ANSWER),
    unused(
        "-co",
        "--color",
        "color",
        cls=OnOffOption,
        type=click.Choice(ON_OR_OFF, False),
        why="answers are plain text",
    ),
    unused("--perf/--no-perf", "perf", why="-v shows timings"),
    unused("--simple-io", is_flag=True, why="answers are plain text"),
    *(
        unused(*names, is_flag=True, why=TURNS)
        for names in (("-i", "--interactive"), ("-if", "--interactive-first"))
    ),
    unused(
        "-mli", "--multiline-input", is_flag=True, why="triple quotes begin and end several lines"
    ),
    unused("--prompt-cache", why=REUSED),
    *(
        unused(name, is_flag=True, why=REUSED)
        for name in ("--prompt-cache-all", "--prompt-cache-ro")
    ),
    unused("--cache-prompt/--no-cache-prompt", "cache_prompt", why=REUSED),
    unused("--keepalive", why="a model is let go when the command ends"),
    unused("--reasoning-format", why="thoughts are shown apart; --hide-thinking hides them"),
)
