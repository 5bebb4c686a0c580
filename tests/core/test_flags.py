"""core.flags: the one table of environment variables, checked before use."""

from __future__ import annotations

import pytest

from tetrad.core.errors import FlagError
from tetrad.core.flags import FLAGS, check_environment, code_key, flag, flag_words

VALID = [
    *[("TETRAD_SHOW", v) for v in ("", "graph", "graph,passes,kernel,llvm,asm,schedule", "passes:fuse,llvm")],
    *[("TETRAD_CHECK", v) for v in ("", "1", "bounds", "1,bounds")],
    *[("TETRAD_THREADS", v) for v in ("", "1", "1024")],
    *[("TETRAD_TARGET", v) for v in ("host", "x86-64-v3-vnni")],
    *[("TETRAD_CACHE_DIR", v) for v in ("off", "some/where")],
]
INVALID = [
    *[("TETRAD_SHOW", v) for v in ("grpah", "graph passes", "1", "kernel:x", "passes:")],
    *[("TETRAD_CHECK", v) for v in ("2", "all")],
    *[("TETRAD_INTERPRET", v) for v in ("2", "yes")],
    *[("TETRAD_TIME", v) for v in ("2", "on")],
    *[("TETRAD_THREADS", v) for v in ("0", "1025", "-1", "two", "1.5", "٣")],
    *[("TETRAD_TARGET", v) for v in ("", "x86 64", "../host")],
]


@pytest.mark.parametrize("name", FLAGS)
def test_the_default_is_valid_and_documented(name: str) -> None:
    spec = FLAGS[name]
    assert flag(name, {}) == spec.default
    assert spec.help and spec.values


@pytest.mark.parametrize(("name", "value"), VALID)
def test_valid_values_come_through(name: str, value: str) -> None:
    assert flag(name, {name: value}) == value
    check_environment({name: value})


@pytest.mark.parametrize("name", ["TETRAD_CHECK", "TETRAD_INTERPRET", "TETRAD_TIME"])
def test_a_switch_that_is_0_is_as_if_it_were_not_set(name: str) -> None:
    assert flag(name, {name: "0"}) == flag(name, {}) == ""


@pytest.mark.parametrize(("name", "value"), INVALID)
def test_bad_values_are_refused_with_the_allowed_ones(name: str, value: str) -> None:
    with pytest.raises(FlagError, match=rf"^{name}=.* is not valid\n  hint: allowed: "):
        flag(name, {name: value})
    with pytest.raises(FlagError):
        check_environment({name: value})


def test_an_unknown_flag_is_refused_with_the_known_ones() -> None:
    with pytest.raises(FlagError, match=r"unknown flag TETRAD_MEOW\n  hint: flags: TETRAD_SHOW, "):
        check_environment({"TETRAD_MEOW": "graph"})


@pytest.mark.parametrize(
    ("name", "meant"),
    [("SHOWW", "SHOW"), ("CACHE", "CACHE_DIR"), ("THREAD", "THREADS"), ("TOPK", "TOP_K"), ("ARCH_TARGET", "TARGET")],
)
def test_an_unknown_flag_is_told_the_nearest_known_one(name: str, meant: str) -> None:
    with pytest.raises(FlagError, match=rf"unknown flag TETRAD_{name}\n  hint: did you mean TETRAD_{meant}\? flags: "):
        check_environment({f"TETRAD_{name}": ""})


def test_other_programs_variables_are_none_of_our_business() -> None:
    check_environment({"PATH": "", "TETRADIC": "1", "tetrad_show": "?"})


def test_words_keep_their_detail(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TETRAD_SHOW", "passes:fuse,llvm")
    assert flag_words("TETRAD_SHOW") == {"passes": "fuse", "llvm": ""}


def test_the_cache_key_holds_exactly_the_flags_that_change_code(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TETRAD_TARGET", "x86-64-v3")
    monkeypatch.setenv("TETRAD_CHECK", "bounds")
    monkeypatch.setenv("TETRAD_SHOW", "graph")
    assert code_key() == "TETRAD_CHECK=bounds;TETRAD_TARGET=x86-64-v3"
