"""Whole trees on disk: what is saved comes back, training goes on where it stopped, damage is
said."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

import tetrad as td
from tests.modules import ROOT
from tetrad.core.errors import FileFormatError, SettingError, ShapeError, TraceError
from tetrad.formats.safetensors.write import write


class Counted(NamedTuple):
    count: Any
    name: str


@td.tree.register_dataclass
@dataclasses.dataclass
class Layer:
    weight: Any
    bias: Any


def equal(a: Any, b: Any) -> bool:
    left, right = td.tree.flatten(a), td.tree.flatten(b)
    return left[1] is right[1] and all(
        np.array_equal(np.asarray(x), np.asarray(y)) and type(x) is type(y)
        for x, y in zip(left[0], right[0], strict=True)
    )


def test_every_kind_of_leaf_and_container_comes_back(tmp_path: Path) -> None:
    tree = {
        "a": [td.ones((2, 3)), (td.zeros(0), None)],
        "b": Counted(td.asarray(3), "név"),
        "c": (True, -5, 0.1, float("inf"), "", 1 << 70),
        "d": {7: td.ones(1, dtype=td.bfloat16), -1: td.asarray([1j], dtype=td.complex128)},
        "key": td.random.key(3),
        "e": {},
    }
    td.save(tmp_path / "x", tree, step=12)
    found, step = td.load_tree(tmp_path / "x")
    assert step == 12 and equal(found, tree)
    assert isinstance(found["b"], Counted) and found["a"][1][1] is None
    assert equal(td.load_tree(tmp_path / "x", like=tree).tree, tree)


def test_numbers_that_are_not_numbers_come_back(tmp_path: Path) -> None:
    td.save(tmp_path / "x", [float("nan"), -0.0, 5e-324])
    found = td.load_tree(tmp_path / "x").tree
    assert np.isnan(found[0]) and str(found[1]) == "-0.0" and found[2] == 5e-324


def test_dataclasses_come_back_with_like(tmp_path: Path) -> None:
    tree = {"l": Layer(td.ones(2), td.zeros(1))}
    td.save(tmp_path / "x", tree)
    found = td.load_tree(tmp_path / "x", like=tree).tree
    assert isinstance(found["l"], Layer) and found["l"].weight.tolist() == [1.0, 1.0]
    with pytest.raises(FileFormatError, match=r"Layer' is not known here"):
        td.load_tree(tmp_path / "x")


def train(state: Any, start: int, stop: int) -> Any:
    optimiser = td.optim.adamw(1e-2)

    @td.jit
    def step(params: Any, state: Any, x: Any) -> Any:
        gradients = td.grad(lambda p: td.mean((x @ p["w"] + p["b"]) ** 2))(params)
        updates, state = optimiser.update(gradients, state, params)
        return td.optim.apply_updates(params, updates), state

    params, inner, key = state
    for i in range(start, stop):
        x = td.random.normal(td.random.fold_in(key, i), (4, 3))
        params, inner = step(params, inner, x)
    return params, inner, key


def test_training_goes_on_with_the_same_bits(tmp_path: Path) -> None:
    params = {"w": td.random.normal(td.random.key(1), (3, 2)), "b": td.zeros(2)}
    begin = (params, td.optim.adamw(1e-2).init(params), td.random.key(0))
    whole = train(begin, 0, 6)
    td.save(tmp_path / "run", train(begin, 0, 3), step=3)
    state, step = td.load_tree(tmp_path / "run")
    assert equal(train(state, step, 6), whole)


def test_a_new_process_knows_the_states_of_optimisers(tmp_path: Path) -> None:
    params = {"w": td.ones(2)}
    td.save(tmp_path / "x", td.optim.adam(1e-3).init(params))
    code = f"import tetrad as td; print(td.load_tree({str(tmp_path / 'x')!r}).tree[0].mu)"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout == "{'w': Array([0., 0.], float32)}\n"


def test_the_file_is_read_by_others(tmp_path: Path) -> None:
    td.save(tmp_path / "x", {"layers": [{"w": td.ones(2)}], "rate": 0.5})
    assert td.safetensors.load(tmp_path / "x")["layers.0.w"].tolist() == [1.0, 1.0]


def test_what_cannot_be_saved_is_said(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="f is a function"):
        td.save(tmp_path / "x", {"f": train})
    with pytest.raises(TraceError, match="texts or whole numbers"):
        td.save(tmp_path / "x", {1.5: 1})
    with pytest.raises(SettingError, match="step"):
        td.save(tmp_path / "x", {}, step=-1)
    deep: Any = 1
    for _ in range(70):
        deep = [deep]
    with pytest.raises(TraceError, match="nested more than 64 deep"):
        td.save(tmp_path / "x", deep)
    assert not (tmp_path / "x").exists()


def test_a_tree_of_another_structure_is_said(tmp_path: Path) -> None:
    td.save(tmp_path / "x", {"a": td.ones(2), "b": 1})
    with pytest.raises(FileFormatError, match="2 leaves, the tree that was given has 1"):
        td.load_tree(tmp_path / "x", like={"a": td.ones(2)})
    with pytest.raises(FileFormatError, match="'a' stands where the tree that was given has 'A'"):
        td.load_tree(tmp_path / "x", like={"A": td.ones(2), "b": 1})
    with pytest.raises(ShapeError, match=r"expected shape \[3\], got \[2\]"):
        td.load_tree(tmp_path / "x", like={"a": td.ones(3), "b": 1})


@pytest.mark.parametrize(
    ("tree", "message"),
    [
        ({"array": "missing"}, "no tensor 'missing'"),
        ({"array": 3}, "no tensor 3"),
        ({"other": []}, "'other' is no kind"),
        ({"list": {}}, "expected a list|no kind"),
        ({"list": [], "tuple": []}, "an object of one key"),
        ([], "an object of one key"),
        ({"dict": [["a"]]}, "keys and values|no kind"),
        ({"dict": [[None, None]]}, "keys and values"),
        ({"class": ["builtins.exec", []]}, "not known here"),
        ({"class": ["tetrad.optim.base.GradientTransformation", []]}, "not known here"),
        ({"float": "x"}, "expected a number"),
        ({"value": [1]}, "expected a number, a text"),
        ({"complex": "w"}, "does not hold complex"),
    ],
)
def test_a_wrong_structure_is_refused(tmp_path: Path, tree: Any, message: str) -> None:
    metadata = {"tetrad.tree": json.dumps(tree), "tetrad.step": "1"}
    write(tmp_path / "x", {"w": np.ones(2, np.float32)}, metadata)
    with pytest.raises(FileFormatError, match=message):
        td.load_tree(tmp_path / "x")


def test_other_files_are_no_trees(tmp_path: Path) -> None:
    td.safetensors.save(tmp_path / "x", {"w": td.ones(2)})
    with pytest.raises(FileFormatError, match=r"not a tree that td.save wrote"):
        td.load_tree(tmp_path / "x")
    write(tmp_path / "x", {}, {"tetrad.tree": "null", "tetrad.step": "-1"})
    with pytest.raises(FileFormatError, match=r"tetrad.step: expected a whole number"):
        td.load_tree(tmp_path / "x")
    write(tmp_path / "x", {}, {"tetrad.tree": "[" * 100000, "tetrad.step": "1"})
    with pytest.raises(FileFormatError, match=r"nested too deep|not JSON"):
        td.load_tree(tmp_path / "x")


def test_a_folder_that_is_not_there_is_said_by_the_name_that_was_given(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError) as caught:
        td.save(tmp_path / "none" / "run.safetensors", td.ones(1))
    assert caught.value.filename == str(tmp_path / "none" / "run.safetensors")
