"""Core: background jobs, threads that compile or load while the caller goes on.

Receives calls, returns jobs to wait for. LLVM runs outside the GIL, so as many jobs run at once as
there are processors. A thread ends when no job is left: between compilations there are none.
"""

from __future__ import annotations

import os
import sys
import threading
from collections import deque
from collections.abc import Callable
from typing import Any

from tetrad.core.floats import own_floats
from tetrad.core.limits import available_threads

# Seconds between two switches of the GIL while jobs run. Jobs need the GIL often and briefly: at
# the usual 5 ms, loading LLVM and its first module beside a busy caller took seven times as long as
# alone.
TURN = 0.0005


class BackgroundJob:
    """A call that a thread makes, or whoever first needs the result of a job not yet begun."""

    def __init__(self, call: Callable[[], Any], jobs: Jobs) -> None:
        self.call, self.jobs = call, jobs
        self.done = threading.Event()
        self.value: Any = None
        self.error: BaseException | None = None

    def wait(self) -> None:
        """Return when the call has returned or raised."""
        if self.jobs.claims(self):
            self.work()
        self.done.wait()

    def result(self) -> Any:
        """What the call gives; raises what it raised."""
        self.wait()
        if self.error is not None:
            raise self.error
        return self.value

    def work(self) -> None:
        try:
            with own_floats():  # a thread begins with the state of whoever started it
                self.value = self.call()
        except BaseException as error:  # raised again by whoever needs the result
            self.error = error
        self.jobs.finished(self)
        self.done.set()


class Jobs:
    """The queue of waiting jobs, the running ones, and the number of threads."""

    def __init__(self) -> None:
        self.waiting: deque[BackgroundJob] = deque()
        self.begun: set[BackgroundJob] = set()
        self.lock = threading.Lock()
        self.threads = self.most = 0
        self.usual_turn: float | None = None  # while jobs run, what the interpreter had before

    def submit(self, call: Callable[[], Any]) -> BackgroundJob:
        job = BackgroundJob(call, self)
        with self.lock:
            self.most = self.most or available_threads()
            self.waiting.append(job)
            if self.threads == self.most:
                return job
            self.threads += 1
            self.take_short_turns()
        try:
            threading.Thread(target=self.work, name="tetrad-job").start()
        except (
            RuntimeError
        ):  # no more threads, or the interpreter is ending: whoever needs the result does the work
            with self.lock:
                self.leave()
        return job

    def take_short_turns(self) -> None:
        if self.usual_turn is None and sys.getswitchinterval() > TURN:
            self.usual_turn = sys.getswitchinterval()
            sys.setswitchinterval(TURN)

    def leave(self) -> None:
        """A thread ends; the last one restores the switch interval that the first found."""
        self.threads -= 1
        if self.threads == 0 and self.usual_turn is not None:
            sys.setswitchinterval(self.usual_turn)
            self.usual_turn = None

    def work(self) -> None:
        while (job := self.next()) is not None:
            job.work()

    def next(self) -> BackgroundJob | None:
        with self.lock:
            if self.waiting:
                self.begun.add(self.waiting[0])
                return self.waiting.popleft()
            self.leave()
            return None

    def claims(self, job: BackgroundJob) -> bool:
        """Has no thread begun this job? Then the caller takes it over."""
        with self.lock:
            if job not in self.waiting:
                return False
            self.waiting.remove(job)
            self.begun.add(job)
            return True

    def finished(self, job: BackgroundJob) -> None:
        with self.lock:
            self.begun.discard(job)

    def forked(self) -> None:
        """A child process has none of the threads: unfinished jobs go back to the queue, and
        whoever needs a result computes it."""
        self.lock, self.threads = threading.Lock(), 1
        self.leave()
        self.waiting.extend(self.begun)
        self.begun.clear()
        for job in self.waiting:
            job.done = threading.Event()


JOBS = Jobs()

if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=JOBS.forked)
