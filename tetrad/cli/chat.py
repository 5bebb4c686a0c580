"""Command line: `tetrad chat`, several turns with one model.

Lines come from prompt_toolkit where there is a terminal on both sides (history, several lines
between triple quotes), else from stdin: nothing is drawn into a pipe. Ctrl-C stops the answer and
not the program; Ctrl-D ends it.
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

from tetrad.cli.answer import full_context, shown, timing_lines
from tetrad.cli.console import note, prompt_beside, say
from tetrad.cli.conversation import CommandError, Conversation, Ended
from tetrad.cli.options import (
    ModelCommand,
    as_text,
    escaping,
    load_options,
    load_settings,
    model_options,
    model_path,
    note_context,
    option,
    recommended,
    sampling_options,
    sampling_settings,
    system_options,
    text_options,
)
from tetrad.cli.overrides import override_options, overriding
from tetrad.core.errors import ContextError, TetradError
from tetrad.core.extras import extra
from tetrad.core.visible import one_line
from tetrad.hub.folder import models_folder
from tetrad.models.generation import Completion
from tetrad.models.model import load

QUOTES = '"""'
READY, MORE = ">>> ", "... "


@click.command(cls=ModelCommand)
@click.argument("model", required=False)
@system_options
@option("-st", "--single-turn", "single_turn", is_flag=True, help="One answer, then the end.")
@option("-v", "--verbose", is_flag=True, help="Timings after each answer, to stderr.")
@text_options
@model_options
@override_options
@load_options
@sampling_options
def chat(model: str | None, **given: Any) -> None:
    """Talk with MODEL, the small SmolLM2 if none is named. /help lists what can be said besides."""
    escaping(given)
    converse(model, {"conversation": True, **given})


def converse(word: str | None, given: dict[str, Any]) -> None:
    """A chat until it ends: options in, the model loaded, then line after line answered."""
    path = model_path(word, given)
    if given.pop("conversation") is False:
        raise click.UsageError("-no-cnv completes one prompt: give it")
    for name in ("display_prompt", "verbose_prompt"):
        if given.pop(name):
            note(f"note: --{name.replace('_', '-')} has no effect in a chat")
    given.pop("warmup")  # timings of a chat do not count loading
    system, verbose, single_turn = (
        given.pop(name) for name in ("system", "verbose", "single_turn")
    )
    overrides, variables = overriding(given)
    settings = load_settings(given)
    model = load(path, overrides=overrides, **settings)
    model.parts.programs.check_predicts("chat")
    note_context(settings["context"], model.config.context)
    how = recommended(sampling_settings(given), model.recommended)
    conversation = Conversation(model, {"template": variables, **how}, system, verbose)
    if sys.stdin.isatty():
        note(f"{one_line(conversation.model.name)}; /help for help, /bye or Ctrl-D to end")
    for text in said(reader()):
        try:
            respond(conversation, text)
        except Ended:
            return
        if single_turn and not text.startswith("/"):
            return


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
        note(str(error), style="red")
        if isinstance(error, ContextError):
            note("  /clear forgets the conversation")


def reply(conversation: Conversation, text: str) -> None:
    start, parts = time.perf_counter(), list[str]()
    completion: Completion | None = None
    try:
        stream: Any = conversation.ask(text)
        with closing(stream) as pieces:
            for piece in shown(pieces, conversation.model.engine, conversation.length):
                parts.append(piece.text)
                completion = piece.completion
                if terminal_is_gone():
                    raise Ended
    except KeyboardInterrupt:
        say(" ...", end="")
    say("\n", flush=True)
    conversation.keep("".join(parts))
    limit = conversation.settings["max_tokens"]
    if completion is not None and (
        full := full_context(completion, limit, conversation.model.context)
    ):
        note(full)
    if conversation.is_verbose and completion is not None:
        lines = timing_lines(completion, 0.0, time.perf_counter() - start)
        note("\n".join(line for line in lines if not line.startswith("load")))


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
    session = toolkit.PromptSession(history=history.FileHistory(str(file)))
    read: Reader = session.prompt
    return read


COMMANDS = {"chat": chat}
