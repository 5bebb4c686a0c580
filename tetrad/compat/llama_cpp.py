"""Compat: `Llama` with the arguments and methods of llama-cpp-python; `compat.answers` shapes what they return.

Receives what such programs pass; returns what they expect. What has no meaning here is refused by name, never ignored.
Other than there, the context is the model's unless `n_ctx` is given, and several threads may use one `Llama`.
"""

from __future__ import annotations

import hashlib
import os
import threading
import time
import uuid
import warnings
from collections import deque
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from functools import partial
from inspect import GEN_RUNNING, getgeneratorstate
from itertools import chain
from types import SimpleNamespace
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from tetrad.compat.answers import (
    Json,
    chat_chunks,
    chat_completion,
    chat_logprobs,
    completion,
    completion_chunks,
    legacy_logprobs,
    usage,
)
from tetrad.compat.arguments import (
    as_criterion,
    as_processor,
    as_tools,
    cache_kind,
    checked_bias,
    chosen_tool,
    closed,
    refuse,
    rope_overrides,
    schema_of,
    take_loading,
    template_override,
)
from tetrad.compat.llama_types import (
    LlamaCache,
    LlamaGrammar,
    LlamaPromptLookupDecoding,
    LlamaRAMCache,
    LlamaState,
    LogitsProcessorList,
    MinTokensLogitsProcessor,
    StoppingCriteriaList,
)
from tetrad.core.errors import BusyError, SettingError, UnsupportedError
from tetrad.hub.extras import extra
from tetrad.hub.pull import pull
from tetrad.models.generation import Completion, Logprob, Piece, Processor, Stream
from tetrad.models.model import Model, load
from tetrad.models.sampling import Chance, Sampler, Settings
from tetrad.runtime.limits import available_threads
from tetrad.tracing.array import Array

__all__ = [
    "Llama", "LlamaCache", "LlamaGrammar", "LlamaPromptLookupDecoding", "LlamaRAMCache", "LlamaState", "LlamaTokenizer",
    "LogitsProcessorList", "MinTokensLogitsProcessor", "StoppingCriteriaList",
]  # fmt: skip

RANDOM_SEED = 0xFFFFFFFF  # what llama.cpp calls "draw one"
NO_SUFFIX: dict[str, tuple[Any, ...]] = {"suffix": (None,), "tfs_z": (1.0,)}
NO_PREFILL: dict[str, tuple[Any, ...]] = {"tfs_z": (1.0,), "assistant_prefill": (False,)}

Processors = Processor | Sequence[Processor]


