"""Debug, printing: what is shown while a program runs.

Receives a format and arrays, or a function and arrays; returns nothing. The call is part of the
program that is traced (`tracing.callbacks`): it is made each time the program comes there, in the
order of the program, and never dropped.
"""

from __future__ import annotations

import builtins
import logging
import pdb
import string
import sys
from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any

from tetrad.core.errors import TraceError
from tetrad.core.tree import flatten, unflatten
from tetrad.tracing.array import fail
from tetrad.tracing.callbacks import called
from tetrad.tracing.operands import is_operand
from tetrad.tracing.signature import check_function

NAME = "debug.callback"
LOGGER = logging.getLogger("tetrad.debug")


def callback(f: Callable[..., Any], /, *args: Any, ordered: bool = False, **kwargs: Any) -> None:
    """Call f(*args, **kwargs) with arrays of NumPy's each time the program comes here. What it
    returns is ignored, what it raises reaches the caller of the program.

    Calls are made in the order of the program, whether `ordered` is set or not: once a step of a
    loop, for each row of a batch, and once for all rows if no argument depends on the row. A
    derivative makes them in its forward part. Arguments that are no arrays f gets as they are.

    >>> import tetrad as td
    >>> seen = []
    >>> _ = td.jit(lambda x: td.debug.callback(seen.append, x) or x * 2)(3.0)
    >>> seen
    [array(3., dtype=float32)]
    """
    check_function(f"{NAME}: f", f, f"td.{NAME}(f, *args)")
    leaves, tree = flatten((args, kwargs))
    is_array = [is_operand(leaf) for leaf in leaves]

    @wraps(f, updated=())
    def run(*arrays: Any) -> None:
        given = iter(arrays)
        whole = [next(given) if a else leaf for a, leaf in zip(is_array, leaves, strict=True)]
        positional, named = unflatten(tree, whole)
        f(*positional, **named)

    shown = tuple(leaf for a, leaf in zip(is_array, leaves, strict=True) if a)
    called(NAME, run, None, shown, {}, "sequential", happens=True)


def print(fmt: str, *args: Any, ordered: bool = False, **kwargs: Any) -> None:
    """Print values each time the program comes here: `fmt.format(*args, **kwargs)` with arrays of
    NumPy's. As `td.debug.callback` otherwise.

    >>> import tetrad as td
    >>> f = td.jit(lambda x: td.debug.print("x is {}, {y:.1f} squared", x, y=x * x) or x)
    >>> _ = f(3.0)
    x is 3.0, 9.0 squared
    """
    formatted("print", builtins.print, fmt, args, kwargs)


def log(fmt: str, *args: Any, ordered: bool = False, **kwargs: Any) -> None:
    """As `td.debug.print`, to the log: the logger is "tetrad.debug", the level INFO.

    >>> import logging, sys
    >>> import tetrad as td
    >>> logger, handler = logging.getLogger("tetrad.debug"), logging.StreamHandler(sys.stdout)
    >>> logger.addHandler(handler), logger.setLevel(logging.INFO)
    (None, None)
    >>> _ = td.jit(lambda x: td.debug.log("x is {}", x) or x)(3.0)
    x is 3.0
    >>> logger.removeHandler(handler)
    """
    formatted("log", say_to_log, fmt, args, kwargs)


def say_to_log(line: str) -> None:
    LOGGER.info("%s", line)  # a per cent sign in the line is no format


def formatted(
    name: str,
    say: Callable[[str], None],
    fmt: str,
    args: Sequence[Any],
    kwargs: dict[str, Any],
) -> None:
    """Call say(fmt.format(*args, **kwargs)) each time the program comes here."""
    if not isinstance(fmt, str):
        hint = f'td.debug.{name}("x = {{}}", x)'
        fail(TraceError, f"debug.{name}: the format is {type(fmt).__name__}, not a string", hint)
    check_format(name, fmt, args, kwargs)

    def show(*values: Any, **named: Any) -> None:
        say(fmt.format(*values, **named))

    callback(show, *args, **kwargs)


def check_format(name: str, fmt: str, args: Sequence[Any], kwargs: dict[str, Any]) -> None:
    """An error for a field without a value and a value without a field, while the line is known."""
    try:
        fields = {field.replace("[", ".").split(".")[0] for field in names_in(fmt)}
    except ValueError as error:
        fail(TraceError, f"debug.{name}: {fmt!r} is no format: {error}", "write {{ for a brace")
    if "" in fields and any(field.isdigit() for field in fields):
        fail(TraceError, f"debug.{name}: {fmt!r} mixes {{}} with numbered fields", "use one kind")
    count = sum(field == "" or field[0] in ".[" for field in names_in(fmt))
    places = {str(i) for i in range(count)} | {field for field in fields if field}
    given = {str(i) for i in range(len(args))} | set(kwargs)
    if missing := sorted(places - given):
        shown = ", ".join(missing)
        hint = f'give {shown}: td.debug.{name}("{{x}} {{}}", value, x=x); {{{{ prints a brace'
        fail(TraceError, f"debug.{name}: {fmt!r} has fields without a value: {shown}", hint)
    if unused := sorted(given - places):
        shown = ", ".join(f"number {field}" if field.isdigit() else field for field in unused)
        hint = (
            f'every value has a {{}} or {{name}}: td.debug.{name}("x = {{}}", x), not an f-string'
        )
        fail(TraceError, f"debug.{name}: {fmt!r} has no field for these values: {shown}", hint)


def names_in(fmt: str) -> list[str]:
    """The names of the fields, those inside of format specs too: "" for {}."""
    found = []
    for _, name, spec, _ in string.Formatter().parse(fmt):
        if name is not None:
            found.append(name)
            found += names_in(spec or "")
    return found


def breakpoint(*args: Any, **kwargs: Any) -> None:
    """Stop here in Python's debugger each time the program comes here; `values` and `named` hold
    the arrays given.

        td.debug.breakpoint(x, loss=loss)
    """

    def stop(*values: Any, **named: Any) -> None:
        pdb.Pdb(stdout=sys.stdout).set_trace(sys._getframe())

    callback(stop, *args, **kwargs)
