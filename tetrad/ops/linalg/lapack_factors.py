"""Linear algebra by LAPACK, factors: the steps of `qr`, `eigh`, `eig`, `svd` and of those that give
values alone.

Receives the ops of `ops.linalg.factors` and `ops.linalg.eigen`. What a routine destroys is a copy.
"""

from __future__ import annotations

from tetrad.core.errors import UnsupportedError
from tetrad.core.sizes import Size
from tetrad.graph.group import Group
from tetrad.graph.nodes import Node
from tetrad.kernel.build import Val
from tetrad.kernel.nodes import Buffer
from tetrad.loopnest.frame import Frame
from tetrad.ops.linalg.eigen import ROOM
from tetrad.ops.linalg.factors import convergence_error
from tetrad.ops.linalg.lapack import Matrices, MatrixKernel, Policy
from tetrad.schedule.nodes import Leaf, Slot

BLOCK = 64  # LAPACK's: work it may use is a multiple


def static_sizes(node: Node) -> tuple[int, int]:
    m, n = node.type.shape[-2:]
    if not isinstance(m, int) or not isinstance(n, int):
        raise UnsupportedError(
            "linalg: the sizes of a matrix must be known to compile this", source=node.source
        )
    return m, n


# -- qr --------------------------------------------------------------------------------------------


def lower_qr(frame: Frame, group: Group) -> list[Leaf]:
    """Reflections first, with R above them; then R is taken out, and they become Q."""
    m = Matrices(frame.memory, group)
    tall, wide = static_sizes(m.a)
    least, inner = min(tall, wide), m.node.types[0].shape[-1]
    q, r = m.results()
    work, tau = m.temp("matrix", m.dtype, max(wide, tall), tall), m.temp("tau", m.dtype, least)
    size = BLOCK * max(tall, wide)
    room, info, each = m.room(m.dtype, size), m.room(m.integer, 1), 2 * tall * wide * least
    prepare = m.kernel("copy")
    begin = prepare.start(max(wide, tall), tall)
    prepare.copy_turned(prepare.output(work), begin, m.a, tall, wide)
    m.run(prepare)
    operands = (m.given(work), tall, m.given(tau, "write"), room, size, info)
    m.call("geqrf", "iimimmim", tall, wide, *operands, flops=each)
    middle = m.kernel("upper")
    upper(middle, middle.output(r), middle.input(work), (tall, wide), inner)
    m.run(middle)
    generate = "ungqr" if m.parts == 2 else "orgqr"
    operands = (m.given(work), tall, m.given(tau, "read"), room, size, info)
    m.call(generate, "iiimimmim", tall, inner, least, *operands, flops=each)
    finish = m.kernel("turn")
    places = finish.start(tall, inner), finish.input(work), finish.start(max(wide, tall), tall)
    finish.turn(finish.output(q), *places, finish.size(tall), finish.size(inner))
    m.run(finish)
    return m.steps


def upper(
    kernel: MatrixKernel, r: Buffer, work: Buffer, sizes: tuple[int, int], inner: Size
) -> None:
    """The upper triangle of a matrix by columns, by rows, with zeros below."""
    k, parts, (tall, wide) = kernel.k, kernel.parts, sizes
    origin, begin = kernel.start(max(wide, tall), tall), kernel.start(inner, wide)
    with k.loop(kernel.size(inner)) as i:
        for part in range(parts):

            def entry(j: Val, i: Val = i, part: int = part) -> None:
                value = k.load(work, origin + (j * tall + k.min(i, j)) * parts + part)
                kept = k.select(j < i, k.const(0, kernel.real), value)
                k.store(r, begin + (i * wide + j) * parts + part, kept)

            kernel.each(kernel.size(wide), entry)


# -- eigenvalues -----------------------------------------------------------------------------------


def lower_eigh(frame: Frame, group: Group) -> list[Leaf]:
    """Of a complex matrix LAPACK sees the conjugate, with the same values and conjugate vectors."""
    m = Matrices(frame.memory, group)
    n, policy = m.a.type.shape[-1], Policy(m)
    has_vectors, is_complex = m.node.op.name == "eigh", m.parts == 2
    values, *vectors = m.results()
    work, info = m.temp("matrix", m.dtype, n, n), m.temp("info", m.integer, 1)
    prepare = m.kernel("copy")
    policy.prepare(prepare, prepare.output(work), n, n, lower=True)
    m.run(prepare)
    size, more, reals = 2 * n * n + (6 + BLOCK) * n + 1, 5 * n + 3, 2 * n * n + 5 * n + 1
    middle = (m.room(m.real, reals), reals) if is_complex else ()
    form = f"{'V' if has_vectors else 'N'}Uimimmi{'mi' if is_complex else ''}mim"
    m.call(
        "heevd" if is_complex else "syevd", form, n, m.given(work), n, m.given(values, "write"),
        m.room(m.dtype, size), size, *middle, m.room(m.integer, more), more,
        m.given(info, "write"), flops=9 * n * n * n,
    )  # fmt: skip
    finish = policy.check(info, convergence_error)
    if has_vectors:
        begin, count = finish.start(n, n), finish.size(n)
        target, source = finish.output(vectors[0]), finish.input(work)
        finish.turn(target, begin, source, begin, count, count, conjugate=True)
    policy.finish(finish, info)
    m.run(finish)
    return m.steps


