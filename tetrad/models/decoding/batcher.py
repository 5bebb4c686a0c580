"""Models, batcher: carries all requests of a model on, in shared batches.

Receives requests from any thread, calls their listeners with pieces. A step admits requests into
free slots, packs the next tokens of all that run and, as far as patience allows, chunks of prompts
into one batch, chooses from all rows of logits in one call, and tells the listeners. Whoever wants
something carries everything on: the thread of a `Scheduler`, or callers of `model.generate`, one at
a time, so that a single request runs in its own thread without any other.
"""

from __future__ import annotations

import math
import threading
import time
from collections import Counter, deque
from collections.abc import Callable
from typing import Any

import numpy as np

from tetrad.core.errors import BoundsError, Cancelled, ContextError, DeadlineError, TetradError
from tetrad.core.floats import guarded
from tetrad.models.decoding.drafts import Drafter
from tetrad.models.decoding.generation import Generation, Piece, Request
from tetrad.models.decoding.sampling import Choice, RowChooser, Sampler
from tetrad.models.engine import TILE, Engine, Sequence, SequenceSlot, Share, best_size
from tetrad.models.steps import CHUNK
from tetrad.tracing.array import Array

AHEAD = 16  # pieces that nobody has taken yet, after which a stream waits
WORTH = 16  # tokens of a prompt that are worth waiting for while another request evaluates them
PASSED = 8  # steps after which a prompt that shorter ones have overtaken goes first
IDLE = 0.5  # seconds after which whoever waits looks again, though nobody told
Listener = Callable[[Piece | Exception], None]


class Job:
    """A request among those that are carried on. `cancel` gives it up, from any thread."""

    __slots__ = (
        "batcher",
        "begin",
        "deadline",
        "first",
        "generation",
        "is_cancelled",
        "is_over",
        "listener",
        "order",
        "passed",
        "priority",
        "prompt",
        "ready",
        "reserved",
        "sequence",
        "tenant",
        "thread",
        "unread",
    )  # fmt: skip

    def __init__(self, batcher: Batcher, generation: Generation, listener: Listener) -> None:
        self.batcher, self.generation, self.listener = batcher, generation, listener
        self.prompt = np.array(generation.request.tokens, np.int32)
        self.tenant, self.priority, self.deadline = "", 0, math.inf
        self.thread, self.order = 0, 0  # of those who may wait for themselves; of coming
        self.unread: deque[Any] | None = None  # of a stream, what was not taken yet
        self.sequence: Sequence | None = None
        self.begin, self.ready, self.reserved, self.passed, self.first = 0.0, 0.0, 0, 0, 0
        self.is_cancelled = self.is_over = False

    def cancel(self) -> None:
        """Its slot is free after the step that runs now; the listener gets `Cancelled`."""
        self.batcher.cancel(self)

    @property
    def slot(self) -> SequenceSlot:
        """Where its sequence is, once it runs."""
        assert self.sequence is not None
        return self.sequence.slot

    @property
    def is_going(self) -> bool:
        """Whether it takes part in the next step: not where nobody reads what there is, nor where
        one of its functions has called for that step."""
        has_room = self.unread is None or len(self.unread) < AHEAD
        return has_room and not self.generation.is_choosing

    def tell(self, news: Piece | Exception) -> None:
        """A listener that fails has given up its request."""
        try:
            self.listener(news)
        except Exception:
            self.is_cancelled = True


