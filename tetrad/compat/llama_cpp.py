"""Compat: `Llama` with the arguments, methods and OpenAI-shaped dictionaries of llama-cpp-python.

Receives what such programs pass; returns what they expect. What has no meaning here is refused by name, never ignored.
Other than there, the context is the model's unless `n_ctx` is given, and several threads may use one `Llama`.
"""

from __future__ import annotations

import json
import os
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tetrad.core.errors import SettingError, UnsupportedError
from tetrad.hub.pull import pull
from tetrad.models.model import Completion, Logprob, Piece, load
from tetrad.text.chat import default_template

RANDOM_SEED = 0xFFFFFFFF  # what llama.cpp calls "draw one"
KV_TYPES = {0: "f32", 1: "f16", 8: "q8_0", 30: "bf16"}  # numbers of ggml

ANY = object()  # stands for every value

# Arguments that are understood and have no effect here at these values; at any other they are refused.
LOADING: dict[str, tuple[Any, ...]] = {
    "n_gpu_layers": (0,), "split_mode": (1,), "main_gpu": (0,), "tensor_split": (None,), "vocab_only": (False,),
    "use_mmap": (True,), "use_mlock": (False,), "kv_overrides": (None,), "n_batch": (ANY,), "n_ubatch": (ANY,),
    "rope_scaling_type": (None, -1), "pooling_type": (-1,), "rope_freq_base": (0.0,), "rope_freq_scale": (0.0,),
    "yarn_ext_factor": (-1.0,), "yarn_attn_factor": (1.0,), "yarn_beta_fast": (32.0,), "yarn_beta_slow": (1.0,),
    "yarn_orig_ctx": (0,), "offload_kqv": (True, False), "flash_attn": (True, False), "op_offload": (None,),
    "swa_full": (None,), "no_perf": (True, False), "last_n_tokens_size": (64,), "lora_base": (None,),
    "lora_scale": (1.0,), "lora_path": (None,), "numa": (False, 0), "chat_handler": (None,), "draft_model": (None,),
    "tokenizer": (None,), "spm_infill": (False,), "logits_all": (True, False), "verbose": (True, False),
    "n_threads_batch": (None,),
}  # fmt: skip
SAMPLING: dict[str, tuple[Any, ...]] = {
    "typical_p": (1.0,), "tfs_z": (1.0,), "mirostat_mode": (0,), "mirostat_tau": (5.0,), "mirostat_eta": (0.1,),
    "suffix": (None,), "stopping_criteria": (None,), "logits_processor": (None,), "penalize_nl": (True,),
}  # fmt: skip
CHATTING = SAMPLING | {
    "functions": (None,), "function_call": (None,), "tools": (None,), "tool_choice": (None, "none", "auto"),
    "assistant_prefill": (False,),
}  # fmt: skip

Json = dict[str, Any]


def refuse(what: str, given: Mapping[str, Any], neutral: Mapping[str, tuple[Any, ...]]) -> None:
    """An argument that would change something, were it followed, is an error."""
    for name, value in given.items():
        if name not in neutral:
            raise UnsupportedError(f"{what}: there is no argument {name!r}", hint=f"besides: {', '.join(neutral)}")
        if ANY not in neutral[name] and value not in neutral[name]:
            allowed = " or ".join(repr(v) for v in neutral[name])
            raise UnsupportedError(
                f"{what}: {name}={value!r} is not supported", hint=f"leave it out, or pass {allowed}"
            )


class LlamaGrammar:
    """A grammar for `grammar=`: GBNF text, or a JSON schema."""

    def __init__(self, text: str | None = None, schema: Any = None) -> None:
        self.text, self.schema = text, schema

    @classmethod
    def from_string(cls, grammar: str, verbose: bool = True) -> LlamaGrammar:
        return cls(text=grammar)

    @classmethod
    def from_file(cls, file: str | Path, verbose: bool = True) -> LlamaGrammar:
        return cls(text=Path(file).read_text(encoding="utf-8"))

    @classmethod
    def from_json_schema(cls, json_schema: str, verbose: bool = True) -> LlamaGrammar:
        return cls(schema=json.loads(json_schema))


