"""Compat, processors: lists of functions of logits, as llama-cpp-python passes them."""

from __future__ import annotations

from typing import Any

import numpy as np

from tetrad.models.decoding.settings import Processor

LogitsProcessor = StoppingCriteria = Processor


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
