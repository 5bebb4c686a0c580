"""Kernels, convolutions: how the elements of a weight lie in memory, seen from sixteen outputs.

Steps along memory are taps and inputs, in one of three orders, or the outputs themselves lie beside
each other. Packing a weight and storing a gradient walk the same way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from tetrad.core.record import record
from tetrad.kernel.build import KernelBuilder, Val
from tetrad.loopnest.index import Sizes, Space
from tetrad.loopnest.reader import At
from tetrad.ops.conv.geometry import ConvGeometry


@record
class WeightWalk:
    """Steps 0 to `length` along memory: `where` gives tap (as x meets it) and input, `at` the index
    of an output's element."""

    length: int
    where: Callable[[Val], tuple[Val, Val]]
    at: Callable[[Val, Val], At]


def along_outputs(form: ConvGeometry) -> bool:
    """Do the outputs of a weight lie beside each other?"""
    return form.weight == "kio" or (form.weight == "iok" and form.taps == 1)


class WeightOrder:
    """Of one group of a weight; its inputs from `first` on, `count` of them."""

    def __init__(
        self, k: KernelBuilder, sizes: Sizes, form: ConvGeometry, group: Val, first: Val, count: int
    ) -> None:
        self.k, self.sizes, self.form, self.group = k, sizes, form, group
        self.first, self.count = first, count
        self.tap_sizes = tuple(axis.taps for axis in form.axes)

    @contextmanager
    def walks(self) -> Iterator[WeightWalk]:
        """Loops around the steps along memory."""
        form, k = self.form, self.k
        if form.weight == "oik":
            yield WeightWalk(self.count * form.taps, self.of_row, self.in_row)
        elif form.weight == "iok":
            with k.loop(self.count) as c:
                yield WeightWalk(
                    form.taps, lambda step: (self.met(step), c), lambda o, step: self.at(o, c, step)
                )
        else:
            with k.loop(form.taps) as tap:
                yield WeightWalk(
                    self.count, lambda step: (self.met(tap), step),
                    lambda o, step: self.at(o, step, tap),
                )  # fmt: skip

    def of_row(self, step: Val) -> tuple[Val, Val]:
        return self.met(step % self.form.taps), step // self.form.taps

    def in_row(self, output: Val, step: Val) -> At:
        form = self.form
        flat = self.first * form.taps + step
        spread = Space(self.k, self.sizes, (form.inputs, *self.tap_sizes), flat).axes()
        return (self.group * form.outputs + output, *spread)

    def met(self, tap: Val) -> Val:
        """From the tap as memory counts it, and back."""
        return (self.form.taps - 1) - tap if self.form.flip else tap

    def at(self, output: Val, c: Val, tap: Val) -> At:
        """The index of an element, at a tap as memory counts it."""
        form = self.form
        taps = Space(self.k, self.sizes, self.tap_sizes, tap).axes()
        is_turned = form.weight in ("iok", "koi")
        c = self.first + c
        inner, outer = (output, c) if is_turned else (c, output)
        outer = self.group * (form.inputs if is_turned else form.outputs) + outer
        return (*taps, inner, outer) if form.weight[0] == "k" else (outer, inner, *taps)
