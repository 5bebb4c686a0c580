"""CUDA back end, structure: does the text of a module fit together? For machines without ptxas.

PTX in, a list of what is wrong out: registers that are not declared or have another width than
their instruction, labels that are missing, double or never used, parameters and memory that nobody
declared, float instructions that round or flush otherwise than the language does, bytes that are
not ASCII. It says nothing of values.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from tetrad.backends.cuda.parse import PtxInstruction, PtxModule, parse_ptx
from tetrad.backends.cuda.targets import ARCHITECTURES
from tetrad.core.errors import ParseError

SPECIAL = re.compile(r"%(tid|ntid|ctaid|nctaid)\.[xyz]")
NUMBER = re.compile(r"-?\d+|0[xX][0-9A-Fa-f]+|0[fF][0-9A-F]{8}|0[dD][0-9A-F]{16}")
TYPE = re.compile(r"[busf](8|16|32|64)|pred")
# Float instructions that would contract, flush or approximate
LOOSE = ("ftz", "approx", "full", "sat")
ROUNDED = ("add", "sub", "mul", "div", "sqrt", "rcp", "fma", "mad")

Widths = tuple[str, ...]


def structure_problems(text: str) -> list[str]:
    """What is wrong with the text of a module; nothing for one that fits together."""
    if not text.isascii():
        return ["not ASCII: " + ascii(next(c for c in text if not c.isascii()))]
    try:
        module = parse_ptx(text)
    except ParseError as error:
        return [error.message]
    return [*header_problems(module), *label_problems(module), *body_problems(module)]


def header_problems(module: PtxModule) -> Iterator[str]:
    known = ARCHITECTURES.get(module.target)
    if known is None:
        yield f"unknown .target {module.target}"
    elif module.version != known.version:
        yield f".version {module.version} for {module.target}, which has {known.version}"
    if module.address_size != "64":
        yield f".address_size {module.address_size}"
    if not module.entry:
        yield "no .visible .entry"
    if len(module.bounds) != 3:
        yield "no .maxntid of three sizes before the body"
    for stem in module.registers:
        if SPECIAL.fullmatch(f"{stem}.x"):
            yield f"register {stem} hides a special one"


def label_problems(module: PtxModule) -> Iterator[str]:
    used = {i.operands[0] for i in module.body if i.name[0] == "bra"}
    yield from (f"label {name} is missing" for name in sorted(used - module.labels.keys()))
    yield from (f"label {name} is never used" for name in sorted(module.labels.keys() - used))
    if not module.body or module.body[-1].name[0] not in ("ret", "bra"):
        yield "control falls off the end"


def body_problems(module: PtxModule) -> Iterator[str]:
    for instr in module.body:
        for problem in (*operand_problems(module, instr), *float_problems(instr)):
            yield f"line {instr.line}: {'.'.join(instr.name)}: {problem}"


def float_problems(instr: PtxInstruction) -> Iterator[str]:
    is_float = instr.name[-1] in ("f32", "f64")
    if is_float and (loose := set(instr.name) & set(LOOSE)):
        yield f"{', '.join(loose)} is not IEEE arithmetic"
    if is_float and instr.name[0] in ROUNDED and "rn" not in instr.name:
        yield "does not round to nearest even, or may be contracted"


# -- operands --------------------------------------------------------------------------------------


def operand_problems(module: PtxModule, instr: PtxInstruction) -> Iterator[str]:
    if instr.guard and module.type_of(instr.guard.removeprefix("!")) != "pred":
        yield f"{instr.guard} is no predicate that was declared"
    widths = widths_of(instr)
    if widths is None:
        yield "unknown instruction"
    elif len(widths) != len(instr.operands):
        yield f"{len(instr.operands)} operands, not {len(widths)}"
    else:
        for operand, width in zip(instr.operands, widths, strict=True):
            yield from one_operand(module, operand, width)


def one_operand(module: PtxModule, operand: str, width: str) -> Iterator[str]:
    """`width` is a number of bits, `pred`, `address`, `param` or `label`; `>=` before it where a
    wider register does as well."""
    if width == "label":
        return
    if width == "param":
        if operand[1:-1].partition("+")[0] not in module.params:
            yield f"parameter {operand} is not declared"
        return
    if operand.startswith("["):
        yield from address_problems(module, operand[1:-1])
    elif operand.startswith("{"):
        parts = [part.strip() for part in operand[1:-1].split(",")]
        for part in parts:
            yield from register_problems(module, part, str(int(width) // len(parts)))
    else:
        yield from register_problems(module, operand, width)


def address_problems(module: PtxModule, text: str) -> Iterator[str]:
    base = text.partition("+")[0]
    if base not in module.arrays:
        yield from register_problems(module, base, "64")


def register_problems(module: PtxModule, operand: str, width: str) -> Iterator[str]:
    if operand == "_" or NUMBER.fullmatch(operand):
        return
    if SPECIAL.fullmatch(operand) or operand in module.arrays:
        kind = "b32" if operand.startswith("%") else "b64"
    else:
        kind = module.type_of(operand) or ""
    if not kind:
        yield f"{operand} is not declared"
    elif not fits(kind, width):
        yield f"{operand} is {kind}, not of {width} bits"


def fits(kind: str, width: str) -> bool:
    if width.startswith(">="):
        return kind != "pred" and int(kind[1:]) >= int(width[2:])
    return kind == "pred" if "pred" in (kind, width) else kind[1:] == width


# -- instructions ----------------------------------------------------------------------------------


def widths_of(instr: PtxInstruction) -> Widths | None:
    """The widths of the operands of an instruction, in order; None if it is not known."""
    types = [word[1:] if word != "pred" else word for word in instr.name if TYPE.fullmatch(word)]
    rule = INSTRUCTIONS.get(instr.name[0])
    return None if rule is None else rule(instr, types)


Rule = Callable[[PtxInstruction, list[str]], Widths]


def alike(count: int) -> Rule:
    return lambda instr, types: (types[-1],) * count


def product(instr: PtxInstruction, types: list[str]) -> Widths:
    sources = instr.operands[1:]
    wide = str(2 * int(types[-1])) if "wide" in instr.name else types[-1]
    return (wide, types[-1], types[-1], wide)[: 1 + len(sources)]


def memory_access(instr: PtxInstruction, types: list[str]) -> Widths:
    count = next((int(word[1:]) for word in instr.name if re.fullmatch(r"v[24]", word)), 1)
    value = f">={types[-1]}" if count == 1 else str(count * int(types[-1]))
    if "param" in instr.name:
        return (value, "param")
    return (value, "64") if instr.name[0] == "ld" else ("64", value)


def conversion(instr: PtxInstruction, types: list[str]) -> Widths:
    goal, source = (f">={t}" if t == "8" else t for t in types)
    return goal, source


def barrier(instr: PtxInstruction, types: list[str]) -> Widths:
    return ("pred", "32", "pred") if "red" in instr.name else ("32",)


INSTRUCTIONS: dict[str, Rule] = {
    **{name: alike(3) for name in ("add", "sub", "div", "rem", "min", "max", "and", "or", "xor")},
    **{name: alike(2) for name in ("abs", "neg", "not", "sqrt", "rcp", "mov", "cvta", "brev")},
    **{name: alike(4) for name in ("fma", "prmt")},
    "copysign": alike(3),
    "mul": product,
    "mad": product,
    "cvt": conversion,
    "ld": memory_access,
    "st": memory_access,
    "atom": lambda instr, types: (types[-1], "64", *[types[-1]] * (len(instr.operands) - 2)),
    "shl": lambda instr, types: (types[-1], types[-1], "32"),
    "shr": lambda instr, types: (types[-1], types[-1], "32"),
    "shf": lambda instr, types: (types[-1],) * 4,
    "bfe": lambda instr, types: (types[-1], types[-1], "32", "32"),
    "bfi": lambda instr, types: (types[-1], types[-1], types[-1], "32", "32"),
    "clz": lambda instr, types: ("32", types[-1]),
    "popc": lambda instr, types: ("32", types[-1]),
    "setp": lambda instr, types: ("pred", types[-1], types[-1]),
    "selp": lambda instr, types: (types[-1],) * 3 + ("pred",),
    "dp4a": lambda instr, types: ("32",) * 4,
    "shfl": lambda instr, types: ("32",) * 5,
    "vote": lambda instr, types: ("pred", "pred", "32"),
    "bar": barrier,
    "fence": lambda instr, types: (),
    "bra": lambda instr, types: ("label",),
    "ret": lambda instr, types: (),
}
