"""llama-cpp-python's names: the shapes programs rely on, and that nothing is silently ignored."""

from __future__ import annotations

import inspect
import json
import math
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.models.encoders import tiny_encoder
from tests.models.tiny import tiny_model
from tetrad.compat.answers import token_text
from tetrad.compat.arguments import closed, schema_of
from tetrad.compat.llama_cpp import (
    Llama,
    LlamaGrammar,
    LlamaPromptLookupDecoding,
    LlamaRAMCache,
    LogitsProcessorList,
    MinTokensLogitsProcessor,
    StoppingCriteriaList,
)
from tetrad.core.errors import BusyError, ContextError, SettingError, UnsupportedError
from tetrad.formats import gguf

ORDER = {
    "create_completion": "prompt suffix max_tokens temperature top_p min_p typical_p logprobs echo "
    "stop "
    "frequency_penalty presence_penalty repeat_penalty top_k stream seed tfs_z mirostat_mode "
    "mirostat_tau mirostat_eta "
    "model stopping_criteria logits_processor grammar logit_bias",
    "create_chat_completion": "messages functions function_call tools tool_choice temperature "
    "top_p "
    "top_k "
    "min_p "
    "typical_p stream stop seed response_format max_tokens presence_penalty frequency_penalty "
    "repeat_penalty tfs_z "
    "mirostat_mode mirostat_tau mirostat_eta model logits_processor grammar logit_bias logprobs "
    "top_logprobs",
    "sample": "top_k top_p min_p typical_p temp repeat_penalty frequency_penalty presence_penalty "
    "tfs_z "
    "mirostat_mode "
    "mirostat_eta mirostat_tau penalize_nl logits_processor grammar idx",
    "generate": "tokens top_k top_p min_p typical_p temp repeat_penalty reset frequency_penalty "
    "presence_penalty tfs_z "
    "mirostat_mode mirostat_tau mirostat_eta penalize_nl logits_processor stopping_criteria "
    "grammar",
}
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
    assert (
        made["object"] == "text_completion"
        and made["id"].startswith("cmpl-")
        and made["model"] == str(path)
    )
    assert (
        choice.keys() == {"text", "index", "logprobs", "finish_reason"}
        and choice["logprobs"] is None
    )
    used = made["usage"]
    assert used["total_tokens"] == used["prompt_tokens"] + used["completion_tokens"]
    assert (
        llm.create_completion("Hi there", max_tokens=8, temperature=0.0)["choices"]
        == made["choices"]
    )


def test_the_prompt_may_be_tokens_and_may_be_echoed(llm: Llama) -> None:
    tokens = llm.tokenize(b"Hi there")
    plain = llm("Hi there", max_tokens=4, temperature=0.0)["choices"][0]["text"]
    assert llm(tokens, max_tokens=4, temperature=0.0)["choices"][0]["text"] == plain
    assert (
        llm("Hi there", max_tokens=4, temperature=0.0, echo=True)["choices"][0]["text"]
        == "Hi there" + plain
    )


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
        top = {
            token_text(llm._model.tokenizer, int(j)): want[j] for j in np.argsort(-want)[:2][::-1]
        }
        assert table["top_logprobs"][at] == pytest.approx(
            top | {table["tokens"][at]: want[token]}, abs=1e-4
        )


def test_logprobs_of_streams(llm: Llama) -> None:
    settings = {"max_tokens": 4, "temperature": 0.0}
    whole = llm("Hi", logprobs=2, **settings)["choices"][0]["logprobs"]
    parts = [c["choices"][0]["logprobs"] for c in llm("Hi", logprobs=2, stream=True, **settings)]
    for name in ("tokens", "token_logprobs", "top_logprobs"):
        assert [value for part in parts if part for value in part[name]] == whole[name]
    asked = {"logprobs": True, "top_logprobs": 3, **settings}
    content = llm.create_chat_completion(MESSAGES, **asked)["choices"][0]["logprobs"]["content"]
    chunks = [
        c["choices"][0]["logprobs"]
        for c in llm.create_chat_completion(MESSAGES, stream=True, **asked)
    ]
    assert [entry for part in chunks if part for entry in part["content"]] == content


