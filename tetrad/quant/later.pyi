# What type checkers see of names that tetrad.quant finds later: made by `python -m tests.stubs`.
# ruff: noqa
# fmt: off
from typing import Any

from tetrad.arrays import int4 as int4
from tetrad.arrays.groups import GroupQuantized as GroupQuantized
from tetrad.arrays.quantized import from_bytes as from_bytes
from tetrad.arrays.groups import from_parts as from_parts
from tetrad.arrays.groups import matmul as matmul
from tetrad.arrays.quantized import quantize as quantize
