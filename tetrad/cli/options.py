"""Command line, options: the spellings of llama.cpp, each also a variable TETRAD_..., shared by the
commands.

Receives words; returns checked values: which model, how to load it, how to draw tokens. An option
that has no effect here says so; an unknown one is an error that lists close ones.
"""

from __future__ import annotations

import json
import math
import os
import re
import sys
from collections import deque
from collections.abc import Callable, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from tetrad.cli.console import note, progress_bar
from tetrad.cli.unused import ON_OR_OFF, Function, OnOffOption, together, unused_options
from tetrad.core.errors import HubError
from tetrad.core.extras import check_extra
from tetrad.core.record import record
from tetrad.hub.describe import CACHE_BITS
from tetrad.hub.pull import at_path, held_path, local, pull, unknown
from tetrad.hub.reference import SMALL, Means, ModelRef, is_url, resolve
from tetrad.models.decoding.settings import RULES, WHOLE, Count, Guesses

READABLE = click.Path(exists=True, dir_okay=False, allow_dash=True, path_type=Path)
PARSING = {"help_option_names": ["-h", "--help"], "max_content_width": 110}
JOINED = re.compile(r"(-[a-zA-Z]+)([+-]?\d+(?:\.\d+)?)")  # -n3, -t2, -n-1
ADAPTERS = "adapters are not supported"
NOT_HERE = {  # options of llama.cpp that cannot be left out of account
    "--lora": ADAPTERS, "--lora-scaled": ADAPTERS, "--control-vector": ADAPTERS,
    "-mm": "models of images are not supported",
    "--mmproj": "models of images are not supported",
    "--image": "models of images are not supported",
}  # fmt: skip
LIKE_AN_OPTION = re.compile(r"-[a-zA-Z][\w-]+")


class Command(click.Command):
    """A command that answers an unknown option with close ones."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **{"context_settings": PARSING, **kwargs})

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if ctx.resilient_parsing:  # to complete a line that is not whole yet
            return super().parse_args(ctx, args)
        try:
            return super().parse_args(ctx, self.separated(ctx, args))
        except click.NoSuchOption as error:
            raise self.no_option(ctx, error.option_name) from None

    def separated(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Options and values as words of their own, no value left out.

        `-n3` is `-n 3`. A word that looks like an option must be one: `-temp 0` would be read as
        `-t emp 0`.
        """
        known, words, found = self.known(ctx), deque(args), list[str]()
        while words:
            word = words.popleft()
            if word == "--":
                return [*found, word, *words]
            joined, name = JOINED.fullmatch(word), word.partition("=")[0]
            if joined and word not in known and known.get(joined[1]):
                found += joined.groups()
                continue
            if LIKE_AN_OPTION.fullmatch(name) and name not in known:
                raise self.no_option(ctx, name)
            found.append(word)
            takes = known.get(word)
            if isinstance(takes, OnOffOption) and not (words and words[0].lower() in ON_OR_OFF):
                found.append("on")
            elif takes and words:
                found.append(words.popleft())
        return found

    def known(self, ctx: click.Context) -> dict[str, click.Option | None]:
        """Every spelling, and its option where a value follows."""
        options = [p for p in self.get_params(ctx) if isinstance(p, click.Option)]
        valued = {p: None if p.is_flag or p.count else p for p in options}
        return {name: valued[p] for p in options for name in (*p.opts, *p.secondary_opts)}

    def no_option(self, ctx: click.Context, name: str) -> click.UsageError:
        if name in NOT_HERE:
            return click.UsageError(f"{name}: {NOT_HERE[name]}", ctx)
        known = self.known(ctx)
        words = {spelling.lstrip("-"): spelling for spelling in known}
        close = [words[w] for w in get_close_matches(name.lstrip("-"), words, cutoff=0.5)]
        meant = f"; close: {', '.join(close)}" if close else ""
        return click.UsageError(
            f"there is no option {name}{meant}; all: `{ctx.command_path} --help`", ctx
        )


