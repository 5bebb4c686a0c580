"""Models, engine: sequences in the slots of a model's state, and the steps that carry them on.

Receives tokens of any number of sequences, returns logits. Sequences join and leave between steps;
all that is asked for at the same time, from any thread, is packed into one ragged batch. A new
sequence begins with what the state already holds of it, as far as the architecture's `Keeps`
allows. The bits of a sequence's logits do not depend on what runs beside it, nor on where it began.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Sequence as Tokens
from itertools import pairwise
from typing import Any

import numpy as np

from tetrad.backends.cpu.memory import Storage
from tetrad.compiler.named_function import NamedFunction
from tetrad.core.dtypes import bf16, f16, f32, i8
from tetrad.core.errors import (
    BusyError,
    ContextError,
    RoutingError,
    SettingError,
    TetradError,
    TextError,
)
from tetrad.core.floats import guarded
from tetrad.core.record import record
from tetrad.core.sizes import plain
from tetrad.models.arch import Keeps
from tetrad.models.checks import check_count
from tetrad.models.damage import no_numbers
from tetrad.models.steps import CHUNK, Programs
from tetrad.tracing.array import Array

KINDS = {"f16": f16, "bf16": bf16, "f32": f32, "q8_0": i8}  # what keys and values may be kept in
# batches of so few tokens have their own size; larger ones share sizes, as each takes memory
EXACT = 8
TILE = 16  # then multiples of this ...
SMALL = 64  # ... up to here, then powers of two
EVERY = 64  # tokens of a batch whose logits are all wanted, at most
LATELY = 2  # batches after which nobody waits for a sequence any more
WAIT, LONGEST_WAIT = 0.25, 0.005  # how long: a share of the time of a batch, and seconds


class Cancelled(Exception):
    """The sequence was given up by whoever asked for it."""


class Sequence:
    """Tokens in one slot of the cache; the first `length` of them are evaluated. Made by
    `Engine.start`."""

    __slots__ = ("cached", "cancel", "is_open", "round", "slot", "thread")

    def __init__(self, slot: SequenceSlot, cancel: threading.Event | None) -> None:
        self.slot, self.cached, self.is_open, self.cancel = slot, 0, True, cancel
        self.round = -1 - LATELY  # the number of the last batch it was in
        self.thread = threading.get_ident()

    def check(self) -> None:
        if self.cancel is not None and self.cancel.is_set():
            raise Cancelled

    @property
    def length(self) -> int:
        return self.slot.length

    @property
    def tokens(self) -> np.ndarray:
        return self.slot.tokens[: self.slot.length]


class SequenceSlot:
    """A place for one sequence: the tokens whose keys and values it holds, also after the sequence
    is gone."""

    __slots__ = ("length", "number", "sequence", "tokens", "used")

    def __init__(self, number: int, context: int) -> None:
        self.number, self.length, self.used = number, 0, 0
        self.tokens = np.zeros(context, np.int32)
        self.sequence: Sequence | None = None

    def common(self, tokens: np.ndarray, keeps: Keeps) -> int:
        """How many tokens at the start need not be evaluated again; the last of `tokens` always
        is."""
        n = min(self.length, len(tokens) - 1)
        differs = self.tokens[:n] != tokens[:n]
        same = int(differs.argmax()) if differs.any() else n
        if keeps is Keeps.TOKENS or (keeps is Keeps.LAST and same == self.length):
            return same
        return 0


class CacheArray:
    """One of the arrays of the cache. Compiled code changes it in place; what interrupts a step
    cannot lose it."""

    __slots__ = ("kind", "storage")

    def __init__(self, array: Array) -> None:
        self.kind, self.storage = array.type, array.storage(Storage.from_numpy)

    def array(self) -> Array:
        return Array.from_storage(self.kind, self.storage)

    def view(self) -> np.ndarray:
        return self.storage.as_numpy(self.kind.dtype.np, self.kind.storage_shape)  # type: ignore[arg-type]


class Work:
    """Tokens of one sequence that wait to be evaluated."""

    __slots__ = ("batch", "error", "every", "parts", "row", "sequence", "start", "tokens")

    def __init__(self, sequence: Sequence, tokens: np.ndarray, every: bool) -> None:
        self.sequence, self.tokens, self.every = sequence, tokens, every
        self.start, self.row = sequence.length, 0
        # logits of the batch that ended this work; its own are from `row` on
        self.batch: np.ndarray | None = None
        self.parts: dict[int, np.ndarray] = {}  # logits by the number of tokens done before
        self.error: TetradError | None = None

    @property
    def done(self) -> int:
        return self.sequence.length - self.start

    @property
    def left(self) -> int:
        return len(self.tokens) - self.done

    @property
    def is_done(self) -> bool:
        return self.error is not None or self.done == len(self.tokens)


@record
class Share:
    """The part of a work that goes into a batch."""

    work: Work
    count: int
    rows: int  # logits it gets


def share_of(work: Work, count: int) -> Share:
    return Share(work, count, count if work.every else int(count == work.left))


class StepArguments:
    """The arguments of a step of one size, written anew for every step."""

    def __init__(
        self, program: NamedFunction, tokens: int, rows: int, caches: list[CacheArray]
    ) -> None:
        self.tokens, self.slot, self.position = (np.zeros(tokens, np.int32) for _ in range(3))
        self.rows = np.zeros(rows, np.int32)
        arrays = [Array.from_numpy(x) for x in (self.tokens, self.slot, self.position, self.rows)]
        self.bound = program.sized(*arrays, *[memory.array() for memory in caches])
        self.storages = [x.storage(Storage.from_numpy) for x in arrays]

    def run(self, caches: list[CacheArray]) -> Array:
        """The logits. The caches are changed where they are, or have moved."""
        made, *moved = self.bound.run(
            [*self.storages, *[memory.storage for memory in caches]], self.bound.dims
        )
        for memory, storage in zip(caches, moved, strict=True):
            memory.storage = storage
        return Array.from_storage(self.bound.outputs[0], made)


class Engine:
    """Caches for `slots` sequences of at most `context` tokens, and the steps over them. Threads
    may share it.

    Batches take no longer than `patience` seconds, as far as the speed so far can tell: so long do
    others wait for a long prompt, and so long does it take to cancel one.
    """

    def __init__(
        self,
        programs: Programs,
        *,
        slots: int = 1,
        context: int = 0,
        kv: str = "f16",
        patience: float = math.inf,
    ) -> None:
        check_count("slots", slots, 1)
        check_count("context", context, 0)
        if kv not in KINDS:
            raise SettingError("kv", f"one of {', '.join(KINDS)}", kv)
        self.programs, self.context = programs, context or programs.config.context
        self.keeps = programs.arch.state.keeps
        self.can_rewind = self.keeps is Keeps.TOKENS
        self.caches = [
            CacheArray(array) for array in programs.state(slots, self.context, KINDS[kv])
        ]
        self.slots = [SequenceSlot(i, self.context) for i in range(slots)]
        self.batches: dict[tuple[int, int], StepArguments] = {}
        self.turn = threading.Condition()
        self.queue: list[Work] = []
        self.is_running = False
        self.flying: list[Share] = []  # what the batch that runs now is made of
        self.clock = 0
        # batches so far, and how long the next one waits for company
        self.rounds, self.deadline = 0, 0.0
        # seconds a token of the last batch that was not small
        self.patience, self.pace = patience, 0.0

    # -- sequences ---------------------------------------------------------------------------------

    def start(
        self,
        tokens: Tokens[int] | np.ndarray,
        *,
        wait: bool = True,
        cancel: threading.Event | None = None,
    ) -> Sequence:
        """A sequence that will begin with `tokens`; its `length` says how many of them are in the
        cache already.

        Where every slot is taken it waits for another thread to free one, or says so. Once `cancel`
        is set (and `wake` called) whatever waits for this sequence raises `Cancelled`.
        """
        wanted = self.checked(tokens)
        if len(wanted) > self.context:
            hint = "load with a larger context, or shorten the prompt"
            raise ContextError(
                "the prompt is too long", tokens=len(wanted), context=self.context, hint=hint
            )
        with self.turn:
            while not any(s.sequence is None for s in self.slots):
                self._check_may_wait(wait)
                self.turn.wait()
                if cancel is not None and cancel.is_set():
                    raise Cancelled
            return self._take(wanted, cancel)

    def wake(self) -> None:
        """Something was cancelled: those who wait look whether it was theirs."""
        with self.turn:
            self.turn.notify_all()

    def _check_may_wait(self, wait: bool) -> None:
        mine = threading.get_ident()
        taken = [s.sequence for s in self.slots if s.sequence is not None]
        if len(taken) == len(self.slots) and (not wait or all(s.thread == mine for s in taken)):
            hint = "close the streams that are not finished, or load with more slots"
            raise BusyError(f"all {len(self.slots)} slots hold unfinished sequences", hint=hint)

    def _take(self, tokens: np.ndarray, cancel: threading.Event | None) -> Sequence:
        """The free slot that gives up least, with all that any slot holds of these tokens."""
        common = {s: s.common(tokens, self.keeps) if self._may_read(s) else 0 for s in self.slots}
        source = max(self.slots, key=lambda s: (common[s], s.sequence is None))
        free = [s for s in self.slots if s.sequence is None]
        slot = min(
            free, key=lambda s: (s.length - common[s] * (s is source), s is not source, s.used)
        )
        if common[source] == common[slot]:
            source = slot
        slot.sequence = sequence = Sequence(slot, cancel)
        self._copy(source, slot, common[source])
        slot.length = sequence.cached = common[source]
        slot.tokens[: slot.length] = tokens[: slot.length]
        return sequence

    def _may_read(self, slot: SequenceSlot) -> bool:
        """A batch that runs now adds to what there is of a sequence, or, where only the last is
        kept, changes it."""
        return self.can_rewind or slot.sequence is None

    def _copy(self, source: SequenceSlot, target: SequenceSlot, count: int) -> None:
        """The keys and values of the first tokens of another slot. A batch that runs now changes
        neither of them."""
        target.length = min(target.length, count)
        if source is not target and count:
            for there, here in zip(
                self._parts(target, count), self._parts(source, count), strict=True
            ):
                there[...] = here

    def held(self, sequence: Sequence) -> bytes:
        """The keys and values of a sequence, for `put`."""
        with self.turn:
            return b"".join(part.tobytes() for part in self._parts(sequence.slot, sequence.length))

    def put(self, sequence: Sequence, tokens: Any, held: bytes) -> None:
        """What `held` gave for these tokens, here or in an engine of the same model that keeps them
        alike."""
        wanted = self.checked(tokens)
        with self.turn:
            parts = self._parts(sequence.slot, len(wanted))
            if len(wanted) > self.context or sum(part.nbytes for part in parts) != len(held):
                expected = f"keys and values of {len(wanted)} tokens of this model"
                raise SettingError("held", expected, f"{len(held)} bytes")
            at = 0
            for part in parts:
                part[...] = np.frombuffer(held, part.dtype, part.size, at).reshape(part.shape)
                at += part.nbytes
            sequence.slot.tokens[: len(wanted)] = wanted
            sequence.slot.length = len(wanted)

    def _parts(self, slot: SequenceSlot, count: int) -> list[np.ndarray]:
        """What the state has of the first tokens of a slot; where it keeps the last only, they are
        all there are."""
        # [layer, slot, head, position or sixteen of them, ...]
        views = [memory.view() for memory in self.caches]
        if not self.can_rewind:
            return [view[:, slot.number] for view in views]
        return [
            view[:, slot.number, :, : -(-count * view.shape[3] // self.positions)] for view in views
        ]

    @property
    def positions(self) -> int:
        """Positions the cache has room for."""
        return plain(self.caches[1].kind.shape[3])

    def free(self, sequence: Sequence) -> None:
        """The sequence is over; what it held may be the beginning of another."""
        with self.turn:
            if not sequence.is_open:
                return
            sequence.is_open = False
            self.clock += 1
            sequence.slot.used, sequence.slot.sequence = self.clock, None
            self.turn.notify_all()

    def rewind(self, sequence: Sequence, length: int) -> None:
        """Forget the tokens after the first `length`. Where the state keeps the last only, the
        others are evaluated again."""
        if not 0 <= length <= sequence.length:
            raise SettingError("length", f"0 to {sequence.length}", length)
        if self.can_rewind or length in (0, sequence.length):
            sequence.slot.length = length
            return
        tokens, sequence.slot.length = sequence.tokens[:length].copy(), 0
        self.step([(sequence, tokens)])

    def shift(self, sequence: Sequence, keep: int = 0) -> None:
        """Drop the older half of the tokens after the first `keep`, and evaluate the others at
        their new places."""
        tokens = sequence.tokens.copy()
        keep = min(keep, len(tokens) // 2)
        rest = tokens[keep + -(-(len(tokens) - keep) // 2) :]
        self.rewind(sequence, keep)
        if len(rest):
            self.step([(sequence, rest)])

    # -- steps -------------------------------------------------------------------------------------

    @guarded
    def step(self, work: Tokens[tuple[Sequence, Any]]) -> np.ndarray:
        """Evaluate more tokens of some sequences; f32[n, vocabulary]: the logits after the last
        token of each."""
        return self._finish([self._work(sequence, tokens, False) for sequence, tokens in work])

    @guarded
    def step_every(self, sequence: Sequence, tokens: Any) -> np.ndarray:
        """Evaluate more tokens of a sequence; the logits after every one of them."""
        return self._finish([self._work(sequence, tokens, True)])

    @guarded
    def advance(self, sequence: Sequence, token: int) -> Array:
        """One more token of one sequence: `step` by a shorter way, where nothing else waits.

        The logits come as an array that compiled code can take as it is.
        """
        slot, mine = sequence.slot, False
        sequence.check()
        try:
            with self.turn:
                if not (self.is_running or self.queue or self._awaits([sequence])):
                    mine = self.is_running = True
            is_plain = (
                sequence.is_open
                and slot.length < self.context
                and 0 <= token < self.programs.config.vocab
            )
            if (
                mine
                and is_plain
                and self.can_rewind
                and (batch := self.batches.get((1, 1))) is not None
            ):
                batch.tokens[0], batch.slot[0], batch.position[0] = token, slot.number, slot.length
                logits = self._run_batch(batch)
                sequence.round = self.rounds
                slot.tokens[slot.length] = token
                slot.length += 1
                return logits
        finally:
            if mine:
                self._yield_turn()
        return Array.from_numpy(self.step([(sequence, [token])]))

    def _yield_turn(self) -> None:
        with self.turn:
            self.is_running, self.flying = False, []
            self.turn.notify_all()

    def checked(self, tokens: Any) -> np.ndarray:
        """Tokens as the programs take them; what is no token of the model is an error."""
        found = np.asarray(tokens)
        if found.ndim != 1 or not found.size or found.dtype.kind not in "iu":
            got = "none" if not found.size else f"{found.dtype} {list(found.shape)}"
            raise TextError(
                f"tokens: expected a list of token ids, which are whole numbers, got {got}"
            )
        vocab = self.programs.config.vocab
        wrong = found[(found < 0) | (found >= vocab)]
        if wrong.size:
            raise TextError(f"tokens: expected ids from 0 to {vocab - 1}, got {wrong[0]}")
        return found.astype(np.int32)

    def _work(self, sequence: Sequence, tokens: Any, every: bool) -> Work:
        if not sequence.is_open:
            raise SettingError("sequence", "one that is not over", "one that was freed")
        wanted = self.checked(tokens)
        if sequence.length + len(wanted) > self.context:
            total = sequence.length + len(wanted)
            hint = "load with a larger context, generate fewer tokens, or let it shift (shift=True)"
            raise ContextError(
                "the sequence is too long", tokens=total, context=self.context, hint=hint
            )
        if self.keeps is Keeps.NOTHING:
            raise SettingError(
                "sequence", "one of a decoder", "one of an encoder, which keeps none"
            )
        return Work(sequence, wanted, every)

    def _finish(self, works: list[Work]) -> np.ndarray:
        """Wait for the works, evaluating batches of everything that waits whenever nobody else
        does."""
        try:
            with self.turn:
                self.queue.extend(works)
                self.turn.notify_all()
            while not all(work.is_done for work in works):
                for work in works:
                    work.sequence.check()
                self._round()
        finally:
            self._withdraw(works)
        raise_first(works)
        return logits_of(works)

    def _withdraw(self, works: list[Work]) -> None:
        """Works that are done or given up leave the queue. A batch that has them in it must end
        first: the slot of a sequence that is given up may be another's next."""
        with self.turn:
            self.queue = [work for work in self.queue if work not in works]
            while any(share.work in works for share in self.flying):
                self.turn.wait()

    def _round(self) -> None:
        """One batch, or a wait for that of another thread."""
        mine = False
        try:
            with self.turn:
                waiting = [work for work in self.queue if not work.is_done]
                if not waiting:  # another thread has just done it
                    return
                if self.is_running:
                    self.turn.wait()
                    return
                if self._awaits([work.sequence for work in waiting]):
                    self.turn.wait(max(0.0, self.deadline - time.perf_counter()))
                    return
                self.flying = shares = shares_of(waiting, self._room())
                mine = self.is_running = True
            self._evaluate(shares)
        finally:
            if mine:
                self._yield_turn()

    def _awaits(self, present: list[Sequence]) -> bool:
        """Whether a sequence that was in a batch just now may be back in a moment: together they
        are quicker."""
        if len(self.slots) == 1 or time.perf_counter() >= self.deadline:
            return False
        others = (slot.sequence for slot in self.slots if slot.sequence is not None)
        return any(one.round >= self.rounds - LATELY and one not in present for one in others)

    def _ran(self, begin: float) -> None:
        now = time.perf_counter()
        self.rounds += 1
        self.deadline = now + min(WAIT * (now - begin), LONGEST_WAIT)

    def _room(self) -> int:
        """Tokens that the next batch may have: a power of two."""
        if self.patience == math.inf:
            return CHUNK
        fit = self.patience / self.pace if self.pace else 0.0
        return 1 << int(min(max(SMALL, fit), CHUNK)).bit_length() - 1

    def _evaluate(self, shares: list[Share]) -> None:
        """One batch. What goes wrong in it is tried again, one sequence at a time: nobody gets
        another's error."""
        try:
            self._run(shares)
        except TetradError as error:
            if len(shares) == 1:
                shares[0].work.error = error
                return
            for share in shares:
                self._evaluate([share])

    def _run(self, shares: list[Share]) -> None:
        tokens, rows = (
            batch_size(sum(parts))
            for parts in zip(*[(s.count, s.rows) for s in shares], strict=True)
        )
        self.programs.check_files()  # also before weights are looked at to compile
        batch = self.batches.get((tokens, rows))
        if batch is None:
            program = self.programs.singles if tokens == 1 else self.programs.chunks
            batch = self.batches[tokens, rows] = StepArguments(program, tokens, rows, self.caches)
        self._fill(batch, shares)
        begin = time.perf_counter()
        logits = self._logits(batch, shares)
        if tokens >= TILE:
            self.pace = (time.perf_counter() - begin) / tokens
        self._settle(shares, logits)

    def _run_batch(self, batch: StepArguments) -> Array:
        self.programs.check_files()
        begin = time.perf_counter()
        try:
            logits = batch.run(self.caches)
        except RoutingError as error:
            what = f"NaN for the likelihood of expert {error.expert}"
            raise no_numbers(self.programs.step, what, int(batch.position[error.token])) from None
        self._ran(begin)
        return logits

    def _logits(self, batch: StepArguments, shares: list[Share]) -> np.ndarray:
        """What a batch gives. Where only the last is kept, every token changes it, and none may do
        so twice: what interrupts a batch takes those changes back."""
        if self.keeps is not Keeps.LAST:
            return self._run_batch(batch).view
        slots = [share.work.sequence.slot for share in shares]
        before = [[part.copy() for part in self._parts(slot, 0)] for slot in slots]
        try:
            return self._run_batch(batch).view
        except BaseException:
            for slot, parts in zip(slots, before, strict=True):
                for part, old in zip(self._parts(slot, 0), parts, strict=True):
                    part[...] = old
            raise

    def _fill(self, batch: StepArguments, shares: list[Share]) -> None:
        """Write the shares side by side. The batch is filled up with the token that has the fewest
        before it, again: what it writes is there already, bit by bit, so that no memory is needed
        for what nobody reads. A state that every token changes must not see one twice: there the
        filling has no position."""
        at = row = 0
        for share in shares:
            work, slot, end = share.work, share.work.sequence.slot, at + share.count
            batch.tokens[at:end] = work.tokens[work.done : work.done + share.count]
            batch.slot[at:end] = slot.number
            batch.position[at:end] = np.arange(slot.length, slot.length + share.count)
            batch.rows[row : row + share.rows] = np.arange(end - share.rows, end)
            at, row = end, row + share.rows
        first = int(batch.position[:at].argmin())
        for column in (batch.tokens, batch.slot, batch.position):
            column[at:] = column[first]
        if self.keeps is Keeps.LAST:
            batch.position[at:] = -1
        batch.rows[row:] = at - 1

    def _settle(self, shares: list[Share], logits: np.ndarray) -> None:
        """The tokens are in the cache now. A new length is all that says so: an interrupt leaves
        nothing half done."""
        row = 0
        for share in shares:
            work, slot = share.work, share.work.sequence.slot
            slot.tokens[slot.length : slot.length + share.count] = work.tokens[
                work.done : work.done + share.count
            ]
            if share.rows:
                work.batch, work.row = logits, row
                work.parts[work.done] = logits[row : row + share.rows]
            row += share.rows
            work.sequence.round = self.rounds
            slot.length += share.count


