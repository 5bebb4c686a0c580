"""docs/quant.md: its tables are those of the code."""

from __future__ import annotations

from tests.modules import ROOT
from tests.quant.blocks import INTEGER
from tetrad.quant import Format

PAGE = (ROOT / "docs" / "quant.md").read_text().splitlines()


def cells(format: Format) -> list[str]:
    mins = "yes" if format.has_mins else "no"
    numbers = [
        format.block,
        format.nbytes,
        f"{8 * format.nbytes / format.block:g}",
        f"{format.bits} bits",
    ]
    offset = "table" if format.table else str(format.offset)
    return [f"`{format.name}`", *map(str, numbers), str(format.sub_block), offset, mins]


def test_every_format_has_its_rows() -> None:
    for format in INTEGER:
        rows = [
            line.strip("| ").split(" | ")
            for line in PAGE
            if line.startswith(f"| `{format.name}` |")
        ]
        layout, budget = rows
        assert layout[:-1] == cells(format)
        assert float(budget[1]) == format.budget
