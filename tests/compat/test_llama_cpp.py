"""llama-cpp-python's names: the shapes programs rely on, and that nothing is silently ignored."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.models.tiny import tiny_model
from tetrad.compat.llama_cpp import Llama, LlamaGrammar, schema_of
from tetrad.core.errors import SettingError, UnsupportedError
from tetrad.formats import gguf

MESSAGES = [{"role": "user", "content": "Hi there"}]


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("compat") / "tiny.gguf"
    gguf.write(made, *tiny_model("llama", context=256))
    return made


@pytest.fixture(scope="module")
def llm(path: Path) -> Llama:
    return Llama(model_path=str(path), seed=7, embedding=True, verbose=False)


def test_a_completion(llm: Llama, path: Path) -> None:
    made = llm("Hi there", max_tokens=8, temperature=0.0)
    (choice,) = made["choices"]
    assert made["object"] == "text_completion" and made["id"].startswith("cmpl-") and made["model"] == str(path)
    assert choice.keys() == {"text", "index", "logprobs", "finish_reason"} and choice["logprobs"] is None
    used = made["usage"]
    assert used["total_tokens"] == used["prompt_tokens"] + used["completion_tokens"]
    assert llm.create_completion("Hi there", max_tokens=8, temperature=0.0)["choices"] == made["choices"]


def test_the_prompt_may_be_tokens_and_may_be_echoed(llm: Llama) -> None:
    tokens = llm.tokenize(b"Hi there")
    plain = llm("Hi there", max_tokens=4, temperature=0.0)["choices"][0]["text"]
    assert llm(tokens, max_tokens=4, temperature=0.0)["choices"][0]["text"] == plain
    assert llm("Hi there", max_tokens=4, temperature=0.0, echo=True)["choices"][0]["text"] == "Hi there" + plain


def test_a_stream_of_a_completion(llm: Llama) -> None:
    whole = llm("Hi", max_tokens=8, temperature=0.0)["choices"][0]
    chunks = list(llm("Hi", max_tokens=8, temperature=0.0, stream=True))
    assert "".join(chunk["choices"][0]["text"] for chunk in chunks) == whole["text"]
    reasons = [chunk["choices"][0]["finish_reason"] for chunk in chunks]
    assert reasons[-1] == whole["finish_reason"] and set(reasons[:-1]) <= {None}
    assert len({chunk["id"] for chunk in chunks}) == 1


def test_logprobs_of_a_completion(llm: Llama) -> None:
    table = llm("Hi", max_tokens=3, temperature=0.0, logprobs=2)["choices"][0]["logprobs"]
    assert {name: len(values) for name, values in table.items()} == {
        "tokens": 3, "text_offset": 3, "token_logprobs": 3, "top_logprobs": 3,
    }  # fmt: skip
    assert table["text_offset"][0] == 2  # behind the prompt
    for chosen, top in zip(table["token_logprobs"], table["top_logprobs"], strict=True):
        assert chosen == max(top.values()) < 0
    table = llm("Hi", max_tokens=3, temperature=0.0, logprobs=0)["choices"][0]["logprobs"]
    assert [list(top) for top in table["top_logprobs"]] == [[text] for text in table["tokens"]]


@pytest.mark.parametrize("begin", [[], ["bos"]])
def test_an_echoed_prompt_has_its_logprobs(llm: Llama, begin: list[str]) -> None:
    """All tokens but a BOS; the first has no chance, the others those of the model's logits."""
    said = llm.tokenize(b"Hi there")
    prompt = [llm.token_bos()] * len(begin) + said
    choice = llm(prompt, max_tokens=3, temperature=0.0, logprobs=2, echo=True)["choices"][0]
    table, whole = choice["logprobs"], [*prompt]
    for _ in range(3):
        whole.append(int(llm._model.logits(whole, last=True).argmax()))
    shown = whole[len(begin) :]
    assert table["tokens"] == [llm.detokenize([token]).decode(errors="replace") for token in shown]
    assert "".join(table["tokens"][: len(said)]) == "Hi there" == choice["text"][:8]
    assert table["text_offset"] == [len("".join(table["tokens"][:i])) for i in range(len(shown))]
    assert table["token_logprobs"][0] is None is table["top_logprobs"][0]
    rows = llm._model.logits(whole).astype(np.float64)
    for i, token in list(enumerate(whole))[len(begin) + 1 :]:
        want = rows[i - 1] - np.log(np.exp(rows[i - 1]).sum())
        at = i - len(begin)
        assert table["token_logprobs"][at] == pytest.approx(want[token], abs=1e-4)
        top = {llm._piece(int(j)): want[j] for j in np.argsort(-want)[:2][::-1]}
        assert table["top_logprobs"][at] == pytest.approx(top | {table["tokens"][at]: want[token]}, abs=1e-4)


