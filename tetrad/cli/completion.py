"""Command line: `tetrad completion`, what a shell needs to complete commands, options and models.

A shell asks the program itself, with `_TETRAD_COMPLETE` set (click answers); models are those of
`tetrad list`. Nothing is loaded for that which runs models.
"""

from __future__ import annotations

from typing import Any

import click
from click.shell_completion import CompletionItem, get_completion_class

from tetrad.core import lazy
from tetrad.core.errors import TetradError

SHELLS = ("bash", "zsh", "fish")
VARIABLE = "_TETRAD_COMPLETE"
PATH = ("/", ".", "~")  # what a path begins with


def complete_models(
    ctx: click.Context, param: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Names of models on this machine, or files; of a prompt nothing is known."""
    if param.name == "words" and ctx.params.get("words"):
        return []
    if incomplete.startswith(PATH):
        return [CompletionItem(incomplete, type="file")]
    names = held_names()
    return [CompletionItem(name) for name in names if name.lower().startswith(incomplete.lower())]


def held_names() -> list[str]:
    """Those that a shell can be given: one word each, in which nothing is quoted or steers."""
    try:
        models: Any = lazy.module("tetrad.hub.folder").held_models()
    except (TetradError, OSError):
        return []
    names = dict.fromkeys(name for model in models for name in (last_part(model.name), model.name))
    return [name for name in names if name.isprintable() and not {*name} & {*" \t\"'`$\\,;&|<>()"}]


def last_part(name: str) -> str:
    return name.rpartition("/")[2]


@click.command()
@click.argument("shell", type=click.Choice(SHELLS))
def completion(shell: str) -> None:
    """A script for SHELL that completes commands, options and models.

    \b
    bash:  source <(tetrad completion bash)      in ~/.bashrc
    zsh:   source <(tetrad completion zsh)       in ~/.zshrc, after compinit
    fish:  tetrad completion fish > ~/.config/fish/completions/tetrad.fish
    """
    kind = get_completion_class(shell)
    assert kind is not None  # click knows the three
    main = click.get_current_context().find_root().command
    lazy.module("tetrad.cli.console").say(kind(main, {}, "tetrad", VARIABLE).source())


COMMANDS = {"completion": completion}
