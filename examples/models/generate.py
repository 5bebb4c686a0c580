"""Continue a text, all at once and as it comes.

python examples/models/generate.py [MODEL.gguf]
"""

from __future__ import annotations

import sys

import tetrad as td
from tetrad.hub.pull import pull


def main(path: str) -> None:
    model = td.load(path)
    answer = model.generate("Once upon a time", max_tokens=32, seed=7)
    print(f"{answer.text} ({answer.finish_reason})")
    for piece in model.generate(
        "The three primary colours are", max_tokens=32, temperature=0, stream=True
    ):
        print(piece.text, end="", flush=True)
    print()


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else str(pull()))  # a small model, fetched the first time
