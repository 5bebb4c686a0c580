"""The hub, stores: ollama. Manifests name blobs by their sha256; the blob of a model is a GGUF
file.

Receives OLLAMA_MODELS, or looks where ollama and its service keep models; returns those whose
manifest is sound and whose blob is there, whole, and inside the store.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tetrad.core.errors import TetradError
from tetrad.formats.json_file import read_object
from tetrad.hub.stored import StoredModel, files_below, folder_from, is_file_inside, real

HOLDER = "ollama"
SERVICE = "/usr/share/ollama/.ollama/models"  # of the service that its installer sets up
MANIFESTS = ("manifests", "manifests-v2", "manifest-v2")
LIBRARIES = (("registry.ollama.ai", "library"), ("ollama.com", "library"))
PART = re.compile(r"[A-Za-z0-9_][\w.-]{0,127}", re.ASCII)
DIGEST = re.compile(r"sha256:([0-9a-f]{64})")
MODEL, ADAPTER = "application/vnd.ollama.image.model", "application/vnd.ollama.image.adapter"
MOST_BYTES = 1 << 20  # of a manifest
MOST_LAYERS = 4096


def ollama_models() -> Iterator[StoredModel]:
    for root in roots():
        for name in MANIFESTS:
            for path in files_below(root / name, deep=4):
                model = read_manifest(root, path, path.relative_to(root / name).parts)
                if model is not None:
                    yield model


def roots() -> list[Path]:
    own = folder_from("OLLAMA_MODELS", default="~/.ollama/models")
    return list(dict.fromkeys([own, folder_from("OLLAMA_MODELS", default=SERVICE)]))


def read_manifest(root: Path, path: Path, parts: tuple[str, ...]) -> StoredModel | None:
    """The model of a manifest; None if it is no manifest, of no model, or of one that is not
    whole."""
    if len(parts) != 4 or not all(PART.fullmatch(part) for part in parts):
        return None
    try:
        blob = model_blob(root, read_object(path, MOST_BYTES))
    except (TetradError, OSError):
        return None
    return None if blob is None else StoredModel(name_of(parts), blob, (blob,), HOLDER)


def name_of(parts: tuple[str, ...]) -> str:
    """
    >>> name_of(("registry.ollama.ai", "library", "qwen3", "4b"))
    'qwen3:4b'
    >>> name_of(("hf.co", "org", "repo", "Q8_0"))
    'hf.co/org/repo:Q8_0'
    """
    host, space, model, tag = parts
    if (host, space) in LIBRARIES:
        return f"{model}:{tag}"
    is_own = host in (library[0] for library in LIBRARIES)
    return f"{space}/{model}:{tag}" if is_own else f"{host}/{space}/{model}:{tag}"


def model_blob(root: Path, manifest: dict[str, Any]) -> Path | None:
    """The one file of weights. What an adapter changes is another model than its weights are."""
    layers = manifest.get("layers")
    if not isinstance(layers, list) or len(layers) > MOST_LAYERS:
        return None
    layers = [layer for layer in layers if isinstance(layer, dict)]
    kinds = [layer.get("mediaType") for layer in layers]
    if kinds.count(MODEL) != 1 or ADAPTER in kinds:
        return None
    return blob_of(root, layers[kinds.index(MODEL)])


def blob_of(root: Path, layer: dict[str, Any]) -> Path | None:
    digest, size = layer.get("digest"), layer.get("size")
    found = DIGEST.fullmatch(digest) if isinstance(digest, str) else None
    if found is None or type(size) is not int:
        return None
    blob = root / "blobs" / f"sha256-{found[1]}"
    is_whole = is_file_inside(blob, real(root)) and blob.stat().st_size == size
    return blob if is_whole else None
