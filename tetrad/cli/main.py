"""Command line: `tetrad COMMAND`. Each command is one function here that hands over to the package and prints.

Receives words, returns an exit code: 0 fine, 1 trouble found, 2 a command or option that does not exist.
"""

from __future__ import annotations

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

import tetrad
from tetrad.cli.doctor import Finding, examine
from tetrad.core.errors import TetradError
from tetrad.core.flags import flag
from tetrad.explain.report import bytes_text
from tetrad.runtime.cache import ObjectCache, default_directory

console = Console(highlight=False, markup=False)


Resolved = tuple[str | None, click.Command | None, list[str]]


class Commands(click.Group):
    """Errors raised on purpose read as they are, without a traceback; an unknown command lists the known ones."""

    def resolve_command(self, ctx: click.Context, args: list[str]) -> Resolved:
        if args and not args[0].startswith("-") and args[0] not in self.commands:
            ctx.fail(f"there is no command {args[0]!r}; commands: {', '.join(sorted(self.commands))}")
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: click.Context) -> object:
        try:
            return super().invoke(ctx)
        except TetradError as error:
            raise click.ClickException(str(error)) from None


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(tetrad.__version__, package_name="tetrad", message="tetrad %(version)s")
def main() -> None:
    """Tetrad: an ML compiler and runtime in Python."""


@main.command()
@click.pass_context
def doctor(ctx: click.Context) -> None:
    """Look at this machine, the flags and the cache, and compile something to see that it works."""
    findings = []
    for title, found in examine():
        console.print(section(title, found), "")
        findings += found
    trouble = [finding for finding in findings if finding.state == "bad"]
    console.print(verdict(trouble))
    ctx.exit(1 if trouble else 0)


MARKS = {"good": Text("ok", "green"), "bad": Text("BAD", "red"), "info": Text("")}


def section(title: str, findings: list[Finding]) -> Table:
    table = Table(title=Text(title, "bold"), title_justify="left", show_header=False, box=None, padding=(0, 2))
    for finding in findings:
        # As Text: what is found may contain brackets, which are no markup.
        table.add_row(MARKS[finding.state], Text(finding.name), Text(finding.text), Text(finding.note))
    return table


def verdict(trouble: list[Finding]) -> Text:
    if not trouble:
        return Text("all is well", "green")
    return Text(f"trouble: {'; '.join(finding.name for finding in trouble)}", "red")


@main.group(cls=Commands)
def cache() -> None:
    """The compile cache on disk."""


@cache.command()
def stats() -> None:
    """Where it is, how many entries it has, how large they are."""
    stats = ObjectCache.from_flags().stats()
    console.print(f"directory  {cache_place()}")
    console.print(f"entries    {stats.entries}")
    console.print(f"size       {bytes_text(stats.bytes)}")
    if stats.trouble:
        raise click.ClickException(stats.trouble)


@cache.command()
def clear() -> None:
    """Delete every entry; nothing else in the directory is touched."""
    held = ObjectCache.from_flags()
    before = held.stats()
    try:
        held.clear()
    except OSError as error:
        raise click.ClickException(f"{cache_place()}: {error}") from None
    console.print(f"deleted {before.entries} entries, {bytes_text(before.bytes)}, from {cache_place()}")


def cache_place() -> str:
    return flag("TETRAD_CACHE_DIR") or str(default_directory() or "none: there is no home directory")