class Batcher:
    """The requests of one engine. Steps take about `patience` seconds at most, as far as prompts
    decide; keys and values take at most `memory` bytes (0: what the slots hold)."""

    def __init__(
        self,
        engine: Engine,
        *,
        patience: float = math.inf,
        memory: int = 0,
        draft: Engine | None = None,
    ) -> None:
        self.engine = engine  # and nothing of the model: with its last reference it goes at once
        self.patience, self.memory = patience, memory
        self.context = self.engine.tokens_in(memory) if memory else self.engine.context
        self.changed = self.engine.changed  # guards what follows
        self.waiting: list[Job] = []
        self.running: list[Job] = []
        self.ending: list[Job] = []  # those to look at: cancelled
        self.stepper = 0  # the thread that steps: only it touches those that run
        self.soonest = math.inf  # the next deadline
        self.told: Callable[[], None] = nobody  # called after listeners were, once a step
        self.orders = 0
        self.served: dict[str, int] = {}  # by tenant, when a request of it last got a slot
        self.drafter = None if draft is None else Drafter(draft)
        self.chooser = RowChooser(engine.programs.config.vocab)
        self.counts: Counter[str] = Counter()
        self.seconds: dict[str, float] = {"prompt": 0.0, "predicted": 0.0, "last": 0.0}

    # -- requests come and go ----------------------------------------------------------------------

    def submit(
        self,
        generation: Generation,
        listener: Listener,
        *,
        tenant: str = "",
        priority: int = 0,
        deadline: float | None = None,
        unread: deque[Any] | None = None,
    ) -> Job:
        """A request that takes part from the next step on, if a slot is free."""
        self._check_fits(generation.request)
        job = Job(self, generation, listener)
        job.tenant, job.priority = tenant, priority
        job.deadline = math.inf if deadline is None else deadline
        if unread is not None:
            job.unread, job.thread = unread, threading.get_ident()
        with self.changed:
            self.engine.check_open()
            self.orders += 1
            job.order = self.orders
            self.waiting.append(job)
            self.soonest = min(self.soonest, job.deadline)
            self.changed.notify_all()
        return job

    def _check_fits(self, request: Request) -> None:
        if len(request.tokens) > self.context:
            raise ContextError(
                "the prompt needs more memory than there is for keys and values",
                tokens=len(request.tokens), context=self.context,
                hint="give them more memory, or shorten the prompt",
            )  # fmt: skip

    def cancel(self, job: Job) -> None:
        with self.changed:
            if job.is_over:
                return
            job.is_cancelled = True
            self.ending.append(job)
            is_swept = not self.stepper
            if is_swept:
                self._sweep()
            self.changed.notify_all()
        if is_swept:
            self.told()

    def _sweep(self) -> None:
        """Ends those that were cancelled or whose time is over."""
        ending, self.ending = self.ending, []
        for job in ending:
            self._end(job, Cancelled("the request was given up"))
        if self.soonest < math.inf and (now := time.monotonic()) >= self.soonest:
            jobs = [*self.waiting, *self.running]
            for job in [job for job in jobs if job.deadline <= now]:
                self._end(job, DeadlineError("the request was not done in time"))
            self.soonest = min([job.deadline for job in jobs if not job.is_over], default=math.inf)

    def _end(self, job: Job, news: Piece | Exception) -> None:
        """The job is over, its slot free, and its listener told the last."""
        if job.is_over:
            return
        with self.changed:
            job.is_over = True
            for jobs in (self.waiting, self.running):
                if job in jobs:
                    jobs.remove(job)
            if job.sequence is not None:
                self.engine.free(job.sequence)
            if self.drafter is not None:
                self.drafter.forget(job)
        job.tell(news)

    def fail_all(self, error: Exception) -> None:
        """Everybody is told of what nobody expected."""
        for job in [*self.running, *self.waiting]:
            self._end(job, error)

    def forked(self, changed: threading.Condition) -> None:
        """In a child process: nobody there waits for what the parent had begun."""
        self.changed = self.engine.changed = changed
        self.engine.programs.turns.forked()
        self.stepper = 0
        for job in [*self.running, *self.waiting]:
            job.listener = ignored
            self._end(job, Cancelled("the process was forked"))

    # -- who steps ---------------------------------------------------------------------------------

    @guarded
    def carry_on(self, job: Job) -> None:
        """For a caller who waits for a job: a step, or a wait for that of another thread. The
        function of another request, which is called within a step, may be such a caller."""
        mine, was_stepped, me = False, True, threading.get_ident()
        try:
            with self.changed:
                if job.unread or job.is_over:
                    return
                if self.stepper not in (0, me):
                    self.changed.wait(IDLE)
                    return
                mine, self.stepper = not self.stepper, me
            was_stepped = self.step()
        finally:
            if mine:
                self.stepped()
        if not was_stepped:
            self._wait(job)

    def stepped(self) -> None:
        with self.changed:
            self.stepper = 0
            self._sweep()
            self.changed.notify_all()
        self.told()

    def _wait(self, job: Job) -> None:
        """Nothing could be done: others have the slots."""
        with self.changed:
            if job.is_over or job.sequence is not None:
                return
            try:
                self.engine.check_may_wait()
            except TetradError as error:
                self._end(job, error)
                return
            self.changed.wait(IDLE)

    # -- a step ------------------------------------------------------------------------------------

    def step(self) -> bool:
        """One batch; False where nothing can go on."""
        if self.ending or self.soonest < math.inf or self.waiting:
            with self.changed:
                self._sweep()
                self._admit()
        if self.drafter is not None:
            self.drafter.propose([job for job in self.running if job.is_going])
        parts = self._plan()
        if not parts:
            return False
        try:
            self._evaluate(parts)
        except BaseException:
            self._go_back()
            raise
        return True

    def _go_back(self) -> None:
        """A step was interrupted: what was evaluated and not chosen from is evaluated again."""
        for job in [*self.running]:
            generation = job.generation
            if generation.is_taking:  # half of a token: which half, nobody knows
                self._end(job, Cancelled("the request was interrupted"))
            elif generation.is_choosing:
                generation.begin(len(generation.sequence) - 1)

    def _admit(self) -> None:
        """Free slots go to those who wait: to the tenant that has the fewest, then by priority,
        then in the order they came."""
        free = sum([slot.sequence is None for slot in self.engine.slots])
        left = [*self.waiting] if free else []
        while left and free:
            counts = Counter([job.tenant for job in self.running])
            served = self.served
            job = min(
                left,
                key=lambda job: (
                    counts[job.tenant], served.get(job.tenant, 0), -job.priority, job.order
                ),
            )  # fmt: skip
            left.remove(job)
            if self._awaits_another(job):
                continue
            if not self._has_memory(job):
                return  # a smaller one would not be fair
            if not self._take_slot(job):
                return
            free -= 1

    def _awaits_another(self, job: Job) -> bool:
        """Whether a request that runs is just evaluating what this one begins with."""
        if not self.engine.can_rewind:
            return False
        known = -1
        for other in self.running:
            done = other.generation.length
            if other.tenant != job.tenant or done >= len(other.prompt):
                continue
            most = min(len(job.prompt) - 1, len(other.prompt))
            differs = job.prompt[:most] != other.prompt[:most]
            same = int(differs.argmax()) if differs.any() else most
            if same - done < WORTH:
                continue
            known = self.engine.known(job.prompt, job.tenant) if known < 0 else known
            if same - known >= WORTH:
                return True
        return False

    def _has_memory(self, job: Job) -> bool:
        """Whether the longest that it can become fits beside those that run."""
        request = job.generation.request
        most = min(len(request.tokens) + request.limit, self.context)
        job.reserved = self.engine.bytes_of(most)
        if not self.memory:
            return True
        return sum([other.reserved for other in self.running]) + job.reserved <= self.memory

    def _take_slot(self, job: Job) -> bool:
        sequence = self.engine.take(job.prompt, thread=job.thread, tenant=job.tenant)
        if sequence is None:
            return False
        job.sequence, job.begin = sequence, time.perf_counter()
        job.generation.begin(sequence.length)
        job.generation.cached = sequence.cached
        self.waiting.remove(job)
        self.running.append(job)
        self.served[job.tenant] = job.order
        if len(self.served) > 4096:
            self.served.clear()
        if self.memory:
            self.engine.release(sequence.slot, keep=sequence.length)
            self._forget()
        return True

    def _forget(self) -> None:
        """What free slots hold goes, that was used longest ago first, until all fits."""
        spare = self.memory - sum([job.reserved for job in self.running])
        idle = [slot for slot in self.engine.slots if slot.sequence is None and slot.touched]
        held = sum([self.engine.bytes_of(slot.touched) for slot in idle])
        for slot in sorted(idle, key=lambda slot: slot.used):
            if held <= spare:
                return
            held -= self.engine.bytes_of(slot.touched)
            self.engine.release(slot)

    def _plan(self) -> list[tuple[Job, int]]:
        """Which jobs go into the next batch, and how many of their tokens: all that only want their
        next one, then of prompts what fits, the shortest first."""
        parts, reading, total = list[tuple[Job, int]](), list[Job](), 0
        for job in self.running:
            if not job.is_going:
                continue
            generation = job.generation
            if job.slot.length != generation.length:
                self._rewind(job)
            count = len(generation.pending)
            if count > 1 + generation.guesses:
                reading.append(job)
            elif total + count <= CHUNK:
                parts.append((job, count))
                total += count
            else:  # more sequences than fit go in turns
                reading.append(job)
        return self._filled(parts, reading, total) if reading else parts

    def _rewind(self, job: Job) -> None:
        """The slot holds more than counts: a draft that was wrong, or what was dropped. A state
        that keeps the last only begins anew."""
        slot, generation = job.slot, job.generation
        if not self.engine.can_rewind:
            slot.length = 0
            generation.begin(0)
        elif slot.length > generation.length:
            slot.length = generation.length
        else:
            generation.begin(slot.length)

    def _filled(
        self, parts: list[tuple[Job, int]], reading: list[Job], total: int
    ) -> list[tuple[Job, int]]:
        """Chunks of prompts behind the others. One that was passed over for long comes first."""
        room = max(min(TILE, CHUNK - total), self.engine.room(self.patience) - total)
        reading.sort(key=lambda job: (job.passed < PASSED, len(job.generation.pending)))
        chunks, taken = list[tuple[Job, int]](), 0
        for job in reading:
            count = min(len(job.generation.pending), room - taken)
            job.passed = 0 if count else job.passed + 1
            if count:
                chunks.append((job, count))
                taken += count
        best = best_size(total + taken)
        surplus = total + taken - best if best > total else 0
        while surplus:
            job, count = chunks.pop()
            if count > surplus:
                chunks.append((job, count - surplus))
            surplus -= min(surplus, count)
        return parts + chunks

    def _evaluate(self, parts: list[tuple[Job, int]]) -> None:
        """One batch. What goes wrong in it is tried again, one job at a time: nobody gets another's
        error."""
        shares = [share_of(job, count) for job, count in parts]
        begin = time.perf_counter()
        try:
            with self.engine.turns:
                logits = self.engine.run(shares)
        except TetradError as error:
            if len(parts) == 1:
                self._end(parts[0][0], error)
                return
            for part in parts:
                self._evaluate([part])
            return
        now, row, ready = time.perf_counter(), 0, list[Job]()
        for (job, count), share in zip(parts, shares, strict=True):
            generation = job.generation
            generation.evaluated(count)
            job.first = row
            row += share.rows
            if not job.ready:
                self._has_read(job, count, now)
            if generation.is_choosing:
                ready.append(job)
            elif generation.reason is not None:
                self._finish(job)
        self._count(parts, now - begin)
        if ready:
            self._choose(ready, logits)

    def _has_read(self, job: Job, count: int, now: float) -> None:
        """Part of a prompt was evaluated, perhaps its last."""
        self.counts["prompt"] += count
        if job.generation.length >= len(job.prompt):
            job.ready = now

    def _count(self, parts: list[tuple[Job, int]], seconds: float) -> None:
        total = sum([count for _, count in parts])
        written = sum([count for job, count in parts if count <= 1 + job.generation.guesses])
        self.seconds["predicted"] += seconds * written / total
        self.seconds["prompt"] += seconds * (total - written) / total
        self.seconds["last"] = seconds
        self.counts["steps"] += 1

    # -- choosing ----------------------------------------------------------------------------------

    def _choose(self, ready: list[Job], logits: Array) -> None:
        """A token for every job, and one more for each that found its draft right."""
        view = logits.memory
        while ready:
            picks = Picks()
            for job in ready:
                self._pick(job, view, picks)
            again = list[Job]()
            for job, choices in self._chosen(picks, view):
                self._take(job, choices)
                if job.generation.is_choosing and not job.is_over:
                    again.append(job)
            ready = again

    def _pick(self, job: Job, view: np.ndarray, picks: Picks) -> None:
        """Which rows to choose from for a job."""
        generation, row = job.generation, job.first + job.generation.row
        if generation.is_plain:
            for i in range(generation.guesses - generation.row + 1):
                picks.add(job, generation.sampler, row + i, i, None)
            return
        given = Array.from_numpy(view[row : row + 1])
        try:
            edited = generation.edited(given)
        except Exception as error:  # of what a caller has given: a processor, a grammar
            self._end(job, error)
            return
        if job.is_over:  # a processor may do anything
            return
        if edited is None:
            self._finish(job)
        elif edited is given and generation.sampler.may_join:
            picks.add(job, generation.sampler, row, 0, generation.mask)
        else:
            self._pick_alone(job, edited)
            if generation.is_choosing and not job.is_over:
                self._pick(job, view, picks)

    def _pick_alone(self, job: Job, row: Array) -> None:
        generation = job.generation
        try:
            choices = self.chooser.choose([generation.sampler], row, None, [generation.mask])
        except BoundsError as error:
            self._end(job, generation.unchosen(error, row.memory))
        else:
            self._take(job, choices)

    def _chosen(self, picks: Picks, view: np.ndarray) -> list[tuple[Job, list[Choice | None]]]:
        if not picks.rows:
            return []
        try:
            choices: list[Choice | None] = [
                *self.chooser.choose(picks.samplers, picks.logits(view), picks.ahead, picks.masks)
            ]
        except BoundsError:  # one of them; the others have nothing to do with it
            choices = [self._chosen_alone(picks, i, view) for i in range(len(picks.rows))]
        return picks.by_job(choices)

    def _chosen_alone(self, picks: Picks, i: int, view: np.ndarray) -> Choice | None:
        row, mask = Array.from_numpy(view[picks.rows[i] : picks.rows[i] + 1]), picks.masks[i]
        try:
            return self.chooser.choose([picks.samplers[i]], row, [picks.ahead[i]], [mask])[0]
        except BoundsError as error:
            job = picks.jobs[i]
            if not picks.ahead[i]:  # behind a draft it may never be asked for
                self._end(job, job.generation.unchosen(error, row.memory))
            return None

    def _take(self, job: Job, choices: list[Choice | None] | list[Choice]) -> None:
        """What was chosen for a job, as far as its draft was right."""
        generation = job.generation
        for choice in choices:
            if choice is None or job.is_over:
                return  # the rows that are left are looked at again
            try:
                piece = generation.take(choice)
            except Exception as error:  # a grammar that cannot go on
                self._end(job, error)
                return
            self.counts["predicted"] += 1
            if piece is not None:
                job.tell(piece)
            if generation.reason is not None:
                self._finish(job)
                return
            if job.is_cancelled:
                self._end(job, Cancelled("whoever listened has failed"))
            if not generation.is_choosing:
                return

    def _finish(self, job: Job) -> None:
        now, generation = time.perf_counter(), job.generation
        ready = job.ready or now
        self.counts["drafted"] += generation.drafted
        self.counts["accepted"] += generation.accepted
        self._end(job, generation.last(ready - job.begin, now - ready))


