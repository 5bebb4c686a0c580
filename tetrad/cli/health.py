"""Command line: `tetrad doctor` prints what `tetrad.cli.doctor` finds; 1 if any of it is bad."""

from __future__ import annotations

import click
from rich.table import Table
from rich.text import Text

from tetrad.cli.console import console
from tetrad.cli.doctor import Finding, examine
from tetrad.cli.options import Command


@click.command(cls=Command)
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


COMMANDS = {"doctor": doctor}
