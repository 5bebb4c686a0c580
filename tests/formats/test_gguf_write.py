"""Writing GGUF: what is written comes back, other programs read it, and a failed write leaves
nothing behind."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import gguf as oracle
import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.formats.gguf_bytes import small_file
from tetrad.core.errors import FileFormatError
from tetrad.formats import gguf


def typed(tmp_path: Path, value: object) -> gguf.Typed:
    """How a value is stored."""
    gguf.write(tmp_path / "x.gguf", {"key": value}, {})
    return gguf.open_file(tmp_path / "x.gguf").typed["key"]


# -- metadata --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "type"),
    [
        (0, "u32"),
        (2**32 - 1, "u32"),
        (-1, "i32"),
        (2**32, "i64"),
        (-(2**31) - 1, "i64"),
        (2**64 - 1, "u64"),
        (True, "bool"),
        (1.5, "f32"),
        ("text", "str"),
        ("", "str"),
        (b"\xff", "str"),
        (np.uint8(3), "u8"),
        (np.int64(3), "i64"),
        (np.float64(0.1), "f64"),
        (np.bool_(False), "bool"),
        (gguf.Typed("u16", 7), "u16"),
        (gguf.Typed("f64", 0.1), "f64"),
        (gguf.Typed("f32", float("inf")), "f32"),
    ],
    ids=repr,
)
def test_scalars(tmp_path: Path, value: Any, type: str) -> None:
    stored = typed(tmp_path, value)
    assert stored == gguf.Typed(type, value.value if isinstance(value, gguf.Typed) else value)


@pytest.mark.parametrize(
    ("value", "type"),
    [
        ([1, -2], "[i32]"),
        ([1, 2**40], "[i64]"),
        ([1, 2**64 - 1], "[u64]"),
        ([0.5, 1.0], "[f32]"),
        ([True, False], "[bool]"),
        ((1, 2), "[i32]"),
        (np.arange(3, dtype=np.uint16), "[u16]"),
        (np.arange(3, dtype=">u4"), "[u32]"),
        (np.arange(6, dtype=np.float64)[::2], "[f64]"),
        (gguf.Typed("[u8]", [255, 0]), "[u8]"),
        (gguf.Typed("[f32]", []), "[f32]"),
        (gguf.Typed("[f32]", [1, float("inf"), -2.5]), "[f32]"),
        (gguf.Typed("[u64]", [2**64 - 1, 2**63 + 1]), "[u64]"),
    ],
    ids=repr,
)
def test_arrays_of_numbers(tmp_path: Path, value: Any, type: str) -> None:
    stored, expected = (
        typed(tmp_path, value),
        value.value if isinstance(value, gguf.Typed) else value,
    )
    assert stored.type == type and stored.value.tolist() == list(expected)


def test_arrays_of_strings_and_arrays(tmp_path: Path) -> None:
    assert typed(tmp_path, ["a", b"\xff", "é"]) == gguf.Typed("[str]", ["a", b"\xff", "é"])
    nested = typed(tmp_path, [[1, 2], ["x"], gguf.Typed("[f64]", []), [[True]]])
    assert [item.type for item in nested.value] == ["[i32]", "[str]", "[f64]", "[array]"]


NO_VALUES: dict[str, tuple[object, str]] = {
    "too large": (2**64, "fits no integer type"),
    "too large a float": (1e300, "not a value of f32"),
    "u8": (gguf.Typed("u8", 256), "256 is not a value of u8"),
    "text as number": (gguf.Typed("u8", "x"), "'x' is not a value of u8"),
    "number as bool": (gguf.Typed("bool", 2), "2 is not a value of bool"),
    "number as string": (gguf.Typed("str", 5), "a string is str or bytes, not int"),
    "surrogate": ("\ud800", "has no UTF-8"),
    "type": (gguf.Typed("u128", 5), "unknown type 'u128'"),
    "element type": (gguf.Typed("[u128]", [5]), "unknown type"),
    "none": (None, "no type for a value of NoneType"),
    "dict": ({}, "no type for a value of dict"),
    "half": (np.float16(1), "no type for a value of float16"),
    "two axes": (np.zeros((2, 2)), "no type for a value of ndarray"),
    "empty": ([], "no type for an empty list"),
    "mixed": ([1, 0.5], "no type for a list of float, int"),
    "elements": (gguf.Typed("[i8]", [1, 200]), "not all of .* are values of i8"),
    "fractions": (gguf.Typed("[i8]", [1.5]), "not all of"),
    "nan": (gguf.Typed("[i8]", np.array([np.nan])), "not all of"),
    "large floats": (gguf.Typed("[f32]", [1e300]), "not all of"),
    "texts as numbers": (gguf.Typed("[f32]", ["1"]), "takes one axis of numbers"),
    "axes": (gguf.Typed("[f32]", [[1.0], [2.0]]), "takes one axis of numbers"),
    "no sequence": (gguf.Typed("[str]", "abc"), "takes a sequence, not str"),
    "scalar in array": ([gguf.Typed("u8", 1)], "unknown type 'u8'"),
    "deep": ([[[[[1]]]]], "nested more than 4 deep"),
    "many": ([[1]] * (1 << 16), "65537 arrays, at most 65536"),
}


@pytest.mark.parametrize("case", NO_VALUES)
def test_a_value_that_cannot_be_stored(case: str, tmp_path: Path) -> None:
    value, text = NO_VALUES[case]
    with pytest.raises(FileFormatError, match=text):
        gguf.write(tmp_path / "x.gguf", {"key": value}, {})
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["", "a\0b", "k" * 65536])
def test_names_that_cannot_be_stored(name: str, tmp_path: Path) -> None:
    for metadata, tensors in (({name: 1}, {}), ({}, {name: np.zeros(1, np.float32)})):
        with pytest.raises(FileFormatError, match="a name has 1 to 65535 bytes"):
            gguf.write(tmp_path / "x.gguf", metadata, tensors)


# -- tensors ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "dtype", ["f4", "f2", "f8", "i1", "i2", "i4", "i8", ">f4", ml_dtypes.bfloat16], ids=str
)
@pytest.mark.parametrize("shape", [(), (5,), (2, 3), (2, 1, 3, 4)])
def test_arrays_come_back(dtype: Any, shape: tuple[int, ...], tmp_path: Path) -> None:
    array = np.arange(np.prod(shape, dtype=int)).reshape(shape).astype(dtype)
    gguf.write(tmp_path / "x.gguf", {}, {"t": array, "u": array.T})
    with gguf.open_file(tmp_path / "x.gguf") as file:
        little = np.dtype(dtype).newbyteorder("<")
        assert np.array_equal(file.data("t").view(little).reshape(file.tensors["t"].shape), array)
        assert np.array_equal(file.data("u").view(little).reshape(file.tensors["u"].shape), array.T)


@pytest.mark.parametrize("name", gguf.FORMATS)
def test_raw_blocks_of_every_format_come_back(name: str, tmp_path: Path) -> None:
    _, block, nbytes = gguf.FORMATS[name]
    data = np.random.default_rng(0).integers(0, 256, 6 * nbytes, dtype=np.uint8)
    as_bytes, later = (
        gguf.Raw(name, (3, 2 * block), data.tobytes()),
        gguf.Raw(name, (6, block), lambda: data),
    )
    gguf.write(tmp_path / "x.gguf", {}, {"t": as_bytes, "u": later})
    with gguf.open_file(tmp_path / "x.gguf") as file:
        assert file.tensors["t"].shape == (3, 2 * block) and file.tensors["u"].format == name
        assert np.array_equal(file.data("t"), data) and np.array_equal(file.data("u"), data)


@pytest.mark.parametrize("alignment", [1, 8, 32, 4096])
def test_alignment_is_honoured(alignment: int, tmp_path: Path) -> None:
    tensors = {f"t{i}": np.full(i + 1, i, np.int8) for i in range(5)}
    gguf.write(tmp_path / "x.gguf", {"general.alignment": alignment}, tensors)
    with gguf.open_file(tmp_path / "x.gguf") as file:
        assert [t.offset % alignment for t in file.tensors.values()] == [0] * 5
        assert all(
            np.array_equal(file.data(name).view(np.int8), array) for name, array in tensors.items()
        )


BAD_TENSORS: dict[str, tuple[Any, str]] = {
    "dtype": (np.zeros(3, np.uint8), "no format for arrays of uint8"),
    "list": ([1.0], "a NumPy array or gguf.Raw, not list"),
    "no elements": (np.zeros((2, 0), np.float32), r"shape \(2, 0\): sizes must be at least 1"),
    "axes": (np.zeros((1,) * 5, np.float32), "5 axes, at most 4"),
    "format": (gguf.Raw("q9_9", (32,), b""), "unknown format 'q9_9'"),
    "block": (
        gguf.Raw("q4_0", (2, 16), bytes(18)),
        "rows of 16 elements, but q4_0 stores blocks of 32",
    ),
    "short": (
        gguf.Raw("q4_0", (2, 32), bytes(35)),
        r"35 bytes, but q4_0 of shape \(2, 32\) takes 36",
    ),
    "no bytes": (gguf.Raw("f32", (1,), 5), "data of int"),
    "not contiguous": (
        gguf.Raw("i8", (2,), memoryview(b"abcd")[::2]),
        "hint: hand in contiguous bytes",
    ),
}


@pytest.mark.parametrize("case", BAD_TENSORS)
def test_a_tensor_that_cannot_be_stored(case: str, tmp_path: Path) -> None:
    tensor, text = BAD_TENSORS[case]
    with pytest.raises(FileFormatError, match=text) as caught:
        gguf.write(tmp_path / "x.gguf", {}, {"good": np.zeros(3, np.float32), "bad": tensor})
    assert caught.value.part == "tensor 'bad'" and list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "value", [0, 48, 1 << 21, gguf.Typed("u64", 32), gguf.Typed("u32", "x"), "32"]
)
def test_a_bad_alignment(value: object, tmp_path: Path) -> None:
    with pytest.raises(
        FileFormatError, match=r"key 'general\.alignment': .* must be a u32, a power of two"
    ):
        gguf.write(tmp_path / "x.gguf", {"general.alignment": value}, {})


# -- the file as a whole ---------------------------------------------------------------------------


def test_a_file_read_and_written_again_says_the_same(tmp_path: Path) -> None:
    (tmp_path / "a.gguf").write_bytes(small_file().data)
    with gguf.open_file(tmp_path / "a.gguf") as first:
        raw = {
            t.name: gguf.Raw(t.format, t.shape, first.data(t.name)) for t in first.tensors.values()
        }
        gguf.write(tmp_path / "b.gguf", first.typed, raw)
        with gguf.open_file(tmp_path / "b.gguf") as second:
            assert {k: v.type for k, v in second.typed.items()} == {
                k: v.type for k, v in first.typed.items()
            }
            assert str(second.metadata) == str(first.metadata)
            assert all(np.array_equal(first.data(name), second.data(name)) for name in raw)
            second_bytes = (tmp_path / "b.gguf").read_bytes()
            gguf.write(tmp_path / "b.gguf", second.typed, raw)  # over a file that is open
            assert (tmp_path / "b.gguf").read_bytes() == second_bytes


def test_a_failed_write_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "x.gguf"
    gguf.write(path, {"a": 1}, {})
    before = path.read_bytes()

    def interrupted() -> bytes:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        gguf.write(path, {"a": 2}, {"t": gguf.Raw("f32", (2,), interrupted)})
    assert path.read_bytes() == before and os.listdir(tmp_path) == ["x.gguf"]


def test_the_folder_must_be_there(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        gguf.write(tmp_path / "nowhere" / "x.gguf", {}, {})


def test_the_oracle_reads_what_we_write(tmp_path: Path) -> None:
    weights = np.arange(64, dtype=np.float32).reshape(2, 32)
    packed = oracle.quants.quantize(weights, oracle.GGMLQuantizationType.Q4_1)
    metadata = {
        "general.architecture": "llama",
        "n": 7,
        "eps": 1e-5,
        "yes": True,
        "tokens": ["a", "ü", ""],
    }
    metadata |= {
        "ids": [1, -2],
        "scores": np.float32([0.5, 2]),
        "big": np.uint64(2**40),
        "general.alignment": 128,
    }
    tensors = {
        "w": weights,
        "h": weights.astype(np.float16),
        "q": gguf.Raw("q4_1", (2, 32), packed),
    }
    gguf.write(tmp_path / "x.gguf", metadata, tensors)
    reader = oracle.GGUFReader(tmp_path / "x.gguf")
    for key, value in metadata.items():
        expected = value.tolist() if isinstance(value, np.ndarray | np.generic) else value
        assert reader.get_field(key).contents() == pytest.approx(expected)
    read = {tensor.name: tensor for tensor in reader.tensors}
    assert np.array_equal(read["w"].data, weights) and np.array_equal(read["h"].data, weights)
    assert np.array_equal(read["q"].data, packed) and read["q"].shape.tolist() == [32, 2]


VALUES = st.one_of(
    st.integers(-(2**63), 2**64 - 1),
    st.floats(width=32, allow_nan=False),
    st.booleans(),
    st.text(),
    st.lists(st.text(), min_size=1),
    st.lists(st.booleans(), min_size=1),
    st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1),
    st.lists(st.floats(width=32, allow_nan=False), min_size=1),
)
NAMES = st.text(
    st.characters(exclude_characters="\0", exclude_categories=("Cs",)), min_size=1, max_size=60
).filter(lambda name: not name.startswith(("general.alignment", "split.")))


@settings(max_examples=60)
@given(
    metadata=st.dictionaries(NAMES, VALUES, max_size=6),
    shapes=st.dictionaries(NAMES, st.lists(st.integers(1, 5), max_size=4)),
)
def test_what_is_written_is_what_is_read(
    tmp_path_factory: pytest.TempPathFactory, metadata: dict[str, Any], shapes: dict[str, list[int]]
) -> None:
    path = tmp_path_factory.getbasetemp() / "any.gguf"
    tensors = {
        name: np.random.default_rng(0).random(shape, np.float32) for name, shape in shapes.items()
    }
    tensors = {name: np.asarray(array, np.float32) for name, array in tensors.items()}
    gguf.write(path, metadata, tensors)
    with gguf.open_file(path) as file:
        read = {
            key: v.tolist() if isinstance(v, np.ndarray) else v for key, v in file.metadata.items()
        }
        assert read == metadata and list(file.tensors) == list(tensors)
        assert all(
            np.array_equal(file.data(n).view("<f4").reshape(t.shape), t) for n, t in tensors.items()
        )
