"""Command line: `tetrad COMMAND`. Here are the names of the commands; each has a module that is
loaded when used.

Receives words, returns an exit code: 0 fine, 1 trouble found, 2 a command or option that does not
exist, 130 Ctrl-C, 141 whoever read the output went away.
"""

from __future__ import annotations

import os
import sys
from difflib import get_close_matches
from typing import Any

import click

from tetrad.cli import start
from tetrad.core import lazy
from tetrad.core.errors import TetradError
from tetrad.core.flags import check_environment
from tetrad.core.version import __version__
from tetrad.core.visible import one_line, visible

# name: (module of tetrad.cli, one line for --help)
COMMANDS = {
    "run": ("run", "Answer one prompt, or chat if there is none."),
    "chat": ("chat", "Talk with a model."),
    "serve": ("serve", "Models behind HTTP: the API of OpenAI, and a page."),
    "ps": ("ps", "The models that a running server has in memory."),
    "stop": ("ps", "Put a model out of the memory of a server."),
    "pull": ("models", "Fetch a model, the small one if none is named."),
    "list": ("models", "The models on this machine."),
    "show": ("models", "What a model is and what it needs."),
    "rm": ("models", "Delete a model."),
    "bench": ("bench", "Measure reading and writing, in the table of llama-bench."),
    "perplexity": ("perplexity", "How well a model predicts a text."),
    "embed": ("embed", "Texts as vectors."),
    "rerank": ("embed", "Texts by how well they answer a query."),
    "tokenize": ("tokenize", "The tokens of a text."),
    "inspect": (
        "inspect",
        "The keys and tensors of a model file; as a page also the kernels of a step.",
    ),
    "doctor": (
        "health",
        "Look at this machine, the flags and the cache, and compile something to see that it "
        "works.",
    ),
    "cache": ("cache", "The compile cache on disk."),
    "completion": ("completion", "A script that completes commands in bash, zsh or fish."),
}
# as ollama and git have it
ALIASES = {"ls": ("list",), "version": ("--version",), "help": ("--help",)}
BROKEN_PIPE = 141  # 128 + the signal, as shells report it

Resolved = tuple[str | None, click.Command | None, list[str]]


class CommandGroup(click.Group):
    """An unknown command is answered with close ones and the known."""

    def resolve_command(self, ctx: click.Context, args: list[str]) -> Resolved:
        if ctx.resilient_parsing:
            return super().resolve_command(ctx, args)
        known = self.list_commands(ctx)
        if args and not args[0].startswith("-") and args[0] not in known:
            close = get_close_matches(args[0], known)
            meant = f"did you mean {' or '.join(close)}? " if close else ""
            ctx.fail(
                f"there is no command {args[0]!r}; {meant}commands: {', '.join(sorted(known))}"
            )
        return super().resolve_command(ctx, args)


class Commands(CommandGroup):
    """The outermost group: loads commands when they are used, and turns what ends them into exit
    codes."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, spelt_here(args))
        except click.ClickException as error:
            raise as_shown(error) from None

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module = lazy.module(f"tetrad.cli.{COMMANDS[cmd_name][0]}")
        start.loaded()
        command: click.Command = module.COMMANDS[cmd_name]
        return command

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[Any]:
        """Names and lines of the table: to complete one loads none."""
        item = lazy.module("click.shell_completion").CompletionItem
        found = [item(name, help=line) for name, (_, line) in COMMANDS.items()]
        options = click.Command.shell_complete(self, ctx, incomplete)
        return [*(each for each in found if each.value.startswith(incomplete)), *options]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, line) for name, (_, line) in COMMANDS.items()])

    def invoke(self, ctx: click.Context) -> Any:
        """Errors raised on purpose read as they are, without a traceback."""
        try:
            check_environment()
            result = super().invoke(ctx)
            sys.stdout.flush()
            return result
        except click.ClickException as error:
            raise as_shown(error) from None
        except TetradError as error:
            raise click.ClickException(self.told(ctx, error)) from None
        except KeyboardInterrupt:
            ctx.exit(start.INTERRUPTED)
        except BrokenPipeError:
            discard_output()
            ctx.exit(BROKEN_PIPE)
        # a full disk, a folder that is not there: nothing that a traceback would explain
        except OSError as error:
            flush_or_discard()
            raise click.ClickException(one_line(explained(error))) from None
        except MemoryError as error:
            said = str(error).removeprefix("tetrad: ")
            told = self.told(ctx, TetradError(f"not enough memory{': ' * bool(said)}{said}"))
            raise click.ClickException(told) from None

    def told(self, ctx: click.Context, error: TetradError) -> str:
        """The text of an error in words of the command line."""
        command = self.get_command(ctx, ctx.invoked_subcommand or "")
        text: str = lazy.module("tetrad.cli.hints").in_options(error, command)
        return text


def as_shown(error: click.ClickException) -> click.ClickException:
    """The same error, in which words of the command line, such as names of files, do not steer the
    terminal."""
    text = visible(error.format_message())
    if not isinstance(error, click.UsageError):
        return click.ClickException(text)
    return error if text == error.format_message() else click.UsageError(text, error.ctx)


def spelt_here(args: list[str]) -> list[str]:
    """
    >>> spelt_here(["help", "run"]), spelt_here(["ls"]), spelt_here(["help", "all"])
    (['run', '--help'], ['list'], ['--help'])
    """
    if args[:1] == ["help"] and len(args) == 2 and args[1] in COMMANDS:
        return [args[1], "--help"]
    first = ALIASES.get(args[0]) if args else None
    return args if first is None else [*first, *(args[1:] if args[0] != "help" else [])]


def explained(error: OSError) -> str:
    """
    >>> explained(FileNotFoundError(2, "No such file or directory", "a/b"))
    'a/b: No such file or directory'
    >>> explained(OSError(28, "No space left"))
    'No space left'
    """
    place = f"{error.filename}: " if error.filename is not None else ""
    return f"{place}{error.strerror or error}"


def flush_or_discard() -> None:
    try:
        sys.stdout.flush()
    except OSError:
        discard_output()


def discard_output() -> None:
    """What is still buffered goes nowhere: Python would complain about it when it ends."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)


@click.group(
    cls=Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110}
)
@click.version_option(__version__, package_name="tetrad", message="tetrad %(version)s")
def main() -> None:
    """Tetrad: an ML compiler and runtime in Python; language models on your CPU."""
