"""python -m tests.aarch64 [bits] [levels] [tokens] [tests]: AArch64 beside the processor that is
here; all by default.

bits: the programs of `bits`, here and in qemu, which has i8mm: the same lines. levels: quantised
products as processors without it, and without dot products, compute them. tokens: what SmolLM2
says, which `tetrad pull` fetches. tests: pytest in qemu, two processes. What each part printed
stays in build/aarch64.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.aarch64.machine import FOLDER, HERE, LAUNCHER, MachineError, make_machine, say
from tetrad.hub.pull import SMALL, pull

PROCESSES = 2
LEVELS = ("aarch64", "aarch64-dotprod")
TESTS = (
    "tests/backends/llvm", "tests/lower", "tests/ops/matmul", "tests/ops/attention",
    "tests/ops/fft",
    "tests/ops/linalg", "tests/ops/int4", "tests/ops/linear_4bit",
    "tests/ops/experts", "tests/ops/weight_layout", "tests/loopnest", "tests/quant/test_lanes.py",
    "tests/arrays/test_quantized.py",
    "tests/transforms/test_laws.py",
    "tests/backends/cpu/test_native.py", "tests/backends/cpu/test_table.py",
)  # fmt: skip
# `bits` has a case of every dtype
CONFORMANCE = ("tests/test_conformance.py", "-k", "f32 or f16 or i8 or u32")
PYTEST = (
    "-m",
    "pytest",
    "-q",
    "-p",
    "tests.aarch64.plugin",
    "-p",
    "no:cacheprovider",
    "-o",
    "timeout=1800",
)

NOTHING: Mapping[str, str] = {}
Lines = list[str]


def main() -> int:
    parser = argparse.ArgumentParser(prog="tests.aarch64", description=__doc__)
    parser.add_argument(
        "parts", nargs="*", metavar="PART", help=f"of {', '.join(PARTS)}; all if none is named"
    )
    asked = parser.parse_args().parts or list(PARTS)
    if unknown := [name for name in asked if name not in PARTS]:
        parser.error(f"no part is called {unknown[0]!r}; there are {', '.join(PARTS)}")
    try:
        make_machine()
    except MachineError as error:
        print(error, file=sys.stderr)
        return 2
    failed = [name for name in asked if not PARTS[name]()]
    say(f"failed: {', '.join(failed)}" if failed else f"passed: {', '.join(asked)}")
    return 1 if failed else 0


# -- the same bits ---------------------------------------------------------------------------------


def bits() -> bool:
    shares = [("tests.aarch64.bits", "--share", f"{i}/{PROCESSES}") for i in range(PROCESSES)]
    here = run_all("bits here", sys.executable, shares)
    return same("bits", here, run_all("bits", str(LAUNCHER), shares))


def levels() -> bool:
    work = [("tests.aarch64.bits", "--only", " rows")]
    here = run_all("levels here", sys.executable, work)
    there = {
        name: run_all(f"levels {name}", str(LAUNCHER), work, {"TETRAD_TARGET": name})
        for name in LEVELS
    }
    return all([same(name, here, lines) for name, lines in there.items()])


def tokens() -> bool:
    path = str(pull(SMALL))
    work = [("tests.aarch64.tokens", path)]
    here = run_all("tokens here", sys.executable, work)
    return same("tokens", here, run_all("tokens", str(LAUNCHER), work))


def same(name: str, here: Lines | None, there: Lines | None) -> bool:
    """Whether two processors printed the same; a line that only one of them printed is shown."""
    if here is None or there is None:
        return False
    for place, lines, others in (("here", here, there), ("there", there, here)):
        for line in [line for line in lines if line not in others]:
            print(f"only {place}: {line}")
    say(f"{name}: {len(set(here) & set(there))} of {len(here)} lines are the same")
    return sorted(here) == sorted(there)


def run_all(
    name: str, python: str, work: Sequence[Sequence[str]], more: Mapping[str, str] = NOTHING
) -> Lines | None:
    """The lines of modules run side by side; None if one fails, with its last words."""
    say(f"{name}: begins")
    paths = [FOLDER / f"{name} {i}.txt".replace(" ", "-") for i in range(len(work))]
    runs = [
        start(path, python, ("-m", *words), more) for path, words in zip(paths, work, strict=True)
    ]
    ended = [run.wait() for run in runs]
    for path, status in zip(paths, ended, strict=True):
        if status:
            print(f"{path} ended with {status}:\n{path.read_text()[-3000:]}")
    return (
        None if any(ended) else [line for path in paths for line in path.read_text().splitlines()]
    )


def start(
    path: Path, python: str, words: Sequence[str], more: Mapping[str, str]
) -> subprocess.Popen[bytes]:
    """A process that writes to a file; it compiles everything itself."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith("TETRAD_")}
    environment = {**kept, "PYTHONPATH": str(HERE), "TETRAD_CACHE_DIR": "off", **more}
    with path.open("wb") as file:
        return subprocess.Popen(
            [python, *words], cwd=HERE, env=environment, stdout=file, stderr=subprocess.STDOUT
        )


# -- the tests -------------------------------------------------------------------------------------


def tests() -> bool:
    return all([run_tests(TESTS), run_tests(CONFORMANCE)])


def run_tests(words: Sequence[str]) -> bool:
    command = [str(LAUNCHER), *PYTEST, "-n", str(PROCESSES), *words]
    return subprocess.run(command, cwd=HERE).returncode == 0


PARTS = {part.__name__: part for part in (bits, levels, tokens, tests)}

if __name__ == "__main__":
    sys.exit(main())
