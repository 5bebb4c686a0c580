"""run, chat, bench and perplexity on a tiny model: what goes where, and what ends them."""

from __future__ import annotations

import csv
import io
import json
import os
import pty
import re
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.cli.conftest import Invoke
from tests.models.reference import forward
from tests.models.tiny import tiny_model
from tests.modules import ROOT
from tetrad.cli.talk.answer import bytes_per_token
from tetrad.formats import gguf
from tetrad.hub.describe import describe

RUN = "from tetrad.cli.start import main; main()"
GREEDY = ("--temp", "0", "-n", "8", "-c", "256")
LINE = re.compile(
    r"\| llama 125K F32 +\| +0.48 MiB \| +0.12 M \| CPU +\| +\d+ \| +(\S+) \| +([\d.]+) ± "
    r"([\d.]+) \|"
)


def test_one_answer_the_same_however_it_is_asked(
    invoke: Invoke, tiny_file: Path, tmp_path: Path
) -> None:
    (tmp_path / "prompt").write_text("Hi there")
    answer = invoke("run", tiny_file, "Hi there", *GREEDY).stdout
    assert answer.endswith("\n") and len(answer) > 1
    assert invoke("run", "-m", tiny_file, "-p", "Hi there", *GREEDY).stdout == answer
    assert invoke("run", "-m", tiny_file, "Hi there", *GREEDY).stdout == answer
    assert invoke("run", tiny_file, "-f", tmp_path / "prompt", *GREEDY).stdout == answer
    assert invoke("run", tiny_file, *GREEDY, input="Hi there").stdout == answer
    assert invoke("run", tiny_file, "-no-cnv", "Hi there", *GREEDY).stdout != answer
    assert invoke("run", tiny_file, "-sys", "Be kind.", "Hi there", *GREEDY).stdout != answer


@pytest.mark.parametrize("words", [
    ("-m", "F", "-p", "Hi", "there", "you"), ("-m", "F", "Hi", "-p", "there", "you"),
    ("-m", "F", "Hi", "there", "-p", "you"), ("F", "-p", "Hi", "there", "you"),
    ("F", "Hi", "--prompt=there", "you"), ("-p", "Hi", "F", "there", "you"),
    ("F", "Hi", "there", "you"), ("F", "Hi", "there", "--", "you"),
])  # fmt: skip
def test_words_keep_their_order(invoke: Invoke, tiny_file: Path, words: tuple[str, ...]) -> None:
    given = [str(tiny_file) if word == "F" else word for word in words]
    shown = invoke("run", "--display-prompt", "-no-cnv", *GREEDY, *given).stdout
    assert (
        shown
        == invoke("run", "--display-prompt", "-no-cnv", *GREEDY, tiny_file, "Hi there you").stdout
    )
    assert shown.startswith("Hi there you")


def test_what_is_piped_follows_words_and_neither_p_nor_f(
    invoke: Invoke, tiny_file: Path, tmp_path: Path
) -> None:
    (tmp_path / "prompt").write_text("Hi")
    show = ("run", "-m", tiny_file, "--display-prompt", "-no-cnv", "-n", "1")
    assert invoke(*show, "Hi", input="there").stdout.startswith("Hi\n\nthere")
    assert "there" not in invoke(*show, "-p", "Hi", input="there").stdout
    assert "there" not in invoke(*show, "-f", tmp_path / "prompt", input="there").stdout
    assert invoke(*show, "-p", "Hi", "-f", "-", input="there").stdout.startswith("Hi\n\nthere")


def test_an_empty_schema_is_any_object(invoke: Invoke, tiny_file: Path, tmp_path: Path) -> None:
    (tmp_path / "schema").write_text(" {} ")
    common = ("run", "-m", tiny_file, "-p", "Hi", "-n", "8", "-c", "256", "-s", "3", "--temp", "2")
    objects = invoke(*common, "--format", "json").stdout
    assert objects.lstrip().startswith("{")
    assert (
        invoke(*common, "-j", "{}").stdout
        == objects
        == invoke(*common, "-jf", tmp_path / "schema").stdout
    )


