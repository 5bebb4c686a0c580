"""Core: sizes of axes, known now or at the call.

A size is an int or a `SizeExpr`: a polynomial with integer coefficients over atoms. An atom is a
`Dim` that the user named, or a ceiling quotient (in grids only). Sizes add, multiply, print and
compare by structure; `bind` turns a size into an int once the Dims have values.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from operator import index
from typing import TYPE_CHECKING

from tetrad.core.errors import ParseError, ShapeError, TraceError
from tetrad.core.record import record
from tetrad.core.source import user_source

NUMBER = (
    "sizes are ints, Dims, products, plus an int; td.asarray(x.shape[0]) is a number to compute "
    "with"
)
# Of a size that is parsed. Arguments of kernels are sizes too, and may be any 64 bits.
MAX_DIGITS, MAX_SIZE_TOKENS = 19, 256
MAX_ELEMENTS = 1 << 48  # a product of sizes above this is an error before anything is allocated


@record
class CeilDiv:
    """ceil(size / divisor), an atom of launch formulas; never a shape."""

    size: SizeExpr
    divisor: int

    def bind(self, dims: Mapping[str, int]) -> int:
        return -(-bind(self.size, dims) // self.divisor)

    def __str__(self) -> str:
        return f"ceil({self.size}/{self.divisor})"


@record
class Named:
    """The atom of a Dim: its name and bounds."""

    name: str
    max: int

    def bind(self, dims: Mapping[str, int]) -> int:
        return dims[self.name]

    def __str__(self) -> str:
        return self.name


Atom = CeilDiv | Named
Monomial = tuple[Atom, ...]  # sorted by text


@record
class SizeExpr:
    """A polynomial: pairs (monomial, coefficient), sorted, no zero coefficients, not a plain
    integer."""

    terms: tuple[tuple[Monomial, int], ...]

    def __add__(self, other: Size) -> Size:
        if not is_size(other):
            return self._with(other, "+")
        return _make(list(self.terms) + list(_terms(other)))

    __radd__ = __add__

    def __mul__(self, other: Size) -> Size:
        if not is_size(other):
            return self._with(other, "*")
        if type(other) is int and other != 0:
            return SizeExpr(tuple([(m, a * other) for m, a in self.terms]))
        return _make([(_join(m, n), a * b) for m, a in self.terms for n, b in _terms(other)])

    __rmul__ = __mul__

    def __sub__(self, other: Size) -> Size:
        return self + (other * -1) if is_size(other) else self._with(other, "-")

    def __rsub__(self, other: Size) -> Size:
        return (self * -1) + other if is_size(other) else self._with(other, "-")

    def __neg__(self) -> Size:
        return self * -1

    def __floordiv__(self, other: object) -> Size:
        if not is_size(other):
            return self._with(other, "/")
        message = f"cannot divide the symbolic size {self}"
        raise ShapeError(message, source=user_source(), hint=NUMBER)

    __truediv__ = __rtruediv__ = __rfloordiv__ = __mod__ = __rmod__ = __floordiv__

    def _with(self, other: object, sign: str) -> Size:
        """An array handles arithmetic with a size itself; other numbers are an error."""
        if hasattr(other, "__tetrad_op__"):
            return NotImplemented  # type: ignore[no-any-return]
        message = f"the symbolic size {self} {sign} {other!r} is not a size"
        raise ShapeError(message, source=user_source(), hint=NUMBER)

    if not TYPE_CHECKING:  # for type checkers a size has neither a value nor an order

        def __index__(self) -> int:
            message = (
                f"the size {self} is only known when the program runs, but Python asked for its "
                "value"
            )
            hint = "static sizes have values: leave the axis out of dims="
            raise TraceError(message, source=user_source(), hint=hint)

        def __lt__(self, other: object) -> bool:
            return bool(self.__index__())

        __le__ = __gt__ = __ge__ = __lt__
        __int__ = __float__ = __index__

    def __str__(self) -> str:
        parts = []
        for monomial, factor in self.terms:
            atoms = "*".join(str(a) for a in monomial)
            parts.append(
                str(factor) if not monomial else atoms if factor == 1 else f"{factor}*{atoms}"
            )
        return "+".join(parts).replace("+-", "-")

    __repr__ = __str__

    @property
    def max(self) -> int:
        """The largest value the size can take, by the bounds of its Dims."""
        total = 0
        for monomial, factor in self.terms:
            product = factor
            for atom in monomial:
                product *= (
                    atom.max if isinstance(atom, Named) else -(-atom.size.max // atom.divisor)
                )
            total += max(product, 0) if monomial else product
        return total


Size = int | SizeExpr
Shape = tuple[Size, ...]


def Dim(name: str, *, max: int = 1 << 20) -> SizeExpr:
    """An axis size known when a compiled function is called. One program serves every value up to
    `max`.

    >>> seq = Dim("seq", max=4096)
    >>> 3 * seq + 1
    1+3*seq
    """
    if not name.isidentifier():
        message = f"Dim: the name {name!r} is not an identifier"
        raise ShapeError(
            message, source=user_source(), hint='a name is one word, such as td.Dim("seq")'
        )
    if max < 1:
        raise ShapeError(f"Dim {name}: max must be at least 1, got {max}")
    return SizeExpr(((((Named(name, max),)), 1),))


def is_size(x: object) -> bool:
    return isinstance(x, int | SizeExpr)


def is_static(shape: Iterable[Size]) -> bool:
    return all(isinstance(n, int) for n in shape)


def plain(size: Size) -> int:
    """A size without Dims, as an int; a Dim is an error that names it.

    >>> plain(3)
    3
    """
    return index(size)  # type: ignore[arg-type]  # a SizeExpr answers with that error


def reach(size: int) -> str:
    """The range of indices along an axis, for hints.

    >>> reach(3), reach(0)
    ('indices go from -3 to 2', 'the axis is empty')
    """
    return f"indices go from {-size} to {size - 1}" if size else "the axis is empty"


def product(sizes: Iterable[Size]) -> Size:
    """The number of elements; an error if no machine could hold them."""
    total: Size = 1
    for n in sizes:
        total = total * n
    if isinstance(total, int) and total > MAX_ELEMENTS:
        raise ShapeError(
            f"{total} elements exceed the limit of 2**48", hint="check the shape for a wrong size"
        )
    return total


def ceil_div(size: Size, divisor: int) -> Size:
    if isinstance(size, int):
        return -(-size // divisor)
    if divisor == 1:
        return size
    if all(factor % divisor == 0 for _, factor in size.terms):
        return _make([(m, f // divisor) for m, f in size.terms])
    return SizeExpr((((CeilDiv(size, divisor),), 1),))


def is_multiple(size: Size, of: int) -> bool:
    """Is the size known to be a multiple?

    >>> is_multiple(6, 3), is_multiple(7, 3), is_multiple(3 * Dim("n", max=8), 3)
    (True, False, False)
    """
    return isinstance(size, int) and size % of == 0


def is_below(size: Size, least: int) -> bool:
    """Is the size known to be below `least`?

    >>> is_below(2, 3), is_below(3, 3), is_below(Dim("n", max=2), 3)
    (True, False, False)
    """
    return isinstance(size, int) and size < least


def bind(size: Size, dims: Mapping[str, int]) -> int:
    """The integer a size has once every Dim has its value."""
    if isinstance(size, int):
        return size
    total = 0
    for monomial, factor in size.terms:
        for atom in monomial:
            factor *= atom.bind(dims)
        total += factor
    return total


def parse_size(text: str, dims: Mapping[str, Size]) -> Size:
    """The size that prints as `text`, over these Dims.

    >>> parse_size("1+3*ceil(seq/4)", {"seq": Dim("seq", max=64)})
    1+3*ceil(seq/4)
    """
    if text.isdecimal() and text.isascii() and len(text) <= MAX_DIGITS:
        return int(text)
    factor, _, name = text.rpartition("*")
    if name in dims and (not factor or factor.isdecimal()):
        return dims[name] * int(factor or 1)
    spaced = text
    for sign in "+-*/()":
        spaced = spaced.replace(sign, f" {sign} ")
    tokens = spaced.split()
    parser = _SizeParser(text, tokens[::-1], dims)
    if "".join(tokens) != text or len(tokens) > MAX_SIZE_TOKENS:
        raise parser.expected("words and signs, such as 3*seq+1,")
    size = parser.sum()
    if parser.tokens:
        raise parser.expected("the end of the size")
    return size


@record(frozen=False, eq=False)
class _SizeParser:
    """The grammar of sizes:

    sum = [-] product {+- product}
    product = atom {* atom}
    atom = integer | dim | ceil(sum/integer)
    """

    text: str
    tokens: list[str]  # reversed: the next one is last
    dims: Mapping[str, Size]

    def expected(self, what: str) -> ParseError:
        return ParseError(f"expected {what} in the size {self.text[:80]!r}")

    def take(self, *wanted: str) -> bool:
        if self.tokens and self.tokens[-1] in wanted:
            self.tokens.pop()
            return True
        return False

    def sum(self) -> Size:
        terms = self.product(-1 if self.take("-") else 1)
        while self.tokens and self.tokens[-1] in "+-":
            terms += self.product(-1 if self.tokens.pop() == "-" else 1)
        is_sorted = len(terms) == 1 and terms[0][0] and terms[0][1]
        return SizeExpr((terms[0],)) if is_sorted else _make(terms)

    def product(self, factor: int) -> list[tuple[Monomial, int]]:
        """The terms of a product: mostly one, and then nothing is to be sorted."""
        terms: list[tuple[Monomial, int]] = [((), factor)]
        while True:
            atom = self.atom()
            if isinstance(atom, int):
                terms = [(m, a * atom) for m, a in terms]
            else:
                terms = [(_join(m, n), a * b) for m, a in terms for n, b in atom.terms]
            if not self.take("*"):
                return terms

    def atom(self) -> Size:
        word = self.tokens.pop() if self.tokens else ""
        if word.isdecimal() and word.isascii() and len(word) <= MAX_DIGITS:
            return int(word)
        if word == "ceil" and self.take("("):
            return self.quotient()
        if word in self.dims:
            return self.dims[word]
        if word and not word.isalnum() and not word.isidentifier():
            raise self.expected(f"a size such as 3*seq+1, not {word!r},")
        raise self.expected(f"an integer or a declared dim, not {word!r},")

    def quotient(self) -> Size:
        size = self.sum()
        divisor = self.atom() if self.take("/") else 0
        if not self.take(")") or not isinstance(divisor, int) or divisor < 1:
            raise self.expected("ceil(size/divisor)")
        return ceil_div(size, divisor)


def atoms_of(size: Size) -> set[Atom]:
    return set() if isinstance(size, int) else {a for m, _ in size.terms for a in m}


def dims_of(size: Size) -> set[Named]:
    """The Dims a size mentions."""
    found: set[Named] = set()
    for atom in atoms_of(size):
        found |= {atom} if isinstance(atom, Named) else dims_of(atom.size)
    return found


def _terms(size: Size) -> Iterable[tuple[Monomial, int]]:
    return (((), size),) if isinstance(size, int) else size.terms


def _join(a: Monomial, b: Monomial) -> Monomial:
    return tuple(sorted(a + b, key=str)) if a and b else a or b


def _make(terms: Iterable[tuple[Monomial, int]]) -> Size:
    merged: dict[Monomial, int] = {}
    for monomial, factor in terms:
        merged[monomial] = merged.get(monomial, 0) + factor
    kept = tuple(
        sorted(((m, f) for m, f in merged.items() if f), key=lambda t: tuple(map(str, t[0])))
    )
    if not kept:
        return 0
    if len(kept) == 1 and not kept[0][0]:
        return kept[0][1]
    return SizeExpr(kept)
