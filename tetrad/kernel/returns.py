"""Kernel language, returns: a program in which invocations end early, as one with branches alone.

Receives a program, returns one without `Return` that does the same. What follows a branch that
returns becomes its other side; where that is not enough, a local says whether the invocation goes
on. Uniformity and the emitter of vector machines then need no rule for it; a machine whose lanes
are threads may return directly.
"""

from __future__ import annotations

from tetrad.core.dtypes import bool_
from tetrad.core.record import replace
from tetrad.kernel import nodes as n

INVERSE = {"eq": "ne", "ne": "eq", "lt": "ge", "le": "gt", "gt": "le", "ge": "lt"}


def without_returns(program: n.Program) -> n.Program:
    """The same program without `Return`; itself if it has none."""
    if not holds_return(program.body):
        return program
    rewrite = Rewrite()
    body = rewrite.block(program.body, is_outermost=True)
    flag = (rewrite.true, rewrite.false, rewrite.goes_on) if rewrite.uses_flag else ()
    return replace(program, body=(*flag, *body))


def holds_return(block: n.Block) -> bool:
    """Is there a return in the block or in an inner one?"""
    return any(returns(instr) for instr in block)


def returns(instr: n.Instr) -> bool:
    if isinstance(instr, n.Return):
        return True
    return any(map(holds_return, n.inner_blocks(instr)))


def ends(block: n.Block) -> bool:
    """Does every invocation that comes to the end of the block return there?"""
    last = block[-1] if block else None
    return isinstance(last, n.Return) or (isinstance(last, n.Region) and ends(last.body))


class Rewrite:
    """The walk; `goes_on` is the local that a return sets to false. A block is outermost if nothing
    follows its end: then a return in it leaves nothing to skip."""

    def __init__(self) -> None:
        self.true, self.false = n.Const(bool_, True), n.Const(bool_, False)
        self.goes_on = n.Local(bool_, self.true)
        self.uses_flag = False

    def block(self, block: n.Block, is_outermost: bool = False) -> n.Block:
        for i, instr in enumerate(block):
            if not returns(instr):
                continue
            before, rest = block[:i], block[i + 1 :]
            match instr:
                case n.Region():
                    return self.block((*before, *opened(instr), *rest), is_outermost)
                case n.If():
                    return (*before, *self.branch(instr, rest, is_outermost))
                case n.For():
                    body = self.asked(instr.body)
                    made: n.Block = (replace(instr, body=body), *self.asked(rest, is_outermost))
                    return (*before, *made)
                case n.Repeat():
                    body = (*self.asked(instr.body), *self.stops(instr.local))
                    return (*before, replace(instr, body=body), *self.asked(rest, is_outermost))
                case _:
                    return (*before, *self.leave(is_outermost))
        return block

    def leave(self, is_outermost: bool) -> n.Block:
        if is_outermost:
            return ()
        self.uses_flag = True
        return (n.Set(self.goes_on, self.false),)

    def stops(self, local: n.Local) -> n.Block:
        """A loop that an invocation has left by returning does not go on for it."""
        self.uses_flag = True
        here, again = n.Get(bool_, self.goes_on), n.Get(bool_, local)
        both = n.Binary(bool_, "and", here, again)
        return (here, again, both, n.Set(local, both))

    def asked(self, block: n.Block, is_outermost: bool = False) -> n.Block:
        """The block, for invocations that have not returned."""
        if not block:
            return ()
        self.uses_flag = True
        asks = n.Get(bool_, self.goes_on)
        return (asks, n.If(asks, self.block(block, is_outermost)))

    def branch(self, node: n.If, rest: n.Block, is_outermost: bool) -> n.Block:
        """if c: ...; return    rest   ->   if c: ... else: rest"""
        ends_then, ends_else = ends(node.then), ends(node.orelse)
        if not (ends_then or ends_else):
            inside = is_outermost and not rest
            sides = (self.block(node.then, inside), self.block(node.orelse, inside))
            return (n.If(node.cond, *sides), *self.asked(rest, is_outermost))
        then = self.block(node.then if ends_then else (*node.then, *rest), is_outermost)
        orelse = self.block(node.orelse if ends_else else (*node.orelse, *rest), is_outermost)
        if then or not orelse:
            return (n.If(node.cond, then, orelse),)
        opposite = inverse(node.cond)
        return (opposite, n.If(opposite, orelse))


def inverse(cond: n.Value) -> n.Value:
    """The opposite condition; of integers by the opposite comparison, so that the guard of a tail
    is still seen as one."""
    if isinstance(cond, n.Compare) and cond.lhs.dtype.is_integer:
        return n.Compare(bool_, INVERSE[cond.op], cond.lhs, cond.rhs)
    return n.Unary(bool_, "not", cond)


def opened(region: n.Region) -> n.Block:
    """The region before its first instruction that may return, that one with the region around its
    blocks, and the region after it. Values of a region are visible behind it, so what uses them
    must come into one block with it."""
    at = next(i for i, instr in enumerate(region.body) if returns(instr))
    first = region.body[at]
    inner = opened(first) if isinstance(first, n.Region) else (first,)
    middle = next(i for i, instr in enumerate(inner) if returns(instr))
    before = (*region.body[:at], *inner[:middle])
    after = (*inner[middle + 1 :], *region.body[at + 1 :])
    return (*around(region, before), inside(region, inner[middle]), *around(region, after))


def around(region: n.Region, block: n.Block) -> n.Block:
    return (replace(region, body=block),) if block else ()


def inside(region: n.Region, instr: n.Instr) -> n.Instr:
    """A branch or a loop with the region around what it holds."""
    if isinstance(instr, n.If):
        return n.If(instr.cond, around(region, instr.then), around(region, instr.orelse))
    return (
        replace(instr, body=around(region, instr.body))
        if isinstance(instr, n.For | n.Repeat)
        else instr
    )
