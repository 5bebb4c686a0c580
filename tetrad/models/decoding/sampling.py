"""Models, sampling: the sampler, which applies the settings of a request token by token.

Receives rows of logits, one or more of each request, returns their tokens and, where asked for,
what was likely. The choice itself is the op `sample`, one call for all rows of a step; here is what
it needs to know of a request, kept in place from token to token: nothing walks the vocabulary.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterable, Mapping
from functools import cache
from operator import itemgetter
from typing import Any

import numpy as np

from tetrad.compiler.named_function import NamedFunction
from tetrad.core import lazy
from tetrad.core.errors import SettingError
from tetrad.core.record import record
from tetrad.core.sampling_columns import BITS, INDEX, NUMBERS, SEED, TOP_K
from tetrad.core.sizes import Dim
from tetrad.models.checks import check_count
from tetrad.models.decoding.dry import Dry, Heads
from tetrad.models.decoding.mirostat import Mirostat
from tetrad.models.decoding.settings import MOST_LOGPROBS, WORD, Settings
from tetrad.models.library import td
from tetrad.tracing.array import Array

TOPS = (1, 5, MOST_LOGPROBS)  # how many of the most likely are asked of compiled code
SAMPLED = (  # in the order of the op's `settings`
    "temperature", "top_p", "min_p", "repeat_penalty", "presence_penalty", "frequency_penalty",
    "top_n_sigma",
    "typical_p", "xtc_probability", "xtc_threshold", "dynatemp_range", "dynatemp_exponent",
)  # fmt: skip
IN_THE_OP = itemgetter(*SAMPLED)
MOST_BIAS = 1e30  # added to a logit it is finite in f32
MOST_SIZES = 64  # of calls whose arguments are kept
# sizes that change from call to call, and how large they may be
ROW_DIMS = {"rows": 1 << 12, "seen": 1 << 24, "biased": 1 << 24}


def penalises(settings: Settings) -> bool:
    return (
        settings["repeat_penalty"],
        settings["presence_penalty"],
        settings["frequency_penalty"],
    ) != (1, 0, 0)


def is_dry(settings: Settings) -> bool:
    return settings["dry_multiplier"] > 0 and settings["dry_penalty_last_n"] != 0


def settings_row(settings: Settings) -> np.ndarray:
    """`settings` of the op."""
    return np.array([IN_THE_OP(settings)], np.float32)


class Recent:
    """How often each of the last `size` tokens came: `table` i32[1, n, 2] has every token once,
    free rows are -1."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.table = np.full((1, 1, 2), -1, np.int32)
        self.rows: dict[int, int] = {}
        self.order: deque[int] = deque()

    def add(self, token: int) -> None:
        if self.size == 0:
            return
        self.order.append(token)
        row = self.rows.get(token)
        if row is None:
            self._put(token)
        else:
            self.table[0, row, 1] += 1
        if len(self.order) > self.size:
            self._drop(self.order.popleft())

    def _put(self, token: int) -> None:
        row = len(self.rows)
        if row == self.table.shape[1]:
            self.table = np.concatenate([self.table, np.full_like(self.table, -1)], axis=1)
        self.rows[token] = row
        self.table[0, row] = token, 1

    def _drop(self, token: int) -> None:
        """One fewer of a token; the row of one that is gone is taken by the last."""
        row = self.rows[token]
        self.table[0, row, 1] -= 1
        if self.table[0, row, 1]:
            return
        del self.rows[token]
        last = len(self.rows)
        if row != last:
            moved = int(self.table[0, last, 0])
            self.table[0, row] = self.table[0, last]
            self.rows[moved] = row
        self.table[0, last] = -1


@record
class Chance:
    """A token and the logarithm of its probability, before any setting."""

    token: int
    logprob: float


@record
class Choice:
    """The token that was chosen, how likely it was, and the most likely ones where they were asked
    for."""

    token: int
    logprob: float | None = None
    top: tuple[Chance, ...] = ()


class Sampler:
    """What choosing the tokens of one request needs to know. `before` are the tokens of its prompt,
    which penalties count as well."""

    def __init__(
        self,
        settings: Settings,
        vocab: int,
        before: Iterable[int] = (),
        context: int = 1 << 20,
        heads: Heads | None = None,  # of the texts that break sequences for DRY
    ) -> None:
        self.settings, self.vocab, self.logprobs = settings, vocab, settings["logprobs"]
        last = context if settings["repeat_last_n"] < 0 else settings["repeat_last_n"]
        self.recent = Recent(last if penalises(settings) else 0)
        self.dry = Dry(settings, heads or {}, context) if is_dry(settings) else None
        self.mirostat = (
            Mirostat(settings) if settings["mirostat"] and settings["temperature"] else None
        )
        # its choices depend on those before
        self.has_memory = bool(self.recent.size or self.dry or self.mirostat)
        self.is_warm_first = bool(settings["temperature_first"])
        # one call may choose for it and others
        self.may_join = not (self.is_warm_first or self.mirostat)
        for token in before if self.has_memory else ():
            self._count(int(token))
        self.index = 0  # of the draw: that of the token in the answer
        self.row, self.numbers = settings_row(settings), numbers_row(settings)
        self.bias = bias_rows(settings["logit_bias"], vocab)
        self.late = -1, self.bias  # number of the draw, and what DRY made of them for it

    def remember(self, token: int) -> None:
        """The token was chosen."""
        self.index += 1
        if self.has_memory:
            self._count(token)

    def _count(self, token: int) -> None:
        self.recent.add(token)
        if self.dry is not None:
            self.dry.add(token)

    def biases(self) -> tuple[np.ndarray, np.ndarray]:
        """What is added to logits, with the penalties of DRY, which change from token to token."""
        if self.dry is not None and self.late[0] != self.index:
            late = self.dry.penalties()
            bias = self.settings["logit_bias"]
            self.late = self.index, bias_rows(bias, self.vocab, late) if late else self.bias
        return self.late[1]


