"""Options: llama.cpp's spellings as people paste them, variables, and what is said about those that
do not exist."""

from __future__ import annotations

import os
from typing import Any

import click
import pytest
from click.testing import CliRunner

from tetrad.cli.options import (
    Command,
    chain,
    escaping,
    load_options,
    load_settings,
    model_options,
    sampling_options,
    sampling_settings,
)
from tetrad.cli.run import run
from tetrad.models.decoding.settings import RULES, Count, Number, Positive

DEFAULTS = {
    "temperature": 0.8, "top_k": 40, "top_p": 0.95, "min_p": 0.05, "repeat_penalty": 1.0,
    "repeat_last_n": 64,
    "presence_penalty": 0.0, "frequency_penalty": 0.0, "ignore_eos": False, "shift": False,
    "speculate": 0, "draft_min": 0, "draft_p_min": 0.75,
    "grammar": None, "json_schema": None, "max_tokens": -1, "seed": None, "stop": (),
    "logit_bias": None, "keep": 0,
    "top_n_sigma": -1.0, "typical_p": 1.0, "xtc_probability": 0.0, "xtc_threshold": 0.1,
    "dynatemp_range": 0.0, "dynatemp_exponent": 1.0, "dry_multiplier": 0.0, "dry_base": 1.75,
    "dry_allowed_length": 2,
    "dry_penalty_last_n": -1, "mirostat": 0, "mirostat_tau": 5.0, "mirostat_eta": 0.1,
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
    line = (
        "-m x.gguf -c 4096 -t 2 -n -1 --temp 0 --top-k 1 --top-p 0.5 --min-p 0 -s 42 -ctk q8_0 "
        "-ctv q8_0"
    )
    found, _ = parse(*line.split(), "-r", "User:", "-r", "Bot:")
    assert found["model"]["file"] == "x.gguf" and found["load"] == {"context": 4096, "kv": "q8_0"}
    chosen = {
        "temperature": 0.0,
        "top_k": 1,
        "top_p": 0.5,
        "min_p": 0.0,
        "seed": 42,
        "stop": ("User:", "Bot:"),
    }
    assert found["sampling"] == DEFAULTS | chosen


def test_long_spellings_and_values_behind_an_equals_sign() -> None:
    found, _ = parse(
        "--hf-repo=org/repo:Q8_0",
        "--ctx-size=7",
        "--predict",
        "3",
        "--seed=-1",
        "--logit-bias",
        "5-inf",
        "-l",
        "6+1",
    )
    assert found["model"]["repo"] == "org/repo:Q8_0" and found["load"]["context"] == 7
    assert found["sampling"]["max_tokens"] == 3 and found["sampling"]["logit_bias"] == {
        5: float("-inf"),
        6: 1.0,
    }


def test_variables_count_and_options_win() -> None:
    environ = {
        "TETRAD_TEMP": "0.1",
        "TETRAD_TOP_K": "7",
        "TETRAD_CTX_SIZE": "99",
        "TETRAD_IGNORE_EOS": "1",
    }
    found, _ = parse("--top-k", "9", **environ)
    assert found["load"]["context"] == 99
    assert [found["sampling"][name] for name in ("temperature", "top_k", "ignore_eos")] == [
        0.1,
        9,
        True,
    ]


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("--tmp", "there is no option --tmp; close: --temp"),
        ("-temp", "there is no option -temp; close: --temp"),
        ("-threads", "there is no option -threads; close: --threads"),
        ("--top_k", "there is no option --top_k; close: --top-k"),
        ("-tmp3", "there is no option -tmp3; close: --temp"),
        ("-n3x", "there is no option -n3x"),
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
    assert all(
        text in said
        for text in ("-b 2048 has no effect", "-ub 512 has no effect", "-tb 8 has no effect")
    )


def test_speculation_by_the_names_of_llama_cpp() -> None:
    lines = {
        "--draft-max 16": 16,
        "--spec-type ngram-simple": 8,
        "--spec-type ngram-mod --draft 4": 4,
    }
    for line, count in lines.items():
        assert parse(*line.split())[0]["sampling"]["speculate"] == count
    assert parse("-n", "-2")[0]["sampling"]["max_tokens"] == -1


def test_a_value_that_is_a_number_may_be_joined() -> None:
    found, _ = parse("-n3", "-t2", "-c4096", "-s-1", "-tb2", "-l", "5+1")
    assert found["sampling"]["max_tokens"] == 3 and found["load"]["context"] == 4096
    assert found["sampling"]["seed"] is None and os.environ["TETRAD_THREADS"] == "2"
    assert parse("-n", "-1")[0]["sampling"]["max_tokens"] == -1


LINES = [
    ("-ngl 99", "-ngl has no effect: everything runs on the CPU"),
    ("--n-gpu-layers all", "-ngl has no effect"),
    ("--gpu-layers 0", "-ngl has no effect"),
    ("-fa", "-fa has no effect: attention is always computed in tiles"),
    ("-fa on -n 3", "-fa has no effect"),
    ("-fa -n 3", "-fa has no effect"),
    ("--flash-attn auto", "-fa has no effect"),
    ("--flash-attn=off", "-fa has no effect"),
    ("--mmap", "--mmap has no effect"),
    ("--no-mmap", "--no-mmap has no effect"),
    ("--mlock", "--mlock has no effect"),
    ("-np 4", "-np has no effect"),
    ("--parallel 4", "-np has no effect"),
    ("-cb", "-cb has no effect"),
    ("--cont-batching", "-cb has no effect"),
    ("-nocb", "-nocb has no effect"),
    ("--color", "-co has no effect"),
    ("--color auto --temp 0", "-co has no effect"),
    ("--jinja", "--jinja has no effect"),
    ("--no-perf", "--no-perf has no effect"),
    ("--simple-io", "--simple-io has no effect"),
    ("--log-disable", "--log-disable has no effect"),
    ("--log-file x.log", "--log-file has no effect: there is no log"),
    ("-lv 3", "-lv has no effect"),
    ("-dev none", "-dev has no effect: everything runs on the CPU"),
    ("-ot blk=CPU", "-ot has no effect"),
    ("-nkvo", "-nkvo has no effect"),
    ("--no-kv-offload", "-nkvo has no effect"),
    ("-nr", "--no-repack has no effect: weights are always laid out for the kernels"),
    ("--numa distribute", "--numa has no effect: -t and the affinity of the process decide"),
    ("-C ff", "-C has no effect"),
    ("-ndio", "-ndio has no effect: files are always mapped"),
    ("-if", "-if has no effect: without a prompt it is a chat"),
    ("--prompt-cache x.bin", "--prompt-cache has no effect: what a prompt has in common"),
    ("-fit off", "-fit has no effect"),
    ("--reasoning-format none", "--reasoning-format has no effect"),
]


@pytest.mark.parametrize(("line", "said"), LINES, ids=[line for line, _ in LINES])
def test_what_has_no_effect_here_is_accepted_with_a_note(line: str, said: str) -> None:
    _, printed = parse(*line.split())
    assert printed.count("note: ") == 1 and f"note: {said}" in printed


def test_a_word_after_a_switch_is_not_its_value() -> None:
    @click.command(cls=Command)
    @click.argument("words", nargs=-1)
    @load_options
    def probe(words: tuple[str, ...], **given: Any) -> None:
        print(words)

    for line, words in (
        ("-fa smollm2", "('smollm2',)"),
        ("-fa off smollm2", "('smollm2',)"),
        ("-- -fa", "('-fa',)"),
    ):
        assert words in CliRunner().invoke(probe, line.split()).stdout


def test_words_of_the_command_line_are_unescaped_where_asked() -> None:
    given = {"escape": True, "system": r"a\tb", "system_file": None, "stop": (r"\n\n", "x")}
    assert escaping(given)(r"\x41\z") == "A\\z" and given == {
        "system": "a\tb",
        "stop": ("\n\n", "x"),
    }
    given = {"escape": False, "system": None, "system_file": None, "stop": (r"\n",)}
    assert escaping(given)(r"\n") == r"\n" and given == {"system": None, "stop": (r"\n",)}


# -- the chain of samplers -------------------------------------------------------------------------

OFF = {
    "repeat_penalty": 1.0, "presence_penalty": 0.0, "frequency_penalty": 0.0, "top_n_sigma": 0.0,
    "top_k": 0,
    "typical_p": 1.0, "top_p": 1.0, "min_p": 0.0, "xtc_probability": 0.0, "temperature": 1.0,
    "dynatemp_range": 0.0,
    "dry_multiplier": 0.0,
}  # fmt: skip


def without(*names: str) -> dict[str, Any]:
    return {name: value for name, value in OFF.items() if name not in names}


@pytest.mark.parametrize(
    ("text", "settings"),
    [
        (
            "penalties;dry;top_n_sigma;top_k;typ_p;top_p;min_p;xtc;temperature",
            {"temperature_first": False},
        ),
        (
            "top_k;temperature",
            {"temperature_first": False, **without("top_k", "temperature", "dynatemp_range")},
        ),
        (
            "temperature;top_k",
            {"temperature_first": True, **without("top_k", "temperature", "dynatemp_range")},
        ),
        (
            "temp; top-p; ",
            {"temperature_first": True, **without("top_p", "temperature", "dynatemp_range")},
        ),
        ("typical;nucleus", {"temperature_first": False, **without("typical_p", "top_p")}),
        ("temperature", {"temperature_first": False, **without("temperature", "dynatemp_range")}),
        ("dry", {"temperature_first": False, **without("dry_multiplier")}),
        (
            "dry;temp",
            {
                "temperature_first": False,
                **without("dry_multiplier", "temperature", "dynatemp_range"),
            },
        ),
    ],
)
def test_samplers_that_are_not_named_are_off(text: str, settings: dict[str, Any]) -> None:
    assert chain(text) == settings
    found, _ = parse("--samplers", text, "--top-k", "7")
    assert found["sampling"] == DEFAULTS | ({"top_k": 7} | settings)


@pytest.mark.parametrize(
    "text", ["top_p;top_k", "top_k;temperature;top_p", "top_k;penalties", "top_k;top_k"]
)
def test_other_orders_are_refused_with_the_order_there_is(text: str) -> None:
    printed = parse("--samplers", text, code=2)[1].replace("\n", " ")
    assert (
        "the order here is penalties;dry;top_n_sigma;top_k;typ_p;top_p;min_p;xtc;temperature"
        in printed
    )


def test_a_sampler_that_does_not_exist() -> None:
    assert (
        "there is no sampler mirostat; known: penalties"
        in parse("--samplers", "mirostat", code=2)[1]
    )


def test_samplers_in_letters() -> None:
    assert parse("--sampler-seq", "kt")[0] == parse("--samplers", "top_k;temperature")[0]
    assert parse("--sampling-seq", "edskypmxt")[0]["sampling"] == DEFAULTS | {
        "temperature_first": False
    }
    assert (
        "there is no 'z'; known: e (penalties), d (dry)" in parse("--sampler-seq", "kz", code=2)[1]
    )


def test_dry_mirostat_and_the_dynamic_temperature() -> None:
    line = "--dry-multiplier 0.8 --dry-base 2 --dry-allowed-length 3 --dry-penalty-last-n 64"
    more = "--mirostat 2 --mirostat-lr 0.2 --mirostat-ent 4 --dynatemp-range 0.5 --dynatemp-exp 2"
    found = parse(*line.split(), *more.split())[0]["sampling"]
    dry = {
        "dry_multiplier": 0.8,
        "dry_base": 2.0,
        "dry_allowed_length": 3,
        "dry_penalty_last_n": 64,
    }
    rest = {
        "mirostat": 2,
        "mirostat_eta": 0.2,
        "mirostat_tau": 4.0,
        "dynatemp_range": 0.5,
        "dynatemp_exponent": 2.0,
    }
    assert found == DEFAULTS | dry | rest
    word = "--dry-sequence-breaker"
    assert parse(word, r"\n", word, "x")[0]["sampling"]["dry_sequence_breakers"] == ("\n", "x")
    assert parse(word, "none")[0]["sampling"]["dry_sequence_breakers"] == ()


def test_the_filters_of_taste() -> None:
    line = "--typical 0.9 --top-nsigma 1 --xtc-probability 0.5 --xtc-threshold 0.2 --keep -1"
    chosen = {
        "typical_p": 0.9,
        "top_n_sigma": 1.0,
        "xtc_probability": 0.5,
        "xtc_threshold": 0.2,
        "keep": -1,
    }
    assert parse(*line.split())[0]["sampling"] == DEFAULTS | chosen


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("-ctk", "q8_0"), "-ctk q8_0 and -ctv f16 differ"),
        (("-j", "{}", "--grammar", "root ::= x"), "give one of --grammar"),
        (("-j", "{"), "the JSON schema is not JSON"),
        (("-l", "5"), "expected a token id and a number with its sign"),
        (("--temp", "warm"), "'warm' is not a valid float"),
        (("-n", "-3"), "-3"),
        (("--spec-type", "draft-eagle3"), "-md FILE names a draft model"),
    ],
)
def test_values_that_make_no_sense(words: tuple[str, ...], said: str) -> None:
    assert said in parse(*words, code=2)[1]


