"""python with_langchain.py http://host:port: LangChain's class for OpenAI's chat."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import openai
from langchain_openai import ChatOpenAI, OpenAIEmbeddings
from scripted import PERSON, WEATHER, Json, converse


class LangChain:
    def __init__(self, base: str) -> None:
        where = {"base_url": f"{base}/v1", "api_key": "none", "model": "any", "max_retries": 0}
        self.where = where
        self.short = ChatOpenAI(**where, temperature=0, max_tokens=24, seed=1)
        self.free = ChatOpenAI(**where, max_tokens=200)
        self.vectors = OpenAIEmbeddings(**where, check_embedding_ctx_length=False)

    def chat(self, messages: list[Json]) -> str:
        return self.short.invoke(messages).content

    def stream(self, messages: list[Json]) -> Iterator[str]:
        for chunk in self.short.stream(messages):
            if chunk.content:
                yield chunk.content

    def call(self, messages: list[Json]) -> tuple[str, Json]:
        made = self.free.bind_tools([WEATHER], tool_choice="any").invoke(messages)
        return made.tool_calls[0]["name"], made.tool_calls[0]["args"]

    def schema(self, messages: list[Json]) -> str:
        wanted = {"name": "person", "schema": PERSON, "strict": True}
        bound = self.free.bind(response_format={"type": "json_schema", "json_schema": wanted})
        return bound.invoke(messages).content

    def embed(self, texts: list[str]) -> list[list[float]]:
        return self.vectors.embed_documents(texts)

    def mistake(self) -> str:
        try:
            ChatOpenAI(**self.where, temperature=-1).invoke("Hello")
        except openai.BadRequestError:  # or a kind of it that is LangChain's
            return "BadRequestError"
        return "none"


if __name__ == "__main__":
    converse(LangChain(sys.argv[1]), sys.argv[1], mistake="BadRequestError")
