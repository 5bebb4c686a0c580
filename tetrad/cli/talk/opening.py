"""Command line, opening: from options to whoever answers, here or on a server.

Receives the options of `run` and `chat`, which it takes out of `given`; returns a partner and the
settings of its answers.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from tetrad.cli.console import note
from tetrad.cli.options import (
    draft_path,
    is_said,
    load_settings,
    model_path,
    note_context,
    option,
    recommended,
    sampling_settings,
)
from tetrad.cli.overrides import ROPE, overriding
from tetrad.cli.talk.client import RemoteServer, address_of
from tetrad.cli.talk.local import LocalPartner
from tetrad.cli.talk.remote import RemotePartner
from tetrad.cli.unused import together
from tetrad.core import lazy
from tetrad.core.record import record

if TYPE_CHECKING:
    from tetrad.models import model as models
else:
    models = lazy.later("tetrad.models.model")  # loads the compiler

LOCAL = "http://127.0.0.1:8080"
# options about a model that is loaded here, by name
LOADING = (
    "repo_file", "offline", "quantize", "keys", "context", "threads", "kind_k", "kind_v",
    "rope_freq_scale", *ROPE, "template", "template_file", "shift", "keep", "speculate",
    "draft_file", "draft_repo", "draft_min", "draft_p_min", "spec_type",
    "display_prompt", "verbose_prompt",
)  # fmt: skip

api_key_option = option(
    "--api-key", default=None, show_default=False, help="The key of the server."
)
server_options = together(
    option("--host", default=None, metavar="URL", help="Ask a running server, http://host:port."),
    api_key_option,
)
shown_options = together(
    option("--hide-thinking", "--hidethinking", is_flag=True, help="Show the answer alone."),
    option("--wordwrap/--no-wordwrap", " /--nowordwrap", "wordwrap", default=True,
           show_default=False, help="On a terminal: break lines between words."),
)  # fmt: skip


@record
class LoadedHere:
    """A model in this process, how to draw from it, and what it took to be there."""

    partner: LocalPartner
    settings: dict[str, Any]
    path: Path
    kv: str
    variables: dict[str, Any]  # of the chat template
    seconds: float


def is_remote(given: dict[str, Any]) -> bool:
    """Is a server to answer? A model that is named by -m is here, whatever a variable says."""
    if not given["host"]:
        return False
    if is_said(given, "file"):
        if not is_said(given, "host"):
            return False
        raise click.UsageError("-m is a file here, --host a server elsewhere: name MODEL instead")
    return True


def load_here(word: str | None, given: dict[str, Any], command: str) -> LoadedHere:
    draft = draft_path(given)
    path = model_path(word, given)
    overrides, variables = overriding(given)
    settings = load_settings(given) | ({} if draft is None else {"draft": draft})
    how = sampling_settings(given, drafts=draft is not None)
    before = time.perf_counter()
    model = models.load(path, overrides=overrides, **settings)
    model.parts.programs.check_predicts(command)
    note_context(settings["context"], model.config.context)
    how = recommended(how, model.recommended)
    seconds = time.perf_counter() - before
    return LoadedHere(LocalPartner(model), how, path, settings["kv"], variables, seconds)


def ask_server(word: str | None, given: dict[str, Any]) -> tuple[RemotePartner, dict[str, Any]]:
    """The partner, and the settings that somebody has chosen: of the others the server knows
    better."""
    context = click.get_current_context()
    for param in context.command.params:
        source = context.get_parameter_source(param.name or "")
        if param.name in LOADING and source == ParameterSource.COMMANDLINE:
            note(f"note: {param.opts[0]} has no effect: the server has loaded the model")
    name = word or given["file"] or given["repo"]
    _, variables = overriding(given)
    settings = said_settings(sampling_settings(given))
    server = RemoteServer(address_of(given["host"]), given["api_key"])
    return RemotePartner(server, name), {"template": variables, **settings}


def said_settings(settings: dict[str, Any]) -> dict[str, Any]:
    source = click.get_current_context().get_parameter_source
    return {
        name: value for name, value in settings.items() if source(name) != ParameterSource.DEFAULT
    }
