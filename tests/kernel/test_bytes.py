"""Programs as bytes: what is written is read, has one form, and nothing else is read."""

from __future__ import annotations

import struct
import time

import numpy as np
import pytest
from hypothesis import given

import tetrad as td
from tests.backends.llvm.cases import all_cases
from tests.kernel.programs import programs
from tests.kernel.test_text import EVERYTHING
from tetrad.core.dtypes import DTYPES, REAL_DTYPES, bool_, f32, i32, index
from tetrad.core.errors import FileFormatError, TraceError, VerifyError
from tetrad.core.record import replace
from tetrad.core.sizes import Dim
from tetrad.kernel import nodes as n
from tetrad.kernel import registry, tags
from tetrad.kernel.build import KernelBuilder
from tetrad.kernel.bytes import HEADER, MAX_NAME, VERSION, checksum, from_bytes, to_bytes
from tetrad.kernel.text import parse, to_text
from tetrad.kernel.verify import MAX_NESTING


def assert_round_trip(program: n.Program) -> None:
    data = to_bytes(program)
    again = from_bytes(data)
    assert to_text(again) == to_text(program)
    assert to_bytes(again) == data


def test_every_instruction_survives() -> None:
    assert_round_trip(parse(EVERYTHING))
    assert_round_trip(
        parse(
            'kernel "p"\nworkgroup 1 1 1\nbody:\n  region "a" from "b":\n    %0: f32 = const(nan)\n'
            "    %1: f64 = const(-0.0)\n    %2: u64 = const(18446744073709551615)\n"
            "    %3: i64 = const(-9223372036854775808)\n    %4: bool = const(true)\n"
        )
    )


def test_every_registered_program_survives() -> None:
    for entry in registry.entries():
        assert_round_trip(entry.build())


def test_every_case_of_code_generation_survives() -> None:
    for case in all_cases():
        assert_round_trip(case.program)


@given(programs())
def test_random_programs_survive(program: n.Program) -> None:
    assert_round_trip(program)


def test_programs_of_the_compiler_survive() -> None:
    from tetrad.compiler.pipeline import lower_graph
    from tetrad.core.machine import Machine, RegisterTile
    from tetrad.lower.lower import Lowerer
    from tetrad.schedule.nodes import programs_of

    machine = Machine(512, RegisterTile(8, 3), RegisterTile(4, 3), lowbit_tokens=4)
    seq = td.Dim("seq", max=512)
    graph = td.trace(lambda x, y: td.sum(td.tanh(x) @ y, axis=0))(
        td.Spec((seq, 64)), td.Spec((64, 32))
    )
    found = programs_of(lower_graph(graph, Lowerer(machine)))
    assert found
    for program in found:
        assert_round_trip(program)


def test_equal_programs_have_equal_bytes_and_the_name_counts() -> None:
    one, other = parse(EVERYTHING), parse(EVERYTHING)
    assert one is not other and to_bytes(one) == to_bytes(other)
    assert to_bytes(parse(EVERYTHING.replace("everything", "nothing"))) != to_bytes(one)


def test_what_is_read_computes_the_same() -> None:
    k = KernelBuilder("sum", 4)
    x, y = k.buffer("x", f32), k.buffer("y", f32, "write", Dim("seq", max=9) * 2 + 2)
    k.arg("seq")
    k.store(y, k.lane(), k.load(x, k.lane()) * 0.5)
    (got,) = td.dispatch(
        from_bytes(to_bytes(k.finish())), [np.arange(4, dtype="f4").tobytes()], args={"seq": 1}
    )
    assert np.frombuffer(got, "f4").tolist() == [0, 0.5, 1, 1.5]


# -- permanent tables ------------------------------------------------------------------------------


def test_every_name_has_a_tag_of_its_own() -> None:
    assert set(tags.NODES) == set(n.INSTRUCTIONS)
    assert (
        set(tags.DTYPES)
        == {d.short_name for d in (*REAL_DTYPES, index)}
        <= {d.short_name for d in DTYPES}
    )
    assert set(tags.BINARY) == {*n.BINARY, *n.COMPARISONS}
    assert set(tags.UNARY) == set(n.UNARY) and set(tags.ATOMIC) == set(n.ATOMIC)
    tables = [
        tags.NODES,
        tags.DTYPES,
        tags.ACCESSES,
        *tags.OPERATORS.values(),
        *tags.WORDS.values(),
    ]
    for table in tables:
        values = list(table.values())  # type: ignore[attr-defined]
        assert len(set(values)) == len(values) and max(values) < tags.EXTENSION


