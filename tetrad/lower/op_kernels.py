"""Lowering, ops with kernels of their own: finds the generator that is attached to an op, hands it
a frame with buffers for what it reads.

Of an op that is defined in a folder `ops/<family>`, `ops/<family>/kernel.py` attaches the
generator; it is loaded when a program first needs it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from tetrad.core import lazy
from tetrad.core.errors import UnsupportedError
from tetrad.core.op import Op
from tetrad.graph.group import Group, holds
from tetrad.graph.nodes import Node
from tetrad.loopnest.frame import Frame, Memory
from tetrad.schedule.nodes import Launch, Leaf

Generator = Callable[[Frame, Group], "Launch | list[Launch] | list[Leaf]"]


def lower_op(
    group: Group, inputs: list[Node], memory: Memory
) -> Launch | list[Launch] | list[Leaf]:
    op = group.root.op
    if (write := generator_of(op)) is None:
        raise UnsupportedError(
            f"{op.name} is not compiled yet", source=group.root.source, hint="call it outside jit"
        )
    frame = Frame(group.name, memory, inputs=inputs)
    if not holds(op.epilogue, group.root):
        frame.reads(read_by_element(group.root, inputs))
    return write(frame, group)


def generator_of(op: Op) -> Generator | None:
    """The function that writes the kernels of an op."""
    match op.reference.__module__.split("."):
        case ["tetrad", "ops", family, _] if op.kernel_rule is None:
            lazy.module(f"tetrad.ops.{family}.kernel")
    return op.kernel_rule


def read_by_element(root: Node, inputs: Iterable[Node]) -> Iterable[Node]:
    """Not an array that is changed where it lies, nor quantised or complex operands, which a
    generator sees as elements of another type; complex ones further up are read as ever."""
    changed = root.inputs[:1] if root.op.in_place else ()
    pairs = {i for i in root.inputs if i.type.dtype.is_complex}
    return (i for i in inputs if not (i in changed or i in pairs or i.type.dtype.is_quantized))
