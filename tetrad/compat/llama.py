"""Compat: `Llama` with the arguments and methods of llama-cpp-python; `compat.answers` shapes what
they return.

Receives what such programs pass; returns what they expect. What has no meaning here is refused by
name, never ignored. Other than there, the context is the model's unless `n_ctx` is given, and
several threads may use one `Llama`.
"""

from __future__ import annotations

import threading
import time
import uuid
import warnings
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np

from tetrad.compat.answers import (
    Json,
    chat_chunks,
    chat_completion,
    completion,
    completion_chunks,
    legacy_logprobs,
    usage,
)
from tetrad.compat.arguments import (
    CHAT,
    COMPLETION,
    as_criterion,
    as_processor,
    as_tools,
    checked_bias,
    schema_of,
    settings_alike,
    takes,
)
from tetrad.compat.chat_formats import HANDLERS, FormattedPrompt, check_text_only
from tetrad.compat.grammars import LlamaGrammar
from tetrad.compat.llama_eval import Steps
from tetrad.compat.llama_file import RANDOM_SEED
from tetrad.core.errors import BusyError, ContextError, SettingError
from tetrad.core.extras import extra
from tetrad.models.decoding.generation import Completion, Logprob, Piece
from tetrad.models.decoding.openai_shapes import chat_logprobs
from tetrad.models.decoding.sampling import Chance
from tetrad.models.decoding.stream import Stream
from tetrad.text.chat import ChatTemplate

if TYPE_CHECKING:
    from tetrad.models.chatting import ChatTurn

NO_SUFFIX: dict[str, tuple[Any, ...]] = {"suffix": (None,), "tfs_z": (1.0,)}
NO_PREFILL: dict[str, tuple[Any, ...]] = {"tfs_z": (1.0,), "assistant_prefill": (False,)}


def stops(stop: str | Sequence[str]) -> Sequence[str]:
    return [stop] if isinstance(stop, str) else stop


