"""The hub, by name: what `td.load` asks for when it is given a word that is no path.

Receives the word; returns the path of the model, which is fetched if it is not on this machine,
with a line of progress on a terminal. `tetrad pull` does the same.
"""

from __future__ import annotations

import os
import sys

from tetrad.core.errors import HubError
from tetrad.core.visible import one_line
from tetrad.hub.progress import progress_line
from tetrad.hub.pull import local, pull, unknown
from tetrad.hub.reference import Means, resolve


def path_of(name: str) -> str:
    """Where the model of this name is; fetched if it has to be."""
    ref = resolve(name)
    if ref.means is Means.PATH:  # whoever opens it says what is wrong with it
        return name
    found = local(name)
    if found is None and not ref.can_be_fetched:
        raise unknown(name)
    return str(found or fetched(name))


def fetched(name: str) -> str:
    if is_offline():
        raise HubError(
            f"{one_line(name)} is not on this machine, and HF_HUB_OFFLINE is set",
            hint=f"`tetrad pull {one_line(name)}` fetches it where there is a network",
        )
    with progress_line(name) as report:
        return str(pull(name, report, tell=said))


def is_offline() -> bool:
    return os.environ.get("HF_HUB_OFFLINE", "").upper() in ("1", "ON", "YES", "TRUE")


def said(text: str) -> None:
    if sys.stderr.isatty():
        sys.stderr.write(f"{one_line(text)}\n")
