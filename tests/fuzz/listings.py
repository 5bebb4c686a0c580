"""Hostile repositories: listings with names, sizes and contents that mean no good, served on this
machine.

`check` pulls from one. Whatever comes of it, nothing outside the folder of models may change,
nothing that was in it, and no more may be written than was declared.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
import random
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch
from urllib.parse import quote

from huggingface_hub import constants

from tests.hub.server import Site, serving
from tests.models.tiny import tiny_model
from tetrad.core.errors import TetradError
from tetrad.formats import gguf
from tetrad.hub.pull import pull

REPO = "org/repo"
PARTS = ("..", ".", "", "a", "sub", "~", "~root", "-rf", ".hidden", " ", "C:", "nul", "CON.gguf",
"a\\..\\b", "\x00",
         "\x1b[2J", "\u202e", "x" * 300, "ü", "*", "?", "a b", "\ud800", "victim",
         "notes")  # fmt: skip
ENDINGS = (
    ".gguf",
    "-Q4_K_M.gguf",
    "-Q4_K_M-00001-of-00002.gguf",
    "-Q4_K_M-00001-of-99999.gguf",
    ".GGUF",
    ".gguf/",
    "",
)
WORDS = (REPO,) * 4 + (
    f"{REPO}:Q4_K_M",
    f"{REPO}:Q8_0",
    "../repo",
    "org/..",
    "./repo",
    "org/repo/../..",
    "org//repo",
)
MARGIN = 4096  # bytes of tags and folders


@dataclass(frozen=True)
class Case:
    """One repository, and what lies on this machine beforehand."""

    word: str
    file: str | None
    listing: list[dict[str, Any]]
    contents: dict[str, bytes]
    before: tuple[str, ...]
    is_chunked: bool


@functools.cache
def model() -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "tiny.gguf"
        gguf.write(path, *tiny_model("llama"))
        return path.read_bytes()


def grow(seed: int) -> Case:
    rng = random.Random(seed)
    names = [rng.choice((plain_name, nasty_name))(rng) for _ in range(rng.randint(1, 3))]
    contents = {
        name: rng.choice((model(), b"no model " * 50, model() + bytes(200_000))) for name in names
    }
    return Case(
        word=rng.choice(WORDS),
        file=rng.choice((None, "*.gguf", "good-Q4_K_M.gguf", "../*")),
        listing=[entry(rng, name, contents[name]) for name in names],
        contents=contents,
        before=tuple(
            rng.sample(("link", "file", "part-link", "part", "folder"), rng.randint(0, 2))
        ),
        is_chunked=rng.random() < 0.5,
    )


def plain_name(rng: random.Random) -> str:
    return rng.choice(("good-Q4_K_M.gguf", "sub/good-Q4_K_M.gguf", "notes-Q4_K_M.gguf"))


def nasty_name(rng: random.Random) -> str:
    parts = [rng.choice(PARTS) for _ in range(rng.randint(0, 4))]
    return "/".join([*parts, rng.choice(("evil", "victim", "notes", "", ".."))]) + rng.choice(
        ENDINGS
    )


def entry(rng: random.Random, name: str, content: bytes) -> dict[str, Any]:
    true = len(content)
    size = rng.choice((true, true, true, true, 7, 7, None, -1, 0, true + 5, 10**30, "9", True, 1.5))
    digest = hashlib.sha256(content).hexdigest()
    sha = rng.choice((digest, digest, digest.upper(), "00" * 32, "x", "", 7, None))
    lfs = rng.choice(({"sha256": sha, "size": size, "pointerSize": 1}, None, None))
    return {"rfilename": name, "size": size, "lfs": lfs, "blobId": "0"}


def check(seed: int) -> str | None:
    """None if a pull from this repository harms nothing; else what it did, with all that is needed
    to see it again."""
    case = grow(seed)
    with (
        serving() as site,
        tempfile.TemporaryDirectory(prefix="listing-") as place,
        pulling(site, Path(place)),
    ):
        root = Path(place).resolve()
        prepare(root, case.before)
        serve(site, case)
        before, said = snapshot(root), "it succeeded"
        try:
            path = pull(case.word, file=case.file)
            wrong = None if path.resolve().is_relative_to(root / "models") else f"it gave {path}"
        except (TetradError, OSError) as error:
            said, wrong = f"{type(error).__name__}: {error}", None
        except Exception as error:
            wrong = f"it raised {type(error).__name__}: {error}"
        wrong = wrong or harm(before, snapshot(root), case)
    if wrong is None:
        return None
    return (
        f"seed {seed}: {wrong}\n{said}\n"
        f"{case.word} {case.file} {case.before} {case.listing!r:.2000}"
    )


def prepare(root: Path, before: tuple[str, ...]) -> None:
    """Files of somebody's, outside the folder of models and in it."""
    repo = root / "models" / REPO
    repo.mkdir(parents=True)
    for path in (
        root / "victim.gguf",
        root / "victim",
        root / "models/mine.gguf",
        root / "models/org/notes.gguf",
    ):
        path.write_bytes(b"of value")
    if "file" in before:
        (repo / "good-Q4_K_M.gguf").write_bytes(b"somebody's notes")
    if "part-link" in before:
        (repo / "good-Q4_K_M.gguf.part").symlink_to(root / "victim")
    if "part" in before:
        (repo / "notes-Q4_K_M.gguf.part").write_bytes(b"begun")
    if "folder" in before:
        (root / "outside").mkdir()
        (repo / "sub").symlink_to(root / "outside")
    if "link" in before:
        shutil.rmtree(repo)
        (root / "elsewhere").mkdir()
        repo.symlink_to(root / "elsewhere")


