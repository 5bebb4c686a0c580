"""Graph language, text: print a graph, parse it back, hash its structure.

Receives a `Graph`, returns its text: one typed line per node, inner graphs first. Or receives text
and returns the graph, or raises a `ParseError` with the line and what was expected. Printing is
generic: operands, then params.

    dim seq max=4096
    graph layer(%0: f32[seq,16], %1: f32[16,4]):
      %2: f32[seq,4] = matmul(%0, %1)   # model.py:41
      %3: f32[] = constant(-0.0)
      %4: f32[seq,4] = expand(%3, shape=(seq, 4))
      return %2, %4
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from tetrad.core import lazy
from tetrad.core.dtypes import DTYPES, DType, as_dtype, bool_, c128, named
from tetrad.core.errors import ParseError, TetradError
from tetrad.core.floats import guarded
from tetrad.core.op import REGISTRY, Op
from tetrad.core.owners import lasting
from tetrad.core.pattern import LazyPattern
from tetrad.core.record import field, record
from tetrad.core.sizes import Dim, Size, SizeExpr, dims_of
from tetrad.core.types import ArrayType
from tetrad.graph.build import constant, intern, make_graph, make_parameter
from tetrad.graph.infer import dims_in, infer
from tetrad.graph.nested import innermost_first
from tetrad.graph.nodes import Graph, Literal, Node

_WORD = LazyPattern(r"[A-Za-z_][A-Za-z0-9_.]*\Z")
# words in params that are not the name of a Dim
RESERVED = {"true", "false", "none", "nan", "inf"} | {d.short_name for d in DTYPES}
MAX_NESTING = 20  # parentheses inside parentheses the parser follows


# -- printing --------------------------------------------------------------------------------------


@guarded
def to_text(graph: Graph, *, sources: bool = True) -> str:
    """The complete program. Large constants print as `#0`, `#1`, ...; `literals` maps these names
    to arrays."""
    return _GraphPrinter(sources).program(graph)


def literals(graph: Graph) -> dict[str, Literal]:
    """The large constants by their names in the text, as `parse` takes them."""
    printer = _GraphPrinter(False)
    printer.program(graph)
    return {name: literal for literal, name in printer.large.items()}


@guarded
def structural_hash(graph: Graph) -> str:
    """The hash of what the graph computes. Names and sources do not count; large constants count by
    type only."""
    hashes: dict[Graph, str] = {}
    for part in innermost_first(graph):
        text = _HashPrinter(hashes).graph(part)
        hashes[part] = hashlib.sha256("\n".join([*_dim_lines([part]), *text]).encode()).hexdigest()
    return hashes[graph]


def diff(before: Graph, after: Graph) -> str:
    """The changed lines; a node that is in both graphs has the same number in both."""
    numbers: dict[Node, int] = {}
    old, new = (_GraphPrinter(True, numbers).program(g).splitlines() for g in (before, after))
    lines = lazy.module("difflib").unified_diff(old, new, "before", "after", lineterm="", n=2)
    return "\n".join(line.rstrip() for line in lines)


def _dim_lines(graphs: Iterable[Graph]) -> list[str]:
    return sorted(f"dim {d.name} max={d.max}" for d in set().union(*map(dims_in, graphs)))


class _GraphPrinter:
    """Numbers nodes, names graphs and large literals in order of appearance."""

    def __init__(self, sources: bool, numbers: dict[Node, int] | None = None) -> None:
        self.sources = sources
        # shared between the two texts of a diff; otherwise fresh for each graph
        self.numbers: dict[Node, int] | None = numbers
        self.labels: dict[Graph, str] = {}
        self.large: dict[Literal, str] = {}

    def program(self, graph: Graph) -> str:
        graphs = innermost_first(graph)
        dims = _dim_lines(graphs)
        parts = ["\n".join(self.graph(g)) for g in graphs]
        return "\n".join([*dims, "\n\n".join(parts)]) + "\n"

    def graph(self, graph: Graph) -> list[str]:
        numbers = {} if self.numbers is None else self.numbers
        for node in graph.inputs:
            numbers.setdefault(node, len(numbers))
        inputs = ", ".join(f"%{numbers[p]}: {p.type}" for p in graph.inputs)
        lines = [f"graph {self.label(graph)}({inputs}):"]
        given = set(graph.inputs)
        lines += [self.node(node, numbers) for node in graph.nodes() if node not in given]
        return [*lines, f"  return {', '.join(f'%{numbers[o]}' for o in graph.outputs)}".rstrip()]

    def node(self, node: Node, numbers: dict[Node, int]) -> str:
        number = numbers.setdefault(node, len(numbers))
        operands = [f"%{numbers[i]}" for i in node.inputs] + self.params(node)
        kinds = str(node.type) if len(node.types) == 1 else f"({', '.join(map(str, node.types))})"
        source = f"   # {node.source}" if self.sources and node.source is not None else ""
        return f"  %{number}: {kinds} = {node.op.name}({', '.join(operands)}){source}"

    def params(self, node: Node) -> list[str]:
        if node.op is constant and isinstance(value := node.params[0][1], Literal):
            return [self.data(value)]  # its type is that of the line
        return [f"{name}={self.value(value)}" for name, value in node.params]

    def label(self, graph: Graph) -> str:
        """The name of the graph, with a number if another graph has the same name."""
        if graph not in self.labels:
            name = graph.name if _WORD.match(graph.name) else json.dumps(graph.name)
            taken = sum(other.name == graph.name for other in self.labels)
            self.labels[graph] = f"{name}#{taken}" if taken else name
        return self.labels[graph]

    def value(self, value: Any) -> str:
        if isinstance(value, tuple):
            parts = [self.value(part) for part in value]
            return f"({parts[0]},)" if len(parts) == 1 else f"({', '.join(parts)})"
        if isinstance(value, Graph):
            return f"@{self.label(value)}"
        if isinstance(value, Literal):
            return f"literal({_literal_type(value)}, {self.data(value)})"
        return _plain(value)

    def data(self, literal: Literal) -> str:
        """One number if all elements equal, all numbers in row-major order, or the name of a large
        constant."""
        if not literal.is_small:
            return self.large.setdefault(literal, f"#{len(self.large)}")
        words = _elements(literal.array)
        if len(words) > 0 and len(set(words)) == 1:
            return words[0]
        return f"[{', '.join(words)}]"


class _HashPrinter(_GraphPrinter):
    """Prints only what changes the computation; a nested graph prints as its hash."""

    def __init__(self, hashes: Mapping[Graph, str]) -> None:
        super().__init__(sources=False)
        self.hashes = hashes

    def label(self, graph: Graph) -> str:
        return self.hashes.get(graph, "")

    def data(self, literal: Literal) -> str:
        return literal.held.tobytes().hex() if literal.is_small else "#"


def _plain(value: Any) -> str:
    if value is None or isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return json.dumps(value)
    if isinstance(value, SizeExpr):
        clash = any(d.name in RESERVED for d in dims_of(value))
        return f"size({value})" if clash else str(value)
    if isinstance(value, np.generic):
        return _plain(value.item())
    if isinstance(value, complex):
        return _complex_words(np.array([value]))[0]
    if isinstance(value, int | float | DType | ArrayType):
        # repr of a float is the shortest text that reads back as the same float, nan, inf, -0.0 too
        return repr(value)
    # not a valid param; printed so that a broken graph can still be read
    return f"<{type(value).__name__} {value}>"


def _literal_type(literal: Literal) -> ArrayType:
    return ArrayType(as_dtype(literal.held.dtype), literal.held.shape)


def _elements(array: np.ndarray) -> list[str]:
    """Every element, exactly. A NaN with an unusual payload prints as its bits."""
    flat = array.reshape(-1)
    if array.dtype.kind == "c":
        return _complex_words(flat)
    if array.dtype.kind not in "biu":
        words = [repr(v) for v in flat.astype(np.float64).tolist()]
        for i in np.flatnonzero(np.isnan(flat)):
            words[i] = _nan(flat[i : i + 1])
        return words
    return [_plain(v) for v in flat.tolist()]


def _complex_words(flat: np.ndarray) -> list[str]:
    """1.0-0.0j: real part, sign, imaginary part. The bits of a NaN follow a plus."""
    reals, imags = _elements(flat.real), _elements(flat.imag)
    return [
        f"{re}{im}j" if im.startswith("-") else f"{re}+{im}j"
        for re, im in zip(reals, imags, strict=True)
    ]


def _nan(element: np.ndarray) -> str:
    usual = np.full(1, np.nan, element.dtype)
    return "nan" if element.tobytes() == usual.tobytes() else f"0x{element.tobytes()[::-1].hex()}"


# -- parsing ---------------------------------------------------------------------------------------

_STRING = r'"(?:[^"\\]|\\.)*"'
_NAME = rf"(?:[A-Za-z_][A-Za-z0-9_.]*|{_STRING})(?:#\d+)?"
_TYPE = r"\w+\[[^\[\]]*\]"
_DIM = LazyPattern(r"dim (\w+) max=(\d{1,18})\Z")
_GRAPH = LazyPattern(rf"graph ({_NAME})\((.*)\):\Z")
_INPUT = LazyPattern(rf"(%\d+): ({_TYPE})(?:, |\Z)")
_NODE = LazyPattern(rf"(%\d+): ({_TYPE}|\((?:{_TYPE}(?:, )?)*\)) = (\w+)(\(.*)")
_RETURN = LazyPattern(r"return((?: %\d+(?:, %\d+)*)?)\Z")
_TOKEN = LazyPattern(rf"\s*(%\d+|{_STRING}|@{_NAME}|#\d+|{_TYPE}|\w+=|[-+*.\w]+|[()\[\],])")
_COMMENT = LazyPattern(r"\s*(?:#.*)?\Z")
_INT = LazyPattern(r"-?\d{1,40}\Z")
_FLOAT = LazyPattern(r"-?(?:\d+\.\d*(?:e[-+]?\d+)?|\d+e[-+]?\d+|inf|nan)\Z")
_BITS = LazyPattern(r"0x[0-9a-f]{1,16}\Z")
_PART = r"(?:\d+\.\d*(?:e[-+]?\d+)?|\d+e[-+]?\d+|inf|nan|0x[0-9a-f]{1,16})"
_COMPLEX = LazyPattern(rf"(-?{_PART})\+?(-?{_PART})j\Z")
_TERM = LazyPattern(r"([-+]?)([\w*]+)")


@guarded
def parse(text: str, literals: Mapping[str, Literal | np.ndarray] | None = None) -> Graph:
    """The graph that `text` describes (the last one in it); the inverse of `to_text`, sources
    aside."""
    parser = _GraphParser(literals or {})
    for number, line in enumerate(text.split("\n"), 1):
        bare = line.strip()
        if bare and not bare.startswith("#"):
            parser.line(_GraphLine(number, bare))
    return parser.result()


@record
class _GraphLine:
    number: int
    text: str

    def expected(self, what: str) -> ParseError:
        return ParseError.in_line(self.number, self.text, what)

    def checked(self, make: Callable[[], Any]) -> Any:
        """make(); its error becomes a ParseError of this line."""
        try:
            return make()
        except ParseError:
            raise
        except (TetradError, ValueError, TypeError, OverflowError) as problem:
            raise ParseError(f"line {self.number}: {str(problem).splitlines()[0]}") from None


@record(frozen=False)
class _GraphParser:
    """Reads line by line: dims, then graphs. The current graph is `open` until its return."""

    literals: Mapping[str, Literal | np.ndarray]
    dims: dict[str, SizeExpr] = field(default_factory=dict)
    graphs: dict[str, Graph] = field(default_factory=dict)
    open: str | None = None
    inputs: list[Node] = field(default_factory=list)
    values: dict[str, Node] = field(default_factory=dict)
    # types parsed before: most lines repeat one
    types: dict[str, ArrayType] = field(default_factory=dict)

    def line(self, line: _GraphLine) -> None:
        if self.open is not None:
            self.body(line, self.open)
        elif match := _DIM.match(line.text):
            self.dim(line, match)
        elif match := _GRAPH.match(line.text):
            self.header(line, match)
        else:
            raise line.expected("dim NAME max=N or graph NAME(%0: TYPE, ...):")

    def result(self) -> Graph:
        if self.open is not None or not self.graphs:
            raise ParseError(
                f"expected {'return' if self.open else 'a graph'}, got the end of the text"
            )
        return list(self.graphs.values())[-1]

    def dim(self, line: _GraphLine, match: re.Match[str]) -> None:
        if match[1] in self.dims:
            raise line.expected(f"a new dim, {match[1]} is taken,")
        self.dims[match[1]] = line.checked(lambda: Dim(match[1], max=int(match[2])))

    def header(self, line: _GraphLine, match: re.Match[str]) -> None:
        if match[1] in self.graphs:
            raise line.expected(f"a new graph name, {match[1]} is taken,")
        self.open, self.inputs, self.values = match[1], [], {}
        position = 0
        while position < len(match[2]):
            found = _INPUT.match(match[2], position)
            if found is None or found[1] in self.values:
                raise line.expected(
                    "inputs such as %0: f32[8], %1: f32[8], each with a new number,"
                )
            node = make_parameter(self.array_type(line, found[2]), len(self.inputs))
            self.values[found[1]] = node
            self.inputs.append(node)
            position = found.end()

    def body(self, line: _GraphLine, label: str) -> None:
        if match := _NODE.match(line.text):
            self.node(line, match)
        elif match := _RETURN.match(line.text):
            outputs = [self.use(line, word) for word in match[1].replace(",", " ").split()]
            name = re.sub(r"#\d+\Z", "", label)
            name = line.checked(lambda: json.loads(name)) if name.startswith('"') else name
            self.graphs[label] = make_graph(name, self.inputs, outputs)
            self.open = None
        else:
            raise line.expected("%3: TYPE = op(%1, %2, setting=VALUE) or return %3")

    def node(self, line: _GraphLine, match: re.Match[str]) -> None:
        number, kinds, name, rest = match.groups()
        if number in self.values:
            raise line.expected(f"a new number, {number} is taken,")
        op = REGISTRY.get(name)
        if op is None:
            raise ParseError(
                f"line {line.number}: unknown op {name}",
                hint="import the module that defines it first",
            )
        words = [kinds] if kinds[0] != "(" else re.findall(_TYPE, kinds)
        types = tuple(self.array_type(line, word) for word in words)
        reader = _Reader(self, line, _tokens(line, rest))
        if op is constant:
            literal = reader.constant(types)
            self.values[number] = intern(op, (), (("value", literal),), types, None)
        else:
            self.values[number] = self.apply(line, op, types, reader)

    def apply(
        self, line: _GraphLine, op: Op, types: tuple[ArrayType, ...], reader: _Reader
    ) -> Node:
        inputs, params = reader.operands()
        inferred = line.checked(lambda: infer(op, inputs, params))
        if inferred != types:
            raise line.expected(f"the type {', '.join(map(str, inferred))} that {op.name} gives")
        return intern(op, inputs, tuple(sorted(params.items())), types, None)

    def use(self, line: _GraphLine, number: str) -> Node:
        if number not in self.values:
            raise line.expected(f"a node defined before, {number} is none,")
        return self.values[number]

    def array_type(self, line: _GraphLine, text: str) -> ArrayType:
        if text not in self.types:
            name, _, sizes = text[:-1].partition("[")
            shape = tuple(self.size(line, s) for s in sizes.split(",")) if sizes else ()
            if any(isinstance(n, int) and n < 0 for n in shape):
                raise line.expected(f"sizes of at least 0 in {text},")
            self.types[text] = ArrayType(line.checked(lambda: named(name)), shape)
        return self.types[text]

    def size(self, line: _GraphLine, text: str) -> Size:
        """A sum of products of integers and dims, as sizes print: -1+3*batch*seq."""
        total: Size = 0
        position = 0
        while position < len(text) or not text:
            term = _TERM.match(text, position)
            if term is None or (position > 0 and not term[1]):
                raise line.expected(f"a size such as 3*seq+1, not {text!r},")
            factor: Size = -1 if term[1] == "-" else 1
            for word in term[2].split("*"):
                factor = factor * self.atom(line, word)
            total = total + factor
            position = term.end()
        return total

    def atom(self, line: _GraphLine, word: str) -> Size:
        if word.isdigit() and word.isascii() and len(word) <= 18:
            return int(word)
        if word not in self.dims:
            raise line.expected(f"an integer or a declared dim, not {word!r},")
        return self.dims[word]


def _tokens(line: _GraphLine, text: str) -> list[str]:
    """The words in the parentheses, reversed: the next one is last."""
    tokens: list[str] = []
    position = depth = 0
    while not tokens or depth > 0:
        match = _TOKEN.match(text, position)
        if match is None:
            raise line.expected("operands in parentheses")
        tokens.append(match[1])
        depth += (match[1] == "(") - (match[1] == ")")
        position = match.end()
    if not _COMMENT.match(text, position):
        raise line.expected("nothing but a comment after the operands")
    return tokens[::-1]


@record(frozen=False)
class _Reader:
    """Reads the operands of one line. An operand is %node; a param is name=value."""

    parser: _GraphParser
    line: _GraphLine
    tokens: list[str]

    def take(self, wanted: str) -> bool:
        if self.tokens and self.tokens[-1] == wanted:
            self.tokens.pop()
            return True
        return False

    def need(self, wanted: str) -> None:
        if not self.take(wanted):
            raise self.line.expected(f"{wanted!r} among the operands")

    def next(self) -> str:
        if not self.tokens:
            raise self.line.expected("a value")
        return self.tokens.pop()

    def operands(self) -> tuple[tuple[Node, ...], dict[str, Any]]:
        inputs: list[Node] = []
        params: dict[str, Any] = {}
        self.need("(")
        while not self.take(")"):
            if inputs or params:
                self.need(",")
            word = self.next()
            if word.startswith("%") and not params:
                inputs.append(self.parser.use(self.line, word))
            elif word.endswith("=") and word[:-1] not in params:
                params[word[:-1]] = self.value(MAX_NESTING)
            else:
                raise self.line.expected(
                    "operands such as %1, then settings such as axis=0, each once,"
                )
        return tuple(inputs), params

    def constant(self, types: tuple[ArrayType, ...]) -> Literal:
        if len(types) != 1:
            raise self.line.expected("one type of a constant")
        self.need("(")
        literal = self.data(types[0])
        self.need(")")
        return literal

    def value(self, nesting: int) -> Any:
        word = self.next()
        if word == "(":
            return self.parts(nesting)
        if word in ("size", "literal") and self.take("("):
            return self.wrapped(word)
        if word.startswith("@"):
            if word[1:] not in self.parser.graphs:
                raise self.line.expected(f"a graph defined before, {word} is none,")
            return self.parser.graphs[word[1:]]
        return self.plain(word)

    def parts(self, nesting: int) -> tuple[Any, ...]:
        if nesting == 0:
            raise self.line.expected(f"at most {MAX_NESTING} nested parentheses")
        parts: list[Any] = []
        while not self.take(")"):
            if parts:
                self.need(",")
                if len(parts) == 1 and self.take(")"):
                    break
            parts.append(self.value(nesting - 1))
        return tuple(parts)

    def wrapped(self, word: str) -> Any:
        """size(...): a size with a Dim whose name is reserved; literal(TYPE, DATA)."""
        if word == "size":
            result: Any = self.parser.size(self.line, self.next())
        else:
            kind = self.parser.array_type(self.line, self.next())
            self.need(",")
            result = self.data(kind)
        self.need(")")
        return result

    def plain(self, word: str) -> Any:
        if word.startswith('"'):
            return self.line.checked(lambda: json.loads(word))
        if word in ("true", "false", "none"):
            return {"true": True, "false": False, "none": None}[word]
        if _INT.match(word):
            return int(word)
        if _FLOAT.match(word):
            return float(word)
        if _COMPLEX.match(word):
            return complex(_array([word], c128)[0])
        if word in RESERVED:
            return named(word)
        return (
            self.parser.array_type(self.line, word)
            if word.endswith("]")
            else self.parser.size(self.line, word)
        )

    def data(self, kind: ArrayType) -> Literal:
        word = self.next()
        if word.startswith("#"):
            return self.large(word, kind)
        count = self.line.checked(lambda: kind.size)
        if not isinstance(count, int):
            raise self.line.expected("a constant of static shape")
        if count * kind.dtype.nbytes > Literal.SMALL:
            raise self.line.expected(
                f"the name of a literal such as #0: {kind} is too large to be written out,"
            )
        words = [word] * count if word != "[" else self.words()
        if len(words) != count:
            raise self.line.expected(f"{count} numbers for {kind}")
        array = self.line.checked(lambda: _array(words, kind.dtype))
        return Literal(array.reshape(kind.shape))

    def words(self) -> list[str]:
        found: list[str] = []
        while not self.take("]"):
            if found:
                self.need(",")
            found.append(self.next())
        return found

    def large(self, name: str, kind: ArrayType) -> Literal:
        given = self.parser.literals.get(name)
        if given is None:
            raise ParseError(
                f"line {self.line.number}: the constant {name} of type {kind} is not in the text",
                hint="hand it over: parse(text, literals={...}); graph.text.literals(graph) "
                "collects them",
            )
        literal = given if isinstance(given, Literal) else Literal(lasting(np.asarray(given)))
        if _literal_type(literal) != kind:
            raise self.line.expected(f"a literal of type {_literal_type(literal)} for {name}")
        return literal


def _array(words: list[str], dtype: DType) -> np.ndarray:
    """The elements from their exact texts."""
    if dtype is bool_:
        if not {"true", "false"}.issuperset(words):
            raise ValueError("expected true or false")
        return np.array([w == "true" for w in words], np.bool_)
    if dtype.is_complex:
        return _array([part for word in words for part in _parts(word)], dtype.real).view(dtype.np)
    if not dtype.is_float:
        return np.array([int(w) for w in words], dtype.np)
    for word in words:
        if not (_FLOAT.match(word) or _BITS.match(word)):
            raise ValueError(f"expected a float such as 1.0, got {word!r}")
    with np.errstate(over="ignore"):
        array = np.array([float(w) if w[:2] != "0x" else np.nan for w in words], np.float64).astype(
            dtype.np
        )
    bits = array.view(f"u{dtype.nbytes}")
    for i, word in enumerate(words):
        if word[:2] == "0x":
            bits[i] = int(word, 16)
    return array


def _parts(word: str) -> tuple[str, str]:
    match = _COMPLEX.match(word)
    if match is None:
        raise ValueError(f"expected a complex number such as 1.0-2.0j, got {word!r}")
    return match[1], match[2]
