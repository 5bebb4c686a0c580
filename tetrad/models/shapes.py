"""Models, shapes: the tensors an architecture says its files hold, and the check of a file against
them.

Receives what is expected and an open file; returns nothing or raises, before a byte of a tensor is
read: what a file's metadata promise and what its tensors are must agree.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from tetrad.core.errors import FileFormatError, UnsupportedError
from tetrad.core.record import record, replace
from tetrad.formats.gguf import Tensor
from tetrad.models.weights import FLOATS, ModelFile

# the config holds these
FACTORS = {"rope_freqs.weight", "rope_factors_long.weight", "rope_factors_short.weight"}


@record
class Expected:
    """A tensor by its name in GGUF; one that is not needed may be missing."""

    name: str
    shape: tuple[int, ...]
    is_needed: bool = True
    from_block: int = 0  # blocks before this one have none


def check_shapes(
    file: ModelFile, outer: Iterable[Expected], blocks: Iterable[Expected], layers: int
) -> None:
    """The file's tensors against those outside the blocks and those of every block; more than these
    is an error."""
    expected = [*outer, *in_every_block(blocks, layers)]
    for tensor in expected:
        check_tensor(file, tensor)
    if unknown := sorted(file.tensors.keys() - {tensor.name for tensor in expected} - FACTORS):
        message = (
            f"{file.path}: {len(unknown)} tensors are not part of this architecture as it is "
            f"known: {unknown[0]}"
        )
        raise UnsupportedError(message, hint="the file may be of a newer variant of the model")


def in_every_block(blocks: Iterable[Expected], layers: int) -> Iterator[Expected]:
    each = list(blocks)
    for i in range(layers):
        there = [tensor for tensor in each if i >= tensor.from_block]
        yield from (replace(tensor, name=f"blk.{i}.{tensor.name}") for tensor in there)


def check_tensor(file: ModelFile, expected: Expected) -> None:
    tensor = file.tensors.get(expected.name)
    if tensor is None:
        if expected.is_needed:
            raise FileFormatError(
                f"tensor {expected.name} is missing", file=file.path, hint="is the file complete?"
            )
    elif tuple(tensor.shape) != expected.shape:
        raise wrong(
            tensor,
            f"expected shape {list(expected.shape)} from the metadata, got {list(tensor.shape)}",
        )
    elif len(tensor.shape) == 1 and tensor.format not in FLOATS:
        raise wrong(tensor, f"expected a list of {', '.join(FLOATS)}, got {tensor.format}")


def check_factors(file: ModelFile, most: int) -> None:
    """The factors of a rope, which are read before the rest is checked: floats, at most `most`."""
    for name in FACTORS & file.tensors.keys():
        tensor = file.tensors[name]
        if tensor.format not in FLOATS or len(tensor.shape) != 1 or tensor.shape[0] > most:
            raise wrong(
                tensor, f"expected a short list of floats, got {tensor.format} {list(tensor.shape)}"
            )


def wrong(tensor: Tensor, message: str) -> FileFormatError:
    return FileFormatError(
        message, file=tensor.file, part=f"tensor {tensor.name}", offset=tensor.offset
    )
