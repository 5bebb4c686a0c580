"""Command line: `tetrad cache` looks at the compile cache on disk and empties it."""

from __future__ import annotations

import click

from tetrad.backends.cpu.cache import ObjectCache, default_directory
from tetrad.cli.console import say
from tetrad.cli.main import CommandGroup
from tetrad.core.flags import flag
from tetrad.explain.report import bytes_text


@click.group(cls=CommandGroup)
def cache() -> None:
    """The compile cache on disk."""


@cache.command()
def stats() -> None:
    """Where it is, how many entries it has, how large they are."""
    stats = ObjectCache.from_flags().stats()
    say(f"directory  {cache_place()}")
    say(f"entries    {stats.entries}")
    say(f"size       {bytes_text(stats.bytes)}")
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
    say(f"deleted {before.entries} entries, {bytes_text(before.bytes)}, from {cache_place()}")


def cache_place() -> str:
    return flag("TETRAD_CACHE_DIR") or str(
        default_directory() or "none: there is no home directory"
    )


COMMANDS = {"cache": cache}
