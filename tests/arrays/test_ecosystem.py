"""SciPy and scikit-learn on arrays of ours, by their support of the array API: so many functions
give our arrays, with the values of NumPy's."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys

import pytest

from tests.modules import ROOT

# (package, program, how many work at least)
CASES = (("scipy", "tests.arrays.scipy_calls", 103), ("sklearn", "tests.arrays.sklearn_calls", 72))


@pytest.mark.parametrize(("package", "program", "least"), CASES, ids=[c[0] for c in CASES])
def test_functions_take_arrays_of_ours(package: str, program: str, least: int) -> None:
    if importlib.util.find_spec(package) is None:
        pytest.skip(f"{package} is not installed")
    # a process of its own: SciPy asks for the setting when it is imported
    command = [sys.executable, "-m", program]
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True)
    failed = {name: why for name, why in json.loads(done.stdout).items() if why}
    assert len(json.loads(done.stdout)) - len(failed) >= least, failed
