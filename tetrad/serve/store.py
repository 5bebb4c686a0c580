"""Serve, store: the models of a server. A name in; a loaded model with its scheduler out.

A model is loaded when it is first asked for, beside others as far as there is room, and let go when
nobody has asked for it for a while. Rendering, tokenising and vectors are computed in threads, so
that the event loop goes on.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from tetrad.core import lazy
from tetrad.core.errors import TetradError
from tetrad.core.record import field, record
from tetrad.serve.bridge import Mailbox
from tetrad.serve.errors import ApiError, invalid, too_many, unavailable
from tetrad.serve.limits import Limits
from tetrad.serve.log import Log
from tetrad.serve.meter import Meter
from tetrad.serve.metrics import Metrics

if TYPE_CHECKING:
    from tetrad.models.decoding.scheduler import Scheduler
    from tetrad.models.model import Model

T = TypeVar("T")
THREADS = 2  # that render and tokenise
LOOK_SECONDS = 0.25  # between two looks for models that nobody uses


@record(eq=False)
class ModelPlace:
    """A model that can be asked for: its names, where it lies, how it is loaded."""

    name: str
    path: Path
    aliases: tuple[str, ...] = ()
    settings: dict[str, Any] = field(default_factory=dict)  # of `tetrad.load`
    defaults: dict[str, Any] = field(default_factory=dict)  # of `Model.generate`
    made: int = 0  # when its file was written

    @property
    def names(self) -> tuple[str, ...]:
        return (self.name, *self.aliases)


class LoadedModel:
    """A model in memory, and what answers with it."""

    def __init__(self, place: ModelPlace, model: Model, scheduler: Scheduler | None) -> None:
        self.place, self.model, self.scheduler = place, model, scheduler
        self.users, self.used = 0, time.monotonic()
        self.keep_alive: float | None = None  # as a request has asked for; None: as the server does
        self.seconds = time.time()  # when it was loaded
        # one text after the other: each uses all threads of the machine
        self.worker = ThreadPoolExecutor(1, "tetrad-vectors")
        self.waiting = 0
        self.meter = Meter()
        self.inside: bytes | None = None  # what /inside answers, once it was measured

    @property
    def name(self) -> str:
        return self.place.name

    def close(self) -> None:
        if self.scheduler is not None:
            self.scheduler.close()
        self.worker.shutdown(wait=False, cancel_futures=True)


class ModelStore:
    """All models of a server. Used on the event loop."""

    def __init__(
        self,
        places: Sequence[ModelPlace],
        *,
        limits: Limits | None = None,
        most_loaded: int = 1,
        keep_alive: float = -1.0,
        log: Log | None = None,
        variables: dict[str, Any] | None = None,
    ) -> None:
        self.places, self.limits = list(places), limits or Limits()
        self.by_name = {name: place for place in reversed(self.places) for name in place.names}
        self.most_loaded, self.keep_alive = most_loaded, keep_alive
        self.log, self.metrics = log or Log(), Metrics()
        self.variables = variables or {}  # of every chat template
        self.loaded: dict[str, LoadedModel] = {}
        self.loading: dict[str, asyncio.Task[LoadedModel]] = {}
        self.threads = ThreadPoolExecutor(THREADS, "tetrad-text")
        self.is_closed = False
        self.watcher: asyncio.Task[None] | None = None
        self.mailbox: Mailbox

    def start(self) -> None:
        """On the loop that will serve."""
        self.mailbox = Mailbox(asyncio.get_running_loop())
        self.watcher = asyncio.create_task(self.unload_idle())

    # -- by name -----------------------------------------------------------------------------------

    def find(self, name: str | None) -> ModelPlace:
        """Which model a request means. A server of one model answers to any name, as llama.cpp's
        does."""
        if len(self.places) == 1:
            return self.places[0]
        if not name:
            raise invalid("which model? model is needed", "model", "missing_required_parameter")
        if name not in self.by_name:
            raise ApiError(
                404,
                f"the model {name[:200]!r} does not exist here; /v1/models lists those that do",
                param="model",
                code="model_not_found",
            )
        return self.by_name[name]

    @asynccontextmanager
    async def using(self, name: str | None) -> AsyncIterator[LoadedModel]:
        """The model, loaded, and not let go before the end."""
        place = self.find(name)
        loaded = self.loaded.get(place.name) or await self.load(place)
        loaded.users += 1
        try:
            yield loaded
        finally:
            loaded.users -= 1
            loaded.used = time.monotonic()

    async def load(self, place: ModelPlace) -> LoadedModel:
        """Loads a model, once for all who ask for it; who leaves does not end it for the others."""
        if self.is_closed:
            raise unavailable("the server is shutting down")
        task = self.loading.get(place.name)
        if task is None:
            self.make_room()
            task = self.loading[place.name] = asyncio.create_task(self._load(place))
            task.add_done_callback(lambda _: self.loading.pop(place.name, None))
        return await asyncio.shield(task)

    async def _load(self, place: ModelPlace) -> LoadedModel:
        before = time.perf_counter()
        try:
            loaded = await self.in_thread(load_place, place, self.limits, self.mailbox.wake)
        except (TetradError, OSError, MemoryError) as error:
            self.log.write("load failed", model=place.name, error=str(error))
            raise unavailable("the model cannot be loaded; the server's log says why") from None
        self.loaded[place.name] = loaded
        seconds = round(time.perf_counter() - before, 3)
        self.log.write("loaded", model=place.name, seconds=seconds)
        return loaded

    def make_room(self) -> None:
        """Lets go of what was used least lately, where there is no room for one more."""
        while len(self.loaded) + len(self.loading) >= self.most_loaded:
            idle = [one for one in self.loaded.values() if not one.users]
            if not idle:
                raise unavailable("other models are in use; no room for one more", 10)
            self.unload(min(idle, key=lambda one: one.used))

    def unload(self, loaded: LoadedModel) -> None:
        self.loaded.pop(loaded.name, None)
        self.threads.submit(loaded.close)
        self.log.write("unloaded", model=loaded.name)

    def let_go(self, name: str | None) -> None:
        """A model that nobody uses goes at once, another when it is used no more."""
        loaded = self.loaded.get(self.find(name).name)
        if loaded is None:
            return
        loaded.keep_alive = 0.0
        if not loaded.users:
            self.unload(loaded)

    def keeps(self, loaded: LoadedModel) -> float:
        """Seconds that a model stays after its last use; below zero: for ever."""
        return self.keep_alive if loaded.keep_alive is None else loaded.keep_alive

    async def unload_idle(self) -> None:
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            now = time.monotonic()
            for one in list(self.loaded.values()):
                if not one.users and 0 <= self.keeps(one) <= now - one.used:
                    self.unload(one)

    # -- threads -----------------------------------------------------------------------------------

    async def in_thread(self, function: Callable[..., T], *args: Any) -> T:
        """Text work, off the event loop."""
        return await asyncio.get_running_loop().run_in_executor(self.threads, function, *args)

    async def compute(self, loaded: LoadedModel, function: Callable[..., T], *args: Any) -> T:
        """Vectors and scores, one request after the other."""
        if loaded.waiting >= self.limits.waiting:
            raise too_many("the queue is full: try again in a moment")
        loaded.waiting += 1
        try:
            loop = asyncio.get_running_loop()
            return await loop.run_in_executor(loaded.worker, function, *args)
        finally:
            loaded.waiting -= 1

    # -- the end -----------------------------------------------------------------------------------

    def close(self) -> None:
        """Ends what still runs; whoever waits for it is told."""
        self.is_closed = True
        if self.watcher is not None:
            self.watcher.cancel()
        for loaded in list(self.loaded.values()):
            loaded.close()
        self.loaded.clear()
        self.threads.shutdown(wait=False, cancel_futures=True)


def load_place(place: ModelPlace, limits: Limits, told: Callable[[], None]) -> LoadedModel:
    """In a thread: the model of a place, with a scheduler where it predicts tokens."""
    load = lazy.module("tetrad.models.model").load
    model = load(place.path, **place.settings)
    if model.parts.programs.is_encoder:
        return LoadedModel(place, model, None)
    scheduling = lazy.module("tetrad.models.decoding.scheduler")
    scheduler = scheduling.Scheduler(model, queue=limits.waiting, memory=limits.memory, told=told)
    return LoadedModel(place, model, scheduler)