def lower_eig(frame: Frame, group: Group) -> list[Leaf]:
    """LAPACK gets the matrix by columns, as eager code hands it over. Of a real one the values come
    in two parts."""
    m = Matrices(frame.memory, group)
    n, policy = m.a.type.shape[-1], Policy(m)
    has_vectors, is_complex = m.node.op.name == "eig", m.parts == 2
    values, *vectors = m.results()
    work, info = m.temp("matrix", m.dtype, n, n), m.temp("info", m.integer, 1)
    prepare = m.kernel("copy")
    policy.prepare(prepare, prepare.output(work), n, n, turned=True)
    m.run(prepare)
    parts = m.temp("parts", m.real, 2, n)
    found = m.temp("vectors", m.dtype, n, n)
    given = m.given(found, "write") if has_vectors else m.room(m.dtype, 1)
    halves = (m.given(parts, "write"), m.given(parts, "write", offset=n))
    ours, more = (
        ((m.given(values, "write"),), (m.room(m.real, 2 * n),)) if is_complex else (halves, ())
    )
    m.call(
        "geev", f"N{'V' if has_vectors else 'N'}imi{'m' * len(ours)}mimimi{'m' * len(more)}m",
        n, m.given(work), n, *ours, m.room(m.dtype, 1), 1, given, n, m.room(m.dtype, ROOM * n),
        ROOM * n, *more, m.given(info, "write"), flops=25 * n * n * n,
    )  # fmt: skip
    finish = policy.check(info, convergence_error)
    if not is_complex:
        join_values(finish, values, parts, n)
    if has_vectors:
        joined(finish, vectors[0], found, None if is_complex else parts, n)
    policy.finish(finish, info)
    m.run(finish)
    return m.steps


def join_values(kernel: MatrixKernel, values: Slot, parts: Slot, rows: Size) -> None:
    """Real parts and behind them imaginary ones, side by side."""
    k, n = kernel.k, kernel.size(rows)
    begin, source, target = kernel.start(2, rows), kernel.input(parts), kernel.output(values)

    def join(j: Val) -> None:
        for part in (0, 1):
            k.store(target, begin + j * 2 + part, k.load(source, begin + n * part + j))

    kernel.each(n, join)


def joined(kernel: MatrixKernel, target: Slot, found: Slot, parts: Slot | None, rows: Size) -> None:
    """The vectors by rows. Of two conjugate values LAPACK gives real and imaginary part of one
    vector, as two columns."""
    n, out, source = kernel.size(rows), kernel.output(target), kernel.input(found)
    origin = kernel.start(rows, rows)
    if parts is None:
        kernel.turn(out, origin, source, origin, n, n)
        return
    k, zero, values = kernel.k, kernel.k.const(0, kernel.real), kernel.input(parts)
    first = kernel.start(2, rows)
    with k.loop(n) as i:

        def join(j: Val, i: Val = i) -> None:
            imag = k.load(values, first + n + j)
            left, right = k.select(imag < zero, j - 1, j), k.select(imag > zero, j + 1, j)
            other = k.load(source, origin + right * n + i)
            at = (origin + i * n + j) * 2
            k.store(out, at, k.load(source, origin + left * n + i))
            signed = k.select(imag < zero, -other, other)
            k.store(out, at + 1, k.select(imag.eq(0), zero, signed))

        kernel.each(n, join)


# -- singular values -------------------------------------------------------------------------------


def lower_svd(frame: Frame, group: Group) -> list[Leaf]:
    """LAPACK sees A^T = conj(V) S U^T by columns: its left vectors are V^H by rows, its right ones
    U."""
    m = Matrices(frame.memory, group)
    tall, wide = static_sizes(m.a)
    least, most = min(tall, wide), max(tall, wide)
    has_vectors, is_complex, policy = m.node.op.name == "svd", m.parts == 2, Policy(m)
    slots = m.results()
    full = dict(m.node.params).get("full", False)
    work, info = m.temp("matrix", m.dtype, tall, wide), m.temp("info", m.integer, 1)
    prepare = m.kernel("copy")
    policy.prepare(prepare, prepare.output(work), tall, wide)
    m.run(prepare)
    size = 4 * least * least + 7 * least + BLOCK * (tall + wide)
    reals = (m.room(m.real, least * (5 * least + 2 * most + 7)),) if is_complex else ()
    values = m.given(slots[1 if has_vectors else 0], "write")
    vectors = [m.given(slots[i], "write") if has_vectors else m.room(m.dtype, 1) for i in (0, -1)]
    job = ("A" if full else "S") if has_vectors else "N"
    m.call(
        "gesdd", f"{job}iimimmimimi{'m' * len(reals)}mm",
        wide, tall, m.given(work), wide, values, vectors[1], wide, vectors[0],
        tall if full else least, m.room(m.dtype, size), size, *reals,
        m.room(m.integer, 8 * least), m.given(info, "write"), flops=12 * tall * wide * least,
    )  # fmt: skip
    finish = policy.check(info, convergence_error)
    policy.finish(finish, info)
    m.run(finish)
    return m.steps
