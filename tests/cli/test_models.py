"""pull, list, show, rm, tokenize and inspect, on a tiny model."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from tests.cli.conftest import Invoke
from tests.cli.terminal import seen_at_terminal
from tests.hub.server import serving
from tests.models.tiny import tiny_model
from tetrad.formats import gguf
from tetrad.hub.fits import gib


@pytest.fixture
def held(folder: Path, tiny_file: Path) -> Path:
    path = folder / "org/tiny-GGUF/tiny-F32.gguf"
    path.parent.mkdir(parents=True)
    shutil.copy(tiny_file, path)
    return path


def test_pull_fetches_once(invoke: Invoke, folder: Path, tiny_file: Path) -> None:
    with serving() as site:
        site.files["/tiny.gguf"] = tiny_file.read_bytes()
        printed = invoke("pull", f"{site.address}/tiny.gguf").stdout
        assert f"{folder / 'tiny.gguf'}: " in printed and "KiB in" in printed
        assert "is there already" in invoke("pull", f"{site.address}/tiny.gguf").stdout
        assert len(site.whole) == 1


def test_pull_of_something_unknown(invoke: Invoke) -> None:
    assert (
        "Error: there is no model 'no-such-model'" in invoke("pull", "no-such-model", code=1).output
    )


def test_list(invoke: Invoke, held: Path) -> None:
    heads, line = invoke("list").stdout.splitlines()
    assert heads.split() == ["NAME", "SIZE", "QUANT", "PARAMS", "CONTEXT", "HELD", "BY", "RUNS"]
    assert line.split() == [
        "org/tiny-GGUF/tiny-F32",
        *gib(held.stat().st_size).split(),
        "F32",
        "125K",
        "512",
        "tetrad",
        "yes",
    ]
    (found,) = json.loads(invoke("list", "--json").stdout)
    assert found["name"] == "org/tiny-GGUF/tiny-F32" and found["bytes"] == held.stat().st_size


def test_list_shows_a_damaged_file_and_the_others(invoke: Invoke, held: Path, folder: Path) -> None:
    (folder / "broken.gguf").write_bytes(b"GGUF")
    lines = invoke("list").stdout.splitlines()
    assert lines[1].split()[0] == "broken" and "damaged" in lines[1] and len(lines) == 3


def test_list_of_nothing(invoke: Invoke, folder: Path) -> None:
    assert "`tetrad pull` fetches a small one" in invoke("list").stderr


@pytest.mark.parametrize(
    "words",
    [("org/tiny-GGUF",), ("tiny",), ("tiny-F32",), ("TINY:f32",), ("-hf", "org/tiny-GGUF:F32")],
)
def test_show(invoke: Invoke, held: Path, words: tuple[str, ...]) -> None:
    printed = invoke("show", *words).stdout
    for text in (
        "architecture    llama",
        "125K (124,736)",
        "context         512",
        "F32",
        "-ctk f16 -ctv f16",
    ):
        assert text in printed
    facts = json.loads(invoke("show", *words, "-c", "300", "--json").stdout)
    assert facts["memory"] == {
        "context": 300,
        "weights": 4 * 124736,
        "cache": {"f32": 262144, "f16": 131072, "bf16": 131072, "q8_0": 69632},
    }


def test_a_model_is_named_once_and_the_word_wins_over_the_variable(
    invoke: Invoke, tiny_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "which model: x, or y? Name one" in invoke("show", "x", "-m", "y", code=2).output
    assert (
        "which model: -m x, or -hf y/z? Name one"
        in invoke("show", "-m", "x", "-hf", "y/z", code=2).output
    )
    monkeypatch.setenv("TETRAD_MODEL", str(tiny_file))
    assert "llama" in invoke("show").stdout
    assert "there is no model 'other'" in invoke("show", "other", code=1).output
    assert (
        invoke("tokenize", tiny_file, "Hi", "--ids").stdout
        == invoke("tokenize", "-p", "Hi", "--ids").stdout
    )


def test_rm(invoke: Invoke, held: Path, folder: Path) -> None:
    assert (
        "there is no model 'other'" in invoke("rm", "-y", "org/tiny-GGUF", "other", code=1).output
    )
    assert "-y deletes without a question" in invoke("rm", "org/tiny-GGUF", code=2).output
    assert held.exists()  # all names are looked up before anything is deleted
    done = invoke("rm", "-y", "org/tiny-GGUF")
    assert "deleted org/tiny-GGUF/tiny-F32: " in done.stdout and f"{held}: " in done.stderr
    assert not held.exists() and not (folder / "org").exists()


@pytest.mark.parametrize(
    "word", ["t", "tiny", "tiny-F32", "tiny-F32.gguf", "org", "ORG/tiny-GGUF/tiny-F32", "org/tin"]
)
def test_rm_takes_exact_names_and_says_which_are_close(
    invoke: Invoke, held: Path, word: str
) -> None:
    said = invoke("rm", "-y", word, code=1).output
    assert (
        held.exists()
        and "there is no model" in said
        and "did you mean org/tiny-GGUF/tiny-F32?" in said
    )


def test_rm_of_a_repository_with_two_models_wants_one_or_all(invoke: Invoke, held: Path) -> None:
    other = held.with_name("tiny-Q8_0.gguf")
    shutil.copy(held, other)
    said = invoke("rm", "-y", "org/tiny-GGUF", code=1).output
    assert (
        "may mean 2 models: org/tiny-GGUF/tiny-F32, org/tiny-GGUF/tiny-Q8_0" in said
        and "--all" in said
    )
    assert held.exists() and other.exists()
    invoke("rm", "-y", "org/tiny-GGUF:Q8_0")
    assert held.exists() and not other.exists()
    shutil.copy(held, other)
    assert (
        invoke("rm", "-y", "--all", "org/tiny-GGUF", "org/tiny-GGUF/tiny-F32").stdout.count(
            "deleted"
        )
        == 2
    )


def test_rm_asks_at_a_terminal(held: Path) -> None:
    code, seen = seen_at_terminal("rm", "org/tiny-GGUF", typing=[(b"[y/N]", b"\n")])
    assert (
        code == 1
        and b"nothing was deleted" in seen
        and str(held).encode() in seen
        and held.exists()
    )
    code, seen = seen_at_terminal(
        "rm", "org/tiny-GGUF", typing=[(b"delete this model? [y/N]", b"y\n")]
    )
    assert code == 0 and b"deleted org/tiny-GGUF/tiny-F32" in seen and not held.exists()


@pytest.mark.parametrize("words", [
    ("s.gguf",), ("models/typo.gguf",), ("./org/repo",), ("../org",), ("a/b/c",), ("~/org/repo",),
    ("~nobody/x",),
    ("x" * 300 + ".gguf",), ("-m", "tiny-F32"), ("-m", "org/tiny-GGUF"), ("-m", "smollm2"),
])  # fmt: skip
def test_what_is_a_path_is_nothing_else_and_asks_nobody(
    invoke: Invoke, held: Path, words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tetrad.cli.options.pull", None)
    for command in ("show", "run"):
        assert (
            f"{words[-1]}: No such file or directory"
            in invoke(command, *words, input="Hi", code=1).output
        )


def test_a_name_that_may_mean_several_lists_them(invoke: Invoke, held: Path) -> None:
    for name in ("tiny-Q8_0.gguf", "tiny-Q5_0.gguf"):
        shutil.copy(held, held.with_name(name))
    for word in ("tiny", "org/tiny-GGUF"):
        said = invoke("show", word, code=1).output
        assert (
            f"'{word}' may mean 3 models: org/tiny-GGUF/tiny-F32, org/tiny-GGUF/tiny-Q5_0, " in said
        )
    assert "tiny-Q8_0.gguf" in invoke("show", "tiny:Q8_0").stdout
    assert "did you mean org/tiny-GGUF/tiny-" in invoke("show", "tin", code=1).output


@pytest.mark.parametrize("word", ["smollm2", "/no/such.gguf", "./org/repo", "a/b/c"])
def test_hf_means_a_repository(invoke: Invoke, word: str) -> None:
    assert (
        f"-hf {word}: expected org/repo or org/repo:QUANT"
        in invoke("show", "-hf", word, code=1).output
    )


def test_nothing_is_fetched_offline(invoke: Invoke) -> None:
    printed = invoke("show", "org/repo", "--offline", code=1).output
    assert "Error: org/repo is not on this machine, and --offline fetches nothing" in printed


def test_tokenize(invoke: Invoke, tiny_file: Path) -> None:
    lines = invoke("tokenize", tiny_file, "Hi<|im_end|>").stdout.splitlines()
    assert [line.split("->")[1].strip() for line in lines] == ["'H'", "'i'", "'<|im_end|>'"]
    assert all(line[:6].strip().isdigit() and line[6:10] == " -> " for line in lines)
    ids = json.loads(invoke("tokenize", tiny_file, "Hi<|im_end|>", "--ids").stdout)
    assert ids == [int(line[:6]) for line in lines]
    assert (
        len(
            json.loads(
                invoke(
                    "tokenize", "-m", tiny_file, "--no-parse-special", "--ids", "<|im_end|>"
                ).stdout
            )
        )
        > 1
    )


def test_tokenize_reads_pipes_and_files(invoke: Invoke, tiny_file: Path, tmp_path: Path) -> None:
    (tmp_path / "text").write_text("Hi")
    piped = invoke("tokenize", "-m", tiny_file, "--ids", "--show-count", input="Hi").stdout
    assert piped.splitlines()[1] == "Total number of tokens: 2"
    assert (
        invoke("tokenize", tiny_file, "-f", tmp_path / "text", "--ids", "--show-count").stdout
        == piped
    )
    assert (
        invoke("tokenize", "-m", tiny_file, "--stdin", "--ids", "--show-count", input="Hi").stdout
        == piped
    )


def test_inspect(invoke: Invoke, tiny_file: Path) -> None:
    printed = invoke("inspect", tiny_file).stdout
    for text in (
        "llama.block_count",
        "tokenizer.ggml.tokens",
        "300: ['!'",
        "blk.1.ffn_down.weight",
        "64 x 160",
    ):
        assert text in printed
    found = json.loads(invoke("inspect", tiny_file, "--json").stdout)
    assert found["keys"]["llama.block_count"] == {"type": "u32", "value": 2}
    assert found["keys"]["tokenizer.ggml.tokens"]["value"] == {"length": 300}
    assert (
        found["tensors"][0]["name"] == "token_embd.weight"
        and found["tensors"][0]["bytes"] == 300 * 64 * 4
    )


def test_inspect_draws_a_page(invoke: Invoke, tiny_file: Path, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    invoke("inspect", tiny_file, "--html", page)
    text = page.read_text()
    assert text.startswith("<!doctype html>") and "src=" not in text and "href=" not in text
    for part in (
        "one decoding step",
        "blk.1.ffn_down.weight",
        "tokens a second",
        "of the roof",
        "<tr class=kernel",
    ):
        assert part in text


def test_a_page_shows_names_and_obeys_none(invoke: Invoke, tmp_path: Path) -> None:
    metadata, tensors = tiny_model("llama", context=512)
    gguf.write(
        tmp_path / "a<b>\u202e\x1b'\".gguf", metadata | {"general.name": "<script>\x9b"}, tensors
    )
    invoke("inspect", tmp_path / "a<b>\u202e\x1b'\".gguf", "--html", tmp_path / "page.html")
    text = (tmp_path / "page.html").read_text()
    assert "a&lt;b&gt;\\u202e\\x1b&#x27;&quot;.gguf" in text and "&lt;script&gt;\\x9b" in text
    assert text.count("<script>") == 1 and not {"\x1b", "\x9b", "\u202e"} & {*text}


def test_text_of_a_file_cannot_steer_the_terminal(
    invoke: Invoke, tmp_path: Path, tiny_file: Path
) -> None:
    with gguf.open_file(tiny_file) as file:
        metadata = file.metadata | {"general.name": "a\x1b[2Jb", "x\x1bkey": "\x1b]0;title\x07"}
    path = tmp_path / "evil.gguf"
    gguf.write(path, metadata, {})
    for command in ("show", "inspect"):
        assert "\x1b" not in invoke(command, path).stdout
