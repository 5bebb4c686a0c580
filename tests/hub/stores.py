"""Folders of other programs, as they would have made them."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

MODEL = "application/vnd.ollama.image.model"


def ollama_model(root: Path, name: str, data: bytes, **changes: object) -> Path:
    """`host/space/model/tag` with one layer of weights; returns the blob."""
    digest = hashlib.sha256(data).hexdigest()
    blob = root / "blobs" / f"sha256-{digest}"
    blob.parent.mkdir(parents=True, exist_ok=True)
    blob.write_bytes(data)
    layer = {"mediaType": MODEL, "digest": f"sha256:{digest}", "size": len(data), **changes}
    others = {"mediaType": "application/vnd.ollama.image.template", "digest": "sha256:0", "size": 1}
    write(root / "manifests" / name, json.dumps({"schemaVersion": 2, "layers": [layer, others]}))
    return blob


def hub_model(cache: Path, repo: str, file: str, data: bytes, revision: str = "abc") -> Path:
    """A file in a snapshot, a link to its blob as huggingface_hub has it."""
    folder = cache / f"models--{repo.replace('/', '--')}"
    blob = folder / "blobs" / hashlib.sha256(data).hexdigest()
    blob.parent.mkdir(parents=True, exist_ok=True)
    blob.write_bytes(data)
    link = folder / "snapshots" / revision / file
    link.parent.mkdir(parents=True, exist_ok=True)
    link.symlink_to(Path(*[".."] * (2 + file.count("/")), "blobs", blob.name))
    write(folder / "refs/main", revision)
    return link


def write(path: Path, content: str | bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path
