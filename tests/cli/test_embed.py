"""embed on a tiny model: vectors in the order of the texts, whichever way they come."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

import tetrad as td
from tests.cli.conftest import Invoke
from tests.models.encoders import tiny_encoder
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