def test_logprobs_of_streams(llm: Llama) -> None:
    settings = {"max_tokens": 4, "temperature": 0.0}
    whole = llm("Hi", logprobs=2, **settings)["choices"][0]["logprobs"]
    parts = [c["choices"][0]["logprobs"] for c in llm("Hi", logprobs=2, stream=True, **settings)]
    for name in ("tokens", "token_logprobs", "top_logprobs"):
        assert [value for part in parts if part for value in part[name]] == whole[name]
    asked = {"logprobs": True, "top_logprobs": 3, **settings}
    content = llm.create_chat_completion(MESSAGES, **asked)["choices"][0]["logprobs"]["content"]
    chunks = [c["choices"][0]["logprobs"] for c in llm.create_chat_completion(MESSAGES, stream=True, **asked)]
    assert [entry for part in chunks if part for entry in part["content"]] == content


def test_a_chat(llm: Llama) -> None:
    made = llm.create_chat_completion(MESSAGES, max_tokens=6, temperature=0.0)
    assert made["object"] == "chat.completion" and made["choices"][0]["message"]["role"] == "assistant"
    chunks = list(llm.create_chat_completion(MESSAGES, max_tokens=6, temperature=0.0, stream=True))
    deltas = [chunk["choices"][0]["delta"] for chunk in chunks]
    assert deltas[0] == {"role": "assistant"} and deltas[-1] == {} and chunks[0]["object"] == "chat.completion.chunk"
    assert "".join(delta.get("content", "") for delta in deltas) == made["choices"][0]["message"]["content"]
    assert chunks[-1]["choices"][0]["finish_reason"] == made["choices"][0]["finish_reason"]


def test_logprobs_of_a_chat(llm: Llama) -> None:
    made = llm.create_chat_completion(MESSAGES, max_tokens=2, temperature=0.0, logprobs=True, top_logprobs=3)
    first = made["choices"][0]["logprobs"]["content"][0]
    assert first.keys() == {"token", "logprob", "bytes", "top_logprobs"} and len(first["top_logprobs"]) == 3


def test_the_seed_of_the_model_and_of_a_call(llm: Llama) -> None:
    def text(**settings: Any) -> str:
        return str(llm("Hi", max_tokens=12, temperature=2.0, **settings)["choices"][0]["text"])

    assert text() == text() == text(seed=7) and text(seed=8) != text()


def test_a_chat_format(path: Path) -> None:
    chatml = Llama(path, chat_format="chatml", n_ctx=64)
    assert chatml.n_ctx() == 64
    assert chatml.create_chat_completion(MESSAGES, max_tokens=2)["choices"][0]["message"]["role"] == "assistant"
    with pytest.raises(UnsupportedError, match="chat_format='vicuna' is not supported"):
        Llama(path, chat_format="vicuna")


def test_embeddings(llm: Llama, path: Path) -> None:
    made = llm.create_embedding(["Hi", "there"])
    assert [entry["index"] for entry in made["data"]] == [0, 1] and made["usage"]["prompt_tokens"] > 1
    first = made["data"][0]["embedding"]
    assert len(first) == llm.n_embd() and math.isclose(np.linalg.norm(first), 1, rel_tol=1e-5)
    plain = np.array(llm.embed("Hi"))
    assert np.allclose(plain / np.linalg.norm(plain), first, atol=1e-6)
    with pytest.raises(SettingError, match="embedding: expected a Llama made with embedding=True"):
        Llama(path, n_ctx=64).create_embedding("Hi")


def test_tokens(llm: Llama) -> None:
    tokens = llm.tokenize(b"Hi <|im_end|>", special=True)
    assert tokens[-1] == llm.token_eos() and llm.token_bos() >= 0 and llm.n_vocab() == 300
    assert llm.detokenize(tokens) == b"Hi " and llm.detokenize(tokens, special=True) == b"Hi <|im_end|>"
    assert len(llm.tokenize(b"<|im_end|>")) > 1
    assert llm.detokenize(tokens[1:], prev_tokens=tokens[:1]) == b"Hi "[1:]
    assert llm.detokenize([llm.token_nl()]) == b"\n"
    with pytest.raises(SettingError, match="text: expected bytes, got 'Hi'"):
        llm.tokenize("Hi")  # type: ignore[arg-type]
    assert llm.detokenize(llm.tokenize("ü".encode())[:1]) == "ü".encode()[:1]


