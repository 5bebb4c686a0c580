"""Block formats: all of them. Each file of this folder is imported, and those that are a format
register it.

It is loaded when a format is first asked for (`core.lazy.Filled`): most programs have none.
"""

from __future__ import annotations

import os

from tetrad.core import lazy

# not by pkgutil: it loads more than all formats
for _name in sorted(os.listdir(os.path.dirname(__file__))):
    if _name.endswith(".py") and not _name.startswith("_"):
        lazy.module(f"tetrad.quant.{_name.removesuffix('.py')}")
