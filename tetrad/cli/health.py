"""Command line: `tetrad doctor` prints what `tetrad.cli.doctor` finds; 1 if any of it is bad."""

from __future__ import annotations

import click

from tetrad.cli.console import say_sheet, say_styled
from tetrad.cli.doctor import Finding, examine
from tetrad.cli.options import Command


@click.command(cls=Command)
@click.pass_context
def doctor(ctx: click.Context) -> None:
    """Look at this machine, the flags and the cache, and compile something to see that it works."""
    findings = []
    for title, found in examine():
        say_sheet(title, map(row, found))
        findings += found
    trouble = [finding for finding in findings if finding.state == "bad"]
    say_styled(*verdict(trouble))
    ctx.exit(1 if trouble else 0)


MARKS = {"good": ("ok", "green"), "bad": ("BAD", "red"), "info": ("", "")}


def row(finding: Finding) -> list[tuple[str, str]]:
    return [MARKS[finding.state], (finding.name, ""), (finding.text, ""), (finding.note, "")]


def verdict(trouble: list[Finding]) -> tuple[str, str]:
    """Text and its style."""
    if not trouble:
        return "all is well", "green"
    return f"trouble: {'; '.join(finding.name for finding in trouble)}", "red"


COMMANDS = {"doctor": doctor}
