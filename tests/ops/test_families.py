"""An op with a kernel of its own is one folder: written anywhere, it compiles, and nothing else is
touched."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import tetrad as td
import tetrad.ops
from tests.modules import ROOT
from tetrad.core.dtypes import f32
from tetrad.core.errors import UnsupportedError
from tetrad.core.op import REGISTRY, Op, op
from tetrad.graph.group import Group
from tetrad.loopnest.frame import Frame
from tetrad.lower.op_kernels import generator_of
from tetrad.schedule.nodes import Launch

SPECIAL = [o for o in REGISTRY.values() if o.kind == "special"]
OP = '''
"""Running maximum."""

import numpy as np

from tetrad.core.op import op


@op(type=lambda x, *, axis: x, kind="special", public=False)
def running_max(x, *, axis):
    return np.maximum.accumulate(x, axis)
'''
KERNEL = '''
"""Kernel of the running maximum: a line of the axis in each lane."""

from tetrad.loopnest.lines import Lines
from tetrad.ops.running_max.op import running_max


@running_max.kernel
def lower_running_max(frame, group):
    node, k = group.root, frame.k
    lines = Lines(frame, node, node.param("axis"))
    out = frame.output(frame.memory.slots[node])

    def body():
        best = k.local(-float("inf"), node.type.dtype)
        with k.loop(frame.sizes.val(lines.shape[lines.axis])) as i:
            best.set(k.max(best, frame.reading.read(node.inputs[0], lines.at(i))))
            frame.write(out, node, lines.at(i), best.get())

    lines.run(body)
    return frame.finish(lines.groups, group)
'''


@pytest.fixture
def own_registry() -> Iterator[None]:
    before = dict(REGISTRY)
    yield
    REGISTRY.clear()
    REGISTRY.update(before)


@pytest.fixture
def running_max(
    own_registry: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Op]:
    folder = tmp_path / "running_max"
    folder.mkdir()
    for name, text in {"__init__": "", "op": OP, "kernel": KERNEL}.items():
        (folder / f"{name}.py").write_text(text)
    monkeypatch.setattr(tetrad.ops, "__path__", [*tetrad.ops.__path__, str(tmp_path)])
    yield importlib.import_module("tetrad.ops.running_max.op").running_max
    for name in [name for name in sys.modules if name.startswith("tetrad.ops.running_max")]:
        del sys.modules[name]


@pytest.mark.parametrize("shape", [(5,), (3, 7), (2, 6, 33)], ids=str)
def test_a_folder_of_op_and_kernel_is_all_it_takes(running_max: Op, shape: tuple[int, ...]) -> None:
    assert "tetrad.ops.running_max.kernel" not in sys.modules
    x = np.random.default_rng(0).standard_normal(shape, dtype=np.float32)
    for axis in range(len(shape)):
        got = td.jit(lambda x, axis=axis: running_max(x + 1, axis=axis) * 2)(td.asarray(x))
        assert np.array_equal(np.asarray(got), np.maximum.accumulate(x + 1, axis) * 2)
    assert "tetrad.ops.running_max.kernel" in sys.modules


def test_an_op_of_a_user_has_its_kernel_attached(own_registry: None) -> None:
    @op(type=lambda x: x, kind="special", public=False)
    def filled_with_ones(x: np.ndarray) -> np.ndarray:
        return np.ones_like(x)

    @filled_with_ones.kernel
    def lower_ones(frame: Frame, group: Group) -> Launch:
        out = frame.output(frame.memory.slots[group.root])
        frame.k.store(out, frame.k.group_id(), frame.k.const(1.0, f32))
        return frame.finish(group.root.type.shape[0], group)

    assert td.jit(filled_with_ones)(td.zeros(5)).tolist() == [1.0] * 5


def test_an_op_without_a_kernel_is_a_clear_error(own_registry: None) -> None:
    @op(type=lambda x: x, kind="special", public=False)
    def unfinished(x: np.ndarray) -> np.ndarray:
        return x

    with pytest.raises(UnsupportedError, match="unfinished is not compiled yet"):
        td.jit(unfinished)(td.zeros(5))


@pytest.mark.parametrize("special", SPECIAL, ids=lambda op: op.name)
def test_every_special_op_has_a_generator_in_its_family(special: Op) -> None:
    assert generator_of(special) is not None


def test_every_family_says_what_it_is() -> None:
    for folder in (ROOT / "tetrad" / "ops").iterdir():
        if folder.is_dir() and folder.name != "__pycache__":
            assert (folder / "kernel.py").exists(), folder.name
            assert (folder / "__init__.py").read_text().startswith('"""'), folder.name
