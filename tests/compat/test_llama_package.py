"""llama-cpp-python's modules: names where programs look for them, drafts, formats of chats, caches,
and what LangChain passes."""

from __future__ import annotations

import importlib
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gguf.constants import GGMLQuantizationType, LlamaFileType, PoolingType, TokenType

from tests.models.tiny import tiny_model
from tetrad.compat import llama_cpp
from tetrad.compat.llama_cpp import Llama, LlamaGrammar, LlamaState
from tetrad.compat.llama_cpp.llama_cache import LlamaDiskCache, LlamaRAMCache
from tetrad.compat.llama_cpp.llama_chat_format import (
    ChatFormatterResponse,
    Jinja2ChatFormatter,
    LlamaChatCompletionHandlerNotFoundException,
    Llava15ChatHandler,
    get_chat_completion_handler,
    register_chat_completion_handler,
    register_chat_format,
)
from tetrad.compat.llama_cpp.llama_grammar import JSON_GBNF
from tetrad.compat.llama_cpp.llama_speculative import LlamaDraftModel, LlamaPromptLookupDecoding
from tetrad.compat.llama_cpp.llama_tokenizer import LlamaHFTokenizer, LlamaTokenizer
from tetrad.core.errors import SettingError, UnsupportedError
from tetrad.formats import gguf

MESSAGES = [{"role": "user", "content": "Hi there"}]
MODULES = (
    "llama", "llama_cache", "llama_chat_format", "llama_cpp", "llama_grammar", "llama_speculative",
    "llama_tokenizer", "llama_types",
)  # fmt: skip


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("package") / "tiny.gguf"
    gguf.write(made, *tiny_model("llama", context=1024))
    return made


@pytest.fixture(scope="module")
def llm(path: Path) -> Llama:
    return Llama(model_path=str(path), seed=7, n_ctx=256, verbose=False)


# -- names -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", MODULES)
def test_the_modules_are_there_at_once(name: str) -> None:
    found = importlib.import_module(f"tetrad.compat.llama_cpp.{name}")
    assert getattr(llama_cpp, name).__file__ == found.__file__


