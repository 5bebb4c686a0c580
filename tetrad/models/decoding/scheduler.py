"""Models, scheduler: the thread that carries the requests of a model on, for servers.

Receives requests from any thread, at most as many at a time as the queue holds; calls listeners in
its own thread. What a step is, who gets a slot and whose keys and values are shared is the
`Batcher`'s; here is when it runs, what is told of it, and how it ends.
"""

from __future__ import annotations

import atexit
import math
import os
import threading
import time
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING

from tetrad.core.errors import BusyError, ClosedError
from tetrad.core.floats import own_floats
from tetrad.core.record import record
from tetrad.models.decoding.batcher import IDLE, Batcher, Job, Listener, nobody
from tetrad.models.decoding.generation import Generation, Request

if TYPE_CHECKING:
    from tetrad.models.model import Model

JOIN = 10.0  # seconds that closing waits for the step that runs


@record
class SlotState:
    """A slot as others may see it: nothing of what it holds, nor of whom."""

    number: int
    state: str  # "free", "prompt" or "answer"
    predicted: int  # tokens of the answer so far
    tokens: int  # evaluated and kept, also of a sequence that is gone


@record
class SchedulerStats:
    """What a scheduler does now and has done so far."""

    slots: tuple[SlotState, ...]
    queued: int
    running: int
    requests: int  # since it was made
    prompt_tokens: int  # evaluated
    prompt_seconds: float
    predicted_tokens: int
    predicted_seconds: float
    drafted: int
    accepted: int
    kv_bytes: int  # of keys and values, as far as memory was given for them
    kv_limit: int  # all that there may be
    steps: int
    last_step: float  # seconds


