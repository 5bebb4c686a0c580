"""Decoding, OpenAI's shapes: what was decoded as OpenAI's API writes it, for the server and for the
names of llama-cpp-python.

Receives log-probabilities and calls, returns what becomes JSON.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tetrad.models.decoding.generation import Logprob

if TYPE_CHECKING:
    from tetrad.text.tokenizer import Tokenizer

Json = dict[str, Any]


def chat_logprobs(tokenizer: Tokenizer, chances: Sequence[Logprob], top: int | None = None) -> Json:
    """`top` of the likeliest beside each token, or all that are known."""

    def entry(token: int, logprob: float) -> Json:
        data = tokenizer.token_bytes(token)
        return {"token": data.decode(errors="replace"), "logprob": logprob, "bytes": list(data)}

    content = [
        entry(chance.token, chance.logprob)
        | {"top_logprobs": [entry(one.token, one.logprob) for one in chance.top[:top]]}
        for chance in chances
    ]
    return {"content": content, "refusal": None}


def call_of(name_of_call: str, name: str, arguments: str) -> Json:
    """A call of a function."""
    function = {"name": name, "arguments": arguments}
    return {"id": name_of_call, "type": "function", "function": function}
