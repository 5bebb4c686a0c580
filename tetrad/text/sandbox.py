"""jinja2's immutable sandbox, with limits: a template cannot reach Python, nor take more than its
budget.

Receives template source; returns a compiled template. jinja2 says itself that its sandbox bounds
neither time nor memory. So here every block of the generated code counts a step, and everything
that can make a large value is checked before or weighed after: operators, ~, literals of
containers, slices, filters, tests, calls and output.
"""

from __future__ import annotations

import functools
import itertools
import json
import re
import string
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sized
from datetime import datetime
from typing import Any

import jinja2
from jinja2 import nodes
from jinja2.compiler import CodeGenerator, Frame
from jinja2.ext import Extension
from jinja2.parser import Parser
from jinja2.runtime import Context, LoopContext, Macro, str_join
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Joiner, Namespace, pass_environment

from tetrad.core.errors import TemplateError
from tetrad.core.visible import one_line
from tetrad.text.budget import CURRENT, INTEGER_BITS, too_much

MAX_SOURCE = 1 << 16  # characters; the longest template we know has 17,000
MAX_WIDTH = 1000  # of a padded field, an indent, a row of a table
MAX_RANGE = 100_000
MAX_SAID = 400  # characters of what a template says in an error
FORBIDDEN = (nodes.Include, nodes.Import, nodes.FromImport, nodes.Extends, nodes.Block)
OPERATORS = frozenset({"+", "-", "*", "/", "//", "**", "%"})
# a width or precision of four digits, or taken from an argument
WIDE_PERCENT = re.compile(r"[%#0\- +.)](\d{4,}|\*)")
WIDE_SPEC = re.compile(r"\d{4,}|\{")
WIDE_TIME = re.compile(r"%[-_0^#]*\d")

FILTERS = frozenset(
    (
        *(
            "abs",
            "batch",
            "capitalize",
            "center",
            "count",
            "d",
            "default",
            "dictsort",
            "e",
            "escape",
            "first",
            "float",
        ),
        *(
            "format",
            "groupby",
            "indent",
            "int",
            "items",
            "join",
            "last",
            "length",
            "list",
            "lower",
            "map",
            "max",
            "min",
        ),
        *(
            "reject",
            "rejectattr",
            "replace",
            "reverse",
            "round",
            "safe",
            "select",
            "selectattr",
            "slice",
            "sort",
        ),
        *("string", "sum", "title", "trim", "truncate", "unique", "upper", "wordcount"),
    )
)
SEQUENCE_METHODS = frozenset({"index", "count", "copy"})
METHODS: dict[type, frozenset[str]] = {
    str: frozenset(
        (
            *(
                "strip",
                "lstrip",
                "rstrip",
                "split",
                "rsplit",
                "splitlines",
                "partition",
                "rpartition",
                "removeprefix",
            ),
            *(
                "removesuffix",
                "startswith",
                "endswith",
                "find",
                "rfind",
                "index",
                "rindex",
                "count",
                "replace",
                "join",
            ),
            *(
                "upper",
                "lower",
                "title",
                "capitalize",
                "swapcase",
                "casefold",
                "center",
                "ljust",
                "rjust",
                "zfill",
            ),
            *(
                "format",
                "format_map",
                "isdigit",
                "isalpha",
                "isalnum",
                "isnumeric",
                "isdecimal",
                "isspace",
                "isupper",
            ),
            *("islower", "istitle", "isascii", "isidentifier"),
        )
    ),
    dict: frozenset({"items", "keys", "values", "get", "copy"}),
    list: SEQUENCE_METHODS,
    tuple: SEQUENCE_METHODS,
    int: frozenset(),
    float: frozenset(),
    type(None): frozenset(),
}


# -- generated code --------------------------------------------------------------------------------


