"""Extras: found, or missed with the way to install them."""

from __future__ import annotations

import sys

import pytest

from tetrad.core.errors import UnsupportedError
from tetrad.core.extras import check_extra, extra


def test_a_package_that_is_there_is_given() -> None:
    assert extra("json.decoder", "reading") is sys.modules["json.decoder"]
    check_extra("json", "reading")


def test_a_missing_one_is_named_with_its_purpose_and_the_way_to_install_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "elsewhere", None)
    with pytest.raises(
        UnsupportedError, match="to be away needs the package elsewhere, which is not installed"
    ):
        check_extra("elsewhere", "to be away")
    with pytest.raises(
        UnsupportedError,
        match=r"to be away needs the package elsewhere(?s:.)*pip install elsewhere",
    ):
        extra("elsewhere.part", "to be away", "elsewhere")
