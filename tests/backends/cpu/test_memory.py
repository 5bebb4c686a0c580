"""runtime.memory: blocks are aligned, large enough, used again, given back, and live as long as
anybody sees them."""

from __future__ import annotations

import copy
import gc
import pickle
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tetrad.backends.cpu import memory
from tetrad.backends.cpu.memory import (
    ALIGNMENT,
    LARGE_BLOCK,
    LARGE_PAGE,
    Arenas,
    Storage,
    release_kept_blocks,
    shelf,
    size_class,
)

ODD = 3 << 20  # bytes of a size class that nothing else uses here


@pytest.fixture(autouse=True)
def empty_shelves() -> Iterator[None]:
    gc.collect()
    release_kept_blocks()
    yield
    release_kept_blocks()


# -- size classes ----------------------------------------------------------------------------------


@given(st.integers(0, 1 << 40))
def test_a_class_holds_what_is_asked_for_with_little_waste(nbytes: int) -> None:
    size = size_class(nbytes)
    assert size >= max(nbytes, ALIGNMENT) and size % ALIGNMENT == 0
    assert size < max(2 * nbytes, ALIGNMENT + 1) or size - nbytes < 65536
    assert size_class(size) == size  # a class serves itself


@pytest.mark.parametrize(
    ("nbytes", "size"),
    [
        (0, 64),
        (1, 64),
        (64, 64),
        (65, 128),
        (1000, 1024),
        (65536, 65536),
        (65537, 131072),
        (131072, 131072),
    ],
)
def test_classes(nbytes: int, size: int) -> None:
    assert size_class(nbytes) == size


@given(st.lists(st.integers(0, 300_000), max_size=8))
def test_blocks_are_aligned_and_apart(sizes: list[int]) -> None:
    held = [Storage.allocate(n) for n in sizes]
    assert all(s.ptr % ALIGNMENT == 0 and s.nbytes == n for s, n in zip(held, sizes, strict=True))
    ends = sorted((s.ptr, s.ptr + size_class(s.nbytes)) for s in held)
    assert all(end <= start for (_, end), (start, _) in pairwise(ends))


def test_large_blocks_begin_at_a_large_page() -> None:
    assert all(Storage.allocate(LARGE_BLOCK + more).ptr % LARGE_PAGE == 0 for more in (0, 1, ODD))


# -- the shelves -----------------------------------------------------------------------------------


def test_a_freed_block_serves_the_next_request_of_its_class() -> None:
    first = Storage.allocate(ODD)
    place = first.ptr
    del first
    assert shelf(ODD).free == [place]
    again = Storage.allocate(ODD - 5)
    assert (again.ptr, again.nbytes, shelf(ODD).free) == (place, ODD - 5, [])
    assert Storage.allocate(ODD).ptr != place


def test_kept_bytes_are_counted_and_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "KEEP_BYTES", ODD)
    held = [Storage.allocate(ODD) for _ in range(4)]
    assert memory._kept[0] == 0
    while held:
        held.pop()
    # the block that passes the bound is the last
    assert memory._kept[0] == 2 * ODD and len(shelf(ODD).free) == 2
    taken = Storage.allocate(ODD)
    assert memory._kept[0] == ODD
    del taken
    release_kept_blocks()
    assert memory._kept[0] == 0 and shelf(ODD).free == []


def failing(times: int) -> Callable[[int, int], int | None]:
    """An allocator that has nothing so many times."""
    real, left = memory._aligned_alloc, [times]

    def allocate(alignment: int, size: int) -> Any:
        left[0] -= 1
        return None if left[0] >= 0 else real(alignment, size)

    return allocate


def test_kept_blocks_go_back_before_memory_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    Storage.allocate(ODD)  # kept at once
    assert len(shelf(ODD).free) == 1
    monkeypatch.setattr(memory, "_aligned_alloc", failing(1))
    assert Storage.allocate(2 * ODD).ptr
    assert shelf(ODD).free == []


def test_no_memory_is_an_error_with_the_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "_aligned_alloc", failing(2))
    with pytest.raises(MemoryError, match=f"tetrad: cannot allocate {5 * ODD} bytes"):
        Storage.allocate(5 * ODD)


def test_threads_never_share_a_block() -> None:
    def work(number: int) -> bool:
        good = True
        for _ in range(200):
            view = Storage.allocate(ODD // 16).as_numpy(np.dtype(np.uint8), (64,))
            view[:] = number
            good = good and bool((view == number).all())
        return good

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(work, range(4))) == [True] * 4


# -- views -----------------------------------------------------------------------------------------


def test_a_view_keeps_its_block() -> None:
    storage = Storage.allocate(ODD)
    place, seen = storage.ptr, weakref.ref(storage)
    view = storage.as_numpy(np.dtype(np.float32), (3, 5))[1:]
    del storage
    assert seen() is not None and shelf(ODD).free == [] and view.ctypes.data == place + 20
    del view
    assert seen() is None and shelf(ODD).free == [place]


