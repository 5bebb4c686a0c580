"""Command line, answers: text to the terminal as it comes, and what it cost.

Receives the stream of a model; prints its pieces to stdout at once and returns the whole. Timings
have the fields of ollama's --verbose, and say how much of the memory bandwidth, measured here, was
used.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tetrad.cli.console import Waiting, write
from tetrad.explain.roofs import measure_roofs
from tetrad.hub.describe import Description
from tetrad.models.engine import Engine
from tetrad.models.generation import Completion, Piece
from tetrad.text.tokenizer import Tokenizer


def shown(
    pieces: Iterator[Piece], engine: Engine, length: int, *, begins_line: bool = True
) -> Iterator[Piece]:
    """The same pieces, their text printed as it comes; until then, how much of a long prompt has
    been read.

    Where the answer follows other text in its line, that is not said: it would be written over the
    text.
    """
    with Waiting(
        lambda: f"reading the prompt: {read_so_far(engine)} of {length} tokens", begins_line
    ) as waiting:
        for piece in pieces:
            waiting.end()
            write(piece.text)
            yield piece


def read_so_far(engine: Engine) -> int:
    return max((slot.length for slot in engine.slots if slot.sequence is not None), default=0)


def prompt_lines(tokenizer: Tokenizer, tokens: Sequence[int]) -> Iterator[str]:
    """The tokens of a prompt, as llama.cpp's --verbose-prompt shows them."""
    yield f"number of tokens in prompt = {len(tokens)}"
    for token in tokens:
        yield f"{token:6} -> '{tokenizer.token_bytes(token).decode(errors='replace')}'"


def full_context(completion: Completion, limit: int, context: int) -> str | None:
    """What is said of an answer that neither the model nor `limit` has ended."""
    if completion.finish_reason != "length" or len(completion.tokens) == limit:
        return None
    return (
        f"note: the context of {context} tokens is full, the answer ends: -c N holds more, "
        "--context-shift goes on"
    )


def timing_lines(
    completion: Completion, load_seconds: float, total_seconds: float
) -> Iterator[str]:
    """As `ollama run --verbose` prints them, and the seed that replays the answer."""
    t = completion.timings
    yield f"total duration:       {duration(total_seconds)}"
    yield f"load duration:        {duration(load_seconds)}"
    cached = f", {completion.cached_tokens} more from the cache" if completion.cached_tokens else ""
    yield f"prompt eval count:    {t.prompt_n} token(s){cached}"
    yield f"prompt eval duration: {duration(t.prompt_ms / 1e3)}"
    yield f"prompt eval rate:     {t.prompt_per_second:.2f} tokens/s"
    yield f"eval count:           {t.predicted_n} token(s)"
    yield f"eval duration:        {duration(t.predicted_ms / 1e3)}"
    yield f"eval rate:            {t.predicted_per_second:.2f} tokens/s"
    yield f"seed:                 {completion.seed}"


def duration(seconds: float) -> str:
    """As Go prints durations.

    >>> duration(0.0123), duration(4.5), duration(75.25)
    ('12.300ms', '4.500s', '1m15.250s')
    """
    if seconds < 1:
        return f"{seconds * 1e3:.3f}ms"
    minutes, rest = divmod(seconds, 60)
    return f"{minutes:.0f}m{rest:.3f}s" if minutes else f"{rest:.3f}s"


def bandwidth_line(found: Description, completion: Completion, kind: str) -> str:
    """Bytes a token needs, times tokens a second, against what reading memory gives here."""
    t = completion.timings
    length = completion.prompt_tokens + t.predicted_n / 2
    needed = bytes_per_token(found) + found.cache_bytes(1, kind) / 256 * length
    used = needed * t.predicted_per_second / 1e9
    roofs = measure_roofs()
    roof = roofs.bandwidth_for(int(needed))
    measured = f"{roof:.1f} GB/s that {roofs.threads} threads read here"
    return (
        f"memory:               {needed / 1e6:.1f} MB a token, {used:.1f} GB/s: "
        f"{used / roof:.0%} "
        f"of the {measured}"
    )


def bytes_per_token(found: Description) -> float:
    """Weights that one token reads: all but an embedding that is only looked up, of experts those
    that are used."""
    share = found.number("expert_used_count") / max(1, found.number("expert_count"))
    looked_up = "token_embd.weight" if "output.weight" in found.tensors else ""
    weights = (
        t.nbytes * (share if "_exps." in t.name else 1)
        for t in found.tensors.values()
        if t.name != looked_up
    )
    return sum(weights)
