"""The package `bochscpu`, also where the C library is older than the one it was built with.

Release 0.4.0 asks for two functions by names that glibc has since 2.38; before, a C compiler makes
them.
"""

from __future__ import annotations

import ctypes
import importlib
import subprocess
import tempfile
from pathlib import Path

YOUNG_NAMES = """
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
unsigned long long __isoc23_strtoull(const char *s, char **e, int b) { return strtoull(s, e, b); }
int __isoc23_sscanf(const char *s, const char *f, ...)
{ va_list a; va_start(a, f); int n = vsscanf(s, f, a); va_end(a); return n; }
"""


def provide_young_names() -> None:
    if hasattr(ctypes.CDLL(None), "__isoc23_strtoull"):
        return
    with tempfile.TemporaryDirectory() as folder:
        source, library = Path(folder, "young.c"), Path(folder, "young.so")
        source.write_text(YOUNG_NAMES)
        subprocess.run(["cc", "-shared", "-fPIC", "-o", str(library), str(source)], check=True)
        ctypes.CDLL(str(library), ctypes.RTLD_GLOBAL)


provide_young_names()
bochscpu, native = (importlib.import_module(name) for name in ("bochscpu", "bochscpu._bochscpu"))
for part in ("cpu", "memory"):
    importlib.import_module(f"bochscpu.{part}")
