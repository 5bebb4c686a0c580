"""Bench, serving: many requests at a time on one small model against llama.cpp, two threads each.

    python bench/serve.py [--only "16 sequences"] [--quick]

SmolLM2-135M in Q4_1 and Q4_K_M as in bench/llm.py. Every request has a prompt of 64 tokens and an
answer of 64, all come at once. We run them through the scheduler that the server uses, llama.cpp
through its own engine: one batch of all prompts, then batches of one token of each, and its
chain of samplers with the same settings. Rows of clients are those of bench/serve_http.py: servers
and load are processes of their own.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from common import THREADS, Budget, Report, Row, options
from llm import contest, model_file
from serve_http import http_rows

import tetrad as td
from tetrad.models.decoding.scheduler import Scheduler
from tetrad.models.engine import StepArguments

FORMATS = ("Q4_1", "Q4_K_M")
SEQUENCES = {1: 2.0, 4: 2.0, 16: 3.0, 32: 3.0}  # and how many times the peer's speed is asked for
PROMPT, ANSWER, LONG, FEW = 64, 64, 2000, 8
MOST_OVERHEAD, MOST_WAIT = 0.05, 2.5
TOKENS = np.random.default_rng(1).integers(5, 40000, 1 << 16).astype(np.int32)


def prompt(number: int, length: int = PROMPT) -> list[int]:
    start = (number * 977) % (len(TOKENS) - LONG)
    return [int(token) for token in TOKENS[start : start + length]]


class OurScheduler:
    """Our scheduler, with a slot for every sequence."""

    def __init__(self, path: Path, count: int, context: int = 2 * (PROMPT + ANSWER)) -> None:
        self.count, self.compiled = count, 0.0
        self.model = td.load(path, slots=count, context=context)
        self.scheduler = Scheduler(self.model)

    def run(self) -> None:
        self.forget()
        heard = [Heard() for _ in range(self.count)]
        with self.scheduler.changed:  # all come at once
            for i, one in enumerate(heard):
                self.ask(i, one)
        for one in heard:
            one.over.wait()

    def forget(self) -> None:
        for slot in self.model.engine.slots:
            slot.length = 0

    def ask(self, number: int, heard: Heard, length: int = PROMPT, answer: int = ANSWER) -> None:
        request = self.model.request(
            prompt(number, length), max_tokens=answer, seed=number, ignore_eos=True
        )
        heard.begin = time.perf_counter()
        self.scheduler.submit(request, heard)


class Heard:
    """When the first token came, and the last."""

    def __init__(self) -> None:
        self.begin = self.first = 0.0
        self.over = threading.Event()

    def __call__(self, news: Any) -> None:
        if isinstance(news, Exception):
            raise news
        self.first = self.first or time.perf_counter()
        if news.completion is not None:
            self.over.set()


class LlamaEngine:
    """llama.cpp's engine with as many sequences, and its samplers."""

    def __init__(self, path: Path, count: int) -> None:
        import llama_cpp as cpp

        self.cpp, self.count = cpp, count
        self.model = cpp.Llama(str(path), n_ctx=256, n_threads=THREADS, verbose=False)
        shape = cpp.llama_context_default_params()
        shape.n_ctx, shape.n_seq_max = 2 * (PROMPT + ANSWER) * count, count
        shape.n_batch, shape.n_ubatch = max(512, PROMPT * count), 512
        shape.n_threads = shape.n_threads_batch = THREADS
        self.context = cpp.llama_init_from_model(self.model.model, shape)
        self.batch = cpp.llama_batch_init(PROMPT * count, 0, 1)
        self.samplers = [self.sampler(i) for i in range(count)]

    def sampler(self, seed: int) -> Any:
        cpp = self.cpp
        chain = cpp.llama_sampler_chain_init(cpp.llama_sampler_chain_default_params())
        for part in (
            cpp.llama_sampler_init_top_k(40),
            cpp.llama_sampler_init_top_p(0.95, 1),
            cpp.llama_sampler_init_min_p(0.05, 1),
            cpp.llama_sampler_init_temp(0.8),
            cpp.llama_sampler_init_dist(seed),
        ):
            cpp.llama_sampler_chain_add(chain, part)
        return chain

    def run(self) -> None:
        self.cpp.llama_memory_clear(self.cpp.llama_get_memory(self.context), True)
        rows = self.decode([prompt(i) for i in range(self.count)], 0)
        for step in range(1, ANSWER):
            chosen = self.chosen(rows)
            rows = self.decode([[token] for token in chosen], PROMPT + step - 1)
        self.chosen(rows)

    def decode(self, tokens: list[list[int]], position: int) -> list[int]:
        """The rows of the batch that have logits: the last of every sequence."""
        batch, at, rows = self.batch, 0, []
        for sequence, some in enumerate(tokens):
            for i, token in enumerate(some):
                batch.token[at], batch.pos[at] = token, position + i
                batch.n_seq_id[at], batch.seq_id[at][0] = 1, sequence
                batch.logits[at] = i == len(some) - 1
                at += 1
            rows.append(at - 1)
        batch.n_tokens = at
        if self.cpp.llama_decode(self.context, batch):
            raise RuntimeError("llama.cpp could not decode the batch")
        return rows

    def chosen(self, rows: list[int]) -> list[int]:
        sample = self.cpp.llama_sampler_sample
        return [sample(self.samplers[i], self.context, row) for i, row in enumerate(rows)]


