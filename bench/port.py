"""Bench, coming from JAX: how much of what JAX programs name is here, and how fast what they do is.

    python bench/port.py [--missing]

The first row: names used verbatim, weighted by the files that use them, of those that public
repositories over JAX use (`tests/data/jax-names.csv`). Each further family of rows is a file,
`port_<family>.py`, whose `rows` measures those that are asked for.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator

import port_loops
import port_scatter
from common import Options, Report, Row, options
from port_names import coverage, missing

FAMILIES: tuple[Callable[[Options], Iterator[Row]], ...] = (port_scatter.rows, port_loops.rows)
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
    for rows in FAMILIES:
        for row in rows(chosen):
            report.add(row)
    return max(report.finish(chosen), int(share < WANTED))


if __name__ == "__main__":
    sys.exit(main())
