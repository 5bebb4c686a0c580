"""Escapes in every string of a file, through every command, under a pseudo-terminal.

`check` writes a small model whose names, keys, values, tokens, template and file name carry
sequences that would steer a terminal, and runs one command on it. What reaches the terminal is what
the program itself emits, and text.
"""

from __future__ import annotations

import os
import random
import re
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tests.cli.terminal import seen_at_terminal
from tests.hub.server import serving
from tests.models.tiny import tiny_model
from tetrad.core.visible import visible
from tetrad.formats import gguf

STEERING = (
    "\x1b]0;title\x07", "\x1b[2J\x1b[45m", "\x1b[6n", "\x1bP+q\x1b\\", "\x9b2J", "\x9d0;title\x9c",
    "\x08\x08\x08",
    "\rfake", "\x0b\x0c", "\x00", "\x7f", "\u202etxt", "\u2066x", "\u2028line",
    "\x1b]8;;http://evil\x07", "\x1bc",
    "\x0e", "\x85",
)  # fmt: skip
# What the program emits itself: colours (never a background), lines that are drawn again, a cursor
# that is hidden.
OWN = re.compile(r"\x1b\[(?!4)[\d;]*m|\r?\x1b\[(?:2?K|1A|\?25[lh])|\r(?=\x1b\[2K)")
NAME_BYTES = 80
TYPED = b"Hi\n/show info\n/show template\n"


@dataclass(frozen=True)
class Place:
    """A hostile model on this machine."""

    folder: Path
    path: Path
    name: str
    text: str  # steering text


def evil(rng: random.Random) -> str:
    parts = [rng.choice(("name", " ", rng.choice(STEERING))) for _ in range(rng.randint(2, 5))]
    return "".join([*parts, rng.choice(STEERING)])


def named(rng: random.Random) -> str:
    """As much of it as a name in a GGUF file can hold."""
    return "x" + evil(rng).replace("\x00", "").encode()[:60].decode(errors="ignore")


def file_name(text: str) -> str:
    """As much of it as a name of a file can hold."""
    plain = text.replace("\x00", "").replace("/", "")
    return plain.encode()[:NAME_BYTES].decode(errors="ignore").strip(" .") + "x.gguf"


def hostile_model(rng: random.Random, path: Path) -> None:
    metadata, tensors = tiny_model("llama", context=256)
    metadata |= {
        "general.name": evil(rng),
        "general.license": evil(rng),
        "general.description": evil(rng),
    }
    metadata |= {named(rng): evil(rng), "general.tags": [evil(rng), evil(rng)]}
    tokens = list(metadata["tokenizer.ggml.tokens"])
    tokens[-3:] = [f"{evil(rng)}{i}" for i in range(3)]
    metadata["tokenizer.ggml.tokens"] = tokens
    metadata |= rng.choice((
        {}, {},
        {"tokenizer.chat_template": "{{ raise_exception(" + repr(evil(rng)) + ") }}"},
        {"tokenizer.chat_template": evil(rng).replace("\x00", "") + "{{ messages[0].content }}"},
        {"tokenizer.chat_template": "{{ messages[" + repr(evil(rng)) + "].x.y }}"},
        {"general.architecture": evil(rng)},
        {"tokenizer.ggml.pre": evil(rng)},
        {"tokenizer.ggml.model": evil(rng)},
        {"llama.block_count": evil(rng)},
        {"llama.rope.scaling.type": evil(rng)},
    ))  # fmt: skip
    # a tensor that is asked for is not there, another is there under a strange name
    if rng.random() < 0.3:
        tensors[named(rng)] = tensors.pop(rng.choice(list(tensors)))
    if rng.random() < 0.2:
        tensors[named(rng)] = np.zeros((3, 3), np.float32)
    gguf.write(path, metadata, tensors)


