"""Plans of products: which generator writes the kernels, and with which tile, blocks and depth.

A product (types, sizes, how the sides lie), and the machine in, frozen data
out. The generators follow a plan and choose nothing themselves; no plan changes the order of a sum
(`ops.matmul.op`).
"""

from __future__ import annotations

from collections.abc import Collection
from math import gcd, prod

from tetrad.core.dtypes import DType
from tetrad.core.machine import LANES, Machine, RegisterTile
from tetrad.core.record import record, replace
from tetrad.core.sizes import Shape, Size, ceil_div, is_below, plain, product
from tetrad.graph.nodes import Node
from tetrad.loopnest.reader import splat_value
from tetrad.ops.matmul.epilogue import accumulator, runs_along_k
from tetrad.ops.matmul.op import CHUNK
from tetrad.quant.lanes import BLOCK, lanes_of

# -- of tiles
ROWS, COLUMNS = 1024, 1024  # of a workgroup at most
FEW_ROWS, FEW_COLUMNS = 24, 64  # at least
STRETCH = 96  # rows staged at a time: they lie in the second cache
UNKNOWN = 256  # what a Dim is taken for
SHARE = 4  # parts of an axis for each thread, at most
# What a step of k costs beside its multiplications, in multiplications: to copy an element of a
# column, or of a row; of a whole workgroup, that another thread begins it late, and that it begins.
COPIED_COLUMN, COPIED_ROW, DELAY, BEGIN = 30, 14, 0.03, 1 << 15
# The same for an element of a row whose other part another thread writes: what comes after, such as
# an optimiser's update, mostly goes by rows, and has to fetch it from there.
ACROSS = 16
STAGING_COLUMNS = 64
# bytes of the nearest cache with places of their own, and how many rows of a tile may share each
PLACES, SHARING = 4 << 10, 4
POINTERS = 8  # to rows of a tile that registers have room for
UNROLL = 24  # multiplications of a tile written out, in 1, 2 or 4 steps of k
# A plain loop and one block of k do for fewer multiplications, with few columns or a short k: most
# of the time there is in copying, and more code would take longer to compile than to run.
SMALL, NARROW = 1 << 23, 32
# -- of few rows
MOST_ROWS = 4
LONG_RUN, SHORT_RUN = 4096, 512  # columns of a workgroup; fewer where threads would go without
RUNS = 2  # workgroups wanted for each thread
UNKNOWN_RUN = 1024  # what a Dim is taken for
# -- of weights
WEIGHT_ROWS = 24  # rows of a float weight in a workgroup
TALLEST = 6  # rows of x in a tile
GROUP_ROWS = 16  # rows of a weight in groups in a workgroup
MANY = 16  # rows of x from which a panel of decoded codes pays
PANEL_ROWS = 128  # of x in a workgroup, about
PANEL_BLOCKS = 32  # of a panel, at most: it stays in the first cache


@record
class MatmulSize:
    """Sizes of a product: batch axes of the result, then m, n, k."""

    batch: Shape
    m: Size
    n: Size
    k: Size

    def known(self) -> tuple[int, int, int, int]:
        """Numbers of batches, rows, columns, and steps of k; a Dim is taken for UNKNOWN."""
        sizes = product(self.batch), self.m, self.n, self.k
        batch, m, n, k = (size if isinstance(size, int) else UNKNOWN for size in sizes)
        return batch, m, n, k


@record
class ProductShape:
    """What a plan depends on: the types of the sides, the sizes, and how the sides lie."""

    left: DType
    right: DType
    size: MatmulSize
    transposed: bool = False  # the right side is a weight, a row for each output
    terms: int = 1
    scheme: str = ""  # of a right side in groups
    group: int = 0
    activations: str = ""
    left_in_memory: bool = True  # as it is: nothing is computed as it is read
    right_constant: bool = False
    right_along_k: bool = False  # it is a transpose: its columns lie in memory one by one


