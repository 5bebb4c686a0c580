"""Compat, types: the small classes of llama-cpp-python that programs make and pass to a `Llama`, or
get from it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tetrad.compat.arguments import closed
from tetrad.models.decoding.settings import Processor


class LogitsProcessorList(list[Processor]):
    """Functions of tokens and logits, one after another."""

    def __call__(self, input_ids: np.ndarray, scores: np.ndarray) -> Any:
        for processor in self:
            scores = processor(input_ids, scores)
        return scores


class StoppingCriteriaList(list[Processor]):
    """Functions of tokens and logits, of which any may end an answer."""

    def __call__(self, input_ids: np.ndarray, logits: np.ndarray) -> bool:
        return any(criterion(input_ids, logits) for criterion in self)


class MinTokensLogitsProcessor:
    """For `logits_processor=`: no end before `min_tokens` of the answer are there."""

    def __init__(self, min_tokens: int, token_eos: int) -> None:
        self.min_tokens, self.token_eos = min_tokens, token_eos
        self.prompt_tokens: int | None = None

    def __call__(self, input_ids: np.ndarray, scores: np.ndarray) -> np.ndarray:
        if self.prompt_tokens is None:
            self.prompt_tokens = len(input_ids)
        if len(input_ids) - self.prompt_tokens < self.min_tokens:
            scores[self.token_eos] = -np.inf
        return scores


class LlamaRAMCache:
    """Prompts that begin alike are always evaluated once: there is nothing to set."""

    def __init__(self, capacity_bytes: int = 2 << 30) -> None:
        self.capacity_bytes = capacity_bytes


LlamaCache = LlamaRAMCache


@dataclass(frozen=True)
class LlamaPromptLookupDecoding:
    """For `draft_model=`: tokens are guessed from the text so far. The answer is the same."""

    max_ngram_size: int = 2
    num_pred_tokens: int = 10


@dataclass(frozen=True)
class LlamaState:
    """What `save_state` gives: tokens that were evaluated, with their keys and values."""

    input_ids: np.ndarray
    scores: np.ndarray  # f32[1, vocabulary]: after the last token
    n_tokens: int
    llama_state: bytes
    llama_state_size: int
    seed: int


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
        return cls(schema=closed(json.loads(json_schema)))
