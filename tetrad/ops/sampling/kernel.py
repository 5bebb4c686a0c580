"""Kernels, choosing tokens: one workgroup a row of logits, lanes along the vocabulary.

Nothing is sorted. Filters keep a row's largest, so each is a threshold: it is found bit by bit, by
counting (top_k) or adding up (top_p) what lies above. First a bound is found from the maxima of
short stretches, and only what reaches it is gathered: a few tokens of a vocabulary, unless the
settings let everything through. `ops.sampling.row` has the row.
"""

from __future__ import annotations

from collections.abc import Callable

from tetrad.core.dtypes import bool_, f32, f64, i32, index, u32
from tetrad.core.machine import LANES
from tetrad.core.sampling_columns import INDEX, SEED, TOP_K
from tetrad.core.sizes import product
from tetrad.graph.group import Group
from tetrad.kernel.build import LocalVar, Val
from tetrad.kernel.math import exponential as math
from tetrad.kernel.math.philox import philox
from tetrad.loopnest.frame import Frame
from tetrad.ops.sampling.op import (
    MIN_P,
    SEED_OF_ZERO,
    TEMPERATURE,
    TOP_N_SIGMA,
    TOP_P,
    TYPICAL_P,
    XTC_MOST,
    XTC_PROBABILITY,
    XTC_STREAM,
    XTC_THRESHOLD,
    sample,
    top_tokens,
)
from tetrad.ops.sampling.row import INF, LOWEST, NONE, STRETCH, EditedRow, LogitRow, threshold
from tetrad.schedule.nodes import Launch

ONE = 0x3F800000  # bits of 1.0
INFINITE = 0x7F800000  # bits of infinity


@sample.kernel
def lower_sample(frame: Frame, group: Group) -> Launch:
    node, k = group.root, frame.k
    row = EditedRow(frame, node)
    draw = Draw(row)
    out = frame.output(frame.memory.slots[node])
    row.fill()
    top = row.find_top()
    chosen = k.local(0, i32)
    with k.when(row.setting(TEMPERATURE).eq(0.0)):
        chosen.set(row.first_of(top))
    with k.otherwise():
        chosen.set(draw.drawn(top))
    k.store(out, row.row, chosen.get())
    return frame.finish(node.type.shape[0], group, flops=product(node.inputs[0].type.shape) * 8)


