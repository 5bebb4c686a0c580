"""Command line: `tetrad run`, one prompt and its answer.

The prompt is PROMPT, -p, -f or what is piped in; with none of them and a terminal, it is a chat. The answer goes to
stdout while it is written. A model with a chat template is asked through it, unless -no-cnv completes plain text.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

import click

from tetrad.cli.answer import bandwidth_line, full_context, prompt_lines, shown, timing_lines
from tetrad.cli.chat import converse
from tetrad.cli.console import notes
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
from tetrad.hub.pull import local
from tetrad.models.model import Model, load

MARK = "\ufeff"  # what editors and shells of Windows begin a text with

prompt_options = together(
    option("-p", "--prompt", default=None, help="The prompt, as PROMPT."),
    option("-f", "-bf", "--file", "--binary-file", "source", type=READABLE, default=None,
           help="A file with the prompt; - is stdin."),
    system_options,
    option("-cnv/-no-cnv", "--conversation/--no-conversation", "--cnv/--no-cnv", "conversation", default=None,
           show_default=False, help="Use the chat template, or complete plain text; default: as the model has one."),
    option("-st", "--single-turn", "single_turn", is_flag=True, help="One answer, then the end."),
    option("-v", "--verbose", is_flag=True, help="Timings, the seed, the share of the memory bandwidth, to stderr."),
    text_options,
)  # fmt: skip


@click.command(cls=ModelCommand)
@click.argument("model", required=False)
@click.argument("prompt_word", required=False, metavar="[PROMPT]")
@prompt_options
@model_options
@override_options
@load_options
@sampling_options
def run(model: str | None, prompt_word: str | None, **given: Any) -> None:
    """Answer PROMPT with MODEL, streaming. Piped text is the prompt, or follows it.

    MODEL is a .gguf file, a name of `tetrad list`, org/repo[:QUANT] or a URL; the small SmolLM2 if none is named. A
    single word with spaces in it is the prompt.
    """
    if prompt_word is None and (names_model(given) or is_prompt(model)):
        model, prompt_word = None, model
    escape = escaping(given)
    words = [escape(word) for word in (prompt_word, given.pop("prompt")) if word is not None]
    prompt = prompt_of(words, given.pop("source"))
    if prompt is None:
        converse(model, given)
    else:
        answer(model, prompt, given)


def is_prompt(word: str | None) -> bool:
    """No model is called like a sentence, unless it is a file that is there."""
    return word is not None and len(word.split()) > 1 and local(word) is None


def prompt_of(words: list[str], source: Path | None) -> str | None:
    """The parts that were given, in order; None asks for a chat."""
    parts = [*words]
    if source is not None:
        parts.append(read_text(source).removeprefix(MARK))
    if not sys.stdin.isatty() and str(source) != "-" and (piped := read_text(Path("-")).removeprefix(MARK)):
        parts.append(piped)
    if not parts and not sys.stdin.isatty():
        raise click.UsageError("which prompt? Give PROMPT, -p, -f FILE, or pipe it in")
    return "\n\n".join(parts) if parts else None


def answer(model: str | None, prompt: str, given: dict[str, Any]) -> None:
    """One answer: options in, the model loaded, text as it comes; with --verbose what it cost."""
    start = time.perf_counter()
    path = model_path(model, given)
    is_verbose, system, wants = given.pop("verbose"), given.pop("system"), given.pop("conversation")
    given.pop("single_turn")  # one answer is all there is
    echoes, shows_tokens, warms_up = (given.pop(name) for name in ("display_prompt", "verbose_prompt", "warmup"))
    overrides, variables = overriding(given)
    settings, how = load_settings(given), sampling_settings(given)
    before = time.perf_counter()
    loaded = load(path, overrides=overrides, **settings)
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
        notes.print("\n".join(prompt_lines(loaded.tokenizer, tokens)), soft_wrap=True)
    if echoes:
        print(loaded.template.render(said, **variables) if uses_template else plain, end="")
    *_, last = shown(loaded.generate(tokens, stream=True, **how))
    completion = last.completion
    if completion is None or not completion.text.endswith("\n"):
        print()
    if completion is not None and (note := full_context(completion, how["max_tokens"], loaded.context)):
        notes.print(note, soft_wrap=True)
    if is_verbose and completion is not None:
        lines = [*timing_lines(completion, load_seconds, time.perf_counter() - start)]
        lines.append(bandwidth_line(describe(str(path)), completion, settings["kv"]))
        notes.print("\n" + "\n".join(lines), soft_wrap=True)


def warm_up(model: Model) -> None:
    """Compiles what an answer needs, so that it counts as loading: a prompt of several tokens, and tokens after it."""
    model.generate([0, 0], max_tokens=2, ignore_eos=True)


def messages(system: str | None, prompt: str) -> list[dict[str, str]]:
    first = [{"role": "system", "content": system}] if system else []
    return [*first, {"role": "user", "content": prompt}]


COMMANDS = {"run": run}