class CountingGenerator(CodeGenerator):
    """Python code that reports to the environment as it runs."""

    def blockvisit(self, nodes_: Iterable[nodes.Node], frame: Frame) -> None:
        """Every body of a loop, branch or macro counts one step and the text it contains."""
        body = list(nodes_)
        outputs = (part for node in body if isinstance(node, nodes.Output) for part in node.nodes)
        size = sum(len(part.data) for part in outputs if isinstance(part, nodes.TemplateData))
        self.writeline(f"environment.tick({size})")
        super().blockvisit(body, frame)

    def visit_Concat(self, node: nodes.Concat, frame: Frame) -> None:
        self.write("environment.joined((")
        for part in node.nodes:
            self.visit(part, frame)
            self.write(", ")
        self.write("))")

    def visit_Compare(self, node: nodes.Compare, frame: Frame) -> None:
        self.write("(environment.tick(0) or ")  # tick gives None
        super().visit_Compare(node, frame)
        self.write(")")

    def visit_List(self, node: nodes.List, frame: Frame) -> None:
        self.reporting(super().visit_List, node, frame)

    def visit_Dict(self, node: nodes.Dict, frame: Frame) -> None:
        self.reporting(super().visit_Dict, node, frame)

    def visit_Tuple(self, node: nodes.Tuple, frame: Frame) -> None:
        if node.ctx == "load":
            self.reporting(super().visit_Tuple, node, frame)
        else:
            super().visit_Tuple(node, frame)

    def visit_Getitem(self, node: nodes.Getitem, frame: Frame) -> None:
        if isinstance(node.arg, nodes.Slice):
            self.reporting(super().visit_Getitem, node, frame)
        else:
            super().visit_Getitem(node, frame)

    def reporting(
        self, visit: Callable[[Any, Frame], None], node: nodes.Node, frame: Frame
    ) -> None:
        self.write("environment.made(")
        visit(node, frame)
        self.write(")")


class GenerationTag(Extension):
    """`{% generation %}`: marks what the model says, for training; here only a scope."""

    tags = {"generation"}  # noqa: RUF012 (jinja2 reads it from the class)

    def parse(self, parser: Parser) -> nodes.Node:
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.Scope(body, lineno=line)


# -- checks before a value is made -----------------------------------------------------------------


def fits(size: int) -> None:
    CURRENT.get().fits(size)


def weight(value: object) -> int:
    return CURRENT.get().weigh(value)[0]


def check_width(width: object = 0, *_: object, **__: object) -> None:
    if (
        isinstance(width, int)
        and abs(width) > MAX_WIDTH
        or isinstance(width, str)
        and len(width) > MAX_WIDTH
    ):
        raise too_much(f"it asks for a width of {width}; {MAX_WIDTH} are allowed")


def check_percent(text: str, arguments: object) -> None:
    if WIDE_PERCENT.search(text):
        raise too_much("it asks for a very wide field")
    fits(len(text) + text.count("%") * weight(arguments))


def check_format(text: str, *arguments: object, **named: object) -> None:
    fields = [spec or "" for _, name, spec, _ in string.Formatter().parse(text) if name is not None]
    if any(WIDE_SPEC.search(spec) for spec in fields):
        raise too_much("it asks for a very wide field")
    fits(len(text) + len(fields) * (weight(arguments) + weight(named)))


def check_replace(
    text: object, old: object = "", new: object = "", *_: object, **__: object
) -> None:
    shown, inserted = str(text), len(str(new))
    fits(len(shown) + shown.count(str(old)) * inserted)


def check_join(parts: object, separator: object = "") -> None:
    fits(weight(parts) + size_of(parts) * len(str(separator)))


def check_indent(text: object, width: object = 4, *_: object, **__: object) -> None:
    check_width(width)
    fits(
        len(str(text))
        + (str(text).count("\n") + 1) * (width if isinstance(width, int) else len(str(width)))
    )


FILTER_CHECKS: dict[str, Callable[..., None]] = {
    "center": lambda _, *a, **k: check_width(*a, **k),
    "batch": lambda _, linecount=0, *a, **k: check_width(linecount),
    "slice": lambda _, slices=0, *a, **k: check_width(slices),
    "round": lambda _, precision=0, *a, **k: check_width(precision),
    "indent": check_indent,
    "format": lambda text, *a, **k: check_percent(str(text), (a, k)),
    "replace": check_replace,
    "join": lambda parts, d="", *a, **k: check_join(parts, d),
}
METHOD_CHECKS: dict[str, Callable[..., None]] = {
    "center": lambda _, *a: check_width(*a),
    "ljust": lambda _, *a: check_width(*a),
    "rjust": lambda _, *a: check_width(*a),
    "zfill": lambda _, *a: check_width(*a),
    "format": check_format,
    "format_map": lambda text, named: check_format(text, named),
    "replace": check_replace,
    "join": lambda separator, parts=(): check_join(parts, separator),
}


