"""JAX's names: `jax.profiler`. Nothing is recorded; a warning says so, and where times are."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

INSTEAD = "jax.profiler records nothing here; td.explain(f)(x) has the times of a call"


def tell() -> None:
    warnings.warn(INSTEAD, stacklevel=3)


def start_trace(log_dir: Any, *_: Any, **__: Any) -> None:
    tell()


def stop_trace() -> None:
    """End what was not recorded."""


@contextmanager
def trace(log_dir: Any, *_: Any, **__: Any) -> Iterator[None]:
    tell()
    yield


class TraceAnnotation:
    """A name for a stretch of time: it is not recorded."""

    def __init__(self, name: str, **_: Any) -> None:
        self.name = name

    def __enter__(self) -> TraceAnnotation:
        return self

    def __exit__(self, *_: object) -> None:
        return None


StepTraceAnnotation = TraceAnnotation


def annotate_function(func: Callable[..., Any], name: str | None = None, **_: Any) -> Any:
    @functools.wraps(func)
    def annotated(*args: Any, **kwargs: Any) -> Any:
        return func(*args, **kwargs)

    return annotated


def start_server(port: int) -> None:
    tell()


def stop_server() -> None:
    """End what was not started."""


def save_device_memory_profile(filename: Any, backend: Any = None) -> None:
    tell()


def device_memory_profile(backend: Any = None) -> bytes:
    tell()
    return b""
