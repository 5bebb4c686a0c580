"""Every lowering rule of every op, on the kernel evaluator, against the op's reference."""

from __future__ import annotations

import itertools
import zlib
from pathlib import Path

import numpy as np
import pytest

import tetrad.ops  # noqa: F401  (fills the registry)
from tests.ops.close import assert_close
from tests.ops.kernels import result_type, run_elementwise, run_movement, run_reduce
from tetrad.core.dtypes import REAL_DTYPES, DType, as_dtype, bool_
from tetrad.core.errors import DtypeError
from tetrad.core.op import REGISTRY, Case, Op
from tetrad.core.types import ArrayType

OPS = [o for o in REGISTRY.values() if o.kind != "structural"]
RUN = {"elementwise": run_elementwise, "movement": run_movement, "reduce": run_reduce}
# no kernel holds a complex value
LOWERED = [o for o in OPS if o.kind in RUN and o.name not in ("reshape", "complex")]
EACH = [
    pytest.param(o, d, id=f"{o.name}-{d}") for o in LOWERED for d in o.dtypes if not d.is_complex
]
CASES = 3
ROOT = Path(__file__).parents[1]
OWN_TESTS = {
    "quantize_rows": "ops/matmul/test_int8_rows.py",
    "lowbit_rows": "ops/matmul/test_int8_rows.py",
    "put_cache": "passes/test_in_place_updates.py",
    "put_scales": "passes/test_in_place_updates.py",
    "dequantize": "arrays/test_quantized.py",
    "interleave": "ops/weight_layout/test_kernel.py",
    **dict.fromkeys(
        (
            "unpack_nibbles",
            "pack_nibbles",
            "quantize_groups",
            "dequantize_groups",
            "reduce_groups",
            "product_groups",
        ),
        "ops/groups/test_kernel.py",
    ),
    **dict.fromkeys(("pack_float8", "unpack_float8"), "ops/test_float8.py"),
    "top_experts": "ops/experts/test_kernel.py",
    "kernel_call": "compiler/test_kernel_call.py",
    "callback": "tracing/test_callbacks.py",
    "effect": "debug/test_printing.py",
    "tie": "debug/test_printing.py",
    "grouped_matmul": "ops/experts/test_kernel.py",
    **dict.fromkeys(
        ("lu", "linear_solve", "triangular_solve", "cholesky", "lu_det"),
        "ops/linalg/test_small_systems.py",
    ),
    **dict.fromkeys(
        ("qr", "eig", "eigvals", "eigh", "eigvalsh", "svd", "svdvals"),
        "ops/linalg/test_small_systems.py",
    ),
    "after": "ops/test_movement.py",
    "part": "ops/test_complex.py",
    "join": "ops/test_complex.py",
    "function_part": "ops/test_complex.py",
    "product_parts": "ops/test_complex.py",
    "cumprod_parts": "ops/test_complex.py",
}


def drawn(op: Op, dtype: DType, count: int) -> list[Case]:
    """Cases of the op with data of the dtype; the first operand of `where` is no data."""
    rng = np.random.default_rng(zlib.crc32(f"{op.name} {dtype}".encode()))
    cases = (op.cases(rng) for _ in range(2000))
    cases = (
        c
        for c in cases
        if "dtype" not in c.params or dtype.is_complex or not c.params["dtype"].is_complex
    )
    which = 1 if op.name == "where" else 0
    return list(
        itertools.islice((c for c in cases if as_dtype(c.args[which].dtype) is dtype), count)
    )


def results(op: Op, case: Case) -> tuple[np.ndarray, ...]:
    with np.errstate(divide="ignore"):
        found = op.reference(*case.args, **case.params)
    return tuple(map(np.asarray, found if isinstance(found, tuple) else (found,)))


def reference(op: Op, case: Case) -> np.ndarray:
    return results(op, case)[0]


@pytest.mark.parametrize(("op", "dtype"), EACH)
def test_lowering_agrees_with_the_reference(op: Op, dtype: DType) -> None:
    cases = drawn(op, dtype, CASES)
    assert cases
    for case in cases:
        want = reference(op, case)
        assert_close(
            RUN[op.kind](op, case), want, op.ulps.get(as_dtype(want.dtype), 0), case.params
        )


@pytest.mark.parametrize("op", [o for o in OPS if o.cases is not None], ids=lambda op: op.name)
def test_types_agree_with_the_reference(op: Op) -> None:
    rng = np.random.default_rng(zlib.crc32(op.name.encode()))
    for _ in range(30):
        case = op.cases(rng)
        kinds, arrays = result_type(op, case), results(op, case)
        for kind, array in zip(
            kinds if isinstance(kinds, tuple) else (kinds,), arrays, strict=True
        ):
            assert (kind.dtype, kind.shape) == (as_dtype(array.dtype), array.shape), case.params


def test_ops_without_random_cases_have_a_file_of_tests() -> None:
    """Their operands are quantised, or places in a cache: the cases of other ops do not describe
    those."""
    for op in OPS:
        if op.cases is None:
            assert op.name in (ROOT / OWN_TESTS[op.name]).read_text()
    assert set(OWN_TESTS) == {op.name for op in OPS if op.cases is None}


ELEMENTWISE = [o for o in OPS if o.kind == "elementwise" and o.cases is not None]


@pytest.mark.parametrize("op", ELEMENTWISE, ids=lambda op: op.name)
def test_a_dtype_that_is_not_compiled_is_a_clear_error(op: Op) -> None:
    case = op.cases(np.random.default_rng(0))
    for dtype in set(REAL_DTYPES) - set(op.dtypes):
        types = [
            ArrayType(bool_ if op.name == "where" and i == 0 else dtype, ())
            for i in range(len(case.args))
        ]
        name = case.params.get("what", op.name)  # a check speaks for the function that asked
        with pytest.raises(
            DtypeError, match=rf"^{name}: takes {op.dtypes[0]}.*, got {dtype}\n  hint: "
        ):
            op.type(*types, **case.params)


@pytest.mark.parametrize("op", OPS, ids=lambda op: op.name)
def test_cases_reach_every_dtype(op: Op) -> None:
    assert all(drawn(op, dtype, 1) for dtype in op.dtypes)
