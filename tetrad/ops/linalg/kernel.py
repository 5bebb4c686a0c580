"""Kernels of linear algebra: small real systems are lanes of a kernel of ours, the rest is
LAPACK's."""

from __future__ import annotations

from collections.abc import Callable

from tetrad.graph.group import Group
from tetrad.graph.nodes import Node
from tetrad.loopnest.frame import Frame
from tetrad.ops.linalg import lapack_factors, lapack_systems, small_systems
from tetrad.ops.linalg.eigen import eig, eigvals
from tetrad.ops.linalg.factors import eigh, eigvalsh, qr, svd, svdvals
from tetrad.ops.linalg.systems import SMALL, cholesky, linear_solve, lu, lu_det, triangular_solve
from tetrad.schedule.nodes import Launch, Leaf

Generator = Callable[[Frame, Group], "Launch | list[Leaf]"]


def is_small(node: Node) -> bool:
    """Does a kernel of ours do better than LAPACK?"""
    rows = node.inputs[0].type.shape[-1]
    return isinstance(rows, int) and rows <= SMALL and not node.inputs[0].type.dtype.is_complex


def by_size(small: Generator, large: Generator) -> Generator:
    """The one generator for small systems, the other for all else."""
    return lambda frame, group: (small if is_small(group.root) else large)(frame, group)


lu.kernel(by_size(small_systems.lower_small_lu, lapack_systems.lower_lu))
linear_solve.kernel(by_size(small_systems.lower_small_solve, lapack_systems.lower_linear_solve))
triangular_solve.kernel(
    by_size(small_systems.lower_small_triangular, lapack_systems.lower_triangular_solve)
)
cholesky.kernel(by_size(small_systems.lower_small_cholesky, lapack_systems.lower_cholesky))
lu_det.kernel(small_systems.lower_det)
qr.kernel(lapack_factors.lower_qr)
eigh.kernel(lapack_factors.lower_eigh)
eigvalsh.kernel(lapack_factors.lower_eigh)
eig.kernel(lapack_factors.lower_eig)
eigvals.kernel(lapack_factors.lower_eig)
svd.kernel(lapack_factors.lower_svd)
svdvals.kernel(lapack_factors.lower_svd)