def test_a_seed_replays_and_verbose_shows_it(invoke: Invoke, tiny_file: Path) -> None:
    first = invoke("run", tiny_file, "Hi", "-n", "12", "-c", "256", "--temp", "2", "--verbose")
    fields = dict(line.split(":", 1) for line in first.stderr.strip().splitlines())
    assert list(fields) == [
        "total duration", "load duration", "prompt eval count", "prompt eval duration",
        "prompt eval rate",
        "eval count", "eval duration", "eval rate", "seed", "memory",
    ]  # fmt: skip
    assert re.fullmatch(
        r" +[\d.]+ MB a token, [\d.]+ GB/s: \d+% of the [\d.]+ GB/s that \d+ threads read here",
        fields["memory"],
    )
    seed = fields["seed"].strip()
    assert (
        invoke("run", tiny_file, "Hi", "-n", "12", "-c", "256", "--temp", "2", "-s", seed).stdout
        == first.stdout
    )


def test_a_prompt_that_does_not_fit_is_an_error_with_both_numbers(
    invoke: Invoke, tiny_file: Path
) -> None:
    printed = invoke("run", tiny_file, "x" * 600, "-no-cnv", code=1).output
    assert re.search(r"Error: .*6\d\d tokens, the context holds 512", printed)


def test_an_answer_that_fills_the_context_says_so(invoke: Invoke, tiny_file: Path) -> None:
    words = (tiny_file, "--temp", "0", "-c", "64", "--ignore-eos")
    said = "note: the context of 64 tokens is full"
    assert said in invoke("run", *words, "-p", "Hi").stderr
    assert said in invoke("chat", *words, input="Hi\n").stderr
    assert said not in invoke("run", *words, "-n", "4", "-p", "Hi").stderr
    assert said not in invoke("run", *words, "-n", "80", "--context-shift", "-p", "Hi").stderr


def test_no_prompt_and_nobody_to_ask(invoke: Invoke, tiny_file: Path) -> None:
    assert "which prompt?" in invoke("run", tiny_file, code=2).output


def test_settings_that_cannot_be(invoke: Invoke, tiny_file: Path) -> None:
    assert (
        "--top-p: expected a number from 0 to 1"
        in invoke("run", tiny_file, "Hi", "--top-p", "2", code=1).output
    )


def test_escapes_stand_for_characters_where_asked(invoke: Invoke, tiny_file: Path) -> None:
    plain, line = ("run", tiny_file, "-no-cnv", *GREEDY), r"Hi\nthere \x41\\n"
    meant = invoke(*plain, "-p", "Hi\nthere A\\n").stdout
    assert (
        invoke(*plain, "-e", "-p", line).stdout == meant == invoke(*plain, line, "--escape").stdout
    )
    assert (
        invoke(*plain, "-p", line).stdout
        == invoke(*plain, "-p", line, "--no-escape").stdout
        != meant
    )
    assert invoke(*plain, "-e", input=line).stdout != meant  # what is piped is as it is
    asked = ("run", tiny_file, "Hi", *GREEDY)
    assert invoke(*asked, "-e", "-sys", r"a\nb").stdout == invoke(*asked, "-sys", "a\nb").stdout


def test_the_prompt_is_shown_where_asked(invoke: Invoke, tiny_file: Path) -> None:
    words = ("run", tiny_file, "-no-cnv", "Hi there", *GREEDY)
    answer = invoke(*words, "--no-display-prompt").stdout
    assert invoke(*words, "--display-prompt").stdout == "Hi there" + answer
    shown = invoke(*words, "--verbose-prompt")
    assert shown.stdout == answer and shown.stderr.startswith("number of tokens in prompt = ")
    ids = json.loads(invoke("tokenize", tiny_file, "Hi there", "--ids").stdout)
    assert [int(line.split()[0]) for line in shown.stderr.splitlines()[1:]] == ids
    said = invoke(
        "chat", tiny_file, "-n1", "--verbose-prompt", "-e", "-sys", "x", "--no-warmup", input="Hi\n"
    ).stderr
    assert said == "note: --verbose-prompt has no effect in a chat\n"


def test_a_line_of_llama_cpp(invoke: Invoke, tiny_file: Path) -> None:
    line = (
        "-ngl 99 -fa on --no-mmap --mlock -np 1 -cb --color --keep 4 --no-context-shift -e "
        "--no-warmup -v -t1"
    )
    found = invoke("run", "-m", tiny_file, "-p", "Hi", *GREEDY, *line.split())
    assert found.stdout == invoke("run", tiny_file, "Hi", *GREEDY).stdout
    assert found.stderr.count("note: ") == 7 and "eval rate" in found.stderr