def ignored(news: Piece | Exception) -> None:
    """Nobody listens."""


def nobody() -> None:
    """Nobody wants to know that listeners were told."""


class Picks:
    """Rows of logits to choose from in one call."""

    __slots__ = ("ahead", "jobs", "masks", "rows", "samplers")

    def __init__(self) -> None:
        self.jobs: list[Job] = []
        self.samplers: list[Sampler] = []
        self.rows: list[int] = []
        self.ahead: list[int] = []
        self.masks: list[np.ndarray | None] = []

    def add(
        self, job: Job, sampler: Sampler, row: int, ahead: int, mask: np.ndarray | None
    ) -> None:
        self.jobs.append(job)
        self.samplers.append(sampler)
        self.rows.append(row)
        self.ahead.append(ahead)
        self.masks.append(mask)

    def logits(self, view: np.ndarray) -> Array:
        """The rows side by side: where they lie, if they do."""
        first, count = self.rows[0], len(self.rows)
        if self.rows[-1] == first + count - 1 and self.rows == [*range(first, first + count)]:
            return Array.from_numpy(view[first : first + count])
        return Array.from_numpy(view[self.rows])

    def by_job(self, choices: list[Choice | None]) -> list[tuple[Job, list[Choice | None]]]:
        found: list[tuple[Job, list[Choice | None]]] = []
        for job, choice in zip(self.jobs, choices, strict=True):
            if found and found[-1][0] is job:
                found[-1][1].append(choice)
            else:
                found.append((job, [choice]))
        return found


def share_of(job: Job, count: int) -> Share:
    generation = job.generation
    pending = generation.pending
    if count < len(pending):
        return Share(job.slot, pending[:count], 0)
    return Share(job.slot, pending, 0 if generation.reason is not None else 1 + generation.guesses)
