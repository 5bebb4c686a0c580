"""Models, streams: what callers of `model.generate` get: pieces as they come, or whole answers.

Receives a batcher and generations. Whoever waits carries on all requests of the batcher, in
the own thread, unless another thread is at it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial

from tetrad.core.errors import Cancelled
from tetrad.core.floats import guarded
from tetrad.core.record import replace
from tetrad.models.decoding.batcher import Batcher, Job
from tetrad.models.decoding.generation import Completion, Generation, Piece


class Stream:
    """The pieces of an answer, as they come. `close` or `cancel` end it early, in any thread."""

    def __init__(self, batcher: Batcher, generation: Generation) -> None:
        self.batcher, self.generation = batcher, generation
        self.unread: deque[Piece | Exception] = deque()
        self.job: Job | None = None
        self.is_over = self.is_running = False
        self.completed: Callable[[Completion], Completion] | None = None

    def __iter__(self) -> Stream:
        return self

    def then(self, completed: Callable[[Completion], Completion]) -> Stream:
        """The same, with what this makes of the completion in the last piece."""
        self.completed = completed
        return self

    @guarded
    def __next__(self) -> Piece:
        if self.is_over:
            raise StopIteration
        try:
            self.is_running = True
            found = self._next()
        except BaseException:
            self.close()
            raise
        finally:
            self.is_running = False
        if isinstance(found, Piece):
            self.is_over = found.completion is not None
            if self.completed is None or found.completion is None:
                return found
            return replace(found, completion=self.completed(found.completion))
        self.is_over = True
        if isinstance(found, Cancelled):
            raise StopIteration
        try:
            raise found
        finally:
            del found  # it knows this frame

    def _next(self) -> Piece | Exception:
        if self.job is None:
            self.job = self.batcher.submit(self.generation, self.unread.append, unread=self.unread)
        while not self.unread:
            self.batcher.carry_on(self.job)
        return self.unread.popleft()

    def close(self) -> None:
        """Frees the slot; there are no more pieces."""
        self.is_over = True
        if self.job is not None:
            self.job.cancel()

    def cancel(self) -> None:
        """Whoever iterates gets no more pieces, after the step that is running now."""
        self.close()

    def __del__(self) -> None:
        if getattr(self, "job", None) is not None:
            self.close()


class WholeAnswer:
    """An answer that nobody reads before it is complete."""

    def __init__(self, batcher: Batcher, generation: Generation) -> None:
        self.batcher, self.ends = batcher, deque[Piece | Exception]()
        self.job = batcher.submit(generation, partial(keep_end, self.ends), unread=self.ends)

    def completion(self) -> Completion:
        """Waits for it."""
        while not self.ends:
            self.batcher.carry_on(self.job)
        (end,) = self.ends
        if isinstance(end, Piece) and end.completion is not None:
            return end.completion
        self.ends.clear()
        try:
            raise end  # type: ignore[misc]
        finally:
            del end  # it knows this frame


def keep_end(ends: deque[Piece | Exception], news: Piece | Exception) -> None:
    """The listener of a whole answer, which knows no more than it needs: nothing holds it in a
    circle."""
    if isinstance(news, Exception) or news.completion is not None:
        ends.append(news)


def answers(batcher: Batcher, generations: list[Generation]) -> list[Completion]:
    """All answers, generated side by side. What interrupts one gives up the others."""
    begun = list[WholeAnswer]()
    try:
        for generation in generations:
            begun.append(WholeAnswer(batcher, generation))
        return [one.completion() for one in begun]
    except BaseException:
        for one in begun:
            one.job.cancel()
        raise
