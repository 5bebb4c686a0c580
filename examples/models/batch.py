"""Several answers at once: requests of several threads share every step, and each has the bytes it
would have alone.

    python examples/models/batch.py [MODEL.gguf]
"""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor

import tetrad as td
from tetrad.hub.pull import pull

PROMPTS = (
    "Water boils at",
    "The largest planet is",
    "A haiku about rain:",
    "The opposite of hot is",
)


def main(path: str) -> None:
    model = td.load(path, slots=len(PROMPTS))

    def answer(prompt: str) -> str:
        return str(model.generate(prompt, max_tokens=24, seed=1).text)

    with ThreadPoolExecutor(len(PROMPTS)) as pool:
        together = list(pool.map(answer, PROMPTS))
    alone = [answer(prompt) for prompt in PROMPTS]
    for prompt, text in zip(PROMPTS, together, strict=True):
        print(f"{prompt}{text}\n")
    print("the same as one by one:", together == alone)


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else str(pull()))
