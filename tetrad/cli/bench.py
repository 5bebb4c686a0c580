"""Command line: `tetrad bench`, how fast a model reads (pp) and writes (tg), in the table of
llama-bench.

Tokens are drawn at random beforehand: no tokeniser, no sampling and no text are part of what is
timed.
"""

from __future__ import annotations

import csv
import io
import json
import os
import re
import time
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click
import numpy as np

from tetrad.cli.completion import complete_models
from tetrad.cli.console import say
from tetrad.cli.options import CACHES, ModelCommand, model_options, model_path, option, set_threads
from tetrad.cli.unused import CPU, MAPPED, TILED, gpu_option, place_options, unused
from tetrad.core.errors import ContextError
from tetrad.core.limits import available_threads
from tetrad.core.record import record
from tetrad.core.version import __version__
from tetrad.hub.describe import Description, count_text, describe
from tetrad.models.embedding import TextEncoder
from tetrad.models.engine import Engine
from tetrad.models.load import load_parts

COLUMNS = {
    "model": -30,
    "size": 10,
    "params": 10,
    "backend": -10,
    "threads": 7,
    "test": 15,
    "t/s": 20,
}  # <0: to the left
SEED = 0
OUTPUTS = ("md", "csv", "json", "jsonl", "sql")
TABLE = "llama_bench"  # in SQL, as llama-bench calls it


@record(eq=False)
class Test:
    """So many tokens read at once, or written one by one, after `depth` tokens that are not
    timed."""

    prompt: int
    written: int
    depth: int = 0

    @property
    def name(self) -> str:
        first = f"pp{self.prompt}" if self.prompt and not self.written else f"tg{self.written}"
        name = f"pp{self.prompt}+tg{self.written}" if self.prompt and self.written else first
        return f"{name} @ d{self.depth}" if self.depth else name

    @property
    def tokens(self) -> int:
        return self.prompt + self.written


@record(eq=False)
class BenchResult:
    test: Test
    threads: int
    samples_ns: list[int]
    started: str

    @property
    def rates(self) -> list[float]:
        return [self.test.tokens / ns * 1e9 for ns in self.samples_ns]


def numbers(value: str) -> list[int]:
    """A list of numbers, each also a range: 512, 1,2,4, 128-512*2, 16-64+16."""
    try:
        return [n for part in value.split(",") for n in spread(part)]
    except ValueError:
        raise click.BadParameter(
            f"{value!r}: expected numbers such as 512, 1,2,4 or 128-512*2"
        ) from None


def spread(part: str) -> Iterator[int]:
    """
    >>> list(spread("128-512*2")), list(spread("1-4")), list(spread("7"))
    ([128, 256, 512], [1, 2, 3, 4], [7])
    """
    match = re.fullmatch(r"(\d+)(?:-(\d+)(?:([*+])(\d+))?)?", part)
    if match is None or (match[3] and int(match[4]) < (2 if match[3] == "*" else 1)):
        raise ValueError(part)
    n, last, factor = int(match[1]), int(match[2] or match[1]), int(match[4] or 1)
    while n <= last:
        yield n
        n = max(n, 1) * factor if match[3] == "*" else n + factor


def pair(value: str) -> tuple[int, int]:
    """`512,128`: a prompt and an answer, timed together."""
    match = re.fullmatch(r"(\d+),(\d+)", value)
    if match is None:
        raise click.BadParameter(f"{value!r}: expected two numbers, such as 512,128")
    return int(match[1]), int(match[2])


