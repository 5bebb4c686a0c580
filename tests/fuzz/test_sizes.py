"""Many sizes take no more memory than the largest; and where they do, the generator notices."""

from __future__ import annotations

import sys

import pytest

from tests.fuzz.sizes import check

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc/self/status")


@pytest.mark.parametrize("seed", [0, 3])
def test_many_sizes_take_no_more_memory_than_the_largest(seed: int) -> None:
    assert check(seed) is None


@pytest.mark.parametrize("plant", ["arenas", "results"])
def test_a_planted_defect_is_noticed(plant: str) -> None:
    found = check(0, count=25, plant=plant)
    assert found is not None and "MB at most" in found