@pytest.mark.parametrize(("words", "said"), [
    (("--lora", "a.gguf"), "--lora: adapters are not supported"),
    (("--mmproj", "a.gguf"), "--mmproj: models of images are not supported"),
])  # fmt: skip
def test_what_llama_cpp_can_do_and_this_cannot(
    invoke: Invoke, tiny_file: Path, words: tuple[str, str], said: str
) -> None:
    assert said in invoke("run", tiny_file, *words, "-p", "Hi", code=2).stderr


def test_a_draft_model_changes_nothing(invoke: Invoke, tiny_file: Path, tmp_path: Path) -> None:
    words = ("run", "-m", tiny_file, "-p", "Hi there", *GREEDY, "--ignore-eos")
    drafted = (*words, "-md", tiny_file, "--draft-max", "4", "--draft-p-min", "0", "--verbose")
    found = invoke(*drafted)
    assert found.stdout == invoke(*words).stdout
    assert re.search(r"guessed: +[1-9]\d* of \d+ right", found.stderr)
    missing = tmp_path / "missing.gguf"
    assert "missing.gguf" in invoke(*words, "-md", missing, code=1).stderr
    both = ("-md", tiny_file, "-hfd", "org/repo")
    assert "which draft model" in invoke(*words, *both, code=2).stderr
    assert "expected org/repo" in invoke(*words, "-hfd", "nothing", code=1).stderr


def test_the_chain_of_samplers(invoke: Invoke, tiny_file: Path) -> None:
    words = ("run", tiny_file, "Hi", "-n30", "-c256", "-s7", "--temp", "3", "--ignore-eos")
    lines = ("", "--samplers top_k;temperature", "--samplers temperature;top_k;top_p;min_p",
    "--typical 0.3",
             "--top-n-sigma 0.5", "--xtc-probability 1")  # fmt: skip
    answers = [invoke(*words, *line.split()).stdout for line in lines]
    assert len(set(answers)) == len(lines)
    assert invoke(*words, "--samplers", "top_k;top_p;min_p;temperature").stdout == answers[0]


def test_a_damaged_model_is_one_clear_error(invoke: Invoke, tmp_path: Path) -> None:
    metadata, tensors = tiny_model("llama", context=64)
    tensors["output.weight"] = np.full_like(tensors["output.weight"], np.nan)
    gguf.write(tmp_path / "broken.gguf", metadata, tensors)
    printed = invoke("run", tmp_path / "broken.gguf", "Hi", code=1).output
    said = (
        r"Error: the model gave NaN logits at position \d+: tensor output.weight holds NaN or "
        r"infinity\n  hint: "
    )
    assert re.match(said, printed)


def test_bytes_a_token_reads(tiny_file: Path) -> None:
    found = describe(str(tiny_file))
    assert bytes_per_token(found) == found.weight_bytes - found.tensors["token_embd.weight"].nbytes


# -- what ends it ----------------------------------------------------------------------------------


def started(*words: str) -> subprocess.Popen[str]:
    pipe = subprocess.PIPE
    return subprocess.Popen(
        [sys.executable, "-c", RUN, *words],
        stdin=subprocess.DEVNULL,
        stdout=pipe,
        stderr=pipe,
        text=True,
        cwd=ROOT,
    )


ENDLESS = ("Hi", "-n", "-1", "--ignore-eos", "--context-shift", "-c", "64")


def test_ctrl_c_ends_quietly(tiny_file: Path) -> None:
    with started("run", str(tiny_file), *ENDLESS) as run:
        assert run.stdout is not None and run.stderr is not None
        run.stdout.read(20)
        run.send_signal(signal.SIGINT)
        begun = time.monotonic()
        run.stdout.read()
        assert (run.wait(10), run.stderr.read()) == (130, "")
        assert time.monotonic() - begun < 5


def test_a_reader_that_goes_away_ends_it_quietly(tiny_file: Path) -> None:
    with started("run", str(tiny_file), *ENDLESS) as run:
        assert run.stdout is not None and run.stderr is not None
        run.stdout.read(20)
        run.stdout.close()
        assert (run.wait(10), run.stderr.read()) == (141, "")


# -- chat ------------------------------------------------------------------------------------------


