"""Serve, OpenAI, shapes: what answers of several endpoints have in common: heads, usage, timings,
log probabilities.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from tetrad.core.version import __version__
from tetrad.models.decoding.generation import Completion

if TYPE_CHECKING:
    pass

Json = dict[str, Any]
FINGERPRINT = f"tetrad-{__version__}"


def fresh_name(kind: str, between: str = "_") -> str:
    """A name that nothing else has."""
    return f"{kind}{between}{os.urandom(12).hex()}"


def answer_head(kind: str, name: str, model: str) -> Json:
    """What every part of an answer begins with; `kind` is its object, `name` begins its id."""
    return {
        "id": fresh_name(name, "-"),
        "object": kind,
        "created": int(time.time()),
        "model": model,
        "system_fingerprint": FINGERPRINT,
    }


def usage(done: Iterable[Completion], n: int = 1) -> Json:
    """Tokens of all choices. The prompt of `n` choices counts once."""
    completions = list(done)
    firsts = completions[::n]
    prompt = sum(one.prompt_tokens for one in firsts)
    written = sum(len(one.tokens) for one in completions)
    return {
        "prompt_tokens": prompt,
        "completion_tokens": written,
        "total_tokens": prompt + written,
        "prompt_tokens_details": {"cached_tokens": sum(one.cached_tokens for one in firsts)},
    }


def timings(done: Completion) -> Json:
    """As llama.cpp's server has them."""
    spent = done.timings
    return {
        "cache_n": done.cached_tokens,
        "prompt_n": spent.prompt_n,
        "prompt_ms": spent.prompt_ms,
        "prompt_per_second": spent.prompt_per_second,
        "predicted_n": spent.predicted_n,
        "predicted_ms": spent.predicted_ms,
        "predicted_per_second": spent.predicted_per_second,
        "draft_n": done.drafted,
        "draft_n_accepted": done.accepted,
    }
