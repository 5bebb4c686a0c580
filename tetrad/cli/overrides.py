"""Command line, overrides: options that take the place of what the file of a model says, by
changing its metadata.

Receives the options for rotary positions, chat templates and single keys; returns what
`tetrad.load` takes as `overrides`, and the variables of the chat template.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import click

from tetrad.cli.options import READABLE, option, read_text
from tetrad.cli.unused import ON_OR_OFF, OnOffOption, together
from tetrad.text.templates import named_template

ROPE = {  # option: key of the architecture
    "rope_scaling": "rope.scaling.type",
    "rope_scale": "rope.scaling.factor",
    "rope_freq_base": "rope.freq_base",
    "yarn_orig_ctx": "rope.scaling.original_context_length",
    "yarn_ext_factor": "rope.scaling.yarn_ext_factor",
    "yarn_attn_factor": "rope.scaling.attn_factor",
    "yarn_beta_fast": "rope.scaling.yarn_beta_fast",
    "yarn_beta_slow": "rope.scaling.yarn_beta_slow",
}
KINDS = click.Choice(["none", "linear", "yarn"])
TRUTH = {"true": True, "false": False}
KIND_OF: dict[str, Callable[[str], Any]] = {
    "int": int,
    "float": float,
    "str": str,
    "bool": TRUTH.__getitem__,
}

override_options = together(
    option("--rope-scaling", type=KINDS, default=None,
    help="How positions are stretched; default: as the model says."),
    option("--rope-scale", type=float, default=None, help="By how much."),
    option("--rope-freq-scale", type=float, default=None, help="The same, as its inverse."),
    option("--rope-freq-base", type=float, default=None, help="The base of the frequencies."),
    option("--yarn-orig-ctx", type=int, default=None,
    help="YaRN: the context the model was trained for."),
    option("--yarn-ext-factor", type=float, default=None,
    help="YaRN: 0 stretches all, 1 as published."),
    option("--yarn-attn-factor", type=float, default=None, help="YaRN: a factor of attention."),
    option("--yarn-beta-fast", type=float, default=None,
    help="YaRN: pairs that turn more often stay."),
    option("--yarn-beta-slow", type=float, default=None,
    help="YaRN: pairs that turn less often are stretched."),
    option("--override-kv", "keys", metavar="KEY=TYPE:VALUE", multiple=True, show_default=False,
           help="A key of the file; TYPE is int, float, bool or str; again for more."),
    option("--chat-template", "template", default=None, metavar="NAME|JINJA",
    help="In place of the model's own."),
    option("--chat-template-file", "template_file", type=READABLE, default=None,
    help="The same, from a file."),
    option("--chat-template-kwargs", "variables", default=None, metavar="JSON",
    help="Variables of the template."),
    option("-rea", "--reasoning", "--think", cls=OnOffOption, type=click.Choice(ON_OR_OFF, False),
    default=None,
           help="off: ask a model that can think not to."),
    option("--reasoning-budget", type=click.IntRange(-1, 0), default=-1,
    help="0: as --reasoning off."),
)  # fmt: skip


def overriding(given: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """(metadata in place of those of the file, variables of the chat template)."""
    slower = given.pop("rope_freq_scale")
    if slower:
        if given["rope_scale"] is not None:
            raise click.UsageError("give one of --rope-scale and --rope-freq-scale")
        given["rope_scale"] = 1 / slower
    found = {key: given.pop(name) for name, key in ROPE.items()}
    # 0 and -1 stand for what the model says, as in llama.cpp; of the mix factor only -1 does.
    chosen = {key: value for key, value in found.items() if value is not None and value != -1}
    rope = {key: value for key, value in chosen.items() if value or key.endswith("ext_factor")}
    keys = dict(override(word) for words in given.pop("keys") for word in words.split(","))
    return rope | keys | template_of(given), variables_of(given)


def override(word: str) -> tuple[str, Any]:
    """
    >>> override("tokenizer.ggml.add_bos_token=bool:false")
    ('tokenizer.ggml.add_bos_token', False)
    >>> override("llama.rope.freq_base=float:5e5")
    ('llama.rope.freq_base', 500000.0)
    """
    key, _, rest = word.partition("=")
    kind, colon, text = rest.partition(":")
    try:
        if key and colon:
            return key, KIND_OF[kind](text)
    except (KeyError, ValueError):
        pass
    raise click.UsageError(
        f"--override-kv {word}: expected KEY=TYPE:VALUE, TYPE one of {', '.join(KIND_OF)}"
    )


def template_of(given: dict[str, Any]) -> dict[str, str]:
    text, file = given.pop("template"), given.pop("template_file")
    if text is not None and file is not None:
        raise click.UsageError("give one of --chat-template and --chat-template-file")
    if file is not None:
        text = read_text(file)
    if text is None:
        return {}
    is_jinja = file is not None or "{{" in text or "{%" in text
    return {"tokenizer.chat_template": text if is_jinja else named_template(text)}


def variables_of(given: dict[str, Any]) -> dict[str, Any]:
    text, thinks, budget = (
        given.pop(name) for name in ("variables", "reasoning", "reasoning_budget")
    )
    try:
        found = {} if text is None else json.loads(text)
    except json.JSONDecodeError as error:
        raise click.UsageError(f"--chat-template-kwargs is not JSON: {error}") from None
    if not isinstance(found, dict):
        example = '{"enable_thinking": false}'
        raise click.UsageError(
            f"--chat-template-kwargs {text}: expected an object, such as {example}"
        )
    if thinks in ("off", "disabled", "false", "0") or budget == 0:
        return {"enable_thinking": False} | found
    return ({"enable_thinking": True} if thinks not in (None, "auto") else {}) | found