class Draw:
    """From a row to a token: `values` and `tokens` are the candidates, `weights` theirs, `sums`
    those of stretches."""

    def __init__(self, row: EditedRow) -> None:
        self.row, self.k, frame = row, row.k, row.frame
        self.values = frame.scratch("values", f32, row.padded + LANES)
        self.tokens = frame.scratch("tokens", i32, row.padded + LANES)
        self.weights = frame.scratch("weights", f32, row.padded + LANES)
        self.sums = frame.scratch("sums", f64, row.stretches + 1)

    def drawn(self, top: Val) -> Val:
        """The filters in their order, each on the candidates that are left, then the draw among
        those."""
        k = self.k
        has_top_k = self.row.number(TOP_K).ne(0) & (
            k.cast(self.row.number(TOP_K), index) < self.row.vocab
        )
        is_typical = self.row.setting(TYPICAL_P) < 1.0
        bound, whole, best = k.local(LOWEST, f32), k.local(0.0, f32), k.local(top)
        with k.when(self.row.setting(TOP_N_SIGMA) > 0.0):
            self.row.cut_by_sigma(top)
        with k.when(has_top_k):
            bound.set(self.bound_of_top_k())
        with k.when(~has_top_k & ~is_typical):
            bound.set(self.bound_of_shares(top, whole))
        count = self.candidates_above(bound.get())
        with k.when(has_top_k):
            self.cut_below(
                threshold(k, self.values, k.index(0), count.get(), self.row.number(TOP_K)), count
            )
        with k.when(is_typical):
            self.cut_untypical(count, best)
        with k.when((self.row.setting(TOP_P) < 1.0) | (self.row.setting(MIN_P) > 0.0)):
            self.weigh(best.get(), count, k.const(1.0, f32))
            with k.when(has_top_k | is_typical):
                whole.set(self.sum_above(count, k.const(0.0, f32)))
            self.cut_shares(count, whole.get())
        with k.when(self.row.setting(XTC_PROBABILITY) > 0.0):
            self.cut_top_choices(count, best)
        divisor = (
            k.const(1.0, f32)
            if self.row.warm_first
            else self.row.divisor(self.values, count.get(), best.get())
        )
        self.weigh(best.get(), count, divisor)
        return self.pick(count)

    def bound_of_top_k(self) -> Val:
        """No more than the k-th largest logit: where there are as many maxima of stretches, the
        k-th of those."""
        k, wanted = self.k, self.row.number(TOP_K)
        maxima = self.row.stretches * LANES
        few = k.cast(wanted, index) <= maxima
        start, stop = (
            k.select(few, k.index(self.row.padded), k.index(0)),
            k.select(few, k.index(maxima), k.index(0)),
        )
        return threshold(k, self.row.area, start, k.index(self.row.padded) + stop, wanted)

    def bound_of_shares(self, top: Val, whole: LocalVar) -> Val:
        """What lies below can be in no share that top_p or min_p leaves, by a wide margin; `whole`
        is set to the sum.

        Were all V tokens below c = (1 - top_p) / V of the whole, top_p would still be reached
        without them.
        """
        k, bound = self.k, self.k.local(LOWEST, f32)
        top_p, min_p = self.row.setting(TOP_P), self.row.setting(MIN_P)
        with k.when(top_p < 1.0):
            total = k.local(0.0, f32)
            with k.loop(self.row.padded, 0, LANES) as at:
                total.set(total.get() + math.exp(k, k.load(self.row.area, at + k.lane()) - top))
            whole.set(k.reduce_lanes("add", total.get()))
            share = (k.const(1.0, f32) - k.max(top_p, 0.0)) * whole.get() * (0.5 / self.row.vocab)
            bound.set(k.max(bound, top + math.log(k, k.max(share, 1e-37))))
        with k.when(min_p > 0.0):
            bound.set(k.max(bound, top + math.log(k, k.min(min_p, 1.0)) - 0.01))
        return k.min(bound, top)

    def candidates_above(self, bound: Val) -> LocalVar:
        """How many tokens reach the bound; they are `values` and `tokens`, in order, -inf after the
        last."""
        k, count = self.k, self.k.local(self.row.padded, index)
        with k.when(bound > LOWEST):
            self.gather(
                k.index(self.row.padded),
                count,
                lambda at: k.load(self.row.area, at) >= bound,
                self.take,
            )
        with k.otherwise(), k.loop(self.row.padded, 0, LANES) as start:
            self.take(start + k.lane(), start + k.lane())
        self.close(count)
        return count

    def take(self, at: Val, where: Val) -> None:
        """Token `at` becomes candidate `where`."""
        self.k.store(self.values, where, self.k.load(self.row.area, at))
        self.k.store(self.tokens, where, self.k.cast(at, i32))

    def close(self, count: LocalVar) -> None:
        """What follows the last candidate counts for nothing."""
        k, at = self.k, count.get() + self.k.lane()
        k.barrier()
        k.store(self.values, at, k.const(-INF, f32))
        k.store(self.weights, at, k.const(0.0, f32))
        k.store(self.tokens, at, k.const(0, i32))
        k.barrier()

    def gather(
        self,
        stop: Val,
        count: LocalVar,
        hits: Callable[[Val], Val],
        move: Callable[[Val, Val], None],
    ) -> None:
        """Places 0 to `stop` that `hits` chooses are moved together, in order; `count` is set to
        their number.

        One by one and without a branch: the next overwrites what was not wanted. Scattering takes
        four times as long.
        """
        k, found = self.k, self.k.local(0, index)
        with (
            k.loop(stop, 0, LANES) as start,
            k.when(k.any(hits(start + k.lane()))),
            k.loop(LANES) as i,
        ):
            hit = hits(start + i)
            k.barrier()
            move(start + i, found.get())
            found.set(found.get() + k.select(hit, k.index(1), k.index(0)))
        count.set(found.get())

    def narrow(self, count: LocalVar, least: Val) -> None:
        """Only candidates that weigh so much stay."""
        k = self.k

        def move(at: Val, where: Val) -> None:
            for buffer in (self.values, self.tokens, self.weights):
                moved = k.load(buffer, at)
                k.barrier()
                k.store(buffer, where, moved)

        self.gather(count.get(), count, lambda at: k.load(self.weights, at) >= least, move)
        self.close(count)

    def candidates(self, count: LocalVar, rule: Callable[[Val], None]) -> None:
        """Every sixteen candidates; `rule` gets their places."""
        with self.k.loop(count.get(), 0, LANES) as start:
            rule(start + self.k.lane())

    def cut_below(self, least: Val, count: LocalVar) -> None:
        k = self.k

        def rule(at: Val) -> None:
            value = k.load(self.values, at)
            k.store(self.values, at, k.select(value >= least, value, -INF))

        self.candidates(count, rule)

    def weigh(self, top: Val, count: LocalVar, divisor: Val) -> None:
        """weights = exp((values - top) / divisor), and their sums over stretches.

        In f64: in f32 the many unlikely tokens would be lost beside the few likely ones."""
        k, total = self.k, count.get()
        with k.loop((total + (STRETCH - 1)) // STRETCH) as s:
            lanes = k.local(0.0, f64)
            with k.loop(k.min(total - s * STRETCH, k.index(STRETCH)), 0, LANES) as start:
                at = s * STRETCH + start + k.lane()
                weight = math.exp(k, (k.load(self.values, at) - top) / divisor)
                k.store(self.weights, at, weight)
                lanes.set(lanes.get() + k.cast(weight, f64))
            k.store(self.sums, s, k.reduce_lanes("add", lanes.get()))
        k.barrier()

    def cut_untypical(self, count: LocalVar, best: LocalVar) -> None:
        """typical_p: those stay whose logits are nearest to the mean. Distances lie where the row
        was."""
        k, top = self.k, best.get()
        self.weigh(top, count, k.const(1.0, f32))
        total, moment, edge = k.local(0.0, f64), k.local(0.0, f64), k.local(0, u32)

        def add(at: Val) -> None:
            weight = k.load(self.weights, at)
            part = k.cast(weight, f64) * k.cast(k.max(k.load(self.values, at) - top, LOWEST), f64)
            total.set(total.get() + k.cast(weight, f64))
            moment.set(moment.get() + k.select(weight > 0.0, part, 0.0))

        self.candidates(count, add)
        whole = k.reduce_lanes("add", total.get())
        mean = k.cast(k.reduce_lanes("add", moment.get()) / whole, f32)
        self.candidates(
            count,
            lambda at: k.store(self.row.area, at, k.abs(k.load(self.values, at) - top - mean)),
        )
        wanted = k.cast(self.row.setting(TYPICAL_P), f64) * whole
        # the largest distance such that those below it do not exceed what is wanted
        with k.loop(31) as i:
            trial = edge.get() | (k.const(1 << 30, u32) >> k.cast(i, u32))
            fits = self.weight_nearer(count, k.bitcast(trial, f32)) <= wanted
            edge.set(k.select(fits & (trial <= INFINITE), trial, edge.get()))
        self.keep(count, best, lambda at: k.load(self.row.area, at) <= k.bitcast(edge.get(), f32))

    def weight_nearer(self, count: LocalVar, distance: Val) -> Val:
        k, total = self.k, self.k.local(0.0, f64)

        def rule(at: Val) -> None:
            weight = k.select(k.load(self.row.area, at) < distance, k.load(self.weights, at), 0.0)
            total.set(total.get() + k.cast(weight, f64))

        self.candidates(count, rule)
        return k.reduce_lanes("add", total.get())

    def keep(self, count: LocalVar, best: LocalVar, stays: Callable[[Val], Val]) -> None:
        """Other candidates become -inf; `best` is set to the largest that stays."""
        k, largest = self.k, self.k.local(-INF, f32)

        def rule(at: Val) -> None:
            value = k.select(stays(at), k.load(self.values, at), -INF)
            k.store(self.values, at, value)
            largest.set(k.max(largest, value))

        self.candidates(count, rule)
        best.set(k.reduce_lanes("max", largest.get()))

    def cut_top_choices(self, count: LocalVar, best: LocalVar) -> None:
        """XTC, where the dice say so: of those that reach the threshold only the least likely
        stay."""
        k, threshold = self.k, self.row.setting(XTC_THRESHOLD)
        takes_part = self.uniform(XTC_STREAM) < k.cast(self.row.setting(XTC_PROBABILITY), f64)
        with k.when(takes_part & (threshold <= XTC_MOST)):
            self.weigh(best.get(), count, k.const(1.0, f32))
            limit, least = threshold * self.sum_above(count, k.const(0.0, f32)), k.local(INF, f32)

            def rule(at: Val) -> None:
                weight = k.load(self.weights, at)
                least.set(k.min(least, k.select((weight > 0.0) & (weight >= limit), weight, INF)))

            self.candidates(count, rule)
            edge = k.reduce_lanes("min", least.get())
            self.keep(count, best, lambda at: k.load(self.weights, at) <= edge)

    def sum_above(self, count: LocalVar, least: Val, strictly: bool = False) -> Val:
        k, total = self.k, self.k.local(0.0, f32)

        def rule(at: Val) -> None:
            weight = k.load(self.weights, at)
            total.set(
                total.get() + k.select(weight > least if strictly else weight >= least, weight, 0.0)
            )

        self.candidates(count, rule)
        return k.reduce_lanes("add", total.get())

    def cut_shares(self, count: LocalVar, whole: Val) -> None:
        """top_p and min_p: what is cut is -inf afterwards."""
        k = self.k
        least = k.local(k.min(self.row.setting(MIN_P), 1.0))
        with k.when(self.row.setting(TOP_P) < 1.0):
            wanted = k.max(self.row.setting(TOP_P) * whole, 1e-30)
            bits = k.local(0, u32)
            self.find_edge(count, wanted, bits, range(29, 22, -1))
            self.narrow(count, k.bitcast(bits.get(), f32))
            self.find_edge(count, wanted, bits, range(22, -1, -1))
            edge = k.bitcast(bits.get(), f32)
            self.cut_equals(count, edge, wanted)
            least.set(k.max(least, edge))

        def rule(at: Val) -> None:
            value = k.select(k.load(self.weights, at) >= least.get(), k.load(self.values, at), -INF)
            k.store(self.values, at, value)

        self.candidates(count, rule)

    def find_edge(self, count: LocalVar, wanted: Val, bits: LocalVar, which: range) -> None:
        """Some bits of the largest weight such that those not below it add up to `wanted`; no
        weight exceeds 1.

        First those of its exponent: candidates that are smaller can be forgotten before the others
        are found.
        """
        k = self.k
        with k.loop(len(which)) as i:
            trial = bits.get() | (k.const(1 << which[0], u32) >> k.cast(i, u32))
            enough = self.sum_above(count, k.bitcast(trial, f32)) >= wanted
            bits.set(k.select(enough & (trial <= ONE), trial, bits.get()))

    def cut_equals(self, count: LocalVar, edge: Val, wanted: Val) -> None:
        """Of the candidates at the edge only the first ones are needed."""
        k, total = self.k, self.k.local(self.sum_above(count, edge, strictly=True))
        with k.loop(count.get(), 0, LANES) as start:
            some = k.any(k.load(self.weights, start + k.lane()).eq(edge))
            with k.when(some), k.loop(LANES) as i, k.when(k.load(self.weights, start + i).eq(edge)):
                with k.when(total.get() >= wanted):
                    k.store(self.values, start + i, k.const(-INF, f32))
                total.set(total.get() + edge)
        k.barrier()

    def pick(self, count: LocalVar) -> Val:
        """The first candidate at which the running sum of the weights exceeds the drawn part of
        it."""
        k, stretches = self.k, (count.get() + (STRETCH - 1)) // STRETCH
        total = k.local(0.0, f64)
        with k.loop(stretches) as s:
            total.set(total.get() + k.load(self.sums, s))
        target = self.uniform() * total.get()
        before, where = self.stretch_of(stretches, target)
        chosen, last, found, sum_ = (
            k.local(0, index),
            k.local(0, index),
            k.local(False, bool_),
            k.local(before),
        )
        first = where * STRETCH
        with k.loop(k.min(first + STRETCH, count.get()), first) as at:
            weight = k.cast(k.load(self.weights, at), f64)
            sum_.set(sum_.get() + weight)
            some = weight > 0.0
            reached = some & (sum_.get() > target) & ~found.get()
            chosen.set(k.select(reached, at, chosen.get()))
            found.set(found.get() | reached)
            last.set(k.select(some, at, last.get()))
        return k.load(self.tokens, k.select(found.get(), chosen.get(), last.get()))

    def stretch_of(self, stretches: Val, target: Val) -> tuple[Val, Val]:
        """The stretch of candidates the target falls into (rounding: else the last that weighs),
        and the sum before."""
        k = self.k
        sum_, before, where, found = (
            k.local(0.0, f64),
            k.local(0.0, f64),
            k.local(0, index),
            k.local(False, bool_),
        )
        with k.loop(stretches) as s:
            weight = k.load(self.sums, s)
            takes = (weight > 0.0) & ~found.get()
            before.set(k.select(takes, sum_.get(), before.get()))
            where.set(k.select(takes, s, where.get()))
            sum_.set(sum_.get() + weight)
            found.set(found.get() | (takes & (sum_.get() > target)))
        return before.get(), where.get()

    def uniform(self, stream: int = 0) -> Val:
        """24 bits of word `index` of a stream of the seed, as a number in [0, 1)."""
        k = self.k
        low, high = self.row.number(SEED), self.row.number(SEED + 1)
        at, above = self.row.number(INDEX), self.row.number(INDEX + 1)
        low = k.select((low | high).eq(0), k.const(SEED_OF_ZERO, u32), low)
        counter = [(at >> 2) | (above << 30), above >> 2, k.const(stream, u32), k.const(0, u32)]
        words = philox(k, counter, (low, high))
        word = words[3]
        for i in range(3):
            word = k.select((at & 3).eq(i), words[i], word)
        return k.cast(word >> 8, f64) * (1 / 2**24)


@top_tokens.kernel
def lower_top_tokens(frame: Frame, group: Group) -> Launch:
    """One sweep over the row for each token wanted: the largest of those that come after the one
    before."""
    node, row = group.root, LogitRow(frame, group.root)
    k, count = frame.k, node.param("count")
    out = frame.output(frame.memory.slots[node])
    value, token, is_nan = k.local(INF, f32), k.local(-1, i32), k.local(False, bool_)
    with k.loop(count) as i:
        best, where = k.local(-INF, f32), k.local(NONE, i32)
        with k.loop(row.vocab, 0, LANES) as start:
            at = start + k.lane()
            with frame.within(at, k.index(row.vocab), row.vocab):
                x, here = row.logit(at), k.cast(at, i32)
                is_nan.set(is_nan.get() | x.ne(x))
                comes = (x < value.get()) | (x.eq(value.get()) & (here > token.get()))
                better = comes & ((x > best.get()) | where.get().eq(NONE))
                where.set(k.select(better, here, where.get()))
                best.set(k.select(better, x, best.get()))
        value.set(k.reduce_lanes("max", best.get()))
        token.set(k.reduce_lanes("min", k.select(best.get().eq(value.get()), where.get(), NONE)))
        k.store(out, row.row * count + i, token.get())
    row.trap("logits", is_nan.get(), row.row)
    return frame.finish(
        node.type.shape[0], group, flops=product(node.inputs[0].type.shape) * 4 * count
    )
