"""python with_openai.py http://host:port: the openai package."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator

import openai
from scripted import PERSON, QUESTION, WEATHER, Json, converse

SAME = {"temperature": 0, "max_tokens": 24, "seed": 1}


class OpenAI:
    def __init__(self, base: str) -> None:
        self.client = openai.OpenAI(base_url=f"{base}/v1", api_key="none", max_retries=0)

    def chat(self, messages: list[Json]) -> str:
        made = self.client.chat.completions.create(model="any", messages=messages, **SAME)
        assert made.usage.completion_tokens <= 24
        return made.choices[0].message.content

    def stream(self, messages: list[Json]) -> Iterator[str]:
        with self.client.chat.completions.create(
            model="any", messages=messages, stream=True, **SAME
        ) as chunks:
            for chunk in chunks:
                if chunk.choices and chunk.choices[0].delta.content:
                    yield chunk.choices[0].delta.content

    def call(self, messages: list[Json]) -> tuple[str, Json]:
        made = self.client.chat.completions.create(
            model="any", messages=messages, tools=[WEATHER], tool_choice="required", max_tokens=200
        )
        assert made.choices[0].finish_reason == "tool_calls"
        function = made.choices[0].message.tool_calls[0].function
        return function.name, json.loads(function.arguments)

    def schema(self, messages: list[Json]) -> str:
        wanted = {"name": "person", "schema": PERSON, "strict": True}
        made = self.client.chat.completions.create(
            model="any",
            messages=messages,
            response_format={"type": "json_schema", "json_schema": wanted},
        )
        return made.choices[0].message.content

    def embed(self, texts: list[str]) -> list[list[float]]:
        return [d.embedding for d in self.client.embeddings.create(model="any", input=texts).data]

    def mistake(self) -> str:
        try:
            self.client.chat.completions.create(model="any", messages=QUESTION, temperature=-1)
        except openai.APIError as error:
            return type(error).__name__
        return "none"


if __name__ == "__main__":
    converse(OpenAI(sys.argv[1]), sys.argv[1], mistake="BadRequestError")
