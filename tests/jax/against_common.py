"""What the programs of libraries over JAX share: over which JAX they run, and how they say what
came out.

`python -m tests.jax.against_<library> tetrad` runs over `tetrad.jax`, with `jax` over JAX itself;
each part prints one line: its name, and its numbers or the error.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any

import numpy as np


def choose() -> None:
    """Let `import jax` find what the command line says; threefry for both."""
    if sys.argv[1] == "tetrad":
        import tetrad.jax

        tetrad.jax.install()
    import jax

    jax.config.update("jax_default_prng_impl", "threefry2x32")


def told(parts: dict[str, Callable[[], Any]]) -> None:
    """Run each part, and print what it gives: a tree of arrays as a list of numbers."""
    import jax

    for name, part in parts.items():
        if sys.argv[2:] and name not in sys.argv[2:]:
            continue
        try:
            leaves = jax.tree.leaves(part())
            numbers = [float(v) for x in leaves for v in np.asarray(x, np.float64).ravel()]
            print(json.dumps([name, numbers]), flush=True)
        except Exception as error:
            print(json.dumps([name, f"{type(error).__name__}: {error}"]), flush=True)
