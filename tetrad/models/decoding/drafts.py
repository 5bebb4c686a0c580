"""Models, drafts: a small model proposes what a large one may say next.

Receives the jobs that want their next token; evaluates the draft model for all of them together and
gives each generation a draft, which the large model checks in its next step. A draft is drawn by
the request's own settings, seed and number of the draw, so that models that think alike choose
alike, at any temperature; what is said in the end is the large model's own choice.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from tetrad.core.errors import SettingError, TetradError
from tetrad.models.decoding.sampling import RowChooser, compiled_log_sum
from tetrad.models.engine import SMALL, Engine, SequenceSlot, Share
from tetrad.models.engine import Sequence as Held
from tetrad.models.steps import CHUNK
from tetrad.tracing.array import Array

if TYPE_CHECKING:
    from tetrad.models.decoding.batcher import Job
    from tetrad.models.decoding.generation import Generation
    from tetrad.text.tokenizer import Tokenizer

MOST_APART = 128  # tokens that the larger of two vocabularies may have more, at its end
BEHIND = 64  # tokens that are evaluated before a proposal; more of them are caught up with first


def check_alike(tokenizer: Tokenizer, draft: Tokenizer, path: str) -> None:
    """An error unless tokens mean the same to both models."""
    ours, theirs = tokenizer.vocabulary.tokens, draft.vocabulary.tokens
    common = min(len(ours), len(theirs))
    if abs(len(ours) - len(theirs)) > MOST_APART:
        got = f"{path} with {len(theirs)} tokens"
        raise SettingError("draft", f"a model of the same {len(ours)} tokens", got)
    for i, (one, other) in enumerate(zip(ours[:common], theirs[:common], strict=True)):
        if one != other:
            expected = f"a model of the same tokens: number {i} is {one!r:.20}"
            raise SettingError("draft", expected, f"{other!s:.20} in {path}")


class Following:
    """How far the draft model has followed a sequence."""

    __slots__ = ("certain", "dropped", "sequence")

    def __init__(self, sequence: Held) -> None:
        self.sequence, self.certain, self.dropped = sequence, sequence.length, 0


class Drafter:
    """A draft model beside the requests of a batcher. One thread at a time uses it."""

    def __init__(self, engine: Engine) -> None:
        self.engine, vocab = engine, engine.programs.config.vocab
        self.chooser, self.vocab = RowChooser(vocab), vocab
        self.followed: dict[Job, Following] = {}

    def propose(self, jobs: list[Job]) -> None:
        """A draft for each that wants one. What goes wrong here costs nothing but the draft."""
        asking = [job for job in jobs if wants_draft(job.generation)]
        try:
            self._propose(asking)
        except TetradError:
            for job in asking:
                self.forget(job)

    def _propose(self, asking: list[Job]) -> None:
        ready = [job for job in asking if self._follow(job)]
        longest = SMALL // max(1, len(asking)) - 1  # beyond, a step would take longer for it
        if ready and longest > 0:
            self._draft(ready, longest)

    def forget(self, job: Job) -> None:
        """The job is over, or has to be followed from the start."""
        found = self.followed.pop(job, None)
        if found is not None:
            self.engine.free(found.sequence)

    # -- following ---------------------------------------------------------------------------------

    def _follow(self, job: Job) -> bool:
        """Brings what the draft model holds of a sequence near to its end, a chunk at a time."""
        found = self.followed.get(job)
        if found is None:
            sequence = self.engine.take(job.prompt, tenant=job.tenant)
            if sequence is None:
                return False
            found = self.followed[job] = Following(sequence)
        slot, tokens = found.sequence.slot, job.generation.sequence
        self._go_back(found, job.generation)
        if len(tokens) > self.engine.context - 1:
            return False
        if len(tokens) - slot.length > BEHIND:
            self._run([Share(slot, tokens[slot.length : len(tokens) - 1][:CHUNK], 0)])
        found.certain = min(slot.length, len(tokens))
        return len(tokens) - slot.length <= BEHIND

    def _go_back(self, found: Following, generation: Generation) -> None:
        """Forgets what the draft model guessed and what did not come, and what was dropped to make
        room."""
        slot, tokens = found.sequence.slot, generation.sequence
        if found.dropped != generation.dropped:
            found.dropped, found.certain = generation.dropped, 0
        start, end = found.certain, min(slot.length, len(tokens) - 1)
        differs = slot.tokens[start:end] != np.array(tokens[start:end], np.int32)
        slot.length = min(start + int(differs.argmax()) if differs.any() else end, end)

    # -- proposing ---------------------------------------------------------------------------------

    def _draft(self, jobs: list[Job], longest: int) -> None:
        """Tokens one after another for all jobs together, until each is done."""
        drafts: dict[Job, list[int]] = {job: [] for job in jobs}
        more: list[tuple[Job, Sequence[int]]] = [
            (job, job.generation.sequence[self._slot(job).length :]) for job in jobs
        ]
        while more:
            logits = self._run([Share(self._slot(job), tokens, 1) for job, tokens in more])
            rows = Array.from_numpy(logits.memory[: len(more)])
            going = self._chosen([job for job, _ in more], rows, drafts, longest)
            more = [(job, drafts[job][-1:]) for job in going]
        for job, draft in drafts.items():
            if draft and len(draft) >= job.generation.settings["draft_min"]:
                job.generation.guess(draft)

    def _chosen(
        self, jobs: list[Job], rows: Array, drafts: dict[Job, list[int]], longest: int
    ) -> list[Job]:
        """Adds a token to each draft; which of them go on."""
        samplers = [job.generation.sampler for job in jobs]
        ahead = [len(drafts[job]) for job in jobs]
        choices = self.chooser.choose(samplers, rows, ahead)
        totals, view = compiled_log_sum()(rows).memory, rows.memory
        going: list[Job] = []
        for i, (job, choice) in enumerate(zip(jobs, choices, strict=True)):
            generation, token = job.generation, choice.token
            chance = float(np.exp(view[i, token] - totals[i]))
            if token >= generation.vocab or chance < generation.settings["draft_p_min"]:
                continue
            drafts[job].append(token)
            most = min(generation.settings["draft_max"], generation.room, longest)
            if len(drafts[job]) < most and token not in generation.ends:
                going.append(job)
        return going

    def _slot(self, job: Job) -> SequenceSlot:
        return self.followed[job].sequence.slot

    def _run(self, shares: list[Share]) -> Array:
        with self.engine.turns:
            return self.engine.run(shares)


def wants_draft(generation: Generation) -> bool:
    """One that wants its next token, where nothing but the logits decides: not a grammar, nor
    somebody's function."""
    return (
        generation.takes_drafts
        and not generation.guesses
        and generation.room > 0
        and bool(generation.tokens)
    )