def test_under_the_name_of_the_other_package_the_classes_are_the_same() -> None:
    program = """
import sys, tetrad.compat.llama_cpp as ours
sys.modules["llama_cpp"] = ours
import llama_cpp.llama_types
from llama_cpp import Llama, LlamaGrammar, llama_chat_format
from llama_cpp.llama_speculative import LlamaPromptLookupDecoding
from llama_cpp.llama_cpp import GGML_TYPE_Q8_0
assert Llama is ours.Llama and LlamaGrammar is ours.LlamaGrammar
assert LlamaPromptLookupDecoding is ours.LlamaPromptLookupDecoding
assert llama_chat_format.Jinja2ChatFormatter is ours.llama_chat_format.Jinja2ChatFormatter
assert llama_cpp.llama_types.ChatCompletion is ours.llama_types.ChatCompletion
print(GGML_TYPE_Q8_0)
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert done.stdout == "8\n", done.stderr


def test_numbers_are_those_of_the_format() -> None:
    def ours(prefix: str) -> dict[str, int]:
        found = {n: v for n, v in vars(llama_cpp).items() if n.startswith(prefix)}
        return {name.removeprefix(prefix): value for name, value in found.items()}

    for prefix, theirs in (
        ("GGML_TYPE_", GGMLQuantizationType),
        ("LLAMA_FTYPE_", LlamaFileType),
        ("LLAMA_POOLING_TYPE_", PoolingType),
        ("LLAMA_TOKEN_TYPE_", TokenType),
    ):
        numbers = {member.name: int(member) for member in theirs}
        shared = ours(prefix).keys() & numbers.keys()
        assert len(shared) >= 5
        assert {n: ours(prefix)[n] for n in shared} == {n: numbers[n] for n in shared}


def test_functions_of_c() -> None:
    llama_cpp.llama_backend_init()
    llama_cpp.llama_log_set(llama_cpp.llama_log_callback(print), None)
    assert llama_cpp.llama_supports_mmap() and not llama_cpp.llama_supports_gpu_offload()
    assert b"threads" in llama_cpp.llama_print_system_info() and llama_cpp.llama_time_us() > 0
    with pytest.raises(AttributeError, match="no 'llama_decode': there is no C library below it"):
        _ = llama_cpp.llama_decode
    assert not hasattr(llama_cpp.llama_cpp, "nothing_of_it")


def test_types_say_what_answers_are(llm: Llama) -> None:
    types = llama_cpp.llama_types
    made = llm("Hi", max_tokens=2)
    assert made.keys() == types.CreateCompletionResponse.__annotations__.keys()
    assert made["usage"].keys() == types.CompletionUsage.__annotations__.keys()
    chat = llm.create_chat_completion(MESSAGES, max_tokens=2)
    assert chat.keys() == types.ChatCompletion.__annotations__.keys()
    assert len([n for n in vars(types) if n[0].isupper()]) > 50


# -- drafts ----------------------------------------------------------------------------------------


class Echo(LlamaDraftModel):
    """Guesses that the last token comes again, and counts how often it was asked."""

    asked = 0

    def __call__(self, input_ids: np.ndarray, /, **kwargs: Any) -> np.ndarray:
        self.asked += 1
        return np.repeat(input_ids[-1:], 3)


@pytest.mark.parametrize(
    "draft", [Echo(), LlamaPromptLookupDecoding(max_ngram_size=3)], ids=["echo", "lookup"]
)
def test_guesses_change_nothing_of_an_answer(path: Path, llm: Llama, draft: Any) -> None:
    guessing = Llama(str(path), seed=7, n_ctx=256, draft_model=draft)
    for settings in ({"temperature": 0.0}, {"temperature": 1.0}, {"repeat_penalty": 1.2}):
        want = llm("a b a b a b", max_tokens=20, **settings)["choices"]
        assert guessing("a b a b a b", max_tokens=20, **settings)["choices"] == want
    assert not isinstance(draft, Echo) or draft.asked > 10


def test_a_guess_that_is_no_token_is_named(path: Path) -> None:
    guessing = Llama(str(path), n_ctx=256, draft_model=lambda tokens: [1 << 20])
    with pytest.raises(SettingError, match="speculate: a token that was guessed"):
        guessing("a b", max_tokens=8)


def test_lookup_takes_the_longest_pattern() -> None:
    look = LlamaPromptLookupDecoding.find_candidate_pred_tokens
    tokens = np.array([1, 2, 3, 9, 2, 7, 1, 2])
    assert look(tokens, 2, 2).tolist() == [3, 9] and look(tokens, 1, 1).tolist() == [7]
    assert look(tokens, 2, 2).dtype == np.intc and look(np.array([1, 2]), 2, 5).size == 0


# -- penalties -------------------------------------------------------------------------------------


def test_penalties_count_the_answer_alone(llm: Llama) -> None:
    """As there: a new sampler for every answer, which never hears of the prompt."""
    prompt = llm.tokenize(b"Hi there Hi there")
    first = llm(prompt, max_tokens=1, temperature=0.0)["choices"]
    # a penalty that forbids what was counted: the first token of an answer cannot be forbidden
    assert llm(prompt, max_tokens=1, temperature=0.0, repeat_penalty=1e9)["choices"] == first
    asked = {"temp": 0.0, "repeat_penalty": 1e9, "top_k": 0}
    tokens = llm.generate(prompt, **asked)
    written = [next(tokens) for _ in range(12)]
    assert len(set(written)) == 12  # none comes twice
    whole = llm._model.generate(
        prompt, max_tokens=12, temperature=0.0, repeat_penalty=1e9, penalize_prompt=False
    )
    assert whole.tokens[:12] == written[: len(whole.tokens)]
    with_prompt = llm._model.generate(prompt, max_tokens=12, temperature=0.0, repeat_penalty=1e9)
    assert not set(with_prompt.tokens) & set(prompt)


# -- formats of chats ------------------------------------------------------------------------------


def test_a_template_of_the_program(path: Path, llm: Llama) -> None:
    template = "Q: {{ messages[-1].content }}\nA:"
    begin, end = llm.begin_and_end()
    handler = Jinja2ChatFormatter(template, end, begin).to_chat_handler()
    asked = Llama(str(path), n_ctx=256, chat_handler=handler)
    found = asked.create_chat_completion(MESSAGES, max_tokens=6, temperature=0.0)
    want = llm("Q: Hi there\nA:", max_tokens=6, temperature=0.0)
    assert found["object"] == "chat.completion"
    assert found["choices"][0]["message"]["content"] == want["choices"][0]["text"]
    assert found["usage"] == want["usage"]
    parts = [
        chunk["choices"][0]["delta"].get("content", "")
        for chunk in asked.create_chat_completion(
            MESSAGES, max_tokens=6, temperature=0.0, stream=True
        )
    ]
    assert "".join(parts) == want["choices"][0]["text"]


def test_a_format_that_was_registered(path: Path, llm: Llama) -> None:
    @register_chat_format("shout")
    def shout(messages: Any, **kwargs: Any) -> ChatFormatterResponse:
        return ChatFormatterResponse(messages[-1]["content"].upper(), stop="\0")

    asked = Llama(str(path), n_ctx=256, chat_format="shout")
    found = asked.create_chat_completion(MESSAGES, max_tokens=6, temperature=0.0)
    want = llm("HI THERE", max_tokens=6, temperature=0.0)["choices"][0]["text"]
    assert found["choices"][0]["message"]["content"] == want
    assert get_chat_completion_handler("shout")(llama=llm, messages=MESSAGES, max_tokens=1)


def test_a_handler_that_answers_by_itself(path: Path) -> None:
    @register_chat_completion_handler("parrot")
    def parrot(llama: Llama, messages: Any, **settings: Any) -> Any:
        return {"said": messages[-1]["content"], "temperature": settings["temperature"]}

    asked = Llama(str(path), n_ctx=256, chat_format="parrot")
    assert asked.create_chat_completion(MESSAGES) == {"said": "Hi there", "temperature": 0.2}


def test_handlers_by_name(path: Path, llm: Llama) -> None:
    found = get_chat_completion_handler("chatml")(
        llama=llm, messages=MESSAGES, max_tokens=4, temperature=0.0
    )
    own = Llama(str(path), n_ctx=256, chat_format="chatml")
    want = own.create_chat_completion(MESSAGES, max_tokens=4, temperature=0.0)
    assert found["choices"] == want["choices"]
    with pytest.raises(LlamaChatCompletionHandlerNotFoundException, match="'nobody'"):
        get_chat_completion_handler("nobody")


def test_images_are_a_clear_error(llm: Llama) -> None:
    with pytest.raises(UnsupportedError, match="Llava15ChatHandler: images are not supported"):
        Llava15ChatHandler(clip_model_path="mmproj.gguf")
    with pytest.raises(UnsupportedError, match="Llava15ChatHandler: images are not supported"):
        Llava15ChatHandler.from_pretrained("repo", "*.gguf")
    parts = [
        {"type": "text", "text": "What is this?"},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}},
    ]
    with pytest.raises(UnsupportedError) as caught:
        llm.create_chat_completion([*MESSAGES, {"role": "user", "content": parts}])
    assert "messages[1]: a part of type 'image_url' is not supported" in str(caught.value)
    assert "models here read text alone" in str(caught.value)


def test_a_grammar_of_any_object(llm: Llama) -> None:
    grammar = LlamaGrammar.from_string(JSON_GBNF)
    text = llm("Hi", grammar=grammar, max_tokens=30, temperature=0.0)["choices"][0]["text"]
    assert text.startswith("{")


# -- caches and tokenisers -------------------------------------------------------------------------


def state(size: int) -> LlamaState:
    ids = np.arange(size, dtype=np.intc)
    return LlamaState(ids, np.ones((1, 4), np.float32), size, bytes(size), size, 5)


@pytest.mark.parametrize("kind", ["memory", "folder"])
def test_states_are_found_by_how_they_begin(kind: str, tmp_path: Path) -> None:
    cache = LlamaRAMCache() if kind == "memory" else LlamaDiskCache(str(tmp_path / "states"))
    assert [1] not in cache
    with pytest.raises(KeyError):
        cache[[1]]
    cache[[1, 2, 3]], cache[(1, 5)] = state(3), state(2)
    assert [1, 2, 9] in cache and [7] not in cache
    found = cache[[1, 2, 9]]
    assert found.n_tokens == 3 and found.llama_state == bytes(3) and found.seed == 5
    assert cache[[1, 5, 6]].input_ids.tolist() == [0, 1]
    assert cache.cache_size > 0


def test_a_full_cache_forgets(tmp_path: Path) -> None:
    memory = LlamaRAMCache(capacity_bytes=10)
    memory[[1]], memory[[2]] = state(6), state(4)
    _ = memory[[1]]
    memory[[3]] = state(4)
    assert [1] in memory and [2] not in memory and [3] in memory
    folder = LlamaDiskCache(str(tmp_path), capacity_bytes=1)
    folder[[1]] = state(6)
    assert folder.cache_size == 0


def test_a_state_of_a_model_goes_on_from_a_cache(path: Path, tmp_path: Path) -> None:
    llm, cache = Llama(str(path), n_ctx=256), LlamaDiskCache(str(tmp_path))
    tokens = llm.tokenize(b"Hi there")
    llm.eval(tokens)
    want = llm.sample(temp=0.0)
    cache[tokens] = llm.save_state()
    other = Llama(str(path), n_ctx=256)
    other.load_state(cache[tokens])
    assert other.n_tokens == len(tokens) and other.sample(temp=0.0) == want


class HFWords:
    """As much of a tokeniser of transformers as is asked of it."""

    def encode(self, text: str, add_special_tokens: bool = True) -> list[int]:
        return [0] * add_special_tokens + [ord(c) for c in text]

    def decode(self, tokens: list[int], skip_special_tokens: bool = False) -> str:
        return "".join(chr(t) for t in tokens if t or not skip_special_tokens)


def test_tokenisers(llm: Llama) -> None:
    own = LlamaTokenizer(llm)
    assert own.tokenize(b"Hi") == llm.tokenize(b"Hi", special=True)
    other = LlamaHFTokenizer(HFWords())
    assert other.tokenize(b"Hi") == [0, 72, 105]
    assert other.detokenize([105], prev_tokens=[0, 72]) == b"i"
    assert other.detokenize([0, 72]) == b"H" and other.detokenize([0], special=True) == b"\0"


# -- LangChain -------------------------------------------------------------------------------------

# What LlamaCpp, ChatLlamaCpp and LlamaCppEmbeddings of langchain-community 0.4.2 pass where nothing
# is said but the path of the model.
LOADED = {
    "rope_freq_scale": 1.0, "rope_freq_base": 10000.0, "lora_path": None, "lora_base": None,
    "n_ctx": 512, "n_parts": -1, "seed": -1, "f16_kv": True, "logits_all": False,
    "vocab_only": False, "use_mlock": False, "n_threads": None, "n_batch": 8, "use_mmap": True,
    "last_n_tokens_size": 64, "verbose": True,
}  # fmt: skip
EMBEDS = {
    "n_ctx": 512, "n_parts": -1, "seed": -1, "f16_kv": False, "logits_all": False,
    "vocab_only": False, "use_mlock": False, "n_threads": None, "n_batch": 512, "verbose": True,
    "device": None,
}  # fmt: skip
ASKED = {
    "max_tokens": 8, "temperature": 0.8, "top_p": 0.95, "logprobs": None, "repeat_penalty": 1.1,
    "top_k": 40, "stop": [],
}  # fmt: skip


def test_what_langchain_passes_is_taken_without_a_word(path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        llm = Llama(str(path), **LOADED)
        vectors = Llama(str(path), embedding=True, **EMBEDS)
    text = llm(prompt="Hi", suffix=None, echo=False, **ASKED)["choices"][0]["text"]
    parts = llm(prompt="Hi", stream=True, suffix=None, echo=False, **ASKED)
    assert isinstance(text, str) and all("text" in part["choices"][0] for part in parts)
    chat = llm.create_chat_completion(messages=MESSAGES, **ASKED)
    assert chat["choices"][0]["message"]["role"] == "assistant"
    deltas = llm.create_chat_completion(messages=MESSAGES, stream=True, **ASKED)
    assert next(iter(deltas))["choices"][0]["delta"] == {"role": "assistant"}
    (one, two) = vectors.create_embedding(["Hi", "there"])["data"]
    assert one["embedding"] == vectors.embed("Hi") and two["index"] == 1


def test_a_tool_as_langchain_forces_it(path: Path) -> None:
    """`bind_tools(tool_choice=True)` passes the whole tool as the choice."""
    function = {"name": "f", "description": "", "parameters": {"type": "object", "properties": {}}}
    tool = {"type": "function", "function": function}
    llm = Llama(str(path), **{**LOADED, "n_ctx": 1024})
    made = llm.create_chat_completion(
        messages=MESSAGES, tools=[tool], tool_choice=tool, **{**ASKED, "max_tokens": 200}
    )
    (call,) = made["choices"][0]["message"]["tool_calls"][:1]
    assert call["function"] == {"name": "f", "arguments": "{}"}
