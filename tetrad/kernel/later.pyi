# What type checkers see of names that tetrad.kernel finds later: made by `python -m tests.stubs`.
# ruff: noqa
# fmt: off
from typing import Any

from tetrad.compiler.kernel_call import call as call
from tetrad.compiler.resident import resident as resident
from tetrad.backends.cuda.ptx import ptx as ptx
