"""Kernels of linear algebra: small real systems are lanes of a kernel of ours, the rest is
LAPACK's."""

from __future__ import annotations

from collections.abc import Callable

from tetrad.graph.group import Group
from tetrad.graph.nodes import Node
from tetrad.loopnest.frame import Frame
from tetrad.ops.linalg import lapack, small_systems
from tetrad.ops.linalg.eigen import eig, eigvals
from tetrad.ops.linalg.factors import eigh, eigvalsh, qr, svd, svdvals
from tetrad.ops.linalg.systems import SMALL, cholesky, linear_solve, lu, lu_det, triangular_solve
from tetrad.schedule.nodes import Launch

Generator = Callable[[Frame, Group], Launch]


def is_small(node: Node) -> bool:
    """Does a kernel of ours do better than LAPACK?"""
    rows = node.inputs[0].type.shape[-1]
    return isinstance(rows, int) and rows <= SMALL and not node.inputs[0].type.dtype.is_complex


def by_size(small: Generator, large: Generator) -> Generator:
    """The one generator for small systems, the other for all else."""
    return lambda frame, group: (small if is_small(group.root) else large)(frame, group)


lu.kernel(by_size(small_systems.lower_small_lu, lapack.lower_lu))
linear_solve.kernel(by_size(small_systems.lower_small_solve, lapack.lower_linear_solve))
triangular_solve.kernel(
    by_size(small_systems.lower_small_triangular, lapack.lower_triangular_solve)
)
cholesky.kernel(by_size(small_systems.lower_small_cholesky, lapack.lower_cholesky))
lu_det.kernel(small_systems.lower_det)
qr.kernel(lapack.lower_qr)
eigh.kernel(lapack.lower_eigh)
eigvalsh.kernel(lapack.lower_eigh)
eig.kernel(lapack.lower_eig)
eigvals.kernel(lapack.lower_eig)
svd.kernel(lapack.lower_svd)
svdvals.kernel(lapack.lower_svd)