def timed(side: Any) -> float:
    time.sleep(0.05)  # the other side's workers fall asleep
    start = time.perf_counter()
    side.run()
    return time.perf_counter() - start


def throughput(format: str, count: int, budget: Budget) -> Row:
    sides = OurScheduler(model_file(format), count), LlamaEngine(model_file(format), count)
    best, foreign, _ = contest(lambda i: timed(sides[i]), budget, None)
    sides[0].scheduler.close()
    ours, theirs = (count * ANSWER / seconds for seconds in best)
    name = f"{count} sequences, {format}"
    return Row(name, ours, "tok/s", ours / theirs, SEQUENCES[count], "llama.cpp", theirs, foreign)


def overhead(format: str, count: int, budget: Budget) -> Row:
    """What a run takes beside the compiled steps: choosing, text, listeners, bookkeeping."""
    ours, inside, run = OurScheduler(model_file(format), count), [0.0], StepArguments.run

    def watched(self: StepArguments, caches: Any) -> Any:
        begin = time.perf_counter()
        try:
            return run(self, caches)
        finally:
            inside[0] += time.perf_counter() - begin

    def one(_: int) -> float:
        inside[0] = 0.0
        seconds = timed(ours)
        return (seconds - inside[0]) / seconds

    StepArguments.run = watched  # type: ignore[method-assign]
    try:
        best, foreign, _ = contest(one, budget, None)
    finally:
        StepArguments.run = run  # type: ignore[method-assign]
        ours.scheduler.close()
    share = min(best)
    name = f"beside the compiled step, {count} sequences, {format}"
    return Row(name, 100 * share, "%", MOST_OVERHEAD / share, 1.0, "5 %", 5.0, foreign)


def first_tokens(side: OurScheduler, is_long: bool) -> float:
    """The slowest of some first tokens, while a long prompt comes or not."""
    side.forget()
    heard, long = [Heard() for _ in range(FEW)], Heard()
    if is_long:
        side.ask(99, long, LONG, 1)
        time.sleep(0.05)  # it is being read
    for i, one in enumerate(heard):
        side.ask(i, one)
    for one in [*heard, *([long] if is_long else [])]:
        one.over.wait()
    return max(one.first - one.begin for one in heard)


def waiting(format: str, budget: Budget) -> Row:
    """How much longer the first token takes when somebody else has a long prompt: the slowest of
    eight, the median of some runs."""
    side = OurScheduler(model_file(format), FEW + 1, LONG + 2 * ANSWER)
    found: dict[bool, list[float]] = {False: [], True: []}

    def one(_: int) -> float:
        for is_long, times in found.items():
            times.append(first_tokens(side, is_long))
        return found[True][-1]

    _, foreign, _ = contest(one, budget, None)
    side.scheduler.close()
    quiet, busy = (float(np.median(times)) for times in found.values())
    name = f"first token of {FEW}, a prompt of {LONG} comes, {format}"
    return Row(name, busy, "s", MOST_WAIT * quiet / busy, 1.0, "2.5 x quiet", quiet, foreign)


def rows(wants: Callable[[str], bool], budget: Budget) -> Iterator[Row]:
    for format in FORMATS:
        for count in SEQUENCES:
            if wants(f"{count} sequences, {format}"):
                yield throughput(format, count, budget)
        for count in (16, 32):
            if wants(f"beside the compiled step, {count} sequences, {format}"):
                yield overhead(format, count, budget)
        if wants(f"first token of {FEW}, a prompt of {LONG} comes, {format}"):
            yield waiting(format, budget)
    yield from http_rows(FORMATS, OurScheduler, wants, budget)


def main() -> int:
    chosen = options("serving against llama.cpp")
    report = Report(f"serving of {THREADS} threads")
    for made in rows(chosen.wants, chosen.budget):
        report.add(made)
    return report.finish(chosen)


if __name__ == "__main__":
    raise SystemExit(main())