@record
class MatmulPlan:
    """How the kernels of one product are written; a generator asks what it needs."""

    generator: str  # one of `ops.matmul.kernel.GENERATORS`
    # rows of the left side x columns, or vectors of them, whose sums registers hold
    tile: RegisterTile
    rows: int = 1  # of the left side in a workgroup
    columns: int = LANES  # of the result in a workgroup
    depth: int = CHUNK  # steps of k in a block; of panels, blocks of a weight row
    unroll: int = 1  # steps of k written out
    held: int = 1  # sums that registers hold, where rows that are left over take all of them
    is_staged: bool = False  # are rows of the left side copied before they are used?

    @property
    def stretch(self) -> int:
        """Rows staged together: whole tiles."""
        return max(min(STRETCH, self.rows) // self.tile.rows, 1) * self.tile.rows

    @property
    def is_low(self) -> bool:
        """Is one stretch all rows?"""
        return self.rows <= self.stretch


def size_of(node: Node) -> MatmulSize:
    *batch, m, n = node.type.shape
    return MatmulSize(tuple(batch), m, n, node.inputs[0].type.shape[-1])


def product_of(node: Node, inputs: Collection[Node]) -> ProductShape:
    """Of a node of `matmul` whose group reads these from memory."""
    a, b = node.inputs[:2]
    in_memory = a in inputs and splat_value(a) is None
    is_constant = b.op.name == "constant"
    return ProductShape(
        a.type.dtype, b.type.dtype, size_of(node), **dict(node.params), left_in_memory=in_memory,
        right_constant=is_constant, right_along_k=runs_along_k(b),
    )  # fmt: skip


def plan_matmul(given: ProductShape, machine: Machine) -> MatmulPlan:
    """The types choose the generator, sizes and machine the rest."""
    if not given.transposed and given.right.is_quantized:
        return plan_columns(given, machine)
    if not given.transposed:
        return (
            plan_few_rows(given, machine.parallel_groups)
            if has_few_rows(given)
            else plan_tiles(given, machine)
        )
    if given.right.is_nibble:
        return plan_groups(given, machine)
    if not given.right.is_quantized:
        return plan_weight_rows(machine)
    if not given.left.is_quantized:
        return MatmulPlan("decoded_rows", RegisterTile(machine.f32_tile.rows, 1))
    return plan_int8(given, machine)


# -- weights ---------------------------------------------------------------------------------------


def plan_weight_rows(machine: Machine) -> MatmulPlan:
    """Sums of several rows of x and of the weight in registers: a third more loads than
    products."""
    held = machine.f32_tile.rows * machine.f32_tile.vectors
    tall = max(1, min(held // 3, TALLEST))
    return MatmulPlan(
        "weight_rows", RegisterTile(tall, held // tall), columns=WEIGHT_ROWS, held=held
    )


def plan_groups(given: ProductShape, machine: Machine) -> MatmulPlan:
    """Rows of x times rows of the weight in registers, as many of the one as of the other."""
    side = max(1, machine.lowbit_tokens // 2)
    name = "group_int8" if given.activations else "group_rows"
    return MatmulPlan(name, RegisterTile(side, side), columns=GROUP_ROWS)


def plan_columns(given: ProductShape, machine: Machine) -> MatmulPlan:
    """A weight is decoded once for so many rows."""
    held = machine.f32_tile.rows * machine.f32_tile.vectors
    rows = given.size.m if isinstance(given.size.m, int) else PANEL_ROWS
    part = max(1, min(rows, PANEL_ROWS))
    return MatmulPlan("decoded_columns", RegisterTile(max(held // 2, 1), 2), rows=part)


def plan_int8(given: ProductShape, machine: Machine) -> MatmulPlan:
    tile = RegisterTile(max(machine.lowbit_tokens // given.terms, 1), 1)
    if given.terms > 1 or not takes_panels(given, machine):
        return MatmulPlan("int8_rows", tile)
    blocks = plain(given.size.k) // BLOCK
    depth = -(-blocks // -(-blocks // PANEL_BLOCKS))
    return MatmulPlan("panels", tile, rows=PANEL_ROWS, depth=depth)


def takes_panels(given: ProductShape, machine: Machine) -> bool:
    """With one plane, one factor and no code book, putting codes together costs no more than
    reading them back; a tile of eight rows and more pays for it by itself."""
    rows, lanes = given.size.m, lanes_of(given.right)
    is_many = not isinstance(rows, int) or rows >= MANY
    is_dear = len(lanes.bits) > 1 or lanes.has_mins or bool(lanes.table)
    return is_many and is_dear and machine.lowbit_tokens < 8


# -- few rows --------------------------------------------------------------------------------------


def has_few_rows(given: ProductShape) -> bool:
    """Few rows, and a right side that lies in memory row by row."""
    rows = given.size.m
    is_few = isinstance(rows, int) and rows <= MOST_ROWS
    return is_few and not given.right_constant and not given.right_along_k


def plan_few_rows(given: ProductShape, threads: int) -> MatmulPlan:
    """Runs of columns as long as leaves work for every thread."""
    size = given.size
    chunks = ceil_div(size.k, CHUNK)
    batch, parts, columns = (
        n if isinstance(n, int) else UNKNOWN_RUN for n in (product(size.batch), chunks, size.n)
    )
    run = LONG_RUN
    while run > SHORT_RUN and batch * max(parts, 1) * -(-columns // run) < RUNS * threads:
        run //= 2
    rows = plain(size.m)
    return MatmulPlan("few_rows", RegisterTile(rows, 1), rows, run)


# -- tiles -----------------------------------------------------------------------------------------


def plan_tiles(given: ProductShape, machine: Machine) -> MatmulPlan:
    size, dtype = given.size, accumulator(given.left)
    tile = choose_tile(machine, dtype, size.m, size.n)
    is_small = prod(size.known()) < SMALL and min(size.known()[2:]) < NARROW
    is_staged = is_worth_staging(given, dtype, tile)
    rows, columns = choose_blocks(size, tile.rows, machine.parallel_groups, is_staged)
    unroll = 1 if is_small else steps_written_out(tile)
    plan = MatmulPlan("tiles", tile, rows, columns, CHUNK, unroll, is_staged=is_staged)
    return replace(plan, depth=choose_depth(plan, size.k, dtype, machine, is_small))


def choose_depth(plan: MatmulPlan, k: Size, dtype: DType, machine: Machine, is_small: bool) -> int:
    """Steps of k of a block. Few rows take all they can from a panel, which is near; under many,
    wide tiles go so slowly over it that it may come from the second cache, and then no chain has to
    wait for another block. A power of two: products of nearly the same k have rows and panels as
    far apart, which one kernel knows as constants."""
    panel = machine.near_bytes if plan.is_low else machine.panel_bytes
    width = plan.tile.vectors * LANES
    depth = CHUNK if is_small else min(panel // (width * dtype.nbytes), CHUNK)
    return max(LANES, 1 << (k - 1).bit_length()) if isinstance(k, int) and 0 < k < depth else depth


def is_worth_staging(given: ProductShape, dtype: DType, tile: RegisterTile) -> bool:
    """Do enough columns follow to pay for copying rows, and are the rows not as good where they
    lie?"""
    n, k = given.size.n, given.size.k
    if isinstance(n, int) and n < STAGING_COLUMNS:
        return False
    is_as_it_is = given.left_in_memory and given.left is dtype
    are_apart = isinstance(k, int) and lie_apart(k * dtype.nbytes, tile.rows)
    return not (is_as_it_is and are_apart and tile.rows <= POINTERS)


def lie_apart(pitch: int, rows: int) -> bool:
    """Do rows with so many bytes from one to the next stay in the nearest cache together? It has
    few places for addresses a power of two apart."""
    places = PLACES // gcd(pitch, PLACES)
    return rows <= SHARING * places


def choose_tile(machine: Machine, dtype: DType, m: Size, n: Size) -> RegisterTile:
    """The target's tile, narrower where there are no more columns, with fewer rows where that
    wastes fewer."""
    tile = machine.f64_tile if dtype.bits == 64 else machine.f32_tile
    vectors = 1 if is_below(n, LANES + 1) else tile.vectors
    if not isinstance(m, int):
        return RegisterTile(tile.rows, vectors)
    tiles = -(-max(m, 1) // tile.rows)
    return RegisterTile(-(-max(m, 1) // tiles), vectors)


def steps_written_out(tile: RegisterTile) -> int:
    """A loop that goes round seldom enough; more of it would only take longer to compile."""
    most = UNROLL // (tile.rows * tile.vectors)
    return max((steps for steps in (2, 4) if steps <= most), default=1)


def choose_blocks(size: MatmulSize, tile: int, threads: int, is_staged: bool) -> tuple[int, int]:
    """Rows and columns of a workgroup, so that the thread with the most of them is done first."""
    batch, m, n, k = size.known()

    def cost(block: tuple[int, int]) -> float:
        """Multiplications that take as long as the rounds of the busiest thread, and a part of one
        for delays."""
        high, wide = block
        rounds = -(-batch * -(-m // high) * -(-n // wide) // threads)
        copies = COPIED_COLUMN * wide + (COPIED_ROW * high if is_staged else 0)
        across = ACROSS * high * wide if batch * -(-m // high) < threads else 0
        spent = (high * wide + copies) * k + across + BEGIN
        return (rounds + (DELAY if threads > 1 else 0)) * spent

    heights = {rounded(-(-m // parts), tile) for parts in shares(m, ROWS, FEW_ROWS, threads)}
    widths = {
        rounded(-(-n // parts), FEW_COLUMNS) for parts in shares(n, COLUMNS, FEW_COLUMNS, threads)
    }
    return min(((high, wide) for high in sorted(heights) for wide in sorted(widths)), key=cost)


def shares(size: int, most: int, least: int, threads: int) -> range:
    """Into how many parts between `least` and `most` a size may be cut; not into more than threads
    could want."""
    fewest = max(1, -(-size // most))
    return range(fewest, max(fewest, min(size // least, fewest + SHARE * threads)) + 1)


def rounded(size: int, step: int) -> int:
    return -(-size // step) * step
