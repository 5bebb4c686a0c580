"""DLPack: dtypes that NumPy's exchange has not, and torch where it is installed."""

from __future__ import annotations

import ctypes
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tetrad as td
from tetrad.core.dtypes import FLOAT8, DType, bf16
from tetrad.tracing import dlpack

NARROW = (bf16, *FLOAT8)
VALUES = [0.0, -1.5, 0.25, 16.0]
TORCH = (
    *("bfloat16", "float16", "float32", "float64", "complex64", "complex128", "bool"),
    *("int8", "int16", "int32", "int64", "uint8"),
    *("float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz"),
)


class Old:
    """A library that knows nothing of DLPack 1.0."""

    def __init__(self, x: Any) -> None:
        self.x = x

    def __dlpack__(self, stream: Any = None) -> Any:
        return self.x.__dlpack__()

    def __dlpack_device__(self) -> tuple[int, int]:
        return (1, 0)


@pytest.mark.parametrize("dtype", NARROW, ids=repr)
@pytest.mark.parametrize("version", [None, (1, 0)])
def test_the_capsule_names_the_dtype(dtype: DType, version: Any) -> None:
    x = td.asarray(VALUES, dtype=dtype)
    found = dlpack.element_of(x.__dlpack__(max_version=version))
    assert (found.code, found.bits, found.lanes) == (dlpack.CODES[dtype], dtype.bits, 1)


@pytest.mark.parametrize("dtype", NARROW, ids=repr)
@pytest.mark.parametrize("way", [lambda x: x, Old], ids=["new", "old"])
def test_there_and_back(dtype: DType, way: Any) -> None:
    x = td.reshape(td.asarray(VALUES, dtype=dtype), (2, 2)).T
    seen = dlpack.read(way(x))
    assert seen.dtype == dtype.dtype
    back = td.from_dlpack(way(x))
    assert back.dtype is dtype and back.tolist() == x.tolist()
    named = np.asarray(VALUES, getattr(ml_dtypes, dtype.dtype.name))
    assert td.asarray(named).dtype is dtype
    assert np.asarray(td.asarray(named)).tobytes() == named.tobytes()


def test_memory_is_shared_with_those_who_know_that_it_is_read_only() -> None:
    x = td.asarray(VALUES, dtype=bf16)
    seen = dlpack.read(x)
    assert not seen.flags.writeable and np.shares_memory(seen, np.asarray(x))
    assert not np.shares_memory(dlpack.read(Old(x)), np.asarray(x))


def test_what_is_elsewhere_is_refused() -> None:
    class Far(Old):
        def __dlpack_device__(self) -> tuple[int, int]:
            return (2, 0)

    with pytest.raises(td.errors.UnsupportedError, match=r"on device \(2, 0\)"):
        td.from_dlpack(Far(td.ones(2)))


def test_the_layout_of_a_capsule() -> None:
    name = b"dltensor"
    capsule = np.arange(6, dtype=np.int16).reshape(2, 3).__dlpack__()
    address = dlpack._pointer(capsule, name)
    rank = ctypes.c_int32.from_address(address + 16).value
    found = dlpack.element_of(capsule)
    assert (rank, found.code, found.bits) == (2, 0, 16)


@pytest.mark.parametrize("name", TORCH)
def test_torch(name: str) -> None:
    torch = pytest.importorskip("torch")
    dtype, kind = getattr(td, name), getattr(torch, name)
    tensor = torch.tensor(VALUES).abs().to(kind)
    for taken in (td.from_dlpack(tensor), td.asarray(tensor)):
        assert taken.dtype is dtype
        assert taken.tolist() == tensor.tolist()
    given = torch.from_dlpack(taken)
    assert given.dtype is kind and given.tolist() == tensor.tolist()


def test_a_library_that_writes_to_read_only_memory_gets_a_copy() -> None:
    asking = {"__name__": "torch.utils.dlpack"}
    exec("def ask(x, **given): return x.__dlpack__(max_version=(1, 0), **given)", asking)
    ask: Any = asking["ask"]

    class Asking(Old):
        def __dlpack__(self, **_: object) -> Any:
            return ask(self.x)

    x = td.ones(3)
    taken = np.from_dlpack(Asking(x))
    taken[0] = 5
    assert x.tolist() == [1, 1, 1]
    with pytest.raises(BufferError, match=r"copy=False, but PyTorch may write to f32\[3\]"):
        ask(x, copy=False)


def test_torch_does_not_write_to_arrays() -> None:
    torch = pytest.importorskip("torch")
    for take in (torch.from_dlpack, torch.asarray, torch.as_tensor):
        for dtype in (td.float32, td.bfloat16):
            x = td.ones(3, dtype=dtype)
            double = td.jit(lambda y, x=x: x * y)
            tensor = take(x)
            tensor += 1
            assert x.tolist() == double(td.ones(3)).tolist() == [1, 1, 1]
