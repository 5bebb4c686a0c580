"""Reading GGUF: bytes made by hand, files of the `gguf` package, split sets, and every way a file
can be wrong."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import gguf as oracle
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.formats.gguf_bytes import ARR, BOOL, F32, I32, STR, U8, U16, U32, U64, Bytes, small_file
from tetrad.core.errors import FileChangedError, FileFormatError, TetradError
from tetrad.formats import gguf
from tetrad.formats.pin import Pin


def save(path: Path, made: Bytes) -> Path:
    path.write_bytes(made.data)
    return path


@pytest.fixture
def small(tmp_path: Path) -> gguf.File:
    return gguf.open_file(save(tmp_path / "small.gguf", small_file()))


# -- what is in a file -----------------------------------------------------------------------------


def test_values_of_every_type(small: gguf.File) -> None:
    assert {k: v for k, v in small.metadata.items() if not isinstance(v, np.ndarray)} == {
        "general.architecture": "llama",
        "general.alignment": 64,
        "a.u8": 200,
        "a.i8": -100,
        "a.u16": 60000,
        "a.i16": -30000,
        "a.i32": -5,
        "a.u64": 2**63 + 1,
        "a.i64": -(2**40),
        "a.f32": 1.5,
        "a.f64": 0.1,
        "a.bool": True,
        "a.bytes": b"\xff\xfe",
        "tokens": ["<s>", "", "é", "a longer token"],
        "nested": small.metadata["nested"],
        "split.no": 0,
        "split.count": 1,
    }
    assert small.metadata["a.bool"] is True


def test_arrays_of_numbers_keep_their_type(small: gguf.File) -> None:
    scores, flags, empty = (small.metadata[key] for key in ("scores", "flags", "empty"))
    assert (
        isinstance(scores, np.ndarray)
        and scores.dtype == np.float32
        and scores.tolist() == [0.5, -1, 2]
    )
    assert (
        isinstance(flags, np.ndarray)
        and flags.dtype == np.bool_
        and flags.tolist() == [False, True, True]
    )
    assert isinstance(empty, np.ndarray) and empty.dtype == np.int32 and empty.shape == (0,)


def test_arrays_in_arrays(small: gguf.File) -> None:
    numbers, words = small.metadata["nested"]  # type: ignore[misc]
    assert numbers.dtype == np.uint16 and numbers.tolist() == [1, 2, 3] and words == ["x", "y"]


def test_types_are_kept_beside_the_values(small: gguf.File) -> None:
    types = {key: value.type for key, value in small.typed.items()}
    assert types["a.u16"] == "u16" and types["tokens"] == "[str]" and types["scores"] == "[f32]"
    assert types["nested"] == "[array]" and [item.type for item in small.typed["nested"].value] == [
        "[u16]",
        "[str]",
    ]


def test_tensors_have_the_slowest_axis_first(small: gguf.File) -> None:
    assert list(small.tensors) == [
        "token_embd.weight",
        "blk.0.q",
        "blk.0.k",
        "scalar",
        "blk.0.norm",
    ]
    q = small.tensors["blk.0.q"]
    assert (q.shape, q.format, q.nbytes) == ((2, 32), "q4_0", 36)
    assert small.tensors["scalar"].shape == () and small.tensors["scalar"].nbytes == 4


def test_data_is_a_read_only_view_in_place(small: gguf.File) -> None:
    q, content = small.tensors["blk.0.q"], Path(small.path).read_bytes()
    view = small.data("blk.0.q")
    assert view.dtype == np.uint8 and view.base is not None and not view.flags.writeable
    assert (
        view.tobytes()
        == content[q.offset : q.offset + q.nbytes]
        == bytes(i % 251 for i in range(128, 164))
    )
    assert q.offset % 64 == 0


def test_views_live_longer_than_the_file(small: gguf.File) -> None:
    view = small.data("blk.0.q")
    with small:
        pass
    assert view[1] == 129 and small.metadata["a.u8"] == 200
    with pytest.raises(ValueError, match="is closed"):
        small.data("blk.0.q")
    small.close()


def test_offsets_count_from_the_contents(small: gguf.File) -> None:
    for name, tensor in small.tensors.items():
        whole = small.contents(tensor.file)
        np.testing.assert_array_equal(
            whole[tensor.offset : tensor.offset + tensor.nbytes], small.data(name)
        )
        assert not whole.flags.writeable


def test_pages_that_were_given_back_come_again(tmp_path: Path) -> None:
    values = {name: np.arange(5000, dtype=np.float32) + i for i, name in enumerate("abc")}
    gguf.write(tmp_path / "x.gguf", {}, values)
    with gguf.open_file(tmp_path / "x.gguf") as file:
        view = file.data("b")
        file.release("b")
        for name, numbers in values.items():
            np.testing.assert_array_equal(file.data(name).view(np.float32), numbers)
        np.testing.assert_array_equal(view.view(np.float32), values["b"])


def test_a_tensor_that_is_not_there(small: gguf.File) -> None:
    with pytest.raises(
        FileFormatError, match=r"no tensor 'blk\.9\.q'(?s:.)*hint: `tensors` lists the 5"
    ):
        small.data("blk.9.q")


def test_a_file_without_tensors_needs_no_data(tmp_path: Path) -> None:
    file = gguf.open_file(
        save(tmp_path / "vocab.gguf", Bytes().head(0, 1, version=2).key("a", U32, 1))
    )
    assert file.metadata == {"a": 1} and file.tensors == {}
    assert repr(file).endswith("vocab.gguf: 1 keys, 0 tensors>")


def test_data_before_data_and_padding_behind(tmp_path: Path) -> None:
    """The order of the header is not that of the data, and bytes nobody names are allowed."""
    made = (
        Bytes()
        .head(2, 0)
        .tensor("b", [8], 0, 32)
        .tensor("a", [8], 0, 0)
        .pad()
        .raw(bytes(range(64)) + b"more")
    )
    file = gguf.open_file(save(tmp_path / "x.gguf", made))
    assert file.data("a")[0] == 0 and file.data("b")[0] == 32


# -- strings ---------------------------------------------------------------------------------------


def strings(tmp_path: Path, items: list[str]) -> gguf.Strings:
    value = gguf.open_file(
        save(tmp_path / "s.gguf", Bytes().head(0, 1).array("s", STR, items))
    ).metadata["s"]  # type: ignore[arg-type]
    assert isinstance(value, gguf.Strings)
    return value


def test_strings_are_a_sequence(tmp_path: Path) -> None:
    items = [f"token {i}" for i in range(20)]
    value = strings(tmp_path, items)
    assert (
        value == items
        and value != items[:-1]
        and value != tuple(items)
        and value == strings(tmp_path, items)
    )
    assert value[0] == "token 0" and value[-1] == "token 19" and value[np.int64(3)] == "token 3"
    assert value[2:8:3] == ["token 2", "token 5"] and value[::-1] == items[::-1]
    assert len(value) == 20 and "token 7" in value and value.index("token 7") == 7
    assert (
        repr(value).endswith("'token 7', ... 20 in all)")
        and repr(strings(tmp_path, ["a"])) == "Strings('a')"
    )
    with pytest.raises(IndexError):
        value[20]


def test_strings_that_are_not_text_stay_bytes(tmp_path: Path) -> None:
    made = Bytes().head(0, 1).string("s").u32(ARR).u32(STR).u64(2).string(b"\xe2\x96").string("ok")
    value = gguf.open_file(save(tmp_path / "s.gguf", made)).metadata["s"]
    assert value == [b"\xe2\x96", "ok"]


ODD = [
    "",
    "a",
    "é" * 3,
    "\0",
    "\0" * 7,
    "\0" * 20,
    "\1" + "\0" * 7,
    "x" * 255,
    "x" * 256,
    "x" * 70_000,
]


@given(st.lists(st.sampled_from(ODD) | st.text(max_size=4), max_size=40), st.integers(0, 2000))
def test_lengths_are_found_whatever_the_strings_hold(
    tmp_path_factory: Any, items: list[str], plain: int
) -> None:
    """Many at once or one by one: zeros in strings look like lengths, and windows end in the middle
    of strings."""
    wanted = items[:20] + ["word"] * plain + items[20:]
    assert list(strings(tmp_path_factory.mktemp("odd"), wanted)) == wanted


def test_a_length_that_lies_is_found_between_thousands(tmp_path: Path) -> None:
    made = Bytes().head(0, 1).string("s").u32(ARR).u32(STR).u64(9000)
    for _ in range(8000):
        made.string("word")
    at = len(made.data)
    made.u64(1 << 40).raw(bytes(12_000))
    with pytest.raises(
        FileFormatError,
        match=rf"key 's', byte {at}: string 8000 of 9000 needs {8 + (1 << 40)} bytes",
    ):
        gguf.open_file(save(tmp_path / "s.gguf", made))


def test_strings_that_look_like_lengths_take_no_longer(tmp_path: Path) -> None:
    def seconds(items: list[str]) -> float:
        path, taken = save(tmp_path / "s.gguf", Bytes().head(0, 1).array("s", STR, items)), []  # type: ignore[arg-type]
        for _ in range(3):
            started = time.thread_time()
            gguf.open_file(path)
            taken.append(time.thread_time() - started)
        return min(taken)

    assert seconds(["\0" * 8] * 60_000) < 0.2 > seconds([""] * 60_000)


def test_a_large_vocabulary_opens_at_once(tmp_path: Path) -> None:
    tokens, scores = [f"▁token{i}" for i in range(150_000)], np.arange(150_000, dtype=np.float32)
    path = tmp_path / "vocab.gguf"
    gguf.write(path, {"tokens": tokens, "scores": scores, "merges": tokens}, {})
    seconds = []
    for _ in range(5):
        started = time.thread_time()
        file = gguf.open_file(path)
        seconds.append(time.thread_time() - started)
    assert min(seconds) < 0.2
    assert file.metadata["tokens"] == tokens and np.array_equal(file.metadata["scores"], scores)  # type: ignore[arg-type]


# -- the oracle ------------------------------------------------------------------------------------


def test_formats_are_those_of_the_oracle() -> None:
    sizes = {
        kind.name.lower(): (kind.value, *oracle.GGML_QUANT_SIZES[kind])
        for kind in oracle.GGMLQuantizationType
    }
    # two f16 and 32 bytes in ggml-common.h; the package has the two f32 of an older layout
    sizes["q8_1"] = (9, 32, 36)
    assert {name: tuple(gguf.FORMATS[name]) for name in sizes} == sizes
    assert gguf.FORMATS.keys() - sizes.keys() <= {"q2_0"}  # newer than the package


def test_a_file_of_the_oracle(tmp_path: Path) -> None:
    path, weights = tmp_path / "oracle.gguf", np.arange(64, dtype=np.float32).reshape(2, 32)
    w = oracle.GGUFWriter(path, "llama")
    w.add_uint32("n", 7)
    w.add_float32("eps", 1e-5)
    w.add_array("tokens", ["a", "ü", ""])
    w.add_array("ids", [1, -2])
    w.add_bool("yes", True)
    w.add_uint64("big", 2**40)
    w.add_tensor("w", weights)
    w.add_tensor("h", weights.astype(np.float16))
    w.add_tensor(
        "q",
        oracle.quants.quantize(weights, oracle.GGMLQuantizationType.Q8_0),
        raw_dtype=oracle.GGMLQuantizationType.Q8_0,
    )
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()
    with gguf.open_file(path) as file:
        assert file.metadata["n"] == 7 and file.metadata["eps"] == float(np.float32(1e-5))
        assert file.metadata["tokens"] == ["a", "ü", ""] and file.metadata["ids"].tolist() == [
            1,
            -2,
        ]  # type: ignore[attr-defined]
        assert file.metadata["yes"] is True and file.typed["big"] == gguf.Typed("u64", 2**40)
        assert file.tensors["q"].format == "q8_0" and file.tensors["q"].shape == (2, 32)
        assert np.array_equal(file.data("w").view("<f4").reshape(2, 32), weights)
        assert np.array_equal(file.data("h").view("<f2").reshape(2, 32), weights)
        packed = oracle.quants.quantize(weights, oracle.GGMLQuantizationType.Q8_0)
        assert np.array_equal(file.data("q").reshape(packed.shape), packed)


# -- split sets ------------------------------------------------------------------------------------


def shard(number: int, count: int, tensors: int, names: list[str], **more: int) -> Bytes:
    b = Bytes().head(len(names), 4 + len(more))
    b.key("split.no", U16, number).key("split.count", U16, count).key(
        "split.tensors.count", I32, tensors
    )
    b.key("general.name", STR, f"part {number}")
    for key, value in more.items():
        b.key(key, U32, value)
    for i, name in enumerate(names):
        b.tensor(name, [8], 0, 32 * i)
    return b.pad().raw(bytes([number]) * 32 * len(names))


def save_set(folder: Path, shards: list[Bytes]) -> list[Path]:
    return [
        save(folder / f"m-{i + 1:05}-of-{len(shards):05}.gguf", made)
        for i, made in enumerate(shards)
    ]


@pytest.fixture
def split(tmp_path: Path) -> list[Path]:
    return save_set(
        tmp_path, [shard(0, 3, 4, ["a", "b"]), shard(1, 3, 4, ["c"]), shard(2, 3, 4, ["d"])]
    )


@pytest.mark.parametrize("given", range(3))
def test_any_shard_opens_the_set(split: list[Path], given: int) -> None:
    with gguf.open_file(split[given]) as file:
        assert list(file.tensors) == ["a", "b", "c", "d"]
        assert [int(file.data(name)[0]) for name in "abcd"] == [0, 0, 1, 2]
        # one file now: the keys of the split are gone
        assert file.metadata == {"general.name": "part 0"}
        assert file.path == str(split[0]) and file.tensors["d"].file == str(split[2])


def test_a_set_of_one_is_a_file(tmp_path: Path) -> None:
    assert list(gguf.open_file(save(tmp_path / "x.gguf", shard(0, 1, 1, ["a"]))).tensors) == ["a"]


def refused_set(paths: list[Path], text: str, given: int = 0) -> None:
    with pytest.raises(FileFormatError, match=text):
        gguf.open_file(paths[given])


def test_a_missing_shard(split: list[Path]) -> None:
    split[1].unlink()
    refused_set(split, r"m-00002-of-00003\.gguf of the set is missing(?s:.)*in one folder")
    split[2].unlink()
    refused_set(split, r"m-00002-of-00003\.gguf and 1 more")


def test_a_shard_with_another_name(split: list[Path]) -> None:
    refused_set(
        [split[0].rename(split[0].with_name("m.gguf"))], r"must be called name-00001-of-00003\.gguf"
    )


def test_shards_in_the_wrong_order(split: list[Path]) -> None:
    shutil.copy(split[2], split[1])
    refused_set(split, r"00002.*key 'split\.no': 2, but 1 was expected")


def test_shards_of_different_sets(tmp_path: Path) -> None:
    paths = save_set(tmp_path, [shard(0, 2, 2, ["a"]), shard(1, 3, 2, ["b"])])
    refused_set(paths, r"00002.*key 'split\.count': 3, but 2 was expected")


def test_a_tensor_in_two_shards(tmp_path: Path) -> None:
    paths = save_set(tmp_path, [shard(0, 2, 2, ["a"]), shard(1, 2, 2, ["a"])])
    refused_set(paths, r"00002.*tensor 'a': the tensor is also in m-00001-of-00002\.gguf")


def test_a_set_with_tensors_missing(tmp_path: Path) -> None:
    paths = save_set(tmp_path, [shard(0, 2, 9, ["a"]), shard(1, 2, 9, ["b"])])
    refused_set(paths, r"key 'split\.tensors\.count': 9, but 2 was expected")


def test_a_shard_without_its_number(tmp_path: Path) -> None:
    made = Bytes().head(0, 1).key("split.count", U16, 2)
    refused_set(
        [save(tmp_path / "m-00001-of-00002.gguf", made)], r"key 'split\.no': a shard needs this key"
    )


@pytest.mark.parametrize(
    ("kind", "value", "text"), [(STR, "two", "an integer"), (U32, 1 << 20, "1048576 shards")]
)
def test_an_absurd_split_count(tmp_path: Path, kind: int, value: int | str, text: str) -> None:
    refused_set(
        [save(tmp_path / "x.gguf", Bytes().head(0, 1).key("split.count", kind, value))], text
    )


# -- every way to be wrong -------------------------------------------------------------------------


def one_tensor(dims: list[int], kind: int = 0, offset: int = 0, nbytes: int = 32) -> Bytes:
    return Bytes().head(1, 0).tensor("t", dims, kind, offset).pad().raw(bytes(nbytes))


def two_tensors(offset: int) -> Bytes:
    return (
        Bytes().head(2, 0).tensor("s", [16], 0, 0).tensor("t", [8], 0, offset).pad().raw(bytes(128))
    )


def alignment(kind: int, value: int) -> Bytes:
    return Bytes().head(0, 1).key("general.alignment", kind, value)


def nested(depth: int) -> Bytes:
    b = Bytes().head(0, 1).string("deep").u32(ARR)
    for _ in range(depth - 1):
        b.u32(ARR).u64(1)
    return b.elements(U8, [1, 2])


HUGE = 2**64 - 1
BAD: dict[str, tuple[Callable[[], Bytes], str]] = {
    "empty": (lambda: Bytes(), "byte 0: the file is empty"),
    "magic": (
        lambda: Bytes().raw(b"XXXX" * 8),
        r"byte 0: the file begins with b'XXXX', .*'GGUF'\n.*converted",
    ),
    "short magic": (lambda: Bytes().raw(b"GG"), "begins with b'GG'"),
    "lfs": (
        lambda: Bytes().raw(b"version https://git-lfs.github.com/spec/v1"),
        "hint: .*git lfs pull",
    ),
    "no version": (lambda: Bytes().raw(b"GGUF"), "the version needs 4 bytes, but only 0 are left"),
    "version 1": (lambda: Bytes().head(0, 0, version=1), "byte 4: version 1 of the format"),
    "version 4": (lambda: Bytes().head(0, 0, version=4), "byte 4: version 4 of the format"),
    "big-endian": (lambda: Bytes().head(0, 0, version=3 << 24), "byte 4: the file is big-endian"),
    "tensor count": (
        lambda: Bytes().head(HUGE, 0),
        f"byte 8: {HUGE} tensors, at most 65536 are accepted",
    ),
    "tensors": (
        lambda: Bytes().head(9, 0),
        "byte 8: 9 tensors need at least 225 bytes, but only 8 are left",
    ),
    "key count": (lambda: Bytes().head(0, 2**63), f"byte 16: {2**63} keys, at most"),
    "keys": (
        lambda: Bytes().head(0, 3),
        "byte 16: 3 keys need at least 42 bytes, but only 0 are left",
    ),
    "key length": (
        lambda: Bytes().head(0, 1).u64(HUGE).raw(bytes(30)),
        f"key 0, byte 32: the key needs {HUGE} bytes",
    ),
    "empty key": (
        lambda: Bytes().head(0, 1).key("", U64, 1),
        "key 0, byte 24: the key has 0 bytes, 1 to 65535",
    ),
    "long key": (lambda: Bytes().head(0, 1).key("k" * 65536, U8, 1), "the key has 65536 bytes"),
    "key bytes": (
        lambda: Bytes().head(0, 1).key(b"\xff\xfe", U8, 1),
        r"key 0, byte 24: the key b'\\xff\\xfe' is not UTF-8",
    ),
    "key zero": (
        lambda: Bytes().head(0, 1).key("a\0b", U8, 1),
        r"the key b'a\\x00b' contains a zero byte",
    ),
    "key twice": (
        lambda: Bytes().head(0, 2).key("a", U32, 1).key("a", U32, 1),
        "key 'a', byte 41: the key occurs twice",
    ),
    "type": (
        lambda: Bytes().head(0, 1).string("a").u32(13).u64(0),
        "key 'a', byte 33: 13 is not a type of metadata",
    ),
    "no value": (
        lambda: Bytes().head(0, 1).string("ab").u32(U64).raw(b"\0"),
        "key 'ab', byte 38: the value needs 8 bytes",
    ),
    "bool": (
        lambda: Bytes().head(0, 1).key("a", BOOL, 2),
        "key 'a', byte 37: a bool is 0 or 1, not 2",
    ),
    "bools": (
        lambda: Bytes().head(0, 1).array("a", BOOL, [1, 2, 1]),
        "key 'a', byte 49: a bool is 0 or 1",
    ),
    "string": (
        lambda: Bytes().head(0, 1).string("a").u32(STR).u64(50),
        "key 'a', byte 45: the string needs 50 bytes",
    ),
    "element type": (
        lambda: Bytes().head(0, 1).string("a").u32(ARR).u32(99).u64(0),
        "byte 37: 99 is not a type",
    ),
    "array": (
        lambda: Bytes().head(0, 1).string("a").u32(ARR).u32(F32).u64(2**30),
        f"{2**30} elements, at most|need at least",
    ),
    "array wrap": (
        lambda: Bytes().head(0, 1).string("a").u32(ARR).u32(F32).u64(2**62),
        f"byte 41: {2**62} elements",
    ),
    "strings": (
        lambda: Bytes().head(0, 1).string("a").u32(ARR).u32(STR).u64(9),
        "9 strings need at least 72 bytes",
    ),
    "string of strings": (
        lambda: Bytes().head(0, 1).string("a").u32(ARR).u32(STR).u64(2).string("x").u64(HUGE),
        f"key 'a', byte 58: string 1 of 2 needs {HUGE + 8} bytes, but only 8 are left",
    ),
    "length of strings": (
        lambda: (
            Bytes()
            .head(0, 1)
            .string("a")
            .u32(ARR)
            .u32(STR)
            .u64(2)
            .string("long enough")
            .raw(b"123")
        ),
        "string 1 of 2 needs 8 bytes, but only 3 are left",
    ),
    "arrays": (
        lambda: Bytes().head(0, 1).string("a").u32(ARR).u32(ARR).u64(2).u64(0),
        "2 arrays need at least 24 bytes",
    ),
    "nested": (lambda: nested(5), "key 'deep', byte .*: arrays are nested more than 4 deep"),
    "alignment 0": (
        lambda: alignment(U32, 0),
        r"key 'general\.alignment', byte 24: u32 0: must be a u32, a power",
    ),
    "alignment 48": (lambda: alignment(U32, 48), "u32 48: must be"),
    "alignment large": (lambda: alignment(U32, 1 << 21), "u32 2097152: must be"),
    "alignment type": (lambda: alignment(U64, 32), "u64 32: must be"),
    "tensor name": (
        lambda: Bytes().head(1, 0).tensor(b"\xc0", [8], 0, 0).raw(bytes(64)),
        "tensors, byte 24: the name of",
    ),
    "tensor twice": (
        lambda: (
            Bytes().head(2, 0).tensor("t", [8], 0, 0).tensor("t", [8], 0, 32).pad().raw(bytes(64))
        ),
        "tensor 't', byte 57: the tensor occurs twice",
    ),
    "axes": (lambda: one_tensor([1] * 5), "tensor 't', byte 33: 5 axes, at most 4"),
    "many axes": (
        lambda: Bytes().head(1, 0).string("t").u32(2**32 - 1).raw(bytes(99)),
        "4294967295 axes",
    ),
    "zero size": (
        lambda: one_tensor([8, 0]),
        r"tensor 't', byte 24: shape \(0, 8\): sizes must be at least 1",
    ),
    "negative size": (lambda: one_tensor([8, HUGE]), rf"shape \({HUGE}, 8\)"),
    "product": (lambda: one_tensor([1 << 32, 1 << 32]), "their product at most"),
    "wrapping product": (
        lambda: one_tensor([1 << 16, 1 << 16, 1 << 16, 1 << 16]),
        "their product at most",
    ),
    "format": (
        lambda: one_tensor([32], kind=4),
        "tensor 't', byte 45: 4 is not the number of a format",
    ),
    "large format": (lambda: one_tensor([32], kind=2**32 - 1), "4294967295 is not the number"),
    "block": (
        lambda: one_tensor([33], kind=2),
        "rows of 33 elements, but q4_0 stores blocks of 32",
    ),
    "scalar block": (lambda: one_tensor([], kind=2), "rows of 1 elements"),
    "misaligned": (
        lambda: one_tensor([4], offset=4),
        "tensor 't', byte 24: offset 4 is not a multiple of the alignment 32",
    ),
    "past the end": (
        lambda: one_tensor([9]),
        "its data are the bytes 64 to 100, but the file ends at 96",
    ),
    "offset past the end": (
        lambda: one_tensor([8], offset=64),
        "bytes 128 to 160, but the file ends at 96",
    ),
    "wrapping offset": (
        lambda: one_tensor([8], offset=2**64 - 32),
        f"bytes {2**64 + 32} to {2**64 + 64}",
    ),
    "overlap": (
        lambda: two_tensors(32),
        "tensor 't', byte 128: its data overlap those of tensor 's'",
    ),
    "same place": (lambda: two_tensors(0), "overlap"),
}


@pytest.mark.parametrize("case", BAD)
def test_a_bad_file_gives_one_clear_error(case: str, tmp_path: Path) -> None:
    make, text = BAD[case]
    path = save(tmp_path / "bad.gguf", make())
    with pytest.raises(FileFormatError, match=text) as caught:
        gguf.open_file(path)
    assert str(caught.value).startswith(str(path)) and caught.value.file == str(path)
    assert isinstance(caught.value.offset, int) and isinstance(caught.value, TetradError)


@pytest.mark.parametrize("name", gguf.FORMATS)
def test_sizes_do_not_wrap_in_any_format(name: str, tmp_path: Path) -> None:
    """A shape whose bytes are 0 modulo 2**64, and the smallest one, each in a file with one block
    of data."""
    number, block, nbytes = gguf.FORMATS[name]
    good = gguf.open_file(save(tmp_path / "good.gguf", one_tensor([block], number, nbytes=nbytes)))
    assert (good.tensors["t"].format, good.tensors["t"].nbytes) == (name, nbytes)
    for dims in ([block, 2], [block, 1 << 32, 1 << 32], [block * 2**20, 2**22, 2**22]):
        with pytest.raises(FileFormatError, match=r"the file ends at|product"):
            gguf.open_file(save(tmp_path / "bad.gguf", one_tensor(dims, number, nbytes=nbytes)))


def test_the_deepest_arrays_and_the_largest_numbers_of_them(tmp_path: Path) -> None:
    deep = gguf.open_file(save(tmp_path / "deep.gguf", nested(4))).metadata["deep"]
    assert deep[0][0][0].tolist() == [1, 2]  # type: ignore[index]
    made = Bytes().head(0, 1).string("many").u32(ARR).u32(ARR).u64(1 << 16)
    made.raw(b"\0" * 12 * (1 << 16))
    with pytest.raises(FileFormatError, match="more than 65536 arrays"):
        gguf.open_file(save(tmp_path / "many.gguf", made))


def test_a_header_has_a_limit(tmp_path: Path) -> None:
    path = save(tmp_path / "large.gguf", Bytes().head(0, 1).string("a").u32(STR).u64(200 << 20))
    with open(path, "r+b") as file:
        file.truncate(1 << 30)  # a hole, not bytes on disk
    with pytest.raises(
        FileFormatError, match=r"needs 209715200 bytes, .* \(the limit of a header\)"
    ):
        gguf.open_file(path)


def test_names_in_errors_are_printable_and_short(tmp_path: Path) -> None:
    made = Bytes().head(0, 1).key("\x1b[31m" + "é" * 500, BOOL, 7)
    with pytest.raises(FileFormatError) as caught:
        gguf.open_file(save(tmp_path / "x.gguf", made))
    assert (
        str(caught.value).isascii()
        and "\x1b" not in str(caught.value)
        and len(caught.value.part) < 500
    )


def test_what_is_not_a_file(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        gguf.open_file(tmp_path / "nothing.gguf")
    with pytest.raises(IsADirectoryError):
        gguf.open_file(tmp_path)
    os.mkfifo(tmp_path / "pipe.gguf")
    with pytest.raises(FileFormatError, match="not a regular file"):
        gguf.open_file(tmp_path / "pipe.gguf")


@given(st.binary(max_size=200))
def test_any_bytes_behind_a_good_beginning(
    tmp_path_factory: pytest.TempPathFactory, data: bytes
) -> None:
    path = tmp_path_factory.getbasetemp() / "any.gguf"
    path.write_bytes(bytes(Bytes().head(1, 1).data) + data)
    with suppress(FileFormatError):
        gguf.open_file(path)


def test_a_file_written_over_with_its_old_time_is_noticed_and_one_with_a_new_name_is_not(
    tmp_path: Path,
) -> None:
    path, other = tmp_path / "a.gguf", tmp_path / "b.gguf"
    for place, byte in ((path, b"a"), (other, b"b")):
        place.write_bytes(byte * 100_000)
        os.utime(place, (1e9, 1e9))
    pin = Pin(str(path))
    path.rename(tmp_path / "c.gguf")
    pin.check()
    shutil.copy2(other, tmp_path / "c.gguf")  # the same size and time
    with pytest.raises(FileChangedError, match="was written to since it was opened"):
        pin.check()
