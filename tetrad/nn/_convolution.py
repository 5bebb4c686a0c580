"""Convolutions, as `td.nn.conv2d` and its kin: the op `conv` on arrays in either order of axes.

Receives arrays, weights and settings as users write them; checks them, brings them to the form of
the op, returns arrays. Meaning, order and derivatives are in `ops/conv`. `td.nn` loads this module
when it is first used.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import Any, NoReturn

from tetrad.arrays import functions as td
from tetrad.arrays.linear import check_precision, in_dtype
from tetrad.core.errors import DtypeError, SettingError, ShapeError
from tetrad.core.floats import guarded
from tetrad.core.sizes import product as total
from tetrad.core.source import user_source
from tetrad.nn._settings import is_whole, listed
from tetrad.ops.conv.geometry import weight_shape
from tetrad.ops.conv.op import conv
from tetrad.ops.rules import FLOATS
from tetrad.tracing.array import Array, fail
from tetrad.tracing.operands import as_array, common, convert

Ints = tuple[int, ...]
Pairs = tuple[tuple[int, int], ...]
Setting = int | Sequence[int]
Padding = str | int | Sequence[int] | Sequence[tuple[int, int]]
# axes by their letters, of one, two and three spatial axes; W may be called L
SPATIAL = {1: "W", 2: "HW", 3: "DHW"}
# orders of a weight's axes: letters, with * for the spatial ones, and the name in the op
WEIGHT_LAYOUTS = {"OI*": "oik", "IO*": "iok", "*IO": "kio", "*OI": "koi"}


@guarded
def conv1d(
    x: Any, weight: Any, bias: Any = None, *, stride: Setting = 1, padding: Padding = 0,
    dilation: Setting = 1, groups: int = 1, layout: str = "NCW", weight_layout: str = "OIW",
) -> Array:  # fmt: skip
    """Windows of x [N, C, W] times a weight [outputs, C / groups, taps]; see `conv2d`.

    >>> import tetrad as td
    >>> conv1d(td.asarray([[[1.0, 2.0, 3.0, 4.0, 5.0]]]), td.asarray([[[1.0, 0.0, -1.0]]]))
    Array([[[-2., -2., -2.]]], float32)
    """
    given = (stride, padding, dilation, groups, layout, weight_layout)
    return Convolution("conv1d", 1, *given).apply(x, weight, bias)


@guarded
def conv2d(
    x: Any, weight: Any, bias: Any = None, *, stride: Setting = 1, padding: Padding = 0,
    dilation: Setting = 1, groups: int = 1, layout: str = "NCHW", weight_layout: str = "OIHW",
) -> Array:  # fmt: skip
    """Windows of x [N, C, H, W] times a weight [outputs, C / groups, taps high, taps wide], plus a
    bias for each output. Taps are not reversed. The batch may be left out.

    `padding` is a number of zeros, one for each axis, a pair (before, after) for each axis, "VALID"
    (none) or "SAME" (the result has size / stride, rounded up). Settings are numbers, or a list
    with one for all axes or one for each. With `groups`, outputs of a group see its channels alone;
    as many groups as channels make a depthwise convolution. `layout` is NCHW or NHWC,
    `weight_layout` OIHW, HWIO, IOHW or HWOI.

    f16 and bf16 accumulate in f32 and round once.

    >>> import tetrad as td
    >>> x = td.reshape(td.arange(1.0, 17.0), (1, 1, 4, 4))
    >>> conv2d(x, td.asarray([[[[1.0, 0.0], [0.0, -1.0]]]]), stride=2)
    Array([[[[-5., -5.],
             [-5., -5.]]]], float32)
    """
    given = (stride, padding, dilation, groups, layout, weight_layout)
    return Convolution("conv2d", 2, *given).apply(x, weight, bias)


@guarded
def conv3d(
    x: Any, weight: Any, bias: Any = None, *, stride: Setting = 1, padding: Padding = 0,
    dilation: Setting = 1, groups: int = 1, layout: str = "NCDHW", weight_layout: str = "OIDHW",
) -> Array:  # fmt: skip
    """Windows of x [N, C, D, H, W] times a weight [outputs, C / groups, taps...]; see `conv2d`.

    >>> import tetrad as td
    >>> conv3d(td.ones((1, 2, 4, 4, 4)), td.ones((3, 2, 2, 2, 2)), padding="SAME").shape
    (1, 3, 4, 4, 4)
    """
    given = (stride, padding, dilation, groups, layout, weight_layout)
    return Convolution("conv3d", 3, *given).apply(x, weight, bias)


@guarded
def conv_transpose1d(
    x: Any, weight: Any, bias: Any = None, *, stride: Setting = 1, padding: Padding = 0,
    output_padding: Setting = 0, dilation: Setting = 1, groups: int = 1, layout: str = "NCW",
    weight_layout: str = "IOW",
) -> Array:  # fmt: skip
    """The transpose of `conv1d`, with a weight [C, outputs / groups, taps]; see
    `conv_transpose2d`."""
    given = (stride, padding, dilation, groups, layout, weight_layout)
    return Convolution("conv_transpose1d", 1, *given).apply_back(x, weight, bias, output_padding)


@guarded
def conv_transpose2d(
    x: Any, weight: Any, bias: Any = None, *, stride: Setting = 1, padding: Padding = 0,
    output_padding: Setting = 0, dilation: Setting = 1, groups: int = 1, layout: str = "NCHW",
    weight_layout: str = "IOHW",
) -> Array:  # fmt: skip
    """The transpose of `conv2d`: each element of x [N, C, H, W] adds a multiple of the taps of a
    weight [C, outputs / groups, taps high, taps wide] to the result, `stride` apart.

    The result has (size - 1) * stride + (taps - 1) * dilation + 1 elements along an axis, less
    `padding` at both ends, plus `output_padding` at the end, which is less than the stride or the
    dilation.

    >>> import tetrad as td
    >>> x, w = td.asarray([[[[1.0, 2.0], [3.0, 4.0]]]]), td.asarray([[[[1.0, 2.0], [3.0, 4.0]]]])
    >>> conv_transpose2d(x, w)
    Array([[[[ 1.,  4.,  4.],
             [ 6., 20., 16.],
             [ 9., 24., 16.]]]], float32)
    """
    given = (stride, padding, dilation, groups, layout, weight_layout)
    return Convolution("conv_transpose2d", 2, *given).apply_back(x, weight, bias, output_padding)


@guarded
def conv_transpose3d(
    x: Any, weight: Any, bias: Any = None, *, stride: Setting = 1, padding: Padding = 0,
    output_padding: Setting = 0, dilation: Setting = 1, groups: int = 1, layout: str = "NCDHW",
    weight_layout: str = "IODHW",
) -> Array:  # fmt: skip
    """The transpose of `conv3d`, with a weight [C, outputs / groups, taps...]; see
    `conv_transpose2d`."""
    given = (stride, padding, dilation, groups, layout, weight_layout)
    return Convolution("conv_transpose3d", 3, *given).apply_back(x, weight, bias, output_padding)


@guarded
def conv_general_dilated(
    lhs: Any, rhs: Any, window_strides: Sequence[int], padding: str | Sequence[tuple[int, int]], *,
    lhs_dilation: Sequence[int] | None = None, rhs_dilation: Sequence[int] | None = None,
    dimension_numbers: tuple[str, str, str] | None = None, feature_group_count: int = 1,
    precision: Any = None, preferred_element_type: Any = None,
) -> Array:  # fmt: skip
    """The convolution of `jax.lax`, of one to three spatial axes. `lhs_dilation` puts holes between
    elements of x; padding counts them, and may be negative. `dimension_numbers` are the letters of
    the axes of both sides and of the result, ("NCHW", "OIHW", "NCHW") unless given. `precision` and
    `preferred_element_type` as in `td.matmul`.

    >>> import tetrad as td
    >>> x = td.asarray([[[1.0, 2.0, 3.0]]])
    >>> conv_general_dilated(x, td.asarray([[[1.0, 10.0]]]), (1,), [(1, 1)], lhs_dilation=(2,))
    Array([[[10.,  1., 20.,  2., 30.,  3.]]], float32)
    """
    name = "conv_general_dilated"
    check_precision(name, precision)
    (x, weight), kind = in_dtype(name, (lhs, rhs), None, preferred_element_type)
    x, weight = convert(x, kind), convert(weight, kind)
    axes = x.ndim - 2
    if axes not in SPATIAL:
        fail(ShapeError, f"{name}: lhs {x.type} has {axes} spatial axes", "1 to 3 are supported")
    letters = SPATIAL[axes]
    specs = dimension_numbers or (f"NC{letters}", f"OI{letters}", f"NC{letters}")
    left, right, result = (_letters(spec, axes) for spec in specs)
    given = (window_strides, "VALID", rhs_dilation or 1, feature_group_count)
    made = Convolution(name, axes, *given, f"NC{letters}", f"OI{letters}")
    x = td.permute_dims(x, _order(name, left, f"NC{letters}"))
    w = td.permute_dims(weight, _order(name, right, f"OI{letters}"))
    found = made.apply(x, w, None, holes=lhs_dilation or 1, widths=padding)
    return td.permute_dims(found, _order(name, f"NC{letters}", result))


@guarded
def im2col(
    x: Any, kernel_size: Setting, *, stride: Setting = 1, padding: Padding = 0,
    dilation: Setting = 1, layout: str = "NCHW",
) -> Array:  # fmt: skip
    """The windows of x [N, C, H, W], one a row: [N * places, C * taps], so that a convolution is a
    product with a weight [outputs, C * taps].

    >>> import tetrad as td
    >>> im2col(td.reshape(td.arange(1.0, 10.0), (1, 1, 3, 3)), 2)
    Array([[1., 2., 4., 5.],
           [2., 3., 5., 6.],
           [4., 5., 7., 8.],
           [5., 6., 8., 9.]], float32)
    """
    name, x = "im2col", as_array(x)
    axes = x.ndim - 2
    if axes not in SPATIAL:
        fail(ShapeError, f"{name}: x {x.type} has {axes} spatial axes", "1 to 3 are supported")
    if len(layout) != x.ndim:
        fail(ShapeError, f"{name}: x {x.type} does not have the axes {layout}")
    made = Convolution(name, axes, stride, padding, dilation, 1, layout, f"OI{SPATIAL[axes]}")
    x = td.moveaxis(x, -1, 1) if made.last else x
    taps = made.numbers("kernel_size", kernel_size, 1)
    widths = made.widths(x.shape[2:], taps, padding, (1,) * axes)
    size = made.sizes(x.shape[2:], taps, widths, (1,) * axes)
    wide = td.pad(x, ((0, 0), (0, 0), *widths))
    windows = []
    for tap in product(*(range(n) for n in taps)):
        starts = [k * d for k, d in zip(tap, made.dilation, strict=True)]
        cuts = zip(starts, size, made.stride, strict=True)
        places = tuple(slice(at, at + (n - 1) * s + 1 if n else at, s) for at, n, s in cuts)
        windows.append(wide[(slice(None), slice(None), *places)])
    columns = td.moveaxis(td.stack(windows, axis=2), (1, 2), (-2, -1))
    return td.reshape(columns, (x.shape[0] * total(size), x.shape[1] * len(windows)))


class Convolution:
    """Checked settings of a convolution of some spatial axes."""

    def __init__(
        self, name: str, axes: int, stride: Setting, padding: Padding, dilation: Setting,
        groups: int, layout: str, weight_layout: str,
    ) -> None:  # fmt: skip
        self.name, self.axes, self.padding = name, axes, padding
        self.stride = self.numbers("stride", stride, 1)
        self.dilation = self.numbers("dilation", dilation, 1)
        self.groups = self.numbers("groups", groups, 1, 1)[0]
        self.last = self.layout(layout)
        self.weight = self.weight_layout(weight_layout)

    def numbers(self, what: str, given: Setting, least: int, count: int = 0) -> Ints:
        """One for each axis."""
        count = count or self.axes
        entries = listed(given)
        if not all(is_whole(n) for n in entries):
            self.refuse(what, "a whole number or a list of them", given)
        if len(entries) not in (1, count):
            self.refuse(what, f"1 entry or {count}, one for each axis", given)
        if any(n < least for n in entries):
            self.refuse(what, f"numbers of at least {least}", given)
        return tuple(entries) * (count if len(entries) == 1 else 1)

    def refuse(self, what: str, expected: str, got: object) -> NoReturn:
        refuse(f"{self.name}: {what}", expected, got)

    def layout(self, given: str) -> bool:
        """Are channels last?"""
        letters = SPATIAL[self.axes]
        known = [f"NC{letters}", f"N{letters}C"]
        if _letters(given, self.axes) not in known:
            self.refuse("layout", " or ".join(known), given)
        return _letters(given, self.axes)[-1] == "C"

    def weight_layout(self, given: str) -> str:
        letters = SPATIAL[self.axes]
        known = {key.replace("*", letters): value for key, value in WEIGHT_LAYOUTS.items()}
        if _letters(given, self.axes) not in known:
            self.refuse("weight_layout", " or ".join(known), given)
        return known[_letters(given, self.axes)]

    # -- sizes -------------------------------------------------------------------------------------

    def widths(self, sizes: Sequence[Any], taps: Ints, given: Any, holes: Ints) -> Pairs:
        """Zeros before and after, along each axis."""
        if isinstance(given, str):
            return self.named_widths(sizes, taps, given.upper(), holes)
        entries = listed(given)
        if len(entries) not in (1, self.axes):
            self.refuse("padding", f"1 entry or {self.axes}, one for each axis", given)
        pairs = [(n, n) if is_whole(n) else tuple(listed(n)) for n in entries]
        if any(len(p) != 2 or not all(is_whole(n) for n in p) for p in pairs):
            self.refuse("padding", "for each axis a number or a pair (before, after)", given)
        return tuple(pairs) * (self.axes if len(pairs) == 1 else 1)

    def named_widths(self, sizes: Sequence[Any], taps: Ints, given: str, holes: Ints) -> Pairs:
        if given not in ("SAME", "VALID"):
            self.refuse("padding", "numbers, 'SAME' or 'VALID'", given)
        if given == "VALID":
            return ((0, 0),) * self.axes
        found = []
        for n, k, s, d, h in zip(sizes, taps, self.stride, self.dilation, holes, strict=True):
            wide = (n - 1) * h + 1 if n else 0
            short = max((-(-wide // s) - 1) * s + (k - 1) * d + 1 - wide, 0)
            found.append((short // 2, short - short // 2))
        return tuple(found)

    def sizes(self, sizes: Sequence[Any], taps: Ints, widths: Pairs, holes: Ints) -> Ints:
        """Of the result; a window that does not fit is an error."""
        found = []
        each = zip(sizes, taps, widths, self.stride, self.dilation, holes, strict=True)
        for n, k, (low, high), s, d, h in each:
            if not isinstance(n, int):
                fail(ShapeError, f"{self.name}: only the batch may be a Dim, got sizes {sizes}")
            wide, window = ((n - 1) * h + 1 if n else 0) + low + high, (k - 1) * d + 1
            if wide < window and n:
                fail(
                    ShapeError,
                    f"{self.name}: a window of {window} does not fit into {wide} elements ({n} and "
                    f"padding {(low, high)})",
                    "more padding, less dilation, or fewer taps",
                )
            found.append(max((wide - window) // s + 1, 0))
        return tuple(found)

    # -- applying ----------------------------------------------------------------------------------

    def apply(self, x: Any, weight: Any, bias: Any, holes: Any = 1, widths: Any = None) -> Array:
        x, w, is_single = self.operands(x, weight)
        gaps = self.numbers("lhs_dilation", holes, 1)
        sizes, taps = self.spatial(x), self.taps(w)
        found = self.widths(sizes, taps, self.padding if widths is None else widths, gaps)
        if widths is None and any(n < 0 for pair in found for n in pair):
            self.refuse("padding", "numbers of at least 0", self.padding)
        made = self.sizes(sizes, taps, found, gaps)
        low = tuple(before for before, _ in found)
        self.check_weight(x, w, False)
        return self.finish(
            self.run(x, w, low=low, size=made, stride=self.stride, holes=gaps, flip=False), bias,
            is_single,
        )  # fmt: skip

    def apply_back(self, x: Any, weight: Any, bias: Any, output_padding: Setting) -> Array:
        """The transpose: strides become holes, taps are met from the last on."""
        x, w, is_single = self.operands(x, weight)
        more = self.numbers("output_padding", output_padding, 0)
        sizes, taps, ones = self.spatial(x), self.taps(w), (1,) * self.axes
        if isinstance(self.padding, str):
            self.refuse("padding", "numbers", self.padding)
        widths = self.widths(sizes, taps, self.padding, ones)
        if any(n < 0 for pair in widths for n in pair):
            self.refuse("padding", "numbers of at least 0", self.padding)
        made, low = [], []
        for n, k, (before, after), s, d, o in zip(
            sizes, taps, widths, self.stride, self.dilation, more, strict=True
        ):
            if o >= max(s, d):
                self.refuse("output_padding", "less than stride or dilation", output_padding)
            made.append((n - 1) * s - before - after + d * (k - 1) + o + 1 if n else 0)
            low.append((k - 1) * d - before)
        if any(n < 0 for n in made):
            fail(ShapeError, f"{self.name}: padding {self.padding!r} leaves sizes {made}")
        self.check_weight(x, w, True)
        found = self.run(
            x, w, low=tuple(low), size=tuple(made), stride=ones, holes=self.stride, flip=True
        )
        return self.finish(found, bias, is_single)

    def operands(self, x: Any, weight: Any) -> tuple[Array, Array, bool]:
        """Of one dtype, with a batch; and whether x had none."""
        x, w = common([as_array(x), as_array(weight)])
        if x.dtype not in FLOATS:
            fail(DtypeError, f"{self.name}: takes floats, got {x.type}", "convert with astype")
        rank = self.axes + 2
        if x.ndim not in (rank - 1, rank) or w.ndim != rank:
            fail(
                ShapeError,
                f"{self.name}: x needs {rank} axes, or {rank - 1} without a batch, a weight {rank};"
                f" got {x.type} and {w.type}",
            )
        return (x if x.ndim == rank else td.expand_dims(x, axis=0)), w, x.ndim == rank - 1

    def spatial(self, x: Array) -> Any:
        return x.shape[1:-1] if self.last else x.shape[2:]

    def taps(self, w: Array) -> Ints:
        return w.shape[:-2] if self.weight[0] == "k" else w.shape[2:]

    def check_weight(self, x: Array, w: Array, is_back: bool) -> None:
        """Groups divide channels, and the weight has what they need."""
        channels, groups = x.shape[-1] if self.last else x.shape[1], self.groups
        outer = w.shape[-1] if self.weight[0] == "k" else w.shape[0]
        inner = w.shape[-2] if self.weight[0] == "k" else w.shape[1]
        is_turned = self.weight in ("iok", "koi")
        outputs = inner * groups if is_turned else outer
        for what, count in (("channels of x", channels), ("outputs", outputs)):
            if count % groups:
                fail(ShapeError, f"{self.name}: {count} {what} are not {groups} equal groups")
        taps = self.taps(w)
        wanted = weight_shape(self.weight, groups, channels // groups, outputs // groups, taps)
        if w.shape != wanted:
            fail(
                ShapeError,
                f"{self.name}: x {x.type} in {groups} groups needs a weight {list(wanted)}, got "
                f"{w.type}",
                f"its axes are {'inputs, outputs' if is_turned else 'outputs, inputs'} and taps, "
                "in the order of weight_layout; beside each other, one counts channels of a group",
            )

    def run(self, x: Array, w: Array, **settings: Any) -> Array:
        made: Array = conv(
            x, w, dilation=self.dilation, groups=self.groups, last=self.last, weight=self.weight,
            **settings,
        )  # fmt: skip
        return made

    def finish(self, y: Array, bias: Any, is_single: bool) -> Array:
        if bias is not None:
            y = y + self.spread(as_array(bias), y)
        return td.reshape(y, y.shape[1:]) if is_single else y

    def spread(self, bias: Array, y: Array) -> Array:
        """Of outputs, beside the axes that follow."""
        outputs = y.shape[-1] if self.last else y.shape[1]
        if bias.shape != (outputs,):
            fail(ShapeError, f"{self.name}: a bias has {outputs} elements, got {bias.type}")
        shape = (outputs,) if self.last else (outputs, *(1,) * self.axes)
        return td.reshape(bias, shape)


def refuse(what: str, expected: str, got: object) -> NoReturn:
    raise SettingError(what, expected, got, source=user_source())


def _letters(given: str, axes: int) -> str:
    """In capitals; one spatial axis may be called L."""
    found = str(given).upper()
    return found.replace("L", "W") if axes == 1 else found


def _order(name: str, given: str, wanted: str) -> Ints:
    """The axes of an array with letters `given`, as `wanted` has them."""
    if sorted(given) != sorted(wanted):
        refuse(f"{name}: dimension_numbers", f"an order of {wanted}", given)
    return tuple(given.index(letter) for letter in wanted)
