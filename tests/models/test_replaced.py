"""Files that change under a model: what is mapped is pinned to the file as it was opened, and goes
with the model."""

from __future__ import annotations

import gc
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

import tetrad as td
from tests.models.loaded import write_model
from tests.models.tiny import tiny_model
from tetrad.core.errors import FileChangedError, FileFormatError, TetradError
from tetrad.formats import gguf
from tetrad.models import load
from tetrad.models.model import Model

TOKENS = [17, 114, 211, 8]


def write_large(path: Path, seed: int = 0, words: int = 1500, arch: str = "llama") -> None:
    """A model whose embedding and output stay in the file: above what is copied, where kernels may
    read them.

    The norms of all are equal: constants of equal content are one, wherever they come from.
    """
    metadata, tensors = tiny_model(arch, seed=seed, words=words)
    norms = {name: tensor for name, tensor in tiny_model(arch)[1].items() if "norm" in name}
    gguf.write(path, {"general.alignment": 64, **metadata}, tensors | norms)


def mappings(path: Path) -> int:
    """How many pieces of a file are mapped; also of one that has lost its name."""
    return sum(str(path) in line for line in Path("/proc/self/maps").read_text().splitlines())


@pytest.fixture(params=[True, False], ids=["gc", "no gc"])
def collecting(request: pytest.FixtureRequest) -> Iterator[None]:
    was = gc.isenabled()
    gc.enable() if request.param else gc.disable()
    yield
    gc.enable() if was else gc.disable()


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[Path, np.ndarray]]:
    """Models whose tensors lie at different places, and what each predicts, loaded from a path of
    its own."""
    folder, made = tmp_path_factory.mktemp("files"), []
    for seed, words in enumerate((1500, 1700, 1540)):
        path = folder / f"{seed}.gguf"
        write_large(path, seed, words)
        made.append((path, td.load(path, context=64).logits(TOKENS).copy()))
    gc.collect()
    return made


def over_in_place(source: Path, path: Path) -> None:
    shutil.copyfile(source, path)


def renamed_over(source: Path, path: Path) -> None:
    shutil.copyfile(source, path.with_suffix(".new"))
    path.with_suffix(".new").replace(path)


def deleted_first(source: Path, path: Path) -> None:
    path.unlink(missing_ok=True)
    shutil.copyfile(source, path)


@pytest.mark.parametrize(
    "put", [over_in_place, renamed_over, deleted_first], ids=lambda put: put.__name__
)
@pytest.mark.usefixtures("collecting")
def test_a_path_gives_the_model_that_is_there_now(
    files: list[tuple[Path, np.ndarray]], tmp_path: Path, put: Callable[[Path, Path], None]
) -> None:
    path = tmp_path / "model.gguf"
    for turn in range(9):
        source, expected = files[turn % len(files)]
        put(source, path)
        model = td.load(path, context=64)
        assert np.array_equal(model.logits(TOKENS), expected), turn
        del model


