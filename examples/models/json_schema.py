"""An answer that fits a JSON schema, whatever the model would rather say.

python examples/models/json_schema.py [MODEL.gguf]
"""

from __future__ import annotations

import json
import sys

import tetrad as td
from tetrad.hub.pull import pull

SCHEMA = {
    "type": "object",
    "properties": {"city": {"enum": ["Paris", "Rome", "Oslo"]}, "warm": {"type": "boolean"}},
    "required": ["city", "warm"],
    "additionalProperties": False,
}


def main(path: str) -> None:
    model = td.load(path)
    prompt = "A city to visit in July, as JSON: "
    answer = model.generate(prompt, json_schema=SCHEMA, max_tokens=64, temperature=0)
    found = json.loads(answer.text)
    print(found["city"], found["warm"])


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else str(pull()))
