"""Tracing, loops: `scan`, `while_loop`, `fori_loop`, `cond` and `switch`, with the arguments they
have in JAX.

Receives Python functions and trees of arrays. A body is traced once, whatever the number of steps;
what it uses from outside becomes a constant of the loop. Inside a trace the loop is recorded as one
node, else it is evaluated at once.
"""

from __future__ import annotations

import builtins
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tetrad.core import lazy
from tetrad.core.dtypes import DType, bool_, i32, i64, python_dtypes, u32, u64
from tetrad.core.errors import (
    DtypeError,
    ShapeError,
    TetradError,
    TraceError,
    UnsupportedError,
    an,
)
from tetrad.core.floats import guarded
from tetrad.core.promotion import result_dtype
from tetrad.core.record import record, replace
from tetrad.core.sizes import Size
from tetrad.core.tracebacks import plain_tracebacks
from tetrad.core.tree import TreeDef, flatten, sketch, take, tree_map, unflatten
from tetrad.core.types import ArrayType
from tetrad.graph import loops
from tetrad.graph.build import filled, make_graph, make_parameter
from tetrad.graph.effects import TOKEN
from tetrad.graph.loops import make_scan, make_switch, make_while
from tetrad.graph.nodes import Graph, Node
from tetrad.tracing import effects, python_loops
from tetrad.tracing.array import (
    Array,
    TracedArray,
    array_type,
    fail,
    kept,
    located,
    node_of,
    noun_of,
)
from tetrad.tracing.context import current_trace, new_trace
from tetrad.tracing.operands import as_array, convert, is_operand, kind_of, run, scalar
from tetrad.tracing.run_graph import evaluated, is_pure
from tetrad.tracing.signature import check_function, parameter_names
from tetrad.tracing.switches import checked_values

Captured = dict[int, tuple[Array, Node]]
Weak = builtins.type | None  # the Python type of a number that has no dtype of its own yet
STRATEGIES = ("every", "bisect", "binomial")
ABSENT: Any = object()  # an argument that was not given, where None is one
CALLS = {
    "scan": "td.scan(f, init, xs)", "while_loop": "td.while_loop(cond_fun, body_fun, init_val)",
    "fori_loop": "td.fori_loop(lower, upper, body_fun, init_val)",
    "cond": "td.cond(pred, true_fun, false_fun, *operands)",
    "switch": "td.switch(index, [f, g], *operands)",
}  # fmt: skip
ROUNDS = 4  # a number may become an int, then a float, then the float of an array


@record
class BodyInput:
    """What a body receives in one place: a type, and the Python type of a number that may still
    take another dtype."""

    type: ArrayType
    weak: Weak = None


@record(eq=False)
class Body:
    """A traced body: parameters, captured values, and the results as they came (numbers still
    without a dtype)."""

    name: str
    parameters: tuple[Node, ...]
    captured: Captured
    outputs: tuple[Node, ...]
    slots: tuple[BodyInput, ...]  # of the outputs
    tree: TreeDef

    @property
    def consts(self) -> list[Array]:
        return [value for value, _ in self.captured.values()]

    def graph(self) -> Graph:
        """Captured values first, then the parameters."""
        return make_graph(
            self.name,
            [*(node for _, node in self.captured.values()), *self.parameters],
            self.outputs,
        )


def trace_body(
    function: Callable[..., Any],
    args: Sequence[TreeDef],
    slots: Sequence[BodyInput],
    wanted: Sequence[DType | None] = (),
) -> Body:
    """Record what the function does with arguments of these shapes and types.

    `wanted`: dtypes for the first results, where they are numbers that take any.
    """
    name = getattr(function, "__name__", type(function).__name__)
    with new_trace(name, is_inner=True) as trace:
        parameters = trace.parameters([slot.type for slot in slots])
        trace.named = lambda: names_of(function, args, parameters)
        values = iter(
            [
                weak_array(TracedArray.of(n, trace), s.weak)
                for n, s in zip(parameters, slots, strict=True)
            ]
        )
        leaves, tree = flatten(function(*[take(shape, values) for shape in args]))
        found = tuple(slot_of(name, leaf) for leaf in leaves)
        dtypes = [*wanted, *[None] * (len(leaves) - len(wanted))]
        arrays = [settled(x, slot, d) for x, slot, d in zip(leaves, found, dtypes, strict=False)]
        outputs = tuple(effects.settled(trace, [node_of(x, trace) for x in arrays]))
    return Body(name, tuple(parameters), trace.captured, outputs, found, tree)


