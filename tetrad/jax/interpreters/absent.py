"""JAX's names, interpreters: what stands for their parts. Libraries name them when they load; using
one is an error."""

from __future__ import annotations

import functools
from importlib.machinery import ModuleSpec
from importlib.util import module_from_spec
from types import ModuleType
from typing import Any, NoReturn

from tetrad.core.errors import UnsupportedError
from tetrad.jax._shell import tables

NAMES = {  # what libraries name
    "core": """
        Effect JaxprEqn JaxprTypeError Literal ParamDict Primitive Trace TraceTag Var eval_jaxpr
        find_top_trace jaxpr_as_fun mapped_aval physical_aval primitives raise_to_shaped
        unmapped_aval
    """,
    "ad": """
        JVPTracer UndefinedPrimal Zero instantiate_zeros is_undefined_primal primitive_jvps
        primitive_transposes
    """,
    "batching": "BatchTracer axis_primitive_batchers is_vmappable not_mapped primitive_batchers",
    "mlir": "emit_python_callback lower_fun register_lowering",
    "partial_eval": "PartialVal trace_to_jaxpr_dynamic trace_to_jaxpr_nounits",
    "pxla": "global_result_handlers",
    "xla": "canonicalize_dtype_handlers pytype_aval_mappings",
}


class AbsentPart:
    """A part of JAX's interpreters: a table that takes entries and has none, a class of which there
    are no objects, a function that cannot be called."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __call__(self, *_: Any, **__: Any) -> NoReturn:
        raise UnsupportedError(
            f"{self.name}: Tetrad has no interpreters of jaxprs to extend",
            hint="td.custom_vjp and td.custom_jvp give functions rules of their own",
        )

    def __setitem__(self, key: Any, value: Any) -> None:
        """A rule for a primitive, of which there are none."""


def stand_in(module: str, name: str) -> Any:
    if name not in NAMES[module.rpartition(".")[2]].split():
        raise tables.absent(module, name)
    full = f"{module.replace('tetrad.', '', 1)}.{name}"
    return type(name, (), {"is_absent": True}) if name[0].isupper() else AbsentPart(full)


def module_of_absent(name: str) -> ModuleType:
    """A module of parts that are not here: it stands in no file."""
    module = module_from_spec(ModuleSpec(name, None))
    vars(module)["__getattr__"] = functools.partial(stand_in, name)
    return module
