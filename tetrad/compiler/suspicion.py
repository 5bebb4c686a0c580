"""Compiler, suspicion: do flags ask for programs to be checked? The checks are loaded when one
does.

They bring the verifier, the evaluator and the interpreter of kernels along, a fifth of what a first
call would load.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tetrad.backends.cpu.executable import Watch
from tetrad.core import lazy
from tetrad.core.flags import flag, flag_words
from tetrad.kernel.nodes import Program

if TYPE_CHECKING:
    from tetrad.core.machine import Machine


def checks() -> Any:
    return lazy.module("tetrad.compiler.check")


def wants_verified() -> bool:
    return "1" in flag_words("TETRAD_CHECK")


def verify_programs(programs: Sequence[Program], machine: Machine) -> None:
    if wants_verified():
        checks().verify_programs(programs, machine)


def watch_of_flags() -> Watch | None:
    """How programs are run instead of directly, if the flags ask for it."""
    found: Watch | None = None
    if flag("TETRAD_INTERPRET") == "1":
        found = checks().run_interpreted
    elif wants_verified():
        found = checks().run_checked
    return found
