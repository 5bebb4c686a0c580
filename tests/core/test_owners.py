"""Whose memory an array lies in: the flag of a view says nothing, its owner does."""

from __future__ import annotations

import mmap
from collections.abc import Callable
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

import tetrad as td
from tetrad.core.errors import DtypeError
from tetrad.core.owners import frozen, is_lasting, lasting, own_copy, same_bits


def read_only(array: np.ndarray) -> np.ndarray:
    view = array.view()
    view.flags.writeable = False
    return view


LASTING: dict[str, Callable[[], np.ndarray]] = {
    "bytes": lambda: np.frombuffer(bytes(8), np.uint8),
    "a part of bytes": lambda: np.frombuffer(bytes(8), np.uint8).reshape(2, 4)[:, ::2],
    "a view of bytes": lambda: np.frombuffer(memoryview(bytes(8))[2:], np.uint8),
    "an array of ours": lambda: np.asarray(td.ones(3)),
    "a result of ours": lambda: np.asarray(td.jit(lambda x: x + 1)(np.ones(3)))[1:],
}
OTHERS: dict[str, Callable[[], np.ndarray]] = {
    "an array": lambda: np.ones(3),
    "a read-only view": lambda: read_only(np.ones(3)),
    "a read-only view of a view": lambda: read_only(read_only(np.ones(3)[1:])[1:]),
    "a broadcast": lambda: np.broadcast_to(np.ones(3), (2, 3)),
    "a read-only owner": lambda: read_only(np.ones(3)).copy(),
    "a bytearray": lambda: np.frombuffer(bytearray(8), np.uint8),
    "a read-only view of a bytearray": lambda: np.frombuffer(
        memoryview(bytearray(8)).toreadonly(), np.uint8
    ),
    "a writable mapping": lambda: read_only(np.frombuffer(mmap.mmap(-1, 8), np.uint8)),
    "DLPack": lambda: read_only(np.from_dlpack(np.ones(3))),
}


@pytest.mark.parametrize("name", LASTING)
def test_memory_that_nobody_writes_to_is_shared(name: str) -> None:
    array = LASTING[name]()
    assert is_lasting(array) and lasting(array) is array and frozen(array) is array


@pytest.mark.parametrize("name", OTHERS)
def test_memory_that_somebody_may_write_to_is_copied(name: str) -> None:
    array = OTHERS[name]()
    if name == "a read-only owner":
        array.flags.writeable = False
    copied = lasting(array)
    assert not is_lasting(array) and not is_lasting(array, or_mapped=True)
    assert not np.shares_memory(copied, array) and np.array_equal(copied, array)


def test_a_file_that_is_mapped_for_reading_may_still_change(tmp_path: Path) -> None:
    path = tmp_path / "numbers"
    path.write_bytes(np.arange(4, dtype=np.float32).tobytes())
    mapped = np.memmap(path, np.float32, "r")
    assert not is_lasting(mapped) and is_lasting(mapped, or_mapped=True)
    copied, shared = td.asarray(mapped), td.asarray(mapped, copy=False)
    assert np.shares_memory(np.asarray(shared), mapped) and not np.shares_memory(
        np.asarray(copied), mapped
    )
    with path.open("r+b") as file:
        file.write(np.float32(9).tobytes())
    assert copied.tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize("dtype", [np.float32, np.bool_, np.complex128, ml_dtypes.bfloat16])
@pytest.mark.parametrize("shape", [(), (0, 3), (5,), (3, 4)])
def test_a_frozen_array_is_the_array_and_stays_read_only(
    dtype: type, shape: tuple[int, ...]
) -> None:
    array = np.ones((*shape, 2), dtype)[..., 1]
    shown = frozen(array)
    assert (
        shown.dtype == array.dtype
        and shown.shape == array.shape
        and shown.tolist() == array.tolist()
    )
    assert np.may_share_memory(shown, array) or not array.size
    for one in (shown, shown.view(), shown.view().base):
        assert isinstance(one, np.ndarray)
        with pytest.raises(ValueError, match="WRITEABLE"):
            one.flags.writeable = True


def test_copies_begin_at_a_cache_line_and_bits_are_compared() -> None:
    array = np.arange(300_000, dtype=np.float32)[::-1]
    copied = own_copy(array)
    assert copied.ctypes.data % 64 == 0 and same_bits(array, copied)
    copied[-1] = -0.0  # was +0.0
    assert np.array_equal(array, copied) and not same_bits(array, copied)
    assert same_bits(np.float32([np.nan]), np.float32([np.nan])) and same_bits(
        np.ones(()), np.ones(())
    )


def test_arrays_that_numpy_broadcast_are_taken_without_a_warning() -> None:
    a, b = np.broadcast_arrays(np.ones(3), np.ones((2, 3)))  # warnings are errors here
    assert not is_lasting(a) and td.asarray(a).shape == (2, 3) and td.add(a, b).shape == (2, 3)


def test_objects_have_no_dtype_however_many() -> None:
    with pytest.raises(DtypeError, match="no dtype for dtype"):
        td.asarray(np.array([object()] * 2000))
