"""Compiler, bad values: what `debug_nans` and `debug_infs` say of a result.

Receives a graph, what it was given and what it gave; raises a `NanError` that names the first op
with a bad result and the user's line. The graph is computed again with NumPy for that, without what
happens in it (prints).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from tetrad.core.errors import NanError, UnsupportedError
from tetrad.graph.culprit import HINT, bad_number, described, find, is_given
from tetrad.graph.effects import without_effects
from tetrad.graph.nodes import Graph

GIVEN = "look where it was made: td.debug.nans() around that call"


def check(
    graph: Graph,
    arrays: Sequence[np.ndarray],
    made: Sequence[np.ndarray],
    wanted: Sequence[str],
    names: Sequence[str] = (),
    dims: Mapping[str, int] | None = None,
) -> None:
    """Raise an error if a result is bad. `names`: of the arrays, for those that came bad."""
    bad = next((name for name in (bad_number(x, wanted) for x in made) if name), None)
    if bad is None:
        return
    try:
        calm = without_effects(graph, "a bad number is looked for")
        found = find(calm, arrays, wanted, dims)
    except UnsupportedError:
        message = f"{graph.name}: a result has {bad}; its callbacks are not called again to find it"
        raise NanError(message, hint=HINT) from None
    if found is None:
        message = f"{graph.name}: a result has {bad}, but not where NumPy computes it"
        raise NanError(message, hint="TETRAD_CHECK=1 compares every kernel with the evaluator")
    if is_given(found):
        place = calm.inputs.index(found.node) if found.node in calm.inputs else -1
        name = names[place] if 0 <= place < len(names) else "an argument"
        raise NanError(f"{graph.name}: a result has {bad}, because {name} has", hint=GIVEN)
    raise NanError(described(found, wanted), source=found.node.source, hint=HINT)
