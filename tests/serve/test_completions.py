"""POST /v1/completions, /v1/embeddings and /v1/models."""

from __future__ import annotations

import base64
import json
from typing import Any

import httpx
import numpy as np
import pytest

from tests.serve.running import Running

PATH = "/v1/completions"
ASKED: dict[str, Any] = {"prompt": "the world", "max_tokens": 8, "seed": 3}


def ask(client: httpx.Client, **more: Any) -> dict[str, Any]:
    found = client.post(PATH, json=ASKED | more)
    assert found.status_code == 200, found.text
    return found.json()  # type: ignore[no-any-return]


def texts(found: dict[str, Any]) -> list[str]:
    return [choice["text"] for choice in found["choices"]]


def streamed(client: httpx.Client, **more: Any) -> list[dict[str, Any]]:
    answer = client.post(PATH, json=ASKED | more | {"stream": True})
    lines = [line for line in answer.text.split("\n\n") if line]
    assert lines[-1] == "data: [DONE]"
    return [json.loads(line.removeprefix("data: ")) for line in lines[:-1]]


def model_of(server: Running) -> Any:
    return next(iter(server.app.store.loaded.values())).model


def test_a_completion_is_that_of_the_engine(server: Running, client: httpx.Client) -> None:
    found = ask(client)
    assert found["object"] == "text_completion"
    assert texts(found) == [model_of(server).generate("the world", max_tokens=8, seed=3).text]


def test_several_prompts_have_several_answers(server: Running, client: httpx.Client) -> None:
    tokens = model_of(server).prompt_tokens("the world")
    one = texts(ask(client, n=2))
    assert texts(ask(client, prompt=["the world", "hello"], n=2))[:2] == one
    assert texts(ask(client, prompt=tokens, n=2)) == one
    assert texts(ask(client, prompt=[tokens, tokens], n=2)) == [*one, *one]


def test_a_stream_joined_is_the_whole_answer(client: httpx.Client) -> None:
    for more in ({}, {"n": 2}, {"echo": True, "logprobs": 2}, {"prompt": ["a", "b"]}):
        whole, events = ask(client, **more), streamed(client, **more)
        for choice in whole["choices"]:
            mine = [c for e in events for c in e["choices"] if c["index"] == choice["index"]]
            assert "".join(c["text"] for c in mine) == choice["text"]
            assert mine[-1]["finish_reason"] == choice["finish_reason"]
            if choice["logprobs"]:
                tables = [c["logprobs"] for c in mine if c["logprobs"]]
                for name in ("tokens", "token_logprobs", "text_offset", "top_logprobs"):
                    assert [x for t in tables for x in t[name]] == choice["logprobs"][name]


def test_the_likelihood_of_a_prompt(server: Running, client: httpx.Client) -> None:
    """What evaluation programs ask for: the prompt echoed, nothing written."""
    found = ask(client, echo=True, logprobs=1, max_tokens=0)["choices"][0]
    assert found["text"] == "the world" and found["finish_reason"] == "length"
    model = model_of(server)
    tokens = model.prompt_tokens("the world")
    rows = model.logits(tokens).astype(np.float64)
    chances = rows - np.logaddexp.reduce(rows, axis=1, keepdims=True)
    wanted = [chances[i, token] for i, token in enumerate(tokens[1:])]
    assert found["logprobs"]["token_logprobs"][0] is None
    np.testing.assert_allclose(found["logprobs"]["token_logprobs"][1:], wanted, rtol=1e-6)


MISTAKES: list[tuple[dict[str, Any], str]] = [
    ({"prompt": []}, "prompt"),
    ({"prompt": 3}, "prompt"),
    ({"prompt": ["a", 1]}, "prompt"),
    ({"prompt": [[]]}, "prompt"),
    ({"prompt": [999_999]}, "prompt"),
    ({"suffix": "b"}, "suffix"),
    ({"best_of": 2}, "best_of"),
    ({"logprobs": 21}, "logprobs"),
    ({"prompt": ["a"] * 40}, "n"),
    ({"messages": []}, "messages"),
]


@pytest.mark.parametrize(("change", "param"), MISTAKES, ids=lambda v: str(v)[:30])
def test_mistakes_are_named(client: httpx.Client, change: dict[str, Any], param: str) -> None:
    found = client.post(PATH, json=ASKED | change)
    assert found.status_code == 400 and found.json()["error"]["param"] == param


# -- embeddings ------------------------------------------------------------------------------------


def embed(client: httpx.Client, **body: Any) -> Any:
    found = client.post("/v1/embeddings", json=body)
    assert found.status_code == 200, found.text
    return found.json()


def test_vectors_are_those_of_the_model(server: Running, client: httpx.Client) -> None:
    wanted = model_of(server).embed(["a", "the world"])
    found = embed(client, input=["a", "the world"], model="any")
    vectors = np.array([one["embedding"] for one in found["data"]], np.float32)
    np.testing.assert_array_equal(vectors, wanted)
    assert [one["index"] for one in found["data"]] == [0, 1]
    tokens = [model_of(server).text_tokens(text, False) for text in ("a", "the world")]
    assert found["usage"]["prompt_tokens"] == sum(map(len, tokens))
    again = embed(client, input=tokens, encoding_format="base64")
    packed = [np.frombuffer(base64.b64decode(one["embedding"]), "<f4") for one in again["data"]]
    np.testing.assert_array_equal(packed, wanted)


def test_fewer_dimensions_have_length_one_again(server: Running, client: httpx.Client) -> None:
    whole = embed(client, input="a")["data"][0]["embedding"]
    short = np.array(embed(client, input="a", dimensions=8)["data"][0]["embedding"])
    np.testing.assert_allclose(np.linalg.norm(short), 1, rtol=1e-6)
    np.testing.assert_allclose(short, np.array(whole[:8]) / np.linalg.norm(whole[:8]), rtol=1e-5)


@pytest.mark.parametrize(
    ("change", "param"),
    [
        ({"input": []}, "input"),
        ({"input": [[1], "a"]}, None),
        ({"input": "a", "dimensions": 10_000}, "dimensions"),
        ({"input": "a", "encoding_format": "hex"}, "encoding_format"),
        ({"input": ["a"] * 3000}, "input"),
        ({"input": "the world " * 400}, "input"),
        ({}, "input"),
    ],
    ids=lambda v: str(v)[:30],
)
def test_mistakes_of_embeddings(client: httpx.Client, change: Any, param: str | None) -> None:
    found = client.post("/v1/embeddings", json=change)
    assert found.status_code == (200 if param is None else 400)
    assert param is None or found.json()["error"]["param"] == param


# -- models ----------------------------------------------------------------------------------------


def test_models_are_listed(client: httpx.Client) -> None:
    found = client.get("/v1/models").json()
    assert [one["id"] for one in found["data"]] == ["tiny"] and found["object"] == "list"
    assert client.get("/v1/models/tiny").json()["id"] == "tiny"
    missing = client.get("/v1/models/large")
    assert missing.status_code == 404 and missing.json()["error"]["code"] == "model_not_found"
