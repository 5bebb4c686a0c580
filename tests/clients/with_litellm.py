"""python with_litellm.py http://host:port: litellm, as for any server that speaks OpenAI's API."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator

import litellm
from scripted import PERSON, WEATHER, Json, converse

SAME = {"temperature": 0, "max_tokens": 24, "seed": 1}


class LiteLLM:
    def __init__(self, base: str) -> None:
        self.where = {"model": "openai/any", "api_base": f"{base}/v1", "api_key": "none"}

    def chat(self, messages: list[Json]) -> str:
        made = litellm.completion(**self.where, messages=messages, **SAME)
        return made.choices[0].message.content

    def stream(self, messages: list[Json]) -> Iterator[str]:
        for chunk in litellm.completion(**self.where, messages=messages, stream=True, **SAME):
            if chunk.choices and chunk.choices[0].delta.content:
                yield chunk.choices[0].delta.content

    def call(self, messages: list[Json]) -> tuple[str, Json]:
        made = litellm.completion(
            **self.where, messages=messages, tools=[WEATHER], tool_choice="required", max_tokens=200
        )
        function = made.choices[0].message.tool_calls[0].function
        return function.name, json.loads(function.arguments)

    def schema(self, messages: list[Json]) -> str:
        wanted = {"name": "person", "schema": PERSON, "strict": True}
        made = litellm.completion(
            **self.where,
            messages=messages,
            response_format={"type": "json_schema", "json_schema": wanted},
        )
        return made.choices[0].message.content

    def embed(self, texts: list[str]) -> list[list[float]]:
        made = litellm.embedding(**self.where, input=texts, encoding_format="float")
        return [row["embedding"] for row in made.data]

    def mistake(self) -> str:
        try:
            litellm.completion(
                **self.where, messages=[{"role": "user", "content": "Hi"}], temperature=-1
            )
        except litellm.exceptions.BadRequestError as error:
            return type(error).__name__
        return "none"


if __name__ == "__main__":
    converse(LiteLLM(sys.argv[1]), sys.argv[1], mistake="BadRequestError")
