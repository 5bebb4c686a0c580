"""The scheduler: the same bytes alone and beside others, who gets a slot, what ends a request, and
that nobody gets another's error."""

from __future__ import annotations

import random
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tetrad as td
from tests.models.tiny import tiny_model
from tetrad.core.errors import (
    BoundsError,
    BusyError,
    Cancelled,
    ClosedError,
    ContextError,
    DeadlineError,
    LogitsError,
    SettingError,
)
from tetrad.formats import gguf
from tetrad.models.decoding.batcher import Job
from tetrad.models.decoding.generation import Completion, Piece, Request
from tetrad.models.decoding.scheduler import Scheduler
from tetrad.models.engine import StepArguments
from tetrad.models.model import Model
from tetrad.tracing.array import Array

LONG = [(17 + 97 * i) % 300 for i in range(150)]
KINDS: list[dict[str, Any]] = [
    {},
    {"temperature": 0.0},
    {"repeat_penalty": 1.3, "temperature": 1.2},
    {"dry_multiplier": 2.0, "dry_allowed_length": 1},
    {"mirostat": 2},
    {"speculate": 5, "temperature": 0.0},
    {"speculate": 8, "repeat_penalty": 1.2},
    {"logprobs": 3},
    {"temperature_first": True},
    {"logit_bias": {5: 4.0, 9: -100.0}},
    {"json_schema": {"type": "object", "properties": {"a": {"type": "integer"}}}},
    {"stop": ["e", "the"]},
    {"shift": True, "max_tokens": 60},
]


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = tmp_path_factory.mktemp("models") / "tiny.gguf"
    gguf.write(found, *tiny_model("llama", context=256))
    return found


@pytest.fixture(scope="module")
def model(path: Path) -> Model:
    return td.load(path, slots=8, context=192)


@pytest.fixture
def scheduler(model: Model) -> Iterator[Scheduler]:
    made = Scheduler(model)
    yield made
    made.close()
    assert all(slot.sequence is None for slot in model.engine.slots)


class Heard:
    """A listener that keeps what it was told."""

    def __init__(self) -> None:
        self.pieces: list[Piece] = []
        self.error: Exception | None = None
        self.over = threading.Event()

    def __call__(self, news: Piece | Exception) -> None:
        assert not self.over.is_set()
        if isinstance(news, Exception):
            self.error = news
        else:
            self.pieces.append(news)
        if self.error is not None or self.pieces[-1].completion is not None:
            self.over.set()

    def completion(self) -> Completion:
        assert self.over.wait(60)
        if self.error is not None:
            raise self.error
        found = self.pieces[-1].completion
        assert found is not None and "".join(p.text for p in self.pieces) == found.text
        return found


def bits(completion: Completion) -> tuple[Any, ...]:
    """What must not depend on others."""
    return completion.text, completion.tokens, completion.finish_reason, completion.logprobs


def requests(model: Model, count: int) -> list[Any]:
    """Functions that make a request anew, as a grammar has a state."""
    rng = random.Random(count)
    made = []
    for i in range(count):
        start = rng.randrange(100)
        prompt = LONG[: rng.randrange(1, 120)] if i % 3 else LONG[start : start + 30]
        settings = {"max_tokens": 12, "ignore_eos": True, "seed": i, **KINDS[i % len(KINDS)]}
        if "json_schema" in settings:
            settings["ignore_eos"] = False
        made.append(lambda p=prompt, s=settings: model.request(p, **s))
    return made


def answer(model: Model, request: Request) -> Completion:
    """Alone, in the caller's thread, with nothing in the cache."""
    for slot in model.engine.slots:
        slot.length = 0
    settings: Any = {**request.settings, "stream": False}
    return model.generate(request.tokens, **settings)  # type: ignore[no-any-return]


def test_the_same_bytes_alone_and_beside_others(model: Model, scheduler: Scheduler) -> None:
    makers = requests(model, 39)
    alone = [bits(answer(model, make())) for make in makers]
    for order in (makers, makers[::-1]):
        heard = []
        for make in order:  # the later ones join while others run
            heard.append(Heard())
            scheduler.submit(make(), heard[-1])
        found = [bits(one.completion()) for one in heard]
        assert (found if order is makers else found[::-1]) == alone
    assert scheduler.stats().predicted_tokens >= 2 * sum(len(one[1]) for one in alone)


