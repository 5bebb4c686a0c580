"""Models, sampling: the sampler, which applies the settings of a request token by token.

Receives logits of one position, returns the token and, where asked for, what was likely. The choice
itself is the op `sample`; here is what it needs to know of a request, kept in place from token to
token: nothing walks the vocabulary.
"""

from __future__ import annotations

import math
from collections import deque
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
from tetrad.models.dry import Dry, Heads
from tetrad.models.library import td
from tetrad.models.mirostat import Mirostat
from tetrad.models.settings import MOST_LOGPROBS, WORD, Settings
from tetrad.tracing.array import Array

TOPS = (1, 5, MOST_LOGPROBS)  # how many of the most likely are asked of compiled code
IN_THE_OP = itemgetter(  # in the order of the op's `settings`
    "temperature", "top_p", "min_p", "repeat_penalty", "presence_penalty", "frequency_penalty",
    "top_n_sigma",
    "typical_p", "xtc_probability", "xtc_threshold", "dynatemp_range", "dynatemp_exponent",
)  # fmt: skip


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
    """Chooses the tokens of one request. `before` are the tokens of its prompt, which penalties
    count as well."""

    def __init__(
        self,
        settings: Settings,
        vocab: int,
        before: Iterable[int] = (),
        context: int = 1 << 20,
        heads: Heads | None = None,  # of the texts that break sequences for DRY
    ) -> None:
        self.settings, self.vocab = settings, vocab
        last = context if settings["repeat_last_n"] < 0 else settings["repeat_last_n"]
        self.recent = Recent(last if penalises(settings) else 0)
        self.dry = Dry(settings, heads or {}, context) if is_dry(settings) else None
        self.mirostat = (
            Mirostat(settings) if settings["mirostat"] and settings["temperature"] else None
        )
        for token in before if self.recent.size or self.dry else ():
            self._remember(int(token))
        self.index = 0  # of the draw: that of the token in the answer
        self.numbers = numbers_row(settings)
        self.fixed = [Array.from_numpy(x) for x in (settings_row(settings), self.numbers)]
        self.bias = [Array.from_numpy(x) for x in bias_rows(settings["logit_bias"], vocab)]
        self.seen = Array.from_numpy(self.recent.table)

    def choose(self, logits: Array, mask: np.ndarray | None = None) -> Choice:
        """The next token of the answer, from its logits f32[1, vocab]; `mask` u32[1, words] says
        which are allowed."""
        self.numbers[0, INDEX], self.numbers[0, INDEX + 1] = self.index & WORD, self.index >> 32
        if self.seen.view is not self.recent.table:
            self.seen = Array.from_numpy(self.recent.table)
        masks = () if mask is None else (Array.from_numpy(mask),)
        draw = (
            self._by_surprise
            if self.mirostat
            else compiled_sample(bool(self.settings["temperature_first"]))
        )
        token = int(draw(logits, *self.fixed, self.seen, *self._biases(), *masks).view[0])
        self.index += 1
        self._remember(token)
        if not self.settings["logprobs"]:
            return Choice(token)
        return self._with_logprobs(token, logits)

    def _remember(self, token: int) -> None:
        self.recent.add(token)
        if self.dry is not None:
            self.dry.add(token)

    def _biases(self) -> list[Array]:
        """What is added to logits, with the penalties of DRY, which change from token to token."""
        late = self.dry.penalties() if self.dry is not None else {}
        if not late:
            return self.bias
        return [
            Array.from_numpy(x) for x in bias_rows(self.settings["logit_bias"], self.vocab, late)
        ]

    def _by_surprise(self, logits: Array, settings: Array, numbers: Array, *edits: Array) -> Array:
        """Mirostat in the place of the op."""
        assert self.mirostat is not None
        op = op_module()
        row = op.edited_row(*(x.view[0] for x in (logits, settings, *edits)))
        return Array.from_numpy(
            np.array([self.mirostat.choose(row, op.draw_of(numbers.view[0].tolist()))], np.int32)
        )

    def _with_logprobs(self, token: int, logits: Array) -> Choice:
        wanted, row = self.settings["logprobs"], logits.view[0]
        total = float(compiled_log_sum()(logits).view[0])
        count = min(self.vocab, next(n for n in TOPS if n >= wanted))
        tops = compiled_top(count)(logits).view[0, :wanted].tolist()
        chances = tuple(Chance(i, float(row[i]) - total) for i in tops)
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
            or not value < math.inf
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

    biases = {1: Dim("biased", max=1 << 24)}
    dims = {3: {1: Dim("seen", max=1 << 24)}, 4: biases, 5: biases}
    return NamedFunction(choose, lambda: f"sample, {warm_first=}", dims=dims)


@cache
def compiled_top(count: int) -> NamedFunction:
    return NamedFunction(
        lambda logits: op_module().top_tokens(logits, count=count), lambda: f"top_tokens, {count=}"
    )


@cache
def compiled_log_sum() -> NamedFunction:
    """log of the sum of exp, of every row."""

    def log_sum(logits: Array) -> Array:
        top = td.max(logits, axis=-1, keepdims=True)
        return (td.log(td.sum(td.exp(logits - top), axis=-1, keepdims=True)) + top)[:, 0]  # type: ignore[no-any-return]

    return NamedFunction(log_sum, lambda: "log_sum")


def op_module() -> Any:
    """Loaded where something of it is traced or evaluated, and with it every op: a recalled program
    needs none."""
    return lazy.module("tetrad.ops.sampling.op")


def mask_words(vocab: int) -> int:
    """Words of a mask."""
    return -(-vocab // BITS)
