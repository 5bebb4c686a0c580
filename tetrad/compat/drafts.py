"""Compat, drafts: what may follow a sequence, guessed for `draft_model=`. The answer is the same
with any guess; right ones make it come sooner."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import numpy as np

from tetrad.models.decoding.generation import drafted


class LlamaDraftModel(ABC):
    """Something that guesses: a function of the tokens so far that gives those which may follow."""

    @abstractmethod
    def __call__(self, input_ids: np.ndarray, /, **kwargs: Any) -> np.ndarray: ...


class LlamaPromptLookupDecoding(LlamaDraftModel):
    """Guesses what followed the same tokens before, `max_ngram_size` of them or fewer.

    >>> LlamaPromptLookupDecoding(num_pred_tokens=2)(np.array([5, 6, 7, 8, 5, 6])).tolist()
    [7, 8]
    """

    def __init__(self, max_ngram_size: int = 2, num_pred_tokens: int = 10) -> None:
        self.max_ngram_size, self.num_pred_tokens = max_ngram_size, num_pred_tokens

    def __call__(self, input_ids: np.ndarray, /, **kwargs: Any) -> np.ndarray:
        return self.find_candidate_pred_tokens(input_ids, self.max_ngram_size, self.num_pred_tokens)

    @staticmethod
    def find_candidate_pred_tokens(
        input_ids: np.ndarray, max_ngram_size: int, num_pred_tokens: int
    ) -> np.ndarray:
        sizes = range(max_ngram_size, 0, -1)
        return np.array(drafted(input_ids, num_pred_tokens, sizes), np.intc)
