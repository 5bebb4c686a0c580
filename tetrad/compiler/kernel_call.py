"""Compiler, kernel calls: a kernel program of the user's as a function of arrays.

Receives a program and arrays, eager or traced; finds sizes, grid and the types of the results;
returns arrays. The op is in `ops.kernel_call`, derivatives are those of `transforms.custom`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from tetrad.compiler.launch_inputs import (
    ARGUMENT,
    COUNT,
    GRID,
    KIND,
    MAX_BYTES,
    SHORT,
    SIZE,
    refuse_invalid,
    refuse_negative,
    refuse_scratch,
    refuse_small_grid,
    storage_of,
)
from tetrad.core.errors import BadInputs, Rejected, an
from tetrad.core.floats import own_floats
from tetrad.core.sizes import Shape, Size, SizeExpr, dims_of, parse_size, product
from tetrad.core.source import user_source
from tetrad.graph.build import intern, results
from tetrad.graph.evaluate import solve_dims
from tetrad.kernel.grids.infer import Grid, infer_grid
from tetrad.kernel.nodes import Buffer, Program
from tetrad.ops.kernel_call.op import kernel_call, kernel_call_type
from tetrad.tracing.array import Array, TracedArray
from tetrad.tracing.context import current_trace
from tetrad.tracing.operands import as_array, check_shape, dtype_of, is_operand, wrap
from tetrad.transforms.custom import custom_jvp, custom_vjp

Sizes = dict[str, Size]
TEXTS: WeakKeyDictionary[Program, str] = WeakKeyDictionary()  # printing takes longer than calling


def call(
    program: Program,
    *arrays: Any,
    grid: Sequence[Any] | Callable[..., Any] | None = None,
    args: Mapping[str, Any] | None = None,
    out: Any = None,
    vjp: Callable[..., Any] | None = None,
    jvp: Callable[..., Any] | None = None,
) -> Any:
    """A kernel as a function of arrays: what it writes, one array for each buffer it writes, in
    order of declaration. Inside a jitted function it is a launch among the others.

    arrays   one for each buffer with access read or readwrite, of its dtype and of any shape; they
             do not change
    grid     workgroups along x, y and z, or a function of the arrays' shapes that gives them; None:
             one invocation for each element of the result, where the program shows that it means
             that
    args     values of index arguments, and of Dims in the counts of buffers, where the arrays do
             not tell them
    out      what the results look like: a `td.Spec`, or one for each; without it those of readwrite
             buffers are shaped like their arrays, and others are flat
    vjp      vjp(inputs, outputs, cotangents) gives a cotangent, or None, for each input
    jvp      jvp(primals, tangents) gives (outputs, their tangents), as a rule of `td.custom_jvp`

    As with `td.dispatch` nothing about the program is trusted. Under `td.vmap` the rows are
    launched one after the other, in native code.

    >>> import tetrad as td
    >>> k = td.kernel.build("twice")
    >>> size = td.Dim("size")
    >>> x, y = k.buffer("x", td.float32, count=size), k.buffer("y", td.float32, "write", count=size)
    >>> k.store(y, k.global_id(), k.load(x, k.global_id()) * 2.0)
    >>> td.jit(lambda x: td.kernel.call(k.finish(), x + 1))(td.asarray([1.0, 2.0, 3.0]))
    Array([4., 6., 8.], float32)
    """
    if not isinstance(program, Program):
        hint = "td.kernel.build makes one, td.kernel.parse reads one"
        came = an(type(program).__name__)
        raise Rejected(f"kernel.call: expected a program, got {came}", hint=hint)
    with own_floats():
        refuse_invalid(program, "cpu")
    if vjp is not None and jvp is not None:
        hint = "jvp serves both modes"
        raise BadInputs(f"{program.name}: give vjp or jvp, not both", code=ARGUMENT, hint=hint)
    plain = partial(call, program, grid=grid, args=args, out=out)
    if jvp is not None:
        return with_jvp(program.name, plain, jvp)(*arrays)
    if vjp is not None:
        return with_vjp(program.name, plain, vjp)(*arrays)
    operands = operands_of(program, arrays)
    settings = settings_of(program, operands, grid, args or {}, out)
    return applied(operands, settings)


def applied(operands: Sequence[Array], settings: dict[str, Any]) -> Any:
    """The op; without operands it is a node of the current trace all the same."""
    trace = current_trace()
    if operands:
        return kernel_call(*operands, **settings)
    if trace is None:
        made = kernel_call.reference(**settings)
        return tuple(map(wrap, made)) if isinstance(made, tuple) else wrap(made)
    kinds = kernel_call_type(**settings)
    items = tuple(sorted(settings.items()))
    if not isinstance(kinds, tuple):
        node = intern(kernel_call, (), items, (kinds,), user_source())
        return TracedArray.of(node, trace)
    nodes = results(intern(kernel_call, (), items, kinds, user_source()))
    return tuple(TracedArray.of(part, trace) for part in nodes)


Function = Callable[..., Any]


def with_jvp(name: str, plain: Function, rule: Function) -> Function:
    """A call that has a derivative, forward and backward."""
    function = custom_jvp(under(name, plain))
    function.defjvp(rule)
    return function


def with_vjp(name: str, plain: Function, rule: Function) -> Function:
    """A call that has a derivative backward."""
    function = custom_vjp(under(name, plain))

    def kept(*operands: Any) -> Any:
        made = plain(*operands)
        return made, (operands, made)

    def cotangents(held: Any, given: Any) -> Any:
        found = rule(*held, given)
        return found if isinstance(found, tuple | list) else (found,)

    function.defvjp(kept, cotangents)
    return function


def under(name: str, plain: Function) -> Function:
    """The function under the name of the kernel."""

    def named(*operands: Any) -> Any:
        return plain(*operands)

    named.__name__ = name
    return named


def operands_of(program: Program, arrays: Sequence[Any]) -> list[Array]:
    """The arrays, each of the dtype of its buffer."""
    read = [b for b in storage_of(program) if b.access != "write"]
    if len(arrays) != len(read):
        names = ", ".join(b.name for b in read) or "none"
        raise BadInputs(
            f"{program.name}: takes {len(read)} arrays ({names}), got {len(arrays)}",
            code=COUNT,
            hint="one for each buffer that is read, in order of declaration",
            source=user_source(),
        )
    return [operand(program, b, x) for b, x in zip(read, arrays, strict=True)]


def operand(program: Program, buffer: Buffer, x: Any) -> Array:
    found = as_array(x) if is_operand(x) else None
    if found is None or found.dtype is not buffer.dtype:
        came = an(type(x).__name__) if found is None else str(found.type)
        raise BadInputs(
            f"{program.name}: buffer {buffer.name} takes {buffer.dtype}, got {came}",
            code=KIND,
            hint="convert with astype",
            source=user_source(),
        )
    return found


# -- sizes -----------------------------------------------------------------------------------------


def settings_of(
    program: Program,
    operands: Sequence[Array],
    grid: Any,
    args: Mapping[str, Any],
    out: Any,
) -> dict[str, Any]:
    storage = storage_of(program)
    read = dict(zip([b for b in storage if b.access != "write"], operands, strict=True))
    values = named_sizes(program, read, args)
    shapes = {b: x.type.shape for b, x in read.items()}
    shapes |= result_shapes(program, shapes, values, out)
    counts = {b: product(shapes[b]) for b in storage}
    for buffer in read:
        refuse_short(program, buffer, counts[buffer], values)
    extents = grid_of(program, grid, [x.type.shape for x in operands], counts)
    refuse_misfit(program, values, extents, counts)
    written = tuple(shapes[b] for b in storage if b.is_written)
    if not written:
        raise BadInputs(f"{program.name}: it writes no buffer, so it has no result", code=SIZE)
    return {
        "program": text_of(program), "grid": extents, "args": tuple(values.items()),
        "shapes": written,
    }  # fmt: skip


def text_of(program: Program) -> str:
    found = TEXTS.get(program)
    if found is None:
        found = TEXTS[program] = str(program)
    return found


def named_sizes(program: Program, read: Mapping[Buffer, Array], args: Mapping[str, Any]) -> Sizes:
    """Values of the index arguments, and of the Dims that counts of buffers mention: given, or told
    by the sizes of the arrays."""
    counts = {b: b.count for b in program.buffers if isinstance(b.count, SizeExpr)}
    names = {d.name for count in counts.values() for d in dims_of(count)} | {*program.args}
    values = {name: checked_size(program, name, value, names) for name, value in args.items()}
    pairs = [(count, x.type.size) for b, x in read.items() if (count := counts.get(b)) is not None]
    for count, size in pairs:
        values |= told(count, size, values)
    known = [(count, size) for count, size in pairs if isinstance(size, int)]
    numbers = {name: size for name, size in values.items() if isinstance(size, int)}
    values |= solve_dims(known, numbers)
    missing = [name for name in program.args if name not in values]
    if missing:
        raise BadInputs(
            f"{program.name}: no value for argument {missing[0]!r}",
            code=ARGUMENT,
            hint="args={" + ", ".join(f"{name!r}: ..." for name in missing) + "}",
            source=user_source(),
        )
    return values


def checked_size(program: Program, name: str, value: Any, names: set[str]) -> Size:
    if name not in names:
        known = ", ".join(sorted(names)) or "none"
        message = f"{program.name}: there is no argument {name!r}; it has {known}"
        raise BadInputs(message, code=ARGUMENT, source=user_source())
    if isinstance(value, SizeExpr):
        return value
    if isinstance(value, bool) or not isinstance(value, int | np.integer):
        message = f"{program.name}: argument {name} is {value!r}, it must be an int or a size"
        hint = "what is computed is an array: pass it as one"
        raise BadInputs(message, code=ARGUMENT, hint=hint, source=user_source())
    if not -(1 << 63) <= value < 1 << 63:
        message = f"{program.name}: argument {name} = {value} leaves 64 bits"
        raise BadInputs(message, code=ARGUMENT, source=user_source())
    try:
        refuse_negative(program, name, int(value))
    except BadInputs as error:
        raise error.located(user_source()) from None
    return int(value)


def told(count: SizeExpr, size: Size, values: Sizes) -> Sizes:
    """What a symbolic size says about a count that is a multiple of one Dim."""
    (monomial, factor), *rest = count.terms
    (dim, *others) = monomial or (None,)
    name = getattr(dim, "name", None)
    if rest or others or name is None or name in values or not isinstance(size, SizeExpr):
        return {}
    if any(times % factor for _, times in size.terms):
        return {}
    return {name: SizeExpr(tuple((m, times // factor) for m, times in size.terms))}


def declared(buffer: Buffer, values: Sizes) -> Size | None:
    """The count of a buffer, as far as it is told."""
    if buffer.count is None or not {d.name for d in dims_of(buffer.count)} <= values.keys():
        return None
    return parse_size(str(buffer.count), values)


def refuse_short(program: Program, buffer: Buffer, size: Size, values: Sizes) -> None:
    needed = declared(buffer, values)
    if isinstance(needed, int) and isinstance(size, int) and size < needed:
        raise BadInputs(
            f"{program.name}: buffer {buffer.name} has {needed} elements, got {size}",
            code=SHORT,
            source=user_source(),
        )


# -- results ---------------------------------------------------------------------------------------


def result_shapes(
    program: Program, shapes: Mapping[Buffer, Shape], values: Sizes, out: Any
) -> dict[Buffer, Shape]:
    """The shape of what is written to each buffer."""
    written = [b for b in storage_of(program) if b.is_written]
    wanted = list(out) if isinstance(out, tuple | list) else [out] * (out is not None)
    if wanted and len(wanted) != len(written):
        names = ", ".join(b.name for b in written)
        raise BadInputs(
            f"{program.name}: writes {len(written)} buffers ({names}), out has {len(wanted)}",
            code=COUNT,
            source=user_source(),
        )
    specs = wanted or [None] * len(written)
    return {
        b: shape_of(program, b, shapes.get(b), declared(b, values), spec)
        for b, spec in zip(written, specs, strict=True)
    }


def shape_of(
    program: Program, buffer: Buffer, given: Shape | None, count: Size | None, spec: Any
) -> Shape:
    needed = count if given is None else product(given)
    if spec is None:
        if needed is None:
            raise BadInputs(
                f"{program.name}: how long {buffer.name} is cannot be told",
                code=SIZE,
                hint="out=td.Spec(shape, dtype), or declare the buffer with count=",
                source=user_source(),
            )
        return refuse_large(program, buffer, (needed,) if given is None else given)
    if not hasattr(spec, "shape") or not hasattr(spec, "dtype"):
        message = f"{program.name}: out is {spec!r}, which has no shape and dtype"
        hint = "out=td.Spec(shape, dtype), or one for each buffer that is written"
        raise BadInputs(message, code=KIND, hint=hint, source=user_source())
    shape = check_shape("kernel.call", spec.shape)
    if dtype_of(spec.dtype) is not buffer.dtype:
        message = f"{program.name}: buffer {buffer.name} holds {buffer.dtype}, out has {spec!r}"
        raise BadInputs(message, code=KIND, source=user_source())
    if needed is not None and product(shape) != needed:
        message = f"{program.name}: buffer {buffer.name} has {needed} elements, out has {spec!r}"
        raise BadInputs(message, code=SIZE, source=user_source())
    return refuse_large(program, buffer, shape)


def refuse_large(program: Program, buffer: Buffer, shape: Shape) -> Shape:
    nbytes = product(shape) * buffer.dtype.nbytes
    if isinstance(nbytes, int) and not 0 <= nbytes <= MAX_BYTES:
        message = f"{program.name}: buffer {buffer.name} would take {nbytes} bytes"
        raise BadInputs(message, code=SIZE, source=user_source())
    return shape


# -- grid ------------------------------------------------------------------------------------------


def grid_of(
    program: Program, grid: Any, shapes: Sequence[Shape], counts: Mapping[Buffer, Size]
) -> Grid:
    if grid is None:
        found = infer_grid(program, counts)
        if found is None:
            raise BadInputs(
                f"{program.name}: the grid cannot be told from the program",
                code=GRID,
                hint="grid=(x, y, z), the number of workgroups, or a function of the shapes",
                source=user_source(),
            )
        return found
    given = grid(*shapes) if callable(grid) else grid
    sizes = tuple(given) if isinstance(given, tuple | list) else (given,)
    if len(sizes) != 3 or not all(is_extent(size) for size in sizes):
        raise BadInputs(
            f"{program.name}: grid {given!r} is not three numbers of workgroups",
            code=GRID,
            source=user_source(),
        )
    return sizes


def is_extent(size: Any) -> bool:
    return isinstance(size, SizeExpr) or (type(size) is int and size >= 0)


def refuse_misfit(
    program: Program, values: Sizes, grid: Grid, counts: Mapping[Buffer, Size]
) -> None:
    """What can be told when all sizes are numbers."""
    numbers: Any = [*values.values(), *grid, *counts.values()]
    if all(isinstance(size, int) for size in numbers):
        known: Any = values, grid, counts
        try:
            refuse_scratch(program, known[0])
            refuse_small_grid(program, *known)
        except BadInputs as error:
            raise error.located(user_source()) from None
