"""Objects loaded without LLVM do what the same objects do that LLVM's own linker loaded."""

from __future__ import annotations

import ctypes
import struct

import pytest

from tetrad.backends.cpu import elf
from tetrad.backends.cpu.isa import host_target
from tetrad.backends.cpu.llvm import compile_object, extern_addresses, linked, load_object
from tetrad.backends.cpu.native import SYMBOLS
from tetrad.backends.cpu.native.text import native_text
from tetrad.core.errors import CompileError

TEXT = """
@calls = internal global i64 40
@table = internal constant [4 x double] [double 0.5, double 2.5, double 4.5, double 8.5]
@where = internal global ptr @calls
declare double @trunc(double)
define i64 @count() nounwind {
  %place = load ptr, ptr @where
  %before = load i64, ptr %place
  %after = add i64 %before, 1
  store i64 %after, ptr %place
  ret i64 %after
}
define double @whole(i64 %i) nounwind {
  %at = getelementptr double, ptr @table, i64 %i
  %x = load double, ptr %at
  %y = tail call double @trunc(double %x) nobuiltin
  ret double %y
}
define double @twice(i64 %i) nounwind {
  %x = call double @whole(i64 %i)
  %y = fadd double %x, %x
  ret double %y
}
"""
NAMES = ("count", "whole", "twice")


@pytest.fixture(scope="module")
def image() -> bytes:
    return compile_object(TEXT, host_target())


def whole(image: bytes) -> elf.Object:
    found = elf.understood(image)
    assert found is not None
    return found


@pytest.mark.parametrize("load", [load_object, linked])
def test_code_constants_data_and_calls(image: bytes, load) -> None:
    library = load(image, NAMES)
    count = ctypes.CFUNCTYPE(ctypes.c_int64)(library.address["count"])
    twice = ctypes.CFUNCTYPE(ctypes.c_double, ctypes.c_int64)(library.address["twice"])
    assert [count(), count(), count()] == [41, 42, 43]
    assert [twice(i) for i in range(4)] == [0.0, 4.0, 8.0, 16.0]


def test_each_load_has_its_own_data(image: bytes) -> None:
    first, second = (
        ctypes.CFUNCTYPE(ctypes.c_int64)(load_object(image, NAMES).address["count"])
        for _ in range(2)
    )
    assert (first(), first(), second()) == (41, 42, 41)


def test_what_is_there_for_unwinding_is_not_in_the_way() -> None:
    """x86-64 has a type of sections for it, which stay in the file; elsewhere it is data that
    nobody reads."""
    image = compile_object(TEXT.replace(" nounwind", ""), host_target())
    assert b".eh_frame\0" in image
    assert not any(
        section.is_loaded for section in elf.sections_of(image) if section.type == elf.UNWIND
    )
    assert elf.understood(image) is not None
    twice = ctypes.CFUNCTYPE(ctypes.c_double, ctypes.c_int64)(
        load_object(image, NAMES).address["twice"]
    )
    assert [twice(i) for i in range(4)] == [0.0, 4.0, 8.0, 16.0]


def test_the_native_loop_is_understood() -> None:
    assert elf.understood(compile_object(native_text(host_target()), host_target())) is not None
    assert (
        0
        not in load_object(
            compile_object(native_text(host_target()), host_target()), SYMBOLS
        ).address.values()
    )


def test_code_cannot_be_written(image: bytes) -> None:
    address = load_object(image, NAMES).address["count"]
    with open("/proc/self/maps") as maps:
        ranges = [line.split()[:2] for line in maps]
    rights = {
        r
        for span, r in ranges
        if int(span.split("-")[0], 16) <= address < int(span.split("-")[1], 16)
    }
    assert rights == {"r-xp"}


def test_what_is_not_understood_is_left_to_llvm(image: bytes) -> None:
    sections = elf.sections_of(image)
    table = next(s for s in sections if s.type == elf.RELA)
    strange = bytearray(image)
    struct.pack_into("<I", strange, table.offset + 8, 10_000)  # the type of the first relocation
    assert elf.understood(bytes(strange)) is None
    assert elf.understood(b"\xcf\xfa\xed\xfe" + image[4:]) is None
    assert elf.understood(image) is not None


def test_a_function_nobody_knows_is_refused(image: bytes) -> None:
    with pytest.raises(CompileError, match="unknown functions: trunc"):
        elf.load(whole(image), {})


def test_a_symbol_that_is_not_there_has_no_address(image: bytes) -> None:
    with pytest.raises(CompileError, match="no address"):
        load_object(image, ("absent",))
    assert set(elf.load(whole(image), extern_addresses())) >= set(NAMES)