def names_of(
    function: Callable[..., Any], args: Sequence[TreeDef], parameters: Sequence[Node]
) -> dict[Node, str]:
    """What the function calls its parameters."""
    known = parameter_names(function)
    owners = [known[i] if i < len(known) else f"argument {i}" for i in range(len(args))]
    names = [n for owner, tree in zip(owners, args, strict=True) for n in tree.leaf_names(owner)]
    return dict(zip(parameters, names, strict=False))


def check_functions(name: str, **functions: Any) -> None:
    """What the call takes as functions, by the names it has for them."""
    for role, function in functions.items():
        check_function(f"{name}: {role}", function, CALLS[name])


def weak_array(x: TracedArray, weak: Weak) -> TracedArray:
    x.weak = weak
    return x


def slot_of(name: str, leaf: Any) -> BodyInput:
    """What a loop knows of a value, or the error that says what a value may be."""
    if not is_operand(leaf):
        fail(
            TraceError,
            f"{name}: loops carry, take and return arrays and numbers, not "
            f"{an(type(leaf).__name__)}",
        )
    kind = kind_of(leaf)
    if isinstance(kind, DType):
        return BodyInput(as_array(leaf).type)
    return BodyInput(array_type(python_dtypes()[kind], ()), kind)


def settled(x: Any, slot: BodyInput, wanted: DType | None) -> Array:
    """A value as an array: a number takes the dtype that is wanted."""
    return convert(x, wanted if wanted is not None and slot.weak is not None else slot.type.dtype)


def joined(before: BodyInput, after: BodyInput) -> BodyInput:
    """What a number becomes that meets another value in the same place; arrays keep their types."""
    if before.weak is None:
        return before
    if after.weak is None:
        return BodyInput(
            array_type(result_dtype([before.weak, after.type.dtype]), before.type.shape)
        )
    dtype = result_dtype([before.weak, after.weak])
    return before if dtype is before.type.dtype else BodyInput(array_type(dtype, ()), after.weak)


def placed(leaves: Sequence[Any], slots: Sequence[BodyInput]) -> list[Array]:
    return [convert(leaf, slot.type.dtype) for leaf, slot in zip(leaves, slots, strict=True)]


# -- recording or evaluating -----------------------------------------------------------------------


@guarded
def perform(
    op: Any, make: Callable[[list[Node]], tuple[Node, ...]], operands: Sequence[Array], params: Any
) -> Any:
    """The results: nodes of the trace that is active, else values."""
    outer = current_trace()
    if outer is not None:
        made = make([node_of(x, outer) for x in operands])
        effects.note(outer, made)
        return [TracedArray.of(node, outer) for node in made]
    try:
        kinds = op.type(*(x.type for x in operands), **params)
        inputs = [make_parameter(x.type, i, fresh=True) for i, x in enumerate(operands)]
        graph = make_graph(op.name, inputs, make(inputs))
        if is_pure(graph):
            return evaluated(graph, operands)
        made = op.reference(*(kept(x).memory for x in operands), **params)
        if wanted := checked_values():
            views = [kept(x).memory for x in operands]
            lazy.provided("bad values").check(graph, views, list(made), wanted)
        return [
            Array.from_bytes(y, kind) if kind.dtype.is_narrow else Array.from_numpy(np.asarray(y))
            for y, kind in zip(made, kinds, strict=True)
        ]
    except TetradError as error:
        raise located(error) from None


# -- scan ------------------------------------------------------------------------------------------


