"""Slow tokenisers written from the definitions alone, and small vocabularies for them."""

from __future__ import annotations

import random
from itertools import pairwise

from tetrad.text.bytelevel import BYTE_TO_CHAR

Metadata = dict[str, object]


def naive_bpe(word: str, merges: list[str]) -> list[str]:
    """Merge the neighbours with the lowest rank, leftmost first, until none has a rank."""
    ranks = {line: rank for rank, line in reversed(list(enumerate(merges)))}
    parts = list(word)
    while True:
        found = [
            (ranks[f"{a} {b}"], i)
            for i, (a, b) in enumerate(pairwise(parts))
            if f"{a} {b}" in ranks
        ]
        if not found:
            return parts
        _, i = min(found)
        parts[i : i + 2] = [parts[i] + parts[i + 1]]


def naive_scores(text: str, scores: dict[str, float]) -> list[str]:
    """Merge the neighbours whose join has the best score, leftmost first, until no join is a
    piece."""
    parts = list(text)
    while True:
        found = [(-scores[a + b], i) for i, (a, b) in enumerate(pairwise(parts)) if a + b in scores]
        if not found:
            return parts
        _, i = min(found)
        parts[i : i + 2] = [parts[i] + parts[i + 1]]


def naive_unigram(text: str, scores: dict[str, float]) -> tuple[float, list[str]]:
    """Best sum of scores over all segmentations; an unknown character costs ten more than the worst
    piece."""
    unknown = min(scores.values()) - 10
    best: list[tuple[float, list[str]]] = [(0.0, [])]
    for stop in range(1, len(text) + 1):
        options = []
        for start in range(stop):
            piece = text[start:stop]
            if piece in scores or stop - start == 1:
                before, parts = best[start]
                options.append((before + scores.get(piece, unknown), [*parts, piece]))
        best.append(max(options, key=lambda option: option[0]))
    return best[-1]


def naive_wordpiece(word: str, pieces: set[str]) -> list[str] | None:
    """Longest piece first; ▁ marks the first of a word, as in GGUF. None: the word is unknown."""
    rest, parts = "▁" + word, []
    while rest:
        size = next((n for n in range(len(rest), 0, -1) if rest[:n] in pieces), 0)
        if not size:
            return None
        parts.append(rest[:size])
        rest = rest[size:]
    return parts


def byte_level_metadata(
    merges: list[str], special: tuple[str, ...] = (), **more: object
) -> Metadata:
    """All 256 bytes, what the merges make, then control tokens."""
    made = dict.fromkeys(line.replace(" ", "") for line in merges)
    normal = list(BYTE_TO_CHAR.values()) + [
        text for text in made if text not in BYTE_TO_CHAR.values()
    ]
    metadata: Metadata = {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "gpt-2",
        "tokenizer.ggml.tokens": normal + list(special),
        "tokenizer.ggml.token_type": [1] * len(normal) + [3] * len(special),
        "tokenizer.ggml.merges": merges,
    }
    return metadata | {f"tokenizer.ggml.{key}": value for key, value in more.items()}


def random_merges(seed: int, letters: str, count: int) -> list[str]:
    """Merges that build on each other."""
    chance = random.Random(seed)
    known, merges = list(letters), []
    while len(merges) < count:
        left, right = chance.choice(known), chance.choice(known)
        if len(left + right) <= 6 and f"{left} {right}" not in merges:
            merges.append(f"{left} {right}")
            known.append(left + right)
    return merges


def score_metadata(scores: dict[str, float], model: str = "llama", **more: object) -> Metadata:
    """<unk>, <s>, </s>, the 256 byte tokens, then the pieces."""
    names = [f"<0x{byte:02X}>" for byte in range(256)]
    metadata: Metadata = {
        "tokenizer.ggml.model": model,
        "tokenizer.ggml.tokens": ["<unk>", "<s>", "</s>", *names, *scores],
        "tokenizer.ggml.scores": [0.0] * 259 + list(scores.values()),
        "tokenizer.ggml.token_type": [2, 3, 3] + [6] * 256 + [1] * len(scores),
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2,
        "tokenizer.ggml.unknown_token_id": 0,
    }
    return metadata | {f"tokenizer.ggml.{key}": value for key, value in more.items()}
