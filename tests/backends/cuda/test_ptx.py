"""The text of PTX modules: names, versions, bounds, parameters; what is refused; that floats are
IEEE and the text is always the same. What it computes is tested in `test_values`."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

import tetrad as td
from tests.backends.cuda import golden
from tests.modules import ROOT
from tetrad.backends.cuda.check import structure_problems
from tetrad.backends.cuda.layout import Names, layout_of
from tetrad.backends.cuda.module import emit_entry
from tetrad.backends.cuda.parse import parse_ptx
from tetrad.backends.cuda.ranges import proved_accesses
from tetrad.backends.cuda.rules import ALIKE, ThreadRules, comment
from tetrad.backends.cuda.targets import ARCHITECTURES, architecture_named
from tetrad.core.dtypes import DType, f32, f64, i32, index, u8
from tetrad.core.errors import BackendError, Rejected
from tetrad.core.sizes import Dim
from tetrad.kernel import nodes as n
from tetrad.kernel import registry
from tetrad.kernel.build import KernelBuilder, Val

VERSIONS = {
    "sm_75": "6.4", "sm_80": "7.0", "sm_86": "7.1", "sm_89": "7.8", "sm_90": "8.0", "sm_100": "8.6",
    "sm_120": "8.7",
}  # fmt: skip


def small(name: str = "small", workgroup: int | tuple[int, int, int] = 4) -> n.Program:
    k = KernelBuilder(name, workgroup)
    y = k.buffer("y", f32, "write", 8)
    k.store(y, k.lane(), k.const(1.5, f32))
    return k.finish()


# -- the head --------------------------------------------------------------------------------------


@pytest.mark.parametrize("arch", VERSIONS)
def test_the_version_is_that_of_the_architecture(arch: str) -> None:
    text = td.kernel.ptx(small(workgroup=(2, 3, 4)), arch=arch)
    lines = text.splitlines()
    assert lines[:3] == [f".version {VERSIONS[arch]}", f".target {arch}", ".address_size 64"]
    assert text.isascii() and text.endswith("}\n")
    assert re.search(r"\.visible \.entry small\(\n[^)]*\n\)\n\.maxntid 2, 3, 4\n\{", text)
    assert ".reqntid" not in text and "LLVM" not in text


def test_the_table_of_architectures_is_the_one_that_is_tested() -> None:
    assert {line.name: line.version for line in ARCHITECTURES.values()} == VERSIONS


def test_without_an_architecture_it_is_hopper() -> None:
    assert ".target sm_90\n" in td.kernel.ptx(small())


def test_parameters_are_addresses_arguments_lengths_and_status() -> None:
    rows = Dim("rows", max=1000)
    k = KernelBuilder("f", 16)
    a, b = k.buffer("a", f32), k.buffer("b", f64, count=rows * 2)
    out, count, by = k.buffer("out", u8, "readwrite", 9), k.arg("rows"), k.arg("by")
    k.trap(count < 1, 1, count)
    k.store(out, k.lane(), k.cast(k.load(a, by), u8) + k.cast(k.load(b, k.lane()), u8))
    module = parse_ptx(td.kernel.ptx(k.finish()))
    assert list(module.params) == ["a", "b", "out", "rows", "by", "a_length", "status"]
    assert set(module.params.values()) == {"u64"}


@pytest.mark.parametrize("role", ["scale", "pack", "unpack"])
@pytest.mark.parametrize("kind", ["int4", "nf4"])
@pytest.mark.parametrize("dtype", ["f32", "f64"])
@pytest.mark.parametrize("arch", ["sm_75", "sm_80", "sm_90", "sm_100", "sm_120"])
def test_the_quantisers_have_the_names_and_parameters_of_their_specification(
    role: str, kind: str, dtype: str, arch: str
) -> None:
    """spec quant 3.6; and true division, and rounding to even."""
    program = registry.entry(f"tetrad::quant::dnn_{kind}_{role}_{dtype}").build()
    text = td.kernel.ptx(program, arch)
    module = parse_ptx(text)
    assert (module.entry, module.target) == (f"dnn_{kind}_{role}_{dtype}", arch)
    assert module.bounds == (256, 1, 1)
    first = ["in_ptr", "scale_ptr", *(["zero_ptr"] if kind == "int4" else [])]
    counts = {"scale": ["n", "group_size", "num_groups"]}.get(role, ["n", "group_size", "packed_n"])
    out = [] if role == "scale" else ["out_ptr"]
    wanted = [*first, *out, *counts]
    assert list(module.params)[: len(wanted)] == wanted
    if role == "pack":
        assert f"div.rn.{dtype}" in text
    if (role, kind) == ("pack", "int4"):
        assert f"cvt.rni.{dtype}.{dtype}" in text


# -- names -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "entry"),
    [
        ("add", "add"), ("a b", "a_b"), ("2x", "_2x"), ("größe", "gr__e"), ("WARP_SZ", "WARP_SZ_"),
        ("x.y::z", "x_y__z"), ("_", "__"), ("", "_"), ('a"\n', "a__"),
    ],
)  # fmt: skip
def test_any_name_becomes_one_that_ptx_takes(name: str, entry: str) -> None:
    text = td.kernel.ptx(small(name))
    assert parse_ptx(text).entry == (entry if entry != "_" else "__")


def test_names_that_become_alike_are_told_apart() -> None:
    names = Names()
    assert [names.plain(x) for x in ("a b", "a_b", "a.b", "a_b_")] == [
        "a_b", "a_b_", "a_b__", "a_b___",
    ]  # fmt: skip
    k = KernelBuilder("y", 2)
    y, shared = k.buffer("y", f32, "write", 2), k.scratch("y_", f32, 2)
    k.store(shared, k.lane(), k.const(1.0, f32))
    k.store(y, k.lane(), k.load(shared, k.lane()))
    module = parse_ptx(td.kernel.ptx(k.finish()))
    assert len({module.entry, *module.params, *module.arrays}) == 3


@pytest.mark.parametrize("name", ["kernel", "entry", "dynamic", "exchange", "lanes0", "shared"])
def test_no_name_meets_one_of_our_own(name: str) -> None:
    k = KernelBuilder(name, 64)
    y, x = k.buffer(f"{name}_", f32, "write", 64), k.scratch(name, f32, 20_000)
    k.store(x, k.lane(), k.cast(k.lane(), f32))
    mixed = k.shuffle(k.load(x, k.lane()), k.load(x, k.lane()), tuple(range(63, -1, -1)))
    k.store(y, k.lane(), mixed)
    text = td.kernel.ptx(k.finish())
    assert parse_ptx(text).entry == name and structure_problems(text) == []


def test_regions_are_comments() -> None:
    k = KernelBuilder("f", 4)
    y = k.buffer("y", f32, "write", 4)
    with k.region('mine::math::tést "$0\n'):
        k.store(y, k.lane(), k.const(1.0, f32))
    assert "// region mine::math::t?st ??0?\n" in td.kernel.ptx(k.finish())
    assert comment("x" * 1000) == "x" * 120


# -- floats ----------------------------------------------------------------------------------------


def unary(dtype: DType, f: object) -> str:
    k = KernelBuilder("f", 32)
    x, y = k.buffer("x", dtype), k.buffer("y", dtype, "write", 32)
    k.store(y, k.lane(), f(k, k.load(x, k.lane())))  # type: ignore[operator]
    return str(td.kernel.ptx(k.finish()))


@pytest.mark.parametrize("dtype", [f32, f64], ids=str)
def test_floats_are_neither_contracted_nor_flushed_nor_approximated(dtype: DType) -> None:
    def f(k: KernelBuilder, x: Val) -> Val:
        return k.sqrt(x * x + x) / (x * 3.0 - 1.0)

    text = unary(dtype, f)
    for word in ("mul.rn", "add.rn", "div.rn", "sqrt.rn"):
        assert f"{word}.{dtype}" in text
    assert not re.search(r"\b(fma|mad)\.|ftz|approx|\.full", text)
    assert f"fma.rn.{dtype}" in unary(dtype, lambda k, x: k.fma(x, x, x))


def test_immediates_are_exact_bit_patterns() -> None:
    assert "0F3DCCCCCD" in unary(f32, lambda k, x: x + 0.1)
    assert "0D3FB999999999999A" in unary(f64, lambda k, x: x + 0.1)


def test_a_registered_kernel_never_has_loose_floats() -> None:
    for entry in registry.entries():
        assert not re.search(r"\.ftz|\.approx|\.full\.", td.kernel.ptx(entry.build())), entry.id


# -- guards ----------------------------------------------------------------------------------------


def proofs(build: object, count: int | None = 16, workgroup: int = 4) -> int:
    """How many of the accesses that `build` makes to x need no guard."""
    k = KernelBuilder("f", workgroup)
    x, size = k.buffer("x", i32, "readwrite", count), k.arg("size")
    build(k, x, size)  # type: ignore[operator]
    return len(proved_accesses(k.finish()))


@pytest.mark.parametrize(
    ("at", "proved"),
    [
        (lambda k, s: k.lane() * 4 + 3, True),
        (lambda k, s: k.lane() * 5, True),
        (lambda k, s: k.lane() * 6, False),
        (lambda k, s: k.lane() - 1, False),
        (lambda k, s: k.index(15) - k.lane(), True),
        (lambda k, s: k.group_id(), False),
        (lambda k, s: k.global_id() % 16, True),
        (lambda k, s: k.global_id() % 17, False),
        (lambda k, s: s % 16, False),
        (lambda k, s: k.max(k.min(s, 15), 0), True),
        (lambda k, s: k.min(s, 15), False),
        (lambda k, s: k.select(s < 3, k.lane(), k.lane() + 12), True),
        (lambda k, s: k.global_id() // (1 << 29), True),  # of the largest grid
        (lambda k, s: k.global_id() // (1 << 28), False),
        (lambda k, s: k.lane(0) // 4, True),
        (lambda k, s: s * 2, False),
    ],
)
def test_what_ids_and_numbers_prove(at: object, proved: bool) -> None:
    def build(k: KernelBuilder, x: n.Buffer, size: Val) -> None:
        k.store(x, at(k, size), 1)  # type: ignore[operator]

    assert proofs(build) == proved


def test_what_branches_and_loops_prove() -> None:
    def guarded(k: KernelBuilder, x: n.Buffer, size: Val) -> None:
        i = k.global_id()
        with k.when(i < 16, guard=True):
            k.store(x, i, 1)  # proved
            k.store(x, i + 1, 1)
        with k.when((size >= 0) & (size <= 15)):
            k.store(x, size, 1)  # proved
        with k.when(size < 16):
            k.store(x, size, 1)  # may be negative
        with k.otherwise():
            k.store(x, size - 16, 1)

    def looped(k: KernelBuilder, x: n.Buffer, size: Val) -> None:
        with k.loop(16, step=4) as start:
            k.store(x, start, 1)  # proved
            k.store(x, start + k.lane(), 1)  # the range of a counter knows no step
        with k.loop(size) as i:
            k.store(x, i, 1)

    assert proofs(guarded) == 2
    assert proofs(looped) == 1
    assert proofs(guarded, None) == 0


def test_a_proved_access_has_no_guard_and_another_has_one() -> None:
    k = KernelBuilder("f", 4)
    y = k.buffer("y", i32, "write", 4)
    k.store(y, k.lane(), 1)
    assert "setp" not in td.kernel.ptx(k.finish())
    k = KernelBuilder("f", 4)
    y = k.buffer("y", i32, "write", 3)
    k.store(y, k.lane(), 1)
    assert "setp" in td.kernel.ptx(k.finish())


# -- refusals --------------------------------------------------------------------------------------


def test_an_unknown_architecture_lists_the_known_ones() -> None:
    with pytest.raises(BackendError, match="unknown architecture 'sm_70'") as error:
        td.kernel.ptx(small(), arch="sm_70")
    assert error.value.hint == "known: " + ", ".join(VERSIONS)


def test_what_is_no_program_or_no_valid_one_is_refused() -> None:
    with pytest.raises(Rejected, match="ptx: expected a program, got a str"):
        td.kernel.ptx("add")
    broken = n.Program("broken", (), (), (0, 1, 1), ())
    with pytest.raises(Rejected, match="K001"):
        td.kernel.ptx(broken)


@pytest.mark.parametrize("workgroup", [(1025, 1, 1), (32, 33, 1), (1, 1, 65), (2048, 1, 1)])
def test_a_block_has_at_most_1024_threads(workgroup: tuple[int, int, int]) -> None:
    sizes = " x ".join(map(str, workgroup))
    with pytest.raises(BackendError, match=f"a workgroup of {sizes} = .*at most 1024 threads"):
        td.kernel.ptx(small(workgroup=workgroup))


def test_workgroup_memory_beyond_the_architectures_is_refused_with_the_sizes() -> None:
    k = KernelBuilder("greedy", 8)
    y, big = k.buffer("y", f32, "write", 8), k.scratch("big", f32, 20_000)
    k.store(big, k.lane(), k.const(1.0, f32))
    k.store(y, k.lane(), k.load(big, k.lane()))
    program = k.finish()
    assert ".extern .shared" in td.kernel.ptx(program, arch="sm_90")
    with pytest.raises(BackendError, match=r"greedy: .* 80000 bytes .*65536 on sm_75: big 20000 x"):
        td.kernel.ptx(program, arch="sm_75")


def test_private_memory_beyond_a_threads_is_refused() -> None:
    k = KernelBuilder("greedy", 2)
    own = k.private("own", f64, 2 * 70_000)
    k.store(own, k.lane(), k.const(1.0, f64))
    with pytest.raises(BackendError, match="greedy: private own takes 560000 bytes of each thread"):
        td.kernel.ptx(k.finish())


def test_every_instruction_has_a_rule_for_threads_or_is_one_that_needs_none() -> None:
    """One that is new must be put into one of the lists: what a vector machine does with it may
    mean something else here."""
    layout = layout_of(small(), architecture_named("sm_90"))
    known = set(ThreadRules(layout, frozenset()).table.table)
    assert known | {n.Return} == set(n.INSTRUCTIONS) and set(ALIKE) < known


def test_an_instruction_without_a_rule_is_refused() -> None:
    odd = n.Program("odd", (), (), (1, 1, 1), (n.Return(),))
    layout = layout_of(odd, architecture_named("sm_90"))
    with pytest.raises(BackendError, match="odd: this back end has no code for return"):
        emit_entry(layout, architecture_named("sm_90").target, "mask")


# -- always the same -------------------------------------------------------------------------------


@pytest.mark.parametrize(("id", "arch"), golden.FILES)
def test_the_text_is_that_on_file(id: str, arch: str) -> None:
    """`python -m tests.backends.cuda.golden` writes the files."""
    assert golden.text_of(id, arch) == golden.path_of(id, arch).read_text()


def test_another_process_writes_the_same_text() -> None:
    id, arch = golden.FILES[1]
    script = (
        f"from tests.backends.cuda import golden; print(golden.text_of({id!r}, {arch!r}), end='')"
    )
    for seed in ("1", "2"):
        done = subprocess.run(
            [sys.executable, "-c", script],
            cwd=ROOT,
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": str(ROOT), "PATH": ""},
            capture_output=True,
            text=True,
            check=True,
        )
        assert done.stdout == golden.text_of(id, arch)


def test_a_program_that_was_printed_and_read_back_has_the_same_text() -> None:
    program = registry.entry("tetrad::quant::int4_matvec_f32_scaled").build()
    again = td.kernel.parse(str(program))
    assert td.kernel.ptx(again) == td.kernel.ptx(program)


def test_index_arithmetic_is_of_64_bits() -> None:
    k = KernelBuilder("far", 1)
    y, at = k.buffer("y", i32, "write"), k.arg("at")
    k.store(y, at * 4096, k.cast(k.value(at, index), i32))
    assert "mul.lo.s64" in td.kernel.ptx(k.finish()) or "shl.b64" in td.kernel.ptx(k.finish())