@click.command(cls=ModelCommand)
@click.argument("model", shell_complete=complete_models, required=False)
@model_options
@option(
    "-p",
    "--n-prompt",
    "prompts",
    type=numbers,
    metavar="LIST",
    default="512",
    help="Tokens to read; 0: none.",
)
@option(
    "-n",
    "--n-gen",
    "written",
    type=numbers,
    metavar="LIST",
    default="128",
    help="Tokens to write; 0: none.",
)
@click.option(
    "-pg", "pairs", type=pair, metavar="PAIR", multiple=True, help="Both, timed together: 512,128."
)
@option(
    "-d",
    "--n-depth",
    "depths",
    type=numbers,
    metavar="LIST",
    default="0",
    help="Tokens that are there before.",
)
@option("-r", "--repetitions", type=click.IntRange(1), default=5, help="Times each test is run.")
@option(
    "-t",
    "--threads",
    type=numbers,
    metavar="LIST",
    default="0",
    help="Threads; 0: what affinity and quota allow.",
)
@option("-ctk", "--cache-type-k", "kind_k", type=CACHES, default="f16", help="How keys are kept.")
@option(
    "-ctv",
    "--cache-type-v",
    "kind_v",
    type=CACHES,
    default="f16",
    help="How values are kept; as keys.",
)
@option("-o", "--output", type=click.Choice(OUTPUTS), default="md", help="How it is printed.")
@gpu_option
@unused("-fa", "--flash-attn", "flash", why=TILED)
@unused("-mmp", "--mmap", "mapped", why=MAPPED)
@unused("-b", "--batch-size", "batch", why="batches are chosen here")
@unused("-ub", "--ubatch-size", "ubatch", why="batches are chosen here")
@unused("-nkvo", "--no-kv-offload", "kv_offload", why=CPU)
@unused("-nopo", "--no-op-offload", "op_offload", why=CPU)
@unused("--progress", is_flag=True, why="lines are printed as they are known")
@unused("--no-warmup", is_flag=True, why="a first run that compiles is never counted")
@unused("--delay", why="there is no pause between tests")
@place_options
def bench(
    model: str | None, output: str, repetitions: int, kind_k: str, kind_v: str, **given: Any
) -> None:
    """Measure MODEL: tokens a second when reading a prompt (pp) and when writing (tg)."""
    if kind_k != kind_v:
        raise click.UsageError(
            f"-ctk {kind_k} and -ctv {kind_v} differ: keys and values are kept alike, give both"
        )
    names = ("threads", "prompts", "written", "depths", "pairs")
    threads, prompts, written, depths, pairs = (given.pop(name) for name in names)
    path = model_path(model, given)
    tests = [*plan(prompts, written, pairs, depths)]
    if not tests:
        raise click.UsageError("-p 0 -n 0 leaves nothing to measure")
    check_context(tests, describe(str(path)).context)
    run = Bench(path, kind_k, max(test.depth + test.tokens for test in tests))
    if any(test.written for test in tests):
        run.engine.programs.check_predicts("bench -n")
    results = (run.measure(test, count, repetitions) for count in threads for test in tests)
    PRINTERS[output](run, results)


def plan(
    prompts: list[int], written: list[int], pairs: list[tuple[int, int]], depths: list[int]
) -> Iterator[Test]:
    for depth in depths:
        yield from (Test(n, 0, depth) for n in prompts if n)
        yield from (Test(0, n, depth) for n in written if n)
        yield from (Test(n, m, depth) for n, m in pairs if n or m)


def check_context(tests: list[Test], context: int) -> None:
    """Before anything is loaded: a test that cannot be run is no surprise after minutes of
    others."""
    for test in tests:
        if (tokens := test.depth + test.tokens) > context > 0:
            hint = "smaller -p, -n, -pg or -d"
            raise ContextError(
                f"{test.name} is too long for the model", tokens=tokens, context=context, hint=hint
            )


class Bench:
    """A model that is loaded, and the tests that are run with it."""

    def __init__(self, path: Path, kind: str, context: int) -> None:
        self.path, self.kind, self.found = path, kind, describe(str(path))
        self.engine = Engine(
            load_parts(path, context=context).programs, slots=1, context=context, kv=kind
        )
        programs = self.engine.programs
        self.encoder = TextEncoder(programs) if programs.is_encoder else None
        self.random = np.random.default_rng(SEED)

    def measure(self, test: Test, threads: int, repetitions: int) -> BenchResult:
        """A first run that is not counted compiles what is missing."""
        set_threads(threads)
        started = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        self.once(Test(test.prompt, min(test.written, 1)))
        return BenchResult(
            test, available_threads(), [self.once(test) for _ in range(repetitions)], started
        )

    def once(self, test: Test) -> int:
        """Nanoseconds of one run, from an empty cache."""
        if self.encoder is not None:
            return self.encode(self.encoder, self.draw(test.depth + test.prompt))
        before, prompt, written = (self.draw(n) for n in (test.depth, test.prompt, test.written))
        engine = self.engine
        sequence = engine.start(self.draw(1))
        try:
            engine.rewind(sequence, 0)
            if test.depth:
                engine.step([(sequence, before)])
            start = time.perf_counter_ns()
            if test.prompt:
                engine.step([(sequence, prompt)])
            for i in range(test.written):
                engine.step([(sequence, written[i : i + 1])])
            return time.perf_counter_ns() - start
        finally:
            engine.free(sequence)

    def encode(self, encoder: TextEncoder, text: np.ndarray) -> int:
        start = time.perf_counter_ns()
        list(encoder.states([text]))
        return time.perf_counter_ns() - start

    def draw(self, count: int) -> np.ndarray:
        return self.random.integers(0, self.engine.programs.config.vocab, count, dtype=np.int32)


# -- printing --------------------------------------------------------------------------------------


def model_type(found: Description) -> str:
    """As llama-bench has it: `llama 135M Q4_1`."""
    return f"{found.architecture} {count_text(found.parameters)} {found.quant}"


def size_text(nbytes: float) -> str:
    return f"{nbytes / 2**30:.2f} GiB" if nbytes >= 2**30 else f"{nbytes / 2**20:.2f} MiB"


