"""Passes, simplify: all sets of rules in one walk."""

from __future__ import annotations

from tetrad.passes.algebra import algebra
from tetrad.passes.fold import fold
from tetrad.passes.layout import layout
from tetrad.passes.quantized import quantized
from tetrad.passes.regroup import regroup
from tetrad.passes.rewrite import Rules
from tetrad.passes.split import parts

# One walk: rules of one set enable those of another, and after the walk none fires.
simplify = Rules("simplify", parts, layout, algebra, quantized, regroup, fold)
