"""The engine: one sequence has the same bits alone, in company, in pieces, from the cache, and
after an interrupt."""

from __future__ import annotations

import mmap
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.models.tiny import tiny_model
from tetrad.core.errors import (
    BusyError,
    ClosedError,
    ContextError,
    SettingError,
    TextError,
    TraceError,
)
from tetrad.formats import gguf
from tetrad.models.engine import (
    Engine,
    Sequence,
    StepArguments,
    Work,
    batch_size,
    waiting_shares,
)
from tetrad.models.load import load_parts
from tetrad.models.steps import Programs

TEXT = (17 + 97 * np.arange(200)) % 300


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Programs:
    path: Path = tmp_path_factory.mktemp("models") / "tiny.gguf"
    gguf.write(path, *tiny_model("llama", context=256))
    return load_parts(path).programs


@pytest.fixture
def engine(programs: Programs) -> Engine:
    return Engine(programs, slots=3, context=256)


@pytest.fixture(scope="module")
def alone(programs: Programs) -> np.ndarray:
    """Logits after each token of TEXT, one token at a time."""
    engine = Engine(programs, context=256)
    sequence = engine.start(TEXT[:1])
    return np.concatenate([engine.step([(sequence, [token])]) for token in TEXT])


def fresh(engine: Engine) -> Sequence:
    """A sequence that finds nothing of use in the cache."""
    sequence = engine.start([0])
    engine.rewind(sequence, 0)
    return sequence


def test_pieces_of_any_size_give_the_bits_of_single_tokens(
    engine: Engine, alone: np.ndarray
) -> None:
    sequence = engine.start(TEXT)
    at = 0
    for size in (1, 7, 9, 16, 17, 64, 86):
        logits = engine.step([(sequence, TEXT[at : at + size])])
        at += size
        assert np.array_equal(logits, alone[at - 1 : at])
    assert at == len(TEXT) == sequence.length


def test_a_whole_prompt_and_the_logits_of_every_token(engine: Engine, alone: np.ndarray) -> None:
    sequence = fresh(engine)
    assert np.array_equal(engine.step_every(sequence, TEXT), alone)
    assert np.array_equal(
        engine.step([(sequence, [5])]), engine.step([(fresh(engine), [*TEXT, 5])])
    )


def test_sequences_side_by_side(engine: Engine, alone: np.ndarray) -> None:
    first, second, third = (fresh(engine) for _ in range(3))
    engine.step([(second, TEXT[:40])])
    logits = engine.step([(first, TEXT[:3]), (second, TEXT[40:41]), (third, TEXT[:150])])
    assert np.array_equal(logits, alone[[2, 40, 149]])
    logits = engine.step([(first, TEXT[3:4]), (second, TEXT[41:42]), (third, TEXT[150:151])])
    assert np.array_equal(logits, alone[[3, 41, 150]])


def test_what_the_cache_holds_is_not_evaluated_again(engine: Engine, alone: np.ndarray) -> None:
    first = engine.start(TEXT)
    engine.step([(first, TEXT[:100])])
    engine.free(first)
    second = engine.start(TEXT)
    assert second.length == second.cached == 100
    assert np.array_equal(engine.step([(second, TEXT[100:])]), alone[-1:])


def test_the_last_token_is_always_evaluated(engine: Engine, alone: np.ndarray) -> None:
    first = engine.start(TEXT)
    engine.step([(first, TEXT)])
    engine.free(first)
    second = engine.start(TEXT)
    assert second.cached == len(TEXT) - 1
    assert np.array_equal(engine.step([(second, TEXT[-1:])]), alone[-1:])


def test_a_beginning_is_copied_from_a_slot_in_use(engine: Engine, alone: np.ndarray) -> None:
    first = engine.start(TEXT)
    engine.step([(first, TEXT[:90])])
    second = engine.start([*TEXT[:77], 5, 6])
    assert second.slot is not first.slot and second.cached == 77
    engine.step([(second, [5, 6])])
    engine.rewind(second, 77)
    assert np.array_equal(engine.step([(second, TEXT[77:120])]), alone[119:120])
    assert np.array_equal(engine.step([(first, TEXT[90:91])]), alone[90:91])


def test_other_tokens_left_in_a_slot_do_not_matter(engine: Engine, alone: np.ndarray) -> None:
    for _ in range(3):
        engine.step([(fresh(engine), TEXT[::-1])])
    for slot in engine.slots:
        engine.free(slot.sequence)
    assert np.array_equal(engine.step([(engine.start(TEXT), TEXT[:50])]), alone[49:50])