def test_published_tags_are_kept() -> None:
    kept = {"u32": 1, "i32": 2, "u64": 3, "bool": 6, "f16": 9, "bf16": 10, "f32": 11, "f64": 12}
    kept |= {"u8": 14, "u16": 15, "i8": 16, "i16": 17, "i64": 18}
    assert {name: tags.DTYPES[name] for name in kept} == kept
    binary = {"add": 1, "shr": 10, "eq": 11, "absdiff": 15, "ge": 17, "min": 20, "max": 21}
    binary |= {"add_sat": 22, "mul_sat": 24, "rotl": 29, "rotr": 30, "mulhi": 33}
    assert {name: tags.BINARY[name] for name in binary} == binary
    unary = {"neg": 1, "not": 2, "popcount": 4, "clz": 5, "ctz": 6, "reverse_bits": 7, "trunc": 15}
    assert {name: tags.UNARY[name] for name in unary} == unary


def small() -> n.Program:
    k = KernelBuilder("add", 4)
    x, y = k.buffer("x", f32), k.buffer("y", f32, "write", 8)
    k.store(y, k.lane(), k.load(x, k.lane()) + 1.5)
    return k.finish()


def test_version_1_is_these_bytes() -> None:
    """A change here is a new version: old files must be told apart."""
    payload = to_bytes(small())[HEADER.size :]
    assert payload.hex(" ") == (
        "03 61 64 64 04 01 01 00 00 02 "
        "01 78 0b 01 00 00 01 79 0b 02 00 01 08 "
        "05 03 21 02 00 05 0b 00 01 01 0b 03 00 00 00 00 00 00 f8 3f 08 0b 01 02 03 06 01 01 04 00 "
        "00"
    )


# -- what is refused -------------------------------------------------------------------------------


def sealed(payload: bytes, version: int = VERSION) -> bytes:
    """Bytes with a header that fits."""
    return HEADER.pack(b"TKRN", version, len(payload), checksum(payload)) + payload


def changed(*pairs: tuple[bytes, bytes]) -> bytes:
    payload = to_bytes(small())[HEADER.size :]
    for old, new in pairs:
        assert payload.count(old) == 1
        payload = payload.replace(old, new)
    return sealed(payload)


HEAD = bytes.fromhex("03 61 64 64 04 01 01 00 00")
REFUSED = [
    (b"", 0, "expected b'TKRN', got b''"),
    (b"TKR", 0, "expected b'TKRN'"),
    (b"TKRN", 4, "the version is missing"),
    (b"TKRN\x02\x00", 4, "version 2 of the form, this is version 1"),
    (b"TKRN\x02\x00" + bytes(100), 4, "version 2"),  # before anything else is looked at
    (b"TKRN\x01\x00", 6, "a header of 26 bytes, got 6 bytes"),
    (sealed(HEAD)[:-1], 6, "expected 9 bytes after the header, got 8"),
    (sealed(HEAD) + b"x", 6, "got 10"),
    (sealed(HEAD)[:-1] + b"\x01", 10, "the checksum does not fit"),
    (changed((HEAD, b"\x84" + HEAD[1:])), 26, "at most"),
    (changed((b"\x03add", b"\x03a\xffd")), 27, "not UTF-8"),
    (changed((HEAD, HEAD[:4] + b"\x84\x00" + HEAD[5:])), 30, "in its shortest form"),
    (changed((HEAD, HEAD[:4] + b"\xff" * 12 + HEAD[5:])), 30, "64 bits"),
    (changed((HEAD, HEAD[:7] + b"\xff\x7f" + HEAD[8:])), 33, "elements"),
    (changed((b"\x01x\x0b", b"\x01x\x80")), 38, "80 hex is the tag of an extension"),
    (changed((b"\x01x\x0b", b"\x01x\x0d")), 38, "expected a type, 0D hex stands for none"),
    (changed((b"\x01x\x0b\x01\x00", b"\x01x\x0b\x01\x02")), 40, "0 or 1 for zeroed scratch"),
    (changed((b"\x01x\x0b\x01\x00\x00", b"\x01x\x0b\x01\x00\x09")), 41, "an element count"),
    (changed((b"\x05\x03\x21", b"\x05\x7e\x21")), 50, "expected an instruction, 7E hex"),
    (changed((b"\x05\x03\x21", b"\x05\x90\x21")), 50, "the tag of an extension"),
    (changed((b"\x21\x02\x00\x05", b"\x21\x03\x00\x05")), 52, "expected which of Id"),
    (changed((b"\x0b\x00\x01\x01", b"\x0b\x05\x01\x01")), 56, "a buffer of the 2 declared"),
    (changed((b"\x0b\x00\x01\x01", b"\x0b\x00\x00\x01")), 57, "a value defined before"),
    (changed((b"\x0b\x00\x01\x01", b"\x0b\x00\x02\x01")), 57, "a value defined before"),
    (changed((b"\x08\x0b\x01\x02", b"\x08\x0b\x0b\x02")), 26, "not a valid program: K011"),
    (sealed(to_bytes(small())[HEADER.size :] + b"\x00"), 80, "the end of the program"),
]