def serve(site: Site, case: Case) -> None:
    info = {"id": REPO, "modelId": REPO, "siblings": case.listing, "private": False, "tags": []}
    site.files[f"/api/models/{REPO}"] = json.dumps(info).encode()
    for name, content in case.contents.items():
        site.files[f"/{REPO}/resolve/main/{quote(name, errors='replace')}"] = content
    site.is_chunked = case.is_chunked


@contextmanager
def pulling(site: Site, place: Path) -> Iterator[None]:
    """Everybody looks for models in `place`, and for Hugging Face at this server; nobody waits
    between two tries."""
    variables = {"TETRAD_MODELS": str(place / "models"), "HF_HUB_CACHE": str(place / "none")}
    variables |= {"OLLAMA_MODELS": str(place / "none"), "LLAMA_CACHE": str(place / "none")}
    with ExitStack() as stack:
        stack.enter_context(patch.dict(os.environ, variables))
        stack.enter_context(patch.object(constants, "ENDPOINT", site.address))
        address = f"{site.address}/{{repo_id}}/resolve/{{revision}}/{{filename}}"
        stack.enter_context(patch.object(constants, "HUGGINGFACE_CO_URL_TEMPLATE", address))
        stack.enter_context(patch("tetrad.hub.download.time.sleep", lambda seconds: None))
        yield


Tree = dict[str, bytes]  # by path: what a file holds, where a link leads


def snapshot(root: Path) -> Tree:
    found: Tree = {}
    for folder, folders, names in os.walk(root):
        for name in (*folders, *names):
            path = Path(folder, name)
            key = os.fsdecode(os.path.relpath(path, root))
            is_plain = path.is_file() and not path.is_symlink()
            found[key] = (
                path.read_bytes()
                if is_plain
                else os.fsencode(os.readlink(path))
                if path.is_symlink()
                else b""
            )
    return found


def harm(before: Tree, after: Tree, case: Case) -> str | None:
    """What a pull has done that it may not."""
    gone = [path for path in before if path not in after and not path.endswith(".part")]
    changed = [
        path
        for path in before
        if after.get(path, before[path]) != before[path] and not path.endswith(".part")
    ]
    new = [path for path in after if path not in before]
    astray = [path for path in new if not path.startswith("models/")]
    hidden = [path for path in new if "/." in path and not path.endswith(".lock")]
    declared = sum(e["size"] for e in case.listing if type(e["size"]) is int and e["size"] > 0)
    written = sum(len(after[path]) for path in new)
    for what, paths in (
        ("deleted", gone),
        ("changed", changed),
        ("wrote outside", astray),
        ("hid", hidden),
    ):
        if paths:
            return f"it {what} {paths[0]!r}"
    return (
        f"it wrote {written} bytes, {declared} were declared"
        if written > declared + MARGIN
        else None
    )
