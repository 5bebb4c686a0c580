"""Every rule of the language: a program that breaks it, and its nearest neighbour that does not."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from tetrad.core.dtypes import DType, bf16, bool_, c64, f16, f32, f64, i4, i8, i32, index, u8, u32
from tetrad.core.errors import VerifyError
from tetrad.core.sizes import MAX_ELEMENTS, Dim
from tetrad.kernel import nodes as n
from tetrad.kernel.build import KernelBuilder
from tetrad.kernel.text import parse
from tetrad.kernel.uniformity import varying
from tetrad.kernel.verify import (
    CODES,
    MAX_INSTRUCTIONS,
    MAX_NESTING,
    MAX_RETURNS,
    problems,
    verify,
)
from tetrad.quant.lanes import q8_row

HEAD = """\
kernel "p"
workgroup 4 1 1
args n
buffer x: f32 read count=8
buffer y: f32 readwrite count=8
buffer out: f32 write
buffer h: f16 readwrite
buffer w: u32 read
buffer b: i8 read
buffer c: u32 readwrite count=8
buffer d: i32 readwrite
buffer s: u32 workgroup count=8
body:
  %0: index = arg("n")
  %1: index = id("local", 0)
  %2: f32 = load(x, %1)
  %3: index = const(3)
  %4: index = const(0)
  %5: bool = lt(%1, %3)
  %6: i32 = cast(%2)
  %7: f16 = load(h, %1)
  %8: u32 = load(w, %1)
  %9: f64 = cast(%2)
