"""Kernel language, library, quantised types: what packed integers stand for.

A `QuantizedType` says how an element is stored, where its scale and its zero point are found, and
in which order nibbles lie in words: real = (decode(storage) - zero point) * scale. Types are plain
values; `problems_of` says what is wrong with one, before it is used.
"""

from __future__ import annotations

from tetrad.core.record import record

STORAGES = ("i4", "u4", "i8", "i16", "u8", "u16", "f8e4m3", "f8e5m2", "fp4", "nf4")
# rows of signed lanes; words of one output column each; two to a byte, stored with 8 added
LAYOUTS = ("row_packed_signed", "column_interleaved_unsigned", "byte_pairs_offset8")


@record
class PerTensor:
    """One for the whole tensor."""

    def __str__(self) -> str:
        return "per_tensor"


@record
class PerChannel:
    """One for each index of an axis."""

    axis: int

    def __str__(self) -> str:
        return f"per_channel(axis={self.axis})"


@record
class PerGroup:
    """One for each run of `group_size` elements along the reduced axis."""

    group_size: int

    def __str__(self) -> str:
        return f"per_group(size={self.group_size})"


@record
class Absent:
    """None: the quantisation is symmetric."""

    def __str__(self) -> str:
        return "absent"


Scale = PerTensor | PerChannel | PerGroup
ZeroPoint = Scale | Absent


@record
class QuantizedType:
    """
    >>> print(QuantizedType("u4", PerGroup(32), Absent()))
    quantized<u4;scale:per_group(size=32);zp:absent>
    """

    storage: str
    scale: Scale
    zero_point: ZeroPoint = Absent()
    layout: str = "column_interleaved_unsigned"

    def __str__(self) -> str:
        return f"quantized<{self.storage};scale:{self.scale};zp:{self.zero_point}>"


def problems_of(type: QuantizedType) -> list[str]:
    """What is wrong with the type, field by field.

    >>> problems_of(QuantizedType("u4", PerGroup(0), Absent()))
    ['scale: group_size=0, must be > 0']
    """
    found = []
    if type.storage not in STORAGES:
        found.append(f"storage: {type.storage} is none of {', '.join(STORAGES)}")
    if type.layout not in LAYOUTS:
        found.append(f"layout: {type.layout} is none of {', '.join(LAYOUTS)}")
    for name, part in (("scale", type.scale), ("zero_point", type.zero_point)):
        if isinstance(part, PerGroup) and part.group_size < 1:
            found.append(f"{name}: group_size={part.group_size}, must be > 0")
        if isinstance(part, PerChannel) and part.axis < 0:
            found.append(f"{name}: axis={part.axis}, must be >= 0")
    return found
