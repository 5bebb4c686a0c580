"""Models, engine: sequences in the slots of a model's state, and the steps that carry them on.

Receives tokens of any number of sequences, returns logits. Sequences join and leave between steps;
what goes into a step is packed into one ragged batch. A new sequence begins with what the state
already holds of it, as far as the architecture's `Keeps` allows. The bits of a sequence's logits do
not depend on what runs beside it, nor on where it began. Who asks for which tokens is others'
business: `models.decoding.batcher` carries requests on.
"""

from __future__ import annotations

import ctypes
import math
import mmap
import sys
import threading
import time
from collections.abc import Sequence as Tokens
from typing import Any

import numpy as np

from tetrad.backends.cpu.memory import Storage
from tetrad.compiler.named_function import NamedFunction
from tetrad.core.dtypes import bf16, f16, f32, i8
from tetrad.core.errors import (
    BusyError,
    ClosedError,
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
MADV_DONTNEED = 4  # of Linux


class Sequence:
    """Tokens in one slot of the cache; the first `length` of them are evaluated. Made by
    `Engine.start`."""

    __slots__ = ("cached", "is_open", "slot", "thread")

    def __init__(self, slot: SequenceSlot, thread: int) -> None:
        self.slot, self.cached, self.is_open, self.thread = slot, 0, True, thread

    @property
    def length(self) -> int:
        return self.slot.length

    @property
    def tokens(self) -> np.ndarray:
        return self.slot.tokens[: self.slot.length]


class SequenceSlot:
    """A place for one sequence: the tokens whose keys and values it holds, also after the sequence
    is gone. Of these only sequences of the same `tenant` may make use."""

    __slots__ = ("length", "number", "sequence", "tenant", "tokens", "touched", "used")

    def __init__(self, number: int, context: int) -> None:
        self.number, self.length, self.used = number, 0, 0
        self.touched = 0  # positions whose memory the system has given
        self.tokens = np.zeros(context, np.int32)
        self.tenant = ""
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

    def add(self, tokens: Tokens[int] | np.ndarray) -> None:
        """The state has these now. A new length is all that says so: an interrupt leaves nothing
        half done."""
        start, end = self.length, self.length + len(tokens)
        if end == start + 1:
            self.tokens[start] = tokens[0]
        else:
            self.tokens[start:end] = tokens
        self.length = end
        if end > self.touched:
            self.touched = end


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

    __slots__ = ("done", "error", "every", "parts", "sequence", "tokens")

    def __init__(self, sequence: Sequence, tokens: np.ndarray, every: bool) -> None:
        self.sequence, self.tokens, self.every, self.done = sequence, tokens, every, 0
        self.parts: list[np.ndarray] = []  # its logits so far
        self.error: TetradError | None = None

    @property
    def left(self) -> int:
        return len(self.tokens) - self.done

    @property
    def is_done(self) -> bool:
        return self.error is not None or self.left == 0

    def share(self, count: int) -> Share:
        """What goes into a batch that takes `count` of its tokens."""
        tokens = self.tokens[self.done : self.done + count]
        return Share(self.sequence.slot, tokens, count if self.every else int(count == self.left))


@record(eq=False)
class Share:
    """The part of a batch that is one sequence's: tokens that follow those in its slot. The logits
    after the last `rows` of them are wanted."""

    slot: SequenceSlot
    tokens: Tokens[int] | np.ndarray
    rows: int


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
    may share it: one steps at a time, and what the others do with slots waits for no step.

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
        self.keeps, self.turns = programs.arch.state.keeps, programs.turns
        self.can_rewind = self.keeps is Keeps.TOKENS
        self.caches = [
            CacheArray(array) for array in programs.state(slots, self.context, KINDS[kv])
        ]
        self.slots = [SequenceSlot(i, self.context) for i in range(slots)]
        self.batches: dict[tuple[int, int], StepArguments] = {}
        # of slots and whoever waits for one; told of whatever may let others go on
        self.changed = threading.Condition()
        self.clock, self.is_closed = 0, False
        # seconds a token of the last batch that was not small
        self.patience, self.pace = patience, 0.0

    # -- sequences ---------------------------------------------------------------------------------

    def start(self, tokens: Tokens[int] | np.ndarray, *, wait: bool = True) -> Sequence:
        """A sequence that will begin with `tokens`; its `length` says how many of them are in the
        cache already. Where every slot is taken it waits for another thread to free one, or says
        so."""
        wanted = self.checked(tokens)
        if len(wanted) > self.context:
            hint = f"load with context={len(wanted)} or more, or shorten the prompt"
            raise ContextError(
                "the prompt is too long", tokens=len(wanted), context=self.context, hint=hint
            )
        mine = threading.get_ident()
        with self.changed:
            while (found := self.take(wanted, thread=mine)) is None:
                self.check_may_wait(wait)
                self.changed.wait()
            return found

    def check_may_wait(self, wait: bool = True) -> None:
        """An error where nobody but this thread could free a slot."""
        mine = threading.get_ident()
        taken = [s.sequence for s in self.slots if s.sequence is not None]
        if len(taken) == len(self.slots) and (not wait or all(s.thread == mine for s in taken)):
            hint = "close the streams that are not finished, or load with more slots"
            raise BusyError(f"all {len(self.slots)} slots hold unfinished sequences", hint=hint)

    def take(self, tokens: np.ndarray, *, thread: int = 0, tenant: str = "") -> Sequence | None:
        """The free slot that gives up least, with all that any slot of the tenant holds of these
        tokens; None where no slot is free."""
        with self.changed:
            self.check_open()
            free = [s for s in self.slots if s.sequence is None]
            if not free:
                return None
            common = {s: self._common(s, tokens, tenant) for s in self.slots}
            source = max(self.slots, key=lambda s: (common[s], s.sequence is None))
            slot = min(
                free, key=lambda s: (s.length - common[s] * (s is source), s is not source, s.used)
            )
            if common[source] == common[slot]:
                source = slot
            sequence = Sequence(slot, thread)
            self._copy(source, slot, common[source])
            slot.length = sequence.cached = common[source]
            slot.tokens[: slot.length] = tokens[: slot.length]
            slot.touched = max(slot.touched, slot.length)
            slot.tenant, slot.sequence = tenant, sequence
            return sequence

    def known(self, tokens: np.ndarray, tenant: str = "") -> int:
        """How many tokens at the start `take` would find in some slot."""
        return max(self._common(slot, tokens, tenant) for slot in self.slots)

    def _common(self, slot: SequenceSlot, tokens: np.ndarray, tenant: str) -> int:
        """A batch that runs now adds to what there is of a sequence, or, where only the last is
        kept, changes it."""
        may_read = self.can_rewind or slot.sequence is None
        return slot.common(tokens, self.keeps) if may_read and slot.tenant == tenant else 0

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
        with self.turns:
            return b"".join(part.tobytes() for part in self._parts(sequence.slot, sequence.length))

    def put(self, sequence: Sequence, tokens: Any, held: bytes) -> None:
        """What `held` gave for these tokens, here or in an engine of the same model that keeps them
        alike."""
        wanted = self.checked(tokens)
        with self.turns:
            parts = self._parts(sequence.slot, len(wanted))
            if len(wanted) > self.context or sum(part.nbytes for part in parts) != len(held):
                expected = f"keys and values of {len(wanted)} tokens of this model"
                raise SettingError("held", expected, f"{len(held)} bytes")
            at = 0
            for part in parts:
                part[...] = np.frombuffer(held, part.dtype, part.size, at).reshape(part.shape)
                at += part.nbytes
            sequence.slot.length = 0
            sequence.slot.add(wanted)

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
        with self.changed:
            if not sequence.is_open:
                return
            sequence.is_open = False
            self.clock += 1
            sequence.slot.used, sequence.slot.sequence = self.clock, None
            self.changed.notify_all()

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

    # -- memory ------------------------------------------------------------------------------------

    @property
    def slot_bytes(self) -> int:
        """Keys and values of a slot whose context is full."""
        return sum(memory.storage.nbytes for memory in self.caches) // len(self.slots)

    def bytes_of(self, tokens: int) -> int:
        """Keys and values of so many tokens of a sequence."""
        if not self.can_rewind:
            return self.slot_bytes if tokens else 0
        return -(-self.slot_bytes * tokens // self.positions)

    def tokens_in(self, nbytes: int) -> int:
        """Tokens of a sequence whose keys and values fit in so many bytes, at most a context."""
        if not self.can_rewind:
            return self.context if self.slot_bytes <= nbytes else 0
        return min(self.context, nbytes * self.positions // self.slot_bytes)

    def release(self, slot: SequenceSlot, keep: int = 0) -> None:
        """What a slot holds beyond its first tokens is given up; the memory goes back to the
        system."""
        with self.changed:
            slot.length = min(slot.length, keep)
            if slot.touched <= keep or (keep and not self.can_rewind):
                return
            slot.touched = keep
            for memory, kept in zip(self.caches, self._parts(slot, keep), strict=True):
                view = memory.view()
                for layer in range(view.shape[0]):
                    if not keep:
                        release_pages(view[layer, slot.number])
                        continue
                    for head in range(view.shape[2]):
                        release_pages(view[layer, slot.number, head, kept.shape[2] :])

    def close(self) -> None:
        """Gives all memory back; whatever is asked for later is an error."""
        with self.turns, self.changed:
            self.caches, self.batches, self.is_closed = [], {}, True
            for slot in self.slots:
                slot.length = slot.touched = 0
            self.changed.notify_all()

    def check_open(self) -> None:
        if self.is_closed:
            raise ClosedError("the model is closed", hint="td.load gives it again")

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
            hint = (
                f"load with context={total} or more, generate fewer tokens, or let it shift: "
                "shift=True"
            )
            raise ContextError(
                "the sequence is too long", tokens=total, context=self.context, hint=hint
            )
        if self.keeps is Keeps.NOTHING:
            raise SettingError(
                "sequence", "one of a decoder", "one of an encoder, which keeps none"
            )
        return Work(sequence, wanted, every)

    def _finish(self, works: list[Work]) -> np.ndarray:
        """Batches until the works are done; others may have theirs in between."""
        while waiting := [work for work in works if not work.is_done]:
            with self.turns:
                self._evaluate(waiting_shares(waiting, self.room(self.patience)))
        raise_first(works)
        return logits_of(works)

    def room(self, patience: float) -> int:
        """Tokens of a batch that takes about so long: a power of two."""
        if patience == math.inf:
            return CHUNK
        fit = patience / self.pace if self.pace else 0.0
        return 1 << int(min(max(SMALL, fit), CHUNK)).bit_length() - 1

    def _evaluate(self, parts: list[tuple[Work, int]]) -> None:
        """One batch. What goes wrong in it is tried again, one sequence at a time: nobody gets
        another's error."""
        shares = [work.share(count) for work, count in parts]
        try:
            logits = self.run(shares).memory
        except TetradError as error:
            if len(parts) == 1:
                parts[0][0].error = error
                return
            for part in parts:
                self._evaluate([part])
            return
        row = 0
        for (work, count), share in zip(parts, shares, strict=True):
            work.done += count
            if share.rows:
                work.parts.append(logits[row : row + share.rows])
                row += share.rows

    def run(self, shares: list[Share]) -> Array:
        """One batch: the logits that the shares want, in their order, and perhaps more rows behind
        them. Whoever calls it has the turn."""
        self.check_open()
        tokens, rows = 0, 0
        for share in shares:
            tokens += len(share.tokens)
            rows += share.rows
        self.programs.check_files()  # also before weights are looked at to compile
        batch = self._batch(batch_size(tokens), batch_size(rows))
        self._fill(batch, shares)
        begin = time.perf_counter()
        logits = self._logits(batch, shares)
        if tokens >= TILE:
            self.pace = (time.perf_counter() - begin) / tokens
        for share in shares:
            share.slot.add(share.tokens)
        return logits

    def _batch(self, tokens: int, rows: int) -> StepArguments:
        batch = self.batches.get((tokens, rows))
        if batch is None:
            program = self.programs.singles if tokens == 1 else self.programs.chunks
            batch = self.batches[tokens, rows] = StepArguments(program, tokens, rows, self.caches)
        return batch

    def _run_batch(self, batch: StepArguments) -> Array:
        try:
            return batch.run(self.caches)
        except RoutingError as error:
            what = f"NaN for the likelihood of expert {error.expert}"
            raise no_numbers(self.programs.step, what, int(batch.position[error.token])) from None

    def _logits(self, batch: StepArguments, shares: list[Share]) -> Array:
        """What a batch gives. Where only the last is kept, every token changes it, and none may do
        so twice: what interrupts a batch takes those changes back."""
        if self.keeps is not Keeps.LAST:
            return self._run_batch(batch)
        slots = [share.slot for share in shares]
        before = [[part.copy() for part in self._parts(slot, 0)] for slot in slots]
        try:
            return self._run_batch(batch)
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
        tokens, slots, positions, rows = batch.tokens, batch.slot, batch.position, batch.rows
        for share in shares:
            slot, count = share.slot, len(share.tokens)
            if count == 1:  # which most are
                tokens[at], slots[at], positions[at] = share.tokens[0], slot.number, slot.length
            else:
                tokens[at : at + count], slots[at : at + count] = share.tokens, slot.number
                positions[at : at + count] = np.arange(slot.length, slot.length + count)
            at += count
            if share.rows == 1:
                rows[row] = at - 1
            else:
                rows[row : row + share.rows] = np.arange(at - share.rows, at)
            row += share.rows
        self._fill_up(batch, at, row)

    def _fill_up(self, batch: StepArguments, at: int, row: int) -> None:
        batch.rows[row:] = at - 1
        if at == len(batch.tokens):
            return
        first = int(batch.position[:at].argmin())
        for column in (batch.tokens, batch.slot, batch.position):
            column[at:] = column[first]
        if self.keeps is Keeps.LAST:
            batch.position[at:] = -1


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


def release_pages(view: np.ndarray) -> None:
    """The whole pages of some bytes go back to the system; read again, they are zeros."""
    start = view.__array_interface__["data"][0]
    first, last = -(-start // mmap.PAGESIZE), (start + view.nbytes) // mmap.PAGESIZE
    if sys.platform == "linux" and last > first:
        address, nbytes = first * mmap.PAGESIZE, (last - first) * mmap.PAGESIZE
        ctypes.CDLL(None).madvise(ctypes.c_void_p(address), ctypes.c_size_t(nbytes), MADV_DONTNEED)


def batch_size(count: int) -> int:
    """The size of batch that takes `count` tokens or rows: few sizes, as each has tables and memory
    of its own."""
    if count <= EXACT:
        return max(1, count)
    return -(-count // TILE) * TILE if count <= SMALL else 1 << (count - 1).bit_length()


def waiting_shares(queue: list[Work], room: int = CHUNK) -> list[tuple[Work, int]]:
    """What goes into the next batch, and how much of it: the short works whole, of the longest what
    fits without filling."""
    parts = []
    for work in sorted(queue, key=lambda work: work.left):
        count = min(work.left, room, EVERY if work.every else CHUNK)
        if count:
            parts.append((work, count))
            room -= count
    surplus = sum(count for _, count in parts)
    surplus -= best_size(surplus)
    while surplus:
        work, count = parts.pop()
        if count > surplus:
            parts.append((work, count - surplus))
        surplus -= min(surplus, count)
    return parts


def best_size(tokens: int) -> int:
    """So many of some tokens make a batch without filling; those of small sizes go as they are."""
    return tokens if tokens <= SMALL else 1 << tokens.bit_length() - 1


def logits_of(works: list[Work]) -> np.ndarray:
    """The rows of all works one after another."""
    parts = [part for work in works for part in work.parts]
    return parts[0] if len(parts) == 1 else np.concatenate(parts)