class ModelCommand(Command):
    """A command that runs a model. Without the packages for it there is its help, and nothing is
    fetched in vain."""

    def invoke(self, ctx: click.Context) -> Any:
        self.check_packages(ctx)
        return super().invoke(ctx)

    def check_packages(self, ctx: click.Context) -> None:
        check_extra("tokenizers", ctx.command_path)


def option(*names: str, **settings: Any) -> Callable[[Function], Function]:
    """A click option that is also a variable, called like its first long spelling."""
    first = next(name for name in names if name.startswith("--")).partition("/")[0]
    variable = "TETRAD_" + first.removeprefix("--").replace("-", "_").upper()
    return click.option(*names, envvar=variable, **{"show_default": True, **settings})


system_options = together(
    option(
        "-sys",
        "--system-prompt",
        "system",
        default=None,
        help="What the model is told before everything else.",
    ),
    option(
        "-sysf",
        "--system-prompt-file",
        "system_file",
        type=READABLE,
        default=None,
        help="The same, from a file.",
    ),
)

text_options = together(
    option("-e", "--escape/--no-escape", "escape", default=False, show_default=False,
           help="In prompts given as words, \\n is a new line, \\t a tab, ..."),
    option("--display-prompt/--no-display-prompt", default=False, show_default=False,
    help="Print the prompt, too."),
    option("--verbose-prompt", is_flag=True, help="The tokens of the prompt, to stderr."),
    option("--warmup/--no-warmup", default=True, show_default=False,
    help="With --verbose: compile before timing."),
)  # fmt: skip


# -- which model -----------------------------------------------------------------------------------


def take_token(ctx: click.Context, param: click.Parameter, value: str | None) -> None:
    """Where `huggingface_hub` looks for it."""
    if value is not None:
        os.environ["HF_TOKEN"] = value


model_options = together(
    option("-m", "--model", "-mu", "--model-url", "file", metavar="FILE",
    help="A .gguf file, or a URL."),
    option("-hf", "-hfr", "--hf-repo", "repo", metavar="ORG/REPO[:QUANT]",
           help="A model on Hugging Face (Q4_K_M if not said)."),
    option("-hff", "--hf-file", "repo_file", metavar="FILE", help="The file in that repository."),
    click.option("-hft", "--hf-token", callback=take_token, expose_value=False,
    help="The token for Hugging Face."),
    option("--offline", is_flag=True, help="Fetch nothing."),
)  # fmt: skip


draft_options = together(
    option("-md", "--model-draft", "draft_file", default=None, metavar="FILE",
    help="A small model of the same vocabulary that guesses; same output."),
    option("-hfd", "-hfrd", "--hf-repo-draft", "draft_repo", default=None,
    metavar="ORG/REPO[:QUANT]", help="The same, on Hugging Face."),
)  # fmt: skip


def model_path(word: str | None, given: dict[str, Any], *, force: bool = False) -> Path:
    """The file that MODEL, -m or -hf mean; fetched if it is not there, which is said. MODEL wins
    over variables."""
    return there(wanted_model(word, given), force)


def draft_path(given: dict[str, Any]) -> Path | None:
    """The file that -md or -hfd mean."""
    file, repo = given.pop("draft_file"), given.pop("draft_repo")
    if file and repo:
        raise click.UsageError(f"which draft model: -md {file}, or -hfd {repo}? Name one")
    if not (name := file or repo):
        return None
    return there(wanted_name(name, flag="-hfd" if repo else "", offline=given["offline"]))


def there(wanted: WantedModel, force: bool = False) -> Path:
    if wanted.path is not None:
        return wanted.path
    name = wanted.ref.word
    note(f"{name} is not on this machine: fetching it")
    with progress_bar(name) as report:
        return pull(name, report, file=wanted.file, force=force, tell=note)