@plain_tracebacks
def scan(
    f: Callable[[Any, Any], tuple[Any, Any]],
    init: Any,
    xs: Any = None,
    length: int | None = None,
    reverse: bool = False,
    unroll: int | bool = 1,
    *,
    checkpoint: loops.Checkpoint = None,
) -> tuple[Any, Any]:
    """A loop with a state: `carry, y = f(carry, x)` for every row x of xs. Gives the last carry and
    all y, stacked.

    xs          a tree of arrays with one leading axis; None with a `length` for a loop that reads
                nothing
    reverse     begin with the last row; ys[t] still belongs to xs[t]
    unroll      steps in each trip of the compiled loop; True, or at least the length: no loop, step
                after step
    checkpoint  what a derivative stores: None all; "sqrt", "none", ("every", K), ("bisect", K),
                ("binomial", s)

    >>> import tetrad as td
    >>> td.scan(lambda c, x: (c + x, c * x), 0.0, td.asarray([1.0, 2.0, 3.0]))
    (Array(6., float32), Array([0., 2., 9.], float32))
    """
    check_functions("scan", f=f)
    return steps("scan", f, init, xs, length, reverse, unroll, checkpoint)


def steps(
    name: str,
    f: Callable[[Any, Any], tuple[Any, Any]],
    init: Any,
    xs: Any,
    length: int | None = None,
    reverse: bool = False,
    unroll: int | bool = 1,
    checkpoint: loops.Checkpoint = None,
) -> tuple[Any, Any]:
    """A scan, called `name` in what is said of it."""
    carries, carry_tree = flatten(init)
    columns, xs_tree = flatten(xs)
    arrays = [
        as_array(checked_column(x, leaf))
        for x, leaf in zip(columns, xs_tree.leaf_names("xs"), strict=True)
    ]
    count = steps_of(arrays, list(xs_tree.leaf_names("xs")), length)
    if isinstance(count, int) and count > 0 and python_loops.runs_in_python():
        return python_loops.scan(f, init, unflatten(xs_tree, arrays), count, bool(reverse))
    rows = [BodyInput(array_type(x.type.dtype, x.type.shape[1:])) for x in arrays]
    slots, body = settle(name, f, carries, (carry_tree, xs_tree), rows, pair=True)
    params = {
        "body": body.graph(), "consts": len(body.captured), "carries": len(carries),
        "length": count,
        "reverse": bool(reverse), "unroll": unrolled(name, unroll, count),
        "checkpoint": checked_strategy(checkpoint),
    }  # fmt: skip
    split = len(body.captured), len(body.captured) + len(carries)

    def make(nodes: list[Node]) -> tuple[Node, ...]:
        settings = {name: params[name] for name in ("length", "reverse", "unroll", "checkpoint")}
        given = nodes[: split[0]], nodes[split[0] : split[1]], nodes[split[1] :]
        return make_scan(params["body"], *given, **settings)  # type: ignore[arg-type]

    made = (
        perform(loops.scan, make, [*body.consts, *placed(carries, slots), *arrays], params)
        if body.outputs
        else []
    )
    # a token may stand behind the results
    return unflatten(carry_tree, made[: len(carries)]), take(
        body.tree.parts[1], iter(made[len(carries) :])
    )


def settle(
    name: str,
    f: Callable[..., Any],
    init: Sequence[Any],
    trees: Sequence[TreeDef],
    rows: Sequence[BodyInput],
    pair: bool,
) -> tuple[list[BodyInput], Body]:
    """The types of the carries, and the body for them: numbers take the dtype that the body gives
    back."""
    slots = [slot_of(name, leaf) for leaf in init]
    for _ in range(ROUNDS):
        body = trace_body(f, trees, [*slots, *rows], [slot.type.dtype for slot in slots])
        check_structure(name, f, body.tree, trees[0], pair)
        after = [joined(slot, found) for slot, found in zip(slots, body.slots, strict=False)]
        if [slot.type for slot in after] == [slot.type for slot in slots]:
            break
        slots = after
    check_carries(name, slots, body, list(trees[0].leaf_names("carry")))
    return slots, body