def size_of(value: object) -> int:
    return len(value) if isinstance(value, Sized) else 0


def check_operands(symbol: str, left: object, right: object) -> None:
    if symbol == "%" and isinstance(left, str):
        check_percent(left, right)
    elif symbol == "**" and isinstance(left, int) and isinstance(right, int):
        if left.bit_length() * right > INTEGER_BITS:
            raise too_much(f"it makes an integer of more than {INTEGER_BITS} bits")
    elif symbol == "*":
        for many, times in ((left, right), (right, left)):
            if isinstance(many, str | list | tuple) and isinstance(times, int):
                fits((weight(many) - sys.getsizeof("")) * times)


def charged(run: Callable[..., Any], check: Callable[..., None] | None) -> Callable[..., Any]:
    """A filter or test that is checked before and weighed after."""
    hidden = int(hasattr(run, "jinja_pass_arg"))  # some get jinja2's context before the value

    @functools.wraps(run)
    def checked(*args: Any, **kwargs: Any) -> Any:
        budget = CURRENT.get()
        budget.step(4 + sum(map(size_of, args[hidden:])) // 64)
        if check is not None:
            check(*args[hidden:], **kwargs)
        result = run(*args, **kwargs)
        return budget.made(listed(result) if isinstance(result, Iterator) else result)

    return checked


def listed(values: Iterator[Any]) -> list[Any]:
    """What a lazy filter gives, at once: only then it can be weighed."""
    found = list(itertools.islice(values, MAX_RANGE + 1))
    if len(found) > MAX_RANGE:
        raise too_much(f"it makes a list of more than {MAX_RANGE} values")
    return found


# -- what templates can call -----------------------------------------------------------------------


class QuietNamespace(Namespace):
    """jinja2's prints everything it holds, and that can change after it was weighed."""

    def __repr__(self) -> str:
        return "<namespace>"


def bounded_range(*args: int) -> range:
    numbers = range(*args)
    if len(numbers) > MAX_RANGE:
        raise too_much(f"it asks for a range of {len(numbers)} numbers; {MAX_RANGE} are allowed")
    return numbers


def raise_exception(message: object) -> None:
    raise TemplateError(f"chat template: it refuses these messages: {said(message)}")


def said(message: object) -> str:
    """Words of a template inside an error: on its line, and not without end."""
    return one_line(str(message)[:MAX_SAID])


def strftime_now(form: str) -> str:
    if len(form) > MAX_WIDTH or WIDE_TIME.search(form):
        raise too_much("it asks for a very wide field")
    return datetime.now().strftime(form)


def tojson(
    value: object,
    ensure_ascii: bool = False,
    indent: int | str | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """JSON for a model to read: nothing is escaped for HTML."""
    if indent is not None and (indent > 16 if isinstance(indent, int) else len(indent) > 16):
        raise too_much(f"it asks for an indent of {indent!r}; 16 are allowed")
    fits(weight(separators))
    return json.dumps(
        value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )


GLOBALS: dict[str, Any] = {
    "range": bounded_range,
    "dict": dict,
    "namespace": QuietNamespace,
    "joiner": Joiner,
    "raise_exception": raise_exception,
    "strftime_now": strftime_now,
}
CALLABLE = frozenset(GLOBALS.values())


@pass_environment
def finalize(environment: jinja2.Environment, value: object) -> str:
    """Every value that is printed passes here. (The decorator keeps jinja2 from doing it when
    compiling, uncounted.)"""
    text = str(value)
    CURRENT.get().write(len(text))
    return text


class BoundedEnvironment(ImmutableSandboxedEnvironment):
    """The environment of all chat templates, as Hugging Face sets it up, under a budget."""

    code_generator_class = CountingGenerator
    intercepted_binops = OPERATORS

    def __init__(self) -> None:
        extensions: list[str | type[Extension]] = ["jinja2.ext.loopcontrols", GenerationTag]
        # jinja2's optimiser folds constants anew at every level: a chain of 200 slices took it a
        # minute.
        super().__init__(
            trim_blocks=True,
            lstrip_blocks=True,
            extensions=extensions,
            finalize=finalize,
            optimized=False,
        )
        kept = {name: run for name, run in self.filters.items() if name in FILTERS} | {
            "tojson": tojson
        }
        self.filters = {name: charged(run, FILTER_CHECKS.get(name)) for name, run in kept.items()}
        # jinja2 types its tests as bare functions
        self.tests = {name: charged(run, None) for name, run in self.tests.items()}  # type: ignore[arg-type]
        self.globals = dict(GLOBALS)

    def tick(self, characters: int) -> None:
        budget = CURRENT.get()
        budget.step()
        budget.write(characters)

    def made(self, value: Any) -> Any:
        return CURRENT.get().made(value)

    def joined(self, parts: tuple[object, ...]) -> str:
        fits(sum(weight(part) for part in parts))
        return self.made(str_join(parts))  # type: ignore[no-any-return]

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        check_operands(operator, left, right)
        return self.made(self.binop_table[operator](left, right))

    def is_safe_attribute(self, obj: Any, attr: str, value: Any) -> bool:
        # the common case first: jinja2's own tests take several times longer
        if type(obj) is QuietNamespace:
            return not attr.startswith("_")
        for kind, names in METHODS.items():
            if isinstance(obj, kind):
                return attr in names
        return super().is_safe_attribute(obj, attr, value)

    def is_safe_callable(self, obj: Any) -> bool:
        """Macros, loops, our globals, and the listed methods of plain data. (What is undefined says
        so when called.)"""
        if isinstance(obj, Macro | LoopContext | Joiner | jinja2.Undefined) or obj in CALLABLE:
            return True
        method = getattr(obj, "__wrapped__", obj)  # jinja2 wraps str.format
        owner = getattr(method, "__self__", None)
        if isinstance(owner, LoopContext):
            return True
        kind = next((kind for kind in METHODS if isinstance(owner, kind)), None)
        return kind is not None and getattr(method, "__name__", "") in METHODS[kind]

    def call(__self, __context: Context, __obj: Any, *args: Any, **kwargs: Any) -> Any:
        CURRENT.get().step(4)
        method = getattr(__obj, "__wrapped__", __obj)
        if isinstance(getattr(method, "__self__", None), str) and method.__name__ in METHOD_CHECKS:
            METHOD_CHECKS[method.__name__](method.__self__, *args, **kwargs)
        return __self.made(super().call(__context, __obj, *args, **kwargs))


ENVIRONMENT = BoundedEnvironment()


def compile_template(source: str) -> jinja2.Template:
    """A template that renders under the budget in `budget.CURRENT`."""
    if not isinstance(source, str) or len(source) > MAX_SOURCE:
        got = f"{len(source)} characters" if isinstance(source, str) else type(source).__name__
        raise TemplateError(
            f"chat template: expected text of at most {MAX_SOURCE} characters, got {got}"
        )
    try:
        tree = ENVIRONMENT.parse(source)
        for node in tree.find_all(FORBIDDEN):
            raise TemplateError(
                f"chat template: line {node.lineno}: {type(node).__name__} is not allowed here"
            )
        code = ENVIRONMENT.compile(tree)
        return jinja2.Template.from_code(ENVIRONMENT, code, ENVIRONMENT.make_globals(None))
    except jinja2.TemplateSyntaxError as error:
        raise TemplateError(f"chat template: line {error.lineno}: {said(error.message)}") from None
    except (RecursionError, MemoryError, SyntaxError, ValueError, OverflowError) as error:
        if isinstance(error, TemplateError):
            raise
        raise TemplateError(
            f"chat template: it is nested too deeply or too large ({said(error)})"
        ) from None


def render(template: jinja2.Template, variables: Mapping[str, object]) -> str:
    """The text; every failure of the template is a `TemplateError` that names its line."""
    try:
        return template.render(variables)
    except TemplateError as error:
        raise TemplateError(f"{error.message}{line_of(error)}", hint=error.hint) from None
    except RecursionError as error:
        raise TemplateError(f"chat template: it calls itself too deeply{line_of(error)}") from None
    except Exception as error:  # whatever a template provokes is the template's failure
        raise TemplateError(
            f"chat template: {type(error).__name__}: {said(error)}{line_of(error)}"
        ) from None


def line_of(error: BaseException) -> str:
    """The line of the template where the error arose."""
    line, trace = 0, error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == "<template>":
            line = trace.tb_lineno
        trace = trace.tb_next
    return f" (line {line} of the template)" if line else ""