class SampleArguments:
    """The arguments of the op for so many rows, kept from step to step: while the same requests
    stand in the rows, only what moves on is written."""

    def __init__(self, rows: int, seen: int, biased: int, words: int, warm_first: bool) -> None:
        self.settings = np.zeros((rows, len(SAMPLED)), np.float32)
        self.numbers = np.zeros((rows, NUMBERS), np.uint32)
        self.seen = np.full((rows, seen, 2), -1, np.int32)
        self.biased = np.full((rows, biased), -1, np.int32)
        self.bias = np.zeros((rows, biased, 2), np.float32)
        self.mask = np.full((rows, words), WORD, np.uint32) if words else None
        given = (self.settings, self.numbers, self.seen, self.biased, self.bias, self.mask)
        self.arrays = [Array.from_numpy(x) for x in given if x is not None]
        self.draw = compiled_sample(warm_first)
        self.samplers: list[Sampler] = []

    def run(
        self, samplers: list[Sampler], ahead: list[int], masks: list[np.ndarray | None], rows: Array
    ) -> list[int]:
        if samplers != self.samplers:
            self._place(samplers)
        drawn = [sampler.index + more for sampler, more in zip(samplers, ahead, strict=True)]
        self.numbers[:, INDEX] = [index & WORD for index in drawn]
        self.numbers[:, INDEX + 1] = [index >> 32 for index in drawn]
        for i, sampler in enumerate(samplers):
            if sampler.has_memory:
                self._place_memory(i, sampler)
        if self.mask is not None:
            for i, mask in enumerate(masks):
                self.mask[i] = WORD if mask is None else mask[0]
        found: list[int] = self.draw(rows, *self.arrays).memory.tolist()
        return found

    def _place(self, samplers: list[Sampler]) -> None:
        self.samplers = list(samplers)
        self.seen[:] = -1
        for i, sampler in enumerate(samplers):
            self.settings[i], self.numbers[i] = sampler.row[0], sampler.numbers[0]
            self._place_bias(i, sampler.bias)

    def _place_memory(self, row: int, sampler: Sampler) -> None:
        table = sampler.recent.table[0]
        self.seen[row, : len(table)], self.seen[row, len(table) :] = table, -1
        if sampler.dry is not None:
            self._place_bias(row, sampler.biases())

    def _place_bias(self, row: int, given: tuple[np.ndarray, np.ndarray]) -> None:
        tokens, values = given
        count = tokens.shape[1]
        self.biased[row, :count], self.biased[row, count:] = tokens[0], -1
        self.bias[row, :count] = values[0]


