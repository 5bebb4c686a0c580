"""Arrays: exchange with NumPy and Python, immutability, printing, conversions."""

from __future__ import annotations

import copy
import pickle
import subprocess
import sys

import numpy as np
import pytest

import tetrad as td
from tetrad.core.errors import CopyError, DtypeError, TraceError, UnsupportedError


def test_numpy_sees_the_values_in_place_and_read_only() -> None:
    x = td.asarray([1.0, 2.0])
    seen = np.asarray(x)
    assert np.shares_memory(seen, np.asarray(x)) and not seen.flags.writeable
    assert np.array(x).flags.writeable
    assert np.asarray(x, np.float64).dtype == np.float64


def test_only_memory_that_nobody_can_write_to_is_shared() -> None:
    source = np.ones(3, np.float32)
    copied = td.asarray(source)
    source[0] = 7
    assert float(copied[0]) == 1
    fixed = np.frombuffer(bytes(12), np.float32)
    assert np.shares_memory(np.asarray(td.asarray(fixed)), fixed)
    assert np.shares_memory(np.asarray(td.asarray(fixed, copy=False)), fixed)
    assert not np.shares_memory(np.asarray(td.asarray(fixed, copy=True)), fixed)
    with pytest.raises(
        CopyError,
        match=r"asarray: copy=False, but somebody may write to the memory of this f32\[3\]",
    ):
        td.asarray(source, copy=False)


def test_dlpack_round_trip() -> None:
    x = td.asarray([[1, 2], [3, 4]])
    assert np.array_equal(np.from_dlpack(x), x.memory)
    assert td.from_dlpack(np.arange(3, dtype=np.int64)).dtype is td.int64
    assert x.__dlpack_device__() == (1, 0)


def compiled_or_not() -> list[td.Array]:
    return [
        td.asarray([1.0, 2.0]),
        td.ones(2) + 0,
        td.jit(lambda x: x + 1)(np.ones(2)),
        td.broadcast_to(1.0, (2,)),
    ]


@pytest.mark.parametrize("which", range(4))
def test_exports_are_read_only_for_good(which: int) -> None:
    x = compiled_or_not()[which]
    for seen in (
        np.asarray(x),
        np.from_dlpack(x),
        np.asarray(x)[:1],
        np.asarray(x).view().base,
        x.__buffer__(0),
    ):
        array = np.asarray(seen)
        assert not array.flags.writeable
        with pytest.raises(ValueError, match="WRITEABLE"):
            array.flags.writeable = True


def test_consumers_of_dlpack_that_know_no_read_only_memory_get_a_copy() -> None:
    class Old:
        def __init__(self, x: td.Array) -> None:
            self.x = x

        def __dlpack__(self, **_: object) -> object:
            return self.x.__dlpack__()

        def __dlpack_device__(self) -> tuple[int, int]:
            return self.x.__dlpack_device__()

    for x in compiled_or_not():
        taken = np.from_dlpack(Old(x))  # type: ignore[arg-type]
        assert not np.shares_memory(taken, np.asarray(x)) and taken.tolist() == x.tolist()
        assert np.from_dlpack(x, copy=True).flags.writeable and np.shares_memory(
            np.from_dlpack(x), np.asarray(x)
        )
        with pytest.raises(
            CopyError, match=r"copy=False, but a consumer below DLPack 1\.0 may write to f"
        ):
            x.__dlpack__(copy=False)


def test_from_dlpack_copies_what_is_not_ours() -> None:
    source, x = np.ones(3), td.ones(3)
    taken = td.from_dlpack(source)
    source[0] = 5
    assert taken.tolist() == [1, 1, 1] and td.from_dlpack(x).tolist() == [1, 1, 1]
    assert not np.shares_memory(np.asarray(td.from_dlpack(x, copy=True)), np.asarray(x))
    with pytest.raises(BufferError, match="from_dlpack: copy=False"):
        td.from_dlpack(source, copy=False)


def test_another_dtype_is_a_copy() -> None:
    with pytest.raises(
        ValueError, match=r"__array__: copy=False, but f32\[2\] has to become float64"
    ):
        td.ones(2).__array__(np.float64, copy=False)


def test_what_numpy_saw_comes_back_without_a_copy() -> None:
    for x in compiled_or_not():
        assert np.shares_memory(np.asarray(td.asarray(np.asarray(x))), np.asarray(x))


def test_a_pickle_is_its_own_whatever_it_is_read_from() -> None:
    for x in (
        td.asarray([1.0, 2.0]),
        td.zeros((0, 3)),
        td.ones((2, 3), dtype="bfloat16").T,
        td.asarray(True),
    ):
        buffers: list[pickle.PickleBuffer] = []
        data = pickle.dumps(x, protocol=5, buffer_callback=buffers.append)
        found = pickle.loads(data, buffers=[bytearray(b) for b in buffers])
        assert found.type == x.type and found.tolist() == x.tolist() and buffers == []


def test_buffer() -> None:
    assert memoryview(td.asarray([1, 2]).__array__()).tolist() == [1, 2]


