"""Safetensors: what is written comes back, files made by hand are read, bad ones are refused with
the place."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

import tetrad as td
from tests.formats.safetensors_mutants import SEED, campaign, framed
from tetrad.core.errors import (
    DtypeError,
    FileFormatError,
    SettingError,
    ShapeError,
    TraceError,
    UnsupportedError,
)
from tetrad.formats.safetensors.layout import DTYPES, MAX_TENSORS

WRITER = sys.modules["tetrad.formats.safetensors.write"]  # its package has a function of that name


def entry(dtype: str, shape: list[int], start: int, end: int) -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": [start, end]}


def written(path: Path, entries: object, data: bytes = b"") -> Path:
    text = entries if isinstance(entries, str) else json.dumps(entries)
    path.write_bytes(framed(text.encode(), data))
    return path


# -- in and out ------------------------------------------------------------------------------------


def test_a_file_packed_by_hand(tmp_path: Path) -> None:
    header = b'{"w":{"dtype":"F32","shape":[2,1],"data_offsets":[0,8]}}'
    path = tmp_path / "x.safetensors"
    path.write_bytes(
        len(header).to_bytes(8, "little") + header + np.array([1.5, -2.0], "<f4").tobytes()
    )
    assert td.safetensors.load(path)["w"].tolist() == [[1.5], [-2.0]]


def test_the_bytes_of_a_written_file(tmp_path: Path) -> None:
    td.safetensors.save(
        tmp_path / "x", {"b": np.uint8(7), "a": np.array([1.0])}, metadata={"k": "v"}
    )
    data = (tmp_path / "x").read_bytes()
    size = int.from_bytes(data[:8], "little")
    assert (size + 8) % 64 == 0
    assert json.loads(data[8 : 8 + size]) == {
        "__metadata__": {"k": "v"},
        "a": entry("F64", [1], 0, 8),
        "b": entry("U8", [], 8, 9),
    }
    assert data[8 + size :] == np.array([1.0], "<f8").tobytes() + b"\7"


@pytest.mark.parametrize("dtype", DTYPES.values(), ids=str)
def test_every_dtype_comes_back(tmp_path: Path, dtype: td.DType) -> None:
    values = np.arange(6).reshape(2, 3).astype(dtype.dtype)
    td.safetensors.save(tmp_path / "x", {"x": values})
    found = td.safetensors.load(tmp_path / "x")["x"]
    assert found.dtype is dtype and np.array_equal(np.asarray(found), values)


@settings(max_examples=30)
@given(
    arrays=st.dictionaries(
        st.text(st.characters(exclude_categories=["Cs"]), max_size=8).filter(
            lambda name: name != "__metadata__"
        ),
        npst.arrays(
            st.sampled_from(["f4", "i8", "u1", "?", "f2"]),
            npst.array_shapes(min_side=0, max_dims=3),
        ),
        max_size=5,
    ),
    metadata=st.dictionaries(
        st.text(st.characters(exclude_categories=["Cs"])),
        st.text(st.characters(exclude_categories=["Cs"])),
    ),
)
def test_any_names_arrays_and_metadata_come_back(
    tmp_path_factory: pytest.TempPathFactory,
    arrays: dict[str, np.ndarray],
    metadata: dict[str, str],
) -> None:
    path = tmp_path_factory.mktemp("x") / "x"
    td.safetensors.save(path, arrays, metadata=metadata)
    found = td.safetensors.load(path)
    assert td.safetensors.metadata(path) == metadata
    assert sorted(found) == sorted(arrays)
    for name, array in arrays.items():
        assert found[name].memory.tobytes() == array.tobytes() and found[name].shape == array.shape


def test_views_of_other_orders_are_written_as_they_read(tmp_path: Path) -> None:
    x = np.arange(24, dtype=np.float32).reshape(4, 6)
    td.safetensors.save(tmp_path / "x", {"t": x.T, "s": x[::2, 1:], "big": x.astype(">f4")})
    found = td.safetensors.load(tmp_path / "x")
    assert np.array_equal(found["t"].memory, x.T) and np.array_equal(found["s"].memory, x[::2, 1:])
    assert np.array_equal(found["big"].memory, x)


class Pair(NamedTuple):
    left: Any
    right: Any


def test_a_nested_tree_comes_back_by_its_paths(tmp_path: Path) -> None:
    tree = {
        "layers": [{"w": td.ones((2, 3))}, {"w": td.zeros((1,))}],
        "both": Pair(td.ones(1), 2.0),
    }
    td.safetensors.save(tmp_path / "x", tree)
    names = ["both.left", "both.right", "layers.0.w", "layers.1.w"]
    assert sorted(td.safetensors.load(tmp_path / "x")) == names
    found = td.safetensors.load(tmp_path / "x", like=tree)
    assert isinstance(found["both"], Pair) and found["layers"][0]["w"].tolist() == [[1.0] * 3] * 2


def test_what_is_not_like_the_tree_is_said(tmp_path: Path) -> None:
    td.safetensors.save(tmp_path / "x", {"a": td.ones(2)})
    with pytest.raises(ShapeError, match=r"tensor a: expected shape \[3\], got \[2\]"):
        td.safetensors.load(tmp_path / "x", like={"a": td.ones(3)})
    with pytest.raises(DtypeError, match="expected f64, got f32"):
        td.safetensors.load(tmp_path / "x", like={"a": np.ones(2)})
    with pytest.raises(FileFormatError, match="the file has no tensor 'b'"):
        td.safetensors.load(tmp_path / "x", like={"a": td.ones(2), "b": td.ones(2)})
    with pytest.raises(FileFormatError, match="the tree has no leaf 'a'"):
        td.safetensors.load(tmp_path / "x", like={})


def test_arrays_are_mapped_and_outlive_a_replaced_file(tmp_path: Path) -> None:
    td.safetensors.save(tmp_path / "x", {"a": td.ones(1000)})
    before = td.safetensors.load(tmp_path / "x")["a"]
    td.safetensors.save(tmp_path / "x", {"a": td.zeros(1000)})
    assert before.memory.base is not None and float(td.sum(before)) == 1000.0
    assert float(td.sum(td.safetensors.load(tmp_path / "x", copy=True)["a"])) == 0.0
    assert [path.name for path in tmp_path.iterdir()] == ["x"]


def test_a_failed_write_leaves_what_was_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    td.safetensors.save(tmp_path / "x", {"a": td.ones(2)})

    def fail(out: Any, array: np.ndarray) -> None:
        raise OSError("no more room")

    monkeypatch.setattr(WRITER, "write_array", fail)
    with pytest.raises(OSError, match="no more room"):
        td.safetensors.save(tmp_path / "x", {"a": td.zeros(2)})
    assert td.safetensors.load(tmp_path / "x")["a"].tolist() == [1.0, 1.0]
    assert [path.name for path in tmp_path.iterdir()] == ["x"]


def test_what_cannot_be_written_is_said(tmp_path: Path) -> None:
    path = tmp_path / "x"
    with pytest.raises(DtypeError, match="no safetensors type for complex128"):
        td.safetensors.save(path, {"a": np.ones(2, np.complex128)})
    with pytest.raises(DtypeError, match="float8_e8m0fnu"):
        td.safetensors.save(path, {"a": np.ones(2, ml_dtypes.float8_e8m0fnu)})
    with pytest.raises(TraceError, match="a is a str"):
        td.safetensors.save(path, {"a": "text"})
    with pytest.raises(TraceError, match=r"two leaves of the tree have the path 'a.b'"):
        td.safetensors.save(path, {"a": {"b": td.ones(1)}, "a.b": td.ones(1)})
    with pytest.raises(FileFormatError, match="no tensor is called so"):
        td.safetensors.save(path, {"__metadata__": td.ones(1)})
    with pytest.raises(FileFormatError, match="metadata are texts"):
        td.safetensors.save(path, {}, metadata={"step": 3})  # type: ignore[dict-item]
    with pytest.raises(SettingError, match="shard_bytes"):
        td.safetensors.save(path, {}, shard_bytes=0)
    with pytest.raises(TraceError, match="is being traced"):
        td.jit(lambda x: td.safetensors.save(path, {"x": x}))(td.ones(2))
    assert not path.exists()


# -- shards ----------------------------------------------------------------------------------------


def test_shards_and_their_index(tmp_path: Path) -> None:
    arrays = {f"w{i}": np.full(10, i, np.float32) for i in range(5)}
    td.safetensors.save(tmp_path / "model.safetensors", arrays, shard_bytes=80)
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        *(f"model-0000{i}-of-00003.safetensors" for i in (1, 2, 3)),
        "model.safetensors.index.json",
    ]
    found = td.safetensors.load(tmp_path)
    assert {name: array.tolist() for name, array in found.items()} == {
        name: array.tolist() for name, array in arrays.items()
    }


@pytest.mark.parametrize(
    ("index", "message"),
    [
        ({}, "weight_map: expected an object"),
        ({"weight_map": {"a": "../b.safetensors"}}, "a file beside the index"),
        ({"weight_map": {"a": 3}}, "a file beside the index"),
        ({"weight_map": {"a": "c.safetensors"}}, "the shard 'c.safetensors' is missing"),
        ({"weight_map": {"a": "b.safetensors", "x": "b.safetensors"}}, "'x': the index says"),
        ({"weight_map": {"x": "b.safetensors"}}, "tensor 'x': the index says b.safetensors"),
        ([], "expected an object, got list"),
    ],
)
def test_a_wrong_index_is_refused(tmp_path: Path, index: object, message: str) -> None:
    td.safetensors.save(tmp_path / "b.safetensors", {"a": td.ones(1)})
    path = tmp_path / "model.safetensors.index.json"
    path.write_text(json.dumps(index))
    with pytest.raises(FileFormatError, match=message) as caught:
        td.safetensors.load(path)
    assert caught.value.file == str(path)


def test_an_empty_folder_is_said(tmp_path: Path) -> None:
    with pytest.raises(FileFormatError, match=r"neither model.safetensors nor"):
        td.safetensors.load(tmp_path)


# -- hostile files ---------------------------------------------------------------------------------

W = entry("F32", [2], 0, 8)
REFUSED: list[tuple[object, int, str]] = [
    ({"a": entry("F32", [2], 0, 4)}, 4, "F32 of shape .2. takes 8 bytes, data_offsets hold 4"),
    ({"a": W, "b": entry("F32", [1], 4, 8)}, 8, "overlap"),
    ({"a": W, "b": W}, 8, "overlap"),
    ({"a": W, "b": entry("F32", [1], 12, 16)}, 16, "hole"),
    ({"a": entry("F32", [2], 8, 16)}, 16, "hole"),
    ({"a": W}, 12, "4 bytes after the last tensor"),
    ({"a": W}, 4, "the file ends at"),
    ({"a": entry("F32", [2**60], 0, 2**62)}, 8, "product of the sizes"),
    ({"a": entry("F32", [2**32, 2**32, 2**32], 0, 0)}, 0, "product of the sizes"),
    ({"a": entry("F32", [1] * 17, 0, 4)}, 4, "more than 16 numbers"),
    ({"a": entry("F32", [2], 8, 0)}, 8, "a beginning and an end"),
    ({"a": {**W, "data_offsets": [0]}}, 8, "a beginning and an end"),
    ({"a": {**W, "data_offsets": [0, 4, 8]}}, 8, "more than 2 numbers"),
    ({"a": entry("F4", [3], 0, 2)}, 2, "whole number of bytes"),
    ({"a": {**W, "dtype": "Q4"}}, 8, "unknown type 'Q4'"),
    ({"a": {**W, "dtype": 3}}, 8, "dtype: expected a text"),
    ({"a": {**W, "shape": [-2]}}, 8, "whole number"),
    ({"a": {**W, "shape": [2.0]}}, 8, "whole number"),
    ({"a": {**W, "shape": [True]}}, 8, "whole number"),
    ({"a": {**W, "shape": "2"}}, 8, r"expected \["),
    ({"a": {**W, "more": 1}}, 8, "'more' is none of its fields"),
    ({"a": {"dtype": "F32", "shape": [2]}}, 8, "data_offsets is missing"),
    ({"a": 3}, 8, "expected {"),
    ({"__metadata__": {"a": 1}, "a": W}, 8, "expected a text"),
    ({"__metadata__": [], "a": W}, 8, "expected {"),
    ('{"a":' + json.dumps(W) + ',"a":' + json.dumps(W) + "}", 8, "occurs twice"),
    ('{"a":{"dtype":"F32","dtype":"F32","shape":[2],"data_offsets":[0,8]}}', 8, "occurs twice"),
    ('{"a\\ud800":' + json.dumps(W) + "}", 8, "not UTF-8"),
    ('{"a":' + json.dumps(W) + "} x", 8, "expected the end of the header"),
    ('{"a":' + json.dumps(W), 8, "the header ends"),
    ('{"a":{"dtype":"F32","shape":[02],"data_offsets":[0,8]}}', 8, "expected , or ]|whole number"),
    ('{"a":' + "[" * 100000, 8, "expected {"),
    (' {"a":' + json.dumps(W) + "}", 8, "does not begin with {"),
    ("{" + '"a' + "b" * 70000 + '":' + json.dumps(W) + "}", 8, "at most 65535 are accepted"),
]  # fmt: skip


@pytest.mark.parametrize(("entries", "nbytes", "message"), REFUSED)
def test_a_bad_header_is_refused(
    tmp_path: Path, entries: object, nbytes: int, message: str
) -> None:
    path = written(tmp_path / "x.safetensors", entries, bytes(nbytes))
    with pytest.raises(FileFormatError, match=message) as caught:
        td.safetensors.load(path)
    assert caught.value.file == str(path) and caught.value.offset is not None


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "the file is empty"),
        (b"\x02\0\0\0\0\0\0\0{", "smallest has 10"),
        ((10**8 + 1).to_bytes(8, "little") + b"{}", "100000000 are accepted"),
        ((2**64 - 1).to_bytes(8, "little") + b"{}", "are accepted"),
        ((3).to_bytes(8, "little") + b"{}", "only 2 are left"),
        (b"GGUF" + bytes(40), "this is a GGUF file"),
        (b"PK\x03\x04" + bytes(40), "zip archive"),
        (b"version https://git-lfs", "git lfs"),
    ],
)
def test_bytes_that_are_no_file_are_refused(tmp_path: Path, data: bytes, message: str) -> None:
    (tmp_path / "x").write_bytes(data)
    with pytest.raises(FileFormatError, match=message):
        td.safetensors.load(tmp_path / "x")


def test_bools_other_than_0_and_1_are_refused_with_their_byte(tmp_path: Path) -> None:
    path = written(tmp_path / "x", {"a": entry("BOOL", [3], 0, 3)}, b"\0\1\2")
    with pytest.raises(FileFormatError, match="a bool is 0 or 1") as caught:
        td.safetensors.load(path)
    assert caught.value.offset == path.stat().st_size - 1


@pytest.mark.parametrize("name", ["float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz"])
def test_floats_of_eight_bits_come_back(tmp_path: Path, name: str) -> None:
    x = td.asarray([[1.0, -2.5], [0.0, 16.0]], dtype=name)
    td.safetensors.save(tmp_path / "x", {"a": x})
    (found,) = td.safetensors.load(tmp_path / "x").values()
    assert found.dtype == name and found.tolist() == [[1.0, -2.5], [0.0, 16.0]]


def test_a_type_without_arrays_is_said_when_it_is_read(tmp_path: Path) -> None:
    path = written(tmp_path / "x", {"a": entry("F8_E8M0", [3], 0, 3)}, b"abc")
    assert td.safetensors.open_file(path).tensors["a"].nbytes == 3
    with pytest.raises(UnsupportedError, match="tensor 'a' has the type F8_E8M0"):
        td.safetensors.load(path)


def test_too_many_tensors_are_refused(tmp_path: Path) -> None:
    none = entry("U8", [0], 0, 0)
    path = written(tmp_path / "x", {str(i): none for i in range(MAX_TENSORS + 1)})
    with pytest.raises(FileFormatError, match="at most 65536 tensors"):
        td.safetensors.load(path)


def test_five_thousand_mutants_open_or_are_refused(tmp_path: Path) -> None:
    outcome = campaign(first=0, count=5000, folder=tmp_path)
    assert outcome.opened > 100 and outcome.refused > 3000  # both sides are reached
    assert outcome.peak_bytes < 1 << 20


def test_a_file_cut_at_any_byte_is_refused(tmp_path: Path) -> None:
    for end in range(len(SEED)):
        (tmp_path / "cut").write_bytes(SEED[:end])
        with pytest.raises(FileFormatError):
            td.safetensors.open_file(tmp_path / "cut")
