"""Command line, answers: what one cost, and what its prompt was.

Receives an `AnswerCost`; timings have the fields of ollama's --verbose, and say how much of the
memory bandwidth, measured here, was used.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from tetrad.cli.talk.parts import AnswerCost
from tetrad.core import lazy

if TYPE_CHECKING:
    from tetrad.explain import roofs as measuring
    from tetrad.hub.describe import Description
    from tetrad.text.tokenizer import Tokenizer
else:
    measuring = lazy.later("tetrad.explain.roofs")  # loads the compiler


def prompt_lines(tokenizer: Tokenizer, tokens: Sequence[int]) -> Iterator[str]:
    """The tokens of a prompt, as llama.cpp's --verbose-prompt shows them."""
    yield f"number of tokens in prompt = {len(tokens)}"
    for token in tokens:
        yield f"{token:6} -> '{tokenizer.token_bytes(token).decode(errors='replace')}'"


def timing_lines(cost: AnswerCost, load_seconds: float, total_seconds: float) -> Iterator[str]:
    """As `ollama run --verbose` prints them, and the seed that replays the answer."""
    yield f"total duration:       {duration(total_seconds)}"
    if load_seconds:
        yield f"load duration:        {duration(load_seconds)}"
    cached = f", {cost.cached} more from the cache" if cost.cached else ""
    yield f"prompt eval count:    {cost.prompt_n} token(s){cached}"
    yield f"prompt eval duration: {duration(cost.prompt_ms / 1e3)}"
    yield f"prompt eval rate:     {cost.prompt_per_second:.2f} tokens/s"
    yield f"eval count:           {cost.predicted_n} token(s)"
    yield f"eval duration:        {duration(cost.predicted_ms / 1e3)}"
    yield f"eval rate:            {cost.predicted_per_second:.2f} tokens/s"
    if cost.drafted:
        share = f"{100 * cost.accepted / cost.drafted:.0f} %"
        yield f"guessed:              {cost.accepted} of {cost.drafted} right ({share})"
    if cost.seed is not None:
        yield f"seed:                 {cost.seed}"


def duration(seconds: float) -> str:
    """As Go prints durations.

    >>> duration(0.0123), duration(4.5), duration(75.25)
    ('12.300ms', '4.500s', '1m15.250s')
    """
    if seconds < 1:
        return f"{seconds * 1e3:.3f}ms"
    minutes, rest = divmod(seconds, 60)
    return f"{minutes:.0f}m{rest:.3f}s" if minutes else f"{rest:.3f}s"


def bandwidth_line(found: Description, cost: AnswerCost, kind: str) -> str:
    """Bytes a token needs, times tokens a second, against what reading memory gives here."""
    length = cost.cached + cost.prompt_n + cost.predicted_n / 2
    needed = bytes_per_token(found) + found.cache_bytes(1, kind) / 256 * length
    used = needed * cost.predicted_per_second / 1e9
    roofs = measuring.measure_roofs()
    roof = roofs.bandwidth_for(int(needed))
    measured = f"{roof:.1f} GB/s that {roofs.threads} threads read here"
    return (
        f"memory:               {needed / 1e6:.1f} MB a token, {used:.1f} GB/s: {used / roof:.0%} "
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
