"""Serve, limits: what a client may send, how long it may take, and how much may wait, in one table.

Sizes are bytes, times are seconds. The command line changes those that depend on the use.
"""

from __future__ import annotations

from tetrad.core.record import record


@record
class Limits:
    """The limits of a server; the defaults are those of docs/serve.md."""

    # what one request may hold
    request_line: int = 8 << 10
    headers: int = 100
    header_bytes: int = 16 << 10
    body: int = 8 << 20
    chunks: int = 10_000  # of a body that comes in chunks
    depth: int = 32  # of JSON
    digits: int = 19  # of a whole number in JSON
    choices: int = 32  # n of a request
    stops: int = 64  # stop strings
    texts: int = 2048  # to embed or to rank in one request
    grammar: int = 64 << 10  # characters of a grammar, or of a schema as JSON

    # how long a client may take
    head_seconds: float = 10.0
    body_seconds: float = 30.0
    idle_seconds: float = 75.0
    stall_seconds: float = 30.0  # without progress of what it reads
    linger_seconds: float = 1.0  # in which an answer is read that came before its question ended
    quiet_seconds: float = 15.0  # of a stream, after which a comment keeps it open

    # how much there may be at a time
    connections: int = 512
    bodies: int = 64 << 20  # of all requests that are being read
    waiting: int = 256  # requests in the queue of a model
    pieces: int = 16_384  # of an answer that its client has not read yet
    memory: int = 0  # of keys and values of a model; 0: as many as its slots hold
    request_seconds: float = 0.0  # from question to answer; 0: any
