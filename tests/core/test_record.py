"""Records: what a frozen dataclass with slots does, at a fraction of the cost of making the
class."""

from __future__ import annotations

import copy
import dataclasses
import weakref

import pytest

from tetrad.core.record import defaults, field, fields, record, replace


@record
class Base:
    x: int


@record
class Point(Base):
    """A subclass: fields of the base come first."""

    y: int = 5
    seen: list[int] = field(default_factory=list)
    hidden: str = field(repr=False, default_factory=str)


@record(eq=False)
class Thing:
    name: str


@record(frozen=False)
class Counter:
    count: int = 0


@dataclasses.dataclass(frozen=True, slots=True)
class Standard:
    x: int
    y: int = 5


@record
class Ours:
    x: int
    y: int = 5


def test_fields_and_defaults_come_in_order_the_base_first():
    assert fields(Point) == fields(Point(1)) == ("x", "y", "seen", "hidden")
    assert defaults(Point)["y"] == 5
    assert "x" not in defaults(Point)


@pytest.mark.parametrize("arguments", [(1,), (1, 2)])
def test_agrees_with_the_standard_dataclass(arguments):
    ours, standard = Ours(*arguments), Standard(*arguments)
    assert repr(ours).replace("Ours", "Standard") == repr(standard)
    assert hash(ours) == hash(standard)
    assert ours == Ours(*arguments) and ours != Ours(0) and ours != standard


def test_a_default_that_is_made_is_not_shared():
    a, b = Point(1), Point(1)
    assert a.seen == [] and a.seen is not b.seen


def test_repr_leaves_out_what_it_is_told_to():
    assert repr(Point(1, hidden="long")) == "Point(x=1, y=5, seen=[])"


def test_records_do_not_change_and_have_no_other_attributes():
    for change in (
        lambda p: setattr(p, "x", 2),
        lambda p: setattr(p, "z", 2),
        lambda p: delattr(p, "x"),
    ):
        with pytest.raises(AttributeError, match="records do not change"):
            change(Base(1))
    assert not hasattr(Base(1), "__dict__")


def test_one_that_is_not_frozen_changes_and_has_no_hash():
    counter = Counter()
    counter.count += 1
    assert counter == Counter(1)
    with pytest.raises(TypeError):
        hash(counter)


def test_identity_is_equality_when_asked_for():
    assert Thing("a") != Thing("a")
    assert len({Thing("a"), Thing("a")}) == 2


def test_weak_references_only_where_there_is_a_slot_for_them():
    @record(weakref_slot=True)
    class Watched:
        x: int

    watched = Watched(1)
    assert weakref.ref(watched)() is watched
    with pytest.raises(TypeError):
        weakref.ref(Base(1))


def test_copies_and_replacements_are_equal_values():
    point = Point(1, 2, [3])
    assert copy.copy(point) == copy.deepcopy(point) == point
    assert replace(point, y=7) == Point(1, 7, [3])


@pytest.mark.parametrize(
    ("arguments", "named", "message"),
    [
        ((), {}, "Ours needs the argument 'x'"),
        ((1, 2, 3), {}, r"Ours\(x, y\) got 3 arguments"),
        ((1,), {"z": 1}, "unexpected or repeated argument 'z'"),
        ((1,), {"x": 1}, "unexpected or repeated argument 'x'"),
    ],
)
def test_wrong_arguments_are_refused_by_name(arguments, named, message):
    with pytest.raises(TypeError, match=message):
        Ours(*arguments, **named)


def test_arguments_by_position_by_name_and_left_out_mean_the_same():
    assert Ours(1) == Ours(x=1) == Ours(1, y=5) == Ours(y=5, x=1) == Ours(1, 5)
