"""Compiles every case for one target: `python -m tests.backends.llvm.compile_all x86-64-v4`.

LLVM aborts the process when it cannot select an instruction, so the test runs this as a child and
reads which case was the last one begun.
"""

from __future__ import annotations

import sys

from tests.backends.llvm.cases import all_cases
from tetrad.backends.cpu.isa import LEVELS
from tetrad.backends.cpu.llvm import compile_object
from tetrad.backends.llvm.module import emit_module
from tetrad.backends.llvm.target import Target

AT_ONCE = 40  # programs compiled together: quick, and after a crash there are few to look at


def main(target: Target) -> None:
    cases = list(all_cases())
    for start in range(0, len(cases), AT_ONCE):
        some = cases[start : start + AT_ONCE]
        print(f"compiling {some[0].name} to {some[-1].name}", flush=True)
        compile_object(
            emit_module({f"kernel{i}": case.program for i, case in enumerate(some)}, target), target
        )
    print(f"compiled {len(cases)}", flush=True)


if __name__ == "__main__":
    main(LEVELS[sys.argv[1]])