class Scheduler:
    """Carries all requests of a model on, in one thread of its own, in shared batches.

    patience   seconds that prompts may make a step last, about: so long do others wait for a long
               one
    queue      requests that may wait for a slot; one more is a `BusyError`
    memory     bytes of keys and values, 0 for as many as the slots hold; what idle slots keep for
               later requests is given up first
    told       called when the listeners of a step have been, and must not block either: who passes
               pieces on to another thread wakes it here, once for all of them
    """

    def __init__(
        self,
        model: Model,
        *,
        patience: float = 0.05,
        queue: int = 256,
        memory: int = 0,
        told: Callable[[], None] = nobody,
    ) -> None:
        model.parts.programs.check_predicts("Scheduler")
        draft = None if model.draft is None else model.draft.engine
        self.model = model
        self.batcher = Batcher(model.engine, patience=patience, memory=memory, draft=draft)
        self.queue, self.batcher.told = queue, told
        self.changed, self.is_closed, self.is_draining = self.batcher.changed, False, False
        self.thread: threading.Thread | None = None
        self.pid = os.getpid()
        SCHEDULERS.add(self)

    def submit(
        self,
        request: Request,
        listener: Listener,
        *,
        tenant: str = "",
        priority: int = 0,
        deadline: float | None = None,
    ) -> Job:
        """A request that waits for a slot, and is then carried on. Any thread may call it.

        `listener` is called in the scheduler's thread with every `Piece`, the last with the
        `Completion`, or with one Exception, and must not block. Sequences of different tenants
        never share keys and values; slots go to the tenant that has the fewest, in it to the
        highest `priority`, then in the order of coming. After `deadline` (a moment of
        `time.monotonic`) the request ends with a `DeadlineError`.
        """
        generation = Generation(self.model, request, self.batcher.context)
        with self.changed:
            self._check_takes()
            job = self.batcher.submit(
                generation, listener, tenant=tenant, priority=priority, deadline=deadline
            )
            self._start()
        return job

    def _check_takes(self) -> None:
        if self.is_closed or self.is_draining:
            raise ClosedError("the scheduler takes no more requests: it is closed or ends")
        slots = sum([slot.sequence is None for slot in self.batcher.engine.slots])
        if len(self.batcher.waiting) >= self.queue + slots:
            hint = "try again later, or give it a longer queue or more slots"
            raise BusyError(f"{self.queue} requests are waiting already", hint=hint)

    def _start(self) -> None:
        if self.thread is None or self.pid != os.getpid():
            self.pid = os.getpid()
            self.thread = threading.Thread(
                target=carry_on, args=(weakref.ref(self),), name="tetrad-scheduler", daemon=True
            )
            self.thread.start()

    def stats(self) -> SchedulerStats:
        """A moment of it; any thread may call it."""
        batcher, engine = self.batcher, self.batcher.engine
        counts, seconds = batcher.counts, batcher.seconds
        with self.changed:
            jobs = {job.sequence.slot: job for job in batcher.running if job.sequence is not None}
            slots = tuple(
                SlotState(slot.number, *state_of(jobs.get(slot)), slot.length)
                for slot in engine.slots
            )
            return SchedulerStats(
                slots=slots,
                queued=len(batcher.waiting),
                running=len(batcher.running),
                requests=batcher.orders,
                prompt_tokens=counts["prompt"],
                prompt_seconds=seconds["prompt"],
                predicted_tokens=counts["predicted"],
                predicted_seconds=seconds["predicted"],
                drafted=counts["drafted"],
                accepted=counts["accepted"],
                kv_bytes=sum([engine.bytes_of(slot.touched) for slot in engine.slots]),
                kv_limit=batcher.memory or engine.slot_bytes * len(engine.slots),
                steps=counts["steps"],
                last_step=seconds["last"],
            )

    def drain(self, timeout: float) -> bool:
        """Takes no more requests; True when all have ended within so many seconds."""
        end = time.monotonic() + timeout
        with self.changed:
            self.is_draining = True
            while self.batcher.waiting or self.batcher.running:
                if (left := end - time.monotonic()) <= 0:
                    return False
                self.changed.wait(min(left, IDLE))
            return True

    def close(self) -> None:
        """Cancels what is left and ends the thread."""
        with self.changed:
            self.is_closed = True
            jobs = [*self.batcher.waiting, *self.batcher.running]
            self.changed.notify_all()
        for job in jobs:
            job.cancel()
        thread, mine = self.thread, threading.current_thread()
        if thread is not None and thread is not mine and self.pid == os.getpid():
            thread.join(JOIN)

    def work(self) -> bool:
        """A step, or a wait for something to do; False when it is closed."""
        batcher = self.batcher
        with self.changed:
            if self.is_closed:
                return False
            if batcher.stepper or not (batcher.waiting or batcher.running):
                self._rest()
                return True
            batcher.stepper = threading.get_ident()
        try:
            was_stepped = batcher.step()
        except Exception as error:  # a defect of ours: those who wait are told, others go on
            was_stepped = True
            batcher.fail_all(error)
        finally:
            batcher.stepped()
        if not was_stepped:
            with self.changed:
                self._rest()
        return True

    def _rest(self) -> None:
        """Until something changes, or somebody's time is over."""
        soonest = self.batcher.soonest
        left = soonest - time.monotonic() if soonest < math.inf else IDLE
        self.changed.wait(min(max(left, 0.0), IDLE))

    def forked(self) -> None:
        """A child process has no such thread, and nobody there waits for what the parent does."""
        self.changed = threading.Condition()
        self.batcher.forked(self.changed)
        self.thread = None


def state_of(job: Job | None) -> tuple[str, int]:
    if job is None:
        return "free", 0
    return "answer" if job.ready else "prompt", len(job.generation.tokens)


def carry_on(scheduler: weakref.ref[Scheduler]) -> None:
    """What the thread does: it ends with the scheduler, also if that was only dropped."""
    with own_floats():
        while (found := scheduler()) is not None and found.work():
            del found


SCHEDULERS: weakref.WeakSet[Scheduler] = weakref.WeakSet()


def close_all() -> None:
    """At the end of the process no thread is left inside native code."""
    for scheduler in [*SCHEDULERS]:
        scheduler.close()


def forked() -> None:
    for scheduler in [*SCHEDULERS]:
        scheduler.forked()


atexit.register(close_all)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=forked)
