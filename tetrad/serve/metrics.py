"""Serve, metrics: numbers about requests, in the text form of Prometheus. Counted on the event
loop; what schedulers count themselves is added when somebody asks.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
Labels = tuple[tuple[str, str], ...]


class Histogram:
    """How often a value was at most each of some bounds."""

    def __init__(self, bounds: Sequence[float] = SECONDS) -> None:
        self.bounds, self.counts = bounds, [0] * (len(bounds) + 1)
        self.total = 0.0

    def add(self, value: float) -> None:
        place = next((i for i, bound in enumerate(self.bounds) if value <= bound), -1)
        self.counts[place] += 1
        self.total += value

    def lines(self, name: str) -> Iterator[str]:
        below = 0
        for bound, count in zip((*map(str, self.bounds), "+Inf"), self.counts, strict=True):
            below += count
            yield f'{name}_bucket{{le="{bound}"}} {below}'
        yield f"{name}_sum {self.total:.6f}"
        yield f"{name}_count {below}"


class Metrics:
    """What has happened since the start."""

    def __init__(self) -> None:
        self.requests: Counter[tuple[str, int]] = Counter()  # by route and status
        self.first_token, self.between_tokens = Histogram(), Histogram()
        self.request_seconds = Histogram()

    def answered(self, route: str, status: int, seconds: float) -> None:
        self.requests[route, status] += 1
        self.request_seconds.add(seconds)

    def lines(self) -> Iterator[str]:
        yield from described("tetrad_requests_total", "counter", "Requests by route and status.")
        for (route, status), count in sorted(self.requests.items()):
            yield sample(
                "tetrad_requests_total", count, (("route", route), ("status", str(status)))
            )
        for name, histogram, meaning in (
            ("tetrad_request_seconds", self.request_seconds, "From a request to its answer's end."),
            ("tetrad_first_token_seconds", self.first_token, "From a request to its first token."),
            ("tetrad_between_tokens_seconds", self.between_tokens, "Between tokens of an answer."),
        ):
            yield from described(name, "histogram", meaning)
            yield from histogram.lines(name)


def described(name: str, kind: str, meaning: str) -> Iterator[str]:
    yield f"# HELP {name} {meaning}"
    yield f"# TYPE {name} {kind}"


def sample(name: str, value: float, labels: Iterable[tuple[str, str]] = ()) -> str:
    r"""
    >>> sample("tetrad_slots", 4, [("model", 'a"b')])
    'tetrad_slots{model="a\\"b"} 4'
    """
    inner = ",".join(f'{key}="{escaped(text)}"' for key, text in labels)
    return f"{name}{{{inner}}} {value}" if inner else f"{name} {value}"


def escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
