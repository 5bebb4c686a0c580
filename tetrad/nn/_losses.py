"""Neural networks, losses: scores and targets in, one number out, or one for each example.

The losses of PyTorch by their names there. They are compositions whose derivatives compile to one
pass over the scores: a cross entropy with its gradient reads logits once and writes the gradient
once. Sums of f16 and bf16 are made in f32.
"""

from __future__ import annotations

import math
from typing import Any

from tetrad.arrays import functions as td
from tetrad.arrays.creation import positions
from tetrad.core.dtypes import DType, f32
from tetrad.core.errors import DtypeError, ShapeError
from tetrad.nn import _largest, _wide, softplus
from tetrad.nn._settings import check_choice, refuse
from tetrad.tracing.array import Array, fail
from tetrad.tracing.operands import as_array, axis_of, common, run

REDUCTIONS = ("mean", "sum", "none")
LEAST_LOG = -100.0  # of a probability, as in PyTorch: a loss stays finite


def cross_entropy(
    logits: Any,
    labels: Any,
    *,
    axis: int = -1,
    weight: Any = None,
    ignore_index: int | None = -100,
    label_smoothing: float = 0.0,
    reduction: str = "mean",
) -> Array:
    """The negative logarithm of the probability that softmax gives the label.

    Labels are integers, of the shape of the logits without the class axis: each names a class or is
    `ignore_index`, which counts for nothing. Or they are probabilities, of the shape of the logits.
    `weight` has a factor for each class; a mean is weighted by it, as in PyTorch.

    >>> import tetrad as td
    >>> logits = td.asarray([[1.0, 2.0, 3.0], [5.0, 5.0, 5.0]])
    >>> cross_entropy(logits, td.asarray([2, 1]), reduction="none")
    Array([0.40760595, 1.0986123 ], float32)
    >>> cross_entropy(logits, td.asarray([2, -100]))
    Array(0.40760595, float32)
    """
    _check_reduction("cross_entropy", reduction)
    if not 0 <= label_smoothing <= 1:
        refuse("cross_entropy", "label_smoothing", "0 to 1", label_smoothing)
    wide, dtype = _floats(logits)
    labels, axis = as_array(labels), axis_of("cross_entropy", axis, wide.ndim)
    factors = None if weight is None else _class_weights(weight, wide, axis)
    if labels.dtype.is_integer:
        losses, counts = _of_labels(wide, labels, axis, factors, ignore_index, label_smoothing)
    else:
        losses = _of_probabilities(wide, labels, axis, factors, label_smoothing)
        counts = None
    return td.astype(_reduced(losses, reduction, counts), dtype)


def _of_labels(
    x: Array, labels: Array, axis: int, weight: Any, ignore: int | None, smoothing: float
) -> tuple[Array, Array | None]:
    """Losses, and what each counts in a mean (None: one)."""
    classes = x.shape[axis]
    rest = (*x.shape[:axis], *x.shape[axis + 1 :])
    if labels.shape != rest:
        expected = f"integer labels of {x.type} along axis {axis} have the shape {list(rest)}"
        fail(ShapeError, f"cross_entropy: {expected}, got {labels.type}")
    labels = run("checked_label", labels, classes=classes, ignore=ignore, what="cross_entropy")
    kept = None if ignore is None else td.expand_dims(labels != ignore, axis=axis)
    # a row that does not count has no say, whatever it holds
    x = x if kept is None else td.where(kept, x, 0)
    apart, total = _apart(x, axis)
    shape = tuple(classes if a == axis else 1 for a in range(x.ndim))
    hit = td.reshape(positions(classes), shape) == td.expand_dims(labels, axis=axis)
    scores: Any = apart
    own: Any = 1
    every: Any = classes
    if weight is not None:
        scores, every = weight * apart, td.sum(weight)
        own = td.sum(td.where(hit, weight, 0), axis=axis, keepdims=True)
    # `total` stands outside the sum: its derivative is one number a row
    losses = own * total - td.sum(td.where(hit, scores, 0), axis=axis, keepdims=True)
    if smoothing:
        evenly = every * total - td.sum(scores, axis=axis, keepdims=True)
        losses = (1 - smoothing) * losses + (smoothing / classes) * evenly
    losses = losses if kept is None else td.where(kept, losses, 0)
    return td.squeeze(losses, axis), _counts(kept, own, axis, x)