def raise_first(works: list[Work]) -> None:
    """The error of a work, which forgets it: an error knows the frames it went through, and those
    the work."""
    error = next((work.error for work in works if work.error is not None), None)
    if error is None:
        return
    for work in works:
        work.error = None
    try:
        raise error
    finally:
        del error


def batch_size(count: int) -> int:
    """The size of batch that takes `count` tokens or rows: few sizes, as each has tables and memory
    of its own."""
    if count <= EXACT:
        return max(1, count)
    return -(-count // TILE) * TILE if count <= SMALL else 1 << (count - 1).bit_length()


def shares_of(queue: list[Work], room: int = CHUNK) -> list[Share]:
    """What goes into the next batch: the short works whole, of the longest what fits without
    filling."""
    waiting = sorted(queue, key=lambda work: work.left)
    shares = []
    for work in waiting:
        count = min(work.left, room, EVERY if work.every else CHUNK)
        if count:
            shares.append(share_of(work, count))
            room -= count
    return trimmed(shares)


def trimmed(shares: list[Share]) -> list[Share]:
    """A batch too large for the small sizes is cut down to a power of two, at the end of its
    longest works."""
    total = sum(share.count for share in shares)
    surplus = total - (1 << (total.bit_length() - 1)) if total > SMALL else 0
    kept = list(shares)
    while surplus:
        last = kept.pop()
        cut = min(surplus, last.count)
        surplus -= cut
        if last.count > cut:
            kept.append(share_of(last.work, last.count - cut))
    return kept


def logits_of(works: list[Work]) -> np.ndarray:
    """The rows of all works one after another; in place where they are neighbours in one batch."""
    if len(works) == 1 and len(works[0].parts) == 1:
        return next(iter(works[0].parts.values()))
    first, last = works[0], works[-1]
    neighbours = all(a.batch is b.batch and a.row + 1 == b.row for a, b in pairwise(works))
    if neighbours and first.batch is not None and not any(work.every for work in works):
        return first.batch[first.row : last.row + 1]
    return np.concatenate([part for work in works for part in work.parts.values()])
