"""Bench, linear_4bit: a process of its own with one thread, in which a grouped 4-bit linear layer
and a plain C kernel (the obvious loops, gcc -O3 -march=native) take turns.

    TETRAD_THREADS=1 python bench/linear_4bit.py [quick]

Prints a line of JSON: seconds of both, of ours with rows in 8 bits too, the share of the processor
that others used, and whether the results agree. The compiler of C may contract a product and a sum,
so they agree to rounding; ours agrees with NumPy's loop over k to the bit.
"""

from __future__ import annotations

import ctypes
import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
from common import QUICK, Budget, measure

import tetrad as td
from tetrad.ops.linear_4bit.op import linear_4bit

INPUTS, OUTPUTS, GROUP = 256, 4096, 64
PLAIN = """
#include <stdint.h>
void layer(const float *x, const uint32_t *w, const float *scale, const uint32_t *zero,
           const float *b, float *out, int inputs, int outputs, int group) {
    for (int i = 0; i < outputs; i++) {
        float sum = b[i];
        for (int k = 0; k < inputs; k++) {
            uint32_t nibble = (w[(k / 8) * outputs + i] >> (4 * (k % 8))) & 15;
            int at = (k / group) * outputs + i;
            sum += x[k] * (((float)nibble - (float)zero[at]) * scale[at]);
        }
        out[i] = sum;
    }
}
"""


def compiled_by_gcc() -> ctypes.CDLL:
    if shutil.which("gcc") is None:
        raise SystemExit("linear_4bit: gcc compiles the plain C kernel, and is not on this machine")
    folder = Path(tempfile.mkdtemp())
    (folder / "layer.c").write_text(PLAIN)
    command = ["gcc", "-O3", "-march=native", "-shared", "-fPIC", "-o"]
    subprocess.run([*command, folder / "layer.so", folder / "layer.c"], check=True)
    return ctypes.CDLL(str(folder / "layer.so"))


def operands() -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    groups = INPUTS // GROUP
    return [
        rng.standard_normal(INPUTS).astype(np.float32),
        rng.integers(0, 1 << 32, (INPUTS // 8, OUTPUTS), dtype=np.uint32),
        rng.standard_normal((groups, OUTPUTS)).astype(np.float32),
        rng.integers(0, 16, (groups, OUTPUTS), dtype=np.uint32),
        rng.standard_normal(OUTPUTS).astype(np.float32),
    ]


def plain_layer(arrays: list[np.ndarray], out: np.ndarray) -> Callable[[], object]:
    layer = compiled_by_gcc().layer
    pointers = [ctypes.c_void_p(a.ctypes.data) for a in (*arrays, out)]
    return lambda: layer(*pointers, INPUTS, OUTPUTS, GROUP)


def our_layer(arrays: list[np.ndarray], activations: str | None) -> Callable[[], object]:
    held = [td.asarray(a) for a in arrays]
    layer = td.jit(
        lambda *each: td.nn.linear_4bit_affine_grouped(
            *each, group_size=GROUP, activations=activations
        )
    )
    return lambda: layer(*held)


def main(arguments: list[str]) -> None:
    arrays, out = operands(), np.empty(OUTPUTS, np.float32)
    ours, theirs = our_layer(arrays, None), plain_layer(arrays, out)
    contestants = {"ours": ours, "int8": our_layer(arrays, "int8"), "theirs": theirs}
    got, _ = np.asarray(ours()), theirs()
    want = linear_4bit.reference(*arrays, group_size=GROUP)
    is_right = got.tobytes() == want.tobytes() and np.allclose(got, out, rtol=1e-4, atol=1e-3)
    timing = measure(contestants, QUICK if "quick" in arguments else Budget())
    print(json.dumps({**timing.best, "foreign": timing.foreign, "is_right": bool(is_right)}))


if __name__ == "__main__":
    main(sys.argv[1:])