class Llama:
    """A model, with the methods of llama-cpp-python."""

    def __init__(
        self,
        model_path: str | os.PathLike[str],
        *,
        kv_overrides: Mapping[str, bool | int | float | str] | None = None,
        seed: int = RANDOM_SEED,
        n_ctx: int = 0,
        n_threads: int | None = None,
        pooling_type: int = -1,
        logits_all: bool = False,
        embedding: bool = False,
        last_n_tokens_size: int = 64,
        chat_format: str | None = None,
        draft_model: LlamaPromptLookupDecoding | None = None,
        type_k: int | None = None,
        type_v: int | None = None,
        **others: Any,
    ) -> None:
        self._given = {
            "model_path": os.path.abspath(model_path), "kv_overrides": kv_overrides, "seed": seed, "n_ctx": n_ctx,
            "n_threads": n_threads, "pooling_type": pooling_type, "logits_all": logits_all, "embedding": embedding,
            "last_n_tokens_size": last_n_tokens_size, "chat_format": chat_format, "draft_model": draft_model,
            "type_k": type_k, "type_v": type_v, **others,
        }  # fmt: skip
        self.verbose, self.draft_model, self.chat_handler = others.get("verbose", True), draft_model, None
        rope = rope_overrides(others)
        take_loading(others)
        if draft_model is not None and not hasattr(draft_model, "num_pred_tokens"):
            raise UnsupportedError(f"Llama: draft_model={draft_model!r}", hint="known: LlamaPromptLookupDecoding")
        if n_threads is not None and n_threads > 0:  # else what the machine has
            os.environ["TETRAD_THREADS"] = str(n_threads)
        if pooling_type > 0:
            rope["pooling_type"] = pooling_type
        overrides = {**rope, **template_override(chat_format), **(kv_overrides or {})}
        self.model_path, self.embedding, self.last_n_tokens_size = os.fspath(model_path), embedding, last_n_tokens_size
        self._loaded: Model | None = load(
            self.model_path, context=n_ctx, kv=cache_kind(type_k, type_v), overrides=overrides
        )
        self.seed, self.chat_format = seed, chat_format or "chat_template.default"
        self._drafts = 0 if draft_model is None else min(draft_model.num_pred_tokens, 64)
        self._keeps_all = logits_all
        self.n_threads = self.n_threads_batch = available_threads()
        self.n_batch = min(self.n_ctx(), self._given.get("n_batch", 512))
        self.context_params = SimpleNamespace(**self._given | {"n_ctx": self.n_ctx(), "n_batch": self.n_batch})
        self.cache: LlamaRAMCache | None = None
        self._streams: WeakKeyDictionary[Stream, int] = WeakKeyDictionary()  # being read, and by which threads
        self._tokens: list[int] = []  # that `eval` was given
        self._rows: list[np.ndarray] = []  # logits after every one of them, where they are kept
        self._row: np.ndarray | None = None  # after the last

    @classmethod
    def from_pretrained(
        cls,
        repo_id: str,
        filename: str | None = None,
        additional_files: Any = None,
        local_dir: Any = None,
        local_dir_use_symlinks: Any = "auto",
        cache_dir: Any = None,
        **kwargs: Any,
    ) -> Llama:
        """Fetches a file of a repository on Hugging Face, if it is not there, and loads it."""
        refuse("from_pretrained",
               {"additional_files": additional_files, "local_dir": local_dir, "cache_dir": cache_dir},
               {"additional_files": (None,), "local_dir": (None,), "cache_dir": (None,)})  # fmt: skip
        return cls(model_path=pull(repo_id, file=filename), **kwargs)

    # -- its life -----------------------------------------------------------------------------------------------------

    @property
    def _model(self) -> Model:
        if self._loaded is None:
            raise SettingError("Llama", "one that is open", "one that was closed")
        return self._loaded

    def __reduce__(self) -> tuple[Callable[[], Llama], tuple[()]]:
        """Pickled by its arguments, as there: whoever takes it up loads the file again."""
        return partial(Llama, **self._given), ()

    def close(self) -> None:
        """Lets go of weights and caches; there is nothing to be had of it any more. Twice is as good as once."""
        self._loaded = None
        self.reset()

    def __enter__(self) -> Llama:
        return self

    def __exit__(self, *failure: object) -> None:
        self.close()

    # -- text ---------------------------------------------------------------------------------------------------------

    def __call__(self, prompt: str | list[int], *args: Any, **settings: Any) -> Any:
        return self.create_completion(prompt, *args, **settings)

    def create_completion(
        self,
        prompt: str | list[int],
        suffix: str | None = None,
        max_tokens: int | None = 16,
        temperature: float = 0.8,
        top_p: float = 0.95,
        min_p: float = 0.05,
        typical_p: float = 1.0,
        logprobs: int | None = None,
        echo: bool = False,
        stop: str | Sequence[str] | None = (),
        frequency_penalty: float = 0.0,
        presence_penalty: float = 0.0,
        repeat_penalty: float = 1.0,
        top_k: int = 40,
        stream: bool = False,
        seed: int | None = None,
        tfs_z: float = 1.0,
        mirostat_mode: int = 0,
        mirostat_tau: float = 5.0,
        mirostat_eta: float = 0.1,
        model: str | None = None,
        stopping_criteria: Processors | None = None,
        logits_processor: Processors | None = None,
        grammar: LlamaGrammar | None = None,
        logit_bias: Mapping[Any, float] | None = None,
        **others: Any,
    ) -> Any:
        """A completion as a dictionary; with stream=True an iterator of chunks."""
        refuse("create_completion", {"suffix": suffix, "tfs_z": tfs_z, **others}, NO_SUFFIX)
        settings = {
            "temperature": temperature, "top_p": top_p, "min_p": min_p, "top_k": top_k, "typical_p": typical_p,
            "repeat_penalty": repeat_penalty, "frequency_penalty": frequency_penalty,
            "presence_penalty": presence_penalty, "mirostat": mirostat_mode, "mirostat_tau": mirostat_tau,
            "mirostat_eta": mirostat_eta, "logits_processor": as_processor("logits_processor", logits_processor),
            "stopping_criteria": as_criterion(stopping_criteria),
            "logprobs": 0 if logprobs is None else max(1, logprobs),
            **self._shared(max_tokens, stop, seed, grammar, logit_bias, None),
        }  # fmt: skip
        head = self._head("cmpl", "text_completion", model)
        tokens = [int(token) for token in self._model.prompt_tokens(prompt)]
        text = prompt if isinstance(prompt, str) else self._model.tokenizer.decode(tokens[self._begins(tokens) :])
        shown = text if echo else ""
        if stream:
            noted = self._noted(tokens, self._streamed(self._model.generate(tokens, stream=True, **settings)))
            return completion_chunks(self._model.tokenizer, head, shown, len(text), noted, logprobs or 0)
        done = self._free.generate(tokens, **settings)
        self._evaluated(tokens, done)
        table = None
        if logprobs is not None:
            before = self._prompt_chances(tokens, logprobs) if echo else []
            choices = [*before, *(done.logprobs or ())]
            table = legacy_logprobs(self._model.tokenizer, 0 if echo else len(text), choices, logprobs)
        return head | completion(shown + done.text, table, done.finish_reason) | {"usage": usage(done)}

    @property
    def _free(self) -> Model:
        """The model, with room for a sequence."""
        self._give_up()
        return self._model

    def _give_up(self) -> None:
        """Ends streams that this thread has left: there is one place for a sequence, which the next call takes."""
        mine = [stream for stream, owner in self._streams.items() if owner == threading.get_ident()]
        for stream in mine:
            if getgeneratorstate(stream.pieces) != GEN_RUNNING:  # else a function of its logits has called
                stream.close()

    def _streamed(self, stream: Stream) -> Iterator[Piece]:
        """The pieces of a stream, until it ends or is given up, which is said to who still reads it."""
        self._give_up()
        self._streams[stream] = threading.get_ident()
        for piece in stream:
            yield piece
            if piece.completion is not None:
                return
        raise BusyError("the stream was given up when another call began", hint="read a stream to its end first")

    def _noted(self, tokens: list[int], pieces: Iterator[Piece]) -> Iterator[Piece]:
        for piece in pieces:
            if piece.completion is not None:
                self._evaluated(tokens, piece.completion)
            yield piece

    def _evaluated(self, tokens: list[int], done: Completion) -> None:
        """The sequence that `n_tokens` and `scores` tell of: the last token of an answer has not been evaluated."""
        self.reset()
        self._tokens = [*tokens, *done.tokens[:-1]]

    def _prompt_chances(self, tokens: list[int], count: int) -> list[Logprob | int]:
        """How likely each token of a prompt was. As there, a token that begins every text is not shown, and the first
        that is has no chance."""
        found: list[Logprob | int] = []
        rows = chain.from_iterable(self._free.logits_parts(tokens))
        for row, token in zip(rows, tokens[1:], strict=False):  # nothing follows the last
            chances = row - np.logaddexp.reduce(row.astype(np.float64))
            top = np.argsort(-chances, kind="stable")[:count]
            found.append(Logprob(token, float(chances[token]), tuple(Chance(int(i), float(chances[i])) for i in top)))
        skipped = self._begins(tokens)
        return [*tokens[skipped : skipped + 1], *found[skipped:]]

    def _begins(self, tokens: list[int]) -> int:
        """1 where the first token is the one that begins every text, which is not shown."""
        return int(tokens[0] == self._model.tokenizer.bos)

    # -- chat ---------------------------------------------------------------------------------------------------------

    def create_chat_completion(
        self,
        messages: Sequence[Mapping[str, Any]],
        functions: Any = None,
        function_call: Any = None,
        tools: Sequence[Mapping[str, Any]] | None = None,
        tool_choice: Any = None,
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
        tfs_z: float = 1.0,
        mirostat_mode: int = 0,
        mirostat_tau: float = 5.0,
        mirostat_eta: float = 0.1,
        model: str | None = None,
        logits_processor: Processors | None = None,
        grammar: LlamaGrammar | None = None,
        logit_bias: Mapping[Any, float] | None = None,
        logprobs: bool | None = None,
        top_logprobs: int | None = None,
        **others: Any,
    ) -> Any:
        """The answer to messages as a dictionary; with stream=True an iterator of chunks.

        The chat template is told of `tools`. Where `tool_choice` names one, the answer is its arguments.
        """
        refuse("create_chat_completion", {"tfs_z": tfs_z, **others}, NO_PREFILL)
        tools, tool_choice = as_tools(functions, function_call, tools, tool_choice)
        tool = chosen_tool(tools, tool_choice)
        if tool is not None:
            grammar = LlamaGrammar(schema=closed(tool.get("parameters") or {"type": "object"}))
        settings = {
            "temperature": temperature, "top_p": top_p, "min_p": min_p, "top_k": top_k, "typical_p": typical_p,
            "repeat_penalty": repeat_penalty, "frequency_penalty": frequency_penalty,
            "presence_penalty": presence_penalty, "mirostat": mirostat_mode, "mirostat_tau": mirostat_tau,
            "mirostat_eta": mirostat_eta, "logits_processor": as_processor("logits_processor", logits_processor),
            **self._shared(max_tokens, stop, seed, grammar, logit_bias, response_format),
            "logprobs": max(1, top_logprobs or 0) if logprobs else 0,
            "tools": None if tool_choice == "none" else tools,
        }  # fmt: skip
        head = self._head("chatcmpl", "chat.completion.chunk" if stream else "chat.completion", model)
        if stream:
            pieces = self._streamed(self._model.chat(messages, stream=True, **settings))
            return chat_chunks(self._model.tokenizer, head, pieces, tool)
        done = self._free.chat(messages, **settings)
        table = chat_logprobs(self._model.tokenizer, done.logprobs or ()) if logprobs else None
        return chat_completion(head, done, table, tool)

    def create_chat_completion_openai_v1(self, *args: Any, **kwargs: Any) -> Any:
        """The same as objects of the package openai."""
        types = extra("openai.types.chat", "create_chat_completion_openai_v1")
        made = self.create_chat_completion(*args, **kwargs)
        if isinstance(made, dict):
            return types.ChatCompletion(**made)
        return (types.ChatCompletionChunk(**chunk) for chunk in made)

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
        if isinstance(max_tokens, bool) or not isinstance(max_tokens, int | np.integer | None):
            raise SettingError("max_tokens", "a whole number, or None for as many as fit", max_tokens)
        if not isinstance(grammar, LlamaGrammar | None):
            raise SettingError("grammar", "a LlamaGrammar", grammar, hint="LlamaGrammar.from_string(text)")
        chosen = self.seed if seed is None else seed
        schema = schema_of(response_format)
        return {
            "max_tokens": -1 if max_tokens is None or max_tokens <= 0 else max_tokens,
            "stop": stop or (),
            "seed": None if chosen in (RANDOM_SEED, -1) else chosen,
            "grammar": grammar.text if grammar is not None else None,
            "json_schema": schema if grammar is None else grammar.schema,
            "logit_bias": checked_bias(logit_bias) if logit_bias else None,
            "repeat_last_n": self.last_n_tokens_size,
            "speculate": self._drafts,
        }

    def _head(self, kind: str, name: str, model: str | None) -> Json:
        made = {"id": f"{kind}-{uuid.uuid4()}", "object": name, "created": int(time.time())}
        return made | {"model": model or self.model_path}

    # -- embeddings ---------------------------------------------------------------------------------------------------

    def create_embedding(self, input: str | list[str], model: str | None = None) -> Json:
        """Vectors of texts in the form of the OpenAI API. The Llama must have been made with embedding=True."""
        texts = [input] if isinstance(input, str) else list(input)
        vectors, count = self.embed(texts, normalize=True, return_count=True)
        data = [{"object": "embedding", "embedding": v, "index": i} for i, v in enumerate(vectors)]
        used = {"prompt_tokens": count, "total_tokens": count}
        return {"object": "list", "data": data, "model": model or self.model_path, "usage": used}

    def embed(
        self, input: str | list[str], normalize: bool = False, truncate: bool = False, return_count: bool = False
    ) -> Any:
        """The vectors alone: a list of numbers for a text, a list of those for several; with their tokens counted.

        A text longer than the context is an error, unless `truncate` allows to cut it.
        """
        if not self.embedding:
            raise SettingError("embedding", "a Llama made with embedding=True", False)
        tokens = [self._model.tokenizer.encode(text) for text in ([input] if isinstance(input, str) else input)]
        tokens = [ids[: self.n_ctx()] for ids in tokens] if truncate else tokens
        vectors = self._model.embed([ids or "" for ids in tokens], normalize=normalize).tolist()
        found = vectors[0] if isinstance(input, str) else vectors
        return (found, sum(map(len, tokens))) if return_count else found

    def pooling_type(self) -> int:
        """How a vector is made of the states of tokens: 1 the mean, 2 the first, 3 the last."""
        return self._model.pooling

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
    def metadata(self) -> dict[str, str]:
        return {key: str(value) for key, value in self._model.metadata.items() if isinstance(value, str | int | float)}

    def tokenizer(self) -> LlamaTokenizer:
        return LlamaTokenizer(self)

    # -- one sequence, step by step -----------------------------------------------------------------------------------

    @property
    def n_tokens(self) -> int:
        """Tokens that were evaluated since the last reset."""
        return len(self._tokens)

    @property
    def input_ids(self) -> np.ndarray:
        return np.array(self._tokens, np.intc)

    @property
    def eval_tokens(self) -> deque[int]:
        return deque(self._tokens, maxlen=self.n_ctx())

    @property
    def scores(self) -> np.ndarray:
        """f32[n_tokens, vocabulary]: the logits after every token; without `logits_all` they are evaluated now."""
        if len(self._rows) != len(self._tokens):
            self._rows = list(self._free.logits(self._tokens)) if self._tokens else []
        return np.array(self._rows, np.float32).reshape(-1, self.n_vocab())

    _input_ids, _scores = input_ids, scores

    @property
    def eval_logits(self) -> deque[list[float]]:
        """The logits after the last token; with `logits_all` those after every one."""
        if self._keeps_all:
            return deque(self.scores.tolist(), maxlen=self.n_ctx())
        return deque([] if not self._tokens else [self._last().tolist()], maxlen=1)

    def reset(self) -> None:
        """The next `eval` begins a new sequence."""
        self._tokens, self._rows, self._row = [], [], None

    def eval(self, tokens: Sequence[int]) -> None:
        """Evaluates more tokens of a sequence; `eval_logits` are those after the last."""
        start, whole = len(self._tokens), [*self._tokens, *(int(t) for t in tokens)]
        if self._keeps_all:
            rows = [*self.scores, *chain.from_iterable(self._free.logits_parts(whole, start))]
            self._tokens, self._rows, self._row = whole, rows, rows[-1]
            return
        self._row = np.asarray(self._free.logits(whole, last=True)).reshape(-1)
        self._tokens, self._rows = whole, []

    def _last(self) -> np.ndarray:
        if not self._tokens:
            raise SettingError("sample", "tokens that were evaluated", "none")
        if self._row is None:
            self._row = np.asarray(self._free.logits(self._tokens, last=True)).reshape(-1)
        return self._row

    def sample(
        self,
        top_k: int = 40,
        top_p: float = 0.95,
        min_p: float = 0.05,
        typical_p: float = 1.0,
        temp: float = 0.80,
        repeat_penalty: float = 1.0,
        frequency_penalty: float = 0.0,
        presence_penalty: float = 0.0,
        tfs_z: float = 1.0,
        mirostat_mode: int = 0,
        mirostat_eta: float = 0.1,
        mirostat_tau: float = 5.0,
        penalize_nl: bool = True,
        logits_processor: Processors | None = None,
        grammar: LlamaGrammar | None = None,
        idx: int | None = None,
    ) -> int:
        """A token to follow what was evaluated, or its first `idx` + 1 tokens."""
        refuse_old("sample", tfs_z, penalize_nl, grammar)
        settings = self._settings(
            top_k=top_k, top_p=top_p, min_p=min_p, typical_p=typical_p, temperature=temp,
            repeat_penalty=repeat_penalty, frequency_penalty=frequency_penalty, presence_penalty=presence_penalty,
            mirostat=mirostat_mode, mirostat_eta=mirostat_eta, mirostat_tau=mirostat_tau,
        )  # fmt: skip
        row, tokens = (self._last(), self._tokens) if idx is None else (self.scores[idx], self._tokens[: idx + 1])
        sampler = Sampler(settings, self.n_vocab(), tokens, self.n_ctx())
        sampler.index = len(tokens)  # every place has a draw of its own
        return self._chosen(sampler, as_processor("logits_processor", logits_processor), tokens, row)

    def _settings(self, **chosen: Any) -> Settings:
        return Settings(seed=None if self.seed in (RANDOM_SEED, -1) else self.seed,
                        repeat_last_n=self.last_n_tokens_size, **chosen)  # fmt: skip

    def _chosen(self, sampler: Sampler, processor: Processor | None, tokens: list[int], row: np.ndarray) -> int:
        if processor is not None:
            row = np.asarray(processor(np.array(tokens, np.intc), row.copy()), np.float32)
        return sampler.choose(Array.from_numpy(np.ascontiguousarray(row[None]))).token

    def generate(
        self,
        tokens: Sequence[int],
        top_k: int = 40,
        top_p: float = 0.95,
        min_p: float = 0.05,
        typical_p: float = 1.0,
        temp: float = 0.80,
        repeat_penalty: float = 1.0,
        reset: bool = True,
        frequency_penalty: float = 0.0,
        presence_penalty: float = 0.0,
        tfs_z: float = 1.0,
        mirostat_mode: int = 0,
        mirostat_tau: float = 5.0,
        mirostat_eta: float = 0.1,
        penalize_nl: bool = True,
        logits_processor: Processors | None = None,
        stopping_criteria: Processors | None = None,
        grammar: LlamaGrammar | None = None,
    ) -> Generator[int, Sequence[int] | None, None]:
        """Tokens one after another, without end; tokens that are sent to it come after the last one."""
        refuse_old("generate", tfs_z, penalize_nl, grammar)
        settings = self._settings(
            top_k=top_k, top_p=top_p, min_p=min_p, typical_p=typical_p, temperature=temp,
            repeat_penalty=repeat_penalty, frequency_penalty=frequency_penalty, presence_penalty=presence_penalty,
            mirostat=mirostat_mode, mirostat_eta=mirostat_eta, mirostat_tau=mirostat_tau,
        )  # fmt: skip
        if reset:
            self.reset()
        processor, stops = as_processor("logits_processor", logits_processor), as_criterion(stopping_criteria)
        sampler = Sampler(settings, self.n_vocab(), [*self._tokens, *tokens], self.n_ctx())
        pending = [int(token) for token in tokens]
        while True:
            self.eval(pending)
            if stops is not None and stops(self.input_ids, self._last().copy()):
                return
            token = self._chosen(sampler, processor, self._tokens, self._last())
            pending = [token, *((yield token) or ())]

    def save_state(self) -> LlamaState:
        """The sequence that was evaluated, with its keys and values: `load_state` goes on from it at once."""
        engine, row = self._free.engine, self._last()
        sequence = engine.start(self._tokens)
        try:
            engine.step([(sequence, self._tokens[sequence.length :])])
            held = self._mark() + engine.held(sequence)
        finally:
            engine.free(sequence)
        return LlamaState(self.input_ids, row[None].copy(), self.n_tokens, held, len(held), self.seed)

    def load_state(self, state: LlamaState) -> None:
        mark, held = state.llama_state[: len(self._mark())], state.llama_state[len(self._mark()) :]
        if mark != self._mark():
            raise SettingError("state", "one that a Llama of this model, with the same type_k, has saved", "another")
        engine, tokens = self._free.engine, [int(token) for token in state.input_ids]
        sequence = engine.start(tokens)
        try:
            engine.put(sequence, tokens, held)
        finally:
            engine.free(sequence)
        self.reset()
        self._tokens, self._row, self.seed = tokens, state.scores[-1].copy(), state.seed

    def _mark(self) -> bytes:
        """What tells states of this model from those of others."""
        kinds = [str(memory.kind.dtype) for memory in self._model.engine.caches]
        said = [sorted(self.metadata.items()), str(self._model.config), kinds]
        return hashlib.sha256(repr(said).encode()).digest()

    def set_cache(self, cache: LlamaRAMCache | None) -> None:
        """Prompts that begin alike are evaluated once in any case."""
        self.cache = cache
        if cache is not None:
            warnings.warn("Llama: set_cache has no effect: prompts that begin alike are always evaluated once",
                          stacklevel=2)  # fmt: skip

    @staticmethod
    def logits_to_logprobs(logits: Any, axis: int = -1) -> np.ndarray:
        values = np.asarray(logits, np.float32)
        shift = values - values.max(axis=axis, keepdims=True)
        return np.asarray(shift - np.log(np.exp(shift).sum(axis=axis, keepdims=True, dtype=np.float32)))

    @staticmethod
    def longest_token_prefix(a: Sequence[int], b: Sequence[int]) -> int:
        return next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))


class LlamaTokenizer:
    """The tokeniser of a `Llama` alone."""

    def __init__(self, llama: Llama) -> None:
        self.llama = llama

    def tokenize(self, text: bytes, add_bos: bool = True, special: bool = True) -> list[int]:
        return self.llama.tokenize(text, add_bos, special)

    def detokenize(
        self, tokens: Sequence[int], prev_tokens: Sequence[int] | None = None, special: bool = False
    ) -> bytes:
        return self.llama.detokenize(tokens, prev_tokens, special)

    def encode(self, text: str, add_bos: bool = True, special: bool = True) -> list[int]:
        return self.tokenize(text.encode("utf-8", errors="ignore"), add_bos, special)

    def decode(self, tokens: Sequence[int]) -> str:
        return self.detokenize(tokens).decode("utf-8", errors="ignore")


def refuse_old(function: str, tfs_z: float, penalize_nl: bool, grammar: LlamaGrammar | None) -> None:
    """Settings of single steps that llama.cpp has given up, and grammars, which need whole answers."""
    refuse(function, {"tfs_z": tfs_z, "penalize_nl": penalize_nl, "grammar": grammar},
           {"tfs_z": (1.0,), "penalize_nl": (True,), "grammar": (None,)})  # fmt: skip