@record
class WantedModel:
    """What a command line asks for: where it is, or None if it has to be fetched, and `file` the
    one of the repository that was named."""

    ref: ModelRef
    path: Path | None
    file: str | None = None


def wanted_model(word: str | None, given: dict[str, Any]) -> WantedModel:
    """What MODEL, -m or -hf mean. What came by -m is a path or an address, by -hf a repository, and
    never something else that has such a name."""
    if word is not None and names_model(given):
        raise click.UsageError(
            f"which model: {word}, or {given['file'] or given['repo']}? Name one"
        )
    if is_said(given, "file") and is_said(given, "repo"):
        raise click.UsageError(f"which model: -m {given['file']}, or -hf {given['repo']}? Name one")
    name = word or given["file"] or given["repo"] or SMALL
    by_path, by_repo = (
        is_said(given, "file"),
        word is None and not given["file"] and bool(given["repo"]),
    )
    repo_file, offline = given["repo_file"], given["offline"]
    for key in ("file", "repo", "repo_file", "offline"):
        del given[key]
    if by_path and not is_url(name):
        return WantedModel(resolve(name), at_path(name))
    return wanted_name(name, flag="-hf" if by_repo else "", offline=offline, repo_file=repo_file)


def wanted_name(
    name: str, *, flag: str, offline: bool, repo_file: str | None = None
) -> WantedModel:
    """`flag` is the option that means a repository and nothing else, if it was one."""
    ref = resolve(name)
    if flag and ref.means is not Means.REPO:
        raise HubError(f"{flag} {name}: expected org/repo or org/repo:QUANT")
    path = None if repo_file else held_path(ref) if flag else local(name)
    if path is None and not ref.can_be_fetched:
        raise unknown(name)
    if path is None and offline:
        raise HubError(f"{name} is not on this machine, and --offline fetches nothing")
    return WantedModel(ref, path, repo_file)


def names_model(given: dict[str, Any]) -> bool:
    """Is the model named by an option of this command line, so that a first word is something
    else?"""
    return is_said(given, "file") or is_said(given, "repo")


def is_said(given: dict[str, Any], key: str) -> bool:
    """Given on this command line, and not by a variable?"""
    source = click.get_current_context().get_parameter_source(key)
    return bool(given[key]) and source == ParameterSource.COMMANDLINE


# -- how to load it --------------------------------------------------------------------------------

MIXES = ("q4_k_m", "q5_k_m", "q6_k", "q8_0")  # of tetrad.models.folder.quantize
CACHES = click.Choice([kind for kind in CACHE_BITS])
loading_options = together(
    option(
        "-c",
        "--ctx-size",
        "context",
        type=click.IntRange(0),
        default=0,
        help="Tokens of context; 0: the model's.",
    ),
    option(
        "-t",
        "--threads",
        "threads",
        type=int,
        default=-1,
        help="Threads; -1: what affinity and quota allow.",
    ),
    option(
        "-tb",
        "--threads-batch",
        "threads_batch",
        type=int,
        default=None,
        help="Threads for prompts: those of -t.",
    ),
    option(
        "-b",
        "--batch-size",
        "batch",
        type=int,
        default=None,
        help="No effect: batches are chosen here.",
    ),
    option(
        "-ub",
        "--ubatch-size",
        "ubatch",
        type=int,
        default=None,
        help="No effect: batches are chosen here.",
    ),
    option(
        "--quantize",
        "quantize",
        type=click.Choice(MIXES),
        default=None,
        help="Pack a model in floats in fewer bits while it is loaded.",
    ),
    option(
        "-ctk", "--cache-type-k", "kind_k", type=CACHES, default="f16", help="How keys are kept."
    ),
    option(
        "-ctv",
        "--cache-type-v",
        "kind_v",
        type=CACHES,
        default="f16",
        help="How values are kept; as keys.",
    ),
)
load_options = together(unused_options, loading_options)


