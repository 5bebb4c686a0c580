"""Bisecting programs of complex numbers and Fourier transforms: right ones agree, wrong ones are
found."""

from __future__ import annotations

import numpy as np
import pytest

import tetrad as td
from tetrad.explain.compare import told_apart
from tetrad.ops.fft import kernel as fft

Z = (np.random.default_rng(0).standard_normal((2, 20, 2)) @ [1, 1j]).astype(np.complex64)
PROGRAMS = {
    "arithmetic": lambda z: td.sqrt(z * z + 1) / (2 - z),
    "parts": lambda z: td.abs(z) + td.real(td.conj(z) * z),
    "sums": lambda z: td.sum(z @ td.permute_dims(z, (1, 0)), axis=0),
    "transforms": lambda z: td.fft.irfft(td.fft.ifft(td.fft.fft(td.exp(z)) * 2), n=38),
    "rfft": lambda z: td.fft.rfft(td.imag(z) * 3, norm="ortho") + 1,
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_every_station_agrees(name: str) -> None:
    report = td.bisect(PROGRAMS[name])(Z)
    assert report.agrees, report


def test_a_forgotten_factor_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fft, "scaled", lambda value, by: value)
    report = td.bisect(lambda z: td.fft.ifft(z))(Z)
    assert report.station == "lower", report


def test_complex_numbers_are_told_apart() -> None:
    got, want = (
        np.complex64([1, 2j, complex(np.nan, 0)]),
        np.complex64([1, 2.5j, complex(np.nan, 0)]),
    )
    assert told_apart(want, want) is None
    assert told_apart(got, want) == "element [1] is 2j, it should be 2.5j; 1 of 3 elements differ"
    assert told_apart(got, want, 0.6) is None
