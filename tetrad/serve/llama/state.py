"""Serve, llama.cpp, state: what a server does now. GET /slots, GET /metrics (for Prometheus), and
the feeds of the page: GET /live, GET /inside.

Nothing here shows what anybody asked or was answered.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tetrad.core import lazy
from tetrad.core.errors import TetradError
from tetrad.models.decoding.scheduler import SchedulerStats
from tetrad.serve.app import ApiCall, Response, Route, json_response
from tetrad.serve.errors import invalid
from tetrad.serve.llama.query import asked_model
from tetrad.serve.meter import weight_bytes
from tetrad.serve.metrics import described, sample
from tetrad.serve.store import LoadedModel

TEXT = (("content-type", "text/plain; version=0.0.4; charset=utf-8"),)
STATES = {"free": "idle", "prompt": "prompt", "answer": "answer"}
GAUGES = {"slots", "slots_busy", "requests_waiting", "kv_bytes", "last_step_seconds"}


def stats_of(loaded: LoadedModel) -> SchedulerStats | None:
    return None if loaded.scheduler is None else loaded.scheduler.stats()


# -- slots -----------------------------------------------------------------------------------------


async def slots(call: ApiCall) -> Response:
    async with call.store.using(asked_model(call)) as loaded:
        stats = stats_of(loaded)
        shown = [] if stats is None else stats.slots
        return json_response(
            [
                {
                    "id": slot.number,
                    "n_ctx": loaded.model.context,
                    "is_processing": slot.state != "free",
                    "state": STATES[slot.state],
                    "n_tokens": slot.tokens,
                    "n_decoded": slot.predicted,
                }
                for slot in shown
            ]
        )


# -- metrics ---------------------------------------------------------------------------------------

MEANINGS = {
    "prompt_tokens_total": "Tokens of prompts that were evaluated.",
    "prompt_seconds_total": "Seconds of steps that went into prompts.",
    "predicted_tokens_total": "Tokens that were written.",
    "predicted_seconds_total": "Seconds of steps that went into writing.",
    "steps_total": "Steps: batches of tokens that were evaluated.",
    "drafted_total": "Tokens that speculation proposed.",
    "accepted_total": "Of these, tokens that were right.",
    "slots": "Answers at a time, at most.",
    "slots_busy": "Answers at this time.",
    "requests_waiting": "Requests that wait for a slot.",
    "kv_bytes": "Bytes of keys and values.",
    "last_step_seconds": "Seconds of the last step.",
}


def numbers(stats: SchedulerStats) -> dict[str, float]:
    return {
        "prompt_tokens_total": stats.prompt_tokens,
        "prompt_seconds_total": stats.prompt_seconds,
        "predicted_tokens_total": stats.predicted_tokens,
        "predicted_seconds_total": stats.predicted_seconds,
        "steps_total": stats.steps,
        "drafted_total": stats.drafted,
        "accepted_total": stats.accepted,
        "slots": len(stats.slots),
        "slots_busy": stats.running,
        "requests_waiting": stats.queued,
        "kv_bytes": stats.kv_bytes,
        "last_step_seconds": stats.last_step,
    }


async def metrics(call: ApiCall) -> Response:
    loaded = [(one.name, stats_of(one)) for one in call.store.loaded.values()]
    known = {name: numbers(stats) for name, stats in loaded if stats is not None}
    lines = [*call.store.metrics.lines(), *model_lines(known), *server_lines(call)]
    return Response("\n".join((*lines, "")).encode(), headers=TEXT)


def model_lines(known: dict[str, dict[str, float]]) -> Iterator[str]:
    for name, meaning in MEANINGS.items():
        kind = "gauge" if name in GAUGES else "counter"
        yield from described(f"tetrad_{name}", kind, meaning)
        for model, found in known.items():
            yield sample(f"tetrad_{name}", found[name], [("model", model)])


def server_lines(call: ApiCall) -> Iterator[str]:
    for name, value, meaning in (
        ("connections", len(call.app.connections), "Connections that are open."),
        ("requests_running", call.app.running, "Requests that are being answered."),
        ("models_loaded", len(call.store.loaded), "Models in memory."),
    ):
        yield from described(f"tetrad_{name}", "gauge", meaning)
        yield sample(f"tetrad_{name}", value)


# -- feeds of the page -----------------------------------------------------------------------------


async def live(call: ApiCall) -> Response:
    async with call.store.using(asked_model(call)) as loaded:
        stats = stats_of(loaded)
        if stats is None:
            raise invalid(f"{loaded.name} embeds texts, which has no slots", "model")
        if loaded.meter.weights is None:
            loaded.meter.weights = await call.store.in_thread(weight_bytes, loaded.place.path)
        return json_response(shown_live(call, loaded, stats))


def shown_live(call: ApiCall, loaded: LoadedModel, stats: SchedulerStats) -> dict[str, Any]:
    context = loaded.model.context
    return {
        "model": loaded.name,
        "uptime": time.monotonic() - call.app.begin,
        "slots": [
            {"id": s.number, "state": STATES[s.state], "tokens": s.tokens, "limit": context}
            for s in stats.slots
        ],
        "queue": {"waiting": stats.queued, "limit": call.app.limits.waiting},
        "totals": {
            "requests": stats.requests,
            "prompt_tokens": stats.prompt_tokens,
            "predicted_tokens": stats.predicted_tokens,
            "drafted": stats.drafted,
            "accepted": stats.accepted,
        },
        "memory": {"rate": loaded.meter.rate(stats), "roof": loaded.meter.roof},
        "cache": {"bytes": stats.kv_bytes, "limit": stats.kv_limit},
    }


async def inside(call: ApiCall) -> Response:
    async with call.store.using(asked_model(call)) as loaded:
        if loaded.inside is None:
            made = await call.store.compute(
                loaded, measured, loaded.place.path, loaded.model.context
            )
            loaded.inside = json_response(made).body
            loaded.meter.roof = made["step"]["roof"]
        return Response(loaded.inside)


def measured(path: Path, context: int) -> dict[str, Any]:
    """In a thread: one step of the model, every kernel timed."""
    inside = lazy.module("tetrad.explain.inside")
    try:
        found = lazy.module("tetrad.hub.describe").describe(str(path))
        made: dict[str, Any] = inside.inside(found, inside.decode_step(path), context)
        return made
    except TetradError:
        raise invalid("the inside of this model cannot be shown", "model") from None


ROUTES = [
    Route("GET", "/slots", slots),
    Route("GET", "/metrics", metrics),
    Route("GET", "/live", live),
    Route("GET", "/inside", inside),
]