def _counts(kept: Array | None, own: Any, axis: int, x: Array) -> Array | None:
    """What each loss counts in a mean; None if that is one."""
    if kept is None:
        return None if isinstance(own, int) else td.squeeze(own, axis)
    return td.squeeze(td.astype(td.where(kept, own, 0), x.dtype), axis)


def _of_probabilities(x: Array, targets: Array, axis: int, weight: Any, smoothing: float) -> Array:
    if not targets.dtype.is_float or targets.shape != x.shape:
        fail(
            ShapeError,
            f"cross_entropy: labels are integers, or probabilities like {x.type}, "
            f"got {targets.type}",
            "convert class numbers with astype",
        )
    targets = td.astype(targets, x.dtype)
    apart, total = _apart(x, axis)
    # what is impossible and has no probability costs nothing
    apart = td.where(td.logical_and(targets == 0, apart == -math.inf), 0, apart)
    if smoothing:
        targets = (1 - smoothing) * targets + smoothing / x.shape[axis]
    cost = targets * (total - apart)
    return td.sum(cost if weight is None else weight * cost, axis=axis)


def _apart(x: Array, axis: int) -> tuple[Array, Array]:
    """The distance of scores to their largest, and the logarithm of the sum of its exponentials:
    their difference is the logarithm of softmax."""
    apart = x - _largest(x, axis)
    return apart, td.log(td.sum(td.exp(apart), axis=axis, keepdims=True))


def _class_weights(weight: Any, x: Array, axis: int) -> Array:
    weight = as_array(weight)
    if weight.shape != (x.shape[axis],):
        fail(
            ShapeError,
            f"cross_entropy: weight has a number for each of {x.shape[axis]} classes, "
            f"got {weight.type}",
        )
    shape = tuple(n if a == axis else 1 for a, n in enumerate(x.shape))
    return td.astype(td.reshape(weight, shape), x.dtype)


def binary_cross_entropy(
    probabilities: Any, targets: Any, *, weight: Any = None, reduction: str = "mean"
) -> Array:
    """-(t log p + (1 - t) log(1 - p)); a logarithm counts as -100 at least, as in PyTorch.

    >>> import tetrad as td
    >>> binary_cross_entropy(td.asarray([0.5, 1.0]), td.asarray([1.0, 0.0]), reduction="none")
    Array([  0.6931472, 100.       ], float32)
    """
    p, t, dtype = _pair("binary_cross_entropy", probabilities, targets)
    yes, no = (_held_log(log, part) for log, part in ((td.log, p), (_log_of_rest, p)))
    return _finished("binary_cross_entropy", -(t * yes + (1 - t) * no), weight, reduction, dtype)


def _log_of_rest(p: Array) -> Array:
    return td.log1p(-p)


def _held_log(log: Any, p: Array) -> Array:
    """log(p), at least LEAST_LOG; the derivative stays finite where there is none."""
    far = log(p) < LEAST_LOG
    return td.where(far, LEAST_LOG, log(td.where(far, 0.5, p)))  # type: ignore[no-any-return]


