"""JAX's names: `jax.core`, what libraries ask of it. Tracers are our traced arrays; there is no
interpreter of jaxprs to extend."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

from tetrad.jax._shell.tables import td
from tetrad.jax.interpreters.absent import stand_in
from tetrad.tracing.array import Array
from tetrad.tracing.array import TracedArray as Tracer
from tetrad.tracing.context import current_trace
from tetrad.tracing.trace import Spec

ShapedArray = AbstractValue = Spec
Jaxpr = ClosedJaxpr = Any
Atom = Value = Array | Tracer


def get_aval(x: Any) -> Spec:
    """The shape and dtype of a value."""
    return Spec(td.asarray(x).shape, td.asarray(x).dtype)


def is_concrete(x: Any) -> bool:
    return not isinstance(x, Tracer)


def concrete_or_error(force: Any, x: Any, context: str = "") -> Any:
    """The value as a Python number, if it is known."""
    return x if force is None else force(x)


def get_opaque_trace_state(*_: Any, **__: Any) -> Any:
    """Which function is being traced: equal while it is the same."""
    return current_trace()


def trace_state_clean() -> bool:
    return current_trace() is None


def ensure_compile_time_eval() -> AbstractContextManager[None]:
    return nullcontext()


eval_context = ensure_compile_time_eval


def __getattr__(name: str) -> Any:
    return stand_in(__name__, name)
