"""Command line: `tetrad serve`, models behind HTTP. Options, those of llama.cpp's server, in; a
running server out, until Ctrl-C or SIGTERM.
"""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tetrad.cli.console import note, say
from tetrad.cli.options import (
    READABLE,
    ModelCommand,
    draft_options,
    draft_path,
    guess_options,
    guess_settings,
    load_settings,
    loading_options,
    model_options,
    model_path,
    names_model,
    option,
)
from tetrad.cli.overrides import override_options, overriding
from tetrad.cli.unused import machine_options, together, unused
from tetrad.core import lazy
from tetrad.core.errors import HubError
from tetrad.core.extras import extra
from tetrad.hub.folder import held_models

if TYPE_CHECKING:
    from tetrad.serve.server import Server
    from tetrad.serve.store import ModelPlace

EXTRA = "'tetrad[serve]'"
LOCAL = ("127.0.0.1", "localhost", "::1")
WILDCARDS = ("0.0.0.0", "::")
SPAN = re.compile(r"(-?\d+(?:\.\d+)?)(ms|s|m|h)?")
UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, None: 1.0}
A_WHILE = 300.0  # seconds that one of many models stays loaded
FOLDER = click.Path(exists=True, file_okay=False, path_type=Path)


class Seconds(click.ParamType[float]):
    """A time: 30, 1.5s, 5m, 2h; -1 is for ever."""

    name = "time"

    def convert(self, value: Any, param: Any, ctx: Any) -> float:
        match = SPAN.fullmatch(str(value))
        if match is None:
            self.fail(f"expected a time such as 30, 5m or 1h, got {value!r}", param, ctx)
        return float(match[1]) * UNITS[match[2]]


SECONDS = Seconds()

serve_options = together(
    # no variables: TETRAD_HOST is where clients ask, TETRAD_PORT what Kubernetes makes of a service
    click.option("--host", default="127.0.0.1", show_default=True,
    help="Where to listen; 0.0.0.0: all of the machine."),
    click.option("--port", type=click.IntRange(0, 65535), default=8080, show_default=True,
    help="0: any that is free."),
    option("-np", "--parallel", "slots", type=click.IntRange(1, 1024), default=4,
    help="Answers at a time; -c is for each."),
    option("-a", "--alias", default=None, metavar="NAME,...", help="What the model is called."),
    option("--models-dir", "folder", type=FOLDER, default=None,
    help="Serve all models below this folder."),
    option("--models-max", "most", type=click.IntRange(1), default=None,
    help="Models in memory at a time; default: those named, or 1."),
    option("--keep-alive", type=SECONDS, default=None,
    help="Then an idle model leaves memory; default: never, 5m where there are many."),
    option("--api-key", "api_keys", multiple=True, show_default=False, metavar="KEY,...",
    help="Who knows it may ask; again for more."),
    option("--api-key-file", "key_file", type=READABLE, default=None,
    help="The same, a line each."),
    option("--allowed-hosts", "hosts", default="", metavar="NAME,...",
    help="Names of this server in requests, besides its address; *: any."),
    option("--cors-origins", "origins", default="", metavar="URL,...",
    help="Sites whose pages may ask; *: any."),
    option("-to", "--timeout", "timeout", type=SECONDS, default=0.0,
    help="Longest time for an answer; 0: any."),
    option("--drain-timeout", "drain", type=SECONDS, default=30.0,
    help="After SIGTERM, time for answers to end."),
    option("--queue", type=click.IntRange(1), default=256, help="Requests that may wait."),
    option("-cram", "--cache-ram", "memory", type=click.IntRange(0), default=0,
    help="MiB of keys and values of a model; 0: as many as -np and -c make."),
    option("--max-body", type=click.IntRange(1024), default=8 << 20,
    help="Bytes of a request, at most."),
    option("--metrics/--no-metrics", default=False, help="Numbers for Prometheus at /metrics."),
    option("--slots/--no-slots", "shows_slots", default=True, help="What runs, at /slots."),
    option("--webui/--no-webui", "page", default=True, help="The page at /."),
    option("--log-prompts", is_flag=True, help="Write what is asked into the log."),
    option("--log-format", type=click.Choice(["text", "json"]), default="text", help="Of the log."),
    option("--ssl-key-file", type=READABLE, default=None, help="With a certificate: HTTPS."),
    option("--ssl-cert-file", type=READABLE, default=None, help="The certificate."),
    unused("-cb/-nocb", "--cont-batching/--no-cont-batching", "batching",
    why="answers always share batches"),
    unused("--reasoning-format", why="what a model thinks is always apart"),
    unused("--cache-prompt/--no-cache-prompt", "cache_prompt", why="a request says so itself"),
)  # fmt: skip


@click.command(cls=ModelCommand)
@click.argument("models", nargs=-1, metavar="[MODEL]...")
@serve_options
@model_options
@override_options
@loading_options
@draft_options
@guess_options
@machine_options
def serve(models: tuple[str, ...], **given: Any) -> None:
    """Serve MODEL, or several side by side, over HTTP: the API of OpenAI, and a page at /.

    MODEL is a .gguf file, a name of `tetrad list`, org/repo[:QUANT] or a URL; the small SmolLM2 if
    none is named. Ctrl-C stops the server.
    """
    extra("msgspec", "tetrad serve", EXTRA)
    overrides, variables = overriding(given)
    places = chosen_places(models, given)
    draft = draft_path(given)
    if draft is not None and len(places) > 1:
        raise click.UsageError(f"-md {draft}: it guesses for one model, there are {len(places)}")
    how = load_settings(given) | {"slots": given.pop("slots"), "overrides": overrides}
    guesses = guess_settings(given, draft is not None)
    for place in places:
        place.settings.update(how if draft is None else how | {"draft": draft})
        place.defaults.update(guesses)
    click.get_current_context().exit(asyncio.run(run(places, variables, given)))


