"""Compiler, dispatch: one kernel program and the content of its buffers in, what it wrote out. The
door for kernels people write themselves.

Nothing about the program is trusted: it is verified, compiled so that loads out of range give 0 and
stores out of range do nothing, and its scratch starts as zeros. Inputs and outputs follow the order
of the program's buffers; what they are checked for is in `launch_inputs`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tetrad.backends import backend_named
from tetrad.compiler.launch_inputs import (
    Args,
    Given,
    LaunchSizes,
    checked_args,
    content_of,
    extents_of,
    layout_of,
    match_inputs,
    refuse_aliases,
    refuse_invalid,
    sizes_of,
    storage_of,
)
from tetrad.compiler.resident import ResidentBuffer
from tetrad.core.backend import Backend
from tetrad.core.errors import Rejected, an
from tetrad.core.floats import own_floats
from tetrad.core.record import record
from tetrad.kernel.nodes import Program

Grid = tuple[int, int, int]
MOST_READY = 256  # launches over resident buffers that are kept ready; more, and they are forgotten


@record(eq=False)
class ReadyLaunch:
    """A launch whose buffers are all resident, checked and bound to their sizes."""

    run: Callable[[Sequence[Any]], None]
    written: tuple[int, ...]  # which of the buffers
    program: Program


READY: dict[tuple[Any, ...], ReadyLaunch] = {}


def dispatch(
    program: Program,
    inputs: Sequence[Given],
    grid: Grid | None = None,
    backend: str = "cpu",
    *,
    args: Args | None = None,
) -> list[Any]:
    """Run a kernel over `grid` workgroups (x, y, z); what it wrote, buffer by buffer, in order of
    declaration: bytes, or the resident buffer itself.

    inputs   one value for each buffer with access read or readwrite, in order of declaration:
             bytes, an array, or a buffer made by `td.kernel.resident`. One for every buffer is
             taken too: of those that are only written, a resident one receives the result, others
             are placeholders
    grid     None: one invocation per element of the output, where the program shows that it means
             that. A grid that cannot reach the end of an output is an error
    args     the value of each index argument

    Loads out of range give 0, stores out of range do nothing, buffers that are only written and
    scratch start as zeros. No input changes but a resident one.

    >>> import tetrad as td
    >>> k = td.kernel.build("increment")
    >>> x, y = k.buffer("x", td.uint8), k.buffer("y", td.uint8, "write", count=4)
    >>> k.store(y, k.global_id(), k.load(x, k.global_id()) + 1)
    >>> dispatch(k.finish(), [bytes([1, 2, 3, 255])])
    [b'\\x02\\x03\\x04\\x00']
    """
    if type(inputs) is not list:
        inputs = list(inputs)
    # The short way: resident buffers of sizes that the program was launched with before.
    named = tuple(args.items()) if args else ()
    try:
        key = (program, grid, backend, named, *[x.layout for x in inputs])  # type: ignore[union-attr]
        ready = READY.get(key)
    except (AttributeError, TypeError):
        key, ready = (), None
    if ready is None:
        return launch(program, inputs, grid, backend, args or {}, key)
    memory = [x.memory for x in inputs]  # type: ignore[union-attr]
    if len({*memory}) != len(memory):
        refuse_aliases(program, dict(zip(storage_of(program), inputs, strict=True)))
    ready.run(memory)
    return [inputs[i] for i in ready.written]


def launch(
    program: Program,
    inputs: Sequence[Given],
    grid: Grid | None,
    backend: str,
    args: Args,
    key: tuple[Any, ...],
) -> list[Any]:
    """The long way: everything is looked at."""
    if not isinstance(program, Program):
        hint = "td.kernel.build makes one, td.kernel.parse reads one"
        raise Rejected(f"dispatch: expected a program, got {an(type(program).__name__)}", hint=hint)
    runner = backend_named(backend, "dispatch")
    with own_floats():
        refuse_invalid(program, backend)
    given = checked_args(program, args)
    data = match_inputs(program, inputs, backend)
    refuse_aliases(program, data)
    layout = layout_of(program, data)
    sizes = sizes_of(program, layout, tuple(given.items()), extents_of(program, grid))
    remember(key, program, runner, data, sizes, given)
    contents = {b: content_of(b, data.get(b), sizes) for b in storage_of(program)}
    written = iter(runner.launch(program, contents, given, sizes.grid))
    return [
        data[b] if isinstance(data.get(b), ResidentBuffer) else next(written)
        for b in contents
        if b.is_written
    ]


def remember(
    key: tuple[Any, ...],
    program: Program,
    runner: Backend,
    data: dict[Any, Any],
    sizes: LaunchSizes,
    args: Args,
) -> None:
    """Keep a launch ready, if all its buffers are resident."""
    storage = storage_of(program)
    if not key or not all(isinstance(data.get(b), ResidentBuffer) for b in storage):
        return
    if len(READY) >= MOST_READY:
        READY.clear()
    cleared = tuple(b.access == "write" and b not in sizes.covered for b in storage)
    run = runner.bind(program, tuple(sizes.counts.values()), args, sizes.grid, cleared)
    written = tuple(i for i, b in enumerate(storage) if b.is_written)
    READY[key] = ReadyLaunch(run, written, program)