def test_eval_goes_on_until_reset(llm: Llama) -> None:
    tokens = llm.tokenize(b"Hi there")
    llm.reset()
    llm.eval(tokens[:2])
    llm.eval(tokens[2:])
    assert llm.n_tokens == len(tokens) and llm.eval_logits is not None
    there = llm.eval_logits.copy()
    llm.reset()
    llm.eval(tokens)
    assert np.array_equal(llm.eval_logits, there)
    llm.reset()
    assert llm.n_tokens == 0 and llm.eval_logits is None


def test_closing(path: Path) -> None:
    with Llama(path, n_ctx=64) as llm:
        llm.eval(llm.tokenize(b"Hi"))
        assert llm.n_tokens == 2
    llm.close()
    assert llm.n_tokens == 0
    for use in (lambda: llm("Hi"), llm.n_ctx, lambda: llm.tokenize(b"Hi")):
        with pytest.raises(SettingError, match="Llama: expected one that is open, got 'one that was closed'"):
            use()


def test_the_seed_can_be_set(path: Path) -> None:
    llm = Llama(path, n_ctx=64)
    llm.set_seed(5)
    first = llm("Hi", max_tokens=8, temperature=3.0)["choices"]
    assert first == llm("Hi", max_tokens=8, temperature=3.0, seed=5)["choices"]


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"stop": 5}, "stop: expected text, or a list of texts"),
        ({"max_tokens": "x"}, "max_tokens: expected a whole number"),
        ({"temperature": -1}, "temperature: expected a number of at least 0, got -1"),
        ({"logit_bias": {"x": 1}}, "logit_bias: expected a mapping from token ids to numbers"),
        ({"typical_p": 2}, "typical_p: expected a number from 0 to 1"),
    ],
    ids=str,
)
def test_values_that_make_no_sense_are_named(llm: Llama, settings: dict[str, Any], said: str) -> None:
    for call in (lambda: llm("Hi", **settings), lambda: llm.create_chat_completion(MESSAGES, **settings)):
        with pytest.raises(SettingError) as caught:
            call()
        assert said in str(caught.value)


def test_sizes_of_batches_change_nothing(llm: Llama, path: Path) -> None:
    other = Llama(path, seed=7, n_batch=128, n_ubatch=64)
    assert other("Hi", max_tokens=8)["choices"] == llm("Hi", max_tokens=8)["choices"]


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"n_gpu_layers": -1}, "Llama: n_gpu_layers=-1 is not supported\n  hint: leave it out, or pass 0"),
        ({"lora_path": "x"}, "lora_path='x' is not supported"),
        ({"n_context": 5}, "there is no argument 'n_context'"),
        ({"type_k": 2}, "type_k=2, type_v=None"),
        ({"draft_model": object}, "draft_model"),
    ],
)
def test_what_is_not_supported_is_refused(path: Path, settings: dict[str, Any], said: str) -> None:
    with pytest.raises(UnsupportedError) as caught:
        Llama(path, **settings)
    assert said in str(caught.value)


@pytest.mark.parametrize("settings", [{"mirostat_mode": 2}, {"tfs_z": 0.5}, {"suffix": "x"}, {"beams": 3}])
def test_settings_that_are_not_supported_are_refused(llm: Llama, settings: dict[str, Any]) -> None:
    with pytest.raises(UnsupportedError, match=next(iter(settings))):
        llm("Hi", **settings)
    with pytest.raises(UnsupportedError, match=next(iter(settings))):
        llm.create_chat_completion(MESSAGES, **settings)


def test_tools_are_refused(llm: Llama) -> None:
    with pytest.raises(UnsupportedError, match="tools"):
        llm.create_chat_completion(MESSAGES, tools=[{"type": "function"}])


def test_response_formats() -> None:
    assert schema_of(None) is None and schema_of({"type": "text"}) is None
    assert schema_of({"type": "json_object"}) == {"type": "object"}
    assert schema_of({"type": "json_object", "schema": {"type": "string"}}) == {"type": "string"}
    assert schema_of({"type": "json_schema", "json_schema": {"schema": {"a": 1}}}) == {"a": 1}
    with pytest.raises(UnsupportedError, match="type 'xml'"):
        schema_of({"type": "xml"})


def test_grammars() -> None:
    assert LlamaGrammar.from_string('root ::= "a"').text == 'root ::= "a"'
    assert LlamaGrammar.from_json_schema('{"type": "string"}').schema == {"type": "string"}
