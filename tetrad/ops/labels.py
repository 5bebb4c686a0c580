"""Ops: class labels, integers that must name a class or say that there is none.

Losses compare labels with positions, so nothing else would notice one that is out of range.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from tetrad.core.dtypes import DType
from tetrad.core.errors import BoundsError, TetradError
from tetrad.core.op import Case, op
from tetrad.core.types import ArrayType
from tetrad.ops.cases import Rng, pick, random_shape
from tetrad.ops.rules import INDICES, Array, check_dtype

if TYPE_CHECKING:
    from tetrad.kernel.build import KernelBuilder, Val


def checked_label_type(
    labels: ArrayType, *, classes: int, ignore: int | None, what: str
) -> ArrayType:
    check_dtype(what, labels.dtype, INDICES)
    return labels


def _checked_label_cases(rng: Rng) -> Case:
    dtype, classes = pick(rng, INDICES), pick(rng, (1, 2, 7, 100))
    labels = rng.integers(0, classes, random_shape(rng)).astype(dtype.np)
    ignore = pick(rng, (None, int(np.iinfo(dtype.np).max)))
    if ignore is not None:
        labels = np.where(rng.random(labels.shape) < 0.2, labels.dtype.type(ignore), labels)
    return Case((labels,), {"classes": classes, "ignore": ignore, "what": "cross_entropy"})


@op(
    type=checked_label_type,
    cases=_checked_label_cases,
    dtypes=INDICES,
    public=False,
    may_fail=True,
)
def checked_label(labels: Array, *, classes: int, ignore: int | None, what: str) -> Array:
    """Labels as they are; one that is neither 0 to classes - 1 nor `ignore` is an error.

    >>> checked_label(np.array([2, 0, -100]), classes=3, ignore=-100, what="cross_entropy")
    array([   2,    0, -100])
    """
    bad = (labels < 0) | (labels >= classes)
    bad = bad if ignore is None else bad & (labels != ignore)
    if np.any(bad):
        raise _refused(what, classes, ignore, int(np.asarray(labels)[bad].flat[0]))
    return np.asarray(labels)


def _refused(what: str, classes: int, ignore: int | None, label: int) -> BoundsError:
    also = "" if ignore is None else f", and is not the ignored {ignore}"
    message = f"{what}: label {label} is no class: there are 0 to {classes - 1}{also}"
    return BoundsError(message, hint="pass the label to leave out as ignore_index")


@checked_label.refuse
def checked_label_refuse(
    k: KernelBuilder, dtype: DType, label: Val, *, classes: int, ignore: int | None, what: str
) -> tuple[Val, Val, Callable[[int], TetradError]]:
    top = int(np.iinfo(label.dtype.np).max)
    bad = label < 0
    bad = bad | (label > min(classes - 1, top))
    if ignore is not None and np.iinfo(label.dtype.np).min <= ignore <= top:
        bad = bad & label.ne(k.const(ignore, label.dtype))
    return bad, label, partial(_refused, what, classes, ignore)


@checked_label.lower
def checked_label_lower(
    k: KernelBuilder, label: Val, *, classes: int, ignore: int | None, what: str
) -> Val:
    return label


checked_label.not_differentiable("labels are integers")
