"""A conversation: what was said is kept, and what the model has read already is not computed again.

python examples/models/chat.py [MODEL.gguf]
"""

from __future__ import annotations

import sys

import tetrad as td
from tetrad.hub.pull import pull

QUESTIONS = ("What is the capital of France?", "And how many people live there?")


def main(path: str) -> None:
    model = td.load(path)
    messages = [{"role": "system", "content": "You answer in one sentence."}]
    for question in QUESTIONS:
        messages.append({"role": "user", "content": question})
        answer = model.chat(messages, max_tokens=48, temperature=0).text
        messages.append({"role": "assistant", "content": answer})
        print(f"> {question}\n{answer}")


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else str(pull()))