def test_threads_of_callers_share_batches(model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    makers, found = requests(model, 8), dict[int, Any]()
    alone = [bits(answer(model, make())) for make in makers]
    sizes, run = list[int](), StepArguments.run

    def watched(self: StepArguments, caches: Any) -> Any:
        sizes.append(len(self.tokens))
        time.sleep(0.005)
        return run(self, caches)

    def ask(i: int) -> None:
        request = makers[i]()
        settings: Any = request.settings
        found[i] = bits(model.generate(request.tokens, **settings))

    monkeypatch.setattr(StepArguments, "run", watched)
    threads = [threading.Thread(target=ask, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert [found[i] for i in range(8)] == alone
    assert len(sizes) < 60  # one after another they would be more than 100


def test_a_prompt_is_evaluated_once_for_all_who_have_it(model: Model, scheduler: Scheduler) -> None:
    before, heard = scheduler.stats().prompt_tokens, [Heard() for _ in range(4)]
    for slot in model.engine.slots:
        slot.length = 0
    with scheduler.changed:  # all come before the first step
        for i, one in enumerate(heard):
            scheduler.submit(model.request(LONG[:100], max_tokens=3, seed=i), one)
    cached = [one.completion().cached_tokens for one in heard]
    assert sorted(cached) == [0, 99, 99, 99]
    assert scheduler.stats().prompt_tokens - before == 103


def test_tenants_share_no_keys_and_values(model: Model, scheduler: Scheduler) -> None:
    prompt, found = LONG[30:130], []
    for tenant in ("a", "a", "b", "", "b"):
        heard = Heard()
        scheduler.submit(model.request(prompt, max_tokens=2, seed=1), heard, tenant=tenant)
        found.append(heard.completion())
    assert [one.cached_tokens for one in found] == [0, 99, 0, 0, 99]
    assert len({tuple(one.tokens) for one in found}) == 1


def starts(scheduler: Scheduler, model: Model, asked: list[dict[str, Any]]) -> list[int]:
    """In which order requests get the only slots, all having come at once."""
    order, heard = list[int](), list[Heard]()

    class Noting(Heard):
        def __init__(self, number: int) -> None:
            super().__init__()
            self.number = number

        def __call__(self, news: Piece | Exception) -> None:
            if not self.pieces:
                order.append(self.number)
            super().__call__(news)

    with scheduler.changed:
        for i, settings in enumerate(asked):
            heard.append(Noting(i))
            request = model.request([1, 2, 3 + i], max_tokens=2, ignore_eos=True)
            scheduler.submit(request, heard[-1], **settings)
    for one in heard:
        one.completion()
    return order


def test_slots_go_round_among_tenants_then_by_priority(path: Path) -> None:
    model = td.load(path, slots=1, context=64)
    scheduler = Scheduler(model)
    tenants = ["a", "a", "a", "a", "b", "c"]
    assert starts(scheduler, model, [{"tenant": t} for t in tenants]) == [0, 4, 5, 1, 2, 3]
    assert starts(scheduler, model, [{"priority": p} for p in (0, 0, 5, 1)]) == [2, 3, 0, 1]
    scheduler.close()


def test_the_queue_is_bounded(path: Path) -> None:
    model = td.load(path, slots=1, context=64)
    scheduler, heard = Scheduler(model, queue=2), [Heard() for _ in range(3)]
    with scheduler.changed:
        for one in heard:
            scheduler.submit(model.request([1], max_tokens=2, ignore_eos=True), one)
        with pytest.raises(BusyError, match="2 requests are waiting"):
            scheduler.submit(model.request([1]), Heard())
    for one in heard:
        assert len(one.completion().tokens) == 2
    scheduler.close()


def test_who_passes_pieces_on_is_told_when_a_step_has_no_more(model: Model) -> None:
    """After the last piece of each step, and after a request that ends without one."""
    news = list[str]()
    scheduler = Scheduler(model, told=lambda: news.append("told"))

    def listener(end: threading.Event) -> Any:
        def hear(piece: Piece | Exception) -> None:
            is_last = isinstance(piece, Exception) or piece.completion is not None
            news.append("last" if is_last else "piece")
            if is_last:
                end.set()

        return hear

    ends = [threading.Event() for _ in range(5)]
    with scheduler.changed:  # all come at once
        for i, end in enumerate(ends[:4]):
            request = model.request([1, 2, 3 + i], max_tokens=6, ignore_eos=True)
            scheduler.submit(request, listener(end))
    for end in ends[:4]:
        assert end.wait(60)
    while news.count("told") < scheduler.stats().steps:
        time.sleep(0.001)
    with scheduler.changed:  # nobody steps meanwhile: whoever gives up ends it
        scheduler.submit(model.request([1], max_tokens=6), listener(ends[4])).cancel()
    scheduler.close()
    said = "".join({"piece": "p", "last": "l", "told": " "}[one] for one in news)
    assert said == "pppp " * 5 + "plplplpl l "


def test_deadlines(model: Model, scheduler: Scheduler) -> None:
    late, never = Heard(), Heard()
    endless: Any = {"max_tokens": -1, "shift": True, "ignore_eos": True}
    scheduler.submit(model.request([1], **endless), late, deadline=time.monotonic() + 0.05)
    with pytest.raises(DeadlineError, match="not done in time"):
        late.completion()
    assert late.pieces
    scheduler.submit(model.request([1], **endless), never, deadline=time.monotonic() - 1)
    with pytest.raises(DeadlineError):
        never.completion()
    assert not never.pieces


def test_errors_stay_with_their_request(model: Model, scheduler: Scheduler) -> None:
    makers = requests(model, 4)
    alone = [bits(answer(model, make())) for make in makers]

    def broken(tokens: np.ndarray, logits: np.ndarray) -> Any:
        if len(tokens) > 7:
            raise RuntimeError("mine")
        return logits

    def damaged(tokens: np.ndarray, logits: np.ndarray) -> Any:
        return np.full_like(logits, np.nan)

    def fails(news: Piece | Exception) -> None:
        raise ValueError("a listener")

    wrong: list[tuple[Any, type[Exception], str]] = [
        ({"logits_processor": broken}, RuntimeError, "mine"),
        ({"logits_processor": damaged}, LogitsError, "NaN logits at position 4"),
        ({"logits_processor": lambda tokens, logits: logits[:5]}, SettingError, "300 logits"),
        ({"grammar": {"regex": "[a-z]+"}, "logit_bias": dict.fromkeys(range(300), -np.inf)},
         BoundsError, "no token is left"),
    ]  # fmt: skip
    bad, good = [Heard() for _ in wrong], [Heard() for _ in makers]
    for i, make in enumerate(makers):
        settings: Any = {"ignore_eos": True, **wrong[i][0]}
        scheduler.submit(model.request([1, 2, 3, 4, 5], **settings), bad[i])
        scheduler.submit(make(), good[i])
    scheduler.submit(model.request([1, 2], max_tokens=5), fails)
    assert [bits(one.completion()) for one in good] == alone
    for one, (_, kind, said) in zip(bad, wrong, strict=True):
        with pytest.raises(kind, match=said):
            one.completion()


def test_a_function_of_the_logits_may_ask_the_model(model: Model) -> None:
    def asks(tokens: np.ndarray, logits: np.ndarray) -> Any:
        inner = model.generate(tokens[-2:].tolist(), max_tokens=2, temperature=0, ignore_eos=True)
        assert np.array_equal(model.logits(tokens.tolist(), last=True), logits)
        return np.eye(300, dtype=np.float32)[inner.tokens[-1]]

    found = model.generate([1, 2, 3], max_tokens=4, temperature=0, logits_processor=asks)
    again = model.generate([2, 3], max_tokens=2, temperature=0, ignore_eos=True)
    assert len(found.tokens) == 4 and found.tokens[0] == again.tokens[-1]


def test_logits_of_one_that_are_no_numbers(
    model: Model, scheduler: Scheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    good, bad = Heard(), Heard()
    settings: Any = {"seed": 5, "max_tokens": 30, "ignore_eos": True, "logit_bias": {299: -np.inf}}
    alone = bits(model.generate([1, 2, 3], **settings))
    run = StepArguments.run

    def poisoned(self: StepArguments, caches: Any) -> Any:
        logits = run(self, caches).memory.copy()
        logits[self.tokens[self.rows] == 299, 7] = np.nan
        return Array.from_numpy(logits)

    monkeypatch.setattr(StepArguments, "run", poisoned)
    scheduler.submit(model.request([1, 2, 3], **settings), good)
    scheduler.submit(model.request([4, 5, 299]), bad)
    with pytest.raises(LogitsError, match="NaN logits at position 2"):
        bad.completion()
    assert bits(good.completion()) == alone


def test_cancelling_frees_the_slot(model: Model, scheduler: Scheduler) -> None:
    """At random moments: in the queue, in the prompt, in the answer."""
    rng, jobs = random.Random(3), list[tuple[Job, Heard]]()
    for i in range(60):
        heard = Heard()
        tokens = [(i + 7 * k) % 300 for k in range(rng.randrange(1, 100))]
        request = model.request(tokens, max_tokens=-1, shift=True, ignore_eos=True)
        jobs.append((scheduler.submit(request, heard), heard))
        if i % 3 == 0:
            time.sleep(0.002)
        victim, _ = rng.choice(jobs)
        victim.cancel()
    for job, heard in jobs:
        job.cancel()
        with pytest.raises(Cancelled):
            heard.completion()
    stats = scheduler.stats()
    assert stats.running == stats.queued == 0
    assert all(slot.state == "free" for slot in stats.slots)


def test_draining_and_closing(model: Model) -> None:
    scheduler, heard = Scheduler(model), Heard()
    scheduler.submit(model.request([1], max_tokens=20, ignore_eos=True), heard)
    assert scheduler.drain(30) and heard.completion()
    with pytest.raises(ClosedError, match="takes no more requests"):
        scheduler.submit(model.request([1]), Heard())
    scheduler.close()
    other, endless = Scheduler(model), Heard()
    other.submit(model.request([1], max_tokens=-1, shift=True, ignore_eos=True), endless)
    assert not other.drain(0.02)
    other.close()
    with pytest.raises(Cancelled):
        endless.completion()
    assert other.thread is not None and not other.thread.is_alive()


def test_memory_is_kept_within_its_budget(path: Path) -> None:
    model = td.load(path, slots=6, context=128)
    engine = model.engine
    memory = engine.bytes_of(100)
    scheduler = Scheduler(model, memory=memory)
    heard = [Heard() for _ in range(12)]
    for i, one in enumerate(heard):
        prompt = [(i + 13 * k) % 300 for k in range(20)]
        scheduler.submit(model.request(prompt, max_tokens=10, ignore_eos=True, seed=i), one)
        assert scheduler.stats().kv_bytes <= memory
    for one in heard:
        assert len(one.completion().tokens) == 10
        assert scheduler.stats().kv_bytes <= memory
    assert scheduler.stats().kv_limit == memory
    cut = Heard()
    scheduler.submit(model.request(LONG[:90], max_tokens=-1, ignore_eos=True), cut)
    assert len(cut.completion().tokens) == 11 and cut.completion().finish_reason == "length"
    with pytest.raises(ContextError, match=r"more memory .* 110 tokens, the context holds 100"):
        scheduler.submit(model.request(LONG[:110]), Heard())
    scheduler.close()


def test_a_long_prompt_does_not_hold_up_the_others(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = td.load(path, slots=4, context=1024)
    scheduler, sizes, run = Scheduler(model, patience=1e-9), list[int](), StepArguments.run

    def watched(self: StepArguments, caches: Any) -> Any:
        sizes.append(len(self.tokens))
        return run(self, caches)

    monkeypatch.setattr(StepArguments, "run", watched)
    long, short = Heard(), [Heard() for _ in range(3)]
    with scheduler.changed:
        scheduler.submit(model.request(LONG * 6, max_tokens=1), long)
        for one in short:
            scheduler.submit(model.request([1, 2], max_tokens=5, ignore_eos=True), one)
    for one in (*short, long):
        one.completion()
    assert max(sizes) <= 64
    stats = scheduler.stats()
    assert stats.steps == len(sizes) and stats.last_step > 0
    scheduler.close()


def test_many_random_requests(model: Model, scheduler: Scheduler) -> None:
    makers, rng = requests(model, 30), random.Random(7)
    alone = [bits(answer(model, make())) for make in makers]
    asked = list[tuple[int, Heard, Job | None]]()
    for _ in range(300):
        i, heard = rng.randrange(30), Heard()
        tenant = rng.choice(["", "a", "b"])
        while True:
            try:
                job = scheduler.submit(makers[i](), heard, tenant=tenant)
                break
            except BusyError:
                time.sleep(0.005)
        asked.append((i, heard, job))
        if rng.random() < 0.2:
            rng.choice(asked)[2].cancel()  # type: ignore[union-attr]
    for i, heard, _ in asked:
        try:
            assert bits(heard.completion()) == alone[i]
        except Cancelled:
            tokens = [piece.token for piece in heard.pieces if piece.token is not None]
            assert tokens == alone[i][1][: len(tokens)]


def test_a_draft_model_changes_nothing_but_the_time(path: Path, tmp_path: Path) -> None:
    """With one that guesses well (the same) and one that does not (other weights)."""
    gguf.write(tmp_path / "other.gguf", *tiny_model("llama", seed=5, context=256, layers=1))
    plain = td.load(path, slots=8, context=192)
    makers = requests(plain, 26)
    alone = [bits(answer(plain, make())) for make in makers]
    for draft, least in ((path, 0.9), (tmp_path / "other.gguf", 0.0)):
        model = td.load(path, slots=8, context=192, draft=draft)
        scheduler, heard = Scheduler(model), [Heard() for _ in makers]
        for make, one in zip(makers, heard, strict=True):
            request = make()
            request.settings["draft_p_min"] = 0.01
            scheduler.submit(request, one)
        assert [bits(one.completion()) for one in heard] == alone
        found = model.generate(LONG[:20], max_tokens=40, seed=3, draft_p_min=0.0, ignore_eos=True)
        assert found.drafted > 10 and found.accepted >= least * found.drafted
        assert (
            found.tokens == plain.generate(LONG[:20], max_tokens=40, seed=3, ignore_eos=True).tokens
        )
        scheduler.close()
        assert model.draft is not None
        assert all(slot.sequence is None for slot in model.draft.engine.slots)
        assert scheduler.stats().drafted >= scheduler.stats().accepted >= 0
        model.close()


def test_a_draft_model_must_have_the_same_tokens(path: Path, tmp_path: Path) -> None:
    metadata, tensors = tiny_model("llama", context=256)
    words = [*metadata["tokenizer.ggml.tokens"]]
    words[200] = "other"
    gguf.write(tmp_path / "other.gguf", {**metadata, "tokenizer.ggml.tokens": words}, tensors)
    with pytest.raises(SettingError, match=r"draft: .* the same tokens: .* 200 is"):
        td.load(path, draft=tmp_path / "other.gguf")


PROGRAM = """
import os, sys, threading, tetrad as td
from tetrad.models.decoding.scheduler import Scheduler
model = td.load(sys.argv[1], slots=2, context=64)
scheduler = Scheduler(model)
begun = threading.Event()
scheduler.submit(model.request([1], max_tokens=-1, shift=True, ignore_eos=True),
                 lambda news: begun.set())
begun.wait()
if (child := os.fork()) == 0:
    heard = []
    over = threading.Event()
    def listen(news):
        heard.append(news)
        if isinstance(news, Exception) or news.completion is not None:
            over.set()
    scheduler.submit(model.request([1], max_tokens=5, ignore_eos=True), listen)
    over.wait(20)
    sys.exit(0 if len(heard) == 6 else 3)
_, status = os.waitpid(child, 0)
print("child", os.waitstatus_to_exitcode(status))
"""


def test_the_process_ends_though_requests_run_and_may_be_forked(path: Path) -> None:
    found = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(path)], capture_output=True, text=True, timeout=60
    )
    assert found.returncode == 0 and found.stdout == "child 0\n", found.stderr