def load_settings(given: dict[str, Any]) -> dict[str, Any]:
    """What `tetrad.load` takes; the number of threads is set here."""
    threads, batch_threads = given.pop("threads"), given.pop("threads_batch")
    set_threads(threads)
    if batch_threads is not None and batch_threads != threads:
        note(f"note: -tb {batch_threads} has no effect: prompts are read with the threads of -t")
    for name in ("batch", "ubatch"):
        if (size := given.pop(name)) is not None:
            note(
                f"note: -{name.replace('atch', '')} {size} has no effect: results do not depend "
                "on it"
            )
    keys, values = given.pop("kind_k"), given.pop("kind_v")
    if keys != values:
        raise click.UsageError(
            f"-ctk {keys} and -ctv {values} differ: keys and values are kept alike, give both"
        )
    mix = given.pop("quantize")
    return {
        "context": given.pop("context"),
        "kv": keys,
        **({} if mix is None else {"quantize": mix}),
    }


def note_context(asked: int, trained: int) -> None:
    """More context than a model has learnt is allowed, and seldom what was wanted."""
    if asked > trained:
        note(f"note: -c {asked} is more than the {trained} tokens the model was trained for")


def set_threads(threads: int) -> None:
    """As the flag has it, which the runtime reads; it is read when the first program runs."""
    if threads > 0:
        os.environ["TETRAD_THREADS"] = str(threads)
    else:
        os.environ.pop("TETRAD_THREADS", None)


# -- how to draw tokens ----------------------------------------------------------------------------

MANY = {"multiple": True, "show_default": False}


def whole_numbers(rule: Count | Guesses) -> click.IntRange:
    return click.IntRange(rule.least, None if math.isinf(rule.most) else int(rule.most))


def setting(name: str, *spellings: str, help: str, **others: Any) -> Callable[[Function], Function]:
    """The option for a setting of `generate`: its type, range and default are those of the
    setting."""
    rule = RULES[name]
    kind = whole_numbers(rule) if isinstance(rule, WHOLE) else float
    return option(*spellings, name, help=help, **{"type": kind, "default": rule.default, **others})


