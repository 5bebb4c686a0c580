"""What `make test-aarch64` is made of, as far as it needs no emulator: sources of packages, lines
that differ."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.aarch64 import machine
from tests.aarch64.__main__ import same, start
from tests.aarch64.bits import digest, examples, line
from tests.aarch64.machine import MachineError, Source, sources_of_line, sources_of_stanza
from tests.aarch64.plugin import FEW, choose

STANZA = """Types: deb deb-src
# a comment
URIs: http://one/debian http://two/debian
Suites: trixie trixie-updates
Components: main contrib
Signed-By: /keys/archive.gpg"""


def test_sources_of_both_kinds_are_read() -> None:
    found = list(sources_of_stanza(STANZA))
    assert [(s.uri, s.suite) for s in found] == [
        (f"http://{host}/debian", suite)
        for host in ("one", "two")
        for suite in ("trixie", "trixie-updates")
    ]
    assert {(s.components, s.key) for s in found} == {("main contrib", "/keys/archive.gpg")}
    given = (
        "deb [arch=amd64 signed-by=/keys/archive.gpg] http://one/debian trixie main contrib  # why"
    )
    assert list(sources_of_line(given)) == found[:1]
    assert list(sources_of_stanza(str(found[0]))) == found[:1]


@pytest.mark.parametrize(
    "text", ["", "# deb http://one/debian trixie main", "deb-src http://one/debian trixie main"]
)
def test_other_lines_are_no_sources(text: str) -> None:
    assert list(sources_of_line(text)) == []
    assert list(sources_of_stanza(text)) == []


def test_sources_that_are_switched_off_do_not_count() -> None:
    assert list(sources_of_stanza(f"{STANZA}\nEnabled: no")) == []


def test_other_releases_are_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        machine,
        "system_sources",
        lambda: iter([Source("http://one/debian", "cloud-trixie", "main")]),
    )
    monkeypatch.setattr(machine, "codename", lambda: "trixie")
    monkeypatch.setattr(machine.shutil, "which", lambda name: name)
    with pytest.raises(MachineError, match="nothing of the release 'trixie'"):
        machine.unpack_packages()


def test_without_qemu_it_is_said_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine.shutil, "which", lambda name: None)
    with pytest.raises(MachineError, match="apt-get install qemu-user"):
        machine.make_machine()


def test_every_example_has_its_own_name() -> None:
    names = [example.name for example in examples()]
    assert len(set(names)) == len(names) > 1000


def test_a_line_tells_operands_and_results() -> None:
    (example,) = (e for e in examples() if e.name == "product f32 7x3x17")
    graph, (a, b) = example.make()
    again = line(example)
    assert again == line(example) and again.split(" | ")[:2] == [example.name, digest([a, b])]
    changed = [np.nextafter(a, np.float32(9)), b]
    assert (
        line(replace(example, make=lambda: (graph, changed))).split(" | ")[2]
        != again.split(" | ")[2]
    )


def test_what_lapack_computes_is_said_to_be_so() -> None:
    (example,) = (e for e in examples() if e.name == "svd")
    assert line(example).endswith(" | by LAPACK")


def test_a_digest_knows_zeros_but_not_nans_apart() -> None:
    payload = np.array([0x7FC00001, 0xFFC00000], np.uint32).view(np.float32)
    assert digest([payload]) == digest([np.array([np.nan, np.nan], np.float32)])
    assert digest([payload + 0j]) != digest([payload])
    assert digest([np.float32([0.0])]) != digest([np.float32([-0.0])])
    assert digest([np.float32([[1.0]])]) != digest([np.float32([1.0])])


def test_a_line_that_only_one_processor_printed_is_shown(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert same("bits", ["a | 1 | 2"], ["a | 1 | 2"])
    assert not same("bits", ["a | 1 | 2", "b | 1 | 2"], ["a | 1 | 2", "b | 1 | 3"])
    said = capsys.readouterr().out
    assert "only here: b | 1 | 2" in said and "only there: b | 1 | 3" in said
    assert not same("bits", ["a | 1 | 2"], None)
    assert not same("bits", ["a | 1 | 2"], [])


def test_a_part_sees_no_flags_but_those_it_is_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TETRAD_CHECK", "bounds")
    program = "import os; print({k: v for k, v in os.environ.items() if k.startswith('TETRAD_')})"
    run = start(
        tmp_path / "said", machine.sys.executable, ("-c", program), {"TETRAD_TARGET": "host"}
    )
    assert run.wait() == 0
    assert (
        tmp_path / "said"
    ).read_text() == "{'TETRAD_CACHE_DIR': 'off', 'TETRAD_TARGET': 'host'}\n"


def test_every_test_keeps_a_share_of_its_cases() -> None:
    cases = [f"tests/a.py::many[{i}]" for i in range(100)]
    few = [f"tests/a.py::some[{i}]" for i in range(FEW)] + ["tests/b.py::one"]
    chosen = choose(cases + few, share=4)
    assert chosen.issuperset(few) and len(chosen.intersection(cases)) == 25
    assert chosen == choose([*reversed(few), *reversed(cases)], share=4)
    assert len(choose(cases[:5], share=4)) == FEW
    assert choose(cases + few, share=1) == {*cases, *few}
