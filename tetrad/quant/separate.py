"""Block formats, separate: interleaved rows back into the bytes a file holds, bit for bit. The
inverse of `Lanes.interleave`.
"""

from __future__ import annotations

import numpy as np

from tetrad.quant.fields import U8
from tetrad.quant.lanes import BLOCK, REST, ROWS, SIGN, Lanes


def separate(lanes: Lanes, packed: U8, rows: int) -> U8:
    """u8[n rounded up to 16, bytes of a row here] -> u8[rows, bytes of a row in the file]"""
    groups = len(packed) // ROWS
    whole = np.ascontiguousarray(packed).reshape(groups, -1, lanes.super_bytes)
    body = body_of(lanes, whole)
    codes = read_codes(lanes, body).transpose(0, 4, 1, 2, 3).reshape(-1, lanes.format.block)
    blocks = lanes.format._assemble(len(codes), codes, fields_of(lanes, whole, body))
    return np.ascontiguousarray(blocks.reshape(groups * ROWS, -1)[:rows])


def body_of(lanes: Lanes, whole: U8) -> U8:
    """The blocks of super-blocks: [group, super-block, block, bytes]"""
    body = whole[..., lanes.head_bytes : lanes.head_bytes + lanes.body_bytes]
    return body.reshape(*whole.shape[:2], lanes.blocks, lanes.block_bytes)


def read_codes(lanes: Lanes, body: U8) -> U8:
    """Codes from the planes of blocks: [group, super-block, block, column, row]"""
    total = np.zeros((*body.shape[:3], BLOCK, ROWS), np.uint8)
    at = 0
    for which, bits in enumerate(lanes.bits):
        size = 4 * bits * ROWS
        words = body[..., at : at + size].reshape(*body.shape[:3], bits, ROWS, 4)
        at += size
        for word in range(BLOCK // 4):
            part = (words[..., word % bits, :, :] >> np.uint8(word // bits * bits)) & np.uint8(
                (1 << bits) - 1
            )
            total[..., 4 * word : 4 * word + 4, :] |= np.swapaxes(part, -1, -2) << np.uint8(
                lanes.shift_of(which)
            )
    return total ^ np.uint8(lanes.format.flip)


def read_scales(lanes: Lanes, body: U8, side: int) -> U8:
    """The bytes of the scales (side 0) or mins (side 1) of every block of the file: [blocks of the
    file, bytes]"""
    size = ROWS * lanes.sub_blocks * lanes.scale_bytes
    at = lanes.code_bytes + side * size
    part = body[..., at : at + size].reshape(
        *body.shape[:3], lanes.sub_blocks, ROWS, lanes.scale_bytes
    )
    turned = part.transpose(0, 4, 1, 2, 3, 5)  # row, then super-block, block, sub-block
    return np.ascontiguousarray(turned).reshape(body.shape[0] * ROWS * body.shape[1], -1)


def read_units(units: U8, count: int, size: int) -> U8:
    """[group, super-block, bytes], units of sixteen rows side by side -> [blocks of the file,
    units, bytes of one]"""
    rows = units.reshape(*units.shape[:2], count, ROWS, size).transpose(0, 3, 1, 2, 4)
    return np.ascontiguousarray(rows).reshape(units.shape[0] * ROWS * units.shape[1], count, size)


def fields_of(lanes: Lanes, whole: U8, body: U8) -> dict[int, U8]:
    """Every field of a file block but its codes: where it starts -> its bytes."""
    format, found = lanes.format, dict[int, U8]()
    head = read_units(whole[..., : lanes.head_bytes], len(lanes.factors), lanes.factor_bytes).copy()
    head[:, 1:, -1] ^= np.uint8(SIGN)
    for i, factor in enumerate(format.factors):
        found[factor.start] = head[:, i] if lanes.factors else read_scales(lanes, body, i)
    if format.levels is not None:
        sides = [read_scales(lanes, body, side) for side in range(lanes.sides)]
        found |= format.levels.fields(np.concatenate(sides, axis=1))
    start, size = format.rest
    rest = read_units(whole[..., lanes.head_bytes + lanes.body_bytes :], size // REST, REST)
    return found | {start: rest.reshape(len(rest), size)} if size else found