def check_structure(
    name: str, f: Callable[..., Any], found: TreeDef, carry: TreeDef, pair: bool
) -> None:
    called = getattr(f, "__name__", "the body")
    if pair and (found.container is not tuple or len(found.parts) != 2):
        fail(
            TraceError,
            f"{name}: {called} must return a pair (carry, y)",
            "return carry, None when there is no y",
        )
    given = found.parts[0] if pair else found
    if given != carry:
        message = f"{name}: the carry is {sketch(carry)}, {called} returns {sketch(given)} for it"
        fail(TraceError, message, "return the same tree: same containers, same keys")


def check_carries(name: str, slots: Sequence[BodyInput], body: Body, names: Sequence[str]) -> None:
    """Every carry keeps its type. A number that the body gives has taken the carry's dtype, if it
    may."""
    for leaf, slot, found, node in zip(names, slots, body.slots, body.outputs, strict=False):
        lost = (
            found.weak is not None
            and result_dtype([slot.type.dtype, found.weak]) is not slot.type.dtype
        )
        if node.type != slot.type or lost:
            came = found.type if lost else node.type
            error = DtypeError if came.shape == slot.type.shape else ShapeError
            hint = "a carry has one type in all steps: convert init, or what the body returns"
            fail(error, f"{name}: {leaf} is {slot.type} before a step and {came} after it", hint)


def checked_column(x: Any, name: str) -> Any:
    if not is_operand(x) or not as_array(x).type.shape:
        came = as_array(x).type if is_operand(x) else an(type(x).__name__)
        fail(
            ShapeError,
            f"scan: {name} is {came}, it needs a leading axis",
            "close over what is constant",
        )
    return x


def steps_of(arrays: Sequence[Array], names: Sequence[str], length: Any) -> Size:
    """How many steps there are: the leading axis that all xs have."""
    if length is not None and (
        isinstance(length, bool) or not isinstance(length, int | np.integer) or length < 0
    ):
        fail(ShapeError, f"scan: length is {length!r}, it must be an int of at least 0")
    if not arrays and length is None:
        fail(ShapeError, "scan: without xs the number of steps is unknown", "give length=")
    count: Size = int(length) if length is not None else arrays[0].type.shape[0]
    if any(x.type.shape[0] != count for x in arrays):
        shown = ", ".join(
            f"{name} has {x.type.shape[0]}" for name, x in zip(names, arrays, strict=True)
        )
        fail(
            ShapeError,
            f"scan: leading axes differ: {shown}"
            + ("" if length is None else f", length is {length}"),
        )
    return count


def unrolled(name: str, unroll: Any, count: Size) -> int:
    if isinstance(unroll, bool):
        return max(1, count) if unroll and isinstance(count, int) else 1
    if not isinstance(unroll, int | np.integer) or unroll < 1:
        fail(
            ShapeError, f"{name}: unroll is {unroll!r}, it must be an int of at least 1, or a bool"
        )
    return int(unroll)


def checked_strategy(strategy: Any) -> loops.Checkpoint:
    if strategy is None or strategy in ("sqrt", "none"):
        return strategy  # type: ignore[no-any-return]
    is_pair = isinstance(strategy, tuple) and len(strategy) == 2 and strategy[0] in STRATEGIES
    if is_pair and isinstance(strategy[1], int) and strategy[1] >= 1:
        return strategy  # type: ignore[no-any-return]
    hint = (
        'None, "sqrt", "none", ("every", K), ("bisect", K) or ("binomial", s) with an int of at '
        "least 1"
    )
    fail(TraceError, f"scan: checkpoint is {strategy!r}", hint)


# -- while and for ---------------------------------------------------------------------------------


