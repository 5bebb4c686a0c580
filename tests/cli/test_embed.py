"""embed on a tiny model: vectors in the order of the texts, whichever way they come."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np

import tetrad as td
from tests.cli.conftest import Invoke
from tests.models.encoders import tiny_encoder
from tests.models.folders import golden_folder
from tetrad.formats import gguf


def test_texts_as_vectors(invoke: Invoke, tiny_file: Path, tmp_path: Path) -> None:
    want = td.load(tiny_file).embed(["Hi there", "world"])
    one = json.loads(invoke("embed", tiny_file, "Hi there").stdout)
    assert np.array_equal(np.float32(one), want[0])
    (tmp_path / "lines").write_text("Hi there\n\nworld\n")
    for words in (("Hi there", "world"), ("Hi there", "-p", "world"), ("-f", tmp_path / "lines")):
        assert np.array_equal(
            np.float32(json.loads(invoke("embed", "-m", tiny_file, *words).stdout)), want
        )
    assert np.array_equal(
        np.float32(json.loads(invoke("embed", tiny_file, input="Hi there\nworld").stdout)), want
    )


def test_how_vectors_are_made(invoke: Invoke, tiny_file: Path) -> None:
    plain = json.loads(invoke("embed", tiny_file, "Hi", "--embd-normalize", "-1").stdout)
    assert np.array_equal(np.float32(plain), td.load(tiny_file).embed("Hi", normalize=False))
    last = json.loads(invoke("embed", tiny_file, "Hi there", "--pooling", "last").stdout)
    assert last != json.loads(invoke("embed", tiny_file, "Hi there", "--pooling", "mean").stdout)
    made = json.loads(invoke("embed", tiny_file, "a", "b", "--embd-output-format", "json").stdout)
    assert made["object"] == "list" and [entry["index"] for entry in made["data"]] == [0, 1]


def test_a_target_that_cannot_be(invoke: Invoke, tiny_file: Path, tmp_path: Path) -> None:
    there = tmp_path / "absent" / "x.npy"
    assert "there is no folder" in invoke("embed", tiny_file, "Hi", "-o", there, code=2).output


def test_no_text(invoke: Invoke, tiny_file: Path) -> None:
    assert "there is no text in stdin" in invoke("embed", tiny_file, input="\n \n", code=2).output


def test_an_encoder(invoke: Invoke, tmp_path: Path) -> None:
    path = tmp_path / "bert.gguf"
    gguf.write(path, *tiny_encoder("bert"))
    want = td.load(path).embed(["the cat", "a dog"])
    assert np.array_equal(
        np.float32(json.loads(invoke("embed", path, "the cat", "a dog").stdout)), want
    )
    first = json.loads(invoke("embed", path, "the cat", "--pooling", "cls").stdout)
    assert np.array_equal(
        np.float32(first), td.load(path, overrides={"pooling_type": 2}).embed("the cat")
    )
    (tmp_path / "text").write_text("the cat sat " * 60)
    for words in (
        ("run", path, "Hi"),
        ("chat", path),
        ("perplexity", path, "-f", tmp_path / "text", "-c", "32"),
    ):
        assert f"{words[0]}: bert is an encoder" in invoke(*words, input="Hi\n", code=1).output
    assert (
        "bench -n: bert is an encoder" in invoke("bench", path, "-p", "8", "-n", "2", code=1).output
    )
    assert "pp8" in invoke("bench", path, "-p", "8", "-n", "0", "-r", "1").stdout


def test_vectors_in_a_file(invoke: Invoke, tmp_path: Path) -> None:
    folder = golden_folder(tmp_path / "bert", "bert")
    want = td.load(folder).embed(["the cat", "a dog", "the mat"])
    texts = tmp_path / "texts"
    texts.write_text("the cat\na dog\nthe mat\n")
    for words in ((), ("--batch-size", "2")):
        invoke("embed", folder, "-f", texts, "-o", tmp_path / "v.npy", *words)
        assert np.array_equal(np.load(tmp_path / "v.npy"), want)
    invoke("embed", folder, "-f", texts, "-o", tmp_path / "v.jsonl")
    lines = (tmp_path / "v.jsonl").read_text().splitlines()
    assert np.array_equal(np.float32([json.loads(line) for line in lines]), want)
    assert "ends with .npy" in invoke("embed", folder, "x", "-o", "v.txt", code=2).output


def test_the_loss_of_quicker_products_is_said(invoke: Invoke, tmp_path: Path) -> None:
    folder = golden_folder(tmp_path / "bert", "bert")
    done = invoke("embed", folder, "the cat", "a dog", "--dtype", "int8")
    said = re.search(r"int8: mean cosine (\S+) with f32, smallest (\S+), on 2 texts", done.stderr)
    assert said is not None and 0.98 < float(said[2]) <= float(said[1]) <= 1
    wanted = td.load(folder, dtype="int8").embed(["the cat", "a dog"])
    assert np.array_equal(np.float32(json.loads(done.stdout)), wanted)


def test_whether_vectors_have_length_1_and_long_texts(invoke: Invoke, tmp_path: Path) -> None:
    folder = golden_folder(tmp_path / "bert", "bert")
    model = td.load(folder)
    found = json.loads(invoke("embed", folder, "the cat", "--no-normalize").stdout)
    assert np.array_equal(np.float32(found), model.embed("the cat", normalize=False))
    both = ("--no-normalize", "--embd-normalize", "2")
    assert "give one of" in invoke("embed", folder, "x", *both, code=2).output
    assert "too long" in invoke("embed", folder, "cat " * 90, code=1).output
    assert len(json.loads(invoke("embed", folder, "cat " * 90, "--truncate").stdout)) == 64


def test_ranks(invoke: Invoke, tmp_path: Path) -> None:
    folder = golden_folder(tmp_path / "bert", "bert-rank")
    texts = ["a dog ran", "the cat sat", "fast"]
    scores = td.load(folder).rerank("the cat", texts)
    lines = invoke("rerank", folder, "the cat", *texts).stdout.splitlines()
    order = np.argsort(-scores)
    assert [line.split("\t")[1] for line in lines] == [texts[i] for i in order]
    found = json.loads(invoke("rerank", folder, "the cat", *texts, "--json").stdout)
    assert [entry["index"] for entry in found] == [0, 1, 2]
    assert np.array_equal(np.float32([entry["score"] for entry in found]), scores)
    assert "which query" in invoke("rerank", folder, code=2).output
