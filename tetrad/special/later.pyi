# What type checkers see of names that tetrad.special finds later: made by `python -m tests.stubs`.
# ruff: noqa
# fmt: off
from typing import Any

from tetrad.nn import log_softmax as log_softmax
from tetrad.nn import logsumexp as logsumexp
from tetrad.nn import softmax as softmax
