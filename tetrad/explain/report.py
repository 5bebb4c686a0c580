"""Explain, the report: an explanation as text for a terminal.

Receives an `Explanation`, returns its text; measures nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from tetrad.explain.parts import GraphPart
from tetrad.passes.fused import ordered
from tetrad.passes.fusions import traffic

if TYPE_CHECKING:
    from tetrad.explain.story import Explanation, KernelStory

NAME_WIDTH = 44


def report(story: Explanation) -> str:
    sections = (head, graphs, fusions, kernel_table, memory, time_per_stage, roofs)
    texts = ("\n".join(section(story)) for section in sections)
    return "\n\n".join(text for text in texts if text)


def head(story: Explanation) -> Iterator[str]:
    yield f"{story.name}{story.signature}"
    if story.is_new:
        yield "  compiled now: " + "; ".join(story.why)
    else:
        yield "  already compiled in this process, for: " + "; ".join(story.why)
    known = {
        "compiled": "compiled by LLVM",
        "disk": "from the disk cache",
        "process": "shared with earlier programs",
    }
    counts = [
        f"{story.origins[key]} {text}" for key, text in known.items() if story.origins.get(key)
    ]
    yield f"  {story.programs} kernels, {len(story.kernels)} launches" + (
        f": {', '.join(counts)}" if counts else ""
    )
    wall, inside = time_text(story.wall_ns), time_text(sum(k.ns for k in story.kernels))
    yield (
        f"  one call takes {wall} (best of {story.runs}), of it {inside} in kernels; threads: "
        f"{story.threads}"
    )
    if story.dims:
        yield "  sizes: " + ", ".join(f"{name}={size}" for name, size in story.dims.items())


def graphs(story: Explanation) -> Iterator[str]:
    before, after = len(story.traced.nodes()), len(story.graph.nodes())
    yield f"optimised graph ({after} nodes, {before} as traced)"
    yield from (f"  {line}" for line in str(story.graph).rstrip().splitlines())
    for part in story.parts:
        yield ""
        yield "groups" if part is story.parts[0] else f"groups of {part.graph.name}"
        yield from group_lines(part)


def group_lines(part: GraphPart) -> Iterator[str]:
    numbers = {node: i for i, node in enumerate(ordered(part.graph))}
    for number, group in enumerate(part.groups):
        nodes = sorted(numbers[node] for node, owners in part.computed.items() if number in owners)
        source = "" if group.root.source is None else f"   # {group.root.source}"
        yield (
            f"  {number} {group.kind}: {spans(nodes)} -> "
            f"{' '.join(f'%{numbers[o]}' for o in group.outputs)}{source}"
        )


def spans(numbers: Sequence[int]) -> str:
    """Neighbours joined.

    >>> spans([3, 5, 6, 7, 9])
    '%3 %5..%7 %9'
    """
    runs: list[list[int]] = []
    for n in numbers:
        if runs and runs[-1][-1] == n - 1:
            runs[-1].append(n)
        else:
            runs.append([n])
    return " ".join(f"%{run[0]}" if len(run) == 1 else f"%{run[0]}..%{run[-1]}" for run in runs)


def fusions(story: Explanation) -> Iterator[str]:
    found = story.fusions
    if found:
        apart = traffic(list({node for fusion in found for node in fusion.saved}))
        apart += sum(fusion.nbytes for fusion in found if not fusion.saved)
        yield f"fusions ({bytes_text(apart)} not written and read)"
    yield from (f"  {fusion}" for fusion in found)


def kernel_table(story: Explanation) -> Iterator[str]:
    title = "kernel, in the order they run"
    heads = (
        f"{'groups':>8} {'thr':>3} {'bytes':>9} {'ops':>8} {'time':>9} {'GB/s':>7} {'Gop/s':>7}  "
        "bound by"
    )
    yield f"{title:{NAME_WIDTH + 2}}{heads}"
    yield from (f"  {kernel_line(kernel)}" for kernel in story.kernels)


def kernel_line(kernel: KernelStory) -> str:
    name = "/".join((*kernel.path, kernel.name))
    name = name if len(name) <= NAME_WIDTH else name[: NAME_WIDTH - 1] + "…"
    rates = " ".join(f"{rate:>7}" for rate in kernel.rates)
    size = (
        f"{kernel.groups:8} {kernel.threads:3} {bytes_text(kernel.nbytes):>9} "
        f"{count_text(kernel.flops):>8}"
    )
    return f"{name:{NAME_WIDTH}}{size} {time_text(kernel.ns):>9} {rates}  {kernel.limit}"


def memory(story: Explanation) -> Iterator[str]:
    yield "memory"
    arena, apart = bytes_text(story.arena_bytes), bytes_text(story.intermediate_bytes)
    yield f"  arena {arena} for {len(story.lives)} intermediates that take {apart} side by side"
    yield f"  scratch {bytes_text(story.scratch_bytes)} for each thread"


def time_per_stage(story: Explanation) -> Iterator[str]:
    yield "time per stage" if story.is_new else "time per stage, when it was compiled"
    longest = max(story.stages.values(), default=0) or 1
    for stage, seconds in story.stages.items():
        yield f"  {stage:9}{time_text(seconds * 1e9):>10}  {'#' * round(30 * seconds / longest)}"
    steps = [f"{step} {time_text(seconds * 1e9)}" for step, seconds in story.pipeline.items()]
    if steps:
        yield f"  steps of the pipeline: {', '.join(steps)}"


def roofs(story: Explanation) -> Iterator[str]:
    if story.is_busy:
        yield (
            "other programs took processors away meanwhile: times are longer, and roofs lower, "
            "than they need be"
        )
    yield (
        f"roofs of this machine, measured ({story.target.cpu}, {story.target.vector_bits}-bit "
        "vectors)"
    )
    for found in (story.one, story.all) if story.all.threads > 1 else (story.one,):
        reading = ", ".join(
            f"{rate:.0f} at {bytes_text(size)}" for size, rate in found.bandwidth.items()
        )
        threads = f"{found.threads} thread" + ("s" if found.threads > 1 else "")
        yield f"  {threads:10} reads GB/s: {reading};  f32 fma: {found.flops:.0f} GFLOP/s"


def bytes_text(n: float) -> str:
    """A number of bytes in three digits.

    >>> bytes_text(1114112), bytes_text(512)
    ('1.11 MB', '512 B')
    """
    return scaled(n, ("B", "kB", "MB", "GB", "TB"))


def count_text(n: float) -> str:
    return scaled(n, ("", "k", "M", "G", "T")).strip()


def time_text(ns: float) -> str:
    return scaled(ns, ("ns", "us", "ms", "s"))


def scaled(n: float, units: Sequence[str]) -> str:
    for unit in units[:-1]:
        if n < 999.5:
            return f"{n:.0f} {unit}" if unit == units[0] or n >= 99.95 else f"{n:.3g} {unit}"
        n /= 1000
    return f"{n:.3g} {units[-1]}"
