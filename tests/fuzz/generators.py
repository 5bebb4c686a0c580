"""Fuzzing, generators of their own: what strangers, owners of memory and hosts may do, class by
class.

Each is a module with `check(seed)`, which gives None or what is needed to see the failure again.
`python -m tests.fuzz` runs them after the programs, each in a process of its own: a crash names the
generator and its seeds.
"""

from __future__ import annotations

import importlib
import subprocess
import sys
from collections.abc import Callable, Iterator

# How many seeds a campaign of 2,000 programs runs: those that start processes or compile much take
# seconds each.
GENERATORS = {
    "owners": 100,
    "sizes": 2,
    "indexing": 1000,
    "rules": 500,
    "activations": 100,
    "rounding": 40,
    "listings": 100,
    "escapes": 20,
    "replaced": 20,
    "metadata": 100,
    "program_bytes": 20_000,
    "requests": 10,
}
WHOLE = 2000


def check_of(name: str) -> Callable[[int], str | None]:
    check: Callable[[int], str | None] = importlib.import_module(f"tests.fuzz.{name}").check
    return check


def failures(name: str, seeds: range) -> Iterator[str]:
    """What one generator finds, in this process."""
    for seed in seeds:
        found = check_of(name)(seed)
        if found is not None:
            yield f"{name}, seed {seed}: {found}"


def run_all(programs: int, first: int) -> int:
    """Every generator, its share of a campaign; how many of them found something."""
    failed = 0
    for name, share in GENERATORS.items():
        count = max(1, share * programs // WHOLE)
        command = [
            sys.executable,
            "-m",
            "tests.fuzz",
            "--generator",
            name,
            "--programs",
            str(count),
        ]
        status = subprocess.run([*command, "--seed", str(first)], check=False).returncode
        failed += status != 0
    return failed
