"""kernel_call: a kernel program of the user's as an op.

The text of the program is a setting, so equal programs are one op, and a program with it is kept on
disk. Nobody vouches for it: loads out of range give 0, stores out of range do nothing.
`compiler.kernel_call` has the public function.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from tetrad.core import lazy
from tetrad.core.errors import TrapError
from tetrad.core.op import op
from tetrad.core.record import replace
from tetrad.core.sizes import Shape, Size
from tetrad.core.types import ArrayType
from tetrad.ops.rules import Array

if TYPE_CHECKING:
    from tetrad.kernel.nodes import Buffer, Program

evaluating = lazy.later("tetrad.kernel.evaluate")
text = lazy.later("tetrad.kernel.text")
backend = lazy.later("tetrad.core.backend")

Grid = tuple[Size, Size, Size]
Args = tuple[tuple[str, Size], ...]


@lru_cache(maxsize=256)
def guarded_program(program: str) -> Program:
    """The program of a text, as one that nobody vouches for."""
    parsed: Program = text.parse(program)
    return replace(parsed, guarded=True)


def storage_of(program: Program) -> list[Buffer]:
    return [b for b in program.buffers if not b.is_scratch]


def trap_error(name: str, trap: int, value: int) -> TrapError:
    return TrapError(f"{name}: trap {trap}, value {value}", trap, value, code=backend.RUNNING)


def kernel_call_type(
    *operands: ArrayType, program: str, grid: Grid, args: Args, shapes: tuple[Shape, ...]
) -> ArrayType | tuple[ArrayType, ...]:
    written = [b for b in storage_of(guarded_program(program)) if b.is_written]
    kinds = [ArrayType(b.dtype, shape) for b, shape in zip(written, shapes, strict=True)]
    return kinds[0] if len(kinds) == 1 else tuple(kinds)


@op(type=kernel_call_type, kind="special", public=False, foldable=False)
def kernel_call(
    *operands: Array, program: str, grid: Grid, args: Args, shapes: tuple[Shape, ...]
) -> Array | tuple[Array, ...]:
    """What the program writes, buffer by buffer, by the evaluator of the kernel language.

    >>> from tetrad.core.dtypes import i64
    >>> from tetrad.kernel.build import KernelBuilder
    >>> k = KernelBuilder("twice")
    >>> x, y = k.buffer("x", i64), k.buffer("y", i64, "write")
    >>> k.store(y, k.lane(), k.load(x, k.lane()) * 2)
    >>> program = str(k.finish())
    >>> kernel_call(np.arange(3), program=program, grid=(1, 1, 1), args=(), shapes=((3,),))
    array([0, 2, 4])
    """
    kernel = guarded_program(program)
    storage = storage_of(kernel)
    inputs = dict(zip([b for b in storage if b.access != "write"], operands, strict=True))
    outputs = dict(zip([b for b in storage if b.is_written], shapes, strict=True))
    memory = {b.name: content(b, inputs.get(b), outputs.get(b)) for b in storage}
    numbers: Any = dict(args), grid  # Dims are numbers by now
    try:
        if 0 not in grid:
            evaluating.evaluate(kernel, memory, *numbers)
    except evaluating.KernelTrap as trap:
        raise trap_error(kernel.name, trap.code, trap.value) from None
    made = tuple(memory[b.name].reshape(shape) for b, shape in outputs.items())
    return made[0] if len(made) == 1 else made


def content(buffer: Buffer, given: Array | None, shape: Any) -> Array:
    """What a buffer holds at first, as its own: nobody else's array changes."""
    if given is not None:
        flat = given.reshape(-1)
        return flat.copy() if buffer.is_written else flat
    return np.zeros(shape, buffer.dtype.np).reshape(-1)


kernel_call.not_differentiable(
    "nobody knows what the kernel computes; td.kernel.call(..., vjp=) gives a rule"
)
