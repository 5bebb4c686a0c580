"""Models, folders, templates: the chat templates of a folder.

Receives a folder; returns them under the keys that a GGUF file has for them. They are untrusted:
`text.chat` runs them in a sandbox.
"""

from __future__ import annotations

import os

from tetrad.core.errors import FileFormatError
from tetrad.formats.json_file import check_file, read_object

TEMPLATE_FILE, MOST_TEMPLATE = "chat_template.jinja", 1 << 20


def template_keys(folder: str) -> dict[str, str]:
    """The chat templates of a folder, under the keys that a GGUF file has for them."""
    path = os.path.join(folder, TEMPLATE_FILE)
    if os.path.exists(path):
        return {"tokenizer.chat_template": read_template(path)}
    path = os.path.join(folder, "tokenizer_config.json")
    said = read_object(path).get("chat_template") if os.path.exists(path) else None
    if said is None:
        return {}
    if isinstance(said, str):
        return {"tokenizer.chat_template": said}
    if not isinstance(said, list) or not all(isinstance(one, dict) for one in said):
        message = f"expected a text or a list of named ones, got {said!r:.60}"
        raise FileFormatError(message, file=path, part="field chat_template")
    named = {one.get("name"): one.get("template") for one in said}
    keys = {"default": "tokenizer.chat_template", "tool_use": "tokenizer.chat_template.tool_use"}
    return {key: named[name] for name, key in keys.items() if isinstance(named.get(name), str)}


def read_template(path: str) -> str:
    check_file(path, MOST_TEMPLATE)
    with open(path, "rb") as opened:
        data = opened.read(MOST_TEMPLATE)
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise FileFormatError("not UTF-8", file=path, offset=error.start) from None
