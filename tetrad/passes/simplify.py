"""Passes, simplification: all sets of rules, in one walk."""

from __future__ import annotations

from tetrad.passes.algebra import algebra
from tetrad.passes.fold import fold
from tetrad.passes.layout import layout
from tetrad.passes.quantized import quantized
from tetrad.passes.rewrite import Rules
from tetrad.passes.split import parts

# One walk: each set makes room for the others, and after the walk none of them fires.
simplify = Rules("simplify", parts, layout, algebra, quantized, fold)
