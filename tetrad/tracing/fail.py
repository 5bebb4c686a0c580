"""Tracing, errors and warnings that name the user's line."""

from __future__ import annotations

import warnings
from typing import NoReturn

from tetrad.core.errors import TetradError
from tetrad.core.source import user_source


def fail(error: type[TetradError], message: str, hint: str | None = None) -> NoReturn:
    """Raise an error that names the user's line."""
    raise error(message, source=user_source(), hint=hint) from None


def warn(message: str) -> None:
    """Warn of the user's line."""
    source = user_source()
    if source is None:
        warnings.warn(message, UserWarning, stacklevel=2)
    else:
        warnings.warn_explicit(message, UserWarning, source.file, source.line)
