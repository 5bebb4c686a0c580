"""Kernels, choosing tokens, the row: logits in scratch, edited as the settings of their request
say.

Receives the operands of `sample`; what is left is drawn from by `ops.sampling.kernel`. Bias, mask
and penalties change single logits; on the way to the largest the maxima of short stretches are
kept, which bound what the filters must look at.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from tetrad.core.dtypes import f32, f64, i32, index, u32
from tetrad.core.machine import LANES
from tetrad.core.sampling_columns import BITS
from tetrad.core.sizes import plain
from tetrad.graph.nodes import Node
from tetrad.kernel.build import KernelBuilder, Val
from tetrad.kernel.math import exponential as math
from tetrad.kernel.nodes import Buffer
from tetrad.loopnest.frame import Frame
from tetrad.loopnest.reader import FIRST_TRAP
from tetrad.ops.sampling.op import (
    DYNAMIC_EXPONENT,
    DYNAMIC_RANGE,
    FREQUENCY,
    MESSAGES,
    MIN_P,
    PRESENCE,
    REPEAT,
    TEMPERATURE,
    TOP_N_SIGMA,
    TOP_P,
)
from tetrad.schedule.nodes import TrapSite

# tokens whose maxima, one a lane, are remembered; also the tokens of a sum of weights
STRETCH = 1024
PARTS = 4  # independent maxima on the way
LOWEST = -3.4028234663852886e38  # the least finite f32
INF = float("inf")
SIGN = 0x80000000
NONE = 0x7FFFFFFF


class LogitRow:
    """What both ops that choose tokens begin with: where a row of logits lies, and how trouble is
    told."""

    def __init__(self, frame: Frame, node: Node) -> None:
        self.frame, self.k, self.node = frame, frame.k, node
        self.vocab = plain(node.inputs[0].type.shape[1])
        self.row = frame.k.group_id()

    def logit(self, at: Val) -> Val:
        return self.frame.reading.read(self.node.inputs[0], (self.row, at))

    def trap(self, which: str, bad: Val, value: Val) -> None:
        traps = self.frame.reading.traps
        code = FIRST_TRAP + len(traps)
        traps[code] = TrapSite(self.node.op.name, MESSAGES[which], self.node.source)
        self.k.trap(bad, code, value)


class EditedRow(LogitRow):
    """A row of `sample`. `area` holds its edited logits, padded, and behind them the maxima."""

    def __init__(self, frame: Frame, node: Node) -> None:
        super().__init__(frame, node)
        self.has_mask = len(node.inputs) == 7
        self.stretches = -(-self.vocab // STRETCH)
        self.padded = self.stretches * STRETCH
        self.area = frame.scratch("area", f32, self.padded + self.stretches * LANES)
        self.warm_first = dict(node.params).get("warm_first", False)

    def fill(self) -> None:
        """The row with all that comes before the filters."""
        self.check_settings()
        self.copy()
        self.edit()
        if self.warm_first:
            self.warm()

    # -- operands ----------------------------------------------------------------------------------

    def operand(self, position: int, *at: Val | int) -> Val:
        """An element of this row of operand `position`."""
        return self.frame.reading.read(
            self.node.inputs[position], (self.row, *(self.k.index(i) for i in at))
        )

    def setting(self, which: int) -> Val:
        return self.operand(1, which)

    def number(self, which: int) -> Val:
        return self.operand(2, which)

    def check_settings(self) -> None:
        temperature, top_p, min_p = (self.setting(i) for i in (TEMPERATURE, TOP_P, MIN_P))
        bad = ~(temperature >= 0.0) | top_p.ne(top_p) | min_p.ne(min_p)
        self.trap("settings", bad, self.row)

    # -- the edited row ----------------------------------------------------------------------------

    def copy(self) -> None:
        """The row in scratch, -inf behind it."""
        k, whole = self.k, self.vocab // LANES * LANES
        with k.loop(self.padded, whole, LANES) as at:
            k.store(self.area, at + k.lane(), k.const(-INF, f32))
        with k.loop(whole, 0, LANES) as at:
            k.store(self.area, at + k.lane(), self.logit(at + k.lane()))
        if whole < self.vocab:
            at = k.index(whole) + k.lane()
            with k.when(at < self.vocab, guard=True):
                k.store(self.area, at, self.logit(at))
        k.barrier()

    def edit(self) -> None:
        """Bias, mask, penalties, the bias that comes after them."""
        k = self.k
        self.add_bias(0)
        k.barrier()
        if self.has_mask:
            self.every(lambda at, x: k.select(self.is_allowed(at), x, k.const(-INF, f32)))
        with k.loop(self.frame.sizes.val(self.node.inputs[3].type.shape[1])) as i:
            count = self.operand(3, i, 1)
            with k.when(count > 0):
                self.change(self.operand(3, i, 0), partial(self.penalised, count))
        self.add_bias(1)
        k.barrier()

    def add_bias(self, which: int) -> None:
        with self.k.loop(self.frame.sizes.val(self.node.inputs[4].type.shape[1])) as i:
            self.change(self.operand(4, i), lambda old: old + self.operand(5, i, which))

    def change(self, token: Val, rule: Callable[[Val], Val]) -> None:
        """The logit of one token; -1 is none."""
        k, at = self.k, self.k.cast(token, index)
        self.trap("token", at >= self.vocab, at)
        with k.when((at >= 0) & (at < self.vocab)):
            changed = rule(k.load(self.area, at))
            k.barrier()  # all invocations change it together
            k.store(self.area, at, changed)

    def every(self, rule: Callable[[Val, Val], Val]) -> None:
        with self.k.loop(self.padded, 0, LANES) as start:
            at = start + self.k.lane()
            self.k.store(self.area, at, rule(start, self.k.load(self.area, at)))
        self.k.barrier()

    def is_allowed(self, start: Val) -> Val:
        """Bits of the mask for sixteen tokens; what lies behind the vocabulary is -inf anyway."""
        k, words = self.k, -(-self.vocab // BITS)
        word = self.operand(6, k.min(start // BITS, k.index(words - 1)))
        return ((word >> k.cast(start % BITS + k.lane(), u32)) & 1).ne(0)

    def warm(self) -> None:
        """The temperature, where it comes before the filters."""
        k, top = self.k, self.k.local(-INF, f32)
        with k.loop(self.padded, 0, LANES) as start:
            top.set(k.max(top, k.load(self.area, start + k.lane())))
        divisor = self.divisor(self.area, k.index(self.padded), k.reduce_lanes("max", top.get()))
        self.every(lambda at, x: x / divisor)

    def penalised(self, count: Val, old: Val) -> Val:
        k, repeat = self.k, self.setting(REPEAT)
        milder = k.select(old <= 0.0, old * repeat, old / repeat)
        return milder - (k.cast(count, f32) * self.setting(FREQUENCY) + self.setting(PRESENCE))

    def divisor(self, buffer: Buffer, count: Val, top: Val) -> Val:
        """The temperature of `count` logits, -inf not counted, the largest of which is `top`."""
        k, found = self.k, self.k.local(self.setting(TEMPERATURE))
        reach = self.setting(DYNAMIC_RANGE)
        with k.when(reach > 0.0):
            least = k.max(found.get() - reach, 0.0)
            even = self.evenness(buffer, count, top)
            share = math.pow(k, even, self.setting(DYNAMIC_EXPONENT))
            found.set(
                k.select(even >= 0.0, least + (found.get() + reach - least) * share, found.get())
            )
        return k.max(found, 1e-6)

    def evenness(self, buffer: Buffer, count: Val, top: Val) -> Val:
        """Entropy in relation to the most that so many could have; NaN of a single one. Sums are
        f64, as in `weigh`."""
        k = self.k
        number, total, moment = (k.local(0.0, f64) for _ in range(3))
        with k.loop(count, 0, LANES) as start:
            x = k.load(buffer, start + k.lane())
            shift = k.max(x, LOWEST) - top
            weight = k.select(x > -INF, math.exp(k, shift), 0.0)
            number.set(number.get() + k.select(x > -INF, k.const(1.0, f64), 0.0))
            total.set(total.get() + k.cast(weight, f64))
            moment.set(moment.get() + k.select(weight > 0.0, k.cast(weight * shift, f64), 0.0))
        whole = k.reduce_lanes("add", total.get())
        mean = k.cast(k.reduce_lanes("add", moment.get()) / whole, f32)
        entropy = k.max(math.log(k, k.cast(whole, f32)) - mean, 0.0)
        return entropy / math.log(k, k.cast(k.reduce_lanes("add", number.get()), f32))

    # -- the largest -------------------------------------------------------------------------------

    def find_top(self) -> Val:
        """The largest logit; on the way the maxima of stretches. A NaN anywhere is the maximum."""
        k, top = self.k, self.k.local(-INF, f32)
        with k.loop(self.stretches) as s:
            parts = [k.local(-INF, f32) for _ in range(PARTS)]
            with k.loop(STRETCH, 0, LANES * PARTS) as at:
                for i, part in enumerate(parts):
                    part.set(
                        k.max(part, k.load(self.area, s * STRETCH + at + i * LANES + k.lane()))
                    )
            found = k.max(k.max(parts[0], parts[1]), k.max(parts[2], parts[3]))
            k.store(self.area, s * LANES + self.padded + k.lane(), found)
            top.set(k.max(top, found))
        highest = k.reduce_lanes("max", top.get())
        self.trap("logits", highest.ne(highest) | highest.eq(INF), self.row)
        self.trap("nothing", highest.eq(-INF), self.row)
        return highest

    def first_of(self, value: Val) -> Val:
        """The first token with this logit."""
        k, found = self.k, self.k.local(NONE, i32)
        with k.loop(self.stretches) as s:
            here = k.load(self.area, s * LANES + self.padded + k.lane()).eq(value)
            with k.when(k.any(here) & found.get().eq(NONE)):
                best = k.local(NONE, i32)
                with k.loop(STRETCH, 0, LANES) as at:
                    token = s * STRETCH + at + k.lane()
                    best.set(
                        k.min(
                            best,
                            k.select(k.load(self.area, token).eq(value), k.cast(token, i32), NONE),
                        )
                    )
                found.set(k.reduce_lanes("min", best.get()))
        return found.get()

    def cut_by_sigma(self, top: Val) -> None:
        """What lies so many standard deviations below the largest is -inf afterwards. Sums are f64,
        as in `weigh`."""
        k = self.k
        number = self.sum_of(lambda x: k.const(1.0, f64))
        mean = self.sum_of(lambda x: x) / number
        deviation = k.sqrt(self.sum_of(lambda x: (x - mean) * (x - mean)) / number)
        least = top - self.setting(TOP_N_SIGMA) * k.cast(deviation, f32)
        self.every(lambda at, x: k.select(x >= least, x, -INF))

    def sum_of(self, rule: Callable[[Val], Val]) -> Val:
        """Over the logits of the row that are finite."""
        k, total = self.k, self.k.local(0.0, f64)
        with k.loop(self.padded, 0, LANES) as at:
            x = k.load(self.area, at + k.lane())
            total.set(total.get() + k.select(x > -INF, rule(k.cast(k.max(x, LOWEST), f64)), 0.0))
        return k.reduce_lanes("add", total.get())


def threshold(k: KernelBuilder, buffer: Buffer, start: Val, stop: Val, wanted: Val) -> Val:
    """The `wanted`-th largest of some floats, found bit by bit; LOWEST where so many are not
    finite."""
    key, need = k.local(0, u32), k.cast(wanted, i32)
    with k.loop(32) as i:
        trial = key.get() | (k.const(SIGN, u32) >> k.cast(i, u32))
        least, count = float_of(k, trial), k.local(0, i32)
        with k.loop(stop, start, LANES) as at:
            count.set(
                count.get() + k.select(k.load(buffer, at + k.lane()) >= least, k.const(1, i32), 0)
            )
        key.set(k.select(k.reduce_lanes("add", count.get()) >= need, trial, key.get()))
    found = float_of(k, key.get())
    return k.select(found >= LOWEST, found, LOWEST)  # keys below all numbers are NaN


def float_of(k: KernelBuilder, key: Val) -> Val:
    """Keys count as the floats do: with the sign bit set the rest is a positive float, else all
    bits are turned."""
    return k.bitcast(k.select((key & SIGN).ne(0), key ^ SIGN, ~key), f32)
