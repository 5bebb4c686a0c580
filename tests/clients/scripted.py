"""What every client is asked to do, and what must come of it. Runs in the clients' environment:
nothing of Tetrad is imported here, the server is another process.

A client is a class with these methods; each gives plain data. `converse` walks through all of them.
"""

from __future__ import annotations

import json
import time
import urllib.request
from collections.abc import Iterator
from typing import Any, Protocol

Json = dict[str, Any]

QUESTION: list[Json] = [
    {"role": "system", "content": "You answer in one short sentence."},
    {"role": "user", "content": "Name a colour of the sky."},
]
WEATHER: Json = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "The weather of a city.",
        "parameters": {
            "type": "object",
            "properties": {
                "city": {"type": "string", "maxLength": 20},
                "unit": {"enum": ["celsius", "fahrenheit"]},
            },
            "required": ["city", "unit"],
            "additionalProperties": False,
        },
    },
}
PERSON: Json = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 12},
        "age": {"type": "integer", "minimum": 0, "maximum": 150},
    },
    "required": ["name", "age"],
    "additionalProperties": False,
}


class Client(Protocol):
    """One of the packages that speak to a server."""

    def chat(self, messages: list[Json]) -> str: ...

    def stream(self, messages: list[Json]) -> Iterator[str]: ...

    def call(self, messages: list[Json]) -> tuple[str, Json]:
        """The name and the arguments of a tool that must be called."""

    def schema(self, messages: list[Json]) -> str:
        """An answer that fits `PERSON`."""

    def embed(self, texts: list[str]) -> list[list[float]]: ...

    def mistake(self) -> str:
        """Asks with a temperature below zero; the name of the exception's class."""


def converse(client: Client, base: str, *, mistake: str) -> None:
    """Everything once; raises where something is not as it must be."""
    whole = client.chat(QUESTION)
    assert whole.strip(), "an empty answer"
    assert client.chat(QUESTION) == whole, "the same question has two answers"
    assert "".join(client.stream(QUESTION)) == whole, "streaming joined is not the whole"
    name, arguments = client.call([{"role": "user", "content": "What is the weather in Paris?"}])
    assert name == "get_weather", name
    assert arguments["unit"] in ("celsius", "fahrenheit") and isinstance(arguments["city"], str)
    person = json.loads(client.schema([{"role": "user", "content": "Invent a person."}]))
    assert set(person) == {"name", "age"} and isinstance(person["age"], int), person
    vectors = client.embed(["a", "another text"])
    assert len(vectors) == 2 and len(vectors[0]) == len(vectors[1]) > 0
    assert client.mistake() == mistake, f"expected {mistake}, got {client.mistake()}"
    next(iter(client.stream(QUESTION)))  # and no further: the client goes away
    wait_until_idle(base)


def wait_until_idle(base: str, seconds: float = 2.0) -> None:
    """Nothing runs any more on the server, soon."""
    end = time.monotonic() + seconds
    while any(slot["is_processing"] for slot in slots(base)):
        assert time.monotonic() < end, "a slot is busy though its client has left"
        time.sleep(0.02)


def slots(base: str) -> list[Json]:
    with urllib.request.urlopen(f"{base}/slots", timeout=5) as answer:
        found: list[Json] = json.load(answer)
    return found
