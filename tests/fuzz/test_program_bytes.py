"""A small share of changed kernels, and defects that must be noticed."""

from __future__ import annotations

import pytest

from tests.fuzz.program_bytes import check
from tetrad.kernel import bytes as serialised
from tetrad.kernel.bytes import ByteReader


def test_changed_programs_are_refused_or_valid() -> None:
    assert [found for seed in range(800) if (found := check(seed))] == []


def test_an_operand_that_is_not_checked_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ByteReader, "use", lambda self: self.values[self.number() - 1])
    assert any(check(seed) for seed in range(300))


def test_a_program_that_is_not_verified_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serialised, "verify", lambda program: None)
    assert any("invalid" in (check(seed) or "") for seed in range(300))


def test_a_second_form_of_a_number_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    def number(self: ByteReader) -> int:
        value, shift, byte = 0, 0, 0x80
        while byte & 0x80:
            byte = self.byte()
            value, shift = value | (byte & 0x7F) << shift, shift + 7
        return value

    monkeypatch.setattr(ByteReader, "number", number)
    assert any(check(seed) for seed in range(3000))