def test_a_chat(llm: Llama) -> None:
    made = llm.create_chat_completion(MESSAGES, max_tokens=6, temperature=0.0)
    assert (
        made["object"] == "chat.completion" and made["choices"][0]["message"]["role"] == "assistant"
    )
    chunks = list(llm.create_chat_completion(MESSAGES, max_tokens=6, temperature=0.0, stream=True))
    deltas = [chunk["choices"][0]["delta"] for chunk in chunks]
    assert (
        deltas[0] == {"role": "assistant"}
        and deltas[-1] == {}
        and chunks[0]["object"] == "chat.completion.chunk"
    )
    assert (
        "".join(delta.get("content", "") for delta in deltas)
        == made["choices"][0]["message"]["content"]
    )
    assert chunks[-1]["choices"][0]["finish_reason"] == made["choices"][0]["finish_reason"]


def test_logprobs_of_a_chat(llm: Llama) -> None:
    made = llm.create_chat_completion(
        MESSAGES, max_tokens=2, temperature=0.0, logprobs=True, top_logprobs=3
    )
    first = made["choices"][0]["logprobs"]["content"][0]
    assert (
        first.keys() == {"token", "logprob", "bytes", "top_logprobs"}
        and len(first["top_logprobs"]) == 3
    )


def test_the_seed_of_the_model_and_of_a_call(llm: Llama) -> None:
    def text(**settings: Any) -> str:
        return str(llm("Hi", max_tokens=12, temperature=2.0, **settings)["choices"][0]["text"])

    assert text() == text() == text(seed=7) and text(seed=8) != text()
    for random in (-1, 0xFFFFFFFF):  # "draw one", in Python and in C
        assert len({text(seed=random) for _ in range(4)}) > 1


def test_a_chat_format(path: Path) -> None:
    chatml = Llama(path, chat_format="chatml", n_ctx=64)
    assert chatml.n_ctx() == 64
    assert (
        chatml.create_chat_completion(MESSAGES, max_tokens=2)["choices"][0]["message"]["role"]
        == "assistant"
    )
    with pytest.raises(
        UnsupportedError, match=r"chat_format='nonsense' is not supported\n  hint: .*chatml, comm"
    ):
        Llama(path, chat_format="nonsense")
    vicuna = Llama(path, chat_format="vicuna", n_ctx=64)
    assert (
        vicuna._model.template.render(MESSAGES) == "USER: Hi there\nASSISTANT:"
        and vicuna.chat_format == "vicuna"
    )


def test_embeddings(llm: Llama, path: Path) -> None:
    made = llm.create_embedding(["Hi", "there"])
    assert [entry["index"] for entry in made["data"]] == [0, 1] and made["usage"][
        "prompt_tokens"
    ] > 1
    first = made["data"][0]["embedding"]
    plain = np.array(llm.embed("Hi"))
    assert len(first) == llm.n_embd() and np.array_equal(plain, first)
    assert not math.isclose(np.linalg.norm(first), 1, rel_tol=1e-3)
    assert np.allclose(plain / np.linalg.norm(plain), llm.embed("Hi", normalize=True), atol=1e-6)
    with pytest.raises(SettingError, match="embedding: expected a Llama made with embedding=True"):
        Llama(path, n_ctx=64).create_embedding("Hi")


def test_tokens(llm: Llama) -> None:
    tokens = llm.tokenize(b"Hi <|im_end|>", special=True)
    assert tokens[-1] == llm.token_eos() and llm.token_bos() >= 0 and llm.n_vocab() == 300
    assert (
        llm.detokenize(tokens) == b"Hi "
        and llm.detokenize(tokens, special=True) == b"Hi <|im_end|>"
    )
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
    (there,) = llm.eval_logits
    assert np.array_equal(llm.scores, llm._model.logits(tokens)) and np.array_equal(
        llm.scores[-1], np.float32(there)
    )
    assert llm.input_ids.tolist() == tokens == llm._input_ids.tolist() == list(llm.eval_tokens)
    llm.reset()
    llm.eval(tokens)
    assert list(llm.eval_logits) == [there]
    llm.reset()
    assert llm.n_tokens == 0 and not llm.eval_logits and llm.scores.shape == (0, 300)


