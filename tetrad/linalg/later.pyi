# What type checkers see of names that tetrad.linalg finds later: made by `python -m tests.stubs`.
# ruff: noqa
# fmt: off
from typing import Any

from tetrad.linalg._determinants import det as det
from tetrad.linalg._determinants import slogdet as slogdet
from tetrad.linalg._iterative import bicgstab as bicgstab
from tetrad.linalg._iterative import cg as cg
from tetrad.linalg._iterative import gmres as gmres
from tetrad.linalg._matrices import block_diag as block_diag
from tetrad.linalg._matrices import cho_factor as cho_factor
from tetrad.linalg._matrices import cho_solve as cho_solve
from tetrad.linalg._matrices import cond as cond
from tetrad.linalg._matrices import expm as expm
from tetrad.linalg._matrices import lstsq as lstsq
from tetrad.linalg._matrices import lu as lu
from tetrad.linalg._matrices import lu_factor as lu_factor
from tetrad.linalg._matrices import lu_solve as lu_solve
from tetrad.linalg._matrices import multi_dot as multi_dot
from tetrad.linalg._matrices import polar as polar
from tetrad.linalg._matrices import solve_triangular as solve_triangular
from tetrad.linalg._matrices import tensorinv as tensorinv
from tetrad.linalg._matrices import tensorsolve as tensorsolve
from tetrad.linalg._matrices import toeplitz as toeplitz
from tetrad.linalg._roots import sqrtm as sqrtm
from tetrad.linalg._tridiagonal import tridiagonal_solve as tridiagonal_solve
