"""Serve, errors: what a client is told. A mistake in; a status and a body as OpenAI has it out.

Only errors that are raised on purpose are shown, and of those no text that names a file; anything
else is "internal error", and the log has the rest under the request's id.
"""

from __future__ import annotations

from typing import Any

from tetrad.core.errors import (
    BusyError,
    ClosedError,
    ContextError,
    SettingError,
    TemplateError,
    TetradError,
    TextError,
    UnknownSettingError,
    UnsupportedError,
)

INVALID, SERVER = "invalid_request_error", "server_error"
RETRY_SECONDS = 2  # that a client is asked to wait when there is no room


class ApiError(Exception):
    """An answer that is an error: its status, and what OpenAI's error bodies have."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        kind: str = INVALID,
        param: str | None = None,
        code: str | None = None,
        headers: tuple[tuple[str, str], ...] = (),
    ) -> None:
        super().__init__(message)
        self.status, self.message, self.kind = status, message, kind
        self.param, self.code, self.headers = param, code, headers

    def body(self) -> dict[str, Any]:
        return {
            "error": {
                "message": self.message,
                "type": self.kind,
                "param": self.param,
                "code": self.code,
            }
        }


def invalid(message: str, param: str | None = None, code: str | None = None) -> ApiError:
    return ApiError(400, message, param=param, code=code)


def unavailable(message: str, seconds: int = RETRY_SECONDS) -> ApiError:
    return ApiError(
        503, message, kind=SERVER, code="unavailable", headers=(("retry-after", str(seconds)),)
    )


def too_many(message: str) -> ApiError:
    return ApiError(
        429,
        message,
        kind="rate_limit_error",
        code="queue_full",
        headers=(("retry-after", str(RETRY_SECONDS)),),
    )


def internal() -> ApiError:
    return ApiError(500, "internal error; the server's log has it under this request's id",
                    kind=SERVER, code="internal_error")  # fmt: skip


SHOWN = (TemplateError, TextError, UnsupportedError, UnknownSettingError)


def public(error: BaseException, param: str | None = None) -> ApiError:
    """What a client may see of an error."""
    if isinstance(error, ApiError):
        return error
    if isinstance(error, ContextError):
        return invalid(said(error), param or "messages", "context_length_exceeded")
    if isinstance(error, SettingError):
        return invalid(said(error), error.name, "invalid_value")
    if isinstance(error, BusyError):
        return too_many("the queue is full: try again in a moment")
    if isinstance(error, ClosedError):
        return unavailable("the server is shutting down, or lets go of this model")
    if isinstance(error, TimeoutError):
        return ApiError(504, "the request took longer than this server allows", kind=SERVER,
                        code="timeout")  # fmt: skip
    if isinstance(error, SHOWN):
        return invalid(said(error), param, "invalid_value")
    if isinstance(error, MemoryError):
        return unavailable("not enough memory for this request")
    return internal()


def said(error: TetradError) -> str:
    """The message without the line of the program, and with its hint."""
    return error.message if error.hint is None else f"{error.message} ({error.hint})"
