"""Several models behind one address; the routes that tell of them; the openai package."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest

from tests.models.folders import golden_folder
from tests.serve.running import Running, model_file, running, tiny_place, until
from tetrad.serve.store import ModelPlace

ASKED: dict[str, Any] = {"prompt": "a", "max_tokens": 2, "seed": 1}


def other_place(name: str = "other") -> ModelPlace:
    return ModelPlace(name, model_file("qwen2"), ("alias",), {"slots": 2})


@pytest.fixture(scope="module")
def two() -> Iterator[Running]:
    with running(tiny_place(), other_place(), store={"most_loaded": 1}) as found:
        yield found


def test_requests_choose_their_model_and_one_is_in_memory(two: Running) -> None:
    with two.client() as client:
        for name, shown in (("tiny", "tiny"), ("other", "other"), ("alias", "other")):
            found = client.post("/v1/completions", json=ASKED | {"model": name})
            assert found.json()["model"] == shown
            assert list(two.app.store.loaded) == [shown]
        listed = {
            one["id"]: one["status"]["value"] for one in client.get("/v1/models").json()["data"]
        }
    assert listed == {"tiny": "unloaded", "other": "loaded"}


@pytest.mark.parametrize(
    ("model", "status", "code"),
    [("third", 404, "model_not_found"), (None, 400, "missing_required_parameter"),
     ("", 400, "missing_required_parameter"), ("../tiny", 404, "model_not_found")],
)  # fmt: skip
def test_a_model_that_is_not_there(two: Running, model: str | None, status: int, code: str) -> None:
    with two.client() as client:
        found = client.post("/v1/completions", json=ASKED | {"model": model})
    assert found.status_code == status
    assert found.json()["error"]["code"] == code and found.json()["error"]["param"] == "model"


def test_an_idle_model_leaves_memory() -> None:
    with running(store={"keep_alive": 0.1}) as server, server.client() as client:
        first = client.post("/v1/completions", json=ASKED).json()
        until(lambda: not server.app.store.loaded)
        assert client.post("/v1/completions", json=ASKED).json()["choices"] == first["choices"]


def test_a_model_that_cannot_be_loaded_is_told_without_its_path(tmp_path: Any) -> None:
    bad = tmp_path / "bad.gguf"
    bad.write_bytes(b"GGUF" + bytes(100))
    with running(ModelPlace("bad", bad)) as server, server.client() as client:
        found = client.post("/v1/completions", json=ASKED)
        assert found.status_code == 503 and str(tmp_path) not in found.text
        assert str(tmp_path) in server.log.getvalue()
        assert client.get("/health").status_code == 200


# -- what the server tells of itself ---------------------------------------------------------------


def test_state(client: httpx.Client, server: Running) -> None:
    client.post("/v1/completions", json=ASKED)
    slots = client.get("/slots").json()
    assert [slot["id"] for slot in slots] == [0, 1, 2, 3]
    assert not any(slot["is_processing"] for slot in slots)
    props = client.get("/props").json()
    assert props["total_slots"] == 4 and props["default_generation_settings"]["n_ctx"] == 512
    assert "<|im_start|>" in props["chat_template"]
    live = client.get("/live?model=tiny").json()
    assert live["model"] == "tiny" and live["totals"]["predicted_tokens"] >= 2
    assert live["queue"] == {"waiting": 0, "limit": 256} and len(live["slots"]) == 4


def test_metrics(client: httpx.Client) -> None:
    client.post("/v1/completions", json=ASKED)
    found = client.get("/metrics")
    assert found.headers["content-type"].startswith("text/plain; version=0.0.4")
    lines = found.text.splitlines()
    samples = dict(line.rsplit(" ", 1) for line in lines if not line.startswith("#"))
    assert float(samples['tetrad_predicted_tokens_total{model="tiny"}']) >= 2
    assert float(samples['tetrad_first_token_seconds_bucket{le="+Inf"}']) >= 1
    assert float(samples['tetrad_requests_total{route="/v1/completions",status="200"}']) >= 1
    known = {line.split()[2] for line in lines if line.startswith("# TYPE")}
    for name in samples:
        base = name.partition("{")[0]
        for end in ("_bucket", "_sum", "_count"):
            base = base if base in known else base.removesuffix(end)
        assert base in known, name


def test_the_inside_of_a_model(client: httpx.Client) -> None:
    found = client.get("/inside").json()
    assert found["kernels"] and found["step"]["ns"] > 0 and found["graphs"]
    assert client.get("/inside").json() == found


def test_tokens_there_and_back(client: httpx.Client) -> None:
    tokens = client.post("/tokenize", json={"content": "the wörld"}).json()["tokens"]
    assert client.post("/detokenize", json={"tokens": tokens}).json() == {"content": "the wörld"}
    pieces = client.post("/tokenize", json={"content": "the ö", "with_pieces": True}).json()[
        "tokens"
    ]
    assert [p["piece"] for p in pieces][-1] == [0xB6] and pieces[0]["piece"] == "t"
    asked = {"messages": [{"role": "user", "content": "a"}]}
    shown = client.post("/apply-template", json=asked).json()["prompt"]
    assert shown == "<|im_start|>user\na<|im_end|>\n<|im_start|>assistant\n"
    assert client.post("/detokenize", json={"tokens": [10**6]}).status_code == 400


def test_documents_are_ranked(tmp_path: Path) -> None:
    folder = golden_folder(tmp_path, "bert-rank")
    body: dict[str, Any] = {"query": "the cat", "documents": ["a dog", "the cat sat", "on a mat"]}
    with running(ModelPlace("ranker", folder)) as server, server.client() as client:
        found = client.post("/v1/rerank", json=body | {"return_documents": True})
        assert found.status_code == 200, found.text
        results = found.json()["results"]
        model = next(iter(server.app.store.loaded.values())).model
        scores = model.rerank(body["query"], body["documents"]).tolist()
        assert {r["index"]: r["relevance_score"] for r in results} == dict(enumerate(scores))
        assert [r["relevance_score"] for r in results] == sorted(scores, reverse=True)
        assert all(r["document"]["text"] == body["documents"][r["index"]] for r in results)
        assert len(client.post("/rerank", json=body | {"top_n": 1}).json()["results"]) == 1
        assert client.post("/rerank", json={"query": "a", "documents": []}).status_code == 400
        chat = client.post("/v1/completions", json=ASKED)
        assert chat.status_code == 400 and "embeds texts" in chat.json()["error"]["message"]
    with running() as server, server.client() as client:
        assert client.post("/rerank", json=body).status_code == 400


# -- the openai package ----------------------------------------------------------------------------

WEATHER = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "The weather of a town.",
        "parameters": {
            "type": "object",
            "properties": {"warm": {"type": "boolean"}},
            "required": ["warm"],
            "additionalProperties": False,
        },
    },
}
SAID: Any = [{"role": "user", "content": "Hi"}]


@pytest.fixture(scope="module")
def roomy() -> Iterator[Running]:
    """Definitions of tools are long in a vocabulary of bytes."""
    with running(tiny_place(context=2048)) as found:
        yield found


@pytest.fixture(scope="module")
def package(roomy: Running) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{roomy.url}/v1", api_key="none", max_retries=0) as found:
        yield found


def test_openai_chats_and_streams(package: openai.OpenAI) -> None:
    made = package.chat.completions.create(model="any", messages=SAID, max_tokens=8, seed=1)
    parts = package.chat.completions.create(
        model="any", messages=SAID, max_tokens=8, seed=1, stream=True
    )
    joined = "".join(p.choices[0].delta.content or "" for p in parts if p.choices)
    assert joined == made.choices[0].message.content


@pytest.mark.parametrize(
    "choice",
    ["required", {"type": "function", "function": {"name": "weather"}}],
    ids=["any", "named"],
)
def test_openai_calls_tools(package: openai.OpenAI, choice: Any) -> None:
    how: Any = {
        "model": "any", "messages": SAID, "tools": [WEATHER], "tool_choice": choice, "seed": 1,
        "max_tokens": 200, "parallel_tool_calls": False,
    }  # fmt: skip
    made = package.chat.completions.create(**how).choices[0]
    assert made.finish_reason == "tool_calls" and made.message.tool_calls
    call = made.message.tool_calls[0]
    assert call.type == "function" and call.function.name == "weather"
    assert isinstance(json.loads(call.function.arguments)["warm"], bool)
    pieces = [
        one
        for part in package.chat.completions.create(stream=True, **how)
        for one in part.choices[0].delta.tool_calls or ()
    ]
    assert pieces[0].type == "function" and pieces[0].id and pieces[0].index == 0
    assert "".join(p.function.arguments or "" for p in pieces) == call.function.arguments
    again = [*SAID, made.message, {"role": "tool", "tool_call_id": call.id, "content": "warm"}]
    package.chat.completions.create(model="any", messages=again, tools=[WEATHER], max_tokens=2)


def test_openai_tools_that_are_wrong(package: openai.OpenAI) -> None:
    for change, param in (
        ({"tools": [{"type": "function"}]}, "tools[0].function"),
        ({"tools": [WEATHER], "tool_choice": "never"}, "tool_choice"),
        ({"tools": [WEATHER, WEATHER]}, "tools[1].function.name"),
        ({"tool_choice": "required"}, "tool_choice"),
    ):
        with pytest.raises(openai.BadRequestError) as error:
            package.chat.completions.create(model="any", messages=SAID, **change)
        assert error.value.param == param


def test_openai_embeds_and_errs(package: openai.OpenAI) -> None:
    made = package.embeddings.create(model="any", input=["a", "b"])
    assert [one.index for one in made.data] == [0, 1] and len(made.data[0].embedding) == 64
    with pytest.raises(openai.BadRequestError) as error:
        package.chat.completions.create(model="any", messages=SAID, temperature=-1)
    assert error.value.param == "temperature" and error.value.code == "invalid_value"
    assert package.models.list().data[0].id == "tiny"


def test_openai_leaves_a_stream(package: openai.OpenAI, roomy: Running) -> None:
    parts = package.chat.completions.create(
        model="any", messages=SAID, stream=True, extra_body={"ignore_eos": True}
    )
    next(iter(parts))
    parts.close()
    until(roomy.is_idle)