class RowChooser:
    """Chooses tokens from rows of logits, many in one compiled call. What stands beside a row
    changes nothing of its choice. One thread at a time may use it."""

    def __init__(self, vocab: int) -> None:
        self.vocab = vocab
        self.kept: OrderedDict[tuple[int, int, int, int, bool], SampleArguments] = OrderedDict()

    def choose(
        self,
        samplers: list[Sampler],
        rows: Array,  # f32[n, vocabulary], one for each
        ahead: list[int] | None = None,  # of how many tokens that are not yet remembered
        masks: list[np.ndarray | None] | None = None,  # u32[1, words]: which tokens are allowed
    ) -> list[Choice]:
        """The next token for each of the samplers; they remember nothing of it yet. Those that
        divide by the temperature first, or follow the surprise, come alone."""
        ahead, masks = ahead or [0] * len(samplers), masks or [None] * len(samplers)
        if (mirostat := samplers[0].mirostat) is not None:
            tokens = [self._by_surprise(samplers[0], mirostat, rows, masks[0])]
        else:
            tokens = self._arguments(samplers, masks).run(samplers, ahead, masks, rows)
        if any([sampler.logprobs for sampler in samplers]):
            return self._with_logprobs(samplers, tokens, rows)
        return [Choice(token) for token in tokens]

    def _arguments(
        self, samplers: list[Sampler], masks: list[np.ndarray | None]
    ) -> SampleArguments:
        words = 0 if all([mask is None for mask in masks]) else mask_words(self.vocab)
        seen = max([sampler.recent.table.shape[1] for sampler in samplers])
        biased = max([sampler.biases()[0].shape[1] for sampler in samplers])
        key = len(samplers), seen, biased, words, samplers[0].is_warm_first
        found = self.kept.get(key)
        if found is None:
            found = self.kept[key] = SampleArguments(*key)
            if len(self.kept) > MOST_SIZES:
                self.kept.popitem(last=False)
        return found

    def _by_surprise(
        self, sampler: Sampler, mirostat: Mirostat, rows: Array, mask: np.ndarray | None
    ) -> int:
        """Mirostat in the place of the op."""
        op, masks = op_module(), () if mask is None else (mask[0],)
        numbers = sampler.numbers.copy()
        numbers[0, INDEX], numbers[0, INDEX + 1] = sampler.index & WORD, sampler.index >> 32
        tokens, values = sampler.biases()
        row = op.edited_row(
            rows.memory[0], sampler.row[0], sampler.recent.table[0], tokens[0], values[0], *masks
        )
        return mirostat.choose(row, op.draw_of(numbers[0].tolist()))

    def _with_logprobs(
        self, samplers: list[Sampler], tokens: list[int], rows: Array
    ) -> list[Choice]:
        wanted = max([sampler.logprobs for sampler in samplers])
        totals = compiled_log_sum()(rows).memory.tolist()
        count = min(self.vocab, next(n for n in TOPS if n >= wanted))
        tops = compiled_top(count)(rows).memory
        return [
            self._likely(sampler, token, rows.memory[i], totals[i], tops[i])
            for i, (sampler, token) in enumerate(zip(samplers, tokens, strict=True))
        ]

    def _likely(
        self, sampler: Sampler, token: int, row: np.ndarray, total: float, tops: np.ndarray
    ) -> Choice:
        if not sampler.logprobs:
            return Choice(token)
        likely = tops[: sampler.logprobs].tolist()
        chances = tuple(Chance(i, float(row[i]) - total) for i in likely)
        return Choice(token, float(row[token]) - total, chances)


def numbers_row(settings: Settings) -> np.ndarray:
    row = np.zeros((1, NUMBERS), np.uint32)
    seed = settings["seed"]
    assert seed is not None  # drawn, where none was given
    row[0, TOP_K] = min(max(0, settings["top_k"]), WORD)
    row[0, SEED], row[0, SEED + 1] = seed & WORD, seed >> 32
    return row


def bias_rows(
    bias: Mapping[int, float] | None, vocab: int, late: Mapping[int, float] | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Tokens and what is added to their logits before and, `late`, after the penalties; filled up
    to a power of two."""
    for token, value in (bias or {}).items():
        check_count("logit_bias", token, 0, vocab - 1)
        if (
            isinstance(value, bool)
            or not isinstance(value, int | float | np.number)
            or not value <= MOST_BIAS
        ):
            raise SettingError("logit_bias", f"a number or -inf for token {token}", value)
    rows = [
        *((t, v, 0.0) for t, v in (bias or {}).items()),
        *((t, 0.0, v) for t, v in (late or {}).items()),
    ]
    size = 1 << (max(len(rows), 1) - 1).bit_length()
    tokens, values = np.full((1, size), -1, np.int32), np.zeros((1, size, 2), np.float32)
    for i, (token, early, after) in enumerate(rows):
        tokens[0, i], values[0, i] = token, (early, after)
    return tokens, values


# -- compiled when first used ----------------------------------------------------------------------


@cache
def compiled_sample(warm_first: bool = False) -> NamedFunction:
    def choose(*given: Any) -> Any:
        return op_module().sample(*given, warm_first=warm_first)

    rows, seen, biased = (Dim(name, max=most) for name, most in ROW_DIMS.items())
    dims = {0: {0: rows}, 1: {0: rows}, 2: {0: rows}, 3: {0: rows, 1: seen},
            4: {0: rows, 1: biased}, 5: {0: rows, 1: biased}, 6: {0: rows}}  # fmt: skip
    return NamedFunction(choose, lambda: f"sample, {warm_first=}", dims=dims)


@cache
def compiled_top(count: int) -> NamedFunction:
    return NamedFunction(
        lambda logits: op_module().top_tokens(logits, count=count),
        lambda: f"top_tokens, {count=}",
        dims={0: {0: Dim("rows", max=ROW_DIMS["rows"])}},
    )


@cache
def compiled_log_sum() -> NamedFunction:
    """log of the sum of exp, of every row."""

    def log_sum(logits: Array) -> Array:
        top = td.max(logits, axis=-1, keepdims=True)
        return (td.log(td.sum(td.exp(logits - top), axis=-1, keepdims=True)) + top)[:, 0]  # type: ignore[no-any-return]

    return NamedFunction(
        log_sum, lambda: "log_sum", dims={0: {0: Dim("rows", max=ROW_DIMS["rows"])}}
    )


def op_module() -> Any:
    """Loaded where something of it is traced or evaluated, and with it every op: a recalled program
    needs none."""
    return lazy.module("tetrad.ops.sampling.op")


def mask_words(vocab: int) -> int:
    """Words of a mask."""
    return -(-vocab // BITS)
