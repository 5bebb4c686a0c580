"""Compat, opened: a model file as the constructor of llama-cpp-python opens it, its life and its
tokens.

Receives the arguments of `Llama`; what has no meaning here is refused by name. `compat.llama_eval`
and `compat.llama` build the rest of `Llama` on it.
"""

from __future__ import annotations

import os
import threading
import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import SimpleNamespace
from typing import Any, Self
from weakref import WeakKeyDictionary

import numpy as np

from tetrad.compat.arguments import (
    cache_kind,
    guesses_of,
    refuse,
    rope_overrides,
    take_loading,
    template_override,
)
from tetrad.compat.chat_formats import HANDLERS, Handler
from tetrad.compat.states import BaseLlamaCache
from tetrad.compat.tokenizers import LlamaTokenizer
from tetrad.core.errors import SettingError
from tetrad.core.limits import available_threads
from tetrad.hub.pull import pull
from tetrad.models.decoding.stream import Stream
from tetrad.models.model import Model, load

RANDOM_SEED = 0xFFFFFFFF  # what llama.cpp calls "draw one"


class Opened:
    """A model that is open: what every method of `Llama` works on."""

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
        chat_handler: Handler | None = None,
        draft_model: Callable[[np.ndarray], Any] | None = None,
        type_k: int | None = None,
        type_v: int | None = None,
        **others: Any,
    ) -> None:
        self._given = {
            "model_path": os.path.abspath(model_path), "kv_overrides": kv_overrides, "seed": seed,
            "n_ctx": n_ctx, "n_threads": n_threads, "pooling_type": pooling_type,
            "logits_all": logits_all, "embedding": embedding,
            "last_n_tokens_size": last_n_tokens_size, "chat_format": chat_format,
            "chat_handler": chat_handler, "draft_model": draft_model, "type_k": type_k,
            "type_v": type_v, **others,
        }  # fmt: skip
        self.verbose = others.get("verbose", True)
        self.draft_model, self.chat_handler = draft_model, chat_handler
        rope = rope_overrides(others)
        take_loading(others)
        self._guesses = guesses_of(draft_model)
        if n_threads is not None and n_threads > 0:  # else what the machine has
            os.environ["TETRAD_THREADS"] = str(n_threads)
        if pooling_type > 0:
            rope["pooling_type"] = pooling_type
        overrides = {**rope, **template_override(chat_format, HANDLERS), **(kv_overrides or {})}
        self.model_path, self.embedding = os.fspath(model_path), embedding
        self._loaded: Model | None = load(
            self.model_path, context=n_ctx, kv=cache_kind(type_k, type_v), overrides=overrides
        )
        self.seed, self.chat_format = seed, chat_format or "chat_template.default"
        self.last_n_tokens_size, self._keeps_all = last_n_tokens_size, logits_all
        self.n_threads = self.n_threads_batch = available_threads()
        self.n_batch = min(self.n_ctx(), self._given.get("n_batch", 512))
        self.context_params = SimpleNamespace(
            **self._given | {"n_ctx": self.n_ctx(), "n_batch": self.n_batch}
        )
        self.cache: BaseLlamaCache | None = None
        # being read, and by which threads
        self._streams: WeakKeyDictionary[Stream, int] = WeakKeyDictionary()
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
    ) -> Self:
        """Fetches a file of a repository on Hugging Face, if it is not there, and loads it."""
        refuse("from_pretrained",
               {"additional_files": additional_files, "local_dir": local_dir,
               "cache_dir": cache_dir},
               {"additional_files": (None,), "local_dir": (None,),
               "cache_dir": (None,)})  # fmt: skip
        return cls(model_path=pull(repo_id, file=filename), **kwargs)

    # -- its life ----------------------------------------------------------------------------------

    @property
    def _model(self) -> Model:
        if self._loaded is None:
            raise SettingError("Llama", "one that is open", "one that was closed")
        return self._loaded

    def __reduce__(self) -> tuple[Callable[[], Self], tuple[()]]:
        """Pickled by its arguments, as there: whoever takes it up loads the file again."""
        return partial(type(self), **self._given), ()

    def close(self) -> None:
        """Lets go of weights and caches; there is nothing to be had of it any more. Twice is as
        good as once."""
        self._loaded = None
        self.reset()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *failure: object) -> None:
        self.close()

    def reset(self) -> None:
        """The next `eval` begins a new sequence."""
        self._tokens, self._rows, self._row = [], [], None

    @property
    def _free(self) -> Model:
        """The model, with room for a sequence."""
        self._give_up()
        return self._model

    def _give_up(self) -> None:
        """Ends streams that this thread has left: there is one place for a sequence, which the next
        call takes."""
        mine = [stream for stream, owner in self._streams.items() if owner == threading.get_ident()]
        for stream in mine:
            if not stream.is_running:  # else a function of its logits has called
                stream.close()

    def set_cache(self, cache: BaseLlamaCache | None) -> None:
        """Prompts that begin alike are evaluated once in any case."""
        self.cache = cache
        if cache is not None:
            warnings.warn(
                "Llama: set_cache has no effect: prompts that begin alike are evaluated once",
                stacklevel=2,
            )

    # -- tokens ------------------------------------------------------------------------------------

    def tokenize(self, text: bytes, add_bos: bool = True, special: bool = False) -> list[int]:
        """The tokens of a text in UTF-8; with `special`, control tokens may be written in it."""
        if not isinstance(text, bytes):
            raise SettingError("text", "bytes", text, hint='tokenize(text.encode("utf-8"))')
        return list(self._model.tokenizer.encode(text.decode(errors="replace"), add_bos, special))

    def detokenize(
        self, tokens: Sequence[int], prev_tokens: Sequence[int] | None = None, special: bool = False
    ) -> bytes:
        """The bytes of tokens, also of parts of characters; after `prev_tokens`, if they follow
        some."""
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
        return {
            key: str(value)
            for key, value in self._model.metadata.items()
            if isinstance(value, str | int | float)
        }

    def tokenizer(self) -> LlamaTokenizer:
        return LlamaTokenizer(self)