class Llama:
    """A model, with the methods of llama-cpp-python."""

    def __init__(
        self,
        model_path: str | os.PathLike[str],
        *,
        n_ctx: int = 0,
        n_threads: int | None = None,
        seed: int = RANDOM_SEED,
        embedding: bool = False,
        chat_format: str | None = None,
        type_k: int | None = None,
        type_v: int | None = None,
        **others: Any,
    ) -> None:
        refuse("Llama", others, LOADING)
        if n_threads is not None:
            os.environ["TETRAD_THREADS"] = str(n_threads)
        self.model_path, self.seed, self.embedding = os.fspath(model_path), seed, embedding
        self._model = load(self.model_path, context=n_ctx, kv=cache_kind(type_k, type_v))
        self._chat_format = checked_format(chat_format)
        self._n_ctx = n_ctx or self._model.config.context
        self.input_ids: list[int] = []
        self.eval_logits: np.ndarray | None = None  # f32[vocabulary], after the last token that was evaluated

    @classmethod
    def from_pretrained(
        cls,
        repo_id: str,
        filename: str | None = None,
        additional_files: Any = None,
        local_dir: Any = None,
        **kwargs: Any,
    ) -> Llama:
        """Fetches a file of a repository on Hugging Face, if it is not there, and loads it."""
        refuse("from_pretrained", {"additional_files": additional_files, "local_dir": local_dir},
               {"additional_files": (None,), "local_dir": (None,)})  # fmt: skip
        return cls(model_path=pull(repo_id, file=filename), **kwargs)

    # -- text ---------------------------------------------------------------------------------------------------------

    def __call__(self, prompt: str | list[int], **settings: Any) -> Any:
        return self.create_completion(prompt, **settings)

    def create_completion(
        self,
        prompt: str | list[int],
        *,
        max_tokens: int | None = 16,
        temperature: float = 0.8,
        top_p: float = 0.95,
        min_p: float = 0.05,
        top_k: int = 40,
        logprobs: int | None = None,
        echo: bool = False,
        stop: str | Sequence[str] | None = (),
        frequency_penalty: float = 0.0,
        presence_penalty: float = 0.0,
        repeat_penalty: float = 1.0,
        stream: bool = False,
        seed: int | None = None,
        model: str | None = None,
        grammar: LlamaGrammar | None = None,
        logit_bias: Mapping[Any, float] | None = None,
        **others: Any,
    ) -> Any:
        """A completion as a dictionary; with stream=True an iterator of chunks."""
        refuse("create_completion", others, SAMPLING)
        settings = {
            "temperature": temperature, "top_p": top_p, "min_p": min_p, "top_k": top_k,
            "repeat_penalty": repeat_penalty, "frequency_penalty": frequency_penalty,
            "presence_penalty": presence_penalty,
            **self._shared(max_tokens, stop, seed, grammar, logit_bias, None), "logprobs": logprobs or 0,
        }  # fmt: skip
        head = self._head("cmpl", "text_completion", model)
        shown = (prompt if isinstance(prompt, str) else self._model.tokenizer.decode(prompt)) if echo else ""
        if stream:
            return self._completion_chunks(head, shown, self._model.generate(prompt, stream=True, **settings))
        done = self._model.generate(prompt, **settings)
        return head | {"choices": [self._text_choice(shown, done, logprobs)], "usage": usage(done)}

    def _completion_chunks(self, head: Json, shown: str, pieces: Iterator[Piece]) -> Iterator[Json]:
        if shown:
            yield head | {"choices": [{"text": shown, "index": 0, "logprobs": None, "finish_reason": None}]}
        for piece in pieces:
            done = piece.completion
            reason = None if done is None else done.finish_reason
            yield head | {"choices": [{"text": piece.text, "index": 0, "logprobs": None, "finish_reason": reason}]}

    def _text_choice(self, shown: str, done: Completion, logprobs: int | None) -> Json:
        table = self._legacy_logprobs(shown, done) if logprobs else None
        return {"text": shown + done.text, "index": 0, "logprobs": table, "finish_reason": done.finish_reason}

    def _legacy_logprobs(self, shown: str, done: Completion) -> Json:
        """The four lists of the old completion API, over the tokens of the answer."""
        texts = [self._piece(choice.token) for choice in done.logprobs or ()]
        starts = np.cumsum([len(shown), *(len(text) for text in texts[:-1])]).tolist() if texts else []
        return {
            "tokens": texts,
            "text_offset": starts,
            "token_logprobs": [choice.logprob for choice in done.logprobs or ()],
            # Parts of characters all read U+FFFD: the likeliest keeps the name.
            "top_logprobs": [
                {self._piece(c.token): c.logprob for c in reversed(choice.top)} for choice in done.logprobs or ()
            ],
        }

    def _piece(self, token: int) -> str:
        return str(self._model.tokenizer.token_bytes(token).decode(errors="replace"))

    # -- chat ---------------------------------------------------------------------------------------------------------

    def create_chat_completion(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        temperature: float = 0.2,
        top_p: float = 0.95,
        top_k: int = 40,
        min_p: float = 0.05,
        stream: bool = False,
        stop: str | Sequence[str] | None = (),
        seed: int | None = None,
        response_format: Mapping[str, Any] | None = None,
        max_tokens: int | None = None,
        presence_penalty: float = 0.0,
        frequency_penalty: float = 0.0,
        repeat_penalty: float = 1.0,
        model: str | None = None,
        grammar: LlamaGrammar | None = None,
        logit_bias: Mapping[Any, float] | None = None,
        logprobs: bool | None = None,
        top_logprobs: int | None = None,
        **others: Any,
    ) -> Any:
        """The answer to messages as a dictionary; with stream=True an iterator of chunks."""
        refuse("create_chat_completion", others, CHATTING)
        settings = {
            "temperature": temperature, "top_p": top_p, "min_p": min_p, "top_k": top_k,
            "repeat_penalty": repeat_penalty, "frequency_penalty": frequency_penalty,
            "presence_penalty": presence_penalty,
            **self._shared(max_tokens, stop, seed, grammar, logit_bias, response_format),
            "logprobs": max(1, top_logprobs or 0) if logprobs else 0,
        }  # fmt: skip
        head = self._head("chatcmpl", "chat.completion.chunk" if stream else "chat.completion", model)
        if stream:
            return self._chat_chunks(head, self._ask(messages, settings, stream=True))
        done = self._ask(messages, settings, stream=False)
        table = {"content": [self._chance(c) for c in done.logprobs or ()]} if logprobs else None
        choice = {"index": 0, "message": {"role": "assistant", "content": done.text}, "logprobs": table}
        return head | {"choices": [choice | {"finish_reason": done.finish_reason}], "usage": usage(done)}

    def _ask(self, messages: Sequence[Mapping[str, Any]], settings: Json, stream: bool) -> Any:
        settings = settings | {"stream": stream}
        if self._chat_format is None:
            return self._model.chat(messages, **settings)
        return self._model.generate(default_template().render(messages), **settings)

    def _chat_chunks(self, head: Json, pieces: Iterator[Piece]) -> Iterator[Json]:
        def chunk(delta: Json, reason: str | None = None) -> Json:
            return head | {"choices": [{"index": 0, "delta": delta, "logprobs": None, "finish_reason": reason}]}

        yield chunk({"role": "assistant"})
        for piece in pieces:
            if piece.text:
                yield chunk({"content": piece.text})
            if piece.completion is not None:
                yield chunk({}, piece.completion.finish_reason)

    def _chance(self, choice: Logprob) -> Json:
        def entry(token: int, logprob: float) -> Json:
            data = self._model.tokenizer.token_bytes(token)
            return {"token": data.decode(errors="replace"), "logprob": logprob, "bytes": list(data)}

        return entry(choice.token, choice.logprob) | {"top_logprobs": [entry(c.token, c.logprob) for c in choice.top]}

    def _shared(
        self,
        max_tokens: int | None,
        stop: str | Sequence[str] | None,
        seed: int | None,
        grammar: LlamaGrammar | None,
        logit_bias: Mapping[Any, float] | None,
        response_format: Mapping[str, Any] | None,
    ) -> Json:
        """Settings whose values are spelt otherwise here."""
        chosen = self.seed if seed is None else seed
        schema = schema_of(response_format)
        return {
            "max_tokens": -1 if max_tokens is None or max_tokens <= 0 else max_tokens,
            "stop": (stop,) if isinstance(stop, str) else tuple(stop or ()),
            "seed": None if chosen in (RANDOM_SEED, -1) else chosen,
            "grammar": grammar.text if grammar is not None else None,
            "json_schema": schema if grammar is None else grammar.schema,
            "logit_bias": {int(token): float(value) for token, value in logit_bias.items()} if logit_bias else None,
        }

    def _head(self, kind: str, name: str, model: str | None) -> Json:
        made = {"id": f"{kind}-{uuid.uuid4()}", "object": name, "created": int(time.time())}
        return made | {"model": model or self.model_path}

    # -- embeddings ---------------------------------------------------------------------------------------------------

    def create_embedding(self, input: str | list[str], model: str | None = None) -> Json:
        """Vectors of texts in the form of the OpenAI API. The Llama must have been made with embedding=True."""
        texts = [input] if isinstance(input, str) else list(input)
        vectors = self._embed(texts, normalize=True)
        count = sum(len(self._model.tokenizer.encode(text)) for text in texts)
        data = [{"object": "embedding", "embedding": v.tolist(), "index": i} for i, v in enumerate(vectors)]
        used = {"prompt_tokens": count, "total_tokens": count}
        return {"object": "list", "data": data, "model": model or self.model_path, "usage": used}

    def embed(self, input: str | list[str], normalize: bool = False) -> Any:
        """The vectors alone: a list of numbers for a text, a list of those for several."""
        texts = [input] if isinstance(input, str) else list(input)
        vectors = self._embed(texts, normalize).tolist()
        return vectors[0] if isinstance(input, str) else vectors

    def _embed(self, texts: list[str], normalize: bool) -> np.ndarray:
        if not self.embedding:
            raise SettingError("embedding", "a Llama made with embedding=True", False)
        return np.asarray(self._model.embed(texts, normalize=normalize))

    # -- tokens -------------------------------------------------------------------------------------------------------

    def tokenize(self, text: bytes, add_bos: bool = True, special: bool = False) -> list[int]:
        return list(self._model.tokenizer.encode(text.decode(errors="replace"), add_bos, special))

    def detokenize(self, tokens: Sequence[int], prev_tokens: Any = None, special: bool = False) -> bytes:
        """The bytes of tokens, also of parts of characters."""
        refuse("detokenize", {"prev_tokens": prev_tokens}, {"prev_tokens": (None,)})
        tokenizer = self._model.tokenizer
        fresh, parts = True, []
        for token in tokens:
            piece, fresh = tokenizer.piece(token, fresh, not special)
            parts.append(piece)
        return b"".join(parts)

    def token_bos(self) -> int:
        return -1 if self._model.tokenizer.bos is None else int(self._model.tokenizer.bos)

    def token_eos(self) -> int:
        return -1 if self._model.tokenizer.eos is None else int(self._model.tokenizer.eos)

    def n_ctx(self) -> int:
        return int(self._n_ctx)

    def n_vocab(self) -> int:
        return int(self._model.config.vocab)

    def n_embd(self) -> int:
        return int(self._model.config.width)

    @property
    def n_tokens(self) -> int:
        """Tokens that were evaluated since the last reset."""
        return len(self.input_ids)

    @property
    def metadata(self) -> dict[str, str]:
        return {key: str(value) for key, value in self._model.metadata.items() if isinstance(value, str | int | float)}

    def reset(self) -> None:
        """The next `eval` begins a new sequence."""
        self.input_ids, self.eval_logits = [], None

    def eval(self, tokens: Sequence[int]) -> None:
        """Evaluates more tokens of a sequence; `eval_logits` are those after the last."""
        whole = [*self.input_ids, *(int(t) for t in tokens)]
        self.eval_logits = np.asarray(self._model.logits(whole, last=True)).reshape(-1)
        self.input_ids = whole