def binary_cross_entropy_with_logits(
    logits: Any,
    targets: Any,
    *,
    weight: Any = None,
    pos_weight: Any = None,
    reduction: str = "mean",
) -> Array:
    """`binary_cross_entropy` of the sigmoid, accurate where that is 0 or 1; `pos_weight` scales
    what targets of 1 cost.

    >>> import tetrad as td
    >>> binary_cross_entropy_with_logits(td.asarray([0.0, 1000.0]), td.asarray([1.0, 1.0]))
    Array(0.3465736, float32)
    """
    name = "binary_cross_entropy_with_logits"
    x, t, dtype = _pair(name, logits, targets)
    yes = softplus(-x)
    cost = t * (yes if pos_weight is None else yes * pos_weight) + (1 - t) * softplus(x)
    return _finished(name, cost, weight, reduction, dtype)


def mse_loss(x: Any, target: Any, *, weight: Any = None, reduction: str = "mean") -> Array:
    """The square of the difference.

    >>> import tetrad as td
    >>> mse_loss(td.asarray([1.0, 5.0]), td.asarray([1.0, 2.0]))
    Array(4.5, float32)
    """
    a, b, dtype = _pair("mse_loss", x, target)
    return _finished("mse_loss", td.square(a - b), weight, reduction, dtype)


def l1_loss(x: Any, target: Any, *, weight: Any = None, reduction: str = "mean") -> Array:
    """The distance."""
    a, b, dtype = _pair("l1_loss", x, target)
    return _finished("l1_loss", td.abs(a - b), weight, reduction, dtype)


def huber_loss(
    x: Any, target: Any, *, delta: float = 1.0, weight: Any = None, reduction: str = "mean"
) -> Array:
    """Half the square of the distance up to `delta`; beyond, a straight line of slope `delta`.

    >>> import tetrad as td
    >>> huber_loss(td.asarray([0.5, 3.0]), td.zeros(2), reduction="none")
    Array([0.125, 2.5  ], float32)
    """
    _check_positive("huber_loss", "delta", delta)
    a, b, dtype = _pair("huber_loss", x, target)
    return _finished("huber_loss", _huber(td.abs(a - b), delta), weight, reduction, dtype)


def _huber(far: Array, delta: float) -> Array:
    return td.where(far <= delta, 0.5 * td.square(far), delta * (far - 0.5 * delta))  # type: ignore[no-any-return]


def smooth_l1_loss(
    x: Any, target: Any, *, beta: float = 1.0, weight: Any = None, reduction: str = "mean"
) -> Array:
    """`huber_loss` over `beta`: a straight line of slope 1 beyond that distance; of 0 it is
    `l1_loss`."""
    if beta == 0:
        return l1_loss(x, target, weight=weight, reduction=reduction)
    _check_positive("smooth_l1_loss", "beta", beta)
    a, b, dtype = _pair("smooth_l1_loss", x, target)
    cost = _huber(td.abs(a - b), beta) / beta
    return _finished("smooth_l1_loss", cost, weight, reduction, dtype)


def kl_div(x: Any, target: Any, *, log_target: bool = False, reduction: str = "mean") -> Array:
    """target (log target - x), for x that is a logarithm of probabilities; `reduction="batchmean"`
    sums, and divides by the first axis.

    >>> import tetrad as td
    >>> x = td.log(td.asarray([[0.5, 0.5]]))
    >>> kl_div(x, td.asarray([[1.0, 0.0]]), reduction="sum")
    Array(0.6931472, float32)
    """
    a, t, dtype = _pair("kl_div", x, target)
    if log_target:
        cost = td.exp(t) * (t - a)
    else:
        some = t > 0  # of nothing nothing is lost
        cost = td.where(some, t * (td.log(td.where(some, t, 1)) - a), 0)
    if reduction == "batchmean":
        return td.astype(td.sum(cost) / cost.shape[0], dtype)
    return _finished("kl_div", cost, None, reduction, dtype)


def hinge_loss(x: Any, target: Any, *, weight: Any = None, reduction: str = "mean") -> Array:
    """How far target x stays below 1, for targets of -1 and 1.

    >>> import tetrad as td
    >>> hinge_loss(td.asarray([0.5, 2.0]), td.asarray([1.0, -1.0]), reduction="none")
    Array([0.5, 3. ], float32)
    """
    a, t, dtype = _pair("hinge_loss", x, target)
    short = 1 - t * a
    return _finished("hinge_loss", td.where(short <= 0, 0, short), weight, reduction, dtype)


