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
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tetrad.cli.chat import ChatCommand, converse
from tetrad.cli.completion import complete_models
from tetrad.cli.console import note, say
from tetrad.cli.options import (
    READABLE,
    draft_options,
    escaping,
    load_options,
    model_options,
    names_model,
    option,
    read_text,
    sampling_options,
    system_options,
    text_options,
)
from tetrad.cli.overrides import override_options
from tetrad.cli.talk.answer import bandwidth_line, prompt_lines, timing_lines
from tetrad.cli.talk.display import Display, present
from tetrad.cli.talk.local import reasoning_of
from tetrad.cli.talk.opening import (
    LoadedHere,
    ask_server,
    is_remote,
    load_here,
    server_options,
    shown_options,
)
from tetrad.cli.talk.parts import Turns
from tetrad.cli.unused import together
from tetrad.hub.describe import describe

if TYPE_CHECKING:
    from tetrad.models.model import Model

BEFORE = "tetrad.words_before"  # key in the context of a command
MARK = "\ufeff"  # what editors and shells of Windows begin a text with

Costs = Callable[[float], Iterator[str]]  # from all the seconds it took

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
    shown_options,
)  # fmt: skip


class RunCommand(ChatCommand):
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
@click.argument("words", shell_complete=complete_models, nargs=-1, metavar="[MODEL] [PROMPT]...")
@prompt_options
@model_options
@server_options
@override_options
@load_options
@draft_options
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
    """One answer, from a model here or a server; with --verbose what it cost."""
    start = time.perf_counter()
    given.pop("single_turn")  # one answer is all there is
    display = Display(hides=given.pop("hide_thinking"), wraps=given.pop("wordwrap"))
    is_verbose = given.pop("verbose")
    ask = ask_there if is_remote(given) else ask_here
    costs = ask(model, prompt, given, display, is_verbose)
    if not display.ends_line:
        say()
    if display.note is not None:
        note(display.note)
    if is_verbose:
        note("\n" + "\n".join(costs(time.perf_counter() - start)))


def ask_here(
    word: str | None, prompt: str, given: dict[str, Any], display: Display, is_timed: bool
) -> Costs:
    """Options in, the model loaded, text as it comes; returns how to tell what it took."""
    system, wants = given.pop("system"), given.pop("conversation")
    echoes, shows_tokens, warms_up = (
        given.pop(name) for name in ("display_prompt", "verbose_prompt", "warmup")
    )
    found = load_here(word, given, "run")
    partner, model, variables = found.partner, found.partner.model, found.variables
    warming = warm_up(model) if is_timed and warms_up else 0.0
    uses_template = "tokenizer.chat_template" in model.metadata if wants is None else wants
    plain, turns = joined(system, prompt), messages(system, prompt)
    thinks = reasoning_of(model, turns, variables) if uses_template else None
    tokens = model.prompt_tokens(model.chat_tokens(turns, **variables) if uses_template else plain)
    if shows_tokens:
        note("\n".join(prompt_lines(model.tokenizer, tokens)))
    if echoes:
        display.put(model.template.render(turns, **variables) if uses_template else plain)
    parts: Any = partner.complete(tokens, found.settings, thinks)
    with closing(parts):
        present(parts, display, partner.waiting, begins_line=not echoes)
    return lambda seconds: cost_lines(found, display, found.seconds + warming, seconds)


def cost_lines(
    found: LoadedHere, display: Display, load_seconds: float, seconds: float
) -> Iterator[str]:
    if display.cost is not None:
        yield from timing_lines(display.cost, load_seconds, seconds)
        yield bandwidth_line(describe(str(found.path)), display.cost, found.kv)


def ask_there(
    word: str | None, prompt: str, given: dict[str, Any], display: Display, is_timed: bool
) -> Costs:
    """The same, by a server that runs: it has the model, the templates and the time."""
    system, wants = given.pop("system"), given.pop("conversation")
    for name in ("display_prompt", "verbose_prompt", "warmup"):
        given.pop(name)
    partner, settings = ask_server(word, given)
    stream: Any = (
        partner.complete(joined(system, prompt), settings)
        if wants is False
        else partner.answer([], messages(system, prompt), settings)[1]
    )
    with closing(stream) as parts:
        present(parts, display, partner.waiting)
    cost = display.cost
    return lambda seconds: iter(()) if cost is None else timing_lines(cost, 0.0, seconds)


def warm_up(model: Model) -> float:
    """Compiles what an answer needs, so that it counts as loading: a prompt of several tokens, and
    tokens after it. Returns the seconds."""
    begun = time.perf_counter()
    model.generate([0, 0], max_tokens=2, ignore_eos=True)
    return time.perf_counter() - begun


def joined(system: str | None, prompt: str) -> str:
    return f"{system}\n\n{prompt}" if system else prompt


def messages(system: str | None, prompt: str) -> Turns:
    first = [{"role": "system", "content": system}] if system else []
    return [*first, {"role": "user", "content": prompt}]


COMMANDS = {"run": run}