guess_options = together(
    setting("speculate", "--speculate", "--spec-draft-n-max", "--draft-max", "--draft", "--draft-n",
            help="Guess so many tokens ahead; same output."),
    option("--spec-type", default="none", metavar="none|ngram-...",
    help="ngram: as --speculate, which guesses so."),
    setting("draft_min", "--draft-min", "--draft-n-min", "--spec-draft-n-min",
    help="With -md: guesses of fewer tokens are not used."),
    setting("draft_p_min", "--draft-p-min", "--spec-draft-p-min",
    help="With -md: how likely a token must be to be guessed."),
)  # fmt: skip
sampling_options = together(
    option("-n", "--predict", "--n-predict", type=click.IntRange(-2), default=-1,
    help="Tokens to write; -1: any."),
    setting("temperature", "--temp", "--temperature", help="0: always the likeliest."),
    setting("top_k", "--top-k", help="Only the k likeliest; 0: all."),
    setting("top_p", "--top-p", help="Only the likeliest that make up p; 1: all."),
    setting("min_p", "--min-p", help="Only those at least so likely, relative to the likeliest."),
    setting("top_n_sigma", "--top-n-sigma", "--top-nsigma", default=-1.0,
            help="So many deviations below the top; 0: all."),
    setting("typical_p", "--typical", "--typical-p", help="The most typical that make up p."),
    setting("xtc_probability", "--xtc-probability", help="How often XTC drops the likeliest."),
    setting("xtc_threshold", "--xtc-threshold", help="Those that likely; above 0.5: none."),
    setting("dynatemp_range", "--dynatemp-range",
    help="The temperature follows the entropy, so far; 0: fixed."),
    setting("dynatemp_exponent", "--dynatemp-exp", help="How it follows."),
    setting("mirostat", "--mirostat", help="1 or 2: hold the surprise instead of filters."),
    setting("mirostat_tau", "--mirostat-ent", help="The surprise to hold, in bits."),
    setting("mirostat_eta", "--mirostat-lr", help="How fast it is corrected."),
    setting("dry_multiplier", "--dry-multiplier", help="Against repeated sequences; 0: off."),
    setting("dry_base", "--dry-base", help="How it grows with the length of what is repeated."),
    setting("dry_allowed_length", "--dry-allowed-length", help="Tokens that may be repeated."),
    setting("dry_penalty_last_n", "--dry-penalty-last-n",
    help="Where it looks; 0: nowhere, -1: the whole context."),
    option("--dry-sequence-breaker", "breakers", metavar="TEXT",
    help="Ends a sequence; again for more; or none.",
           **MANY),
    option("--samplers", default=None, metavar="A;B;...",
    help="Only these, as ordered; see the documentation."),
    option("--sampler-seq", "--sampling-seq", "sampler_letters", default=None, metavar="edskypmxt",
           help="The same in letters."),
    setting("repeat_penalty", "--repeat-penalty", help="Of tokens that occurred; 1: none."),
    setting("repeat_last_n", "--repeat-last-n",
    help="Where penalties look; 0: nowhere, -1: the whole context."),
    setting("presence_penalty", "--presence-penalty", help="Once per token that occurred."),
    setting("frequency_penalty", "--frequency-penalty", help="For every time a token occurred."),
    option("-l", "--logit-bias", "bias", metavar="ID(+|-)BIAS",
    help="15043+1 or 15043-inf; again for more.", **MANY),
    option("-s", "--seed", type=int, default=-1, help="-1: drawn, and shown with --verbose."),
    option("--ignore-eos", is_flag=True, help="Go on after the end."),
    option("-r", "--reverse-prompt", "stop", metavar="TEXT",
    help="Stop before this text; again for more.", **MANY),
    option("--grammar", default=None, metavar="GBNF", help="Only text of this grammar."),
    option("--grammar-file", type=READABLE, default=None, help="The same, from a file."),
    option("-j", "--json-schema", "schema", default=None, metavar="SCHEMA",
           help="Only JSON like this; {} is any object."),
    option("-jf", "--json-schema-file", "schema_file", type=READABLE, default=None,
    help="The same, from a file."),
    option("--format", type=click.Choice(["json"]), default=None, help="json: any JSON object."),
    option("--context-shift/--no-context-shift", "shift", default=False,
    help="When it is full, forget the oldest."),
    setting("keep", "--keep", help="Tokens of the prompt it keeps then; -1: all."),
    guess_options,
)  # fmt: skip

# options whose values are not those of the settings of that name
SPELT_OTHERWISE = ("seed", "stop", "grammar", "reasoning_budget")


def sampling_settings(given: dict[str, Any], *, drafts: bool = False) -> dict[str, Any]:
    """What `Model.generate` takes."""
    predict, seed = given.pop("predict"), given.pop("seed")
    settings = guess_settings(given, drafts) | {
        name: given.pop(name) for name in RULES if name in given and name not in SPELT_OTHERWISE
    }
    if breakers := given.pop("breakers"):
        settings["dry_sequence_breakers"] = (
            () if breakers == ("none",) else tuple(map(unescaped, breakers))
        )
    letters, samplers = given.pop("sampler_letters"), given.pop("samplers")
    if samplers is None and letters is not None:
        samplers = spelt_out(letters)
    if samplers is not None:
        settings |= chain(samplers)
    bias = dict(biased(word) for word in given.pop("bias"))
    return {
        **settings,
        **constraints(given),
        "max_tokens": max(predict, -1),  # -2 is "until the context is full", which -1 is here
        "seed": None if seed < 0 else seed,
        "stop": tuple(given.pop("stop")),
        "logit_bias": bias or None,
    }


