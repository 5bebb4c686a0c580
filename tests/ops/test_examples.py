"""The examples in the docstrings of ops run: doctest itself does not look inside ops."""

from __future__ import annotations

import doctest
import inspect

import pytest

import tetrad.ops  # noqa: F401  (fills the registry)
from tetrad.core.op import REGISTRY, Op

OPS = [o for o in REGISTRY.values() if o.kind != "structural"]


@pytest.mark.parametrize("op", OPS, ids=lambda op: op.name)
def test_examples_are_there_and_run(op: Op) -> None:
    function = inspect.unwrap(op.reference)
    example = doctest.DocTestParser().get_doctest(
        function.__doc__, function.__globals__.copy(), op.name, None, None
    )
    assert example.examples
    assert doctest.DocTestRunner(verbose=False).run(example).failed == 0
