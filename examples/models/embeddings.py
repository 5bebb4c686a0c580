"""Which texts mean nearly the same: vectors of length 1, compared by their products.

python examples/models/embeddings.py [MODEL.gguf | FOLDER]
"""

from __future__ import annotations

import sys

import tetrad as td
from tetrad.hub.pull import pull

TEXTS = ("The cat sleeps on the sofa.", "A kitten naps on the couch.", "Interest rates rose again.")


def main(path: str) -> None:
    vectors = td.load(path).embed(TEXTS)
    for text, row in zip(TEXTS, vectors @ vectors.T, strict=True):
        print(f"{text:32}", *(f"{likeness:5.2f}" for likeness in row))


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else str(pull()))