"""
SEQ = Dim("seq", max=8)


def codes(program: n.Program) -> list[str]:
    return [problem.code for problem in problems(program)]


def body(text: str) -> n.Program:
    return parse(HEAD + "".join(f"  {line}\n" for line in text.split("\n")))


def with_buffers(
    *buffers: n.Buffer, args: tuple[str, ...] = (), workgroup: tuple[int, int, int] = (4, 1, 1)
) -> n.Program:
    return n.Program("p", buffers, args, workgroup, ())


def nested(depth: int) -> n.Program:
    block: n.Block = (n.Barrier(),)
    for _ in range(depth):
        block = (n.Region("r", block),)
    return n.Program("deep", (), (), (1, 1, 1), block)


def leaving(times: int) -> n.Program:
    cond = n.Const(bool_, True)
    return n.Program("p", (), (), (1, 1, 1), (cond, *(n.If(cond, (n.Return(),)),) * times))


def repeated(make: Callable[[n.Value], n.Block]) -> n.Program:
    zero = n.Const(index, 0)
    return n.Program("p", (), (), (1, 1, 1), (zero, *make(zero)))


def literal(value: object, dtype: DType) -> n.Program:
    return n.Program("p", (), (), (1, 1, 1), (n.Const(dtype, value),))  # type: ignore[arg-type]


def twice(share: bool) -> n.Block:
    other = n.Const(index, 1)
    return (other, other) if share else (other, n.Const(index, 1))


def assigned(target: Callable[[n.Counter, n.Local], n.Value]) -> n.Program:
    zero = n.Const(index, 0)
    local, counter = n.Local(index, zero), n.Counter(index)
    loop = n.For(counter, zero, zero, 1, (n.Set(target(counter, local), zero),))  # type: ignore[arg-type]
    return n.Program("p", (), (), (1, 1, 1), (zero, local, loop))


def local_as_value(get: bool) -> n.Program:
    zero = n.Const(i32, 0)
    local = n.Local(i32, zero)
    read = n.Get(i32, local)
    return n.Program(
        "p", (), (), (1, 1, 1), (zero, local, read, n.Unary(i32, "neg", read if get else local))
    )


def undeclared(declared: bool) -> n.Program:
    x = n.Buffer("x", f32)
    zero = n.Const(index, 0)
    return n.Program(
        "p", (x if declared else n.Buffer("x", f32),), (), (1, 1, 1), (zero, n.Load(f32, x, zero))
    )


def local_type(kind: DType, init: DType = f32, get: DType = f32, new: DType = f32) -> n.Program:
    start = n.Const(init, 0.0)
    local, value = n.Local(kind, start), n.Const(new, 0.0)
    return n.Program(
        "p", (), (), (1, 1, 1), (start, value, local, n.Get(get, local), n.Set(local, value))
    )


def test_workgroup_memory_beyond_the_machine() -> None:
    k = KernelBuilder("large")
    (
        k.scratch("rows", f32, 1000),
        k.private("sums", f64, 100),
        k.scratch("more", f32, SEQ),
        k.arg("seq"),
    )
    k.buffer("x", f32, "read", 1 << 20)
    program = k.finish()
    verify(program)
    verify(program, 4800)
    verify(program, 4832, {"seq": 8})
    with pytest.raises(VerifyError) as caught:
        verify(program, 4799)
    told = "large: a workgroup asks for 4800 bytes of memory, its machine has 4799"
    assert caught.value.code == "K004"
    assert f"{told}: rows 4000 (1000 x f32), sums 800 (100 x f64)" in str(caught.value)
    with pytest.raises(VerifyError, match=r"asks for 4832 bytes of memory.*more 32 \(8 x f32\)"):
        verify(program, 4831, {"seq": 8})


I4 = DType("i4", "int4", "i", 4, storage_only=True)

CASES: list[tuple[str, n.Program, n.Program]] = [
    # code, broken, near miss
    ("K001", with_buffers(workgroup=(4, 0, 1)), with_buffers(workgroup=(4, 1, 1))),
    ("K001", with_buffers(workgroup=(64, 64, 2)), with_buffers(workgroup=(64, 64, 1))),
    (
        "K002",
        with_buffers(n.Buffer("a", f32), n.Buffer("a", f32)),
        with_buffers(n.Buffer("a", f32), n.Buffer("b", f32)),
    ),
    ("K002", with_buffers(args=("n", "n")), with_buffers(args=("n", "m"))),
    (
        "K003",
        with_buffers(n.Buffer("s", f32, "workgroup")),
        with_buffers(n.Buffer("s", f32, "workgroup", 1)),
    ),
    (
        "K003",
        with_buffers(n.Buffer("s", f32, "workgroup", 0)),
        with_buffers(n.Buffer("s", f32, "read", 0)),
    ),
    (
        "K003",
        with_buffers(n.Buffer("s", f32, "workgroup", SEQ)),
        with_buffers(n.Buffer("s", f32, "workgroup", SEQ), args=("seq",)),
    ),
    (
        "K003",
        with_buffers(n.Buffer("s", f32, "write", 4, True)),
        with_buffers(n.Buffer("s", f32, "private", 4, True)),
    ),
    (
        "K003",
        with_buffers(n.Buffer("s", f32, "read", -1)),
        with_buffers(n.Buffer("s", f32, "read", SEQ)),
    ),
    ("K010", with_buffers(n.Buffer("s", f32, "peek")), with_buffers(n.Buffer("s", f32, "write"))),
    (
        "K022",
        with_buffers(n.Buffer("s", i8, "read", MAX_ELEMENTS + 1)),
        with_buffers(n.Buffer("s", i8, "read", MAX_ELEMENTS)),
    ),
    ("K023", with_buffers(n.Buffer("s", I4)), with_buffers(n.Buffer("s", bool_))),
    ("K023", with_buffers(n.Buffer("s", c64)), with_buffers(n.Buffer("s", f32))),
    ("K023", with_buffers(n.Buffer("s", q8_row)), with_buffers(n.Buffer("s", u8))),
    ("V018", nested(MAX_NESTING + 1), nested(MAX_NESTING)),
    ("V018", nested(5000), nested(1)),
    (
        "V019",
        repeated(lambda _: (n.Barrier(),) * MAX_INSTRUCTIONS),
        repeated(lambda _: (n.Barrier(),) * 1000),
    ),
    ("V032", repeated(lambda _: twice(True)), repeated(lambda _: twice(False))),
    ("V011", assigned(lambda counter, local: counter), assigned(lambda counter, local: local)),
    ("K010", assigned(lambda counter, local: local.init), assigned(lambda counter, local: local)),
    ("K010", local_as_value(False), local_as_value(True)),
    ("K010", undeclared(False), undeclared(True)),
    ("K010", repeated(lambda _: (n.Counter(index),)), repeated(lambda _: ())),
    ("V045", local_type(f32, get=f64), local_type(f32)),
    ("V045", local_type(f32, new=f64), local_type(f32)),
    ("V045", local_type(f64, get=f64, new=f64), local_type(f64, f64, f64, f64)),
    (
        "K010",
        body("if %5:\n  %10: f32 = neg(%2)\n%11: f32 = neg(%10)"),
        body("%10: f32 = neg(%2)\n%11: f32 = neg(%10)"),
    ),
    (
        "K010",
        body("for %10 in range(%4, %0, step=1):\n  barrier()\n%11: index = add(%10, %10)"),
        body('region "r":\n  %10: f32 = neg(%2)\n%11: f32 = neg(%10)'),
    ),
    ("K010", body('%10: index = arg("m")'), body('%10: index = arg("n")')),
    ("K010", body('%10: index = id("local", 3)'), body('%10: index = id("local", 2)')),
    ("K010", body('%10: index = id("global", 0)'), body('%10: index = id("group", 0)')),
    ("K010", body('store(y, %1, %2, hint="fast")'), body('store(y, %1, %2, hint="stream")')),
    (
        "K010",
        body("%10: f32 = shuffle(%2, %2, [0, 1, 2])"),
        body("%10: f32 = shuffle(%2, %2, [0, 1, 2, 3])"),
    ),
    (
        "K010",
        body("%10: f32 = shuffle(%2, %2, [0, 1, 2, 8])"),
        body("%10: f32 = shuffle(%2, %2, [0, 1, 2, 7])"),
    ),
    ("K010", body("%10: f32 = broadcast(%2, lane=4)"), body("%10: f32 = broadcast(%2, lane=3)")),
    (
        "K010",
        body("%10: i32 = dot4(%6, %8, %8, u_max=256)"),
        body("%10: i32 = dot4(%6, %8, %8, u_max=128)"),
    ),
    ("K011", body("%10: f32 = add(%2, %6)"), body("%10: f32 = add(%2, %2)")),
    ("K011", body("%10: f64 = add(%2, %2)"), body("%10: f64 = add(%9, %9)")),
    ("K011", body("%10: f32 = mod(%2, %2)"), body("%10: i32 = mod(%6, %6)")),
    ("K011", body("%10: i32 = copysign(%6, %6)"), body("%10: f32 = copysign(%2, %2)")),
    ("K011", body("%10: index = xor(%1, %3)"), body("%10: index = mod(%1, %3)")),
    ("K011", body("%10: bool = add(%5, %5)"), body("%10: bool = or(%5, %5)")),
    ("K011", body("%10: f16 = add(%7, %7)"), body("%10: f16 = select(%5, %7, %7)")),
    ("K011", body("%10: f16 = neg(%7)"), body("%10: f32 = neg(%2)")),
    (
        "K011",
        body("%10: i8 = load(b, %1)\n%11: i8 = mul(%10, %10)"),
        body("%10: u8 = cast(%6)\n%11: u8 = mul(%10, %10)"),
    ),
    ("K011", body("%10: index = neg(%1)"), body("%10: i32 = neg(%6)")),
    ("K011", body("%10: i32 = sqrt(%6)"), body("%10: f64 = sqrt(%9)")),
    ("K011", body("%10: bool = neg(%5)"), body("%10: bool = not(%5)")),
    ("K011", body("%10: f32 = popcount(%2)"), body("%10: u32 = popcount(%8)")),
    ("K011", body("%10: i32 = neg(%2)"), body("%10: i32 = neg(%6)")),
    ("K011", body("%10: bool = lt(%2, %6)"), body("%10: bool = lt(%6, %6)")),
    ("K011", body("%10: bool = lt(%5, %5)"), body("%10: bool = eq(%5, %5)")),
    ("K011", body("%10: bool = lt(%7, %7)"), body("%10: bool = lt(%8, %8)")),
    ("K011", body("%10: i32 = lt(%6, %6)"), body("%10: bool = lt(%1, %3)")),
    ("K011", body("%10: i32 = dot4(%6, %6, %8)"), body("%10: i32 = dot4(%6, %8, %8)")),
    (
        "K010",
        body(f"%10: u32 = lookup(%8, {[1] * 15})"),
        body(f"%10: u32 = lookup(%8, {[1] * 16})"),
    ),
    (
        "K010",
        body(f"%10: u32 = lookup(%8, {[256] * 16})"),
        body(f"%10: u32 = lookup(%8, {[255] * 16})"),
    ),
    (
        "K011",
        body(f"%10: u32 = lookup(%6, {[1] * 16})"),
        body(f"%10: u32 = lookup(%8, {[1] * 16})"),
    ),
    (
        "K011",
        body("%10: f32 = shuffle(%2, %9, [0, 1, 2, 3])"),
        body("%10: f16 = shuffle(%7, %7, [0, 1, 2, 3])"),
    ),
    ("K011", body("%10: f64 = broadcast(%2)"), body("%10: index = broadcast(%1)")),
    ("K011", body("%10: i32 = any(%5)"), body("%10: bool = any(%5)")),
    ("K011", body('%10: i64 = arg("n")'), body('%10: index = arg("n")')),
    ("K011", body('%10: i64 = id("local", 0)'), body('%10: index = id("local", 0)')),
    (
        "K012",
        body("%10: f32 = load(x, %6)"),
        body("%10: index = cast(%6)\n%11: f32 = load(x, %10)"),
    ),
    ("K012", body("%10: f64 = load(x, %1)"), body("%10: f32 = load(x, %1)")),
    ("K012", body("store(y, %6, %2)"), body("store(y, %1, %2)")),
    ("K012", body("store(y, %1, %9)"), body("store(h, %1, %7)")),
    ("K012", body("prefetch(y, %6)"), body("prefetch(y, %1)")),
    ("K012", body("if %6:\n  barrier()"), body("%10: bool = any(%5)\nif %10:\n  barrier()")),
    ("K012", body("%10: bool = all(%6)"), body("%10: bool = all(%5)")),
    ("K012", body("%10: f32 = select(%6, %2, %2)"), body("%10: f32 = select(%5, %2, %2)")),
    ("K012", body("trap(%6, 1, %1)"), body("trap(%5, 1, %1)")),
    ("K012", body("trap(%5, 1, %6)"), body("trap(%5, 1, %3)")),
    (
        "K020",
        body("%10: index = const(8)\n%11: f32 = load(x, %10)"),
        body("%10: index = const(7)\n%11: f32 = load(x, %10)"),
    ),
    (
        "K020",
        body("%10: index = const(-1)\n%11: f16 = load(h, %10)"),
        body("%10: index = const(99)\n%11: f16 = load(h, %10)"),
    ),
    (
        "V036",
        body("%10: index = const(8)\n%11: f32 = broadcast(%2)\nstore(y, %10, %11)"),
        body("%10: index = const(7)\n%11: f32 = broadcast(%2)\nstore(y, %10, %11)"),
    ),
    ("K021", body("store(x, %1, %2)"), body("store(out, %1, %2)")),
    ("K021", body("%10: f32 = load(out, %1)"), body("%10: f32 = load(y, %1)")),
    ("K024", body("store(y, %3, %2)"), body("%10: f32 = broadcast(%2)\nstore(y, %3, %10)")),
    ("K026", literal(256, u8), literal(255, u8)),
    ("K026", body("trap(%5, 0, %1)"), body("trap(%5, 1, %1)")),
    ("K026", body("trap(%5, 32768, %1)"), body("trap(%5, 32767, %1)")),
    ("K026", literal(-1, u32), literal(0, u32)),
    ("K026", literal(2**63, index), literal(-(2**63), index)),
    ("K026", literal(1, bool_), literal(True, bool_)),
    ("K026", literal(True, i32), literal(1, i32)),
    ("K026", literal(1, f32), literal(1.0, f32)),
    ("K026", literal(0.1, f32), literal(0.1, f64)),
    ("K026", literal(1e300, f32), literal(float("inf"), f32)),
    ("K026", literal(1.001, bf16), literal(float("nan"), bf16)),
    ("K026", literal(65520.0, f16), literal(65504.0, f16)),
    ("V010", body("if %5:\n  barrier()"), body("barrier()")),
    (
        "V010",
        body("if %5:\n  %10: f32 = shuffle(%2, %2, [0, 1, 2, 3])"),
        body("if %5:\n  %10: bool = any(%5)"),
    ),
    (
        "V010",
        body("if %5:\n  barrier()\nelse:\n  barrier()"),
        body("%10: bool = lt(%0, %3)\nif %10:\n  barrier()"),
    ),
    (
        "V010",
        body('if %5:\n  region "r":\n    %10: f32 = broadcast(%2)'),
        body('region "r":\n  %10: f32 = broadcast(%2)'),
    ),
    (
        "V010",
        body("for %10 in range(%4, %1, step=1):\n  prefetch(x, %10)"),
        body("for %10 in range(%4, %0, step=1):\n  barrier()"),
    ),
    (
        "V010",
        body("for %10 in range(%1, %0, step=1):\n  prefetch(x, %10)"),
        body("%10: index = broadcast(%1)\nfor %11 in range(%10, %0, step=1):\n  barrier()"),
    ),
    ("V012", body("%10: f64 = cast(%7)"), body("%10: f32 = cast(%7)")),
    ("V012", body("%10: f16 = cast(%9)"), body("%10: f16 = cast(%2)")),
    ("V012", body("%10: bf16 = cast(%7)"), body("%10: bf16 = cast(%2)")),
    ("V012", body("%10: bf16 = cast(%6)"), body("%10: f64 = cast(%6)")),
    ("V012", body("%10: u32 = bitcast(%9)"), body("%10: u32 = bitcast(%2)")),
    ("V012", body("%10: i64 = bitcast(%1)"), body("%10: i64 = bitcast(%9)")),
    ("V012", body("%10: bool = bitcast(%5)"), body("%10: bf16 = bitcast(%7)")),
    (
        "V015",
        body("for %10 in range(%6, %0, step=1):\n  barrier()"),
        body("for %10 in range(%4, %0, step=1):\n  barrier()"),
    ),
    (
        "V015",
        body("for %10 in range(%4, %0, step=0):\n  barrier()"),
        body("for %10 in range(%4, %0, step=9):\n  barrier()"),
    ),
    ("V028", body("%10: i32 = fma(%6, %6, %6)"), body("%10: f64 = fma(%9, %9, %9)")),
    ("V028", body("%10: f32 = fma(%2, %9, %2)"), body("%10: f32 = fma(%2, %2, %2)")),
    ("V028", body("%10: f16 = fma(%7, %7, %7)"), body("%10: f32 = fma(%2, %2, %2)")),
    ("V029", body("%10: f32 = select(%5, %2, %6)"), body("%10: i32 = select(%5, %6, %6)")),
    ("V029", body("%10: i32 = select(%5, %2, %2)"), body("%10: index = select(%5, %1, %3)")),
    ("V044", body("%10: index = mod(%1, %4)"), body("%10: index = mod(%1, %3)")),
    (
        "V044",
        body("%10: i32 = const(0)\n%11: i32 = div(%6, %10)"),
        body("%10: i32 = const(0)\n%11: i32 = mul(%6, %10)"),
    ),
    ("K011", body("%10: i32 = rotl(%6, %6)"), body("%10: u32 = rotl(%8, %8)")),
    ("K011", body("%10: i32 = absdiff(%6, %6)"), body("%10: u32 = absdiff(%8, %8)")),
    ("K011", body("%10: f32 = add_sat(%2, %2)"), body("%10: i32 = add_sat(%6, %6)")),
    (
        "K011",
        body("%10: i64 = cast(%6)\n%11: i64 = mul_sat(%10, %10)"),
        body("%10: u8 = cast(%6)\n%11: u8 = mul_sat(%10, %10)"),
    ),
    (
        "K011",
        body("%10: u8 = cast(%6)\n%11: u8 = mulhi(%10, %10)"),
        body("%10: i32 = mulhi(%6, %6)"),
    ),
    ("K011", body("%10: f32 = reverse_bits(%2)"), body("%10: u32 = reverse_bits(%8)")),
    ("K011", body("%10: i64 = bufferlength(x)"), body("%10: index = bufferlength(x)")),
    ("K011", body("%10: u32 = atomic_add(c, %1, %6)"), body("%10: u32 = atomic_add(c, %1, %8)")),
    ("K011", body("%10: i32 = atomic_add(c, %1, %8)"), body("%10: i32 = atomic_add(d, %1, %6)")),
    ("V009", body("%10: u32 = atomic_add(w, %1, %8)"), body("%10: u32 = atomic_add(c, %1, %8)")),
    ("V014", body("%10: f32 = atomic_add(y, %1, %2)"), body("%10: i32 = atomic_max(d, %1, %6)")),
    ("V025", body("%10: u32 = atomic_or(s, %1, %8)"), body("%10: u32 = atomic_or(c, %1, %8)")),
    ("V027", body("%10: u32 = atomic_or(c, %6, %8)"), body("%10: u32 = atomic_or(c, %3, %8)")),
    (
        "V036",
        body("%10: index = const(8)\n%11: u32 = atomic_add(c, %10, %8)"),
        body("%10: index = const(7)\n%11: u32 = atomic_add(c, %10, %8)"),
    ),
    (
        "V042",
        body('%10: u32 = atomic_and(c, %1, %8, order="weak")'),
        body('%10: u32 = atomic_and(c, %1, %8, order="acq_rel")'),
    ),
    (
        "V042",
        body("%10: u32 = atomic_exchange(c, %1, %8, expected=%8)"),
        body("%10: u32 = atomic_compare_exchange(c, %1, %8, expected=%8)"),
    ),
    (
        "V042",
        body("%10: u32 = atomic_compare_exchange(c, %1, %8)"),
        body("%10: u32 = atomic_xor(c, %1, %8)"),
    ),
    ("K013", body("return()\nbarrier()"), body("barrier()\nreturn()")),
    (
        "K013",
        body('region "r":\n  return()\nstore(y, %1, %2)'),
        body("if %5:\n  return()\nstore(y, %1, %2)"),
    ),
    ("V010", body("if %5:\n  return()\nbarrier()"), body("barrier()\nif %5:\n  return()")),
    (
        "V010",
        body("for %10 in range(%4, %0, step=1):\n  barrier()\n  if %5:\n    return()"),
        body(
            "%10: bool = lt(%0, %3)\n"
            "for %11 in range(%4, %0, step=1):\n  barrier()\n  if %10:\n    return()"
        ),
    ),
    (
        "V010",
        body('region "r":\n  if %5:\n    return()\n%10: f32 = broadcast(%2)'),
        body("if %5:\n  return()\n%10: bool = any(%5)"),
    ),
    ("V018", leaving(MAX_RETURNS + 1), leaving(MAX_RETURNS)),
    (
        "K014",
        body("%10: u32 = atomic_add(c, %1, %8)\n%11: u32 = load(c, %1)"),
        body("%10: u32 = atomic_add(c, %1, %8)\nbarrier()\n%11: u32 = load(c, %1)"),
    ),
    (
        "K014",
        body("store(c, %1, %8)\nif %5:\n  %10: u32 = atomic_add(c, %1, %8)"),
        body("store(c, %1, %8)\nif %5:\n  %10: i32 = atomic_add(d, %1, %6)"),
    ),
    (
        "K014",  # around the loop
        body(
            "for %10 in range(%4, %0, step=1):\n  %11: u32 = atomic_add(c, %1, %8)\n"
            "  barrier()\n  %12: u32 = load(c, %1)"
        ),
        body(
            "for %10 in range(%4, %0, step=1):\n  %11: u32 = atomic_add(c, %1, %8)\n"
            "  barrier()\n  %12: u32 = load(c, %1)\n  barrier()"
        ),
    ),
    (
        "K014",  # a way around the barrier
        body(
            "%10: u32 = atomic_add(c, %1, %8)\n%11: bool = lt(%0, %3)\n"
            "if %11:\n  barrier()\nstore(c, %1, %8)"
        ),
        body(
            "%10: u32 = atomic_add(c, %1, %8)\n%11: bool = lt(%0, %3)\n"
            "if %11:\n  barrier()\nelse:\n  barrier()\nstore(c, %1, %8)"
        ),
    ),
    (
        "V044",
        body("%10: i32 = const(0)\n%11: i32 = mod(%6, %10)"),
        body("%10: f32 = const(0.0)\n%11: f32 = div(%2, %10)"),
    ),
]


@pytest.mark.parametrize(
    ("code", "broken", "near_miss"), CASES, ids=[f"{c[0]}-{i}" for i, c in enumerate(CASES)]
)
def test_a_rule_and_its_near_miss(code: str, broken: n.Program, near_miss: n.Program) -> None:
    assert codes(broken)[:1] == [code]
    assert codes(near_miss) == []
    verify(near_miss)
    with pytest.raises(VerifyError) as error:
        verify(broken)
    assert error.value.code == code


def test_every_code_has_a_case() -> None:
    assert {code for code, *_ in CASES} == set(CODES) - {"K004"}  # needs a machine, see above


def test_the_message_names_program_rule_and_line() -> None:
    with pytest.raises(VerifyError) as error:
        verify(body("%10: f32 = add(%2, %6)"))
    assert (
        str(error.value)
        == "K011: p: the result is f32, operands are f32, i32\n  at %10: f32 = add(%2, %6)"
    )


def test_all_problems_are_listed_in_program_order() -> None:
    program = body("%10: f32 = add(%2, %6)\nstore(x, %1, %2)\n%11: index = mod(%1, %4)")
    assert codes(program) == ["K011", "K021", "V044"]


def test_verifying_and_uniformity_are_quick() -> None:
    k = KernelBuilder("long", workgroup=16)
    x, total = k.buffer("x", f32), k.local(0.0, f32)
    with k.loop(k.arg("n")) as i:
        for j in range(250):
            total.set(k.fma(k.load(x, i + k.lane() + j), 2.0, total.get()))
    program = k.finish()
    for analyse, limit in ((varying, 0.010), (problems, 0.030)):
        times = []
        for _ in range(15):
            start = time.thread_time()
            analyse(program)
            times.append(time.thread_time() - start)
        assert min(times) < limit


@pytest.mark.parametrize("dtype", [c64, i4], ids=str)
def test_no_value_has_a_type_that_no_kernel_computes_with(dtype: DType) -> None:
    k = KernelBuilder("held")
    k.local(0, dtype)
    assert codes(k.finish())[:1] == ["K023"]
