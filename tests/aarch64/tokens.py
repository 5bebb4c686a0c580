"""What a language model says: `python -m tests.aarch64.tokens MODEL.gguf` prints tokens, and
digests of logits.

Ten tokens chosen greedily, ten drawn with a seed, and the logits of the prompt and of every token
after it. Two processors must print the same lines.
"""

from __future__ import annotations

import sys

import tetrad as td
from tests.aarch64.bits import digest

PROMPT = "The capital of France is"
COUNT, CONTEXT, SEED = 10, 64, 7


def main(path: str) -> None:
    model = td.load(path, context=CONTEXT)
    prompt = model.prompt_tokens(PROMPT)
    for name, temperature in {"greedy": 0.0, "seeded": 1.0}.items():
        tokens = model.generate(PROMPT, max_tokens=COUNT, temperature=temperature, seed=SEED).tokens
        print(f"{name} | {' '.join(map(str, tokens))}", flush=True)
        logits = [
            model.logits([*prompt, *tokens[:count]], last=True) for count in range(len(tokens) + 1)
        ]
        print(f"{name}, logits | {digest(logits)}", flush=True)
    print(f"prompt, logits | {digest([model.logits(prompt)])}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