def test_the_namespace_is_the_package() -> None:
    assert td.asarray(1).__array_namespace__(api_version="2025.12") is td
    assert td.__array_api_version__ == "2025.12"
    with pytest.raises(DtypeError, match=r"versions: 2023\.12, 2024\.12, 2025\.12"):
        td.asarray(1).__array_namespace__(api_version="1999.1")


def test_python_numbers() -> None:
    assert int(td.asarray(3)) == 3 and float(td.asarray(2.5)) == 2.5 and bool(td.asarray([True]))
    assert [10, 20][td.asarray(1)] == 20
    assert (
        td.asarray([4]).item() == 4
        and td.asarray(td.asarray(0.5).astype(td.bfloat16)).item() == 0.5
    )
    assert f"{td.asarray(0.125):.2f}" == "0.12"


@pytest.mark.parametrize("convert", [int, float, lambda x: [1][x]])
def test_only_arrays_without_axes_convert(convert: object) -> None:
    with pytest.raises((DtypeError, TypeError)):
        convert(td.asarray([1, 2]))  # type: ignore[operator]


def test_truth_of_many_is_ambiguous() -> None:
    for x in (td.asarray([True, False]), td.zeros(0)):
        with pytest.raises(ValueError, match="ambiguous"):
            bool(x)


def test_what_has_no_axes_is_no_sequence() -> None:
    x = td.asarray(1.5)
    for what in (len, iter, list):
        with pytest.raises(TypeError, match="an array without axes"):
            what(x)  # type: ignore[operator]
    with pytest.raises(TypeError, match="only integer arrays are indices"):
        range(10)[x]
    for to in (int, float, complex):
        with pytest.raises(TypeError, match="only an array without axes"):
            to(td.ones(2))


def test_membership_and_order() -> None:
    x = td.asarray([[1.0, 2.0], [3.0, 4.0]])
    assert 3 in x and 5 not in x and td.asarray([1.0, 2.0]) in x and "a" not in x
    assert [row.tolist() for row in reversed(x)] == [[3, 4], [1, 2]]
    assert (x == None) is False and (x != None) is True  # noqa: E711


def test_single_elements() -> None:
    x = td.asarray([[1.0, 2.0], [3.0, 4.0]])
    assert (x.item(2), x.item(0, 1), x.item((1, 1)), td.asarray(2).item()) == (3, 2, 4, 2)
    assert f"{x[0, 0]:.3f} {td.asarray(7):04d} {x[0]}" == "1.000 0007 [1. 2.]"
    with pytest.raises(TypeError, match=r"format: '.2f' formats one number, got f32\[2,2\]"):
        format(x, ".2f")


def test_repr() -> None:
    assert repr(td.asarray([1.5, 2.0])) == "Array([1.5, 2. ], float32)"
    assert repr(td.asarray([[1], [2]])) == "Array([[1],\n       [2]], int32)"
    assert repr(td.asarray(True)) == "Array(True, bool)"


def test_properties() -> None:
    x = td.zeros((2, 3))
    assert (x.ndim, x.size, x.nbytes, x.itemsize, x.device, len(x)) == (2, 6, 24, 4, "cpu", 2)
    assert x.T.shape == (3, 2) and x.to_device("cpu").shape == x.shape
    with pytest.raises(UnsupportedError, match="devices: cpu"):
        x.to_device("gpu")
    assert td.zeros((2, 3, 4)).T.shape == (4, 3, 2)


def test_iteration_and_methods() -> None:
    x = td.asarray([[1.0, 2.0], [3.0, 4.0]])
    assert [row.tolist() for row in x] == [[1.0, 2.0], [3.0, 4.0]]
    assert x.sum(axis=0).tolist() == [4.0, 6.0] and x.mean().item() == 2.5
    assert x.reshape(4).shape == x.reshape((4,)).shape == x.flatten().shape == (4,)
    assert x.reshape(2, 1, 2).squeeze(1).transpose(1, 0).tolist() == [[1.0, 3.0], [2.0, 4.0]]
    assert x.max(axis=1).tolist() == [2.0, 4.0] and x.argmin().item() == 0
    assert x.astype(td.int32).dtype is td.int32


def test_numpy_on_either_side() -> None:
    x, y = td.asarray([1.0, 2.0]), np.array([10.0, 20.0], np.float32)
    for result in (x + y, y + x, np.float32(10) + x):
        assert isinstance(result, td.Array) and result.dtype is td.float32
    assert (y - x).tolist() == [9.0, 18.0]
    assert np.exp(x).dtype == np.float32  # NumPy's own functions see the values


def test_operators_refuse_what_is_no_operand() -> None:
    with pytest.raises(TypeError):
        td.zeros(2) + "text"
    assert (td.zeros(2) == "text") is False


def test_numpy_functions_take_values_and_ask_for_shapes() -> None:
    x = td.asarray([[1.0, 2.0], [3.0, 4.0]])
    assert (
        np.sum(x) == 10
        and np.mean(x, axis=0).tolist() == [2, 3]
        and np.concatenate([x, x]).shape == (4, 2)
    )
    assert td.jit(lambda x: x * np.ndim(x))(x).tolist() == [[2, 4], [6, 8]]
    with pytest.raises(TraceError, match="td function in place of NumPy"):
        td.jit(lambda x: np.sort(x))(x)
    assert float(td.jit(lambda x: np.sum(x))(x)) == 10  # which asks for the method