def test_all_logits_are_kept_where_asked_for(path: Path, llm: Llama) -> None:
    keeps, tokens = Llama(path, logits_all=True, n_ctx=128), llm.tokenize(b"Hi there, how is it")
    for part in (tokens[:3], tokens[3:4], tokens[4:]):
        keeps.eval(part)
    assert np.array_equal(keeps.scores, llm._model.logits(tokens)) and len(
        keeps.eval_logits
    ) == len(tokens)
    assert keeps.sample(temp=0.0, idx=2) == keeps.scores[2].argmax()
    assert keeps.sample(top_k=1) == keeps.scores[-1].argmax()


def test_tokens_one_after_another(llm: Llama) -> None:
    tokens, found = llm.tokenize(b"Hi there"), list[int]()
    for token in llm.generate(tokens, temp=0.0):
        found.append(token)
        if len(found) == 6:
            break
    text = llm("Hi there", temperature=0.0)["choices"][0]["text"]
    assert llm.detokenize(found).decode(errors="replace")[:3] == text[:3]
    # those of the completion; its last token was not evaluated
    assert llm.n_tokens == len(tokens) + 15
    steps = llm.generate(tokens, temp=0.0)
    next(steps)
    assert steps.send([5, 6]) == llm._model.logits([*tokens, found[0], 5, 6], last=True).argmax()
    ends = StoppingCriteriaList([lambda ids, row: len(ids) > len(tokens) + 2])
    assert list(llm.generate(tokens, temp=0.0, stopping_criteria=ends)) == found[:3]


def test_drawn_tokens_repeat_with_the_seed(llm: Llama) -> None:
    def drawn() -> list[int]:
        return [
            token
            for token, _ in zip(llm.generate([5, 6, 7], temp=3.0, top_k=0), range(8), strict=False)
        ]

    assert drawn() == drawn()
    assert llm.sample(temp=3.0, top_k=0) == llm.sample(temp=3.0, top_k=0)


def test_states_go_on_where_they_were_saved(path: Path) -> None:
    llm, other = (Llama(path, n_ctx=n, seed=7) for n in (128, 64))
    llm.eval(tokens := llm.tokenize(b"Hi there, how is it"))
    state = pickle.loads(pickle.dumps(llm.save_state()))
    llm.eval([7, 8])
    want = llm.scores[-1].copy()
    llm("something else", max_tokens=20)
    for one in (llm, other):
        one.load_state(state)
        assert (
            one.n_tokens == len(tokens) == state.n_tokens
            and one.sample(temp=0.0) == state.scores[0].argmax()
        )
        done = one._model.generate([*tokens, 7], max_tokens=1)
        assert done.cached_tokens == len(tokens)
        one.load_state(state)
        one.eval([7, 8])
        assert np.array_equal(one.scores[-1], want)
    with pytest.raises(SettingError, match="state: expected one that a Llama of this model"):
        Llama(path, n_ctx=64, type_k=0, type_v=0).load_state(state)
    with pytest.raises(SettingError, match="tokens that were evaluated"):
        Llama(path, n_ctx=64).save_state()


def test_arguments_may_be_given_by_their_places(llm: Llama) -> None:
    named = llm("Hi", max_tokens=5, temperature=0.0)["choices"]
    assert (
        llm("Hi", None, 5, 0.0)["choices"]
        == llm.create_completion("Hi", None, 5, 0.0)["choices"]
        == named
    )
    chat = llm.create_chat_completion(MESSAGES, None, None, None, None, 0.0, max_tokens=3)[
        "choices"
    ]
    assert chat == llm.create_chat_completion(MESSAGES, temperature=0.0, max_tokens=3)["choices"]


def test_arguments_and_defaults_are_those_of_llama_cpp_python() -> None:
    """Order and defaults of llama-cpp-python 0.3, which programs rely on by position."""
    shown = {name: inspect.signature(getattr(Llama, name)).parameters for name in ORDER}
    for name, order in ORDER.items():
        assert list(shown[name])[1:] == order.split()
    assert shown["create_completion"]["max_tokens"].default == 16
    assert shown["create_completion"]["temperature"].default == 0.8
    assert shown["create_chat_completion"]["temperature"].default == 0.2
    assert shown["create_chat_completion"]["max_tokens"].default is None
    assert shown["sample"]["temp"].default == 0.8


