"""Known functions: what is recalled without tracing is what would have been traced, and nothing
else is recalled."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tetrad as td
from tests.compiler.caches import empty_cache
from tetrad.backends.cpu import code_cache as objects
from tetrad.backends.cpu.cache import ObjectCache
from tetrad.backends.cpu.memory import Storage
from tetrad.compiler import named_function as known
from tetrad.compiler.named_function import NamedFunction, Sized
from tetrad.core.errors import BoundsError
from tetrad.tracing.array import Array

LARGE = np.random.default_rng(1).standard_normal((3, 40, 60)).astype(np.float32)
SMALL = np.arange(60, dtype=np.float32)
ROWS = {0: {0: td.Dim("rows", max=500)}}


@pytest.fixture(autouse=True)
def own_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> ObjectCache:
    return empty_cache(monkeypatch, tmp_path)


def array(values: Any) -> Array:
    return Array.from_numpy(np.ascontiguousarray(values))


class Layer:
    """x * (a large constant) + (another), and x + (a small one): counts how often it is traced."""

    def __init__(self, *weights: np.ndarray, name: str = "layer") -> None:
        self.weights, self.traced, self.named = [array(w) for w in weights], 0, name

    def step(self, x: Array, tokens: Array) -> tuple[Array, Array]:
        self.traced += 1
        scale, shift, small = self.weights
        return td.take(x, tokens, axis=0)[:, None, None] * scale + shift, x + small

    def known(self, **settings: Any) -> NamedFunction:
        settings = {"dims": {0: ROWS[0], 1: {0: td.Dim("tokens", max=50)}}, **settings}
        return NamedFunction(self.step, lambda: self.named, lambda: self.weights, **settings)


def layer(**settings: Any) -> Layer:
    return Layer(LARGE[0], LARGE[1], SMALL[:1], **settings)


def run(program: Sized, *arguments: np.ndarray) -> list[bytes]:
    storages = program.run([Storage.from_numpy(a) for a in arguments], program.dims)
    return [
        storage.as_numpy(kind.dtype.np, kind.storage_shape).tobytes()  # type: ignore[arg-type]
        for storage, kind in zip(storages, program.outputs, strict=True)
    ]


def given(rows: int = 7, tokens: int = 3) -> tuple[np.ndarray, np.ndarray]:
    return np.linspace(-1, 1, rows).astype(np.float32), np.arange(tokens, dtype=np.int32) % rows


def results(function: NamedFunction, *arguments: np.ndarray) -> list[bytes]:
    arguments = arguments or given()
    return run(function.sized(*map(array, arguments)), *arguments)


def test_a_second_process_does_not_trace() -> None:
    first, second = layer(), layer()
    want = results(first.known())
    assert first.traced == 1
    function = second.known()
    assert results(function) == want and second.traced == 0
    (found,) = function.found.values()
    assert found is not None and not found.program.is_full


def test_a_recalled_program_serves_every_size() -> None:
    first, second = layer(), layer()
    traced, recalled = first.known(), second.known()
    for rows, tokens in ((7, 3), (1, 1), (500, 50), (7, 3)):
        want = results(traced, *given(rows, tokens))
        assert results(recalled, *given(rows, tokens)) == want
    assert (first.traced, second.traced) == (1, 0)


def test_it_uses_the_weights_at_hand() -> None:
    results(layer().known())
    other = Layer(LARGE[2], LARGE[0], SMALL[:1])
    told = results(other.known())
    assert other.traced == 0
    x, tokens = given()
    assert told[0] == (x[tokens][:, None, None] * LARGE[2] + LARGE[0]).tobytes()


def key_of(made: Layer, *arguments: np.ndarray, **settings: Any) -> str:
    function = made.known(**settings)
    types = [array(a).type for a in arguments or given()]
    kinds = tuple(known.marked(kind, function.marks.get(i)) for i, kind in enumerate(types))
    key = function.key(kinds)
    assert key is not None
    return key


def test_what_a_program_depends_on_is_part_of_its_key() -> None:
    splat, tied = np.ones_like(LARGE[0]), layer()
    tied.weights[1] = tied.weights[0]
    others: Sequence[str] = [
        key_of(layer()),
        key_of(layer(name="other")),
        key_of(Layer(LARGE[0], LARGE[1], SMALL[1:2])),  # what is in a small one
        key_of(Layer(LARGE[0], LARGE[1][:30], SMALL[:1])),
        key_of(Layer(LARGE[0], LARGE[1].astype(np.float16), SMALL[:1])),
        key_of(Layer(LARGE[0], splat, SMALL[:1])),
        key_of(Layer(LARGE[0], 2 * splat, SMALL[:1])),
        key_of(tied),
        key_of(layer(), donated=(0,)),
        key_of(layer(), dims={}),
        key_of(layer(), dims={0: {0: td.Dim("rows", max=501)}}),
        key_of(layer(), dims={0: {0: td.Dim("lines", max=500)}}),
        key_of(layer(), given()[0].astype(np.float64), given()[1]),
    ]
    assert len(set(others)) == len(others)
    assert (
        key_of(Layer(LARGE[1], LARGE[2], SMALL[:1]))
        == key_of(layer())
        == key_of(layer(), *given(20, 9))
    )


@pytest.mark.parametrize("name, value", [("TETRAD_THREADS", "3"), ("TETRAD_TARGET", "x86-64-v3")])
def test_a_flag_that_changes_programs_changes_the_key(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    monkeypatch.delenv(name, raising=False)
    before = key_of(layer())
    monkeypatch.setenv(name, value)
    assert key_of(layer()) != before


@pytest.mark.parametrize("folder", known.MAKERS)
def test_changed_source_changes_the_key(monkeypatch: pytest.MonkeyPatch, folder: str) -> None:
    before, digest = key_of(layer()), objects.folder_digest
    monkeypatch.setattr(
        objects, "folder_digest", lambda name: digest(name) + "changed" * (name == folder)
    )
    objects.build_identity.cache_clear()
    assert key_of(layer()) != before
    objects.build_identity.cache_clear()


def test_a_digest_sees_every_byte_and_every_file(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(objects, "PACKAGE", str(tmp_path))
    (tmp_path / "models" / "deep").mkdir(parents=True)
    digest = objects.folder_digest.__wrapped__
    seen = []
    for path, text in (
        ("a.py", "x = 1"),
        ("a.py", "x = 2"),
        ("b.py", ""),
        ("deep/c.py", "y"),
        ("c.py", "y"),
    ):
        (tmp_path / "models" / path).write_text(text)
        seen.append(digest("models"))
    (tmp_path / "models/b.py").unlink()
    seen.append(digest("models"))
    assert len(set(seen)) == 6
    outer = digest("")
    (tmp_path / "names.py").write_text("")
    assert digest("models") == seen[-1] and digest("") != outer


def test_every_folder_that_can_shape_a_trace_is_in_the_key() -> None:
    root = Path(td.__file__).parent
    folders = {path.name for path in root.iterdir() if (path / "__init__.py").exists()}
    assert folders - set(known.MAKERS) == {
        "cli",
        "compat",
        "debug",
        "explain",
        "formats",
        "hub",
        "jax",
        "optim",
        "serve",
        "text",
    }


def test_a_damaged_note_is_ignored_and_written_again(
    own_cache: ObjectCache, tmp_path: Path
) -> None:
    want = results(layer().known())
    key = key_of(layer())
    (entry,) = (tmp_path / "cache").glob(f"{key}*")
    whole = entry.read_bytes()
    for at in range(len(whole)):
        entry.write_bytes(whole[:at] + bytes([whole[at] ^ 1 << at % 8]) + whole[at + 1 :])
        assert own_cache.get(key) is None
    again = layer()
    assert results(again.known()) == want and again.traced == 1
    assert entry.read_bytes() == whole


def test_a_note_about_a_lost_program_is_ignored(tmp_path: Path) -> None:
    want = results(layer().known())
    key = key_of(layer())
    for path in (tmp_path / "cache").iterdir():
        if key not in path.name:
            path.unlink()
    objects.OBJECTS.addresses.clear()
    again, third = layer(), layer()
    assert results(again.known()) == want and again.traced == 1
    assert results(third.known()) == want and third.traced == 0


def test_a_function_without_a_name_is_traced() -> None:
    for _ in range(2):
        made = layer()
        results(NamedFunction(made.step, lambda: None, lambda made=made: made.weights))
        assert made.traced == 1


def test_a_constant_the_function_did_not_tell_of_is_traced() -> None:
    for _ in range(2):
        made = layer()
        results(NamedFunction(made.step, lambda: "layer", lambda made=made: made.weights[:1]))
        assert made.traced == 1


def test_of_two_arrays_in_one_place_nobody_knows_which_is_meant() -> None:
    for _ in range(2):
        made = Layer(LARGE[0], LARGE[1], SMALL[:1])
        made.weights[1] = Array.from_numpy(made.weights[0].memory)
        results(made.known())
        assert made.traced == 1


def test_one_array_used_twice_is_one_constant() -> None:
    for times in (1, 0):
        made = Layer(LARGE[0], LARGE[1], SMALL[:1])
        made.weights[1] = made.weights[0]
        told = [made.weights[0], made.weights[2]]
        results(NamedFunction(made.step, lambda: "tied", lambda told=told: told))
        assert made.traced == times


def test_flags_that_watch_get_a_trace(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    results(layer().known())
    monkeypatch.setenv("TETRAD_SHOW", "graph")
    made = layer()
    results(made.known())
    assert made.traced == 1 and "graph step(" in capsys.readouterr().err


def test_a_trap_names_the_line_of_the_function() -> None:
    results(layer().known())
    made = layer()
    x, tokens = given()
    with pytest.raises(BoundsError, match=r"(?s)index 7 .*test_named_function\.py"):
        results(made.known(), x, tokens + 7)
    assert made.traced == 1  # to explain it


def test_sizes_that_do_not_fit_are_an_error_of_jit() -> None:
    results(layer().known())
    made = layer()
    with pytest.raises(td.errors.ShapeError, match="rows is 501"):
        results(made.known(), *given(501))


def test_donated_memory_becomes_a_result() -> None:
    y = np.arange(40, dtype=np.float32)
    for _ in range(2):
        x = y.copy()
        function = NamedFunction(lambda x, y: x + y, lambda: "add", donated=(0,))
        assert results(function, x, y) == [(2 * y).tobytes()] and x.tobytes() == (2 * y).tobytes()
    assert None not in function.found.values()
