"""Plans of convolutions: the box of places that a workgroup takes, its register tile, its share of
the outputs.

A geometry, a dtype and a machine in, frozen data out. No plan changes the order of a sum
(`ops.conv.op`).
"""

from __future__ import annotations

from itertools import product
from math import prod

from tetrad.core.dtypes import DType
from tetrad.core.machine import LANES, Machine, RegisterTile
from tetrad.core.record import record
from tetrad.ops.conv.geometry import ConvAxis, ConvGeometry, Ints
from tetrad.ops.matmul.plan import lie_apart

AXES = 3  # every geometry is seen with three axes
STAGED_BYTES = 256 << 10  # of x in a workgroup: a quarter of the second cache
UNROLL = 24  # multiplications of a tile written out
# In multiplications of a whole vector: to copy a vector of x, and what a workgroup costs besides.
COPIED, BEGIN = 12, 4096
PARTS = 4  # of the outputs, for each thread at most


@record
class ConvPlan:
    """How the kernels of one convolution are written."""

    box: Ints  # places of a workgroup, along each axis
    rows: int  # places of a register tile, along the last axis
    vectors: int  # of outputs in a tile
    panels: int  # tiles of outputs in a workgroup
    unroll: int  # steps of a sum written out
    in_place: bool = False  # is x read where it lies?

    @property
    def width(self) -> int:
        """Outputs of a tile."""
        return self.vectors * LANES


def three_axes(form: ConvGeometry) -> tuple[ConvAxis, ...]:
    """Axes of one element come first."""
    one = ConvAxis(1, 1, 1, 1, 0, 1, 1)
    return (one,) * (AXES - len(form.axes)) + form.axes


def axes_of(form: ConvGeometry, in_place: bool) -> tuple[ConvAxis, ...]:
    """In place, places next to each other along several axes are those of one."""
    one = ConvAxis(1, 1, 1, 1, 0, 1, 1)
    if not in_place or any(axis.stride > 1 for axis in form.axes):
        return three_axes(form)
    return one, one, ConvAxis(form.places, 1, form.places, 1, 0, 1, 1)


def is_pointwise(form: ConvGeometry) -> bool:
    """Windows of one element, none of which lies around x."""
    return form.taps == 1 and all(
        axis.low == 0 and axis.holes == 1 and axis.y > 0 and (axis.y - 1) * axis.stride < axis.x
        for axis in form.axes
    )


