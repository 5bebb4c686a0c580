"""Command line, doctor: what tetrad finds on this machine, and whether it works here.

Receives the machine and the environment; yields sections of findings. Nothing is repaired and
nothing is hidden: a finding is information, good, or bad, and a bad one says what to do.
"""

from __future__ import annotations

import ctypes
import importlib.util
import os
import platform
from collections.abc import Iterator
from pathlib import Path

import llvmlite
import llvmlite.binding as llvm
import ml_dtypes
import numpy as np

from tetrad.arrays import functions
from tetrad.backends.cpu.cache import ObjectCache, cache_key, default_directory
from tetrad.backends.cpu.isa import (
    LEVELS,
    current_target,
    host_family,
    host_features,
    host_target,
    missing_features,
)
from tetrad.backends.cpu.llvm import compile_object, load_object
from tetrad.compiler.jit import jit
from tetrad.core.errors import TetradError
from tetrad.core.extras import MODELS
from tetrad.core.flags import FLAGS, flag
from tetrad.core.limits import affinity, available_threads, quota_threads
from tetrad.core.record import record
from tetrad.core.version import __version__
from tetrad.explain.bisect import bisect
from tetrad.explain.report import bytes_text
from tetrad.tracing.array import Array

# lm of pyproject.toml
EXTRA = ("tokenizers", "jinja2", "huggingface_hub", "prompt_toolkit", "llguidance")
PROBE = cache_key("doctor", "probe")

# y[i] = a[i mod 64] + c[i mod 16]: the loop that LLVM's vectorisers got wrong when they were
# measured.
CANARY = """
target triple = "{triple}"
define void @canary(ptr %a, ptr %c, ptr %y) {{
entry:
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %next, %loop ]
  %j = and i64 %i, 63
  %k = and i64 %i, 15
  %pa = getelementptr float, ptr %a, i64 %j
  %pc = getelementptr float, ptr %c, i64 %k
  %py = getelementptr float, ptr %y, i64 %i
  %va = load float, ptr %pa
  %vc = load float, ptr %pc
  %sum = fadd float %va, %vc
  store float %sum, ptr %py
  %next = add i64 %i, 1
  %more = icmp ult i64 %next, 64
  br i1 %more, label %loop, label %done
done:
  ret void
}}
"""


@record
class Finding:
    name: str
    text: str
    state: str = "info"  # info, good, bad
    note: str = ""


def examine() -> Iterator[tuple[str, list[Finding]]]:
    """Sections in order, each looked at when asked for."""
    yield "machine", list(machine())
    yield "versions", list(versions())
    yield (
        "flags",
        [Finding(name, flag(name) or "-", note=spec.help) for name, spec in FLAGS.items()],
    )
    yield "compile cache", list(cache_findings())
    yield "self-test", [self_test(), canary()]


def machine() -> Iterator[Finding]:
    found = host_features()
    yield Finding(
        "processor",
        f"{processor()} ({llvm.get_host_cpu_name()}), {platform.system()} {platform.machine()}",
    )
    shown = ", ".join(name for name in host_family().shown if found.get(name))
    yield Finding("features", shown or "none beyond the baseline")
    target = current_target()
    lacking = missing_features(target)
    shape = (
        f"{target.name}: {target.vector_bits}-bit vectors, dot4 by {target.dot4}, code for "
        f"{target.cpu}"
    )
    if lacking:
        yield Finding(
            "target",
            f"{shape}; this processor lacks {', '.join(lacking)}: set TETRAD_TARGET=host",
            "bad",
        )
    else:
        yield Finding("target", shape, "good")
    yield Finding("targets", ", ".join(["host", *LEVELS]))
    quota = quota_threads("/")
    limits = (
        f"cores {os.cpu_count()}, affinity {affinity()}, cgroup quota {quota if quota else 'none'}"
    )
    yield Finding("threads", f"{available_threads()} ({limits})")


def processor() -> str:
    """The name the system gives it."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next(
        (line.partition(":")[2].strip() for line in lines if line.startswith("model name")),
        platform.machine(),
    )


def versions() -> Iterator[Finding]:
    yield Finding("tetrad", __version__)
    yield Finding("Python", platform.python_version())
    yield Finding(
        "llvmlite", f"{llvmlite.__version__}, LLVM {'.'.join(map(str, llvm.llvm_version_info))}"
    )
    yield Finding("numpy", f"{np.__version__}, ml_dtypes {ml_dtypes.__version__}")
    lacking = [name for name in EXTRA if importlib.util.find_spec(name) is None]
    missing = f"without {', '.join(lacking)}: for language models pip install {MODELS}"
    yield Finding("extra lm", missing if lacking else "installed")


def cache_findings() -> Iterator[Finding]:
    """A small entry is written and read back; it stays, and is replaced next time."""
    name = flag("TETRAD_CACHE_DIR")
    if name == "off":
        yield Finding("directory", "off: every process compiles anew")
        return
    held = ObjectCache.from_flags()
    yield Finding("directory", name or str(default_directory()))
    held.put(PROBE, b"tetrad doctor")
    back = held.get(PROBE)
    stats = held.stats()
    yield Finding("entries", f"{stats.entries}, {bytes_text(stats.bytes)}")
    if stats.trouble or back is None:
        yield Finding(
            "health", stats.trouble or "an entry that was written cannot be read back", "bad"
        )
    else:
        yield Finding("health", "private, an entry was written and read back", "good")


def self_test() -> Finding:
    """One small program through every station, each compared with the evaluators."""
    name = "compile and run"
    x = np.linspace(-3, 3, 33 * 17, dtype=np.float32).reshape(33, 17)
    w = np.linspace(-1, 1, 17 * 5, dtype=np.float32).reshape(17, 5)
    try:
        found = bisect(jit(sample))(x, w)
    except (TetradError, OSError, RuntimeError) as error:
        return Finding(name, f"{type(error).__name__}: {error}", "bad")
    if not found.agrees:
        return Finding(name, f"{found.station}: {found.difference}", "bad")
    return Finding(name, f"{len(found.checked)} stations give the same answer", "good")


def sample(x: Array, w: Array) -> Array:
    """Elementwise work, a product of matrices and a row-wise softmax."""
    y = functions.tanh(x) @ w
    e = functions.exp(y - functions.max(y, axis=-1, keepdims=True))
    return e / functions.sum(e, axis=-1, keepdims=True)  # type: ignore[no-any-return]


def canary() -> Finding:
    """The loop that LLVM's vectorisers miscompile, through our own pipeline, which leaves them
    out."""
    target = host_target()
    library = load_object(compile_object(CANARY.format(triple=target.triple), target), ("canary",))
    a, c, y = (
        np.arange(64, dtype=np.float32),
        1000 * np.arange(16, dtype=np.float32),
        np.zeros(64, np.float32),
    )
    function = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 3)(library.address["canary"])
    function(a.ctypes.data, c.ctypes.data, y.ctypes.data)
    wrong = int((y != a + np.tile(c, 4)).sum())
    if wrong:
        return Finding(
            "LLVM canary",
            f"{wrong} of 64 values wrong: LLVM miscompiles, do not trust results",
            "bad",
        )
    return Finding(
        "LLVM canary",
        "a loop that LLVM's vectorisers are known to miscompile comes out right",
        "good",
    )