def params_text(n: float) -> str:
    return f"{n / 1e9:.2f} B" if n >= 1e9 else f"{n / 1e6:.2f} M"


def print_md(run: Bench, results: Iterator[BenchResult]) -> None:
    """A line as soon as it is known."""
    say(line(dict.fromkeys(COLUMNS), COLUMNS))
    rule = ("-" * width + ":" if width > 0 else "-" * (1 - width) for width in COLUMNS.values())
    say("| " + " | ".join(cell[1:] for cell in rule) + " |", flush=True)
    for result in results:
        mean, spread = average(result.rates)
        found = run.found
        cells = {
            "model": model_type(found),
            "size": size_text(found.weight_bytes),
            "params": params_text(found.parameters),
            "backend": "CPU",
            "threads": str(result.threads),
            "test": result.test.name,
            "t/s": f"{mean:.2f} ± {spread:.2f}",
        }
        say(line(cells, COLUMNS), flush=True)
    say(f"\nbuild: tetrad {__version__}")


def line(cells: dict[str, Any], columns: dict[str, int]) -> str:
    """One line of the table; without cells, the heads."""
    texts = (
        (name if cells[name] is None else cells[name], width) for name, width in columns.items()
    )
    return (
        "| "
        + " | ".join(
            f"{text:<{-width}}" if width < 0 else f"{text:>{width}}" for text, width in texts
        )
        + " |"
    )


def average(values: list[float]) -> tuple[float, float]:
    """Mean and standard deviation of a sample, 0 of a single value."""
    return float(np.mean(values)), float(np.std(values, ddof=1)) if len(values) > 1 else 0.0


def fields(run: Bench, result: BenchResult) -> dict[str, Any]:
    """The fields of llama-bench that have a meaning here."""
    (avg_ns, stddev_ns), (avg_ts, stddev_ts) = (
        average([float(n) for n in result.samples_ns]),
        average(result.rates),
    )
    return {
        "build": f"tetrad {__version__}",
        "cpu_info": cpu_name(),
        "backends": "CPU",
        "model_filename": str(run.path),
        "model_type": model_type(run.found),
        "model_size": run.found.weight_bytes,
        "model_n_params": run.found.parameters,
        "n_threads": result.threads,
        "type_k": run.kind,
        "type_v": run.kind,
        "n_prompt": result.test.prompt,
        "n_gen": result.test.written,
        "n_depth": result.test.depth,
        "test_time": result.started,
        "avg_ns": round(avg_ns),
        "stddev_ns": round(stddev_ns),
        "avg_ts": avg_ts,
        "stddev_ts": stddev_ts,
    }


def cpu_name() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return os.uname().machine
    return next(
        (text.partition(":")[2].strip() for text in lines if text.startswith("model name")),
        os.uname().machine,
    )


def print_csv(run: Bench, results: Iterator[BenchResult]) -> None:
    for number, result in enumerate(results):
        row = fields(run, result)
        if number == 0:
            say(csv_line(row))
        say(csv_line(row.values()), flush=True)


def csv_line(cells: Iterable[Any]) -> str:
    out = io.StringIO()
    csv.writer(out, quoting=csv.QUOTE_ALL, lineterminator="").writerow(cells)
    return out.getvalue()


def samples(run: Bench, result: BenchResult) -> dict[str, Any]:
    return fields(run, result) | {"samples_ns": result.samples_ns, "samples_ts": result.rates}


def print_json(run: Bench, results: Iterator[BenchResult]) -> None:
    say(json.dumps([samples(run, result) for result in results], indent=2))


def print_jsonl(run: Bench, results: Iterator[BenchResult]) -> None:
    for result in results:
        say(json.dumps(samples(run, result)), flush=True)


def print_sql(run: Bench, results: Iterator[BenchResult]) -> None:
    """Statements for SQLite, with every value in quotes; the types of the columns turn them into
    numbers."""
    for number, result in enumerate(results):
        row = fields(run, result)
        if number == 0:
            kinds = {str: "TEXT", int: "INTEGER", float: "REAL"}
            columns = ",\n".join(f"  {name} {kinds[type(value)]}" for name, value in row.items())
            say(f"CREATE TABLE IF NOT EXISTS {TABLE} (\n{columns}\n);\n")
        values = ", ".join("'" + str(value).replace("'", "''") + "'" for value in row.values())
        say(f"INSERT INTO {TABLE} ({', '.join(row)}) VALUES ({values});", flush=True)


PRINTERS: dict[str, Callable[[Bench, Iterator[BenchResult]], None]] = {
    "md": print_md,
    "csv": print_csv,
    "json": print_json,
    "jsonl": print_jsonl,
    "sql": print_sql,
}
COMMANDS = {"bench": bench}
