"""JAX's names, installation: `import jax` finds `tetrad.jax`.

`install` adds a finder to the front of `sys.meta_path`: `jax` and `jax.<any>` are the modules of
this package, loaded when they are first imported. `jaxlib` is a package without content, for
libraries that ask for its version.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import ModuleType

from tetrad.core import lazy
from tetrad.core.errors import UnsupportedError

OURS = "tetrad.jax"
NAMES = ("jax", "jaxlib")
EMPTY = ("jaxlib", "jaxlib.xla_client", "jaxlib.xla_extension", "jaxlib.version")


class AliasLoader(Loader):
    """Gives a module of ours by another name."""

    def __init__(self, target: str) -> None:
        self.target = target
        self.spec: ModuleSpec | None = None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        module: ModuleType = lazy.module(self.target)
        self.spec = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        module.__spec__ = self.spec  # the import system has set that of the alias


class ObjectLoader(Loader):
    """Gives an object of ours as a module: `import jax.scipy.stats.norm` names a distribution."""

    def __init__(self, target: object) -> None:
        self.target = target

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return ModuleType(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        names = [name for name in dir(self.target) if not name.startswith("_")]
        vars(module).update({name: getattr(self.target, name) for name in names})


class JaxFinder(MetaPathFinder):
    """Finds `jax` and `jaxlib` here."""

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        first, _, rest = name.partition(".")
        if first not in NAMES:
            return None
        if first == "jaxlib" and name not in EMPTY:
            return None
        ours = f"{OURS}._shell.jaxlib" if name in EMPTY else f"{OURS}.{rest}" if rest else OURS
        if find_spec(ours) is not None:
            return ModuleSpec(name, AliasLoader(ours), is_package=True)
        parent, _, last = ours.rpartition(".")
        found = getattr(lazy.module(parent), last, None)
        return None if found is None else ModuleSpec(name, ObjectLoader(found))


FINDER = JaxFinder()


def install() -> None:
    """Let `import jax` find `tetrad.jax`, in this process. JAX itself must not be loaded yet.

    >>> import tetrad.jax
    >>> tetrad.jax.install()
    >>> import jax
    >>> jax is tetrad.jax
    True
    >>> tetrad.jax.uninstall()
    """
    loaded = sys.modules.get("jax")
    if loaded is not None and loaded is not lazy.module(OURS):
        raise UnsupportedError(
            "install: jax itself is loaded", hint="call tetrad.jax.install() before other imports"
        )
    if FINDER not in sys.meta_path:
        sys.meta_path.insert(0, FINDER)
    for name in NAMES:
        lazy.module(name)


def uninstall() -> None:
    """Let `import jax` find JAX again."""
    if FINDER in sys.meta_path:
        sys.meta_path.remove(FINDER)
    for name in [n for n in sys.modules if n.partition(".")[0] in NAMES]:
        if sys.modules[name].__name__.startswith(OURS):
            del sys.modules[name]