@pytest.mark.parametrize(("data", "offset", "words"), REFUSED, ids=range(len(REFUSED)))
def test_what_was_not_written_is_refused(data: bytes, offset: int, words: str) -> None:
    with pytest.raises(FileFormatError) as error:
        from_bytes(data)
    assert words in str(error.value) and "hint: " in str(error.value)
    assert error.value.offset == offset


def test_text_is_no_bytes() -> None:
    with pytest.raises(FileFormatError, match="expected bytes, got a str"):
        from_bytes("TKRN")  # type: ignore[arg-type]


def test_deep_blocks_do_not_overflow_the_stack() -> None:
    opened = bytes([tags.NODES[n.Region], 0, 0, 1])
    payload = HEAD + b"\x00\x01" + opened * 100_000 + b"\x00"
    with pytest.raises(FileFormatError, match=f"at most {MAX_NESTING} nested blocks"):
        from_bytes(sealed(payload))


def test_a_program_wrong_in_every_line_is_refused_at_once() -> None:
    """The message quotes one line; quoting all would take hours."""
    wrong = bytes([tags.NODES[n.Const], tags.DTYPES["f32"], 2, 2])  # an integer as f32
    count = 60_000
    number = bytes([count & 0x7F | 0x80, count >> 7 & 0x7F | 0x80, count >> 14])
    start = time.perf_counter()
    with pytest.raises(FileFormatError, match="K026"):
        from_bytes(sealed(HEAD + b"\x00" + number + wrong * count + b"\x00"))
    assert time.perf_counter() - start < 20


def test_counts_never_reserve_what_is_not_there() -> None:
    for count in (b"\xff\xff\xff\xff\xff\xff\xff\x7f", b"\xff\xff\x7f"):
        with pytest.raises(FileFormatError, match="at most"):
            from_bytes(sealed(HEAD + b"\x00" + count))


def test_what_nobody_could_read_is_not_written() -> None:
    with pytest.raises(VerifyError, match="K021"):
        to_bytes(
            parse(
                "workgroup 1 1 1\nbuffer x: f32 write\nbody:\n  %0: index = const(0)\n"
                "  %1: f32 = load(x, %0)"
            )
        )
    for name, words in (("x" * (MAX_NAME + 1), "a name of"), ("\ud800", "not Unicode")):
        with pytest.raises(FileFormatError, match=words):
            to_bytes(KernelBuilder(name).finish())
    buffers = (n.Buffer("x", f32, "read", Dim("s", max=4)), n.Buffer("y", f32, "read", Dim("s")))
    with pytest.raises(FileFormatError, match="two Dims are called s"):
        to_bytes(n.Program("p", buffers, (), (1, 1, 1), ()))


def test_the_version_is_looked_at_before_the_rest() -> None:
    data = bytearray(to_bytes(small()))
    struct.pack_into("<H", data, 4, 9)
    data[20] ^= 1
    with pytest.raises(FileFormatError, match="version 9"):
        from_bytes(bytes(data))


def test_literals_have_the_type_they_need() -> None:
    program = n.Program("p", (), (), (1, 1, 1), (n.Const(bool_, True), n.Const(i32, 1)))
    assert [type(c.value) for c in from_bytes(to_bytes(program)).body] == [bool, int]  # type: ignore[attr-defined]


def test_a_guarded_program_reads_back_as_one() -> None:
    made = replace(td.kernel.registry.entry("tetrad::math::add").build(), guarded=True)
    data = to_bytes(made)
    assert from_bytes(data).guarded and to_bytes(from_bytes(data)) == data
    assert to_text(from_bytes(data)) == to_text(made)
    payload = data[HEADER.size :]
    with pytest.raises(FileFormatError, match="0 or 1 for a guarded program"):
        from_bytes(sealed(payload[:-1] + b"\x02"))


def test_what_is_no_program_is_refused() -> None:
    with pytest.raises(TraceError, match="to_bytes: expected a program, got a NoneType"):
        to_bytes(None)  # type: ignore[arg-type]
