"""runtime.table: entries become records, barriers stand where they must, and what cannot run is
refused."""

from __future__ import annotations

import pytest

from tetrad.backends.cpu.native import FLAGS, HEADER_WORDS, KINDS
from tetrad.backends.cpu.table import (
    FOREVER,
    HEAVY_GROUPS,
    BranchEntry,
    CallEntry,
    Entry,
    HostArgument,
    HostEntry,
    KernelEntry,
    LoopEntry,
    Table,
    Word,
)
from tetrad.core.errors import CompileError

CODE = 4096  # an address that is never called here


def kernel(
    groups: int = 1, *, base: int = -1, serial: bool = False, barrier: bool = True, name: str = ""
) -> KernelEntry:
    return KernelEntry(CODE, (Word(base, 0),), groups, name=name, serial=serial, barrier=barrier)


def records(table: Table) -> list[list[int]]:
    count, words = table._image[0], list(table._image[1:])
    found = []
    while words:
        found.append(words[: words[1]])
        words = words[words[1] :]
    assert len(found) == count
    return found


def barriers(*entries: Entry) -> list[bool]:
    return [bool(record[2] & FLAGS["BARRIER"]) for record in records(Table(entries))]


def test_a_kernel_record() -> None:
    entry = KernelEntry(CODE, (Word(2, 64), Word(-1, 7)), 10, slice=3)
    header = [KINDS["KERNEL"], HEADER_WORDS + 8, FLAGS["BARRIER"], 0]
    assert records(Table((entry,))) == [[*header, CODE, 10, 3, 2, 2, 64, -1, 7]]


def test_a_host_record() -> None:
    """As that of a kernel, one call a slice: routine, blocks and arguments are its words."""
    entry = HostEntry(CODE, (HostArgument(1, Word(-1, 7), 0, -4, 4),), 6, 2, shared=True)
    header = [KINDS["HOST"], HEADER_WORDS + 20, FLAGS["BARRIER"] | FLAGS["SHARED"], 0]
    words = [n for value in (CODE, 2, 1, 1, 7, 0, -4, 4) for n in (-1, value)]
    table = Table((entry,))
    assert records(table) == [[*header, CODE, 6, 1, 8, *words]]
    assert table.calls_out and table.width == 6 and not Table((kernel(),)).calls_out


def test_barriers_stand_where_something_may_depend_on_them() -> None:
    loop = LoopEntry((kernel(),), Word(-1, 2))
    assert barriers(kernel(), kernel()) == [True, True]
    assert barriers(kernel(barrier=False), kernel()) == [False, True]
    assert barriers(kernel(barrier=False)) == [True]  # the end of a table
    # before and after control flow
    assert barriers(kernel(barrier=False), loop, kernel()) == [True, False, True]


def test_entries_that_worker_0_runs_alone_need_none_between_them() -> None:
    host = HostEntry(CODE, (), 1, serial=True)
    assert barriers(kernel(serial=True), host, kernel(serial=True), kernel()) == [
        False,
        False,
        True,
        True,
    ]
    assert barriers(kernel(), kernel(serial=True)) == [True, True]
    assert barriers(kernel(serial=True), HostEntry(CODE, (), 3)) == [True, True]


def test_bases_are_counted_through_loops_and_branches_but_not_calls() -> None:
    inner = Table((kernel(base=4),))
    assert Table((LoopEntry(inner, Word(-1, 2)),)).base_count == 5
    assert Table((BranchEntry(Word(0, 0), (inner,)),)).base_count == 5
    assert Table((CallEntry(inner, tuple(Word(1, i) for i in range(5))),)).base_count == 2
    assert Table(()).base_count == 0


def test_slots_and_names_are_in_flattened_order() -> None:
    layer = Table((kernel(name="a"), kernel(name="b")))
    table = Table(
        (
            CallEntry(layer, (), name="layer 0"),
            LoopEntry((kernel(name="c"),), Word(-1, 2)),
            BranchEntry(Word(0, 0), (layer, Table((kernel(),)))),
        )
    )
    assert table.names == ("layer 0", "a", "b", "loop", "c", "branch", "a", "b", "kernel")
    assert table.slots == len(table.names)
    assert [record[3] for record in records(table)] == [0, 3, 5]


def test_scratch_and_width_look_inside() -> None:
    inner = Table((kernel(30), kernel(90, serial=True)), scratch_bytes=256)
    assert Table((LoopEntry(inner, Word(-1, 1)),), scratch_bytes=64).scratch_bytes == 256
    assert Table((CallEntry(inner, ()),)).width == 30


def test_heavy_is_estimated_or_told() -> None:
    assert not Table((kernel(HEAVY_GROUPS - 1),)).heavy
    assert Table((kernel(HEAVY_GROUPS),)).heavy
    assert Table((LoopEntry((kernel(),), Word(-1, FOREVER), until=Word(0, 0)),)).heavy
    assert Table((LoopEntry((kernel(),), Word(0, 0)),)).heavy  # trips in memory: any number
    assert Table((HostEntry(CODE, (), 1),)).heavy
    assert not Table((kernel(HEAVY_GROUPS),), heavy=False).heavy


def deep(levels: int) -> Table:
    table = Table((kernel(),))
    for _ in range(levels):
        table = Table((CallEntry(table, ()),))
    return table


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Table((KernelEntry(0, (), 1, name="f"),)), "'f' has no code"),
        (lambda: Table((HostEntry(0, (), 1),)), "has no code"),
        (lambda: Table((HostEntry(CODE, (), -1),)), "called -1 times"),
        (lambda: Table((HostEntry(CODE, (HostArgument(0, Word(0, 0)),) * 21, 1),)), "21 arguments"),
        (lambda: Table((kernel(-1),)), "-1 workgroups"),
        (lambda: Table((kernel(base=-2),)), "base -2"),
        (lambda: Table((BranchEntry(Word(0, 0), ()),)), "branch without tables"),
        (
            lambda: Table((CallEntry(Table((kernel(base=1),)), (Word(-1, 0),)),)),
            "gives 1 bases, its table needs 2",
        ),
        (lambda: deep(1000), "bytes of stack"),
    ],
)
def test_what_cannot_run_is_refused(make: object, message: str) -> None:
    with pytest.raises(CompileError, match=message):
        make()  # type: ignore[operator]