def test_schemas_and_grammars_from_files(tmp_path: Any) -> None:
    (tmp_path / "s.json").write_text('{"type": "string"}')
    (tmp_path / "g.gbnf").write_text('root ::= "a"')
    assert parse("-jf", str(tmp_path / "s.json"))[0]["sampling"]["json_schema"] == {
        "type": "string"
    }
    assert (
        parse("--grammar-file", str(tmp_path / "g.gbnf"))[0]["sampling"]["grammar"]
        == 'root ::= "a"'
    )
    assert parse("--format", "json")[0]["sampling"]["json_schema"] == {"type": "object"}


def test_options_have_the_defaults_and_ranges_of_the_settings() -> None:
    """One list says them: what the command shows is what `generate` does."""
    options = {p.name: p for p in run.params}
    shared = {
        n: rule
        for n, rule in RULES.items()
        if n in options and isinstance(rule, Count | Number | Positive)
    }
    assert len(shared) >= 20
    differs = {name for name, rule in shared.items() if options[name].default != rule.default}
    assert differs == {"top_n_sigma", "seed"}  # as llama.cpp has them; both stand for the same
    for name, rule in shared.items():
        kind = options[name].type
        if isinstance(rule, Count) and name != "seed":
            assert isinstance(kind, click.IntRange) and kind.min == rule.least
