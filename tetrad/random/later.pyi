# What type checkers see of names that tetrad.random finds later: made by `python -m tests.stubs`.
# ruff: noqa
# fmt: off
from typing import Any

from tetrad.random.distributions import beta as beta
from tetrad.random.distributions import cauchy as cauchy
from tetrad.random.distributions import chisquare as chisquare
from tetrad.random.distributions import dirichlet as dirichlet
from tetrad.random.distributions import f as f
from tetrad.random.distributions import gamma as gamma
from tetrad.random.distributions import geometric as geometric
from tetrad.random.distributions import loggamma as loggamma
from tetrad.random.distributions import lognormal as lognormal
from tetrad.random.distributions import maxwell as maxwell
from tetrad.random.distributions import multivariate_normal as multivariate_normal
from tetrad.random.distributions import orthogonal as orthogonal
from tetrad.random.distributions import pareto as pareto
from tetrad.random.distributions import poisson as poisson
from tetrad.random.distributions import rademacher as rademacher
from tetrad.random.distributions import rayleigh as rayleigh
from tetrad.random.distributions import t as t
from tetrad.random.distributions import triangular as triangular
from tetrad.random.distributions import weibull_min as weibull_min
from tetrad.random.further import ball as ball
from tetrad.random.further import binomial as binomial
from tetrad.random.further import double_sided_maxwell as double_sided_maxwell
from tetrad.random.further import generalized_normal as generalized_normal
from tetrad.random.further import multinomial as multinomial
from tetrad.random.further import wald as wald
