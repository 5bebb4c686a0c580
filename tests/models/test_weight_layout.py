"""Weights of a file, laid out: the same bytes by either way, in their place, and the file's pages
given back."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from tetrad.core.errors import UnsupportedError
from tetrad.formats import gguf
from tetrad.models import weight_layout as packed
from tetrad.models.rope import rope_order
from tetrad.models.weight_layout import load_weights
from tetrad.quant import format_named
from tetrad.quant.lanes import DTYPES, LANES

COLUMNS = 512


def low_bit(format: str, rows: int, seed: int = 0, *outer: int) -> gguf.Raw:
    made = format_named(format)
    shape = (*outer, rows, COLUMNS)
    size = int(np.prod(shape)) // made.block * made.nbytes
    return gguf.Raw(
        format, shape, np.random.default_rng(seed).integers(0, 256, size, dtype=np.uint8)
    )


def written(path: Path, tensors: dict[str, np.ndarray | gguf.Raw], **metadata: object) -> gguf.File:
    gguf.write(path / "model.gguf", metadata, tensors)
    return gguf.open_file(path / "model.gguf")


def bytes_of(file: gguf.File, name: str, order: np.ndarray | None = None) -> np.ndarray:
    """What a low-bit tensor should become."""
    tensor = file.tensors[name]
    rows = file.data(name).reshape(int(np.prod(tensor.shape[:-1])), -1)
    return LANES[tensor.format].interleave(rows if order is None else rows[order])


@pytest.mark.parametrize("small", [0, packed.SMALL], ids=["compiled", "numpy"])
@pytest.mark.parametrize(("alignment", "shift"), [(32, 0), (1, 0), (1, 1), (1, 2), (1, 3)])
def test_every_format_is_laid_out_wherever_it_lies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, small: int, alignment: int, shift: int
) -> None:
    monkeypatch.setattr(packed, "SMALL", small)
    tensors = {f"{name}.weight": low_bit(name, 33, i) for i, name in enumerate(LANES)}
    file = written(
        tmp_path,
        tensors,
        **{"general.alignment": gguf.Typed("u32", alignment), "shift": "x" * shift},
    )
    weights, _ = load_weights(file, lambda name: None)
    assert list(weights) == list(file.tensors)
    for name, weight in weights.items():
        assert weight.dtype is DTYPES[file.tensors[name].format] and weight.shape == (33, COLUMNS)
        assert weight.memory.__array_interface__["data"][0] % 64 == 0
        np.testing.assert_array_equal(weight.memory, bytes_of(file, name))


def test_rows_come_in_the_order_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    order = rope_order(2, 16, 16)
    floats = np.arange(32 * 4, dtype=np.float32).reshape(32, 4)
    file = written(tmp_path, {"a": low_bit("q4_0", 32), "b": low_bit("q4_0", 32, 1), "c": floats})
    for small in (0, packed.SMALL):
        monkeypatch.setattr(packed, "SMALL", small)
        weights, _ = load_weights(file, lambda name: order if name != "b" else None)
        np.testing.assert_array_equal(weights["a"].memory, bytes_of(file, "a", order))
        np.testing.assert_array_equal(weights["b"].memory, bytes_of(file, "b"))
        np.testing.assert_array_equal(weights["c"].memory, floats[order])


def test_matrices_above_one_another_become_one(tmp_path: Path) -> None:
    floats = np.arange(3 * 4 * 8, dtype=np.float32).reshape(3, 4, 8)
    file = written(tmp_path, {"experts": low_bit("q6_k", 16, 0, 3), "floats": floats})
    weights, _ = load_weights(file, lambda name: None)
    assert weights["experts"].shape == (48, COLUMNS) and weights["floats"].shape == (12, 8)
    np.testing.assert_array_equal(weights["experts"].memory, bytes_of(file, "experts"))


def test_weights_outlive_the_file(tmp_path: Path) -> None:
    with written(tmp_path, {"a": low_bit("q4_1", 16), "b": np.ones(3, np.float32)}) as file:
        want, (weights, _) = bytes_of(file, "a"), load_weights(file, lambda name: None)
    os.remove(tmp_path / "model.gguf")
    np.testing.assert_array_equal(weights["a"].memory, want)
    np.testing.assert_array_equal(weights["b"].memory, np.ones(3, np.float32))


def test_a_file_without_low_bit_tensors(tmp_path: Path) -> None:
    file = written(tmp_path, {"a": np.ones((2, 3), np.float16)})
    np.testing.assert_array_equal(
        load_weights(file, lambda name: None)[0]["a"].memory, np.ones((2, 3))
    )


def test_a_format_without_a_layout_is_named(tmp_path: Path) -> None:
    file = written(
        tmp_path, {"a.weight": gguf.Raw("iq2_xxs", (16, 256), np.zeros(16 * 66, np.uint8))}
    )
    with pytest.raises(
        UnsupportedError, match=r"tensor a\.weight has the format iq2_xxs.*\n.*q4_k"
    ):
        load_weights(file, lambda name: None)


def test_more_memory_than_there_is(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(
        MemoryError, match=r"the weights of a model take 1073741824\.00 GiB, this process may use"
    ):
        packed.room(1 << 60)
    # where nobody says how much there is
    monkeypatch.setattr(packed, "check_memory", lambda *arguments: None)
    with pytest.raises(
        MemoryError, match="cannot allocate 1152921504606846976 bytes for the weights of a model"
    ):
        packed.room(1 << 60)


def resident(what: str) -> int:
    """Bytes of this process: VmHWM the most there were, VmRSS now, RssFile those of files."""
    line = next(x for x in Path("/proc/self/status").read_text().splitlines() if x.startswith(what))
    return int(line.split()[1]) * 1024


@pytest.mark.skipif(
    not os.access("/proc/self/clear_refs", os.W_OK),
    reason="the system does not count resident pages",
)
def test_memory_stays_near_that_of_the_result(tmp_path: Path) -> None:
    # so that everything is compiled and mapped
    file = written(tmp_path, {"small": low_bit("q8_0", 8192)})
    load_weights(file, lambda name: None)
    tensors = {f"blk.{i}": low_bit("q8_0", 8192, i) for i in range(10)}
    tensors["embedding"] = low_bit("q8_0", 24576)
    file = written(tmp_path, tensors)
    Path("/proc/self/clear_refs").write_text("5")  # VmHWM begins again
    before, of_files = resident("VmRSS"), resident("RssFile")
    weights, _ = load_weights(file, lambda name: None)
    total = sum(int(weight.nbytes) for weight in weights.values())
    assert resident("VmHWM") - before < 1.1 * total + (4 << 20)
    assert resident("RssFile") - of_files < 4 << 20