def cache_kind(type_k: int | None, type_v: int | None) -> str:
    kinds = [1 if kind is None else kind for kind in (type_k, type_v)]
    if kinds[0] != kinds[1] or kinds[0] not in KV_TYPES:
        known = ", ".join(f"{number} ({name})" for number, name in KV_TYPES.items())
        raise UnsupportedError(f"Llama: type_k={type_k!r}, type_v={type_v!r}: both alike, of {known}")
    return KV_TYPES[kinds[0]]


def checked_format(name: str | None) -> str | None:
    """None is the model's own template."""
    if name not in (None, "chatml"):
        raise UnsupportedError(
            f"Llama: chat_format={name!r} is not supported",
            hint="leave it out for the model's own template, or 'chatml'",
        )
    return name


def schema_of(response_format: Mapping[str, Any] | None) -> Any:
    kind = None if response_format is None else response_format.get("type")
    if response_format is None or kind == "text":
        return None
    if kind == "json_object":
        return response_format.get("schema") or {"type": "object"}
    if kind == "json_schema":
        return response_format["json_schema"]["schema"]
    raise UnsupportedError(f"response_format: type {kind!r}", hint="known: text, json_object, json_schema")


def usage(done: Completion) -> Json:
    prompt, written = done.prompt_tokens, len(done.tokens)
    return {"prompt_tokens": prompt, "completion_tokens": written, "total_tokens": prompt + written}
