"""JAX's names, transforms: those whose settings or results differ from `td`'s."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from tetrad.core.tree import flatten
from tetrad.jax._shell.tables import td
from tetrad.jax.core import get_aval as typeof  # noqa: F401
from tetrad.tracing.array import Array
from tetrad.tracing.trace import Spec

Function = Callable[..., Any]
# settings of jax.jit about devices, XLA and tracing that change nothing here
IGNORED = (
    "device", "backend", "inline", "keep_unused", "in_shardings", "out_shardings",
    "compiler_options", "abstracted_axes",
)  # fmt: skip


def jit(fun: Function | None = None, /, **settings: Any) -> Any:
    """Compile a function of arrays, with JAX's settings; those about devices change nothing.

    >>> import tetrad.jax as jax
    >>> jit(lambda x: 2 * x)(3.0)
    Array(6., float32)
    """
    kept = {
        name: () if value is None else value
        for name, value in settings.items()
        if name not in IGNORED
    }
    return functools.partial(jit, **settings) if fun is None else td.jit(fun, **kept)


def custom_gradient(fun: Function) -> Any:
    """A function that returns its value and the function of its cotangents."""

    def value_of(*args: Any) -> Any:
        return fun(*args)[0]

    def forward(*args: Any) -> Any:
        return fun(*args)[0], args

    def backward(args: Any, cotangent: Any) -> Any:
        found = fun(*args)[1](cotangent)
        return found if isinstance(found, tuple) else (found,)

    value: Any = td.custom_vjp(functools.wraps(fun)(value_of))
    value.defvjp(forward, backward)
    return value


def closure_convert(fun: Function, *example_args: Any) -> tuple[Function, list[Any]]:
    """The function, and the arrays it has from outside: none, because what a function of `td` has
    from outside is seen by derivatives."""

    def converted(*args: Any) -> Any:
        return fun(*args[: len(example_args)])

    return converted, []


class Jaxpr:
    """What `make_jaxpr` gives: our graph, which prints as one line for each operation."""

    def __init__(self, graph: Any, tree: Any) -> None:
        self.graph, self.tree = graph, tree

    @property
    def jaxpr(self) -> Jaxpr:
        return self

    @property
    def consts(self) -> list[Any]:
        return []

    @property
    def eqns(self) -> list[Any]:
        """The nodes that compute something, in order."""
        return [node for node in self.graph.nodes if node.inputs]

    @property
    def in_avals(self) -> list[Spec]:
        return [Spec(node.type.shape, node.type.dtype) for node in self.graph.inputs]

    @property
    def out_avals(self) -> list[Spec]:
        return [Spec(node.type.shape, node.type.dtype) for node in self.graph.outputs]

    def __str__(self) -> str:
        return str(self.graph)

    __repr__ = __str__


def make_jaxpr(
    fun: Function,
    static_argnums: Any = (),
    axis_env: Any = None,
    return_shape: bool = False,
    **_: Any,
) -> Function:
    """A function that gives the graph of a call.

    >>> import tetrad.jax as jax
    >>> "sin" in str(make_jaxpr(jax.numpy.sin)(1.0))
    True
    """
    traced = td.jit(fun, static_argnums=static_argnums)
    for name, size in axis_env or ():
        traced = td.vmap(traced, axis_name=name, axis_size=size, in_axes=None)

    def made(*args: Any, **kwargs: Any) -> Any:
        whole = td.jit(traced) if axis_env else traced
        graph = whole.trace(*args, **kwargs).graph
        result = Jaxpr(graph, flatten((args, kwargs))[1])
        return (result, td.eval_shape(fun, *args, **kwargs)) if return_shape else result

    return made


def fwd_and_bwd(
    fun: Function, argnums: int | Sequence[int], has_aux: bool = False, jitted: bool = True
) -> tuple[Function, Function]:
    """The forward pass, which gives the value and a tree of what is kept, and the backward pass."""
    chosen = (argnums,) if isinstance(argnums, int) else tuple(argnums)

    def forward(*args: Any) -> Any:
        def inner(*some: Any) -> Any:
            given = list(args)
            for at, value in zip(chosen, some, strict=True):
                given[at] = value
            return fun(*given)

        return td.vjp(inner, *[args[i] for i in chosen], has_aux=has_aux)

    def backward(kept: Any, cotangents: Any) -> Any:
        found = kept(cotangents)
        return found[0] if isinstance(argnums, int) else found

    return (jit(forward), jit(backward)) if jitted else (forward, backward)


@contextmanager
def ensure_compile_time_eval() -> Iterator[None]:
    """What is computed from known values inside is computed at once, as it is everywhere."""
    yield


@contextmanager
def checking_leaks() -> Iterator[None]:
    """A traced value that leaves its function is always an error here."""
    yield


def clear_caches() -> None:
    """Compiled programs are kept by the functions they belong to, and go with them."""


def effects_barrier() -> None:
    """Every call has had its effects when it returns."""


def live_arrays(platform: str | None = None) -> list[Array]:
    """Arrays are counted by Python; there is no list of them."""
    raise td.errors.UnsupportedError(
        "jax.live_arrays: there is no list of arrays", hint="gc.get_objects()"
    )
