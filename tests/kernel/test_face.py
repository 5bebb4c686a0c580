"""The public names of the kernel language: loaded when used, functions before modules of the same
name."""

from __future__ import annotations

import subprocess
import sys

import pytest

import tetrad.kernel.build
import tetrad.kernel.evaluate
import tetrad.kernel.verify  # noqa: F401  (a loaded module would hide the function)
from tests.modules import ROOT
from tetrad import kernel


def test_every_public_name_is_there() -> None:
    own = [name for name in kernel.__all__ if name not in ("registry", *kernel.PROVIDED)]
    assert {getattr(kernel, name).__module__ for name in own} == {
        f"tetrad.kernel.{module}"
        for module in (
            "build", "bytes", "composition", "evaluate", "nodes", "packing",
            "registry", "text", "verify",
        )
    }  # fmt: skip
    assert all(callable(getattr(kernel, name)) for name in kernel.PROVIDED)
    assert kernel.registry.__name__ == "tetrad.kernel.registry"
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = kernel.nothing  # type: ignore[attr-defined]


def test_a_loaded_module_does_not_hide_the_function_of_its_name() -> None:
    assert kernel.build is sys.modules["tetrad.kernel.build"].KernelBuilder
    assert kernel.verify is sys.modules["tetrad.kernel.verify"].verify
    assert kernel.evaluate is sys.modules["tetrad.kernel.evaluate"].evaluate
    with pytest.raises(AttributeError, match="not to be changed"):
        kernel.verify = print  # type: ignore[assignment]


def test_nodes_alone_load_nothing_else_of_the_language() -> None:
    script = (
        "import sys, tetrad.kernel.nodes; print(sorted(m for m in sys.modules if "
        "m.startswith('tetrad.kernel.')))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "['tetrad.kernel.nodes']"
