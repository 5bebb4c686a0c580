"""Options in place of what a file says: rotary positions, keys, chat templates, and options that
change nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

from tests.cli.conftest import Invoke
from tetrad.cli.options import Command
from tetrad.cli.overrides import override_options, overriding
from tetrad.text.templates import named_template


def parse(*words: str, code: int = 0) -> tuple[dict[str, Any], dict[str, Any], str]:
    found: list[dict[str, Any]] = [{}, {}]

    @click.command("probe", cls=Command)
    @override_options
    def probe(**given: Any) -> None:
        found[:] = overriding(given)
        assert not given

    result = CliRunner().invoke(probe, words)
    assert result.exit_code == code, result.output
    return found[0], found[1], result.output


@pytest.mark.parametrize(
    ("line", "keys"),
    [
        ("", {}),
        ("--rope-scaling yarn --rope-scale 4",
        {"rope.scaling.type": "yarn", "rope.scaling.factor": 4.0}),
        ("--rope-freq-scale 0.25", {"rope.scaling.factor": 4.0}),
        ("--rope-freq-base 1e6 --yarn-orig-ctx 2048",
         {"rope.freq_base": 1e6, "rope.scaling.original_context_length": 2048}),
        ("--rope-freq-base 0 --rope-freq-scale 0 --yarn-ext-factor -1 --yarn-attn-factor -1 "
"--yarn-orig-ctx 0", {}),
        ("--yarn-ext-factor 0 --yarn-beta-fast 16", {"rope.scaling.yarn_ext_factor": 0.0,
                                                    "rope.scaling.yarn_beta_fast": 16.0}),
        ("--override-kv a.b=int:7,c=bool:true --override-kv d=str:x:y",
        {"a.b": 7, "c": True, "d": "x:y"}),
    ],
)  # fmt: skip
def test_keys_in_place_of_those_of_the_file(line: str, keys: dict[str, Any]) -> None:
    assert parse(*line.split())[0] == keys


def test_templates(tmp_path: Path) -> None:
    key, file = "tokenizer.chat_template", tmp_path / "t.jinja"
    file.write_text("{{ messages }}")
    assert parse("--chat-template", "gemma")[0] == {key: named_template("gemma")}
    assert parse("--chat-template", "{% if x %}")[0] == {key: "{% if x %}"}
    assert parse("--chat-template-file", str(file))[0] == {key: "{{ messages }}"}


@pytest.mark.parametrize(
    ("line", "variables"),
    [
        ("--reasoning off", {"enable_thinking": False}),
        ("-rea", {"enable_thinking": True}),
        ("--reasoning auto", {}),
        ("--reasoning-budget 0", {"enable_thinking": False}),
        (
            '--reasoning off --chat-template-kwargs {"enable_thinking":1,"x":[2]}',
            {"enable_thinking": 1, "x": [2]},
        ),
    ],
)
def test_variables_of_the_template(line: str, variables: dict[str, Any]) -> None:
    assert parse(*line.split())[1] == variables


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            ("--rope-scale", "2", "--rope-freq-scale", "0.5"),
            "give one of --rope-scale and --rope-freq-scale",
        ),
        (("--override-kv", "a=7"), "expected KEY=TYPE:VALUE, TYPE one of int, float, str, bool"),
        (("--override-kv", "a=bool:maybe"), "expected KEY=TYPE:VALUE"),
        (("--chat-template-kwargs", "{"), "is not JSON"),
        (("--chat-template-kwargs", "[1]"), "expected an object"),
        (("--rope-scaling", "magic"), "'magic' is not one of 'none', 'linear', 'yarn'"),
    ],
)
def test_values_that_make_no_sense(words: tuple[str, ...], said: str) -> None:
    assert said in parse(*words, code=2)[2]


# -- in the commands -------------------------------------------------------------------------------


def test_the_template_of_the_command_line_is_used(invoke: Invoke, tiny_file: Path) -> None:
    common = ("run", "-m", tiny_file, "-p", "Hi", "-n", "1", "--display-prompt", "--temp", "0")
    assert invoke(*common, "--chat-template", "vicuna").stdout.startswith("USER: Hi\nASSISTANT:")
    shown = invoke(*common, "--chat-template", "{{ messages[0].content }}!{{ mood }}",
    "--chat-template-kwargs",
                   '{"mood": "glad"}').stdout  # fmt: skip
    assert shown.startswith("Hi!glad")
    wrong = invoke(
        *common, "--chat-template", "chatml", "--chat-template-kwargs", '{"messages": 3}', code=1
    )
    assert "'messages' is not a variable that can be set" in wrong.output


def test_keys_of_the_command_line_reach_the_model(invoke: Invoke, tiny_file: Path) -> None:
    common = ("run", "-m", tiny_file, "-p", "a b c d e f g", "-no-cnv", "-n", "12", "--temp", "0")
    plain = invoke(*common).stdout
    assert invoke(*common, "--rope-scaling", "linear", "--rope-scale", "8").stdout != plain
    assert (
        invoke(*common, "--override-kv", "llama.attention.layer_norm_rms_epsilon=float:1e-5").stdout
        == plain
    )
    said = invoke(*common, "--override-kv", "general.architecture=str:qwen2", code=1).output
    assert "expected keys other than general.architecture" in said


def test_a_system_prompt_from_a_file(invoke: Invoke, tiny_file: Path, tmp_path: Path) -> None:
    (tmp_path / "system.txt").write_text("Be kind.")
    common = (
        "run",
        "-m",
        tiny_file,
        "-p",
        "Hi",
        "-n",
        "1",
        "--display-prompt",
        "--chat-template",
        "vicuna",
    )
    assert invoke(*common, "-sysf", tmp_path / "system.txt").stdout.startswith(
        "Be kind.\n\nUSER: Hi"
    )
    both = invoke(*common, "-sysf", tmp_path / "system.txt", "-sys", "x", code=2)
    assert "give one of --system-prompt" in both.output


def test_other_spellings_of_commands(invoke: Invoke) -> None:
    assert invoke("help", "run").stdout.startswith("Usage: tetrad run")
    assert invoke("help").stdout == invoke("--help").stdout == invoke("help", "all").stdout
    assert invoke("version").stdout == invoke("--version").stdout
    assert "no model" in invoke("ls").output and invoke("ls").output == invoke("list").output