def reach_of(axis: ConvAxis, places: int) -> tuple[int, int]:
    """The first element of x that places 0 to places - 1 meet, and how many lie between it and the
    last."""
    met = [phase for phase in axis.phases() if phase.count]
    if not met:
        return 0, 1
    first = min(phase.base for phase in met)
    ends = (
        phase.base + (phase.count - 1) * phase.reach
        + (-(-places // phase.period) - 1) * phase.stride
        for phase in met
    )  # fmt: skip
    return first, max(ends) - first + 1


def even_parts(count: int, most: int) -> int:
    """The size of equal parts, of at most so many, that cover all."""
    return -(-count // -(-count // most)) if count else 1


def tile_rows(count: int, most: int) -> int:
    """Rows of equal tiles that reach little past the end; a tile costs about a row besides."""
    sizes = range(min(count, most), 0, -1)
    return min(sizes, key=lambda rows: -(-count // rows) * (rows + 1), default=1)


def plan_conv(
    form: ConvGeometry, dtype: DType, machine: Machine, is_readable: bool = False
) -> ConvPlan:
    """Boxes of places as many as stay near, so that the thread with the most of them is done
    first. `is_readable` says that x lies in memory as the kernel computes with it."""
    tile = machine.f64_tile if dtype.bits == 64 else machine.f32_tile
    vectors = 1 if form.outputs <= LANES else tile.vectors
    panels = -(-form.outputs // (vectors * LANES))
    batch = form.batch if isinstance(form.batch, int) else 1
    threads, in_place = machine.parallel_groups, is_readable and takes_in_place(form, dtype, tile)
    axes = axes_of(form, in_place)
    is_joined = axes[-1].y != form.axes[-1].y
    boxes = runs_of(form, dtype, tile.rows, threads) if is_joined else boxes_of(form, dtype)
    shares = sorted({-(-panels // parts) for parts in range(1, PARTS * threads + 1)})
    box, share = min(
        product(boxes, shares),
        key=lambda found: cost(form, axes, found, vectors, batch, threads, in_place),
    )
    period = form.axes[-1].period
    rows = tile_rows(-(-min(box[-1], axes[-1].y) // period), tile.rows)
    unroll = written_out(rows * vectors)
    return ConvPlan(box, rows, vectors, share, unroll, in_place)


def takes_in_place(form: ConvGeometry, dtype: DType, tile: RegisterTile) -> bool:
    """With channels last, where places of a tile stay in the nearest cache together."""
    pitch = form.groups * form.inputs * form.axes[-1].stride * dtype.nbytes
    return form.last and is_pointwise(form) and lie_apart(pitch, tile.rows)


def written_out(products: int) -> int:
    """Steps of a sum, a power of two."""
    return max(n for n in (1, 2, 4) if n * products <= UNROLL or n == 1)


def boxes_of(form: ConvGeometry, dtype: DType) -> list[Ints]:
    """Whole rows that stay near, as many as may be; parts of the last axis only where a row is too
    long."""
    depth, height, width = three_axes(form)
    deep, wide = depth.period, max(width.y, 1)
    while wide > LANES * width.period and staged_bytes(form, dtype, (deep, 1, wide)) > STAGED_BYTES:
        wide = whole_periods(-(-wide // 2), width)
    highs = {whole_periods(-(-height.y // parts), height) for parts in range(1, height.y + 1)}
    boxes: list[Ints] = [(deep, high, wide) for high in sorted(highs)]
    fits = [box for box in boxes if staged_bytes(form, dtype, box) <= STAGED_BYTES]
    return fits or [(deep, height.period, wide)]


def runs_of(form: ConvGeometry, dtype: DType, rows: int, threads: int) -> list[Ints]:
    """The same for places that were joined: whole tiles of them."""
    fewest = max(1, -(-form.places * form.inputs * dtype.nbytes // STAGED_BYTES))
    parts = range(fewest, fewest + PARTS * threads)
    runs = {-(-form.places // (part * rows)) * rows for part in parts}
    return [(1, 1, run) for run in sorted(runs)]


def whole_periods(places: int, axis: ConvAxis) -> int:
    return max(-(-places // axis.period), 1) * axis.period


def staged_elements(form: ConvGeometry, box: Ints) -> int:
    made = form.inputs
    for axis, places in zip(three_axes(form), box, strict=True):
        made *= reach_of(axis, places)[1]
    return made


def staged_bytes(form: ConvGeometry, dtype: DType, box: Ints) -> int:
    return staged_elements(form, box) * dtype.nbytes


def cost(
    form: ConvGeometry, axes: tuple[ConvAxis, ...], found: tuple[Ints, int], vectors: int,
    batch: int, threads: int, in_place: bool,
) -> float:  # fmt: skip
    """Of the busiest thread."""
    box, share = found
    boxes = prod(-(-axis.y // each) for axis, each in zip(axes, box, strict=True))
    panels = -(-form.outputs // (vectors * LANES))
    rounds = -(
        -max(batch, 1) * form.groups * boxes * -(-max(panels, 1) // max(share, 1)) // threads
    )
    holes = max(prod(axis.holes for axis in axes), 1)
    work = prod(box) * form.taps * form.inputs * share * vectors / holes
    copied = 0 if in_place else staged_elements(form, box) / LANES * COPIED
    return rounds * (work + copied + BEGIN)


# -- sums over places ------------------------------------------------------------------------------

PLACES = 256  # of a box: both sides of a tile stay in the first cache
SMALL = 160  # taps and inputs that are written out where a tile has more rows than there are inputs


@record
class WeightPlan:
    """How the kernel of one gradient by the weight is written."""

    box: Ints
    rows: int  # inputs of a register tile
    vectors: int  # of outputs in a tile
    inputs: int  # of a workgroup
    panels: int  # tiles of outputs in a workgroup
    unroll: int
    is_small: bool  # few inputs: rows of a tile are taps and inputs
    in_place: bool = False  # is x read where it lies?


def plan_weight(
    form: ConvGeometry, dtype: DType, machine: Machine, is_readable: bool = False
) -> WeightPlan:
    tile = machine.f64_tile if dtype.bits == 64 else machine.f32_tile
    vectors = 1 if form.outputs <= LANES else tile.vectors
    panels = max(-(-form.outputs // (vectors * LANES)), 1)
    is_small = form.inputs < tile.rows and form.inputs * form.taps <= SMALL
    inputs, share = weight_shares(form, panels, machine.parallel_groups, is_small)
    rows = tile.rows if is_small else even_parts(inputs, tile.rows)
    unroll = written_out(rows * vectors)
    in_place = is_readable and not is_small and sums_in_place(form, dtype, rows)
    return WeightPlan(weight_box(form), rows, vectors, inputs, share, unroll, is_small, in_place)


def sums_in_place(form: ConvGeometry, dtype: DType, rows: int) -> bool:
    """Where what a tile walks over stays near: channels of a row, or places one after the other."""
    if not is_pointwise(form):
        return False
    if form.last:
        return lie_apart(form.groups * form.inputs * form.axes[-1].stride * dtype.nbytes, LANES)
    return lie_apart(prod(axis.x for axis in form.axes) * dtype.nbytes, rows)


def weight_shares(form: ConvGeometry, panels: int, threads: int, is_small: bool) -> tuple[int, int]:
    """Inputs and panels of a workgroup: enough parts for the threads, of the side that there is
    more of, since every part stages all of the other."""
    wanted = -(-threads // form.groups)
    equal = [n for n in range(wanted, PARTS * wanted) if form.inputs % (n * LANES) == 0]
    if not is_small and equal and form.inputs >= form.outputs:
        return form.inputs // equal[0], panels
    share = -(-panels // wanted)
    parts = -(-wanted // -(-panels // share))
    equal = [n for n in range(parts, PARTS * parts) if form.inputs % n == 0 and not is_small]
    return form.inputs // (equal[0] if equal else 1), share


def weight_box(form: ConvGeometry) -> Ints:
    """Whole rows, if they are not too long."""
    depth, height, width = three_axes(form)
    wide = whole_periods(even_parts(width.y, 2 * PLACES), width)
    high = whole_periods(even_parts(height.y, max(PLACES // wide, 1)), height)
    return depth.period, high, wide


# -- depthwise -------------------------------------------------------------------------------------

MOST_TAPS = 64  # that are written out
PLANE_BYTES = 64 << 10  # of a channel in scratch
TILE_PLACES = 4  # results of a tile, for a register of 512 bits; their windows overlap


@record
class DepthwisePlan:
    """How the kernel of one depthwise convolution is written."""

    box: Ints  # rows and places of a workgroup
    tile: Ints  # rows and places of a register tile; with lanes along places, vectors of them
    channels: int  # of a workgroup


def takes_depthwise(form: ConvGeometry) -> bool:
    """Channels for themselves, of one or two axes and not too many taps."""
    return form.is_depthwise and len(form.axes) <= 2 and form.taps <= MOST_TAPS


def has_holes(form: ConvGeometry) -> bool:
    return any(axis.holes > 1 for axis in form.axes)


def plan_depthwise(form: ConvGeometry, dtype: DType, machine: Machine) -> DepthwisePlan:
    """With channels last all of them, and rows as many as stay near; else planes of channels."""
    _, high, wide = three_axes(form)
    batch = form.batch if isinstance(form.batch, int) else 1
    each = dtype.nbytes * (LANES if form.last else 1)
    most = STAGED_BYTES if form.last else PLANE_BYTES
    broad = even_parts(wide.y, max(LANES, most // (8 * each * wide.stride)))
    if broad < wide.y:
        broad = -(-broad // LANES) * LANES  # whole vectors, but for the last
    broad = whole_periods(broad, wide)
    row = reach_of(wide, broad)[1] * each
    tall = even_parts(high.y, max(1, most // row // high.stride))
    if form.last:
        wanted = -(-2 * machine.parallel_groups // max(batch, 1))
        row = reach_of(wide, broad)[1] * dtype.nbytes * form.groups * high.stride
        near = even_parts(high.y, max(1, 2 * STAGED_BYTES // row))  # all channels of the rows
        tall = whole_periods(min(tall, near, max(-(-high.y // wanted), 1)), high)
        tile = (1, even_parts(broad // wide.period, TILE_PLACES))
        return DepthwisePlan((tall, broad), tile, form.groups)
    channels = even_parts(form.groups, max(1, batch * form.groups // (4 * machine.parallel_groups)))
    tall = whole_periods(tall, high)
    rows = even_parts(tall // high.period, TILE_PLACES)
    return DepthwisePlan((tall, broad), (rows, 1), channels)


def plan_depthwise_weight(form: ConvGeometry, dtype: DType, machine: Machine) -> DepthwisePlan:
    """Sixteen channels, or a few of them, for all images."""
    found = plan_depthwise(form, dtype, machine)
    if form.last:
        _, high, wide = three_axes(form)
        row = reach_of(wide, found.box[1])[1] * dtype.nbytes * LANES
        tall = even_parts(high.y, max(1, STAGED_BYTES // row // high.stride))
        return DepthwisePlan((tall, found.box[1]), (1, even_parts(found.box[1], 4)), LANES)
    channels = even_parts(form.groups, max(1, form.groups // (4 * machine.parallel_groups)))
    return DepthwisePlan(found.box, (1, 1), channels)
