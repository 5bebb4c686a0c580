"""Serve, ollama, shapes: what its endpoints have in common: names, times, options, errors, lines
of JSON.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import msgspec

from tetrad.models.decoding.generation import Completion
from tetrad.models.decoding.settings import RULES
from tetrad.serve.errors import ApiError, invalid
from tetrad.serve.openai.shapes import Json

LINES = (("content-type", "application/x-ndjson"),)
SPELT = {"num_predict": "max_tokens", "num_keep": "keep"}
# of how a model is loaded, which the server has decided, and of what there is none here
PASSED_OVER = frozenset(
    {
        "num_batch", "num_gpu", "main_gpu", "num_thread", "use_mmap", "use_mlock", "numa",
        "low_vram", "f16_kv", "logits_all", "vocab_only", "penalize_newline", "tfs_z",
        "draft_num_predict",
    }
)  # fmt: skip
UNITS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
DURATION = re.compile(r"-?(?:\d+(?:\.\d+)?(?:ns|us|µs|ms|s|m|h))+")
LATEST = ":latest"


def ollama_error(error: ApiError) -> bytes:
    return msgspec.json.encode({"error": error.message})


def line(data: Json) -> bytes:
    return msgspec.json.encode(data) + b"\n"


def timestamp(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat().replace("+00:00", "Z")


def now() -> str:
    return datetime.now(UTC).isoformat().replace("+00:00", "Z")


def named(name: str | None) -> str | None:
    """A model as it is called here: a tag `latest` says nothing."""
    return None if name is None else name.removesuffix(LATEST)


def options_as_chat(options: Mapping[str, Any] | None, context: int | None) -> Json:
    """Settings by the names of a chat. `context` is what the model is loaded with: less may be
    asked for, and changes nothing; more cannot be had."""
    found: Json = {}
    for name, value in (options or {}).items():
        own = SPELT.get(name, name)
        if name == "num_ctx":
            check_context(value, context)
        elif own in RULES and value is not None:
            found[own] = value
        elif name not in PASSED_OVER and value is not None:
            raise invalid(f"options.{name[:60]} is not known", f"options.{name[:60]}")
    return found


def check_context(wanted: object, context: int | None) -> None:
    if isinstance(wanted, int) and context is not None and wanted > context:
        said = (
            f"options.num_ctx: the server has a context of {context} tokens, got {wanted}: "
            "start it with a larger -c"
        )
        raise invalid(said, "options.num_ctx")


def format_as_chat(wanted: object) -> Json:
    """`format`: "json", or a schema."""
    if wanted is None or wanted == "":
        return {}
    if wanted == "json":
        return {"response_format": {"type": "json_object"}}
    if not isinstance(wanted, dict):
        raise invalid("format: expected json, or a JSON schema", "format")
    return {
        "response_format": {"type": "json_schema", "json_schema": {"name": "", "schema": wanted}}
    }


def think_as_chat(think: bool | str | None) -> Json:
    if think is None or think is True:
        return {}
    return {"reasoning_effort": "none" if think is False else think}


def seconds_of(keep_alive: object) -> float | None:
    """How long a model stays loaded after its last use; below zero: for ever.

    >>> seconds_of("5m"), seconds_of(0), seconds_of("1h30m"), seconds_of(None), seconds_of("-1s")
    (300.0, 0.0, 5400.0, None, -1.0)
    """
    if keep_alive is None:
        return None
    if isinstance(keep_alive, int | float) and not isinstance(keep_alive, bool):
        return float(keep_alive)
    if isinstance(keep_alive, str) and DURATION.fullmatch(keep_alive):
        parts = re.findall(r"(\d+(?:\.\d+)?)(ns|us|µs|ms|s|m|h)", keep_alive)
        total = sum(float(count) * UNITS[unit] for count, unit in parts)
        return -total if keep_alive.startswith("-") else total
    raise invalid('keep_alive: expected seconds, or a text such as "5m"', "keep_alive")


def spent(done: Completion, total: float) -> Json:
    """Counts and nanoseconds, as ollama has them; loading was over before."""
    t = done.timings
    return {
        "total_duration": int(total * 1e9),
        "load_duration": 0,
        "prompt_eval_count": done.prompt_tokens,
        "prompt_eval_duration": int(t.prompt_ms * 1e6),
        "eval_count": len(done.tokens),
        "eval_duration": int(t.predicted_ms * 1e6),
    }
