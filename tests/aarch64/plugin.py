"""A plugin of pytest: leaves out what an emulated processor cannot do, each with its reason, and
most cases of tests that have many.

An emulator takes some twenty times as long as a processor. So every test runs, but of its cases
only a share: those whose names have the smallest checksums, so the choice is the same everywhere
and no order of parameters favours one of them. `AARCH64_SHARE=1` runs all cases. The part `bits`
has no share: it covers every op, dtype and low-bit format.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterable

import pytest

SHARE = int(os.environ.get("AARCH64_SHARE", "8"))  # one case of so many
FEW = 2  # cases of each test, where it has them
# By a part of a test's name.
REASONS = {
    "compiles_for_levels_this_processor_lacks": "code for x86-64 is made on x86-64; in the "
    "emulator it takes an hour",
    "ctrl_c": "qemu delivers a signal between blocks of its own code, not where the processor "
    "would",
}


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    chosen = choose([item.nodeid for item in items])
    config.hook.pytest_deselected(items=[item for item in items if item.nodeid not in chosen])
    items[:] = [item for item in items if item.nodeid in chosen]
    for item in items:
        for part, reason in REASONS.items():
            if part in item.nodeid:
                item.add_marker(pytest.mark.skip(reason=reason))


def choose(names: Iterable[str], share: int = SHARE) -> set[str]:
    """Of each test its share of cases, and at least a few."""
    cases: dict[str, list[str]] = {}
    for name in names:
        cases.setdefault(name.partition("[")[0], []).append(name)
    kept = {test: max(FEW, -(-len(group) // share)) for test, group in cases.items()}
    return {name for test, group in cases.items() for name in by_checksum(group)[: kept[test]]}


def by_checksum(names: Iterable[str]) -> list[str]:
    return sorted(names, key=lambda name: (zlib.crc32(name.encode()), name))
