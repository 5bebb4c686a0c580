"""Bench, quality: how far the logits of a quantised model are from exact arithmetic on the same
weights.

    python bench/quality.py [MODEL.gguf ...]

Exact is the NumPy reference of the tests in f32 on the dequantised weights. Both sides see the same
tokens of a real text (this project's licence), each predicting the next. Printed: mean KL
divergence from the exact distribution, share of tokens with the same likeliest next one,
perplexity.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np

ROOT = Path(__file__).parent.parent
# the reference lives with the tests; hence imports below this
sys.path.insert(0, str(ROOT / "tests" / "models"))

import reference  # noqa: E402
from llm import FORMATS, model_file  # noqa: E402

import tetrad as td  # noqa: E402
from tetrad.formats import gguf  # noqa: E402
from tetrad.quant import unpack  # noqa: E402

COUNT = 1000


def exact(path: Path, tokens: np.ndarray) -> np.ndarray:
    file = gguf.open_file(path)
    tensors = {
        name: unpack(file.data(name), t.format, t.shape)
        for name, t in file.tensors.items()
        if len(t.shape) > 1
    }
    tensors |= {
        n: file.data(n).view(np.float32) for n, t in file.tensors.items() if len(t.shape) == 1
    }
    return reference.forward(file.metadata, tensors, tokens, dtype=np.float32)


def ours(path: Path, tokens: np.ndarray) -> np.ndarray:
    return np.asarray(td.load(path, context=1024).logits(tokens.tolist()))


def theirs(path: Path, tokens: np.ndarray) -> np.ndarray:
    import llama_cpp

    model = llama_cpp.Llama(str(path), n_ctx=1024, n_threads=2, logits_all=True, verbose=False)
    model.eval(tokens.tolist())
    return np.array(model.scores[: len(tokens)], np.float32)


def log_softmax(logits: np.ndarray) -> np.ndarray:
    wide = logits.astype(np.float64)
    top = wide - wide.max(axis=-1, keepdims=True)
    return np.asarray(top - np.log(np.exp(top).sum(axis=-1, keepdims=True)))


def figures(found: np.ndarray, want: np.ndarray, tokens: np.ndarray) -> tuple[float, float, float]:
    """(mean KL from `want`, share of equal first choices, perplexity)."""
    p, q = log_softmax(want), log_softmax(found)
    kl = (np.exp(p) * (p - q)).sum(axis=-1).mean()
    nll = -q[np.arange(len(tokens) - 1), tokens[1:]].mean()
    return float(kl), float((p.argmax(-1) == q.argmax(-1)).mean()), float(np.exp(nll))


def main() -> None:
    paths = [Path(p) for p in sys.argv[1:]] or [model_file(f) for f in FORMATS]
    text = (ROOT / "LICENSE").read_text()
    sides: dict[str, Callable[[Path, np.ndarray], np.ndarray]] = {
        "tetrad": ours,
        "llama.cpp": theirs,
    }
    print(
        f"{'model':<28}{'':<11}{'mean KL':>10}{'same top':>10}{'perplexity':>12}   ({COUNT} tokens)"
    )
    for path in paths:
        tokens = np.array(td.load(path, context=1024).tokenizer.encode(text)[:COUNT], np.int32)
        want = exact(path, tokens)
        print(f"{path.stem[:27]:<28}{'exact':<11}{'':>20}{figures(want, want, tokens)[2]:>12.3f}")
        for name, run in sides.items():
            kl, same, perplexity = figures(run(path, tokens), want, tokens)
            print(f"{'':<28}{name:<11}{kl:>10.2e}{same:>10.1%}{perplexity:>12.3f}", flush=True)


if __name__ == "__main__":
    main()
