"""Kernel language: what one invocation of a kernel does, as an immutable `Program`.

`build` makes programs, `parse` reads their text, `verify` checks them, `evaluate` computes their
meaning; `registry` holds programs with known answers. `tetrad.dispatch` runs one, over `resident`
buffers without copies; `call` makes one an op. Each is imported
when first used: a program read from disk needs the nodes only.
"""

import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

from tetrad.core import lazy

if TYPE_CHECKING:
    from tetrad.kernel import registry
    from tetrad.kernel.build import KernelBuilder, LocalVar, Val
    from tetrad.kernel.bytes import from_bytes, to_bytes
    from tetrad.kernel.composition import composition
    from tetrad.kernel.evaluate import KernelTrap, evaluate
    from tetrad.kernel.later import *  # noqa: F403
    from tetrad.kernel.nodes import Buffer, Program
    from tetrad.kernel.packing import pack, pack_bytes_as_u32, pack_into, unpack
    from tetrad.kernel.registry import extension_id, has_trap
    from tetrad.kernel.text import fingerprint, parse, to_text
    from tetrad.kernel.verify import problems, verify

    build = KernelBuilder

__all__ = [
    "Buffer", "KernelBuilder", "KernelTrap", "LocalVar", "Program", "Val",
    "build", "composition", "evaluate", "fingerprint", "from_bytes", "parse", "problems",
    "registry", "to_bytes", "to_text", "verify",
    "extension_id", "has_trap", "pack", "pack_bytes_as_u32", "pack_into", "unpack",
]  # fmt: skip

HOMES = {  # name -> module
    **dict.fromkeys(("KernelBuilder", "LocalVar", "Val"), "build"), **dict.fromkeys(("Buffer",
    "Program"), "nodes"),
    **dict.fromkeys(("fingerprint", "parse", "to_text"), "text"), "KernelTrap": "evaluate",
    "problems": "verify", "from_bytes": "bytes", "to_bytes": "bytes",
    "extension_id": "registry", "has_trap": "registry",
    **dict.fromkeys(("pack", "pack_bytes_as_u32", "pack_into", "unpack"), "packing"),
}  # fmt: skip


# what lies further up: name -> what it is asked for as
PROVIDED = {"call": "running kernels", "resident": "running kernels", "ptx": "ptx"}
__all__ += list(PROVIDED)


if not TYPE_CHECKING:  # which would take any name for one of ours

    def __getattr__(name: str) -> Any:
        if name == "registry":
            return lazy.module("tetrad.kernel.registry")
        if name in PROVIDED:
            return getattr(lazy.provided(PROVIDED[name]), name)
        if name not in HOMES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        globals()[name] = found = getattr(lazy.module(f"tetrad.kernel.{HOMES[name]}"), name)
        return found


def __dir__() -> list[str]:
    return __all__


def face(module: str, name: str) -> property:
    """A function of the same name as its module. Importing the module would set the attribute to
    the module; the property keeps the function."""

    def put(kernel: ModuleType, value: object) -> None:
        if not isinstance(value, ModuleType):
            raise AttributeError(f"tetrad.kernel.{module} is not to be changed")

    return property(lambda kernel: getattr(lazy.module(f"tetrad.kernel.{module}"), name), put)


class KernelPackage(ModuleType):
    """This package."""


for module, name in (
    ("build", "KernelBuilder"),
    ("composition", "composition"),
    ("evaluate", "evaluate"),
    ("verify", "verify"),
):
    setattr(KernelPackage, module, face(module, name))
sys.modules[__name__].__class__ = KernelPackage