def test_the_bytes_of_an_array_in_place() -> None:
    array = np.arange(6, dtype=np.int16)
    storage = Storage.from_numpy(array)
    storage.as_numpy(np.dtype(np.int16), (2, 3))[1, 2] = 50
    assert array[5] == 50 and storage.nbytes == 12 and storage.owner is array
    assert storage.as_numpy(np.dtype(np.float64), (0, 3)).shape == (0, 3)


@pytest.mark.parametrize("ask", [pickle.dumps, copy.copy, copy.deepcopy])
def test_memory_is_not_copied(ask: Callable[[Storage], Any]) -> None:
    with pytest.raises(TypeError, match="memory is neither copied nor pickled"):
        ask(Storage.allocate(8))


# -- many sizes ------------------------------------------------------------------------------------


def test_what_is_kept_is_bounded_by_what_was_in_use_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    memory.release_kept_blocks()
    monkeypatch.setattr(memory, "SPARE_BYTES", ODD)
    monkeypatch.setattr(memory, "_held", [0])
    monkeypatch.setattr(memory, "_most", [0])
    held = [Storage.allocate(ODD + 65536 * i) for i in range(3)]
    in_use = sum(size_class(one.nbytes) for one in held)
    del held
    for i in range(3, 40):
        latest = size_class(Storage.allocate(ODD + 65536 * i).nbytes)  # freed at once
        assert memory._kept[0] <= in_use + latest


def test_blocks_of_classes_in_use_go_back_last(monkeypatch: pytest.MonkeyPatch) -> None:
    used, stale = ODD, ODD + 65536
    held = [Storage.allocate(used), Storage.allocate(stale)]
    del held
    Storage.allocate(used)  # from the shelf, and back
    monkeypatch.setattr(memory, "spare_bytes", lambda: 0)
    Storage.allocate(ODD // 2)
    assert len(shelf(used).free) == 1 and shelf(stale).free == []


def test_the_count_of_kept_bytes_is_made_anew() -> None:
    Storage.allocate(ODD)
    memory._kept[0] = -(1 << 40)  # as if threads had raced for it
    held = [Storage.allocate(2 * ODD) for _ in range(memory.RECOUNT)]
    assert memory._kept[0] == ODD and len(held) == memory.RECOUNT


# -- arenas ----------------------------------------------------------------------------------------


def test_an_arena_serves_every_size_up_to_the_largest() -> None:
    arenas = Arenas()
    first = arenas.take(ODD)
    arenas.idle.append(first)
    assert arenas.take(100) is first
    arenas.idle.append(first)
    gone = weakref.ref(first)
    del first
    larger = arenas.take(2 * ODD)
    assert gone() is None and larger.nbytes >= 2 * ODD and larger.ptr % ALIGNMENT == 0
    # a second call at once: as large, for the next may need it
    assert arenas.take(100).nbytes == larger.nbytes


def test_arenas_go_back_to_the_system() -> None:
    arenas = Arenas()
    arenas.idle.append(arenas.take(5 * ODD))
    del arenas
    assert shelf(5 * ODD).free == [] and memory._kept[0] == 0


def test_calls_at_once_never_have_the_same_arena() -> None:
    arenas = Arenas()

    def work(number: int) -> bool:
        good = True
        for i in range(200):
            arena = arenas.take(4096 * (1 + (i * number) % 7))
            view = arena.as_numpy(np.dtype(np.uint8), (64,))
            view[:] = number
            good = good and bool((view == number).all())
            arenas.idle.append(arena)
        return good

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(work, range(1, 5))) == [True] * 4


def test_sizes_in_turn_find_their_blocks_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two functions called in turn, each with large results of its own size, ask the system for
    nothing."""
    memory.release_kept_blocks()
    monkeypatch.setattr(memory, "SPARE_BYTES", 0)
    results = [Storage.allocate(ODD), Storage.allocate(3 * ODD)]
    for _ in range(2):
        for i, size in enumerate((ODD, 3 * ODD)):
            results[i] = Storage.allocate(size)
    monkeypatch.setattr(memory, "new_block", lambda size: pytest.fail("a fresh block"))
    for _ in range(3):
        for i, size in enumerate((ODD, 3 * ODD)):
            results[i] = Storage.allocate(size)


def test_a_block_that_outlives_its_module_goes_silently(monkeypatch: pytest.MonkeyPatch) -> None:
    """As the process ends, modules are emptied in some order."""
    block = Storage.allocate(ODD)
    monkeypatch.setattr(memory, "_kept", None)
    del block


def test_blocks_that_nobody_uses_go_with_a_program() -> None:
    memory.release_kept_blocks()
    program, result = memory.Arenas(), Storage.allocate(memory.SPARE_BYTES + ODD)
    del result
    assert memory._kept[0] > memory.SPARE_BYTES
    del program
    assert memory._kept[0] == 0