class Llama(Steps):
    """A model, with the methods of llama-cpp-python."""

    # -- text --------------------------------------------------------------------------------------

    def __call__(self, prompt: str | list[int], *args: Any, **settings: Any) -> Any:
        return self.create_completion(prompt, *args, **settings)

    @takes(COMPLETION, NO_SUFFIX)
    def create_completion(self, prompt: str | list[int], chosen: Json) -> Any:
        """A completion as a dictionary; with stream=True an iterator of chunks."""
        logprobs, echo, stream = chosen["logprobs"], chosen["echo"], chosen["stream"]
        settings = {
            **self._settings_of(chosen),
            "stopping_criteria": as_criterion(chosen["stopping_criteria"]),
            "logprobs": 0 if logprobs is None else max(1, logprobs),
        }
        head = self._head("cmpl", "text_completion", chosen["model"])
        tokens = [int(token) for token in self._model.prompt_tokens(prompt)]
        text = (
            prompt
            if isinstance(prompt, str)
            else self._model.tokenizer.decode(tokens[self._begins(tokens) :])
        )
        shown = text if echo else ""
        if stream:
            noted = self._noted(
                tokens, self._streamed(self._model.generate(tokens, stream=True, **settings))
            )
            return completion_chunks(
                self._model.tokenizer, head, shown, len(text), noted, logprobs or 0
            )
        done = self._free.generate(tokens, **settings)
        self._evaluated(tokens, done)
        table = None
        if logprobs is not None:
            before = self._prompt_chances(tokens, logprobs) if echo else []
            choices = [*before, *(done.logprobs or ())]
            table = legacy_logprobs(
                self._model.tokenizer, 0 if echo else len(text), choices, logprobs
            )
        return (
            head | completion(shown + done.text, table, done.finish_reason) | {"usage": usage(done)}
        )

    def _streamed(self, stream: Stream) -> Iterator[Piece]:
        """The pieces of a stream, until it ends or is given up, which is said to who still reads
        it."""
        self._give_up()
        self._streams[stream] = threading.get_ident()
        for piece in stream:
            yield piece
            if piece.completion is not None:
                return
        raise BusyError(
            "the stream was given up when another call began", hint="read a stream to its end first"
        )

    def _noted(self, tokens: list[int], pieces: Iterator[Piece]) -> Iterator[Piece]:
        for piece in pieces:
            if piece.completion is not None:
                self._evaluated(tokens, piece.completion)
            yield piece

    def _evaluated(self, tokens: list[int], done: Completion) -> None:
        """The sequence that `n_tokens` and `scores` tell of: the last token of an answer has not
        been evaluated."""
        self.reset()
        self._tokens = [*tokens, *done.tokens[:-1]]

    def _prompt_chances(self, tokens: list[int], count: int) -> list[Logprob | int]:
        """How likely each token of a prompt was. As there, a token that begins every text is not
        shown, and the first that is has no chance."""
        found: list[Logprob | int] = []
        rows = chain.from_iterable(self._free.logits_parts(tokens))
        for row, token in zip(rows, tokens[1:], strict=False):  # nothing follows the last
            chances = row - np.logaddexp.reduce(row.astype(np.float64))
            top = np.argsort(-chances, kind="stable")[:count]
            found.append(
                Logprob(
                    token,
                    float(chances[token]),
                    tuple(Chance(int(i), float(chances[i])) for i in top),
                )
            )
        skipped = self._begins(tokens)
        return [*tokens[skipped : skipped + 1], *found[skipped:]]

    def _begins(self, tokens: list[int]) -> int:
        """1 where the first token is the one that begins every text, which is not shown."""
        return int(tokens[0] == self._model.tokenizer.bos)

    # -- chat --------------------------------------------------------------------------------------

    @takes(CHAT, NO_PREFILL)
    def create_chat_completion(self, messages: Sequence[Mapping[str, Any]], chosen: Json) -> Any:
        """The answer to messages as a dictionary; with stream=True an iterator of chunks.

        With `tools` the answer may call some (`tool_choice` None or "auto"), must ("required"), or
        must call the one that is named.
        """
        check_text_only(messages)
        handler = self.chat_handler or HANDLERS.get(self.chat_format)
        if handler is not None:
            return handler(llama=self, messages=messages, **chosen)
        return self.chat_as(None, messages, chosen)

    def chat_as(
        self,
        template: ChatTemplate | FormattedPrompt | None,
        messages: Sequence[Mapping[str, Any]],
        chosen: Json,
    ) -> Any:
        """The answer to a prompt that a template makes of the messages; None: the model's own."""
        chosen = {**CHAT, **chosen}
        tools, tool_choice = as_tools(
            *[chosen[n] for n in ("functions", "function_call", "tools", "tool_choice")]
        )
        settings = self._settings_of(chosen)
        turn = self._model.turn(
            messages,
            tools=tools,
            tool_choice=tool_choice,
            grammar=settings["grammar"],
            json_schema=settings["json_schema"],
            chat_template=template,
        )
        if isinstance(template, FormattedPrompt):
            settings["stop"] = [*stops(settings["stop"]), *template.stop]
            settings["stopping_criteria"] = as_criterion(template.criteria)
        logprobs = chosen["logprobs"]
        settings["logprobs"] = max(1, chosen["top_logprobs"] or 0) if logprobs else 0
        return self._told(turn, settings | turn.settings, chosen)

    def _told(self, turn: ChatTurn, settings: Json, chosen: Json) -> Any:
        stream, model = chosen["stream"], self._model
        kind = "chat.completion.chunk" if stream else "chat.completion"
        head = self._head("chatcmpl", kind, chosen["model"])
        if stream:
            parser = None if turn.tools is None else turn.parser()
            pieces = self._streamed(model.generate(turn.tokens, stream=True, **settings))
            return chat_chunks(model.tokenizer, head, pieces, parser)
        answer: Any = self._free.generate(turn.tokens, **settings)
        done = turn.completed(answer)
        table = chat_logprobs(model.tokenizer, done.logprobs or ()) if chosen["logprobs"] else None
        return chat_completion(head, done, table, turn.tools is not None)

    def begin_and_end(self) -> tuple[str, str]:
        """The texts of the tokens that begin and end every text."""
        tokenizer = self._model.tokenizer
        begin, end = (
            "" if token is None else tokenizer.token_text(token)
            for token in (tokenizer.bos, tokenizer.eos)
        )
        return begin, end

    def create_chat_completion_openai_v1(self, *args: Any, **kwargs: Any) -> Any:
        """The same as objects of the package openai."""
        types = extra("openai.types.chat", "create_chat_completion_openai_v1", "openai")
        made = self.create_chat_completion(*args, **kwargs)
        if isinstance(made, dict):
            return types.ChatCompletion(**made)
        return (types.ChatCompletionChunk(**chunk) for chunk in made)

    def _settings_of(self, chosen: Json) -> Json:
        """The settings that both kinds of completion have, as `generate` takes them."""
        max_tokens, grammar = chosen["max_tokens"], chosen["grammar"]
        if isinstance(max_tokens, bool) or not isinstance(max_tokens, int | np.integer | None):
            raise SettingError(
                "max_tokens", "a whole number, or None for as many as fit", max_tokens
            )
        if not isinstance(grammar, LlamaGrammar | None):
            raise SettingError(
                "grammar", "a LlamaGrammar", grammar, hint="LlamaGrammar.from_string(text)"
            )
        seed = self.seed if chosen["seed"] is None else chosen["seed"]
        schema = schema_of(chosen.get("response_format"))
        return {
            **settings_alike(chosen),
            "logits_processor": as_processor("logits_processor", chosen["logits_processor"]),
            "max_tokens": -1 if max_tokens is None or max_tokens <= 0 else max_tokens,
            "stop": chosen["stop"] or (),
            "seed": None if seed in (RANDOM_SEED, -1) else seed,
            "grammar": grammar.text if grammar is not None else None,
            "json_schema": schema if grammar is None else grammar.schema,
            "logit_bias": checked_bias(chosen["logit_bias"]) if chosen["logit_bias"] else None,
            "repeat_last_n": self.last_n_tokens_size,
            "penalize_prompt": False,  # as there
            "speculate": self._guesses,
        }

    def _head(self, kind: str, name: str, model: str | None) -> Json:
        made = {"id": f"{kind}-{uuid.uuid4()}", "object": name, "created": int(time.time())}
        return made | {"model": model or self.model_path}

    # -- embeddings --------------------------------------------------------------------------------

    def create_embedding(self, input: str | list[str], model: str | None = None) -> Json:
        """Vectors of texts in the form of the OpenAI API. The Llama must have been made with
        embedding=True."""
        given = [input] if isinstance(input, str) else list(input)
        vectors, count = self.embed(given, return_count=True)
        data = [{"object": "embedding", "embedding": v, "index": i} for i, v in enumerate(vectors)]
        used = {"prompt_tokens": count, "total_tokens": count}
        return {"object": "list", "data": data, "model": model or self.model_path, "usage": used}

    def embed(
        self,
        input: str | list[str],
        normalize: bool = False,
        truncate: bool = True,
        return_count: bool = False,
    ) -> Any:
        """The vectors alone: a list of numbers for a text, a list of those for several; with their
        tokens counted.

        As there, a text of more than `n_batch` tokens is cut, which is a warning, or an error
        without `truncate`.
        """
        if not self.embedding:
            raise SettingError("embedding", "a Llama made with embedding=True", False)
        tokens = self._embedded([input] if isinstance(input, str) else input, truncate)
        vectors = self._model.embed([ids or "" for ids in tokens], normalize=normalize).tolist()
        found = vectors[0] if isinstance(input, str) else vectors
        return (found, sum(map(len, tokens))) if return_count else found

    def _embedded(self, texts: Sequence[str], truncate: bool) -> list[list[int]]:
        found = []
        for text in texts:
            tokens = self._model.tokenizer.encode(text)
            if len(tokens) > self.n_batch and not truncate:
                raise ContextError(
                    "the text is too long", tokens=len(tokens), context=self.n_batch,
                    hint="a larger n_batch (and n_ctx), or truncate=True",
                )  # fmt: skip
            if len(tokens) > self.n_batch:
                said = f"embed: of {len(tokens)} tokens the first {self.n_batch} are taken"
                warnings.warn(said, stacklevel=3)
            found.append(tokens[: self.n_batch])
        return found

    def pooling_type(self) -> int:
        """How a vector is made of the states of tokens: 1 the mean, 2 the first, 3 the last."""
        return self._model.pooling
