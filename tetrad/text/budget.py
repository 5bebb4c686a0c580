"""What a template may use up: steps, processor time, memory and output.

Receives the size of what the template was given; every operation of the sandbox charges its part
here, and the first to exceed a limit ends the rendering with a `TemplateError`.
"""

from __future__ import annotations

import sys
import time
from collections.abc import ItemsView, Iterable, KeysView, Sequence, ValuesView
from contextvars import ContextVar
from typing import TypeVar

from tetrad.core.errors import TemplateError

V = TypeVar("V")

STEPS = 1_000_000
SECONDS = 1.0  # of processor time, so that a busy machine changes nothing
VALUE_BYTES = 1 << 20  # one value, everything it contains counted as often as it is contained
TOTAL_BYTES = 1 << 25  # all values made, also those forgotten since
OUTPUT_CHARACTERS = 1 << 22
INTEGER_BITS = 4096
DEPTH = 64
SCALAR_BYTES = 16  # numbers, and objects that hold nothing of the template
CLOCK_STEPS = 256  # the clock is read once in so many steps
CONTAINERS = (list, tuple, dict, KeysView, ValuesView, ItemsView)


class Budget:
    """The counters of one rendering. What was given (`data`) widens the limits in proportion, so
    long chats fit."""

    def __init__(self, data: object) -> None:
        # Values that were weighed, by identity; kept alive here, so an identity is never that of
        # another value.
        self.weighed: dict[int, tuple[object, int, int]] = {}
        self.value_bytes = self.total_bytes = sys.maxsize
        given, _ = self.weigh(data)
        self.steps_left = STEPS + 16 * given
        self.value_bytes = VALUE_BYTES + 2 * given
        self.total_bytes = TOTAL_BYTES + 32 * given
        # the output of a macro counts again where it is printed
        self.output_left = OUTPUT_CHARACTERS + 8 * given
        self.deadline = time.thread_time() + SECONDS + given * 4e-6
        self.next_clock = self.steps_left - CLOCK_STEPS

    def step(self, count: int = 1) -> None:
        """Charge some steps."""
        self.steps_left -= count
        if self.steps_left < self.next_clock:
            self.next_clock = self.steps_left - CLOCK_STEPS
            if self.steps_left < 0 or time.thread_time() > self.deadline:
                raise too_much("it takes too many steps")

    def write(self, characters: int) -> None:
        """Charge output, also that of macros and blocks."""
        self.output_left -= characters
        if self.output_left < 0:
            raise too_much("it writes too much")

    def fits(self, size: int) -> None:
        """Refuse a value of `size` bytes before it is made."""
        if size > self.value_bytes:
            raise too_much(
                f"it makes a value of about {size} bytes; {self.value_bytes} are allowed"
            )

    def made(self, value: V) -> V:
        """Charge a value that was made, and hand it on."""
        self.step()
        if isinstance(value, int) and value.bit_length() > INTEGER_BITS:
            raise too_much(
                f"it makes an integer of {value.bit_length()} bits; {INTEGER_BITS} are allowed"
            )
        if isinstance(value, str | Sequence | dict):
            self.fits(self.weigh(value)[0])
            self.total_bytes -= sys.getsizeof(value)
            if self.total_bytes < 0:
                raise too_much("it makes too many values")
        return value

    def weigh(self, value: object) -> tuple[int, int]:
        """Bytes and depth of a value as if nothing in it were shared: printing and comparing walk
        it like that."""
        if not isinstance(value, CONTAINERS):
            return sys.getsizeof(value) if isinstance(value, str) else SCALAR_BYTES, 0
        known = self.weighed.get(id(value))
        if known is not None:
            return known[1], known[2]
        weight, depth = sys.getsizeof(value), 0
        for child in children(value):
            child_weight, child_depth = self.weigh(child)
            weight, depth = weight + child_weight, max(depth, child_depth)
        if depth >= DEPTH:
            raise too_much(f"it nests values more than {DEPTH} deep")
        if isinstance(value, list | tuple | dict):
            self.weighed[id(value)] = value, weight, depth + 1
        return weight, depth + 1


def children(value: object) -> Iterable[object]:
    if isinstance(value, dict):
        return (part for pair in value.items() for part in pair)
    return value if isinstance(value, CONTAINERS) else ()


def too_much(why: str) -> TemplateError:
    return TemplateError(
        f"chat template: stopped, because {why}",
        hint="the template is broken or hostile; give one of your own, or take a model from "
        "elsewhere",
    )


CURRENT: ContextVar[Budget] = ContextVar("budget of the template being rendered")