def test_a_new_conversation_takes_the_slot_that_loses_least(engine: Engine) -> None:
    first = engine.start(TEXT)
    engine.step([(first, TEXT[:60])])
    engine.free(first)
    assert engine.start([3, 4, 5]).slot is not first.slot
    assert engine.start(TEXT).slot is first.slot


def test_too_long(engine: Engine) -> None:
    with pytest.raises(
        ContextError, match="the prompt is too long: 300 tokens, the context holds 256"
    ):
        engine.start(np.zeros(300, int))
    sequence = engine.start([1])
    engine.step([(sequence, np.zeros(256, int))])
    with pytest.raises(
        ContextError, match="the sequence is too long: 257 tokens, the context holds 256"
    ):
        engine.step([(sequence, [1])])


@pytest.mark.parametrize("tokens", [[], [300], [-1], [[1]], [0.5], ["a"]])
def test_what_are_no_tokens(engine: Engine, tokens: Any) -> None:
    with pytest.raises(TextError, match="tokens: expected"):
        engine.start(tokens)
    with pytest.raises(TextError, match="tokens: expected"):
        engine.step([(engine.start([1]), tokens)])


def test_settings(programs: Programs) -> None:
    for wrong in ({"slots": 0}, {"context": -1}, {"context": 1.5}, {"kv": "q3"}, {"kv": "q8_0"}):
        with pytest.raises(SettingError, match=next(iter(wrong))):
            Engine(programs, **wrong)  # heads of 16 channels have no scales of 32


def test_no_slot_left(programs: Programs) -> None:
    engine = Engine(programs, context=256)
    first = engine.start([1])
    with pytest.raises(BusyError, match="all 1 slots"):
        engine.start([1])
    found = []
    other = threading.Thread(target=lambda: found.append(engine.start([1])))
    other.start()
    engine.free(first)
    other.join(10)
    assert found and found[0].is_open
    with pytest.raises(SettingError, match="freed"):
        engine.step([(first, [1])])


def test_an_interrupted_step_can_be_repeated(
    engine: Engine, alone: np.ndarray, monkeypatch: pytest.MonkeyPatch
) -> None:
    sequence = engine.start(TEXT)
    engine.step([(sequence, TEXT[:30])])
    run = StepArguments.run

    def interrupted(self: StepArguments, caches: Any) -> np.ndarray:
        run(self, caches)
        raise KeyboardInterrupt

    monkeypatch.setattr(StepArguments, "run", interrupted)
    for step in (
        lambda: engine.step([(sequence, TEXT[30:60])]),
        lambda: engine.step([(sequence, [3])]),
    ):
        with pytest.raises(KeyboardInterrupt):
            step()
    monkeypatch.undo()
    assert sequence.length == 30 and not engine.turns.is_taken
    assert np.array_equal(engine.step([(sequence, TEXT[30:60])]), alone[59:60])


def test_nobody_gets_the_error_of_another(
    engine: Engine, alone: np.ndarray, monkeypatch: pytest.MonkeyPatch
) -> None:
    good, bad = engine.start(TEXT), engine.start([1, 2])
    run = StepArguments.run

    def failing(self: StepArguments, caches: Any) -> np.ndarray:
        if bad.slot.number in self.slot:
            raise TraceError("this sequence fails")
        return run(self, caches)

    monkeypatch.setattr(StepArguments, "run", failing)
    with pytest.raises(TraceError, match="this sequence fails"):
        engine.step([(good, TEXT[:20]), (bad, [1, 2])])
    assert np.array_equal(engine.step([(good, TEXT[20:22])]), alone[21:22])


