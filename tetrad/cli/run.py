"""Command line: `tetrad run`, one prompt and its answer.

The prompt is PROMPT, -p, -f or what is piped in; with none of them and a terminal, it is a chat.
The answer goes to stdout while it is written. A model with a chat template is asked through it,
unless -no-cnv completes plain text. With -p or -f stdin is left alone, as llama.cpp leaves it;
words without an option may be followed by what is piped in.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from tetrad.cli.answer import bandwidth_line, full_context, prompt_lines, shown, timing_lines
from tetrad.cli.chat import converse
from tetrad.cli.console import note, say, write
from tetrad.cli.options import (
    READABLE,
    ModelCommand,
    escaping,
    load_options,
    load_settings,
    model_options,
    model_path,
    names_model,
    note_context,
    option,
    read_text,
    recommended,
    sampling_options,
    sampling_settings,
    system_options,
    text_options,
)
from tetrad.cli.overrides import override_options, overriding
from tetrad.cli.unused import together
from tetrad.hub.describe import describe
from tetrad.models.model import Model, load

BEFORE = "tetrad.words_before"  # key in the context of a command
MARK = "\ufeff"  # what editors and shells of Windows begin a text with

prompt_options = together(
    option("-p", "--prompt", default=None, help="The prompt, as PROMPT."),
    option("-f", "-bf", "--file", "--binary-file", "source", type=READABLE, default=None,
           help="A file with the prompt; - is stdin."),
    system_options,
    option("-cnv/-no-cnv", "--conversation/--no-conversation", "--cnv/--no-cnv", "conversation",
    default=None,
           show_default=False,
           help="Use the chat template, or complete plain text; default: as the model has one."),
    option("-st", "--single-turn", "single_turn", is_flag=True, help="One answer, then the end."),
    option("-v", "--verbose", is_flag=True,
    help="Timings, the seed, the share of the memory bandwidth, to stderr."),
    text_options,
)  # fmt: skip


class RunCommand(ModelCommand):
    """Remembers how many words stood before -p: the prompt is read in the order in which it was
    written."""

    def separated(self, ctx: click.Context, args: list[str]) -> list[str]:
        words = super().separated(ctx, args)
        ctx.meta[BEFORE] = words_before(("-p", "--prompt"), words, self.known(ctx))
        return words


def words_before(
    names: tuple[str, ...], words: list[str], known: Mapping[str, click.Option | None]
) -> int | None:
    """How many words that belong to no option stand before the last of `names`; None: it is not
    there."""
    count, found, left = 0, None, iter(words)
    for word in left:
        if word == "--":
            break
        if word.partition("=")[0] in names:
            found = count
        if known.get(word) is not None:
            next(left, None)
        elif word not in known and not word.startswith("--"):
            count += 1
    return found


@click.command(cls=RunCommand)
@click.argument("words", nargs=-1, metavar="[MODEL] [PROMPT]...")
@prompt_options
@model_options
@override_options
@load_options
@sampling_options
def run(words: tuple[str, ...], **given: Any) -> None:
    """Answer PROMPT with MODEL, streaming. Piped text is the prompt, or follows it, unless -p or -f
    is given.

    MODEL is a .gguf file, a name of `tetrad list`, org/repo[:QUANT] or a URL; the small SmolLM2 if
    none is named. A single word with spaces in it is the prompt.
    """
    asked, source, escape = given.pop("prompt"), given.pop("source"), escaping(given)
    first = int(
        bool(words) and not names_model(given) and not (len(words) == 1 and is_prompt(words[0]))
    )
    said = in_order(words[first:], asked, click.get_current_context().meta[BEFORE], first)
    text = " ".join(map(escape, said)) if said else None
    prompt = prompt_of(text, source, reads_pipe=asked is None and source is None)
    model = words[0] if first else None
    if prompt is None:
        converse(model, given)
    else:
        answer(model, prompt, given)


def is_prompt(word: str) -> bool:
    """No model is called like a sentence, unless it is a file that is there."""
    return len(word.split()) > 1 and not os.path.exists(os.path.expanduser(word))


def in_order(
    words: tuple[str, ...], asked: str | None, before: int | None, skipped: int
) -> list[str]:
    """The words of a prompt as they were written: `asked` by -p, which stood behind `before` words,
    or by a variable.

    >>> in_order(("World",), "Hello", 0, 0), in_order(("Hello", "World"), "my", 2, 1)
    (['Hello', 'World'], ['Hello', 'my', 'World'])
    >>> in_order((), None, None, 0)
    []
    """
    place = len(words) if before is None else max(0, before - skipped)
    return [*words[:place], *([] if asked is None else [asked]), *words[place:]]


def prompt_of(words: str | None, source: Path | None, *, reads_pipe: bool) -> str | None:
    """The parts that were given, in order; None asks for a chat."""
    parts = [] if words is None else [words]
    if source is not None:
        parts.append(read_text(source).removeprefix(MARK))
    is_piped = not sys.stdin.isatty()
    if reads_pipe and is_piped and (piped := read_text(Path("-")).removeprefix(MARK)):
        parts.append(piped)
    if not parts and is_piped:
        raise click.UsageError("which prompt? Give PROMPT, -p, -f FILE, or pipe it in")
    return "\n\n".join(parts) if parts else None


def answer(model: str | None, prompt: str, given: dict[str, Any]) -> None:
    """One answer: options in, the model loaded, text as it comes; with --verbose what it cost."""
    start = time.perf_counter()
    path = model_path(model, given)
    is_verbose, system, wants = given.pop("verbose"), given.pop("system"), given.pop("conversation")
    given.pop("single_turn")  # one answer is all there is
    echoes, shows_tokens, warms_up = (
        given.pop(name) for name in ("display_prompt", "verbose_prompt", "warmup")
    )
    overrides, variables = overriding(given)
    settings, how = load_settings(given), sampling_settings(given)
    before = time.perf_counter()
    loaded = load(path, overrides=overrides, **settings)
    loaded.parts.programs.check_predicts("run")
    note_context(settings["context"], loaded.config.context)
    how = recommended(how, loaded.recommended)
    if is_verbose and warms_up:
        warm_up(loaded)
    load_seconds = time.perf_counter() - before
    uses_template = "tokenizer.chat_template" in loaded.metadata if wants is None else wants
    plain = f"{system}\n\n{prompt}" if system else prompt
    said = messages(system, prompt)
    tokens = loaded.prompt_tokens(loaded.chat_tokens(said, **variables) if uses_template else plain)
    if shows_tokens:
        note("\n".join(prompt_lines(loaded.tokenizer, tokens)))
    if echoes:
        write(loaded.template.render(said, **variables) if uses_template else plain)
    stream = loaded.generate(tokens, stream=True, **how)
    *_, last = shown(stream, loaded.engine, len(tokens), begins_line=not echoes)
    completion = last.completion
    if completion is None or not completion.text.endswith("\n"):
        say()
    if completion is not None and (
        full := full_context(completion, how["max_tokens"], loaded.context)
    ):
        note(full)
    if is_verbose and completion is not None:
        lines = [*timing_lines(completion, load_seconds, time.perf_counter() - start)]
        lines.append(bandwidth_line(describe(str(path)), completion, settings["kv"]))
        note("\n" + "\n".join(lines))


def warm_up(model: Model) -> None:
    """Compiles what an answer needs, so that it counts as loading: a prompt of several tokens, and
    tokens after it."""
    model.generate([0, 0], max_tokens=2, ignore_eos=True)


def messages(system: str | None, prompt: str) -> list[dict[str, str]]:
    first = [{"role": "system", "content": system}] if system else []
    return [*first, {"role": "user", "content": prompt}]


COMMANDS = {"run": run}
