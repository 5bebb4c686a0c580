"""Libraries over JAX, unchanged over `tetrad.jax`: the same numbers as with JAX.

Each program (`against_<library>.py`) runs twice in processes of its own, over JAX and over us.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.util import find_spec

import numpy as np
import pytest

from tests.modules import ROOT

LIBRARIES = ("optax", "blackjax", "jaxopt", "jraph")


def printed(library: str, over: str) -> dict[str, object]:
    command = [sys.executable, "-m", f"tests.jax.against_{library}", over]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    lines = [line for line in done.stdout.splitlines() if line.startswith("[")]
    assert lines, done.stderr[-2000:]
    return dict(json.loads(line) for line in lines)


@pytest.mark.parametrize("library", LIBRARIES)
def test_a_library_computes_what_it_computes_with_jax(library: str) -> None:
    if find_spec("jax") is None or find_spec(library) is None:
        pytest.skip(f"{library} is not installed here")
    wanted, found = printed(library, "jax"), printed(library, "tetrad")
    assert found.keys() == wanted.keys()
    for name, numbers in wanted.items():
        assert not isinstance(numbers, str), (name, numbers)
        assert not isinstance(found[name], str), (name, found[name])
        np.testing.assert_allclose(found[name], numbers, rtol=2e-3, atol=2e-5, err_msg=name)