# -- which models ----------------------------------------------------------------------------------


def chosen_places(models: tuple[str, ...], given: dict[str, Any]) -> list[ModelPlace]:
    """The models to serve, by the names that requests may call them."""
    folder, alias = given.pop("folder"), given.pop("alias")
    aliases = tuple(filter(None, (name.strip() for name in (alias or "").split(","))))
    words = models or ((None,) if names_model(given) or folder is None else ())
    found = [place_of(word, model_path(word, dict(given))) for word in words]
    if folder is not None:
        found += [place_at(model.name, model.path, ()) for model in below(folder)]
    if aliases and len(found) == 1:
        one = found[0]
        return [place_at(aliases[0], one.path, (*aliases[1:], *one.names))]
    if aliases:
        raise click.UsageError(f"-a {alias}: aliases are for one model, there are {len(found)}")
    return found


def place_of(word: str | None, path: Path) -> ModelPlace:
    """A model by the word it was named with, and by its file."""
    name = path.stem if word is None or os.path.exists(os.path.expanduser(word)) else word
    return place_at(name, path, () if path.stem == name else (path.stem,))


def place_at(name: str, path: Path, aliases: tuple[str, ...]) -> ModelPlace:
    made: ModelPlace = lazy.module("tetrad.serve.store").ModelPlace(
        name, path, aliases, {}, {}, int(path.stat().st_mtime)
    )
    return made


def below(folder: Path) -> list[Any]:
    found = [model for model in held_models(folder) if model.is_ours]
    if not found:
        raise HubError(f"there is no model below {folder}", hint="a model is a .gguf file")
    return found


# -- the server ------------------------------------------------------------------------------------


async def run(places: list[ModelPlace], variables: dict[str, Any], given: dict[str, Any]) -> int:
    server = make_server(places, variables, given)
    await server.start()
    if len(places) == 1 or given["keep_alive"] is None:
        loading = asyncio.ensure_future(server.app.store.load(places[0]))
        loading.add_done_callback(lambda task: task.cancelled() or task.exception())
    say(welcome(server, places, given), flush=True)
    return await server.run()


def make_server(
    places: list[ModelPlace], variables: dict[str, Any], given: dict[str, Any]
) -> Server:
    app, keys, limits, log, routes, serving, store = (
        lazy.module(f"tetrad.serve.{name}")
        for name in ("app", "keys", "limits", "log", "routes", "server", "store")
    )
    host, many = given["host"], len(places) > 1
    bounds = limits.Limits(
        body=given["max_body"],
        waiting=given["queue"],
        request_seconds=given["timeout"],
        memory=given["memory"] << 20,
    )
    told = log.Log(as_json=given["log_format"] == "json", prompts=given["log_prompts"])
    alive = given["keep_alive"]
    models = store.ModelStore(
        places,
        limits=bounds,
        most_loaded=given["most"] or 1,
        keep_alive=(A_WHILE if many else -1.0) if alive is None else alive,
        log=told,
        variables=variables,
    )
    made = app.App(
        models,
        routes.all_routes(page=given["page"], metrics=given["metrics"], slots=given["shows_slots"]),
        keys=keys.read_keys(given["api_keys"], given["key_file"]),
        hosts=keys.Hosts(host, words_of(given["hosts"])),
        origins=keys.Origins(words_of(given["origins"])),
    )
    found: Server = serving.Server(
        made, host, given["port"], drain_seconds=given["drain"], tls=certificate(given)
    )
    return found


def words_of(text: str) -> Iterable[str]:
    return [word for part in text.split(",") if (word := part.strip())]


def certificate(given: dict[str, Any]) -> Any:
    key, cert = given["ssl_key_file"], given["ssl_cert_file"]
    if key is None and cert is None:
        return None
    if key is None or cert is None:
        raise click.UsageError("give both --ssl-key-file and --ssl-cert-file")
    ssl = lazy.module("ssl")
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(cert, key)
    return context


def welcome(server: Server, places: list[ModelPlace], given: dict[str, Any]) -> str:
    """Where the server is, what it serves, and how to talk to it."""
    host, scheme = given["host"], "https" if server.tls else "http"
    shown = "127.0.0.1" if host in WILDCARDS else f"[{host}]" if ":" in host else host
    address, names = f"{scheme}://{shown}:{server.port}", ", ".join(place.name for place in places)
    if host not in LOCAL and not server.app.keys.digests:
        note("note: everybody who can reach this machine may ask; --api-key KEY wants a key")
    key = " -H 'Authorization: Bearer KEY'" if server.app.keys.digests else ""
    lines = [
        f"{names} at {address}" + (f", a page at {address}/" if given["page"] else ""),
        f"  curl {address}/v1/chat/completions{key} -d "
        '\'{"messages": [{"role": "user", "content": "Hello"}]}\'',
        f"  OPENAI_BASE_URL={address}/v1 for programs; Ctrl-C stops it",
    ]
    return "\n".join(lines)


COMMANDS = {"serve": serve}
