"""core.flags: the one table of environment variables, checked before use."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tetrad.core import flags
from tetrad.core.errors import FlagError
from tetrad.core.flags import FLAGS, OPTIONS, SERVICE, check_environment, code_key, flag, flag_words

VALID = [
    *[
        ("TETRAD_SHOW", v)
        for v in ("", "graph", "graph,passes,kernel,llvm,asm,schedule", "passes:fuse,llvm")
    ],
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


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        *[
            ("SHOWW", "SHOW"),
            ("CACHE", "CACHE_DIR"),
            ("THREAD", "THREADS"),
            ("TOPK", "TOP_K"),
            ("SHWO", "SHOW"),
        ],
        *[
            ("SYSTEM_PROMT", "SYSTEM_PROMPT"),
            ("MODE", "MODEL"),
            ("CACHEDIR", "CACHE_DIR"),
            ("TARGTE", "TARGET"),
        ],
    ],
)
def test_a_misspelt_flag_is_refused_and_told_the_one_that_was_meant(name: str, meant: str) -> None:
    with pytest.raises(
        FlagError,
        match=rf"unknown flag TETRAD_{name}\n  hint: did you mean TETRAD_{meant}\? flags: ",
    ):
        check_environment({f"TETRAD_{name}": ""})


@pytest.fixture
def untold(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flags, "WARNINGS", flags.Warnings())


# As the documentation of Kubernetes has them ("Discovering services"), for services tetrad,
# tetrad-api, tetrad-model.
KUBERNETES = [
    *[
        "SERVICE_HOST",
        "SERVICE_PORT",
        "SERVICE_PORT_HTTP",
        "PORT",
        "PORT_80_TCP",
        "PORT_80_TCP_PROTO",
    ],
    *["PORT_80_TCP_PORT", "PORT_80_TCP_ADDR", "PORT_53_UDP_ADDR", "API_PORT", "API_SERVICE_HOST"],
    *[
        "MODEL_PORT",
        "MODEL_SERVICE_PORT",
        "MODELS_PORT_8080_TCP",
        "SHOW_PORT",
        "CACHE_PORT",
        "CACHE_SERVICE_HOST",
    ],
]


@pytest.mark.parametrize(
    "name", [*KUBERNETES, "MEOW", "VERSION", "HOME", "ENV", "ID", "LOG_LEVEL", "APP_SECRET", "URL"]
)
def test_a_variable_that_is_none_of_ours_is_told_once_and_stops_nothing(
    name: str, untold: None, capsys: pytest.CaptureFixture[str]
) -> None:
    for _ in range(3):
        check_environment({f"TETRAD_{name}": "tcp://10.0.0.11:80"})
    told = capsys.readouterr().err
    assert (
        told
        == f"tetrad: unknown variable TETRAD_{name} has no effect; `tetrad doctor` lists those "
        "that have\n"
    )


def test_a_closed_stderr_is_no_reason_to_stop(
    untold: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open(os.devnull, "w") as closed:
        monkeypatch.setattr(sys, "stderr", closed)
    check_environment({"TETRAD_SERVICE_HOST": ""})
    monkeypatch.setattr(sys, "stderr", None)
    check_environment({"TETRAD_SERVICE_PORT": ""})


@pytest.mark.parametrize("name", [*FLAGS, *sorted(OPTIONS)])
def test_no_known_name_looks_like_a_service(name: str) -> None:
    assert not SERVICE.fullmatch(name)


@pytest.mark.parametrize("text", ["import tetrad; tetrad.zeros", "import tetrad.models.lm"])
def test_the_package_is_imported_beside_a_service_of_its_name(text: str) -> None:
    given = {f"TETRAD_{name}": "tcp://10.0.0.11:80" for name in KUBERNETES}
    done = subprocess.run(
        [sys.executable, "-c", text], env=os.environ | given, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("\n") == len(KUBERNETES)


def test_other_programs_variables_are_none_of_our_business() -> None:
    check_environment({"PATH": "", "TETRADIC": "1", "tetrad_show": "?"})


def test_words_keep_their_detail(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TETRAD_SHOW", "passes:fuse,llvm")
    assert flag_words("TETRAD_SHOW") == {"passes": "fuse", "llvm": ""}


def test_the_cache_key_holds_exactly_the_flags_that_change_code(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TETRAD_TARGET", "x86-64-v3")
    monkeypatch.setenv("TETRAD_CHECK", "bounds")
    monkeypatch.setenv("TETRAD_SHOW", "graph")
    monkeypatch.setenv("TETRAD_UNFUSED", "swiglu")
    want = "TETRAD_CHECK=bounds;TETRAD_TARGET=x86-64-v3;TETRAD_UNFUSED=swiglu"
    assert code_key() == want


def test_the_name_of_a_variable_does_not_steer_the_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TETRAD_A\x1b[2JB", "1")
    check_environment()
    assert "TETRAD_A\\x1b[2JB" in capsys.readouterr().err
