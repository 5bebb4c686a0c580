"""python with_ollama.py http://host:port: the ollama package."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator

import ollama
from scripted import PERSON, QUESTION, WEATHER, Json, converse

SAME = {"temperature": 0, "num_predict": 24, "seed": 1}


class Ollama:
    def __init__(self, base: str) -> None:
        self.client = ollama.Client(host=base)
        self.model = self.client.list().models[0].model

    def chat(self, messages: list[Json]) -> str:
        return self.client.chat(self.model, messages, options=SAME).message.content

    def stream(self, messages: list[Json]) -> Iterator[str]:
        for part in self.client.chat(self.model, messages, stream=True, options=SAME):
            if part.message.content:
                yield part.message.content

    def call(self, messages: list[Json]) -> tuple[str, Json]:
        """ollama has no tool_choice: its `format` asks for the same object."""
        function = WEATHER["function"]
        made = self.client.chat(self.model, messages, tools=[WEATHER], options={"num_predict": 64})
        if made.message.tool_calls:
            found = made.message.tool_calls[0].function
            return found.name, dict(found.arguments)
        made = self.client.chat(self.model, messages, format=function["parameters"])
        return function["name"], json.loads(made.message.content)

    def schema(self, messages: list[Json]) -> str:
        return self.client.chat(self.model, messages, format=PERSON).message.content

    def embed(self, texts: list[str]) -> list[list[float]]:
        return [list(row) for row in self.client.embed(self.model, texts).embeddings]

    def mistake(self) -> str:
        try:
            self.client.chat(self.model, QUESTION, options={"temperature": -1})
        except ollama.ResponseError as error:
            assert error.status_code == 400, error
            return type(error).__name__
        return "none"


if __name__ == "__main__":
    converse(Ollama(sys.argv[1]), sys.argv[1], mistake="ResponseError")
