"""Bench, coming from JAX: how much of what JAX programs name is here, and how fast what they do is.

    python bench/port.py [--missing]

The first row: names used verbatim, weighted by the files that use them, of those that public
repositories over JAX use (`tests/data/jax-names.csv`). Each further family of rows is a file,
`port_<family>.py`, whose `rows` measures those that are asked for.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path

from common import Options, Report, Row, options
from port_names import coverage, missing

FAMILIES = [name for name in ("port_scatter", "port_loops") if find_spec(name)]
WANTED = 0.95


def main() -> int:
    asked_for_missing = "--missing" in sys.argv
    sys.argv = [word for word in sys.argv if word != "--missing"]
    chosen = options(__doc__ or "")
    share = coverage()
    print(f"names used verbatim, weighted by files: {share:.1%} (wanted: {WANTED:.0%})")
    if asked_for_missing:
        for weight, name in missing():
            print(f"{weight:5d}  {name}")
    report = Report("coming from JAX")
    for rows in families():
        for row in rows(chosen):
            report.add(row)
    return report.finish(chosen) if FAMILIES else int(share < WANTED)


def families() -> Iterator[Callable[[Options], Iterator[Row]]]:
    for name in FAMILIES:
        yield importlib.import_module(name).rows


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parent))
    sys.exit(main())