@pytest.mark.skipif(
    not os.path.exists("/proc/self/maps"), reason="the system has no list of mappings"
)
@pytest.mark.parametrize(
    "use", ["load", "logits", "generate", "stream", "chat", "embed", "grammar", "error"]
)
def test_a_dropped_model_is_unmapped_at_once(
    tmp_path: Path, use: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a search for cycles, with code compiled here or found on disk."""
    path = tmp_path / "model.gguf"
    write_large(path)
    gc.collect()
    gc.disable()
    try:
        for cache in (str(tmp_path / "cache"), str(tmp_path / "cache"), "off"):
            monkeypatch.setenv("TETRAD_CACHE_DIR", cache)
            model = td.load(path, context=128)
            assert mappings(path) > 0
            in_use(model, use)
            del model
            assert mappings(path) == 0, cache
    finally:
        gc.enable()


def in_use(model: Model, use: str) -> None:
    match use:
        case "logits":
            model.logits(TOKENS)
        case "generate":
            model.generate("hello", max_tokens=3, seed=1)
        case "stream":
            list(model.generate("hello", max_tokens=3, stream=True))
            next(model.generate("left unfinished", stream=True))
        case "chat":
            model.chat([{"role": "user", "content": "hi"}], max_tokens=3)
        case "embed":
            model.embed("hello")
        case "grammar":
            model.generate("hello", max_tokens=3, json_schema={"type": "object"})
        case "error":
            with pytest.raises(TetradError):
                model.logits([10**6])


def test_a_model_in_use_keeps_the_file_that_was_renamed_over(
    files: list[tuple[Path, np.ndarray]], tmp_path: Path
) -> None:
    path = tmp_path / "model.gguf"
    shutil.copyfile(files[0][0], path)
    old = td.load(path, context=64)
    assert np.array_equal(old.logits(TOKENS), files[0][1])
    renamed_over(files[1][0], path)
    new = td.load(path, context=64)
    path.unlink()
    assert np.array_equal(old.logits(TOKENS), files[0][1])
    assert np.array_equal(new.logits(TOKENS), files[1][1])


def cut_short(path: Path) -> None:
    os.truncate(path, 1000)


def cut_and_written_again(path: Path) -> None:
    size = path.stat().st_size
    os.truncate(path, 0)
    path.write_bytes(b"x" * size)


def one_byte(path: Path) -> None:
    with path.open("r+b") as file:
        file.seek(-5, os.SEEK_END)
        file.write(b"x")
    moved(path)


def grown(path: Path) -> None:
    with path.open("ab") as file:
        file.write(b"x")


def moved(path: Path) -> None:
    """Clocks of file systems are coarse: a change within the tick of the opening has the same
    time."""
    status = path.stat()
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns + 1_000_000))


@pytest.mark.parametrize(
    "change", [cut_short, cut_and_written_again, one_byte, grown], ids=lambda c: c.__name__
)
@pytest.mark.parametrize("warm", [False, True], ids=["fresh", "in use"])
def test_a_file_changed_in_place_is_noticed_before_it_is_read(
    tmp_path: Path, change: Callable[[Path], None], warm: bool
) -> None:
    path = tmp_path / "model.gguf"
    write_large(path)
    model = td.load(path, context=64)
    stream = model.generate("hello", ignore_eos=True, stream=True)
    if warm:
        next(stream)
    change(path)
    with pytest.raises(FileChangedError, match=r"model\.gguf: the file .* since it was opened"):
        list(stream)
    with pytest.raises(FileChangedError, match="load it again"):
        model.logits(TOKENS)
    with pytest.raises(FileChangedError):
        model.embed("hello")


def test_a_model_of_low_bits_is_free_of_its_file(tmp_path: Path) -> None:
    """Its weights are laid out anew and small tensors are copied: nothing stays mapped."""
    path = tmp_path / "model.gguf"
    write_model(str(path), "llama", "q8_0", words=1500)
    model = td.load(path, context=64)
    before = model.logits(TOKENS).copy()
    assert not model.parts.programs.files and mappings(path) == 0
    cut_short(path)
    model.engine.slots[0].length = 0  # nothing of the cache
    assert np.array_equal(model.logits(TOKENS), before)


def test_a_file_changed_while_it_is_loaded_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "model.gguf"
    write_large(path)
    really = load.load_weights
    monkeypatch.setattr(load, "load_weights", lambda *given: (really(*given), one_byte(path))[0])
    with pytest.raises(FileChangedError):
        td.load(path)


def test_equal_small_weights_of_two_files_are_not_shared(tmp_path: Path) -> None:
    """Constants of equal content are one constant: it must lie in neither file."""
    first, second = tmp_path / "first.gguf", tmp_path / "second.gguf"
    for path, seed in ((first, 3), (second, 3)):
        write_model(str(path), "llama", "q8_0", seed=seed)
    one, two = td.load(first, context=64), td.load(second, context=64)
    expected = one.logits(TOKENS)
    os.truncate(first, 0)
    assert np.array_equal(two.logits(TOKENS), expected)


def test_descriptors_are_closed(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    write_large(path)
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(3):
        file = gguf.open_file(path)
        view = file.data("output.weight")
        file.close()
        del file, view
        (tmp_path / "bad.gguf").write_bytes(b"GGUFxxxx")
        with pytest.raises(FileFormatError):
            gguf.open_file(tmp_path / "bad.gguf")
    assert len(os.listdir("/proc/self/fd")) == before
