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
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from tetrad.core.errors import SettingError, UnsupportedError
from tetrad.hub.pull import pull
from tetrad.models.model import Completion, Logprob, Model, Piece, load
from tetrad.models.sampling import Chance, check_count
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
    "tfs_z": (1.0,), "mirostat_mode": (0,), "mirostat_tau": (5.0,), "mirostat_eta": (0.1,),
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
        self._loaded: Model | None = load(self.model_path, context=n_ctx, kv=cache_kind(type_k, type_v))
        self._chat_format = checked_format(chat_format)
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

    # -- its life -----------------------------------------------------------------------------------------------------

    @property
    def _model(self) -> Model:
        if self._loaded is None:
            raise SettingError("Llama", "one that is open", "one that was closed")
        return self._loaded

    def close(self) -> None:
        """Lets go of weights and caches; there is nothing to be had of it any more. Twice is as good as once."""
        self._loaded = None
        self.reset()

    def __enter__(self) -> Llama:
        return self

    def __exit__(self, *failure: object) -> None:
        self.close()

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
        typical_p: float = 1.0,
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
            "temperature": temperature, "top_p": top_p, "min_p": min_p, "top_k": top_k, "typical_p": typical_p,
            "repeat_penalty": repeat_penalty, "frequency_penalty": frequency_penalty,
            "presence_penalty": presence_penalty,
            "logprobs": 0 if logprobs is None else max(1, logprobs),
            **self._shared(max_tokens, stop, seed, grammar, logit_bias, None),
        }  # fmt: skip
        head = self._head("cmpl", "text_completion", model)
        tokens = [int(token) for token in self._model.prompt_tokens(prompt)]
        text = prompt if isinstance(prompt, str) else self._model.tokenizer.decode(tokens[self._begins(tokens) :])
        shown = text if echo else ""
        if stream:
            pieces = self._model.generate(tokens, stream=True, **settings)
            return self._completion_chunks(head, shown, len(text), pieces, logprobs or 0)
        done = self._model.generate(tokens, **settings)
        table = None
        if logprobs is not None:
            before = self._prompt_chances(tokens, logprobs) if echo else []
            table = self._legacy_logprobs(0 if echo else len(text), [*before, *(done.logprobs or ())], logprobs)
        choice = {"text": shown + done.text, "index": 0, "logprobs": table, "finish_reason": done.finish_reason}
        return head | {"choices": [choice], "usage": usage(done)}

    def _completion_chunks(
        self, head: Json, shown: str, start: int, pieces: Iterator[Piece], count: int
    ) -> Iterator[Json]:
        """A prompt that is echoed comes first; `start` is where in the whole text the answer begins."""

        def chunk(text: str, table: Json | None = None, reason: str | None = None) -> Json:
            return head | {"choices": [{"text": text, "index": 0, "logprobs": table, "finish_reason": reason}]}

        if shown:
            yield chunk(shown)
        for piece in pieces:
            table = None
            if piece.token is not None and piece.logprob is not None:
                table = self._legacy_logprobs(start, [Logprob(piece.token, piece.logprob, piece.top)], count)
            start += len(piece.text)
            yield chunk(piece.text, table, None if piece.completion is None else piece.completion.finish_reason)

    def _legacy_logprobs(self, start: int, choices: Sequence[Logprob | int], count: int) -> Json:
        """The four lists of the old completion API, with `count` of the likeliest. A token alone, the first of a text,
        has None for a chance."""
        tokens = [choice if isinstance(choice, int) else choice.token for choice in choices]
        texts = [self._piece(token) for token in tokens]
        return {
            "tokens": texts,
            "text_offset": [start + sum(map(len, texts[:i])) for i in range(len(texts))],
            "token_logprobs": [None if isinstance(choice, int) else choice.logprob for choice in choices],
            "top_logprobs": [None if isinstance(choice, int) else self._top(choice, count) for choice in choices],
        }

    def _top(self, choice: Logprob, count: int) -> dict[str, float]:
        """Text and chance of the likeliest and of the token itself. Parts of characters have no text: one name."""
        named = {self._piece(c.token): c.logprob for c in reversed(choice.top[:count])}  # the likeliest keeps a name
        return dict(reversed(named.items())) | {self._piece(choice.token): choice.logprob}

    def _prompt_chances(self, tokens: list[int], count: int) -> list[Logprob | int]:
        """How likely each token of a prompt was. As there, a token that begins every text is not shown, and the first
        that is has no chance."""
        found: list[Logprob | int] = []
        rows = chain.from_iterable(self._model.logits_parts(tokens))
        for row, token in zip(rows, tokens[1:], strict=False):  # nothing follows the last
            chances = row - np.logaddexp.reduce(row.astype(np.float64))
            top = np.argsort(-chances, kind="stable")[:count]
            found.append(Logprob(token, float(chances[token]), tuple(Chance(int(i), float(chances[i])) for i in top)))
        skipped = self._begins(tokens)
        return [*tokens[skipped : skipped + 1], *found[skipped:]]

    def _begins(self, tokens: list[int]) -> int:
        """1 where the first token is the one that begins every text, which is not shown."""
        return int(tokens[0] == self._model.tokenizer.bos)

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
        typical_p: float = 1.0,
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
            "temperature": temperature, "top_p": top_p, "min_p": min_p, "top_k": top_k, "typical_p": typical_p,
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
        def chunk(delta: Json, reason: str | None = None, table: Json | None = None) -> Json:
            return head | {"choices": [{"index": 0, "delta": delta, "logprobs": table, "finish_reason": reason}]}

        yield chunk({"role": "assistant"})
        for piece in pieces:
            table = None
            if piece.token is not None and piece.logprob is not None:
                table = {"content": [self._chance(Logprob(piece.token, piece.logprob, piece.top))]}
            if piece.text or table:
                yield chunk({"content": piece.text}, table=table)
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
        if max_tokens is not None:
            check_count("max_tokens", max_tokens, -(1 << 62))
        chosen = self.seed if seed is None else seed
        schema = schema_of(response_format)
        return {
            "max_tokens": -1 if max_tokens is None or max_tokens <= 0 else max_tokens,
            "stop": stop or (),
            "seed": None if chosen in (RANDOM_SEED, -1) else chosen,
            "grammar": grammar.text if grammar is not None else None,
            "json_schema": schema if grammar is None else grammar.schema,
            "logit_bias": checked_bias(logit_bias) if logit_bias else None,
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
        """The tokens of a text in UTF-8; with `special`, control tokens may be written in it."""
        if not isinstance(text, bytes):
            raise SettingError("text", "bytes", text, hint='tokenize(text.encode("utf-8"))')
        return list(self._model.tokenizer.encode(text.decode(errors="replace"), add_bos, special))

    def detokenize(
        self, tokens: Sequence[int], prev_tokens: Sequence[int] | None = None, special: bool = False
    ) -> bytes:
        """The bytes of tokens, also of parts of characters; after `prev_tokens`, if they follow some."""
        fresh = self._bytes(prev_tokens or (), True, special)[1]
        return self._bytes(tokens, fresh, special)[0]

    def _bytes(self, tokens: Sequence[int], fresh: bool, special: bool) -> tuple[bytes, bool]:
        """`fresh`: is the next token the first one that is text?"""
        parts = []
        for token in tokens:
            piece, fresh = self._model.tokenizer.piece(token, fresh, not special)
            parts.append(piece)
        return b"".join(parts), fresh

    def token_bos(self) -> int:
        return -1 if self._model.tokenizer.bos is None else int(self._model.tokenizer.bos)

    def token_eos(self) -> int:
        return -1 if self._model.tokenizer.eos is None else int(self._model.tokenizer.eos)

    def token_nl(self) -> int:
        """The token of a new line, -1 where it takes several."""
        found = self._model.tokenizer.encode("\n", False, False)
        return found[-1] if self._model.tokenizer.token_bytes(found[-1]) == b"\n" else -1

    def set_seed(self, seed: int) -> None:
        """The seed of calls that name none."""
        self.seed = seed

    def n_ctx(self) -> int:
        return int(self._model.context)

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


def checked_bias(bias: Mapping[Any, float]) -> dict[int, float]:
    """Tokens may be text there, as JSON has no other keys."""
    try:
        return {int(token): float(value) for token, value in bias.items()}
    except (AttributeError, TypeError, ValueError):
        raise SettingError("logit_bias", "a mapping from token ids to numbers", bias) from None


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