@plain_tracebacks
def while_loop(
    cond_fun: Callable[[Any], Any], body_fun: Callable[[Any], Any], init_val: Any
) -> Any:
    """`val = body_fun(val)` as long as `cond_fun(val)` holds; gives the last val.

    >>> import tetrad as td
    >>> td.while_loop(lambda x: x < 100, lambda x: x * 2, 3)
    Array(192, int32)
    """
    check_functions("while_loop", cond_fun=cond_fun, body_fun=body_fun)
    if python_loops.runs_in_python():
        return python_loops.while_loop(cond_fun, body_fun, init_val)
    carries, tree = flatten(init_val)
    slots, body = settle("while_loop", body_fun, carries, (tree,), (), pair=False)
    condition = trace_body(cond_fun, (tree,), slots, ())
    if len(body.outputs) != len(carries):
        message = "while_loop: callbacks with effects need a carry that they can be ordered by"
        fail(UnsupportedError, message, "carry a counter: init_val=0, and return i + 1")
    if [o.type for o in condition.outputs] != [ArrayType(bool_, ())]:
        came = ", ".join(str(o.type) for o in condition.outputs) or "nothing"
        message = (
            f"while_loop: {condition.name} must return one bool without axes, it returns {came}"
        )
        fail(DtypeError, message, "compare, as in x > 0; td.any or td.all of several")
    asked, fixed = len(condition.captured), len(body.captured)
    params = {
        "condition": condition.graph(), "body": body.graph(), "condition_consts": asked,
        "body_consts": fixed,
    }  # fmt: skip

    def make(nodes: list[Node]) -> tuple[Node, ...]:
        consts = nodes[:asked], nodes[asked : asked + fixed]
        return make_while(params["condition"], params["body"], *consts, nodes[asked + fixed :])  # type: ignore[arg-type]

    operands = [*condition.consts, *body.consts, *placed(carries, slots)]
    return unflatten(tree, perform(loops.while_loop, make, operands, params) if carries else [])


@plain_tracebacks
def fori_loop(
    lower: Any,
    upper: Any,
    body_fun: Callable[[Any, Any], Any],
    init_val: Any,
    *,
    unroll: int | bool | None = None,
) -> Any:
    """`val = body_fun(i, val)` for i from lower up to upper, upper not included.

    Bounds that are Python ints make a `scan`, which has a derivative and takes `unroll`; others
    make a `while_loop`.

    >>> import tetrad as td
    >>> td.fori_loop(0, 5, lambda i, total: total + i, 0)
    Array(10, int32)
    """
    check_functions("fori_loop", body_fun=body_fun)
    if all(isinstance(bound, int | np.integer) for bound in (lower, upper)):
        begin, stop = int(lower), max(int(lower), int(upper))
        kind = i32 if fits(i32, begin, stop) else i64
        numbers = Array.from_numpy(np.arange(begin, stop, dtype=kind.np))
        step = named_like(body_fun, lambda val, i: (body_fun(i, val), None))
        return steps("fori_loop", step, init_val, numbers, unroll=1 if unroll is None else unroll)[
            0
        ]
    if unroll is True or unroll not in (None, False, 1):
        fail(
            TraceError,
            f"fori_loop: unroll is {unroll!r}, but how many steps there are is unknown",
            "use Python ints",
        )
    start, end = bound_arrays(lower, upper)
    one = scalar(1, start.type.dtype)
    advance = named_like(
        body_fun, lambda state: (run("add", state[0], one), body_fun(state[0], state[1]))
    )
    return while_loop(lambda state: run("less", state[0], end), advance, (start, init_val))[1]


def bound_arrays(*bounds: Any) -> list[Array]:
    """In 32 bits, unless a bound is wider."""
    found = [bound_array(bound) for bound in bounds]
    kind = i64 if any(x.type.dtype in (i64, u32, u64) for x in found) else i32
    return [convert(x, kind) for x in found]


def fits(kind: DType, *numbers: int) -> bool:
    limits = np.iinfo(kind.np)
    return all(limits.min <= number <= limits.max for number in numbers)


