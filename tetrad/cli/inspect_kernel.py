"""Command line: `tetrad inspect kernel`, one registered program at every stage: its text, its cost,
LLVM and machine code of this processor, PTX, and what ptxas says of that.

Without an id: a table of all of them, with registers, spills and workgroup memory for every
architecture.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import click

from tetrad.backends.cpu.isa import current_target
from tetrad.backends.cpu.llvm import assembly
from tetrad.backends.cuda.assembler import ABSENT, AssemblyFigures, assemble, ptxas
from tetrad.backends.cuda.check import structure_problems
from tetrad.backends.cuda.ptx import ptx
from tetrad.backends.cuda.targets import architecture_named
from tetrad.backends.llvm.module import emit_module
from tetrad.cli.console import Columns, note, say, say_json
from tetrad.core.errors import UnknownKernelError
from tetrad.kernel.registry import Entry, entries, entry
from tetrad.kernel.text import to_text

SHOWN = ("sm_75", "sm_80", "sm_90", "sm_100", "sm_120")  # of the table


def inspect_kernel(id: str | None, arch: str, as_json: bool) -> None:
    if id is None:
        print_table(list(entries()), as_json)
        return
    try:
        found = entry(id)
    except UnknownKernelError as error:
        raise click.BadParameter(f"{error.message}; {error.hint}", param_hint="kernel") from None
    stages = stages_of(found, arch)
    if as_json:
        say_json(stages)
        return
    for title, text in stages.items():
        say(f"== {title}")
        say(text if isinstance(text, str) else listed(text))
        say()


def listed(facts: dict[str, Any]) -> str:
    return "\n".join(f"{name} {value}" for name, value in facts.items())


def stages_of(found: Entry, arch: str) -> dict[str, Any]:
    """Every stage by its name."""
    program, cost = found.build(), found.cost
    architecture_named(arch)
    llvm = emit_module({"kernel": program}, current_target(), "mask")
    figures = {name: figures_line(found, name) for name in (*SHOWN, arch)}
    return {
        f"program {found.id}": to_text(program),
        "cost of a launch": {
            "flops": cost.flops,
            "bytes read": cost.bytes_read,
            "bytes written": cost.bytes_written,
        },
        f"llvm {current_target().name}": llvm,
        f"assembly {current_target().name}": assembly(llvm, current_target()),
        f"ptx {arch}": ptx(program, arch),
        "ptxas": figures if ptxas() else {arch: figures_line(found, arch)},
    }


def figures_line(found: Entry, arch: str) -> str:
    """What ptxas says, or what our own look at the structure says where it is absent."""
    text = ptx(found.build(), arch)
    if ptxas() is None:
        wrong = structure_problems(text)
        return f"{ABSENT}; structure: {'; '.join(wrong) if wrong else 'ok'}"
    got = assemble(text, arch)
    return (
        f"{got.registers} registers, {got.spill_stores + got.spill_loads} bytes spilled, "
        f"{got.stack} bytes of stack, {got.shared} bytes of workgroup memory"
    )


# -- the table -------------------------------------------------------------------------------------


def print_table(found: list[Entry], as_json: bool) -> None:
    if ptxas() is None:
        note(ABSENT)
    rows = list(table_rows(found))
    if as_json:
        say_json(rows)
        return
    heads = ("KERNEL", "ARCH", "REGISTERS", "SPILLED", "SHARED", "FLOPS", "BYTES")
    table = Columns(*heads, right=heads[2:])
    for row in rows:
        table.add(*(str(cell) for cell in row.values()))
    say(table)


def table_rows(found: list[Entry]) -> Iterator[dict[str, Any]]:
    for one in found:
        program, cost = one.build(), one.cost
        for arch in SHOWN:
            text = ptx(program, arch)
            got = assemble(text, arch) if ptxas() else None
            yield {
                "kernel": one.id,
                "arch": arch,
                **numbers(got),
                "flops": cost.flops,
                "bytes": cost.bytes,
            }


def numbers(got: AssemblyFigures | None) -> dict[str, Any]:
    if got is None:
        return {"registers": "", "spilled": "", "shared": ""}
    spilled = got.spill_stores + got.spill_loads
    return {"registers": got.registers, "spilled": spilled, "shared": got.shared}
