"""Which texts answer a question: a cross-encoder reads the question and each text together.

python examples/models/rerank.py FOLDER

FOLDER is one of Hugging Face, such as cross-encoder/ms-marco-MiniLM-L6-v2.
"""

from __future__ import annotations

import sys

import tetrad as td

QUESTION = "How many people live in Berlin?"
TEXTS = (
    "Berlin has 3.7 million inhabitants.",
    "Berlin is well known for its museums.",
    "Munich has 1.5 million inhabitants.",
)


def main(path: str) -> None:
    scores = td.load(path).rerank(QUESTION, TEXTS)
    for score, text in sorted(zip(scores.tolist(), TEXTS, strict=True), reverse=True):
        print(f"{score:9.4f}  {text}")


if __name__ == "__main__":
    main(sys.argv[1])
