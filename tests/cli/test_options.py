"""Options: llama.cpp's spellings as people paste them, variables, and what is said about those that do not exist."""

from __future__ import annotations

from typing import Any

import click
import pytest
from click.testing import CliRunner

from tetrad.cli.options import (
    Command,
    load_options,
    load_settings,
    model_options,
    sampling_options,
    sampling_settings,
)

DEFAULTS = {
    "temperature": 0.8, "top_k": 40, "top_p": 0.95, "min_p": 0.05, "repeat_penalty": 1.0, "repeat_last_n": 64,
    "presence_penalty": 0.0, "frequency_penalty": 0.0, "ignore_eos": False, "shift": False, "speculate": 0,
    "grammar": None, "json_schema": None, "max_tokens": -1, "seed": None, "stop": (), "logit_bias": None,
}  # fmt: skip


def parse(*words: str, code: int = 0, **environ: str) -> tuple[dict[str, Any], str]:
    found: dict[str, Any] = {}

    @click.command("probe", cls=Command)
    @model_options
    @load_options
    @sampling_options
    def probe(**given: Any) -> None:
        found["load"] = load_settings(given)
        found["sampling"] = sampling_settings(given)
        found["model"] = given

    result = CliRunner().invoke(probe, list(words), env=environ)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == code, result.output
    return found, result.output


@pytest.fixture(autouse=True)
def own_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TETRAD_THREADS", "1")


def test_defaults_are_those_of_llama_cpp() -> None:
    found, _ = parse()
    assert found["sampling"] == DEFAULTS and found["load"] == {"context": 0, "kv": "f16"}


def test_a_line_as_it_is_pasted() -> None:
    line = "-m x.gguf -c 4096 -t 2 -n -1 --temp 0 --top-k 1 --top-p 0.5 --min-p 0 -s 42 -ctk q8_0 -ctv q8_0"
    found, _ = parse(*line.split(), "-r", "User:", "-r", "Bot:")
    assert found["model"]["file"] == "x.gguf" and found["load"] == {"context": 4096, "kv": "q8_0"}
    chosen = {"temperature": 0.0, "top_k": 1, "top_p": 0.5, "min_p": 0.0, "seed": 42, "stop": ("User:", "Bot:")}
    assert found["sampling"] == DEFAULTS | chosen


def test_long_spellings_and_values_behind_an_equals_sign() -> None:
    found, _ = parse(
        "--hf-repo=org/repo:Q8_0", "--ctx-size=7", "--predict", "3", "--seed=-1", "--logit-bias", "5-inf", "-l", "6+1"
    )
    assert found["model"]["repo"] == "org/repo:Q8_0" and found["load"]["context"] == 7
    assert found["sampling"]["max_tokens"] == 3 and found["sampling"]["logit_bias"] == {5: float("-inf"), 6: 1.0}


def test_variables_count_and_options_win() -> None:
    environ = {"TETRAD_TEMP": "0.1", "TETRAD_TOP_K": "7", "TETRAD_CTX_SIZE": "99", "TETRAD_IGNORE_EOS": "1"}
    found, _ = parse("--top-k", "9", **environ)
    assert found["load"]["context"] == 99
    assert [found["sampling"][name] for name in ("temperature", "top_k", "ignore_eos")] == [0.1, 9, True]


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("--tmp", "there is no option --tmp; close: --temp"),
        ("-temp", "there is no option -temp; close: --temp"),
        ("-threads", "there is no option -threads; close: --threads"),
        ("--top_k", "there is no option --top_k; close: --top-k"),
        ("-ngl", "there is no option -ngl"),
        ("-q", "there is no option -q"),
    ],
)
def test_an_unknown_option_lists_close_ones(word: str, said: str) -> None:
    _, printed = parse(word, "1", code=2)
    assert said in printed and "all: `probe --help`" in printed


def test_a_value_may_look_like_an_option() -> None:
    found, _ = parse("--grammar", "-temp", "-r", "--stop")
    assert found["sampling"]["grammar"] == "-temp" and found["sampling"]["stop"] == ("--stop",)


def test_options_without_effect_say_so() -> None:
    _, said = parse("-b", "2048", "-ub", "512", "-tb", "8")
    assert all(text in said for text in ("-b 2048 has no effect", "-ub 512 has no effect", "-tb 8 has no effect"))


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("-ctk", "q8_0"), "-ctk q8_0 and -ctv f16 differ"),
        (("-j", "{}", "--grammar", "root ::= x"), "give one of --grammar"),
        (("-j", "{"), "the JSON schema is not JSON"),
        (("-l", "5"), "expected a token id and a number with its sign"),
        (("--temp", "warm"), "'warm' is not a valid float"),
        (("-n", "-2"), "-2"),
    ],
)
def test_values_that_make_no_sense(words: tuple[str, ...], said: str) -> None:
    assert said in parse(*words, code=2)[1]


def test_schemas_and_grammars_from_files(tmp_path: Any) -> None:
    (tmp_path / "s.json").write_text('{"type": "string"}')
    (tmp_path / "g.gbnf").write_text('root ::= "a"')
    assert parse("-jf", str(tmp_path / "s.json"))[0]["sampling"]["json_schema"] == {"type": "string"}
    assert parse("--grammar-file", str(tmp_path / "g.gbnf"))[0]["sampling"]["grammar"] == 'root ::= "a"'
    assert parse("--format", "json")[0]["sampling"]["json_schema"] == {"type": "object"}