def bound_array(bound: Any) -> Array:
    if isinstance(bound, int | np.integer) and not isinstance(bound, bool):
        return scalar(int(bound), i32 if fits(i32, int(bound)) else i64)
    found = as_array(bound) if is_operand(bound) else None
    if found is None or found.type.shape or not found.type.dtype.is_integer:
        came = type(bound).__name__ if found is None else found.type
        fail(DtypeError, f"fori_loop: a bound is {came}, it must be an integer without axes")
    return found


def named_like(function: Callable[..., Any], wrapper: Callable[..., Any]) -> Callable[..., Any]:
    wrapper.__name__ = getattr(function, "__name__", type(function).__name__)
    return wrapper


# -- branches --------------------------------------------------------------------------------------


@plain_tracebacks
def cond(
    pred: Any,
    true_fun: Callable[..., Any],
    false_fun: Callable[..., Any],
    *operands: Any,
    operand: Any = ABSENT,
) -> Any:
    """`true_fun(*operands)` if pred holds, else `false_fun(*operands)`; only one of them runs.

    `operand=` gives the only one by name. The old form of JAX, `cond(pred, x, true_fun, y,
    false_fun)`, works too.

    >>> import tetrad as td
    >>> td.cond(td.asarray(3.0) > 2, lambda x: x + 1, lambda x: x * 10, 5.0)
    Array(6., float32)
    """
    if (
        len(operands) == 2
        and callable(false_fun)
        and callable(operands[1])
        and not callable(true_fun)
    ):
        other, when_true, when_false = operands[0], false_fun, operands[1]
        return cond(pred, lambda x, _: when_true(x), lambda _, y: when_false(y), true_fun, other)
    check_functions("cond", true_fun=true_fun, false_fun=false_fun)
    operands = with_operand("cond", operands, operand)
    chosen = as_array(pred) if is_operand(pred) else None
    if chosen is None or chosen.type.shape:
        came = type(pred).__name__ if chosen is None else chosen.type
        fail(
            DtypeError,
            f"cond: the condition must be one bool without axes, got {came}",
            "see td.where",
        )
    index = convert(chosen if chosen.type.dtype is bool_ else chosen != 0, i32)
    return branch("cond", index, (false_fun, true_fun), operands)


def with_operand(name: str, operands: tuple[Any, ...], operand: Any) -> tuple[Any, ...]:
    """The operands of a call; one given by name stands alone."""
    if operand is ABSENT:
        return operands
    if operands:
        fail(
            TraceError,
            f"{name}: operand= beside {len(operands)} other operands",
            "give all of them in order",
        )
    return (operand,)


@plain_tracebacks
def switch(
    index: Any, branches: Sequence[Callable[..., Any]], *operands: Any, operand: Any = ABSENT
) -> Any:
    """`branches[index](*operands)`; an index out of range takes the nearest branch. Only one branch
    runs.

    >>> import tetrad as td
    >>> td.switch(1, [lambda x: x + 1, lambda x: x * 10], 5.0)
    Array(50., float32)
    """
    if not isinstance(branches, Sequence):
        fail(
            TraceError,
            f"switch: the branches must be a list of functions, got {noun_of(branches)}",
            CALLS["switch"],
        )
    check_functions("switch", **{f"branch {i}": function for i, function in enumerate(branches)})
    chosen = as_array(index) if is_operand(index) else None
    if chosen is None or chosen.type.shape or not chosen.type.dtype.is_integer:
        came = type(index).__name__ if chosen is None else chosen.type
        fail(DtypeError, f"switch: the index must be an integer without axes, got {came}")
    operands = with_operand("switch", operands, operand)
    if not branches:
        fail(ShapeError, "switch: there are no branches")
    clamped = run(
        "minimum", run("maximum", chosen, scalar(0, chosen.dtype)), last_branch(chosen, branches)
    )
    return branch("switch", convert(clamped, i32), tuple(branches), operands)


def last_branch(index: Array, branches: Sequence[Any]) -> Array:
    """The greatest index, in the index's own dtype; what that cannot hold is never reached
    either."""
    return scalar(min(len(branches) - 1, int(np.iinfo(index.dtype.np).max)), index.dtype)


