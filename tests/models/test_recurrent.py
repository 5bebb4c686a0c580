"""A model whose state is one vector a sequence runs in the same engine: it begins anew where it
cannot go on, and has the same bits alone, in company, in pieces and after a failure."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tetrad as td
from tests.models import recurrent
from tests.models.tiny import prompt
from tetrad.core.errors import TraceError
from tetrad.formats import gguf
from tetrad.models.arch import ARCHITECTURES, register
from tetrad.models.engine import Engine, StepArguments
from tetrad.models.load import load_parts
from tetrad.models.steps import Programs

TEXT = prompt(60)


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    found: Path = tmp_path_factory.mktemp("models") / "toy.gguf"
    gguf.write(found, *recurrent.tiny_recurrent())
    register(recurrent.TOY)
    yield found
    del ARCHITECTURES[recurrent.NAME]


@pytest.fixture(scope="module")
def programs(path: Path) -> Programs:
    return load_parts(path).programs


@pytest.fixture(scope="module")
def alone(programs: Programs) -> np.ndarray:
    """Logits after each token of TEXT, one token at a time."""
    engine = Engine(programs)
    sequence = engine.start(TEXT[:1])
    return np.concatenate([engine.step([(sequence, [token])]) for token in TEXT])


def test_the_logits_are_those_of_the_reference(alone: np.ndarray) -> None:
    expected = recurrent.forward(*recurrent.tiny_recurrent(), TEXT)
    assert np.abs(alone - expected).max() < 1e-5 * expected.std()


def test_pieces_and_company_do_not_change_a_bit(programs: Programs, alone: np.ndarray) -> None:
    engine = Engine(programs, slots=3)
    first, second, third = (engine.start([token]) for token in (1, 2, 3))
    engine.step([(first, TEXT[:7]), (second, TEXT[:19]), (third, TEXT[::-1])])
    found = engine.step([(first, TEXT[7:40]), (second, TEXT[19:20]), (third, [5])])
    assert np.array_equal(found[:2], alone[[39, 19]])


def test_a_sequence_goes_on_from_its_end_only(programs: Programs, alone: np.ndarray) -> None:
    engine = Engine(programs, slots=2)
    sequence = engine.start(TEXT[:20])
    engine.step([(sequence, TEXT[:20])])
    engine.free(sequence)
    longer = engine.start(TEXT[:30])
    assert longer.length == 20
    assert np.array_equal(engine.step([(longer, TEXT[20:30])])[0], alone[29])
    busy = engine.start(TEXT[:40])  # what is being changed is not read
    assert busy.length == 0
    engine.free(longer)
    engine.free(busy)
    shorter = engine.start(TEXT[:25])
    assert shorter.length == 0
    assert np.array_equal(engine.step([(shorter, TEXT[:25])])[0], alone[24])


def test_the_state_of_a_free_slot_is_copied(programs: Programs, alone: np.ndarray) -> None:
    engine = Engine(programs, slots=2)
    sequence = engine.start(TEXT[:20])
    engine.step([(sequence, TEXT[:20])])
    held = engine.held(sequence)
    other = engine.start([9])
    engine.put(other, TEXT[:20], held)
    assert np.array_equal(engine.step([(other, TEXT[20:21])])[0], alone[20])


def test_rewinding_evaluates_the_beginning_again(programs: Programs, alone: np.ndarray) -> None:
    engine = Engine(programs)
    sequence = engine.start(TEXT[:20])
    engine.step([(sequence, TEXT[:20])])
    engine.rewind(sequence, 11)
    assert sequence.length == 11
    assert np.array_equal(engine.step([(sequence, TEXT[11:13])])[0], alone[12])


def test_a_step_that_fails_leaves_the_state_as_it_was(
    programs: Programs, alone: np.ndarray, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = Engine(programs, slots=2)
    sequences = [engine.start([token]) for token in (1, 2)]
    engine.step([(sequence, TEXT[:20]) for sequence in sequences])
    run, failures = StepArguments.run, [1]

    def fails_once(batch: StepArguments, caches: list[Any]) -> Any:
        made = run(batch, caches)
        if failures:
            failures.pop()
            raise TraceError("after the state has changed")
        return made

    monkeypatch.setattr(StepArguments, "run", fails_once)
    found = engine.step([(sequence, TEXT[20:25]) for sequence in sequences])
    assert np.array_equal(found, alone[[24, 24]])


def test_it_generates_alike_alone_and_beside_others(path: Path) -> None:
    settings = {"max_tokens": 12, "seed": 3, "ignore_eos": True}
    prompts = ["the world", "hello", "in the", "on a"]
    alone = [td.load(path).generate(text, **settings).tokens for text in prompts]
    model, found = td.load(path, slots=2), dict[str, list[int]]()

    def ask(text: str) -> None:
        found[text] = model.generate(text, **settings).tokens

    threads = [threading.Thread(target=ask, args=(text,)) for text in prompts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [found[text] for text in prompts] == alone


def test_guessing_ahead_and_shifting_change_nothing_they_should_not(path: Path) -> None:
    model = td.load(path, context=32)
    plain = model.generate("the the the the", max_tokens=12, temperature=0, ignore_eos=True)
    guessed = model.generate(
        "the the the the", max_tokens=12, temperature=0, ignore_eos=True, speculate=4
    )
    assert guessed.tokens == plain.tokens and guessed.drafted == 0
    shifted = model.generate("the", max_tokens=50, temperature=0, ignore_eos=True, shift=True)
    assert len(shifted.tokens) == 50
    logits = model.logits(model.tokenizer.encode("hello"))
    np.testing.assert_array_equal(
        logits[-1], model.logits(model.tokenizer.encode("hello"), last=True)
    )


def test_its_programs_have_no_name(programs: Programs) -> None:
    """The source of the tests is not in the key."""
    assert programs.step.name() is None
