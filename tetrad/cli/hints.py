"""Command line, hints: what the library says in keywords of Python, said in options.

Receives an error and the command it ended; returns its text. The library names settings in one way,
`context=4096`, `shift=True`, `kv='q8_0'`; which option that is, the command itself knows, since its
parameters are called like the settings. What has no option here stays as it is.
"""

from __future__ import annotations

import re

import click

from tetrad.core.errors import SettingError, TetradError

# parameters of commands that are not called like the setting they are for
CALLED = {
    "dry_sequence_breakers": ("breakers",),
    "json_schema": ("schema",),
    "kv": ("kind_k", "kind_v"),
    "logit_bias": ("bias",),
    "max_tokens": ("predict",),
}
KEYWORD = re.compile(r"\b([a-z]\w*)=(?:(True|False)\b|(?:'([^']*)'|\"([^\"]*)\"|([\w.+-]*[\w+])))?")
HINT = "\n  hint: "


def in_options(error: TetradError, command: click.Command | None) -> str:
    """The text of an error, its hint and the setting it is about in options of the command."""
    text = str(error)
    if command is None:
        return text
    if isinstance(error, SettingError) and (spelt := spellings(error.name, command)):
        text = f"{'/'.join(spelt)}{text.removeprefix(error.name)}"
    said, hint, way = text.partition(HINT)
    return said + hint + way_in_options(way, command)


def way_in_options(hint: str, command: click.Command) -> str:
    return KEYWORD.sub(lambda found: as_option(found, command), hint)


def as_option(found: re.Match[str], command: click.Command) -> str:
    name, truth, *values = found.groups()
    value = next((value for value in values if value is not None), "")
    spelt = spellings(name, command, is_off=truth == "False")
    if not spelt:
        return found[0]
    return " ".join(f"{each} {value}" if value else each for each in spelt)


def spellings(name: str, command: click.Command, is_off: bool = False) -> list[str]:
    """The options that a setting is given by, each in its first spelling; none if there are
    none."""
    options = {p.name: p for p in command.params if isinstance(p, click.Option)}
    found = [options[each] for each in CALLED.get(name, (name,)) if each in options]
    return [(each.secondary_opts if is_off else each.opts)[0] for each in found if
            (each.secondary_opts or not is_off)]  # fmt: skip