def hinge_embedding_loss(
    x: Any, target: Any, *, margin: float = 1.0, reduction: str = "mean"
) -> Array:
    """The distance x where the target is 1; where it is -1, how far x stays below the margin."""
    a, t, dtype = _pair("hinge_embedding_loss", x, target)
    short = margin - a
    cost = td.where(t == 1, a, 0) + td.where(td.logical_or(t == 1, short <= 0), 0, short)
    return _finished("hinge_embedding_loss", cost, None, reduction, dtype)


def cosine_similarity(x: Any, y: Any, *, axis: int = -1, eps: float = 1e-8) -> Array:
    """The cosine of the angle between vectors along an axis; lengths count as `eps` at least.

    >>> import tetrad as td
    >>> cosine_similarity(td.asarray([3.0, 4.0]), td.asarray([4.0, 3.0]))
    Array(0.96, float32)
    """
    (a, kind), (b, other) = _floats(x), _floats(y)
    a, b = common((a, b))
    dtype = kind if kind == other else a.dtype
    # of the square, so that the derivative at 0 is finite
    lengths = [td.sqrt(td.maximum(td.sum(td.square(v), axis=axis), eps * eps)) for v in (a, b)]
    return td.astype(td.sum(a * b, axis=axis) / (lengths[0] * lengths[1]), dtype)


def cosine_embedding_loss(
    x: Any, y: Any, target: Any, *, margin: float = 0.0, axis: int = -1, reduction: str = "mean"
) -> Array:
    """1 - cosine where the target is 1; where it is -1, how far the cosine exceeds the margin."""
    cosine = cosine_similarity(x, y, axis=axis)
    a, t, dtype = _pair("cosine_embedding_loss", cosine, target)
    over = td.where(a <= margin, 0, a - margin)
    cost = td.where(t == 1, 1 - a, over)
    return _finished("cosine_embedding_loss", cost, None, reduction, dtype)


# -- what losses share -----------------------------------------------------------------------------


def _floats(x: Any) -> tuple[Array, DType]:
    """The array in at least 32 bits of a float type, and the dtype to return."""
    wide, dtype = _wide(x)
    return (wide, dtype) if dtype.is_float else (td.astype(wide, f32), f32)


def _pair(name: str, x: Any, target: Any) -> tuple[Array, Array, DType]:
    """Both as floats of one type, and the dtype to return."""
    a, dtype = _floats(x)
    b = as_array(target)
    if a.shape != b.shape:
        fail(
            ShapeError,
            f"{name}: x and target have one shape, got {a.type} and {b.type}",
            "broadcast one of them with td.broadcast_to, or td.squeeze an axis",
        )
    if b.dtype.is_complex:
        fail(DtypeError, f"{name}: takes real numbers, got {b.type}")
    return a, td.astype(b, a.dtype), dtype


def _finished(name: str, losses: Array, weight: Any, reduction: str, dtype: DType) -> Array:
    _check_reduction(name, reduction)
    weighted = losses if weight is None else losses * weight
    return td.astype(_reduced(weighted, reduction, None), dtype)


def _reduced(losses: Array, reduction: str, counts: Array | None) -> Array:
    if reduction == "none":
        return losses
    if reduction == "sum":
        return td.sum(losses)
    if counts is None:
        return td.mean(losses)
    return td.sum(losses) / td.sum(counts)  # type: ignore[no-any-return]


def _check_reduction(name: str, reduction: str) -> None:
    check_choice(name, "reduction", REDUCTIONS, reduction)


def _check_positive(name: str, setting: str, value: float) -> None:
    if not value > 0:
        refuse(name, setting, "a positive number", value)