def branch(
    name: str, index: Array, functions: Sequence[Callable[..., Any]], operands: Sequence[Any]
) -> Any:
    if python_loops.runs_in_python():
        return tree_map(as_array, functions[int(index)](*operands))
    leaves, tree = flatten(operands)
    slots = [slot_of(name, leaf) for leaf in leaves]
    bodies = [trace_body(f, tree.parts, slots) for f in functions]
    check_branches(name, bodies)
    common = [
        common_slot([body.slots[i] for body in bodies]).type.dtype
        for i in range(len(bodies[0].slots))
    ]
    if any(
        slot.type.dtype is not dtype
        for body in bodies
        for slot, dtype in zip(body.slots, common, strict=True)
    ):
        bodies = [trace_body(f, tree.parts, slots, common) for f in functions]
    check_results(name, bodies)
    bodies = with_tokens(bodies)
    shared: Captured = {key: value for body in bodies for key, value in body.captured.items()}
    graphs = tuple(branch_graph(body, shared) for body in bodies)
    params = {"branches": graphs}

    def make(nodes: list[Node]) -> tuple[Node, ...]:
        return make_switch(nodes[0], nodes[1:], graphs)

    arrays = [index, *(value for value, _ in shared.values()), *placed(leaves, slots)]
    made = perform(loops.switch, make, arrays, params) if graphs[0].outputs else []
    return take(bodies[0].tree, iter(made))


def with_tokens(bodies: Sequence[Body]) -> list[Body]:
    """The branches with a token in all, if one that returns nothing has effects."""
    if not any(len(body.outputs) > len(body.slots) for body in bodies):
        return list(bodies)
    none = filled(0, TOKEN)
    return [
        body
        if len(body.outputs) > len(body.slots)
        else replace(body, outputs=(*body.outputs, none))
        for body in bodies
    ]


def common_slot(slots: Sequence[BodyInput]) -> BodyInput:
    """Numbers take the dtype that other branches give in their place."""
    found = slots[0]
    for slot in slots[1:]:
        found = joined(found, slot) if found.weak is not None else found
    return found


def branch_graph(body: Body, shared: Captured) -> Graph:
    """A branch as a function of everything that any branch captured, then of the operands."""
    inputs = [
        body.captured[key][1] if key in body.captured else make_parameter(node.type, -1, fresh=True)
        for key, (_, node) in shared.items()
    ]
    return make_graph(body.name, [*inputs, *body.parameters], body.outputs)


def check_branches(name: str, bodies: Sequence[Body]) -> None:
    for body in bodies[1:]:
        if body.tree != bodies[0].tree:
            first, other = branch_names(name, bodies, body)
            message = (
                f"{name}: {first} returns {sketch(bodies[0].tree)}, {other} returns "
                f"{sketch(body.tree)}"
            )
            fail(TraceError, message, "branches return the same tree: same containers, same keys")


def check_results(name: str, bodies: Sequence[Body]) -> None:
    first = bodies[0]
    for body in bodies[1:]:
        for leaf, a, b in zip(
            first.tree.leaf_names("result"), first.outputs, body.outputs, strict=False
        ):
            if a.type != b.type:
                error = DtypeError if a.type.shape == b.type.shape else ShapeError
                names = branch_names(name, bodies, body)
                hint = (
                    "convert one of them with astype"
                    if error is DtypeError
                    else "give both one shape"
                )
                fail(
                    error,
                    f"{name}: {leaf} is {a.type} in {names[0]} and {b.type} in {names[1]}",
                    hint,
                )


def branch_names(name: str, bodies: Sequence[Body], body: Body) -> tuple[str, str]:
    """What to call the first branch and this one: lambdas have all the same name."""
    places = (0, bodies.index(body))
    roles = (
        ("false_fun", "true_fun")
        if name == "cond"
        else tuple(f"branch {i}" for i in range(len(bodies)))
    )
    return tuple(f"{roles[i]} {bodies[i].name}" for i in places)  # type: ignore[return-value]