def test_a_repeated_argument_and_one_too_many(llm: Llama) -> None:
    with pytest.raises(TypeError, match="max_tokens"):
        llm.create_completion("a", None, 3, max_tokens=3)
    with pytest.raises(TypeError, match="too many"):
        llm.sample(*range(40))
    with pytest.raises(UnsupportedError, match="sample: there is no argument 'warmth'"):
        llm.sample(warmth=1)


def test_an_encoder_has_embeddings_only(tmp_path: Path) -> None:
    gguf.write(tmp_path / "bert.gguf", *tiny_encoder("bert"))
    llm = Llama(str(tmp_path / "bert.gguf"), embedding=True)
    assert len(llm.create_embedding(["the cat", "a dog"])["data"]) == 2
    with pytest.raises(UnsupportedError, match="bert is an encoder"):
        llm("the cat")


def test_it_is_pickled_by_its_arguments(path: Path) -> None:
    made = Llama(path, n_ctx=64, seed=3, embedding=True, chat_format="chatml", verbose=False)
    again = pickle.loads(pickle.dumps(made))
    assert (again.n_ctx(), again.seed, again.embedding, again.chat_format) == (
        64,
        3,
        True,
        "chatml",
    )
    assert again("Hi", max_tokens=4)["choices"] == made("Hi", max_tokens=4)["choices"]


def test_attributes_that_programs_read(path: Path) -> None:
    made = Llama(path, n_ctx=64, n_threads=0, n_batch=512, verbose=False)
    assert (
        made.context_params.n_ctx == 64 == made.n_batch
        and made.verbose is False
        and made.n_threads >= 1
    )
    assert made.cache is None is made.draft_model and made.chat_handler is None
    assert made("Hi", max_tokens=1)["usage"]["completion_tokens"] == 1


def test_an_answer_of_so_many_tokens_at_least(llm: Llama) -> None:
    rows = [np.zeros(4, np.float32) for _ in range(3)]
    at_least = MinTokensLogitsProcessor(2, 1)
    found = [at_least(np.arange(3 + i), row) for i, row in enumerate(rows)]
    assert [bool(np.isneginf(row[1])) for row in found] == [True, True, False]


@pytest.mark.parametrize("open_object", [
    {"properties": {"a": {}}, "additionalProperties": True},
    {"allOf": [{"properties": {"a": {}}}, {"properties": {"b": {}}}]},
    {"properties": {"a": {}}, "patternProperties": {"^b": {}}},
    {"properties": {"a": {}}, "$ref": "#/$defs/b"},
    {"type": "object"},
    {"enum": [{"properties": {"a": 1}}]},
    True,
])  # fmt: skip
def test_schemas_that_say_what_else_there_may_be_stay_as_they_are(open_object: Any) -> None:
    assert closed(open_object) == open_object


def test_objects_have_no_more_properties_than_their_schema_names(llm: Llama) -> None:
    inner = {"properties": {"properties": {"type": "integer"}}}
    want = inner | {"additionalProperties": False}
    assert closed({"type": "array", "items": inner}) == {"type": "array", "items": want}
    assert closed({"properties": {"p": inner}})["properties"] == {"p": want}
    assert closed({"anyOf": [inner], "$defs": {"x": inner}}) == {
        "anyOf": [want],
        "$defs": {"x": want},
    }
    only = {"type": "object", "properties": {"x": {"enum": ["a"]}}, "required": ["x"]}
    asked = {
        "response_format": {"type": "json_object", "schema": only},
        "temperature": 0.0,
        "max_tokens": 200,
    }
    assert json.loads(
        llm.create_chat_completion(MESSAGES, **asked)["choices"][0]["message"]["content"]
    ) == {"x": "a"}


FUNCTION = {
    "name": "f",
    "parameters": {"type": "object", "properties": {"x": {"enum": ["a"]}}, "required": ["x"]},
}
TOOLS = [{"type": "function", "function": FUNCTION}]


@pytest.fixture(scope="module")
def roomy(tmp_path_factory: pytest.TempPathFactory) -> Llama:
    """With room for what a model is told of tools."""
    made = tmp_path_factory.mktemp("compat") / "roomy.gguf"
    gguf.write(made, *tiny_model("llama", context=1024))
    return Llama(model_path=str(made), seed=7, verbose=False)


