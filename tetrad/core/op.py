"""Station 0, shared words: what an op is. One definition, every rule attached beneath it.

`@op(...)` turns a NumPy function (the meaning) into an `Op`. Calling an op on NumPy arrays
evaluates it; calling it on anything that has `__tetrad_op__` (graph nodes, traced arrays, rewrite
patterns) hands the call over, so users, rules and lowering all write the same function. The
registry is what conformance tests, the fuzzer and the public namespace walk.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from tetrad.core.dtypes import DType
from tetrad.core.record import field, record
from tetrad.core.types import ArrayType

TypeRule = Callable[..., "ArrayType | tuple[ArrayType, ...]"]  # a tuple: the op has several results
Rule = Callable[..., Any]


@record
class Case:
    """One test input of an op: arrays and settings."""

    args: tuple[np.ndarray, ...]
    params: dict[str, Any] = field(default_factory=dict)


# draws a random case; sizes 0, 1, primes and special values included
Cases = Callable[["np.random.Generator"], Case]

KINDS = ("elementwise", "movement", "reduce", "special", "structural")
REGISTRY: dict[str, Op] = {}


@record(frozen=False, eq=False)
class Op:
    """A tensor op. `kind` says which lowering it takes part in:

    elementwise  `lower(k, *values, **params)` computes one element from the operands' elements at
                 the same index
    movement     `read(k, at, *operands, **params)` computes the element at index `at` by reading
                 operands elsewhere
    reduce       `monoid` folds elements over `axes`
    special      has a generator of its own in lower/
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
    """

    name: str
    kind: str
    reference: Callable[..., Any]
    type: TypeRule
    cases: Cases | None = None
    # compiled against eager; absent means exact
    ulps: Mapping[DType, float] = field(default_factory=dict)
    dtypes: tuple[DType, ...] = ()  # operand types that are compiled
    promote: str = "none"  # how the public function treats operand types, see core.promotion
    public: bool = True
    typed: bool = (
        # the reference also wants the operands' types, as `types=`: quantised blocks are bytes to
        # NumPy
        False
    )
    in_place: bool = False  # the result lies where operand 0 lay, changed in some places
    # rough operations per element: 1 arithmetic, 20 transcendental; fusion recomputes cheap ones
    # only
    cost: int = 1
    lower_rule: Callable[..., Any] | None = None
    # a cheaper `lower_rule` for an operand that is never positive
    nonpositive_rule: Callable[..., Any] | None = None
    # elements that are an error, in compiled code as when eager
    refuse_rule: Callable[..., Any] | None = None
    read_rule: Callable[..., Any] | None = None
    monoid: Any = None
    jvp_rules: tuple[Rule | None, ...] | None = None
    transpose_rules: tuple[Rule | None, ...] | None = None
    # rule(tangents, result, *operands, **params): for any number of operands; None: zero
    joint_jvp: Rule | None = None
    # rule(cotangent, is_linear, *operands, **params): one for each operand or None
    joint_transpose: Rule | None = None
    batch_rule: Rule | None = None
    split_rule: Rule | None = None
    no_derivative: str = ""  # why it has none

    def __call__(self, *args: Any, **params: Any) -> Any:
        for arg in args:
            handler = getattr(type(arg), "__tetrad_op__", None)
            if handler is not None:
                return handler(self, args, params)
        return self.reference(*args, **params)

    def lower(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Attach: one element of the result from the operands' elements, in kernel instructions."""
        self.lower_rule = function
        return function

    def lower_nonpositive(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Attach: the same function, to the bit, where the operand is known to be never positive
        (or NaN)."""
        self.nonpositive_rule = function
        return function

    def refuse(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Attach: rule(k, dtype, *elements, **params) is what stops an elementwise op: a condition,
        the number that is reported and the error it makes of that; or None, if nothing can."""
        self.refuse_rule = function
        return function

    def read(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Attach: the element at an index, read from operands at other indices."""
        self.read_rule = function
        return function

    def jvp(self, *rules: Rule | None) -> Any:
        """Attach: what a change of each operand adds to the change of the result."""
        self.jvp_rules = rules
        return rules[0]

    def transpose(self, *rules: Rule | None) -> Any:
        """Attach: the op is linear in these operands, and this is how cotangents go back to
        each."""
        self.transpose_rules = rules
        return rules[0]

    def jvp_of_all(self, rule: Rule) -> Rule:
        """Attach: the change of the result from the changes of all operands at once (`None` is no
        change)."""
        self.joint_jvp = rule
        return rule

    def transpose_of_all(self, rule: Rule) -> Rule:
        """Attach: cotangents of all operands at once, `None` for those that are not linear."""
        self.joint_transpose = rule
        return rule

    def batch(self, rule: Rule) -> Rule:
        """Attach: the op on operands some of which have a new leading axis."""
        self.batch_rule = rule
        return rule

    def split(self, rule: Rule) -> Rule:
        """Attach: the op on complex operands, each given as its real and its imaginary part."""
        self.split_rule = rule
        return rule

    def not_differentiable(self, why: str) -> None:
        """Say aloud that changes of the operands do not change the result, or that nobody may
        ask."""
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
        if name in REGISTRY:
            raise ValueError(f"op {name} is defined twice")
        made = Op(name, kind, function, type, **fields)
        REGISTRY[name] = made
        return made

    return define