def recommended(settings: dict[str, Any], offered: Mapping[str, Any]) -> dict[str, Any]:
    """The settings, with what the file of the model offers in place of those that nobody has
    chosen."""
    context = click.get_current_context()
    chosen = context.get_parameter_source("samplers") != ParameterSource.DEFAULT
    free = {
        n: v
        for n, v in offered.items()
        if context.get_parameter_source(n) in (None, ParameterSource.DEFAULT)
    }
    return settings if chosen else settings | free


GUESSES = 8  # tokens ahead, where speculation is asked for without a number


def guess_settings(given: dict[str, Any], drafts: bool) -> dict[str, Any]:
    """How far to guess: by a draft model where there is one, else from the text so far."""
    count = speculation(given.pop("spec_type"), given.pop("speculate"))
    most = {"speculate": 0, "draft_max": count or RULES["draft_max"].default}
    bounds = {name: given.pop(name) for name in ("draft_min", "draft_p_min")}
    return bounds | (most if drafts else {"speculate": count})


def speculation(kind: str, count: int) -> int:
    """Tokens to guess: every kind of n-gram means the tokens of the text so far."""
    if kind == "none":
        return count
    if not kind.startswith("ngram"):
        raise click.UsageError(
            f"--spec-type {kind}: known are none and ngram-...; -md FILE names a draft model"
        )
    return count or GUESSES


# In the order in which they come here; what turns each off that is not named.
SAMPLERS: dict[str, dict[str, float]] = {
    "penalties": {"repeat_penalty": 1.0, "presence_penalty": 0.0, "frequency_penalty": 0.0},
    "dry": {"dry_multiplier": 0.0},
    "top_n_sigma": {"top_n_sigma": 0.0},
    "top_k": {"top_k": 0},
    "typ_p": {"typical_p": 1.0},
    "top_p": {"top_p": 1.0},
    "min_p": {"min_p": 0.0},
    "xtc": {"xtc_probability": 0.0},
    "temperature": {"temperature": 1.0, "dynatemp_range": 0.0},
}
LETTERS = dict(zip("edskypmxt", SAMPLERS, strict=True))
SAMPLER_NAMES = {
    "temp": "temperature",
    "typical": "typ_p",
    "typical_p": "typ_p",
    "nucleus": "top_p",
}


def chain(text: str) -> dict[str, Any]:
    """The settings that `--samplers` stands for.

    >>> chain("penalties;dry;top_n_sigma;top_k;typ_p;top_p;min_p;xtc;temperature")
    {'temperature_first': False}
    >>> chain("penalties;temp;top_n_sigma;top-k;typ_p;top_p;min_p")
    {'temperature_first': True, 'dry_multiplier': 0.0, 'xtc_probability': 0.0}
    """
    words = [word.strip().lower().replace("-", "_") for word in text.split(";") if word.strip()]
    names = [SAMPLER_NAMES.get(word, word) for word in words]
    for name in names:
        if name not in SAMPLERS:
            known = ", ".join(SAMPLERS)
            raise click.UsageError(f"--samplers {text}: there is no sampler {name}; known: {known}")
    order = [name for name in SAMPLERS if name in names]
    edits = [name for name in order if name in ("penalties", "dry")]
    warm = [*edits, *(["temperature"] if "temperature" in order else []),
            *(name for name in order if name not in (*edits, "temperature"))]  # fmt: skip
    if names not in (order, warm):
        fixed = ";".join(SAMPLERS)
        hint = "temperature may also come right after penalties and dry, and any may be left out"
        raise click.UsageError(f"--samplers {text}: the order here is {fixed}; {hint}")
    off = {
        key: value
        for name in SAMPLERS
        if name not in names
        for key, value in SAMPLERS[name].items()
    }
    return {"temperature_first": names != order, **off}


def spelt_out(letters: str) -> str:
    """
    >>> spelt_out("kpt")
    'top_k;top_p;temperature'
    """
    for letter in letters:
        if letter not in LETTERS:
            known = ", ".join(f"{one} ({name})" for one, name in LETTERS.items())
            raise click.UsageError(
                f"--sampler-seq {letters}: there is no {letter!r}; known: {known}"
            )
    return ";".join(LETTERS[letter] for letter in letters)


