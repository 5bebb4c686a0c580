"""Models, damage: a model that gives no numbers. Receives where that showed; returns an error that
says why it may be.

Only looked for once something is wrong: it reads every weight that is stored in floats.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from tetrad.core.errors import LogitsError
from tetrad.models.steps import Step
from tetrad.tracing.array import Array

PIECE = 1 << 20  # elements looked at together


def no_numbers(step: Step, what: str, position: int) -> LogitsError:
    """`what` names the values that are NaN or infinite, `position` the token after which they
    came."""
    name = first_damaged(step)
    if name is not None:
        hint = "the file is damaged: fetch it again"
        return LogitsError(
            f"the model gave {what} at position {position}: {name} holds NaN or infinity", hint=hint
        )
    hint = (
        "its weights may be damaged: fetch the file again; or its values are too large for keys "
        "and values in f16: load with kv='bf16' (-ctk bf16 -ctv bf16)"
    )
    return LogitsError(f"the model gave {what} at position {position}", hint=hint)


def first_damaged(step: Step) -> str | None:
    """The first tensor of floats, in the order they are used, that holds something else than
    numbers."""
    return next(
        (f"tensor {name}" for name, weight in named_weights(step) if not is_finite(weight)), None
    )


def named_weights(step: Step) -> Iterator[tuple[str, Array]]:
    yield "token_embd.weight", step.outer["token_embd.weight"]
    for i, weights in enumerate(step.layers):
        yield from ((f"blk.{i}.{short}", weight) for short, weight in weights.items())
    yield from step.outer.items()


def is_finite(weight: Array) -> bool:
    if weight.dtype.is_quantized:
        return True
    flat = weight.memory.reshape(-1)
    pieces = (flat[i : i + PIECE] for i in range(0, flat.size, PIECE))
    return all(bool(np.isfinite(piece.astype(np.float32)).all()) for piece in pieces)


def described(values: np.ndarray, name: str = "logits") -> str:
    return f"{'NaN' if np.isnan(values).any() else 'infinite'} {name}"


def are_wrong(logits: np.ndarray) -> np.ndarray:  # bool
    """NaN and infinity; a logit of -inf forbids a token."""
    return np.asarray(np.isnan(logits) | np.isposinf(logits))