def test_functions_are_the_older_name_of_tools(roomy: Llama) -> None:
    settings = {"temperature": 0.0, "max_tokens": 120}
    asked = {"tools": TOOLS, "tool_choice": "required"}
    want = roomy.create_chat_completion(MESSAGES, **asked, **settings)["choices"][0]
    found = roomy.create_chat_completion(
        MESSAGES, functions=[FUNCTION], function_call={"name": "f"}, **settings
    )
    message = found["choices"][0]["message"]
    assert (
        message["function_call"]
        == message["tool_calls"][0]["function"]
        == want["message"]["function_call"]
    )
    assert json.loads(message["function_call"]["arguments"]) == {"x": "a"}
    none = roomy.create_chat_completion(
        MESSAGES, functions=[FUNCTION], function_call="none", max_tokens=2
    )
    assert "function_call" not in none["choices"][0]["message"]


def test_a_stream_that_was_left_makes_room_for_the_next_call(llm: Llama) -> None:
    """As there: programs break off a loop over a stream, and ask again while they still hold it."""
    want = llm("Hi", max_tokens=6, temperature=0.0)["choices"]
    for ask in (lambda: llm("the", max_tokens=20, stream=True),
                lambda: llm.create_chat_completion(MESSAGES, max_tokens=20,
                stream=True)):  # fmt: skip
        left = ask()
        next(left), next(left)
        assert llm("Hi", max_tokens=6, temperature=0.0)["choices"] == want
        with pytest.raises(BusyError, match="given up when another call began"):
            list(left)
    first, second = (
        llm("the", max_tokens=20, stream=True),
        llm("Hi", max_tokens=6, temperature=0.0, stream=True),
    )
    next(first)
    assert "".join(chunk["choices"][0]["text"] for chunk in second) == want[0]["text"]
    left = llm("the", max_tokens=20, stream=True)
    next(left)
    llm.reset()
    llm.eval(llm.tokenize(b"Hi"))
    assert llm.n_tokens == len(llm.tokenize(b"Hi"))


@pytest.mark.parametrize(("settings", "said"), [
    ({"response_format": "json"}, "response_format: expected a mapping"),
    ({"response_format": {"type": "json_schema"}}, "json_schema.*schema"),
    ({"tools": {"a": 1}}, "tools: expected a list of mappings"),
    ({"functions": "f"}, "functions: expected a list of mappings"),
    ({"grammar": "root ::= x"}, "grammar: expected a LlamaGrammar"),
    ({"max_tokens": 5.0}, "max_tokens: expected a whole number, or None"),
])  # fmt: skip
def test_settings_of_the_wrong_kind_are_named(
    llm: Llama, settings: dict[str, Any], said: str
) -> None:
    with pytest.raises(SettingError, match=said):
        llm.create_chat_completion(MESSAGES, **settings)


def test_functions_of_the_logits(llm: Llama) -> None:
    def only(token: int) -> Any:
        def processor(ids: np.ndarray, row: np.ndarray) -> np.ndarray:
            row[token] = 99 if len(ids) % 2 else row[token]
            return row

        return processor

    tokens = llm.tokenize(b"Hi there")
    settings = {"max_tokens": 4, "temperature": 0.0}
    plain = llm(tokens, logits_processor=only(40), **settings)["choices"]
    assert (
        plain
        == llm(tokens, logits_processor=LogitsProcessorList([only(40)]), **settings)["choices"]
    )
    assert plain != llm(tokens, **settings)["choices"]
    assert llm.create_chat_completion(MESSAGES, logits_processor=[only(40)], **settings)["choices"][
        0
    ]["message"]
    stops = llm(tokens, stopping_criteria=lambda ids, row: len(ids) == len(tokens) + 2, **settings)
    assert (
        stops["usage"]["completion_tokens"] == 2 and stops["choices"][0]["finish_reason"] == "stop"
    )
    with pytest.raises(SettingError, match="logits_processor: expected a function"):
        llm("Hi", logits_processor=5)  # type: ignore[arg-type]


