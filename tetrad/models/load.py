"""Models, load: a GGUF file or a Hugging Face folder in, a model that generates out.

The one place where the pieces meet: the file is opened, its architecture named, its numbers and
shapes checked, its weights laid out for the kernels, its tokeniser and chat template made. What is
done with them is `model`'s.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import TYPE_CHECKING, Any

from tetrad.core import lazy
from tetrad.core.errors import FileFormatError, SettingError
from tetrad.core.extras import check_extra
from tetrad.core.jobs import JOBS
from tetrad.formats import gguf
from tetrad.models.arch import PRECISIONS, Architecture, architecture_named
from tetrad.models.config import Config, Metadata
from tetrad.models.rope import MOST_CHANNELS
from tetrad.models.shapes import check_factors, check_shapes
from tetrad.models.steps import Programs, Step
from tetrad.models.weight_layout import load_weights
from tetrad.models.weights import ModelFile, factors_of
from tetrad.tracing.array import Array

if TYPE_CHECKING:
    from tetrad.text.chat import ChatTemplate
    from tetrad.text.tokenizer import Tokenizer

TOOL_TEMPLATE = "tokenizer.chat_template.tool_use"


class ModelParts:
    """What a model is made of."""

    def __init__(
        self,
        path: str,
        metadata: Mapping[str, object],
        config: Config,
        programs: Programs,
        tokenizer: Tokenizer,
    ) -> None:
        self.path, self.metadata, self.config = path, metadata, config
        self.programs, self.tokenizer = programs, tokenizer

    @cached_property
    def template(self) -> ChatTemplate:
        """Compiled when first asked for: a file whose chat template is broken can still complete
        text.

        Its language is loaded then too: completing text needs none of it.
        """
        return self._template(tools=False)

    @cached_property
    def tool_template(self) -> ChatTemplate:
        """The one for messages with tools: some files have two."""
        return self._template(tools=True) if TOOL_TEMPLATE in self.metadata else self.template

    def _template(self, tools: bool) -> ChatTemplate:
        check_extra("jinja2", "a chat template")
        chat = lazy.module("tetrad.text.chat")
        made: ChatTemplate = chat.template_from_gguf(self.metadata, self.tokenizer, tools)
        return made


def load_parts(
    path: str | os.PathLike[str],
    *,
    context: int = 0,
    overrides: Mapping[str, object] | None = None,
    dtype: str = "",
    quantize: str = "",
) -> ModelParts:
    """Opens and checks a file and lays out its weights; `context` positions will be asked for (0:
    all it can).

    `overrides` are metadata in place of those of the file. Weights that are used as they lie in the
    file stay mapped: it may be renamed, replaced and deleted; when it is changed in place, the next
    step says so.
    """
    check_extra("tokenizers", "td.load")
    if dtype and dtype not in PRECISIONS:
        raise SettingError("dtype", f"one of {', '.join(PRECISIONS)}", dtype)
    with open_model(path) as file:
        arch = architecture_named(file.metadata.get("general.architecture"), file.path)
        metadata = overridden(file.metadata, overrides or {}, arch.name)
        config = read_config(file, Metadata(metadata, file.path, arch.name, context), arch)
        check_shapes(file, arch.outer(config), arch.shapes(config), config.layers)
        making = JOBS.submit(lambda: read_tokenizer(metadata, file, config))
        try:
            programs = read_programs(quantized(file, arch, config, quantize), arch, config, dtype)
        finally:
            making.wait()  # it reads from the file
        file.check()  # what was copied is from one and the same file
        return ModelParts(file.path, metadata, config, programs, making.result())


@contextmanager
def open_model(path: str | os.PathLike[str]) -> Iterator[ModelFile]:
    """A GGUF file, or a folder as if it were one."""
    place = os.fsdecode(path)
    if os.path.isdir(place):
        file: ModelFile = lazy.module("tetrad.models.folder.file").open_folder(place)
    else:
        file = gguf.open_file(place)
    try:
        yield file
    finally:
        file.close()


def overridden(
    metadata: Mapping[str, object], overrides: Mapping[str, object], arch: str
) -> Mapping[str, object]:
    """With other values of some keys; `pooling_type` and those that begin with `rope.` are the
    architecture's."""
    for key, value in overrides.items():
        if not isinstance(key, str) or not isinstance(value, bool | int | float | str):
            raise SettingError("overrides", "keys with numbers, texts, True or False", {key: value})
        if key == "general.architecture":
            raise SettingError("overrides", "keys other than general.architecture", key)
    if not overrides:
        return metadata
    own = (key for key in overrides if key.startswith("rope.") or key == "pooling_type")
    return {**metadata, **overrides, **{f"{arch}.{key}": overrides[key] for key in own}}


def read_config(file: ModelFile, metadata: Metadata, arch: Architecture[Any]) -> Config:
    embedding = file.tensors.get("token_embd.weight")
    if embedding is None or len(embedding.shape) != 2:
        raise FileFormatError("expected a matrix token_embd.weight, there is none", file=file.path)
    check_factors(file, MOST_CHANNELS)
    config: Config = arch.config(metadata, embedding.shape[0], factors_of(file))
    return config


def quantized(file: ModelFile, arch: Architecture[Any], config: Config, mix: str) -> ModelFile:
    """The same with its matrices in fewer bits, where that is asked for."""
    if not mix:
        return file
    if arch.head is None:
        raise SettingError(
            "quantize", "a model that generates", mix, hint='encoders take dtype="int8"'
        )
    made: ModelFile = lazy.module("tetrad.models.folder.quantize").QuantizedFile(
        file, mix, config.layers
    )
    return made


def read_programs(file: ModelFile, arch: Architecture[Any], config: Config, dtype: str) -> Programs:
    is_folder = os.path.isdir(file.path)  # there rows have the order that layers want
    weights, files = load_weights(file, lambda n: None if is_folder else arch.order(config, n))
    outer, layers = by_block(weights, config)
    prepared = [arch.prepare(config, block, dtype) for block in layers]
    return Programs(Step(arch, config, outer, prepared), files)


def by_block(
    weights: Mapping[str, Array], config: Config
) -> tuple[dict[str, Array], list[dict[str, Array]]]:
    """(outside the blocks, of each block by short names)."""
    outer: dict[str, Array] = {}
    layers: list[dict[str, Array]] = [{} for _ in range(config.layers)]
    for name, weight in weights.items():
        if name.startswith("blk."):
            _, number, short = name.split(".", 2)
            layers[int(number)][short] = weight
        else:
            outer[name] = weight
    return outer, layers


def read_tokenizer(metadata: Mapping[str, object], file: ModelFile, config: Config) -> Tokenizer:
    """Made, and its library loaded, beside the weights: a large vocabulary takes as long as those
    of a small model."""
    path = file.path
    if os.path.isdir(path):
        library = lazy.module("tetrad.text.tokenizer_json")
        return library.tokenizer_from_folder(path, config.vocab)  # type: ignore[no-any-return]
    tokens = metadata.get("tokenizer.ggml.tokens")
    count = len(tokens) if isinstance(tokens, Sequence) else 0
    if count > config.vocab:  # said before anything is made of them
        message = f"{count} tokens have no more than {config.vocab} rows in token_embd.weight"
        raise FileFormatError(message, file=path, part="key tokenizer.ggml.tokens")
    try:
        made: Tokenizer = lazy.module("tetrad.text.tokenizer").tokenizer_from_gguf(metadata)
    except FileFormatError as error:  # made of metadata, it does not know the file
        raise error.of(path) from None
    return made
