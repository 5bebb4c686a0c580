"""Models, folders, file: a folder opened as if it were a GGUF file.

Receives the path of a folder; returns a FolderFile: metadata, tensors under our names, and their
bytes, in place but for the few whose numbers a folder spells differently.
"""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from tetrad.core.errors import FileFormatError, UnsupportedError
from tetrad.formats import gguf, safetensors
from tetrad.formats.json_file import read_object
from tetrad.formats.pin import Pin
from tetrad.models.arch import Architecture, architecture_named
from tetrad.models.folder.sentence import sentence_keys
from tetrad.models.folder.settings import FolderSettings
from tetrad.models.folder.spelling import FolderNames
from tetrad.models.folder.template import template_keys

FORMATS = {"F32": "f32", "F16": "f16", "BF16": "bf16"}
CONFIG = "config.json"
ALIASES = {  # model_type of config.json -> architecture, where it is not spelled the same
    "camembert": "roberta",
    "gemma3_text": "gemma3",
    "mistral": "llama",
    "xlm-roberta": "roberta",
}


class FolderFile:
    """An open folder, with the names and functions of a GGUF file."""

    def __init__(
        self,
        path: str,
        arch: Architecture[Any],
        settings: FolderSettings,
        file: safetensors.TensorFile,
    ) -> None:
        names = spelling_of(arch, path)
        self.path, self.file, self.names, self.settings = path, file, names, settings
        self.pins: dict[str, Pin] = file.pins
        self.metadata: dict[str, object] = metadata_of(path, arch, names, settings)
        self.sources: dict[str, str] = {}  # ours -> theirs
        self.held: dict[str, np.ndarray] = dict(names.made(settings))  # made, not in the file
        self.tensors: dict[str, gguf.Tensor] = {
            name: gguf.Tensor(name, array.shape, "f32", array.nbytes, name, 0)
            for name, array in self.held.items()
        }
        self.add_tensors()

    def add_tensors(self) -> None:
        prefix = self.names.prefix_of(self.file.tensors)
        for theirs, tensor in self.file.tensors.items():
            name = self.names.ours(theirs, prefix)
            if name is None and self.names.is_unused(theirs, prefix):
                continue
            # what is not known keeps its name, and is refused by it
            name = theirs if name is None else name
            if name in self.tensors:
                message = f"the same as {self.sources.get(name, name)}"
                raise FileFormatError(message, file=tensor.file, part=f"tensor {theirs}")
            self.sources[name] = theirs
            self.tensors[name] = self.described(name, tensor)

    def described(self, name: str, tensor: safetensors.StoredTensor) -> gguf.Tensor:
        """A tensor as a GGUF file would describe it."""
        if tensor.dtype not in FORMATS:
            message = f"{tensor.file}: tensor {tensor.name} has the type {tensor.dtype}"
            raise UnsupportedError(message, hint=f"supported: {', '.join(FORMATS)}")
        change = self.names.change_of(name)
        if change is None:
            format = FORMATS[tensor.dtype]
            return gguf.Tensor(
                name, tensor.shape, format, tensor.nbytes, tensor.file, tensor.offset
            )
        shape = change(np.broadcast_to(np.float32(0), tensor.shape), self.settings).shape
        return gguf.Tensor(name, shape, "f32", 4 * int(np.prod(shape)), name, 0)

    def data(self, name: str) -> np.ndarray:  # u8[nbytes]
        """The bytes of a tensor, read-only, in place where they are those of the folder."""
        change = self.names.change_of(name)
        if name not in self.held and change is not None:
            found = self.file.array(self.sources[name]).astype(np.float32)
            self.held[name] = np.ascontiguousarray(change(found, self.settings), np.float32)
        if name in self.held:
            return self.held[name].reshape(-1).view(np.uint8)
        return self.file.data(self.sources[name])

    def contents(self, file: str) -> np.ndarray:  # u8[bytes of the file]
        return self.file.contents(file)

    def check(self) -> None:
        self.file.check()

    def release(self, name: str) -> None:
        if self.held.pop(name, None) is None:
            self.file.release(self.sources[name])

    def close(self) -> None:
        self.file.close()

    def __enter__(self) -> FolderFile:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def open_folder(path: str) -> FolderFile:
    """A folder with config.json and safetensors."""
    config = os.path.join(path, CONFIG)
    if not os.path.exists(config):
        hint = "a folder needs config.json, model.safetensors and tokenizer.json"
        raise FileFormatError(f"there is no {CONFIG}", file=path, hint=hint)
    settings = FolderSettings(read_object(config), config)
    arch = architecture_of(settings, path)
    if isinstance(settings.fields.get("text_config"), dict):  # of models that see as well
        settings = settings.inner("text_config")
    return FolderFile(path, arch, settings, safetensors.open_file(path))


def architecture_of(settings: FolderSettings, path: str) -> Architecture[Any]:
    kind = settings.fields.get("model_type")
    if not isinstance(kind, str):
        raise settings.error("model_type", f"expected a name, got {kind!r:.60}")
    return architecture_named(ALIASES.get(kind, kind.replace("_", "-")), path)


def spelling_of(arch: Architecture[Any], path: str) -> FolderNames:
    if arch.folder is None:
        raise UnsupportedError(
            f"{path}: {arch.name} is read from GGUF files only", hint="convert it with llama.cpp"
        )
    return arch.folder


def metadata_of(
    path: str, arch: Architecture[Any], names: FolderNames, settings: FolderSettings
) -> dict[str, object]:
    own = names.keys(settings) | sentence_keys(path, settings)
    return {
        "general.architecture": arch.name,
        "general.name": os.path.basename(os.path.normpath(path)),
        **template_keys(path),
        **{key if key.startswith("tokenizer.") else f"{arch.name}.{key}": own[key] for key in own},
    }
