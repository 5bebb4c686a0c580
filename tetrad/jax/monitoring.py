"""JAX's names: `jax.monitoring`: events that listeners hear."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

LISTENERS: dict[str, list[Callable[..., None]]] = {
    "event": [], "duration": [], "scalar": [], "time_span": []
}  # fmt: skip


def heard(kind: str) -> Callable[..., None]:
    def record(event: str, *values: Any, **settings: Any) -> None:
        for listener in LISTENERS[kind]:
            listener(event, *values, **settings)

    return record


def listening(kind: str) -> Callable[[Callable[..., None]], None]:
    return LISTENERS[kind].append


record_event = heard("event")
record_event_duration_secs = heard("duration")
record_scalar = heard("scalar")
record_event_time_span = heard("time_span")
register_event_listener = listening("event")
register_event_duration_secs_listener = listening("duration")
register_scalar_listener = listening("scalar")
register_event_time_span_listener = listening("time_span")


def clear_event_listeners() -> None:
    for listeners in LISTENERS.values():
        listeners.clear()