def test_an_axis_may_be_positional() -> None:
    x = td.asarray([[1.0, 2.0], [3.0, 5.0]])
    for name in (
        "sum",
        "prod",
        "max",
        "min",
        "mean",
        "var",
        "std",
        "any",
        "all",
        "argmax",
        "argmin",
    ):
        want = getattr(np, name)(np.asarray(x), 1)
        np.testing.assert_array_equal(getattr(td, name)(x, 1), want)
        np.testing.assert_array_equal(getattr(x, name)(1), want)
    assert td.stack([x, x], 2).shape == (2, 2, 2) and td.expand_dims(x, 1).shape == (2, 1, 2)
    assert td.roll(x, 1, 1).tolist() == [[2, 1], [5, 3]] and td.take(
        x, td.asarray([1]), 1
    ).tolist() == [[2], [5]]


@pytest.mark.parametrize(
    "dtype", [td.float32, td.bfloat16, td.complex64, td.bool, td.uint16], ids=str
)
def test_arrays_are_copied_and_pickled_by_value(dtype: td.DType) -> None:
    x = td.jit(lambda x: x + x)(td.ones((2, 3), dtype=td.float32)).astype(dtype)
    x = td.jit(lambda x: x)(x)  # memory of compiled code
    with pytest.raises(TypeError, match="memory is neither copied nor pickled"):
        copy.deepcopy(x._storage)
    for again in (pickle.loads(pickle.dumps(x)), copy.deepcopy(x), copy.copy(x)):
        assert again.dtype is x.dtype and again.shape == x.shape and again._storage is None
        np.testing.assert_array_equal(np.asarray(again), np.asarray(x))


def test_a_pickle_holds_values_that_outlive_the_process() -> None:
    made = """
import pickle, sys, numpy as np, tetrad as td
doubled = td.jit(lambda x: x * 2)(np.arange(1000, dtype=np.float32))
sys.stdout.buffer.write(pickle.dumps([doubled, td.zeros(3)]))
"""
    sent = subprocess.run([sys.executable, "-c", made], check=True, capture_output=True).stdout
    first, second = pickle.loads(sent)
    np.testing.assert_array_equal(first, np.arange(1000, dtype=np.float32) * 2)
    assert second.tolist() == [0, 0, 0]


def test_copies_of_donated_and_traced_arrays() -> None:
    x = td.jit(lambda x: x + 1)(td.zeros(3))
    kept = copy.deepcopy({"x": x})
    td.jit(lambda x: x * 2, donate_argnums=0)(x)
    assert kept["x"].tolist() == [1, 1, 1]
    with pytest.raises(TraceError, match="was donated"):
        pickle.dumps(x)
    assert td.jit(lambda x: copy.deepcopy([x])[0] + copy.copy(x))(td.ones(2)).tolist() == [2, 2]
    with pytest.raises(TraceError, match="has no values yet"):
        td.jit(lambda x: pickle.dumps(x))(td.ones(2))


def test_quantised_arrays_are_pickled_with_their_type() -> None:
    q = td.quant.quantize(td.ones((2, 64)), "q8_0")
    again = pickle.loads(pickle.dumps(q))
    assert again.type == q.type and again.to_bytes() == q.to_bytes()


KEEPING = {
    "reshape": lambda x: td.reshape(x, (2, 2)), "astype": lambda x: td.astype(x, td.int32),
    "squeeze": td.squeeze,
    "broadcast_to": lambda x: td.broadcast_to(x, (3, 4)), "transpose": lambda x: td.transpose(x),
    "flip": td.flip,
    "concat": lambda x: td.concat([x]), "floor": td.floor, "sum over nothing": lambda x: td.sum(x,
    axis=()),
    "einsum": lambda x: td.einsum("i->i", x), "roll": lambda x: td.roll(x, 0),
    "expand_dims": td.expand_dims,
    "moveaxis": lambda x: td.moveaxis(x, 0, 0), "real": td.real, "positive": td.positive,
    "broadcast_arrays": td.broadcast_arrays,
    "clip": lambda x: td.clip(x), "getitem": lambda x: td.expand_dims(x, axis=0)[0],
}  # fmt: skip


@pytest.mark.parametrize("name", KEEPING)
def test_results_do_not_change_with_the_numpy_array_they_came_from(name: str) -> None:
    x = np.arange(4, dtype=np.int32)
    result = KEEPING[name](x)
    result = result[0] if isinstance(result, tuple) else result
    before = np.array(result)
    x[:] = 77
    np.testing.assert_array_equal(result, before)


def test_a_list_in_itself_is_no_array() -> None:
    endless: list[object] = [1.0]
    endless.append(endless)
    with pytest.raises(TraceError, match="a list contains itself"):
        td.asarray(endless)