def test_threads_take_turns_and_get_their_own_bits(programs: Programs, alone: np.ndarray) -> None:
    engine = Engine(programs, slots=4, context=256)
    wrong: list[int] = []

    def follow(start: int) -> None:
        sequence = fresh(engine)
        engine.step([(sequence, TEXT[:start])])
        for i in range(start, start + 20):
            if not np.array_equal(engine.step([(sequence, TEXT[i : i + 1])]), alone[i : i + 1]):
                wrong.append(i)
        engine.free(sequence)

    threads = [threading.Thread(target=follow, args=(n,)) for n in (1, 30, 64, 70, 111, 150, 180)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert (
        not wrong
        and not engine.turns.is_taken
        and all(slot.sequence is None for slot in engine.slots)
    )


def test_patience_cuts_a_long_prompt(programs: Programs, monkeypatch: pytest.MonkeyPatch) -> None:
    engine, run, batches = (
        Engine(programs, context=1024, patience=1e-9),
        StepArguments.run,
        list[int](),
    )

    def watched(self: StepArguments, caches: Any) -> Any:
        batches.append(len(self.tokens))
        return run(self, caches)

    monkeypatch.setattr(StepArguments, "run", watched)
    sequence = engine.start([1])
    engine.step([(sequence, np.zeros(192, int))])
    assert batches == [64, 64, 64] and sequence.length == 192
    engine.free(sequence)
    engine.patience = 100.0
    engine.step([(engine.start([1]), np.zeros(1000, int))])
    assert batches[3:] == [512, 256, 128, 64, 48]  # the last one is filled up from 40


def test_memory_goes_back_and_what_a_slot_held_is_forgotten(
    programs: Programs, alone: np.ndarray
) -> None:
    engine = Engine(programs, slots=2, context=4096)  # a slot has some pages of memory
    sequence = engine.start(TEXT)
    engine.step([(sequence, TEXT)])
    slot = sequence.slot
    engine.free(sequence)
    assert slot.touched == len(TEXT) and engine.bytes_of(slot.touched) > 0
    engine.release(slot, keep=77)
    assert (slot.length, slot.touched) == (77, 77)
    again = engine.start(TEXT)
    assert again.cached == 77 and np.array_equal(engine.step([(again, TEXT[77:])]), alone[-1:])
    engine.free(again)
    held = sum(int(np.count_nonzero(part)) for part in engine._parts(slot, 4096))
    engine.release(slot)
    left = sum(int(np.count_nonzero(part)) for part in engine._parts(slot, 4096))
    edges = 2 * len(engine.caches) * mmap.PAGESIZE // 2  # values of the pages where layers begin
    assert left <= edges < held and engine.start(TEXT).cached == 0


def test_tenants_share_nothing(engine: Engine) -> None:
    first = engine.take(TEXT, tenant="a")
    assert first is not None
    engine.step([(first, TEXT[:100])])
    assert engine.known(TEXT, "a") == 100 and engine.known(TEXT, "b") == 0
    for tenant, cached in (("b", 0), ("a", 100)):
        other = engine.take(TEXT, tenant=tenant)
        assert other is not None and other.cached == cached
        engine.free(other)


def test_a_closed_engine_says_so(programs: Programs) -> None:
    engine = Engine(programs, slots=2, context=256)
    sequence = engine.start(TEXT)
    engine.close()
    for ask in (lambda: engine.step([(sequence, TEXT)]), lambda: engine.start(TEXT)):
        with pytest.raises(ClosedError, match="the model is closed"):
            ask()


@pytest.mark.parametrize("kv", ["f32", "bf16", "q8_0"])
def test_kinds_of_caches(kv: str, tmp_path: Path, alone: np.ndarray) -> None:
    """Near the logits of f16, and the same bits whether evaluated or copied."""
    gguf.write(
        tmp_path / "tiny.gguf", *tiny_model("llama", context=256, width=128, head_size=32, layers=1)
    )
    programs = load_parts(tmp_path / "tiny.gguf").programs
    engines = {name: Engine(programs, slots=2, context=256, kv=name) for name in ("f16", kv)}
    plain, other = (engine.step_every(fresh(engine), TEXT[:40]) for engine in engines.values())
    assert 0 < np.abs(plain - other).max() < 0.2 * plain.std()
    copy = engines[kv].start(TEXT)
    assert copy.cached == 40
    engines[kv].rewind(copy, 39)
    assert np.array_equal(engines[kv].step([(copy, TEXT[39:40])]), other[-1:])


# -- what goes into a batch ------------------------------------------------------------------------


def test_there_are_few_sizes_of_batches() -> None:
    sizes = {batch_size(n) for n in range(1, 513)}
    assert sizes == {1, 2, 3, 4, 5, 6, 7, 8, 16, 32, 48, 64, 128, 256, 512}
    assert all(batch_size(n) >= n for n in range(1, 513))


class Fake:
    """A sequence nobody evaluates."""

    length, slot = 0, None


def works(*counts: int, every: bool = False) -> Iterator[Work]:
    return (Work(Fake(), np.zeros(n, np.int32), every) for n in counts)  # type: ignore[arg-type]


def counts(*sizes: int, every: bool = False) -> list[int]:
    return [count for _, count in waiting_shares(list(works(*sizes, every=every)))]


def test_short_works_go_first_and_long_ones_fill_up() -> None:
    assert counts(1000, 1, 1) == [1, 1, 510]
    assert counts(300, 1) == [1, 255]
    assert counts(60) == [60]
    assert counts(70, 100, 1) == [1, 70, 57]
    assert counts(1000, every=True) == [64]
    parts = waiting_shares(list(works(700, 2)))
    assert [work.share(count).rows for work, count in parts] == [1, 0]