def test_mirostat_and_guesses(llm: Llama, path: Path) -> None:
    drawn = [
        llm("Hi", max_tokens=8, mirostat_mode=m, temperature=2.0)["choices"][0]["text"]
        for m in (0, 2, 2)
    ]
    assert drawn[0] != drawn[1] == drawn[2]
    guesses = Llama(path, seed=7, draft_model=LlamaPromptLookupDecoding(num_pred_tokens=4))
    assert (
        guesses("a b a b a b", max_tokens=20)["choices"]
        == llm("a b a b a b", max_tokens=20)["choices"]
    )


def calls_of(llm: Llama, **settings: Any) -> list[tuple[str, Any]]:
    """Names and arguments of the calls in an answer, which are the same in a stream."""
    asked = {"temperature": 0.0, "max_tokens": 200, **settings}
    choice = llm.create_chat_completion(MESSAGES, **asked)["choices"][0]
    calls = choice["message"].get("tool_calls", [])
    assert (choice["finish_reason"] == "tool_calls") == bool(calls)
    chunks = [c["choices"][0] for c in llm.create_chat_completion(MESSAGES, stream=True, **asked)]
    parts = [part for c in chunks for part in c["delta"].get("tool_calls", ())]
    assert chunks[-1]["finish_reason"] == choice["finish_reason"]
    names = [part["function"]["name"] for part in parts if "name" in part["function"]]
    arguments = [""] * len(names)
    for part in parts:
        arguments[part["index"]] += part["function"]["arguments"]
    assert names == [call["function"]["name"] for call in calls]
    assert arguments == [call["function"]["arguments"] for call in calls]
    return [(name, json.loads(text)) for name, text in zip(names, arguments, strict=True)]


OTHER = {"type": "function", "function": {"name": "g", "parameters": {}}}


@pytest.mark.parametrize("choice", [{"type": "function", "function": {"name": "f"}}, "f"], ids=str)
def test_a_tool_that_is_named_is_called(roomy: Llama, choice: Any) -> None:
    calls = calls_of(roomy, tools=[*TOOLS, OTHER], tool_choice=choice)
    assert calls and all(call == ("f", {"x": "a"}) for call in calls)


def test_one_of_several_tools_is_called_where_one_is_required(roomy: Llama) -> None:
    calls = calls_of(roomy, tools=[*TOOLS, OTHER], tool_choice="required")
    assert calls and all(call in (("f", {"x": "a"}), ("g", {})) for call in calls)


@pytest.mark.parametrize("choice", ["auto", None])
def test_a_free_answer_may_call_tools(roomy: Llama, choice: str | None) -> None:
    """A model of random weights calls none by itself: a processor makes it say what a call is."""
    call = roomy._model.chat(
        MESSAGES, tools=TOOLS, tool_choice="required", temperature=0.0, max_tokens=200
    )
    start = call.prompt_tokens
    assert call.tool_calls

    def as_before(tokens: np.ndarray, logits: np.ndarray) -> np.ndarray:
        at = len(tokens) - start
        wanted = call.tokens[at] if at < len(call.tokens) else roomy.token_eos()
        return np.where(np.arange(len(logits)) == wanted, logits, -np.inf)

    found = calls_of(roomy, tools=TOOLS, tool_choice=choice, logits_processor=as_before)
    assert found == [("f", {"x": "a"})] * len(call.tool_calls)


def test_a_free_answer_may_be_text(roomy: Llama) -> None:
    asked = {"tools": TOOLS, "max_tokens": 4, "temperature": 0.0}
    for choice in ("auto", None, "none"):
        made = roomy.create_chat_completion(MESSAGES, tool_choice=choice, **asked)["choices"][0]
        assert made["finish_reason"] == "length" and "tool_calls" not in made["message"]
        assert isinstance(made["message"]["content"], str)


def test_a_tool_that_is_not_there_is_refused(roomy: Llama) -> None:
    with pytest.raises(SettingError, match="tool_choice: expected 'none', 'auto', 'required'"):
        roomy.create_chat_completion(
            MESSAGES, tools=TOOLS, tool_choice={"type": "function", "function": {"name": "g"}}
        )


def test_what_changes_nothing_is_a_warning(path: Path) -> None:
    with pytest.warns(
        UserWarning, match="n_gpu_layers=-1 has no effect: everything runs on the CPU"
    ):
        Llama(path, n_ctx=64, n_gpu_layers=-1)
    with pytest.warns(UserWarning, match="set_cache has no effect"):
        Llama(path, n_ctx=64, n_gpu_layers=0, use_mmap=True, verbose=True, n_batch=8).set_cache(
            LlamaRAMCache()
        )


