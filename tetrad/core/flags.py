"""Core: every environment variable, in one table.

Receives `os.environ`, returns checked values. A flag that changes generated code says so, and
becomes part of the key of the compile cache. A misspelt flag or a bad value is an error that lists
the valid ones; any other unknown TETRAD_ variable is a warning, once.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress

from tetrad.core import lazy
from tetrad.core.errors import FlagError
from tetrad.core.pattern import LazyPattern
from tetrad.core.record import record
from tetrad.core.visible import one_line

SHOW_STATIONS = ("graph", "passes", "kernel", "llvm", "asm", "schedule")
CHECKS = ("1", "bounds", "nan", "inf")


@record
class Flag:
    name: str
    default: str
    help: str
    values: str  # what is allowed, as shown to people
    check: Callable[[str], bool]
    changes_code: bool = False
    is_switch: bool = False  # 0 is as if it were not set
    # all that is allowed, where it takes more than this table to know
    listed: Callable[[], tuple[str, ...]] | None = None


FUSIONS = (
    "merge_products", "bias_activation", "residual_norm", "swiglu", "qkv_in_place",
    "attention_block", "encoder_layer",
)  # fmt: skip


def _words(allowed: tuple[str, ...], detailed: tuple[str, ...] = ()) -> Callable[[str], bool]:
    """A comma-separated list of allowed words; those in `detailed` may have a detail:
    `passes:simplify`."""

    def check(text: str) -> bool:
        words = [w.partition(":") for w in text.split(",") if w]
        return all(
            w in allowed and (not colon or w in detailed and bool(detail))
            for w, colon, detail in words
        )

    return check


def _one_of(allowed: tuple[str, ...]) -> Callable[[str], bool]:
    return lambda text: text in allowed


def _count(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 4 and 1 <= int(text) <= 1024


def _targets() -> tuple[str, ...]:
    """The back ends know the names."""
    names: tuple[str, ...] = lazy.provided("targets").target_names()
    return names


def _switch(name: str, help: str) -> Flag:
    return Flag(name, "", help, "0, 1", _one_of(("", "0", "1")), is_switch=True)


FLAGS = {
    flag.name: flag
    for flag in (
        Flag(
            "TETRAD_SHOW",
            "",
            "print these stations of each compilation to stderr",
            "comma-separated: " + ", ".join(SHOW_STATIONS) + "; passes:NAME shows one pass",
            _words(SHOW_STATIONS, detailed=("passes",)),
        ),
        Flag(
            "TETRAD_CHECK",
            "",
            "1: verify every station, poison the arena, red zones, compare kernels with the "
            "evaluator; bounds: compile every kernel with bounds checks; nan, inf: such a result "
            "is an error that names op and line",
            "0, or comma-separated: 1, bounds, nan, inf",
            _words(("0", *CHECKS)),
            changes_code=True,
            is_switch=True,
        ),
        _switch("TETRAD_INTERPRET", "1: run kernels on the evaluator, not as machine code"),
        Flag(
            "TETRAD_DUMP",
            "",
            "save every station of each compilation here",
            "a directory",
            lambda _: True,
        ),
        _switch("TETRAD_TIME", "1: time every stage and every kernel, print to stderr"),
        Flag(
            "TETRAD_TRACEBACK",
            "",
            "full: tracebacks show the frames of tetrad as well",
            "short, full",
            _one_of(("", "short", "full")),
        ),
        Flag(
            "TETRAD_THREADS",
            "",
            "number of threads (default: what affinity and cgroup allow)",
            "1 to 1024",
            lambda text: text == "" or _count(text),
        ),
        Flag(
            "TETRAD_TARGET",
            "host",
            "machine to generate code for",
            "host, or a target that `tetrad doctor` lists",
            lambda text: text == "host" or text in _targets(),
            changes_code=True,
            listed=lambda: ("host", *_targets()),
        ),
        Flag(
            "TETRAD_UNFUSED",
            "",
            "named fusions that are turned off (`td.explain` lists those that fire)",
            "comma-separated: " + ", ".join(FUSIONS),
            _words(FUSIONS),
            changes_code=True,
        ),
        Flag(
            "TETRAD_CACHE_DIR",
            "",
            "directory of the compile cache; 'off' disables it",
            "a directory, or off",
            lambda _: True,
        ),
        Flag(
            "TETRAD_MODELS",
            "",
            "where models are (default: ~/.cache/tetrad/models)",
            "a directory",
            lambda _: True,
        ),
    )
}

# Every option of a command is also a variable: `--top-k 40` is TETRAD_TOP_K=40, and the option
# wins. Commands check the values. The names are listed here so that a misspelt one is an error.
OPTIONS = frozenset(
    f"TETRAD_{name}"
    for name in (
        "ALIAS", "ALLOWED_HOSTS", "API_KEY", "API_KEY_FILE", "ARCH", "BATCH_SIZE", "CACHE_RAM",
        "CACHE_TYPE_K", "CACHE_TYPE_V", "CHAT_TEMPLATE", "CHAT_TEMPLATE_FILE",
        "CHAT_TEMPLATE_KWARGS", "CHUNKS", "CONTEXT_SHIFT", "CONVERSATION", "CORS_ORIGINS",
        "CTX_SIZE", "DISPLAY_PROMPT", "DRAFT_MIN", "DRAFT_P_MIN", "DRAIN_TIMEOUT",
        "DRY_ALLOWED_LENGTH", "DRY_BASE",
        "DRY_MULTIPLIER", "DRY_PENALTY_LAST_N", "DRY_SEQUENCE_BREAKER", "DTYPE", "DYNATEMP_EXP",
        "DYNATEMP_RANGE", "EMBD_NORMALIZE", "EMBD_OUTPUT_FORMAT", "EMBD_SEPARATOR", "ESCAPE",
        "FILE", "FORCE", "FORMAT", "FREQUENCY_PENALTY", "GRAMMAR", "GRAMMAR_FILE", "HF_FILE",
        "HF_REPO", "HF_REPO_DRAFT", "HIDE_THINKING", "HOST", "HTML", "IDS", "IGNORE_EOS",
        "JSON", "JSON_SCHEMA",
        "JSON_SCHEMA_FILE", "KEEP", "KEEP_ALIVE", "LOGIT_BIAS", "LOG_FORMAT", "LOG_PROMPTS",
        "MAX_BODY", "METRICS", "MIN_P", "MIROSTAT", "MIROSTAT_ENT", "MIROSTAT_LR", "MODEL",
        "MODEL_DRAFT", "MODELS_DIR", "MODELS_MAX", "NORMALIZE", "N_DEPTH", "N_GEN",
        "N_PROMPT", "OFFLINE",
        "OUTPUT", "OVERRIDE_KV", "PARALLEL", "POOLING", "PREDICT", "PRESENCE_PENALTY", "PROMPT",
        "QUANTIZE", "QUEUE", "REASONING", "REASONING_BUDGET", "REPEAT_LAST_N", "REPEAT_PENALTY",
        "REPETITIONS", "REVERSE_PROMPT", "ROPE_FREQ_BASE", "ROPE_FREQ_SCALE", "ROPE_SCALE",
        "ROPE_SCALING", "SAMPLERS", "SAMPLER_SEQ", "SEED", "SINGLE_TURN", "SLOTS", "SPECULATE",
        "SPEC_TYPE", "SSL_CERT_FILE", "SSL_KEY_FILE", "SYSTEM_PROMPT", "SYSTEM_PROMPT_FILE",
        "TEMP", "THREADS_BATCH", "TIMEOUT", "TOP_K", "TOP_N_SIGMA", "TOP_P", "TRUNCATE",
        "TYPICAL", "UBATCH_SIZE", "VERBOSE", "VERBOSE_PROMPT", "WARMUP", "WEBUI", "WORDWRAP",
        "XTC_PROBABILITY", "XTC_THRESHOLD", "YARN_ATTN_FACTOR", "YARN_BETA_FAST",
        "YARN_BETA_SLOW", "YARN_EXT_FACTOR", "YARN_ORIG_CTX",
    )
)  # fmt: skip


# Kubernetes sets these in every container beside a service named tetrad, or tetrad-something.
SERVICE = LazyPattern(
    r"TETRAD_(\w+_)?(SERVICE_(HOST|PORT(_\w+)?)|PORT(_\d+_(TCP|UDP|SCTP)(_\w+)?)?)"
)


class Warnings:
    """Prints a warning on stderr, once per name and process."""

    def __init__(self) -> None:
        self.told: set[str] = set()

    def warn(self, name: str, text: str) -> None:
        if name not in self.told and sys.stderr is not None:
            with suppress(OSError, ValueError):  # a closed stderr must not stop a program
                print(f"tetrad: {one_line(text)}", file=sys.stderr)
        self.told.add(name)


WARNINGS = Warnings()


def flag(name: str, environ: Mapping[str, str] | None = None) -> str:
    """The checked value of one flag.

    >>> flag("TETRAD_TARGET", {})
    'host'
    """
    spec = FLAGS[name]
    value = (os.environ if environ is None else environ).get(name, spec.default)
    if not spec.check(value):
        allowed = ", ".join(spec.listed()) if spec.listed else spec.values
        raise FlagError(f"{name}={value!r} is not valid", hint=f"allowed: {allowed}")
    return "" if spec.is_switch and value == "0" else value


def flag_words(name: str) -> dict[str, str]:
    """A comma-separated flag as {word: detail after the colon}."""
    words = (w.partition(":") for w in flag(name).split(",") if w)
    return {head: tail for head, _, tail in words}


def check_environment(environ: Mapping[str, str] | None = None) -> None:
    """Refuse bad values and misspelt TETRAD_ variables, warn of unknown ones: when public names are
    loaded, and in every command."""
    environ = os.environ if environ is None else environ
    for name in environ:
        if name.startswith("TETRAD_") and name not in FLAGS and name not in OPTIONS:
            refuse_or_warn(name)
    for name in FLAGS:
        flag(name, environ)


def refuse_or_warn(name: str) -> None:
    """A misspelt flag would silently have no effect, so it is an error; a variable of somebody else
    must not stop a program, so it is a warning."""
    meant = misspelt(name)
    if meant is None:
        WARNINGS.warn(
            name, f"unknown variable {name} has no effect; `tetrad doctor` lists those that have"
        )
        return
    known = "flags: " + ", ".join(FLAGS) + "; and the options of commands: `tetrad COMMAND --help`"
    raise FlagError(f"unknown flag {name}", hint=f"did you mean {meant}? {known}")


def misspelt(name: str) -> str | None:
    """The known variable that a name misses by a letter or two, or by its last word.

    >>> misspelt("TETRAD_THREAD"), misspelt("TETRAD_CACHE"), misspelt("TETRAD_TOPK")
    ('TETRAD_THREADS', 'TETRAD_CACHE_DIR', 'TETRAD_TOP_K')
    >>> misspelt("TETRAD_SERVICE_HOST")
    """
    if SERVICE.fullmatch(name):
        return None
    longer = [known for known in FLAGS if known.startswith(f"{name}_")]
    word = letters(name)
    allowed = 0 if len(word) < 4 else 1 if len(word) < 8 else 2
    near = [
        known
        for known in (*FLAGS, *sorted(OPTIONS))
        if mistakes(word, letters(known), allowed) <= allowed
    ]
    near.sort(key=lambda known: mistakes(word, letters(known), allowed))
    return next(iter(longer + near), None)


def letters(name: str) -> str:
    return name.removeprefix("TETRAD_").replace("_", "")


def mistakes(word: str, known: str, limit: int) -> int:
    """The edit distance (optimal string alignment: insert, delete, replace, swap neighbours), or
    limit + 1 if it is larger than `limit`."""
    if abs(len(word) - len(known)) > limit:
        return limit + 1
    before, row = [0] * (len(known) + 1), list(range(len(known) + 1))
    for i, letter in enumerate(word, 1):
        older, before, row = before, row, [i]
        for j, wanted in enumerate(known, 1):
            row.append(min(before[j] + 1, row[j - 1] + 1, before[j - 1] + (letter != wanted)))
            if i > 1 and j > 1 and letter == known[j - 2] and word[i - 2] == wanted:
                row[j] = min(row[j], older[j - 2] + 1)
    return min(row[-1], limit + 1)


def code_key() -> str:
    """The flags that change generated code, as part of the cache key."""
    return ";".join(f"{name}={flag(name)}" for name, spec in FLAGS.items() if spec.changes_code)
