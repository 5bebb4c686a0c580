"""A plugin of pytest: leaves out what an emulated processor cannot do, each with its reason."""

from __future__ import annotations

import pytest

# By a part of a test's name.
REASONS = {
    "compiles_for_levels_this_processor_lacks": "code for x86-64 is made on x86-64; in the "
    "emulator it "
    "takes an "
    "hour",
    "ctrl_c": "qemu delivers a signal between blocks of its own code, not where the processor "
    "would",
}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        for part, reason in REASONS.items():
            if part in item.nodeid:
                item.add_marker(pytest.mark.skip(reason=reason))