def test_arguments_that_are_none_are_a_warning_as_there(path: Path) -> None:
    with pytest.warns(UserWarning, match="n_context=5 is no argument of it; did you mean n_ctx"):
        assert Llama(path, n_context=5).n_ctx() == 256


def test_positions_and_keys_of_the_file(path: Path) -> None:
    longer = Llama(
        path,
        n_ctx=64,
        rope_freq_base=5e5,
        rope_scaling_type=2,
        rope_freq_scale=0.25,
        yarn_orig_ctx=64,
    )
    said = longer._model.metadata
    assert said["llama.rope.scaling.type"] == "yarn" and said["llama.rope.scaling.factor"] == 4
    assert (
        said["llama.rope.freq_base"] == 5e5
        and said["llama.rope.scaling.original_context_length"] == 64
    )
    other = Llama(path, n_ctx=64, kv_overrides={"general.name": "other"}, pooling_type=3)
    assert other.metadata["general.name"] == "other" and other.pooling_type() == 3


def test_small_helpers(llm: Llama) -> None:
    assert np.allclose(np.exp(llm.logits_to_logprobs([1.0, 2.0, 3.0])).sum(), 1)
    assert (
        llm.longest_token_prefix([1, 2, 3], [1, 2, 4])
        == 2
        == llm.longest_token_prefix([1, 2], [1, 2, 4])
    )
    tokenizer = llm.tokenizer()
    assert tokenizer.decode(tokenizer.encode("Hi there")) == "Hi there"
    vector, count = llm.embed("Hi there", return_count=True)
    assert len(vector) == llm.n_embd() and count == len(llm.tokenize(b"Hi there"))
    with pytest.raises(ContextError, match="601 tokens"):
        llm.embed("a " * 600, truncate=False)
    with pytest.warns(UserWarning, match="of 601 tokens the first 256 are taken") as said:
        assert len(llm.embed("a " * 600)) == llm.n_embd()
    assert said[0].filename == __file__


def test_closing(path: Path) -> None:
    with Llama(path, n_ctx=64) as llm:
        llm.eval(llm.tokenize(b"Hi"))
        assert llm.n_tokens == 2
    llm.close()
    assert llm.n_tokens == 0
    for use in (lambda: llm("Hi"), llm.n_ctx, lambda: llm.tokenize(b"Hi")):
        with pytest.raises(
            SettingError, match="Llama: expected one that is open, got 'one that was closed'"
        ):
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
def test_values_that_make_no_sense_are_named(
    llm: Llama, settings: dict[str, Any], said: str
) -> None:
    for call in (
        lambda: llm("Hi", **settings),
        lambda: llm.create_chat_completion(MESSAGES, **settings),
    ):
        with pytest.raises(SettingError) as caught:
            call()
        assert said in str(caught.value)


def test_sizes_of_batches_change_nothing(llm: Llama, path: Path) -> None:
    other = Llama(path, seed=7, n_batch=128, n_ubatch=64)
    assert other("Hi", max_tokens=8)["choices"] == llm("Hi", max_tokens=8)["choices"]


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (
            {"lora_path": "x"},
            "Llama: lora_path='x' is not supported\n  hint: leave it out, or pass None",
        ),
        ({"rope_scaling_type": 9}, "rope_scaling_type=9"),
        ({"type_k": 2}, "type_k=2, type_v=None"),
        ({"draft_model": object}, "draft_model"),
    ],
)
def test_what_is_not_supported_is_refused(path: Path, settings: dict[str, Any], said: str) -> None:
    with pytest.raises(UnsupportedError) as caught:
        Llama(path, **settings)
    assert said in str(caught.value)


@pytest.mark.parametrize("settings", [{"tfs_z": 0.5}, {"suffix": "x"}, {"beams": 3}])
def test_settings_that_are_not_supported_are_refused(llm: Llama, settings: dict[str, Any]) -> None:
    with pytest.raises(UnsupportedError, match=next(iter(settings))):
        llm("Hi", **settings)
    with pytest.raises(UnsupportedError, match=next(iter(settings))):
        llm.create_chat_completion(MESSAGES, **settings)


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
