"""4-bit linear layers: the vectors, sweeps and errors of spec quant 2 and kernel-ir 16."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tetrad as td
from tests.kernel.library.oracle import Array, evaluated, f32, f32_of, floats, launched, words
from tetrad.core.errors import ShapeError, TetradError, TrapError
from tetrad.kernel import nodes as n
from tetrad.kernel.library.linear_4bit import (
    MOST_HOISTED,
    QuantizedLinear4BitSpec,
    affine_grouped,
    linear_4bit,
    linear_4bit_affine_grouped,
    linear_4bit_affine_grouped_typed,
)
from tetrad.kernel.library.quantized_type import (
    LAYOUTS,
    Absent,
    PerChannel,
    PerGroup,
    PerTensor,
    QuantizedType,
    problems_of,
)

NAMES = ("x", "w", "scale", "zero_point", "b", "out")
OUTS, GROUPS, SEEDS = (1, 2, 3, 5, 8, 13, 21, 32), (1, 2, 4, 8, 16, 32), range(48)


def grouped(in_dim: int, out_dim: int, group_size: int) -> n.Program:
    return linear_4bit_affine_grouped.build(*NAMES, in_dim, out_dim, group_size)


def interleave(nibbles: Array) -> list[int]:
    """Words of nibbles [in, out], one by one."""
    in_dim, out_dim = nibbles.shape
    made = [0] * (in_dim // 8 * out_dim)
    for k in range(in_dim):
        for i in range(out_dim):
            made[k // 8 * out_dim + i] |= int(nibbles[k, i]) << 4 * (k % 8)
    return made


def generated(in_dim: int, out_dim: int, group_size: int, seed: int) -> tuple[list[bytes], Array]:
    """Inputs by the formulas of the spec, and the outputs, in exact order and rounding."""
    k, o = np.arange(in_dim), np.arange(out_dim)
    g = np.arange(-(-in_dim // group_size))
    x = f32((3 * k + seed) % 19)
    nibbles = (7 * k[:, None] + 11 * o + seed) & 15
    scale = f32([0.25, 0.5, 1, 2])[(g[:, None] + o + seed) & 3]
    zero = (5 * g[:, None] + o + seed) & 15
    total = f32((o + seed) & 7)
    inputs = [floats(x), words(interleave(nibbles)), floats(scale), words(zero.ravel())]
    inputs.append(floats(total))
    for at in range(in_dim):
        which = at // group_size
        total = total + x[at] * ((f32(nibbles[at]) - f32(zero[which])) * scale[which])
    return inputs, total


# -- values ----------------------------------------------------------------------------------------


def test_the_vectors_of_the_plain_layer() -> None:
    program = linear_4bit.build("x", "w", "b", "out", 8, 2)
    inputs = (floats(range(1, 9)), words([0x87654321, 0]), floats([0, 0]))
    assert f32_of(launched(program, *inputs)) == [204, 0]
    program = linear_4bit.build("x", "w", "b", "out", 8, 4)
    packed = words([0x76543210, 0xFEDCBA98, 0x11111111, 0])
    assert f32_of(launched(program, floats(range(8)), packed, floats([0] * 4))) == [140, 364, 28, 0]


SAMPLES = {
    (32, 1, 1, 0): [-125],
    (32, 2, 4, 1): [-281.75, 529],
    (32, 3, 4, 5): [-728.25, -1079.75, -406.25],
    (32, 3, 8, 5): [-1198.75, -1.25, 197],
    (32, 5, 8, 17): [-0.75, 436, 583.25, 124.75, -1176.75],
    (32, 5, 16, 7): [198.5, -370.25, -1110.5, -2499, -821.5],
    (32, 2, 32, 47): [-4461, 580.5],
    (256, 2, 1, 3): [-649.5, -607.5],  # as many groups as are hoisted
    (264, 2, 1, 3): [-651, -414],  # one more than that
    (24, 2, 10, 3): [673.75, -188],  # a ragged last group
}


@pytest.mark.parametrize(("sizes", "wanted"), SAMPLES.items(), ids=str)
def test_spot_values(sizes: tuple[int, int, int, int], wanted: list[float]) -> None:
    inputs, oracle = generated(*sizes)
    assert oracle.tolist() == wanted
    assert f32_of(launched(grouped(*sizes[:3]), *inputs)) == wanted


def test_the_first_words_of_the_sweep() -> None:
    inputs, _ = generated(32, 1, 1, 0)
    assert np.frombuffer(inputs[1], "<u4")[:2].tolist() == [0x1A3C5E70, 0x92B4D6F8]


def test_all_24480_outputs_of_the_sweep() -> None:
    total, absolute, outputs = 0.0, 0.0, 0
    for out_dim in OUTS:
        for group_size in GROUPS:
            program = grouped(32, out_dim, group_size)
            for seed in SEEDS:
                inputs, wanted = generated(32, out_dim, group_size, seed)
                (out,) = td.dispatch(program, inputs)
                assert out == floats(wanted)
                total, absolute = (
                    total + float(wanted.sum(dtype=float)),
                    absolute + float(np.abs(wanted).sum(dtype=float)),
                )
                outputs += out_dim
    assert (outputs, total, absolute) == (24480, -4886897.25, 13920170.75)


@pytest.mark.parametrize("group_size", GROUPS)
@pytest.mark.parametrize("out_dim", OUTS)
def test_the_evaluator_agrees_on_a_share_of_the_sweep(out_dim: int, group_size: int) -> None:
    inputs, wanted = generated(32, out_dim, group_size, out_dim + group_size)
    assert evaluated(grouped(32, out_dim, group_size), *inputs) == [floats(wanted)]


def test_one_group_may_exceed_the_row() -> None:
    inputs, wanted = generated(8, 3, 100, 5)
    assert launched(grouped(8, 3, 100), *inputs) == [floats(wanted)]


def test_every_nibble_of_the_interleaved_layout_is_found() -> None:
    """An input that is 1 in one place reads one row of nibbles."""
    rng = np.random.default_rng(5)
    for in_dim in range(8, 257, 8):
        nibbles = rng.integers(0, 16, (in_dim, 3))
        at = int(rng.integers(in_dim))
        x = np.eye(1, in_dim, at, dtype=np.float32)[0]
        program = linear_4bit.build("x", "w", "b", "out", in_dim, 3)
        inputs = (floats(x), words(interleave(nibbles)), floats([0] * 3))
        assert f32_of(evaluated(program, *inputs)) == nibbles[at].tolist()


# -- the two shapes of code ------------------------------------------------------------------------


def statements(program: n.Program) -> list[n.Instr]:
    """Of the guarded body: bindings of locals, assignments, loops, stores. Pure values are
    expressions."""
    (region,) = program.body
    assert isinstance(region, n.Region)
    (guard,) = (instr for instr in region.body if isinstance(instr, n.If))
    return [i for i in guard.then if isinstance(i, n.Local | n.Set | n.For | n.Store | n.If)]


@pytest.mark.parametrize(
    ("in_dim", "group_size", "expected"),
    [(8, 4, 2 + 3 * 2), (24, 10, 2 + 3 * 3), (8, 8, 5), (256, 1, 2 + 3 * 256), (2048, 8, 770)],
)
def test_up_to_256_groups_are_hoisted(in_dim: int, group_size: int, expected: int) -> None:
    found = statements(grouped(in_dim, 2, group_size))
    assert len(found) == expected
    assert isinstance(found[0], n.Local) and isinstance(found[-1], n.Store)
    assert all(isinstance(i, n.Local) for i in (*found[1:-1:3], *found[2:-1:3]))
    assert all(isinstance(i, n.For | n.Set) for i in found[3:-1:3])


@pytest.mark.parametrize(("in_dim", "group_size"), [(264, 1), (2056, 8), (257 * 8, 8)])
def test_more_groups_are_one_loop(in_dim: int, group_size: int) -> None:
    assert -(-in_dim // group_size) > MOST_HOISTED
    found = statements(grouped(in_dim, 2, group_size))
    assert [type(i) for i in found] == [n.Local, n.For, n.Store]


def test_both_shapes_give_the_same_bits() -> None:
    """The hoisted form of one size against the reloading form of a longer row that is padded with
    zeros of x."""
    inputs, wanted = generated(256, 5, 1, 11)
    longer, _ = generated(264, 5, 1, 11)
    longer[0] = inputs[0] + floats([0] * 8)
    longer[4] = inputs[4]
    assert evaluated(grouped(256, 5, 1), *inputs) == [floats(wanted)]
    assert evaluated(grouped(264, 5, 1), *longer) == [floats(wanted)]


def test_the_layout_of_the_program() -> None:
    program = grouped(32, 7, 8)
    assert [(b.name, str(b.dtype), b.access, b.count) for b in program.buffers] == [
        ("x", "f32", "read", 32), ("w", "u32", "read", 28), ("scale", "f32", "read", 28),
        ("zero_point", "u32", "read", 28), ("b", "f32", "read", 7), ("out", "f32", "write", 7),
    ]  # fmt: skip
    assert program.workgroup == (64, 1, 1)
    plain = linear_4bit.build("x", "w", "b", "out", 32, 7)
    assert [b.count for b in plain.buffers] == [32, 28, 7, 7]
    assert [type(i) for i in statements(plain)] == [n.Local, n.For, n.Store]
    for made, name in ((program, "linear_4bit_affine_grouped"), (plain, "linear_4bit")):
        (region,) = made.body
        assert isinstance(region, n.Region) and region.generator == f"tetrad::nn::{name}"


# -- errors ----------------------------------------------------------------------------------------

BIG = 1 << 32
ERRORS: list[tuple[Any, tuple[int, ...], tuple[str, ...]]] = [
    (linear_4bit, (0, 0), ("linear_4bit", "in_dim=0", "the reduction is empty")),
    (linear_4bit, (7, 0), ("linear_4bit", "out_dim=0", "empty output")),
    (linear_4bit, (7, BIG), ("linear_4bit", "in_dim=7", "divisible by 8", "pad")),
    (linear_4bit, (8, BIG), ("linear_4bit", "overflows u32")),
    (linear_4bit_affine_grouped, (0, 0, 0), ("affine_grouped", "in_dim=0", "is empty")),
    (linear_4bit_affine_grouped, (7, 0, 0), ("affine_grouped", "out_dim=0", "empty output")),
    (linear_4bit_affine_grouped, (7, 2, 0), ("affine_grouped", "group_size=0", "must be > 0")),
    (linear_4bit_affine_grouped, (10, 2, 4), ("affine_grouped", "in_dim=10", "divisible by 8")),
    (linear_4bit_affine_grouped, (8, BIG, 4), ("affine_grouped", "words", "overflows u32")),
    (linear_4bit_affine_grouped, (8, 1 << 29, 1), ("affine_grouped", "scales", "overflows u32")),
]


@pytest.mark.parametrize(("entry", "sizes", "texts"), ERRORS, ids=str)
def test_errors_in_order(entry: Any, sizes: tuple[int, ...], texts: tuple[str, ...]) -> None:
    names = ("x", "w", "b", "out") if entry is linear_4bit else NAMES
    with pytest.raises(ShapeError) as error:
        entry.build_or_raise(*names, *sizes)
    message = error.value.message
    assert message.startswith("Fix: ") and all(text in message for text in texts)
    program = entry.build(*names, *sizes)
    assert [(b.name, str(b.dtype), b.count) for b in program.buffers] == [("out", "f32", 1)]
    with pytest.raises(TrapError) as trap:
        td.dispatch(program, [])
    assert all(text in trap.value.message for text in texts)


def spec(storage: str, scale: Any, zero: Any, in_dim: int = 32) -> QuantizedLinear4BitSpec:
    return QuantizedLinear4BitSpec(in_dim, 7, QuantizedType(storage, scale, zero))


TYPED = [
    (spec("i8", PerTensor(), PerGroup(8)), ("per_group(size=g)", "scale:per_tensor")),
    (spec("i4", PerGroup(8), Absent()), ("per_group(size=g)", "zp:absent")),
    (spec("i4", PerChannel(1), PerGroup(8)), ("per_group(size=g)", "per_channel(axis=1)")),
    (QuantizedLinear4BitSpec(32, 7, "f32"), ("per_group(size=g)", "f32")),  # type: ignore[arg-type]
    (spec("i8", PerGroup(8), PerGroup(8)), ("storage I4", "i8")),
    (spec("i8", PerGroup(8), PerGroup(16)), ("storage I4",)),
    (spec("i4", PerGroup(8), PerGroup(16)), ("group sizes to match", "8", "16")),
    (spec("i4", PerGroup(0), PerGroup(16)), ("group sizes to match", "0", "16")),
    (spec("u4", PerGroup(0), PerGroup(0), 7), ("group_size > 0",)),
    (spec("u4", PerGroup(8), PerGroup(8), 10), ("divisible by 8", "in_dim=10")),
    (spec("u4", PerGroup(8), PerGroup(8), 0), ("in_dim=0",)),
]


@pytest.mark.parametrize(("spec", "texts"), TYPED, ids=str)
def test_typed_errors_in_order(spec: QuantizedLinear4BitSpec, texts: tuple[str, ...]) -> None:
    with pytest.raises(TetradError) as error:
        linear_4bit_affine_grouped_typed.build_or_raise(spec)
    assert error.value.message.startswith("Fix: ")
    assert all(text in error.value.message for text in texts)
    assert td.kernel.has_trap(linear_4bit_affine_grouped_typed.build(spec))


def test_weights_of_another_layout_are_refused() -> None:
    each = PerGroup(8)
    other = QuantizedLinear4BitSpec(32, 7, QuantizedType("i4", each, each, "row_packed_signed"))
    with pytest.raises(TetradError, match=r"expected weights of layout column_interleaved"):
        linear_4bit_affine_grouped_typed.build_or_raise(other)


def test_the_typed_form_is_the_plain_one() -> None:
    typed = linear_4bit_affine_grouped_typed.build(affine_grouped(32, 7, 8))
    assert str(typed) == str(grouped(32, 7, 8))
    assert (typed.buffers[1].count, str(typed.buffers[1].dtype)) == (28, "u32")
    assert typed.buffers[5].count == 7


def test_216_typed_layers_build_and_72_do_not() -> None:
    built = refused = 0
    for in_dim in (8, 10, 16, 18, 24, 32, 64, 128):
        for out_dim in (1, 2, 3, 7, 16, 31):
            for group_size in (1, 2, 4, 8, 16, 32):
                wanted = affine_grouped(in_dim, out_dim, group_size)
                if in_dim % 8:
                    with pytest.raises(ShapeError, match="divisible by 8"):
                        linear_4bit_affine_grouped_typed.build_or_raise(wanted)
                    refused += 1
                else:
                    made = linear_4bit_affine_grouped_typed.build_or_raise(wanted)
                    assert made.buffers[5].name == "out" and made.buffers[5].count == out_dim
                    built += 1
    assert (built, refused) == (216, 72)


# -- types -----------------------------------------------------------------------------------------


def test_types_print_as_the_language_spells_them() -> None:
    type = QuantizedType("u4", PerChannel(1), PerTensor())
    assert str(type) == "quantized<u4;scale:per_channel(axis=1);zp:per_tensor>"
    assert type == QuantizedType("u4", PerChannel(1), PerTensor()) and len({type, type}) == 1
    assert LAYOUTS == ("row_packed_signed", "column_interleaved_unsigned", "byte_pairs_offset8")


@pytest.mark.parametrize(
    ("type", "field"),
    [
        (QuantizedType("f32", PerTensor()), "storage"),
        (QuantizedType("i4", PerGroup(0)), "scale"),
        (QuantizedType("i4", PerTensor(), PerGroup(0)), "zero_point"),
        (QuantizedType("i4", PerChannel(-1)), "scale"),
        (QuantizedType("i4", PerTensor(), Absent(), "diagonal"), "layout"),
    ],
    ids=str,
)
def test_a_wrong_type_can_be_made_and_says_its_field(type: QuantizedType, field: str) -> None:
    (problem,) = problems_of(type)
    assert problem.startswith(f"{field}: ")
    assert problems_of(QuantizedType("u4", PerGroup(32), PerGroup(32))) == []
