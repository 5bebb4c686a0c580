"""Writes what `apply_chat_template` of `transformers` makes of every template and conversation of
`conversations.py`; test_chat_goldens.py compares. Run by hand, from the root of the repository:

    python -m venv peer && peer/bin/pip install transformers jinja2
    PYTHONPATH=. peer/bin/python tests/text/templates_against_transformers.py
"""

from __future__ import annotations

import json
from typing import Any

from tests.text.conversations import BOS, CASES, EOS, GOLDENS, SOURCES, Frozen


def main() -> None:
    import transformers
    from transformers.utils import chat_template_utils

    chat_template_utils.datetime = Frozen
    theirs = tokenizer(transformers)
    found = {
        name: {case: rendered(theirs, source, given) for case, given in CASES.items()}
        for name, source in SOURCES.items()
    }
    GOLDENS.parent.mkdir(exist_ok=True)
    GOLDENS.write_text(json.dumps(found, ensure_ascii=False, indent=1) + "\n", "utf-8")
    print(f"transformers {transformers.__version__}: {len(found)} templates, {len(CASES)} cases")


def tokenizer(transformers: Any) -> Any:
    """One that knows nothing but its special tokens."""
    import tokenizers

    words = tokenizers.Tokenizer(tokenizers.models.WordLevel({"<unk>": 0}, unk_token="<unk>"))
    made = transformers.PreTrainedTokenizerFast
    return made(tokenizer_object=words, bos_token=BOS, eos_token=EOS)


def rendered(theirs: Any, source: str, given: dict[str, Any]) -> str | dict[str, str]:
    """The prompt, or what the template says is wrong."""
    import jinja2

    settings = {"add_generation_prompt": True, **given}
    messages = settings.pop("messages")
    try:
        found = theirs.apply_chat_template(
            messages, chat_template=source, tokenize=False, **settings
        )
        return str(found)
    except jinja2.TemplateError as error:
        return {"error": str(error)}


if __name__ == "__main__":
    main()
