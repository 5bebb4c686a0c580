"""Command line: `tetrad chat`, several turns with one model.

Lines come from prompt_toolkit where there is a terminal on both sides (history, several lines
between triple quotes), else from stdin: nothing is drawn into a pipe. Ctrl-C stops the answer and
not the program; Ctrl-Z suspends it, Ctrl-D ends it.
"""

from __future__ import annotations

import os
import select
import stat
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import click

from tetrad.cli.completion import complete_models
from tetrad.cli.console import note, prompt_beside, say
from tetrad.cli.groups import GroupedHelp
from tetrad.cli.hints import in_options
from tetrad.cli.options import (
    ModelCommand,
    as_text,
    draft_options,
    escaping,
    load_options,
    model_options,
    option,
    sampling_options,
    system_options,
    text_options,
)
from tetrad.cli.overrides import override_options
from tetrad.cli.talk.answer import timing_lines
from tetrad.cli.talk.conversation import CommandError, Conversation, Ended
from tetrad.cli.talk.display import Display, present
from tetrad.cli.talk.opening import (
    ask_server,
    is_remote,
    load_here,
    server_options,
    shown_options,
)
from tetrad.core.errors import ContextError, TetradError
from tetrad.core.extras import extra
from tetrad.core.visible import one_line
from tetrad.hub.folder import models_folder

QUOTES = '"""'
READY, MORE = ">>> ", "... "


class ChatCommand(GroupedHelp, ModelCommand):
    """A command that talks. A server needs no packages for models here."""

    def check_packages(self, ctx: click.Context) -> None:
        if not ctx.params["host"]:
            super().check_packages(ctx)


@click.command(cls=ChatCommand)
@click.argument("model", shell_complete=complete_models, required=False)
@system_options
@option("-st", "--single-turn", "single_turn", is_flag=True, help="One answer, then the end.")
@option("-v", "--verbose", is_flag=True, help="Timings after each answer, to stderr.")
@text_options
@shown_options
@model_options
@server_options
@override_options
@load_options
@draft_options
@sampling_options
def chat(model: str | None, **given: Any) -> None:
    """Talk with MODEL, the small SmolLM2 if none is named. /help lists what can be said besides."""
    escaping(given)
    converse(model, {"conversation": True, **given})


def converse(word: str | None, given: dict[str, Any]) -> None:
    """A chat until it ends: options in, whoever answers is there, then line after line answered."""
    if given.pop("conversation") is False:
        raise click.UsageError("-no-cnv completes one prompt: give it")
    for name in ("display_prompt", "verbose_prompt"):
        if given.pop(name):
            note(f"note: --{name.replace('_', '-')} has no effect in a chat")
    given.pop("warmup")  # timings of a chat do not count loading
    single_turn = given.pop("single_turn")
    conversation = begun(word, given)
    if sys.stdin.isatty():
        note(f"{one_line(conversation.partner.name)}; /help for help, /bye or Ctrl-D to end")
    for text in said(reader()):
        try:
            respond(conversation, text)
        except Ended:
            return
        if single_turn and not text.startswith("/"):
            return


def begun(word: str | None, given: dict[str, Any]) -> Conversation:
    system, verbose, hides, wraps = (
        given.pop(name) for name in ("system", "verbose", "hide_thinking", "wordwrap")
    )
    if is_remote(given):
        conversation = Conversation(*ask_server(word, given), system, verbose)
    else:
        found = load_here(word, given, "chat")
        settings = {"template": found.variables, **found.settings}
        conversation = Conversation(found.partner, settings, system, verbose)
    conversation.hides, conversation.wraps = hides, wraps
    return conversation


def respond(conversation: Conversation, line: str) -> None:
    """One line of the user: a command, or a message that is answered. What goes wrong is said, and
    the chat goes on."""
    try:
        text = as_text(line, "the message")
        if text.split()[0] == "/retry":
            text = conversation.retry()
        elif text.startswith("/"):
            say(conversation.command(text))
            return
        reply(conversation, text)
    except click.UsageError as error:  # a message that is no text
        note(error.message, style="red")
    except CommandError as error:
        note(str(error), style="red")
    except TetradError as error:
        conversation.keep("")
        note(in_options(error, click.get_current_context().command), style="red")
        if isinstance(error, ContextError):
            note("  /clear forgets the conversation")


def reply(conversation: Conversation, text: str) -> None:
    start = time.perf_counter()
    display = Display(hides=conversation.hides, wraps=conversation.wraps)
    try:
        stream: Any = conversation.ask(text)
        with closing(stream) as parts:
            present(parts, display, conversation.partner.waiting, is_over=terminal_is_gone)
    except KeyboardInterrupt:
        display.finish()
        say(" ...", end="")
    if terminal_is_gone():
        raise Ended
    say("\n", flush=True)
    conversation.keep(display.text)
    if display.note is not None:
        note(display.note)
    if conversation.is_verbose and display.cost is not None:
        note("\n".join(timing_lines(display.cost, 0.0, time.perf_counter() - start)))


def terminal_is_gone() -> bool:
    """Whoever talked to us has closed the terminal, and ignored is what would have ended us
    (nohup): an answer without an end would go on for ever. Of a pipe nothing is asked: to be at its
    end is what pipes are for."""
    try:
        number = sys.stdin.fileno()
        # a terminal that is gone no longer says that it is one
        is_device = stat.S_ISCHR(os.fstat(number).st_mode)
    except OSError:
        return False
    asked = select.poll()
    asked.register(number, 0)
    return is_device and bool(asked.poll(0))  # of a hang-up and of errors it tells unasked


# -- reading ---------------------------------------------------------------------------------------

Reader = Callable[[str], str]  # shows a prompt, returns a line; EOFError at the end


def said(read: Reader) -> Iterator[str]:
    """Messages: lines that are not empty, and what stands between triple quotes. Ctrl-C drops what
    was begun."""
    while True:
        try:
            line = read(READY)
            text = (
                block(line.lstrip()[len(QUOTES) :], read)
                if line.lstrip().startswith(QUOTES)
                else line
            )
        except KeyboardInterrupt:
            note("/bye or Ctrl-D ends the chat")
            continue
        except EOFError:
            return
        if text.strip():
            yield text.strip()


def block(first: str, read: Reader) -> str:
    """Everything up to the closing quotes; without them there is no message, which is said."""
    text = first
    while not text.rstrip().endswith(QUOTES):
        try:
            text += "\n" + read(MORE)
        except EOFError:
            note(f"{QUOTES} was not closed: the message that it began is dropped")
            raise
    return text.rstrip().removesuffix(QUOTES)


def reader() -> Reader:
    if not sys.stdin.isatty():
        return plain_reader(lambda prompt: None)
    return terminal_reader() if sys.stdout.isatty() else plain_reader(prompt_beside)


def plain_reader(show: Callable[[str], None]) -> Reader:
    """Lines of stdin; `show` tells whoever types that one is awaited."""

    def read(prompt: str) -> str:
        show(prompt)
        line = sys.stdin.readline()
        if not line:
            raise EOFError
        return line.rstrip("\n")

    return read


def terminal_reader() -> Reader:
    """prompt_toolkit with a history that only its owner can read; without the package, what Python
    has."""
    try:
        toolkit = extra("prompt_toolkit", "editing lines")
    except TetradError:
        return input
    history = extra("prompt_toolkit.history", "the history of lines")
    file = models_folder() / ".chat-history"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.touch(mode=0o600)
    session = toolkit.PromptSession(history=history.FileHistory(str(file)), enable_suspend=True)
    read: Reader = session.prompt
    return read


COMMANDS = {"chat": chat}
