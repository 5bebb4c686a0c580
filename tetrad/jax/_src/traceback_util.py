"""JAX's names: `jax._src.traceback_util`: which frames tracebacks leave out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

_exclude_paths: list[str] = []


def register_exclusion(path: str) -> None:
    _exclude_paths.append(path)


def api_boundary(fun: Callable[..., Any], **_: Any) -> Callable[..., Any]:
    return fun


def include_frame(frame: Any) -> bool:
    return not any(frame.f_code.co_filename.startswith(path) for path in _exclude_paths)


class UnfilteredStackTrace(Exception):
    """JAX's whole traceback; ours are whole with TETRAD_TRACEBACK=1."""
