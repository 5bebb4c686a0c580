"""Command line: `tetrad ps | stop`, the models that a running server has in memory."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import click

from tetrad.cli.completion import complete_models
from tetrad.cli.console import Columns, note, say, say_json
from tetrad.cli.options import Command, option
from tetrad.cli.talk.client import RemoteError, RemoteServer, address_of
from tetrad.cli.talk.opening import LOCAL, api_key_option
from tetrad.cli.talk.remote import number, table
from tetrad.cli.unused import Function, together
from tetrad.core.visible import one_line

HEADS = ("NAME", "ID", "SIZE", "PROCESSOR", "CONTEXT", "UNTIL")
FOREVER = 365 * 86400.0  # seconds that nobody waits for
UNITS = (("day", 86400), ("hour", 3600), ("minute", 60), ("second", 1))

server_options: Callable[[Function], Function] = together(
    option("--host", default=LOCAL, metavar="URL", help="Where the server is."), api_key_option
)


@click.command(cls=Command)
@server_options
@option("--json", "as_json", is_flag=True, help="As JSON.")
def ps(host: str, api_key: str | None, as_json: bool) -> None:
    """The models that a running server has in memory, and until when."""
    found = loaded_models(RemoteServer(address_of(host), api_key))
    if as_json:
        say_json(found)
        return
    lines = Columns(*HEADS)
    for model in found:
        lines.add(*row(model, datetime.now(UTC)))
    say(lines)


@click.command(cls=Command)
@click.argument("model", shell_complete=complete_models, required=False)
@server_options
def stop(model: str | None, host: str, api_key: str | None) -> None:
    """Let a running server put MODEL out of memory; the one that is there if none is named."""
    server = RemoteServer(address_of(host), api_key)
    name = model or only_loaded(server)
    if name is None:
        note("no model is in memory")
        return
    server.post("/api/generate", {"model": name, "keep_alive": 0, "stream": False})
    say(f"{one_line(name)} leaves memory")


def loaded_models(server: RemoteServer) -> list[dict[str, Any]]:
    found = table(server.get("/api/ps")).get("models")
    if not isinstance(found, list):
        raise RemoteError(f"{server.address}: expected a list of models at /api/ps")
    return [table(model) for model in found]


def only_loaded(server: RemoteServer) -> str | None:
    names = [str(model.get("name")) for model in loaded_models(server)]
    if len(names) > 1:
        raise RemoteError(f"which model? In memory are {', '.join(names)}", hint="name one")
    return names[0] if names else None


def row(model: dict[str, Any], now: datetime) -> tuple[str, ...]:
    size, on_device = number(model.get("size")), number(model.get("size_vram"))
    context = int(number(model.get("context_length")))
    return (
        str(model.get("name", "")),
        str(model.get("digest", "")).removeprefix("sha256:")[:12],
        human_bytes(size),
        processor(on_device / size if size else 0.0),
        str(context) if context else "",
        until(str(model.get("expires_at") or ""), now),
    )


def human_bytes(count: float) -> str:
    """As ollama writes sizes: powers of ten.

    >>> human_bytes(98_566_144), human_bytes(3_338_801_718), human_bytes(24e9), human_bytes(512)
    ('98 MB', '3.3 GB', '24 GB', '512 B')
    """
    for unit, name in ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "KB")):
        if count >= unit:
            value = count / unit
            is_short = value >= 10 or value == int(value)
            return f"{int(value)} {name}" if is_short else f"{value:.1f} {name}"
    return f"{count:.0f} B"


def processor(share: float) -> str:
    """
    >>> processor(0), processor(1), processor(0.25)
    ('100% CPU', '100% GPU', '75%/25% CPU/GPU')
    """
    if share in (0, 1):
        return "100% GPU" if share else "100% CPU"
    return f"{1 - share:.0%}/{share:.0%} CPU/GPU"


def until(text: str, now: datetime) -> str:
    """
    >>> now = datetime(2026, 1, 1, tzinfo=UTC)
    >>> until("2026-01-01T00:04:10Z", now), until("2325-01-01T00:00:00Z", now), until("", now)
    ('4 minutes from now', 'Forever', 'Forever')
    >>> until("2025-12-31T23:59:00Z", now)
    'Stopping...'
    """
    try:
        # nine digits after the second, as Go writes them, are more than Python reads
        end = datetime.fromisoformat(shortened(text))
    except ValueError:
        return "Forever"
    left = (end if end.tzinfo else end.replace(tzinfo=UTC)) - now
    seconds = left.total_seconds()
    if seconds <= 0:
        return "Stopping..."
    if seconds > FOREVER:
        return "Forever"
    name, unit = next(pair for pair in UNITS if seconds >= pair[1] or pair[1] == 1)
    count = int(seconds // unit)
    return f"{count} {name}{'s' * (count != 1)} from now"


def shortened(text: str) -> str:
    """
    >>> shortened("2026-01-01T00:00:00.123456789+02:00"), shortened("2026-01-01T00:00:00Z")
    ('2026-01-01T00:00:00+02:00', '2026-01-01T00:00:00Z')
    """
    whole, dot, rest = text.partition(".")
    return whole + rest.lstrip("0123456789") if dot else text


COMMANDS = {"ps": ps, "stop": stop}