Words = Callable[[Place], tuple[str, ...]]
FEW = ("-n", "40", "--temp", "9", "--top-k", "0", "--min-p", "0", "--ignore-eos")
COMMANDS: dict[str, Words] = {
    "run": lambda p: ("run", str(p.path), "-p", "Hi", *FEW),
    "run plain": lambda p: ("run", str(p.path), "-no-cnv", "-p", "Hi", *FEW),
    "run verbose": lambda p: ("run", "-m", str(p.path), "-p", p.text.replace("\0", ""), "-v",
    "--verbose-prompt",
                              "--display-prompt", *FEW),
    "chat": lambda p: ("chat", str(p.path), *FEW),
    "show": lambda p: ("show", str(p.path)),
    "show json": lambda p: ("show", str(p.path), "--json"),
    "inspect": lambda p: ("inspect", str(p.path)),
    "inspect json": lambda p: ("inspect", str(p.path), "--json"),
    "inspect page": lambda p: ("inspect", str(p.path), "--html", str(p.folder / "page.html")),
    "list": lambda p: ("list",),
    "list json": lambda p: ("list", "--json"),
    "rm": lambda p: ("rm", p.name, "-y"),
    "rm unknown": lambda p: ("rm", p.text.replace("\0", ""), "-y"),
    "tokenize": lambda p: ("tokenize", str(p.path), p.text.replace("\0", "")),
    "embed": lambda p: ("embed", str(p.path), "-p", "Hi"),
    "perplexity": lambda p: ("perplexity", str(p.path), "-f", __file__, "-c", "16", "--chunks",
    "1"),
    "bench": lambda p: ("bench", str(p.path), "-p", "4", "-n", "1", "-r", "1"),
    "bench csv": lambda p: ("bench", str(p.path), "-p", "4", "-n", "0", "-r", "1", "-o", "csv"),
    "bench sql": lambda p: ("bench", str(p.path), "-p", "4", "-n", "0", "-r", "1", "-o", "sql"),
    "pull there": lambda p: ("pull", str(p.path)),
    "pull unknown": lambda p: ("pull", p.text.replace("\0", "")),
    "no such file": lambda p: ("show", "-m", p.text.replace("\0", "")),
    "no such option": lambda p: ("run", f"--x{p.text}".replace("\0", "")),
    "no such command": lambda p: (p.text.replace("\0", "") or "x",),
    "no such choice": lambda p: ("bench", str(p.path), "-o", p.text.replace("\0", "")),
    "cache": lambda p: ("cache", "stats"),
    "doctor": lambda p: ("doctor",),
}  # fmt: skip


def check(seed: int, plant: str = "") -> str | None:
    """None if nothing steers the terminal; else what did, with all that is needed to see it
    again."""
    rng = random.Random(seed)
    kind = list(COMMANDS)[seed % len(COMMANDS)]
    with tempfile.TemporaryDirectory(prefix="escapes-") as made:
        folder = Path(made)
        text = evil(rng)
        path = folder / "models" / "org" / file_name(text)
        path.parent.mkdir(parents=True)
        hostile_model(rng, path)
        words = COMMANDS[kind](Place(folder, path, f"org/{path.stem}", text))
        usual = os.environ.get("TETRAD_CACHE_DIR", "off")
        cache = str(folder / path.name) if kind in ("cache", "doctor") else usual
        environ = {
            "TETRAD_MODELS": str(folder / "models"),
            "HF_HUB_CACHE": made,
            "TETRAD_CACHE_DIR": cache,
        }
        code, seen = seen_at_terminal(*words, environ=environ, piped=TYPED, plant=plant)
        page = folder / "page.html"
        wrong = steered(seen) or (steered(page.read_bytes()) if page.exists() else None)
        if b"Traceback" in seen:
            wrong = f"it fell over: {seen[-1500:]!r}"
    return None if wrong is None else f"seed {seed}, {kind}: {wrong}\n{words!r}, exit code {code}"


def steered(seen: bytes) -> str | None:
    """What reached the terminal beyond text and what the program emits itself."""
    text = OWN.sub("", seen.decode(errors="surrogateescape"))
    at = next(
        (i for i, (a, b) in enumerate(zip(text, visible(text), strict=False)) if a != b), None
    )
    return (
        None
        if at is None
        else f"{text[at]!r} reached the terminal: {text[max(0, at - 80) : at + 40]!r}"
    )


def check_server(seed: int) -> str | None:
    """The same for what a server says: names and reasons."""
    rng = random.Random(seed)
    with serving() as site, tempfile.TemporaryDirectory(prefix="escapes-") as made:
        site.files["/a.gguf"] = rng.choice((b"no model", b"GGUF"))
        site.reason = "".join(c for c in evil(rng) if c not in "\r\n\0" and c.isascii())
        url = f"{site.address}/{rng.choice(('a.gguf', 'b.gguf', 'c%1b[2J.gguf', 'd%0d%9b.gguf'))}"
        _, seen = seen_at_terminal(
            "pull", url, environ={"TETRAD_MODELS": made, "HF_HUB_CACHE": made}
        )
        wrong = steered(seen)
    return None if wrong is None else f"seed {seed}, pull {url}, {site.reason!r}: {wrong}"
