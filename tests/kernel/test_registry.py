"""Every registered program passes the harness on every back end; what a registration refuses; the
published numbers of extensions."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from itertools import combinations
from typing import Any

import pytest

import tetrad as td
from tests.modules import ROOT
from tetrad.core.errors import (
    RegistryError,
    ShapeError,
    TrapError,
    UnknownKernelError,
    UnsupportedError,
)
from tetrad.kernel import nodes as n
from tetrad.kernel import registry
from tetrad.kernel.build import KernelBuilder
from tetrad.kernel.cost import cost_of
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


@pytest.mark.parametrize("id", ["tetrad::math::ad", "math::add", "add"])
def test_an_unknown_id_is_told_the_nearest_one(id: str) -> None:
    with pytest.raises(UnknownKernelError, match=r"did you mean .*tetrad::math::add\b") as error:
        registry.entry(id)
    assert isinstance(error.value, KeyError) and len(str(error.value)) < 400
    assert str(error.value).startswith(f"no kernel {id!r}\n")


def test_an_id_like_no_other_is_told_where_the_list_is() -> None:
    for ask in (registry.entry, registry.remove):
        with pytest.raises(UnknownKernelError, match=r"no kernel 'xyzzy'\n  hint: td.kernel.reg"):
            ask("xyzzy")


@pytest.mark.parametrize(
    ("id", "settings", "match"),
    [
        (None, {}, "the id None does not read"),
        ("a::b::c", {"build": 3}, "build is an int, not a function"),
        ("a::b::c", {"tolerance": -1}, "tolerance is -1"),
        ("a::b::c", {"tolerance": "a"}, "tolerance is 'a'"),
        ("a::b::c", {"grid": (1, 1)}, "not three numbers of workgroups"),
        ("a::b::c", {"args": 3}, "args is 3"),
        ("a::b::c", {"inputs": None}, "inputs is a NoneType"),
        ("a::b::c", {"expected": b"x"}, "expected is a bytes"),
        ("a::b::c", {"category": 4}, "category is 4"),
        ("a::b::c", {"extension": "quant"}, "extension is 'quant'"),
    ],
)
def test_a_registration_refuses_settings_of_the_wrong_kind(
    id: Any, settings: dict[str, Any], match: str
) -> None:
    with pytest.raises(RegistryError, match=match):
        registry.register(id, **{"build": doubled, **cases(), **settings})
    assert id not in registry._entries


TAKEN = """
import tetrad as td
from tetrad.core.errors import RegistryError
def build(): return td.kernel.build("mine").finish()
try:
    td.kernel.registry.register({id!r}, build=build, category="x", extension={extension!r})
except RegistryError as error:
    assert {match!r} in str(error), error
else:
    raise AssertionError("accepted")
assert td.kernel.registry.entry("tetrad::quant::int4_dot_i32")
td.kernel.registry.register("mine::a::b", build=build, category="x")
assert td.kernel.registry.entry("mine::a::b")
"""


@pytest.mark.parametrize(
    ("id", "extension", "match"),
    [
        ("mine::a::b", ("quant.int4.dot", "binary"), "mine::a::b: extension 'quant.int4.dot'"),
        ("tetrad::math::add", None, "two kernels are called tetrad::math::add"),
    ],
)
def test_what_collides_with_the_library_fails_in_the_call_that_registers_it(
    id: str, extension: tuple[str, str] | None, match: str
) -> None:
    """In a process in which nobody has asked for the library yet."""
    script = TAKEN.format(id=id, extension=extension, match=match)
    subprocess.run([sys.executable, "-c", script], check=True, cwd=ROOT)


def test_sizes_are_whole_numbers_and_names_differ() -> None:
    add, dot = registry.entry("tetrad::math::add"), registry.entry("tetrad::quant::int4_dot_i32")
    for size in (1.5, True, "3"):
        with pytest.raises(ShapeError, match=r"Fix: tetrad::math::add: size=.* whole number"):
            add.build_or_raise(size)
    with pytest.raises(TrapError, match=r"size=1.5 must be a whole number"):
        td.dispatch(add.build(1.5), [])
    with pytest.raises(ShapeError, match="are both called 'x'; name them differently"):
        dot.build_or_raise("x", "x")


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


@pytest.mark.parametrize("size", [1, 5, 16, 17, 100])
def test_flops_are_those_of_the_invocations_behind_a_guard(size: int) -> None:
    program = registry.entry("tetrad::math::add").build(size)
    assert cost_of(program, (-(-size // 16), 1, 1), {}).flops == size
    assert cost_of(program, (1, 1, 1), {}).flops == min(size, 16)
    assert cost_of(program, (1, 2, 1), {}).flops == 32  # along another axis: all count


def test_extensions_are_pairwise_distinct() -> None:
    found = registry.extensions()
    assert all(a[0] != b[0] for a, b in combinations(found.values(), 2))