def biased(word: str) -> tuple[int, float]:
    """
    >>> biased("15043-inf"), biased("7+1.5")
    ((15043, -inf), (7, 1.5))
    """
    match = re.fullmatch(r"(\d+)([+-](?:\d+\.?\d*|inf))", word)
    if match is None:
        raise click.UsageError(
            f"--logit-bias {word}: expected a token id and a number with its sign, such as 15043+1"
        )
    return int(match[1]), float(match[2])


ESCAPES = {"n": "\n", "r": "\r", "t": "\t", "'": "'", '"': '"', "\\": "\\"}


def unescaped(text: str) -> str:
    r"""What `-e` does: `\n`, `\t`, `\x41` and the like become the characters they stand for; others
    stay.

    >>> unescaped(r"a\nb\x41\\n\q")
    'a\nbA\\n\\q'
    """

    def character(match: re.Match[str]) -> str:
        return chr(int(match[1], 16)) if match[1] else ESCAPES.get(match[2], match[0])

    return re.sub(r"\\(?:x([0-9a-fA-F]{2})|(.))", character, text)


def escaping(given: dict[str, Any]) -> Callable[[str], str]:
    """What is done to words of the command line; to those of `given` it has been done."""
    escape = (lambda text: unescaped(as_text(text))) if given.pop("escape") else as_text
    system, file = given["system"], given.pop("system_file")
    if system is not None and file is not None:
        raise click.UsageError("give one of --system-prompt and --system-prompt-file")
    given["system"] = read_text(file) if file is not None else system and escape(system)
    given["stop"] = tuple(escape(text) for text in given["stop"])
    return escape


def constraints(given: dict[str, Any]) -> dict[str, Any]:
    """At most one of grammar and schema, wherever it comes from."""
    grammar, grammar_file = given.pop("grammar"), given.pop("grammar_file")
    schema, schema_file, kind = given.pop("schema"), given.pop("schema_file"), given.pop("format")
    sources = [s for s in (grammar, grammar_file, schema, schema_file, kind) if s is not None]
    if len(sources) > 1:
        raise click.UsageError(
            "give one of --grammar, --grammar-file, --json-schema, --json-schema-file and --format"
        )
    if grammar_file is not None:
        grammar = read_text(grammar_file)
    if schema_file is not None:
        schema = read_text(schema_file)
    if kind is not None:
        schema = '{"type": "object"}'
    return {"grammar": grammar, "json_schema": None if schema is None else parsed(schema)}


def parsed(schema: str) -> Any:
    """
    >>> parsed('{"type": "integer"}'), parsed("{}")
    ({'type': 'integer'}, {'type': 'object'})
    """
    try:
        found = json.loads(schema)
    except (json.JSONDecodeError, RecursionError) as error:
        raise click.UsageError(f"the JSON schema is not JSON: {error}") from None
    if found is None:
        raise click.UsageError(
            "the JSON schema is null; a schema is an object, such as {} for any object"
        )
    # as in llama.cpp; for the standard it is any value
    return {"type": "object"} if found == {} else found


def read_text(path: Path) -> str:
    """A file of text, or stdin for `-`: its bytes as they are, so that tokens can be compared."""
    is_piped = str(path) == "-"
    return as_utf8(
        sys.stdin.buffer.read() if is_piped else path.read_bytes(),
        "stdin" if is_piped else str(path),
    )


def as_text(word: str, what: str = "the text") -> str:
    r"""A word of the command line or a line of a terminal: its bytes are UTF-8, whatever the locale
    takes them for.

    >>> as_text("caf\udcc3\udca9")
    'café'
    """
    return word if word.isascii() else as_utf8(word.encode(errors="surrogateescape"), what)


def as_utf8(data: bytes, what: str) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise click.UsageError(
            f"{what}: byte {error.start} is not UTF-8; convert it, such as by iconv"
        ) from None