def test_a_chat_over_a_pipe(invoke: Invoke, tiny_file: Path, tmp_path: Path) -> None:
    lines = (
        f'Hi\n/set temperature 0\n"""one\ntwo"""\n/sing\n/save {tmp_path / "talk"}\n/bye\nnever\n'
    )
    result = invoke("chat", tiny_file, "-n", "4", "-c", "256", input=lines)
    assert "temperature = 0" in result.stdout and "there is no command /sing" in result.stderr
    turns = json.loads((tmp_path / "talk").read_text())["messages"]
    assert [turn["content"] for turn in turns if turn["role"] == "user"] == ["Hi", "one\ntwo"]
    assert all(turn["content"] in result.stdout for turn in turns if turn["role"] == "assistant")


def test_ctrl_c_stops_the_answer_and_not_the_chat(tiny_file: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", RUN, "chat", str(tiny_file), *ENDLESS[1:]],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    ) as run:
        assert run.stdin is not None and run.stdout is not None and run.stderr is not None
        run.stdin.write("Hi\n")
        run.stdin.flush()
        run.stdout.read(20)
        run.send_signal(signal.SIGINT)
        run.stdin.write("/show messages\n/bye\n")
        run.stdin.flush()
        printed = run.stdout.read()
        assert " ...\n\nuser: Hi\nassistant: " in printed
        assert (run.wait(10), run.stderr.read()) == (0, "")


UNDISTURBED = """
import signal
signal.signal(signal.SIGHUP, signal.SIG_IGN)
signal.signal(signal.SIGINT, signal.SIG_IGN)
"""


@pytest.mark.parametrize("is_seen", [True, False], ids=["to the terminal", "to a file"])
@pytest.mark.parametrize("text", [b"", b"Hi\r\n"], ids=["waiting", "answering"])
def test_a_chat_ends_when_its_terminal_is_gone(
    tiny_file: Path, folder: Path, is_seen: bool, text: bytes
) -> None:
    """Also where the signals that would end it are ignored (nohup), and the answer has no end."""
    ours, theirs = pty.openpty()
    words = [sys.executable, "-c", UNDISTURBED + RUN, "chat", str(tiny_file), *ENDLESS[1:]]
    out = theirs if is_seen else subprocess.DEVNULL
    with subprocess.Popen(
        words, stdin=theirs, stdout=out, stderr=theirs, cwd=ROOT, start_new_session=True
    ) as chat:
        os.close(theirs)
        try:
            shown = b""
            while b"to end" not in shown:  # the line that greets
                shown += os.read(ours, 1000)
            os.write(ours, text)
            time.sleep(1)
            os.close(ours)
            assert chat.wait(20) in (0, 1)
        finally:
            chat.kill()


def test_a_single_turn(invoke: Invoke, tiny_file: Path) -> None:
    result = invoke(
        "chat", tiny_file, "-st", "-n", "4", "-c", "256", "--verbose", input="Hi\nnever\n"
    )
    assert result.stderr.count("eval rate") == 2  # of the prompt and of the answer, once


def test_what_does_not_fit_is_said_and_the_chat_goes_on(invoke: Invoke, tiny_file: Path) -> None:
    result = invoke(
        "chat", tiny_file, "-n", "4", "-c", "64", input=f"{'x' * 100}\n/show messages\n"
    )
    assert "tokens, the context holds 64" in result.stderr and "nothing was said" in result.stdout
    assert "/clear forgets the conversation" in result.stderr


def test_a_full_conversation_goes_on_without_its_oldest_turns(
    invoke: Invoke, tiny_file: Path, tmp_path: Path
) -> None:
    lines = "".join(f"message {i} {'word ' * 5}\n" for i in range(8))
    words = ("chat", tiny_file, "-c", "192", "-n", "6", "--ignore-eos", "-sys", "Be kind.")
    full = invoke(*words, input=f"{lines}/show messages\n")
    assert "the context holds 192" in full.stderr  # without --context-shift it says so
    result = invoke(*words, "--context-shift", input=f"{lines}/save {tmp_path / 'talk'}\n")
    assert result.stderr == ""
    held = json.loads((tmp_path / "talk").read_text())
    asked = [turn["content"] for turn in held["messages"] if turn["role"] == "user"]
    assert (
        held["system"] == "Be kind."
        and asked[-1].startswith("message 7")
        and not asked[0].startswith("message 0")
    )
    assert [turn["role"] for turn in held["messages"]] == ["user", "assistant"] * len(asked)


# -- measuring -------------------------------------------------------------------------------------


def test_bench_has_the_table_of_llama_bench(invoke: Invoke, tiny_file: Path) -> None:
    words = (
        "bench",
        tiny_file,
        "-p",
        "8,16",
        "-n",
        "4",
        "-pg",
        "8,4",
        "-d",
        "0,8",
        "-r",
        "2",
        "-t",
        "1",
    )
    heads, rule, *lines = invoke(*words).stdout.splitlines()
    assert heads.split("|")[1:-1] == [
        " model                          ", "       size ", "     params ", " backend    ",
        " threads ",
        "            test ", "                  t/s ",
    ]  # fmt: skip
    assert rule.startswith(
        "| ------------------------------ | ---------: | ---------: | ---------- | ------: | ---"
    )
    tests = [match[1] for line in lines if (match := LINE.fullmatch(line.replace(" @ ", "@")))]
    once = ["pp8", "pp16", "tg4", "pp8+tg4"]
    assert tests == once + [f"{name}@d8" for name in once]


def test_bench_understands_what_llama_bench_does(invoke: Invoke, tiny_file: Path) -> None:
    line = "--progress --no-warmup --delay 1 -nkvo 1 -sm none --numa distribute -ngl 99 -fa 1"
    result = invoke(
        "bench", tiny_file, "-p", "4", "-n", "0", "-r", "1", "-o", "jsonl", *line.split()
    )
    assert json.loads(result.stdout)["n_prompt"] == 4 and result.stderr.count("note: ") == 8


def test_bench_as_data(invoke: Invoke, tiny_file: Path) -> None:
    words = ("bench", tiny_file, "-p", "8", "-n", "0", "-r", "3", "-t", "1")
    (found,) = json.loads(invoke(*words, "-o", "json").stdout)
    assert (found["n_prompt"], found["n_gen"], found["n_threads"], len(found["samples_ns"])) == (
        8,
        0,
        1,
        3,
    )
    assert found["avg_ts"] == pytest.approx(np.mean(found["samples_ts"]))
    (line,) = invoke(*words, "-o", "jsonl").stdout.splitlines()
    (row,) = csv.DictReader(io.StringIO(invoke(*words, "-o", "csv").stdout))
    assert json.loads(line).keys() == found.keys() and list(row) == [
        k for k in found if not k.startswith("samples")
    ]


def test_bench_as_sql(invoke: Invoke, tiny_file: Path) -> None:
    words = ("bench", tiny_file, "-p", "8", "-n", "2", "-r", "2", "-t", "1")
    statements = invoke(*words, "-o", "sql").stdout
    assert statements.startswith("CREATE TABLE IF NOT EXISTS llama_bench (\n  build TEXT,\n")
    base = sqlite3.connect(":memory:")
    base.executescript(statements)
    rows = base.execute(
        "SELECT n_prompt, n_gen, n_threads, typeof(avg_ts), typeof(model_size) FROM llama_bench"
    )
    assert rows.fetchall() == [(8, 0, 1, "real", "integer"), (0, 2, 1, "real", "integer")]
    base.close()


@pytest.mark.parametrize(
    ("words", "name", "tokens"),
    [
        (("-p", "8,600"), "pp600", 600),
        (("-p", "8", "-n", "513"), "tg513", 513),
        (("-p", "500", "-d", "100"), "pp500 @ d100", 600),
        (("-p", "0", "-n", "0", "-pg", "500,13"), "pp500+tg13", 513),
    ],
)
def test_bench_beyond_the_context(
    invoke: Invoke, tiny_file: Path, words: Any, name: str, tokens: int
) -> None:
    result = invoke("bench", tiny_file, *words, code=1)
    assert result.stdout == ""
    assert (
        f"{name} is too long for the model: {tokens} tokens, the context holds 512" in result.stderr
    )


def test_bench_takes_the_options_of_llama_bench(invoke: Invoke, tiny_file: Path) -> None:
    line = "-p 8 -n 0 -r 1 -t 1 -ngl 99 -fa 0,1 -mmp 0 -b 512 -ub 512"
    result = invoke("bench", tiny_file, *line.split())
    assert result.stderr.count("has no effect") == 5 and "pp8" in result.stdout


@pytest.mark.parametrize(
    "words", [("-p", "x"), ("-p", "512-128*1"), ("-pg", "3"), ("-p", "0", "-n", "0")]
)
def test_bench_of_nonsense(invoke: Invoke, tiny_file: Path, words: tuple[str, ...]) -> None:
    invoke("bench", tiny_file, *words, code=2)


def test_perplexity_is_that_of_the_reference(
    invoke: Invoke, tiny_file: Path, tmp_path: Path
) -> None:
    text, context = "The quick brown fox jumps over the lazy dog. " * 4, 32
    (tmp_path / "text").write_text(text)
    tokens = json.loads(invoke("tokenize", tiny_file, text, "--ids").stdout)
    metadata, tensors = tiny_model("llama", context=512)
    losses: list[float] = []
    for start in range(0, len(tokens) // context * context, context):
        chunk = np.array(tokens[start : start + context])
        logits = forward(metadata, tensors, chunk)
        shifted = logits - logits.max(axis=-1, keepdims=True)
        log_p = shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))
        losses += [-float(log_p[i, chunk[i + 1]]) for i in range(context // 2, context - 1)]
    printed = invoke("perplexity", tiny_file, "-f", tmp_path / "text", "-c", str(context)).stdout
    found = re.search(r"Final estimate: PPL = ([\d.]+) \+/- ([\d.]+)", printed)
    assert found is not None and float(found[1]) == pytest.approx(np.exp(np.mean(losses)), rel=1e-3)
    error = np.exp(np.mean(losses)) * np.std(losses) / np.sqrt(len(losses) - 1)
    assert float(found[2]) == pytest.approx(error, rel=1e-3)
    assert printed.startswith("[1]") and f"[{len(tokens) // context}]" in printed


def test_perplexity_of_too_little(invoke: Invoke, tiny_file: Path, tmp_path: Path) -> None:
    (tmp_path / "text").write_text("short")
    assert (
        "one chunk of 512 is needed"
        in invoke("perplexity", tiny_file, "-f", tmp_path / "text", code=2).output
    )


def test_threads_are_those_asked_for(invoke: Invoke, tiny_file: Path) -> None:
    invoke("run", tiny_file, "Hi", *GREEDY, "-t", "1")
    assert os.environ["TETRAD_THREADS"] == "1"


def test_a_sentence_is_no_model(invoke: Invoke, tiny_file: Path, folder: Path) -> None:
    """`tetrad run "Why is ..."`: the small model answers; here there is none, and nothing is
    fetched."""
    printed = invoke("run", "Why is the sky blue?", "--offline", code=1).output
    assert "smollm2 is not on this machine" in printed
    long = "Why is the sky blue? " * 50  # more than a file can be called
    assert "smollm2 is not on this machine" in invoke("run", long, "--offline", code=1).output
    spaced = tiny_file.with_name("a file with spaces.gguf")
    spaced.write_bytes(tiny_file.read_bytes())
    assert len(invoke("run", spaced, *GREEDY, input="Hi").stdout) > 1


def test_text_that_is_not_utf_8_is_named(invoke: Invoke, tiny_file: Path) -> None:
    words = [sys.executable, "-c", RUN, "run", str(tiny_file), *GREEDY]
    run = subprocess.run(words, input=b"Hi \xff", capture_output=True)
    assert run.returncode == 2 and b"Error: stdin: byte 3 is not UTF-8" in run.stderr


@pytest.mark.parametrize(
    "words", [("run", *GREEDY, "-p"), ("tokenize", "-p"), ("embed", "-c", "64", "-p")]
)
def test_words_are_utf_8_whatever_the_locale(
    invoke: Invoke, tiny_file: Path, words: tuple[str, ...]
) -> None:
    command, *rest = words
    plain = invoke(command, tiny_file, *rest, "caf\u00e9").stdout
    assert invoke(command, tiny_file, *rest, "caf\udcc3\udca9").stdout == plain
    bad = invoke(command, tiny_file, *rest, "caf\udce9", code=2)
    assert "the text: byte 3 is not UTF-8" in bad.stderr


def test_a_message_that_is_no_utf_8_does_not_end_the_chat(tiny_file: Path) -> None:
    words = [sys.executable, "-c", RUN, "chat", str(tiny_file), *GREEDY]
    run = subprocess.run(words, input=b"Hi \xff\n/show messages\n", capture_output=True)
    assert run.returncode == 0 and b"the message: byte 3 is not UTF-8" in run.stderr
    assert b"nothing was said" in run.stdout


def test_a_mark_before_the_text_is_no_part_of_the_prompt(
    invoke: Invoke, tiny_file: Path, tmp_path: Path
) -> None:
    (tmp_path / "plain").write_bytes(b"Hi\r\nthere")
    (tmp_path / "marked").write_bytes(b"\xef\xbb\xbfHi\r\nthere")
    plain, marked = (
        invoke("run", tiny_file, *GREEDY, "-f", tmp_path / n).stdout for n in ("plain", "marked")
    )
    assert plain == marked
    ids = json.loads(invoke("tokenize", tiny_file, "--ids", "-f", tmp_path / "plain").stdout)
    assert ids == json.loads(invoke("tokenize", tiny_file, "--ids", "-p", "Hi\r\nthere").stdout)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no device that is always full")
@pytest.mark.parametrize(
    "words", [("run", *GREEDY, "-p", "Hi"), ("inspect",), ("tokenize", "-p", "Hi")]
)
def test_a_full_disk_is_said_without_a_traceback(tiny_file: Path, words: tuple[str, ...]) -> None:
    command = [sys.executable, "-c", RUN, words[0], "-m", str(tiny_file), *words[1:]]
    with open("/dev/full", "wb") as full:
        run = subprocess.run(
            command, stdin=subprocess.DEVNULL, stdout=full, stderr=subprocess.PIPE, text=True
        )
    assert (run.returncode, run.stderr) == (1, "Error: No space left on device\n")


def test_a_page_in_a_folder_that_is_not_there(
    invoke: Invoke, tiny_file: Path, tmp_path: Path
) -> None:
    result = invoke("inspect", tiny_file, "--html", tmp_path / "no/page.html", code=1)
    assert (
        result.stderr.endswith("/no/page.html: No such file or directory\n") and result.stdout == ""
    )


def test_a_page_beside_json_leaves_it_json(invoke: Invoke, tiny_file: Path, tmp_path: Path) -> None:
    result = invoke("inspect", tiny_file, "--json", "--html", tmp_path / "page.html")
    assert json.loads(result.stdout)["architecture"] == "llama" and "wrote" in result.stderr


def test_several_lines_without_an_end_are_said_to_be_dropped(
    invoke: Invoke, tiny_file: Path
) -> None:
    result = invoke("chat", tiny_file, *GREEDY, input='"""a\nb\n')
    assert result.stdout == "" and '""" was not closed' in result.stderr


def test_a_context_larger_than_the_models_is_noted(invoke: Invoke, tiny_file: Path) -> None:
    note = "note: -c 1024 is more than the 512 tokens the model was trained for"
    assert note in invoke("run", tiny_file, "Hi", "-n", "1", "-c", "1024").stderr
    assert note in invoke("chat", tiny_file, "-n", "1", "-c", "1024", input="Hi\n").stderr
    assert "note" not in invoke("run", tiny_file, "Hi", "-n", "1").stderr


def test_a_context_larger_than_memory(invoke: Invoke, tiny_file: Path) -> None:
    printed = invoke("run", tiny_file, "Hi", "-c", str(1 << 40), code=1).output
    assert re.search(
        r"Error: not enough memory: cannot allocate [\d.]+ GiB for keys and values", printed
    )


def test_settings_that_the_file_recommends(invoke: Invoke, tmp_path: Path) -> None:
    """They count where nothing else was chosen."""
    metadata, tensors = tiny_model("llama")
    path = tmp_path / "cool.gguf"
    gguf.write(
        path, metadata | {"general.sampling.temp": 0.0, "general.sampling.top_k": 3}, tensors
    )
    common = ("run", "-m", path, "-p", "Hi", "-no-cnv", "-n", "12", "--ignore-eos", "-s", "5")
    greedy = invoke(*common, "--temp", "0").stdout
    assert invoke(*common).stdout == greedy != invoke(*common, "--temp", "2").stdout
    assert (
        invoke("chat", "-m", path, "-n", "3", input="/show\n").stdout.count(
            "temperature        0.0"
        )
        == 1
    )
    gguf.write(path, metadata | {"general.sampling.temp": "hot"}, tensors)
    assert (
        "keys general.sampling.*: temperature: expected a number, got 'hot'"
        in invoke(*common, code=1).output
    )
