"""Every registered program passes the harness on every back end; what a registration refuses; the
published numbers of extensions."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations
from typing import Any

import pytest

import tetrad as td
from tests.modules import ROOT
from tetrad.core.errors import ShapeError, TrapError, UnsupportedError
from tetrad.kernel import nodes as n
from tetrad.kernel import registry
from tetrad.kernel.build import KernelBuilder
from tetrad.kernel.registry import Entry, in_region, register

ENTRIES = registry.entries()
ENTRY = pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.id)
# spec kernel-ir section 12
PUBLISHED = {
    "quant.int4.dot": 0xCAC18040,
    "quant.int4.dot.scaled": 0x9767FF4C,
    "quant.int4.matvec.scaled": 0xB727AE2B,
    "quant.int4.batched_matvec.scaled": 0xFC0C4D95,
    "quant.int4.batched_matmul.scaled": 0xDB06F5C9,
    "quant.int4.batched_matmul.top1.scaled": 0xF9A14213,
    "tensor.gather": 0xCFB3CF65,
    "tensor.scatter": 0xD15B3C7C,
}
COLLISION = ("user.op56088", "user.op329962")  # both are D3CDA5E4


def empty(name: str = "empty") -> n.Program:
    return KernelBuilder(name).finish()


@pytest.fixture
def ours() -> Iterator[str]:
    """An id that is free, and is free again afterwards."""
    yield "test::none::made"
    if "test::none::made" in registry._entries:
        registry.remove("test::none::made")


@ENTRY
def test_it_passes_the_harness(entry: Entry) -> None:
    report = registry.check(entry)
    report.require()
    steps = ["build", "verify", "text", "bytes", "fixtures", "optimise", "evaluate", "samples"]
    assert {*steps, "run cpu"} <= {step.step for step in report.steps if step.result == "ok"}


@ENTRY
def test_it_says_what_it_does(entry: Entry) -> None:
    assert entry.category and entry.__doc__ and len(entry.inputs) == len(entry.expected) >= 1
    assert entry.tolerance == 0
    assert entry.cost.bytes_written >= 0 and entry.cost.flops >= 0


@ENTRY
def test_its_body_is_one_region(entry: Entry) -> None:
    (region,) = entry.build().body
    assert isinstance(region, n.Region)
    assert region.generator in {e.id for e in ENTRIES}


def test_ids_are_sorted_and_unique() -> None:
    ids = [entry.id for entry in ENTRIES]
    assert ids == sorted(set(ids))


def test_every_entry_is_on_its_page() -> None:
    """Those of the quantisers by the name of their kernel, those that trap by their domain."""
    page = (ROOT / "docs" / "kernel-library.md").read_text()
    for entry in ENTRIES:
        shown = entry.id.removesuffix("_asymmetric").removesuffix("_real")
        assert f"`{shown}`" in page or entry.category == "invalid", entry.id


# -- registering -----------------------------------------------------------------------------------


def doubled(size: int = 3) -> n.Program:
    """y[i] = 2 * x[i]."""
    if size < 1:
        raise ShapeError(f"Fix: doubled: size={size} must be > 0")
    k = KernelBuilder("doubled")
    x, y = k.buffer("x", td.float32, count=size), k.buffer("y", td.float32, "write", size)
    i = k.global_id()
    with k.when(i < size, guard=True):
        k.store(y, i, k.load(x, i) * 2.0)
    return k.finish()


def cases() -> dict[str, Any]:
    return {
        "category": "test",
        "inputs": [[td.kernel.pack([1, 2, 3], td.float32)]],
        "expected": [[td.kernel.pack([2, 4, 6], td.float32)]],
    }


def test_a_user_registers_with_one_call_and_checks_with_another(ours: str) -> None:
    made = registry.register(ours, build=doubled, **cases())
    assert registry.entry(ours) is made and made in registry.entries()
    report = registry.check(ours)
    assert report.ok, report
    assert [step.step for step in report.gaps if step.step == "samples"] == ["samples"]
    assert made.id in str(report) and report.fingerprint[:16] in str(report)


def test_a_user_registers_with_a_decorator(ours: str) -> None:
    made = registry.register(ours, **cases())(doubled)
    assert registry.check(made).ok and made.__doc__ == "y[i] = 2 * x[i]."


def test_build_traps_for_sizes_that_cannot_be_and_the_other_one_raises(ours: str) -> None:
    made = registry.register(ours, build=doubled, **cases())
    program = made.build(0)
    assert td.kernel.has_trap(program) and not td.kernel.has_trap(made.build())
    assert program.workgroup == (1, 1, 1)
    (out,) = program.buffers
    assert (out.name, out.dtype, out.access, out.count) == ("y", td.float32, "write", 1)
    with pytest.raises(TrapError, match="Fix: doubled: size=0 must be > 0"):
        td.dispatch(program, [])
    with pytest.raises(ShapeError, match="size=0"):
        made.build_or_raise(0)


def test_ids_are_unique_and_have_three_parts() -> None:
    with pytest.raises(ValueError, match="two kernels are called tetrad::math::add"):
        register("tetrad::math::add", category="math")(empty)
    for bad in ("add", "tetrad::add", "a::::b", "a::b::c::d"):
        with pytest.raises(ValueError, match="package::domain::name"):
            register(bad, category="math")


def test_an_unknown_id_lists_the_known_ones() -> None:
    with pytest.raises(KeyError, match="tetrad::math::add"):
        registry.entry("tetrad::math::nothing")


def test_a_program_that_is_regions_already_keeps_them() -> None:
    inner = in_region("a::b::c", empty())
    assert in_region("d::e::f", inner) is inner


def test_an_entry_without_a_sampler_says_so() -> None:
    with pytest.raises(UnsupportedError, match="test::none::bare has no sampler"):
        Entry("test::none::bare", empty, [], [], "test").sample(None)  # type: ignore[arg-type]


# -- extensions ------------------------------------------------------------------------------------


def test_the_published_numbers_of_extensions() -> None:
    assert {name: td.kernel.extension_id(name) for name in PUBLISHED} == PUBLISHED


def test_numbers_have_the_high_bit_and_come_from_bytes() -> None:
    assert td.kernel.extension_id("") == 0x811C9DC5
    assert td.kernel.extension_id("é") == td.kernel.extension_id(b"\xc3\xa9".decode())
    assert all(td.kernel.extension_id(name) >> 31 for name in ("a", "b", "tensor.gather"))


def test_two_names_with_one_number_are_refused(ours: str) -> None:
    first, second = COLLISION
    assert td.kernel.extension_id(first) == td.kernel.extension_id(second)
    registry.register(ours, build=doubled, extension=(first, "unary"), **cases())
    with pytest.raises(ValueError, match="choose another name"):
        registry.register("test::none::b", build=doubled, extension=(second, "unary"), **cases())
    assert "test::none::b" not in registry._entries


def test_an_extension_has_one_of_the_kinds(ours: str) -> None:
    with pytest.raises(ValueError, match="ternary"):
        registry.register(ours, build=doubled, extension=("x", "quaternary"), **cases())


def test_extensions_are_pairwise_distinct() -> None:
    found = registry.extensions()
    assert all(a[0] != b[0] for a, b in combinations(found.values(), 2))
