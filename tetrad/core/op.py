"""Core: what an op is. One definition, with every rule attached to it.

`@op(...)` turns a NumPy function (the meaning) into an `Op`. Calling an op on NumPy arrays
evaluates it. Calling it on anything that has `__tetrad_op__` (graph nodes, traced arrays, rewrite
patterns) dispatches to that method, so users, rules and lowering all write the same function.
Conformance tests, the fuzzer and the public namespace walk `REGISTRY`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from tetrad.core import lazy
from tetrad.core.dtypes import DType
from tetrad.core.record import field, record
from tetrad.core.types import ArrayType

TypeRule = Callable[..., "ArrayType | tuple[ArrayType, ...]"]  # a tuple: the op has several results
Rule = Callable[..., Any]
# or a rule(*types, **params), where it depends on the types of the operands
Trait = bool | Callable[..., bool]


@record
class Case:
    """One test input of an op: arrays and settings."""

    args: tuple[np.ndarray, ...]
    params: dict[str, Any] = field(default_factory=dict)


# draws a random case; sizes 0, 1, primes and special values included
Cases = Callable[["np.random.Generator"], Case]

KINDS = ("elementwise", "movement", "reduce", "special", "structural")
REGISTRY: lazy.Filled[Op] = lazy.Filled()  # `ops` names the modules that fill it


@record(frozen=False, eq=False)
class Op:
    """A tensor op. `kind` says which lowering it takes part in:

    elementwise  `lower(k, *values, **params)` computes one element from the operands' elements at
                 the same index
    movement     `read(k, at, *operands, **params)` computes the element at index `at` by reading
                 operands elsewhere
    reduce       `monoid` folds elements over `axes`
    special      `kernel(frame, group)` writes kernels of its own; in the package it lies in
                 ops/<family>/kernel.py
    structural   parameter, constant, call, item, loops: the graph language itself

    How it is differentiated and batched is attached beneath the definition too; these rules work on
    whole operands, by applying ops to them:

    jvp         one rule for each operand: rule(tangent, result, *operands, **params) is what a
                change of that operand adds to the change of the result; None where the op is not
                differentiable in it
    transpose   the op is linear in each operand that has a rule: rule(cotangent, *operands,
                **params) is the cotangent of that operand (of which only the type may be asked);
                its jvp follows
    batch       rule(batched, *operands, **params): operands with `batched` have a new leading
                axis, the result has it; None: there is nothing better than one row after the other

    split       how it works on complex numbers: rule(*operands, **params), where a complex operand
                is a pair of nodes, its real and its imaginary part; the result is such a pair, or
                a node when it is real. An op on complex numbers without this rule has a generator
                that takes them as they lie in memory

    Passes and lowering ask an op for its traits, never for its name: `in_place`, `leaf` and those
    that follow. Each has a meaning of its own: a new op says what it is, and nothing else changes.
    """

    name: str
    kind: str
    reference: Callable[..., Any]
    type: TypeRule
    cases: Cases | None = None
    # largest error of compiled code against the reference; absent means exact
    ulps: Mapping[DType, float] = field(default_factory=dict)
    dtypes: tuple[DType, ...] = ()  # operand types that are compiled
    promote: str = "none"  # how the public function treats operand types, see core.promotion
    # the op that the public function applies to truth values instead; "" leaves them as they are
    truth: str | None = None
    public: bool = True
    typed: bool = (
        # the reference also wants the operands' types, as `types=`: quantised blocks are bytes to
        # NumPy
        False
    )
    in_place: bool = False  # the result lies where operand 0 lay, changed in some places
    leaf: bool = False  # a value that is there before anything is computed: parameter, constant
    view: bool = False  # operand 0 in another shape, its elements in their order: the same memory
    strided: bool = False  # operand 0 at other strides of its memory: who reads may read through it
    spreads: bool = False  # elements of operand 0, each in many places
    sized: bool = False  # its settings are sizes and places, which a kernel may be told
    stops_gradient: bool = False  # operand 0, which no derivative sees change
    converts: bool = False  # operand 0 in another element type
    # operands that it reads from memory only; None: all of a special or structural op, else none
    in_memory: tuple[int, ...] | None = None
    # it stops programs on some operands; None: if it is special
    may_fail: Trait | None = None
    foldable: bool = True  # it may be computed when a program is compiled, where all is known then
    portable: bool = True  # False: its settings hold objects of this process, so that a program
    # with it is not kept on disk
    # it does something beside computing its results: each node of it runs once a step, in order,
    # also if nobody needs the results (graph.effects)
    effectful: bool = False
    # its kernels read operands through views, and do light elementwise work on them as they read
    prologue: Trait = False
    # its kernels do the elementwise work on the result before they store it, and so give buffers to
    # what they read (`frame.inputs`) themselves
    epilogue: Trait = False
    # an element is so cheap to compute where it is read that a product needs no memory for it (the
    # op has a `read` rule beside its kernels): loops, branches and derivatives compute it again
    inline: bool = False
    # Operations per element, roughly: 1 arithmetic, 20 transcendental. Fusion recomputes cheap ops.
    cost: int = 1
    lower_rule: Callable[..., Any] | None = None
    # a cheaper `lower_rule` for an operand that is known to be never positive
    nonpositive_rule: Callable[..., Any] | None = None
    # which elements are an error, eager and compiled
    refuse_rule: Callable[..., Any] | None = None
    read_rule: Callable[..., Any] | None = None
    kernel_rule: Callable[..., Any] | None = None
    monoid: Any = None
    jvp_rules: tuple[Rule | None, ...] | None = None
    transpose_rules: tuple[Rule | None, ...] | None = None
    # rule(tangents, result, *operands, **params) for any number of operands; a tangent None is zero
    joint_jvp: Rule | None = None
    # rule(cotangent, is_linear, *operands, **params): one for each operand or None
    joint_transpose: Rule | None = None
    batch_rule: Rule | None = None
    split_rule: Rule | None = None
    no_derivative: str = ""  # why it has none
    # rule(ask, node) is 1 where no element is negative, -1 where none is positive, 0 if not known;
    # ask(operand) is its sign (loopnest.sign_analysis)
    sign: Callable[..., int] | None = None

    def __call__(self, *args: Any, **params: Any) -> Any:
        for arg in args:
            handler = getattr(type(arg), "__tetrad_op__", None)
            if handler is not None:
                return handler(self, args, params)
        return self.reference(*args, **params)

    def lower(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Attach: computes one element of the result from the operands' elements, in kernel
        instructions."""
        self.lower_rule = function
        return function

    def lower_nonpositive(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Attach: the same function, to the bit, for an operand that is known to be never positive
        (or NaN)."""
        self.nonpositive_rule = function
        return function

    def refuse(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Attach: rule(k, dtype, *elements, **params) says which elements stop an elementwise op.
        It returns a condition, the number to report, and a function from that number to the error;
        or None if no element does."""
        self.refuse_rule = function
        return function

    def read(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Attach: the element at an index, read from operands at other indices."""
        self.read_rule = function
        return function

    def kernel(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Attach: rule(frame, group) writes the kernels of the op, and returns a launch or
        several."""
        self.kernel_rule = function
        return function

    def jvp(self, *rules: Rule | None) -> Any:
        """Attach: for each operand, what its tangent adds to the tangent of the result."""
        self.jvp_rules = rules
        return rules[0]

    def transpose(self, *rules: Rule | None) -> Any:
        """Attach: the op is linear in these operands; each rule gives one cotangent."""
        self.transpose_rules = rules
        return rules[0]

    def jvp_of_all(self, rule: Rule) -> Rule:
        """Attach: the tangent of the result from those of all operands at once (None: no
        change)."""
        self.joint_jvp = rule
        return rule

    def transpose_of_all(self, rule: Rule) -> Rule:
        """Attach: cotangents of all operands at once, `None` for those that are not linear."""
        self.joint_transpose = rule
        return rule

    def batch(self, rule: Rule) -> Rule:
        """Attach: the op on operands of which some have a new leading axis."""
        self.batch_rule = rule
        return rule

    def split(self, rule: Rule) -> Rule:
        """Attach: the op on complex operands, each given as its real and its imaginary part."""
        self.split_rule = rule
        return rule

    def not_differentiable(self, why: str) -> None:
        """Say why there is no derivative: the result does not change with the operands, or it is
        undefined."""
        self.no_derivative = why

    @property
    def __doc__(self) -> str | None:  # type: ignore[override]
        return self.reference.__doc__

    def __repr__(self) -> str:
        return f"<op {self.name}>"


def op(
    *, type: TypeRule, kind: str = "elementwise", **fields: Any
) -> Callable[[Callable[..., Any]], Op]:
    """Define an op from the NumPy function that is its meaning."""

    def define(function: Callable[..., Any]) -> Op:
        name = fields.pop("name", function.__name__.rstrip("_"))
        if dict.__contains__(REGISTRY, name):
            raise ValueError(f"op {name} is defined twice")
        made = Op(name, kind, function, type, **fields)
        REGISTRY[name] = made
        return made

    return define
