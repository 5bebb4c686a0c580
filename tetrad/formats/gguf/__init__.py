"""GGUF, versions 2 and 3, little-endian: open a file or a split set in place, or write a new file.

Receives paths, metadata and tensors; returns metadata, tensor descriptions and read-only views of
the mapped bytes. What the blocks of a format mean is left to `quant`, what the keys mean to
`models`.
"""

from tetrad.formats.gguf.layout import FORMATS, ElementFormat, Raw, Tensor, Typed, plain
from tetrad.formats.gguf.read import File, open_file, parse_header
from tetrad.formats.gguf.write import write
from tetrad.formats.pin import Pin
from tetrad.formats.strings import Strings

__all__ = [
    "FORMATS",
    "File",
    "ElementFormat",
    "Pin",
    "Raw",
    "Strings",
    "Tensor",
    "Typed",
    "open_file",
    "parse_header",
    "plain",
    "write",
]
