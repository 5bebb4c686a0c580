"""Bench, hand: the 4-bit matrix-vector kernel written as LLVM text, the measure of what the emitter
makes of it.

Receives the target, returns text of `hand_q4`, a kernel over groups of 16 rows in the layout of
`kernels.lowbit` and in its order, so the bits must agree. Argument words: weights, x, xs, y,
blocks.
"""

from __future__ import annotations

from native import HEADER, argument

from tetrad.backends.llvm.target import Target


def hand_q4(target: Target) -> str | None:
    """The text for this target; None where nobody wrote one."""
    if target.dot4 == "vnni512":
        return around(vnni_block(), parts=1)
    if target.dot4 == "maddubs":
        return around("".join(maddubs_block(part) for part in range(2)), parts=2)
    return None


def around(block: str, parts: int) -> str:
    """entry -> group -> block -[more blocks]-> block -> next -[more groups]-> group;  -> exit"""
    width = 16 // parts
    kind, half = f"<{width} x float>", f"<{width} x half>"
    phis = "".join(
        f"  %acc{p} = phi {kind} [zeroinitializer, %group], [%sum{p}, %block]\n"
        for p in range(parts)
    )
    stores = "".join(
        (
            f"  %y{p} = getelementptr {kind}, ptr %yp, i64 {p}\n"
            f"  store {kind} %sum{p}, ptr %y{p}, align 32\n"
        )
        for p in range(parts)
    )
    return (
        f"declare {kind} @llvm.fma.v{width}f32({kind}, {kind}, {kind})\n{DECLARATIONS[parts]}"
        f"define void @hand_q4{HEADER} {{\nentry:\n"
        + "".join(argument(i, name) for i, name in enumerate(("w", "x", "xs", "y")))
        + argument(4, "blocks", "i64")
        + "  br label %group\ngroup:\n  %g = phi i64 [%begin, %entry], [%gn, %next]\n"
        "  %g0 = mul i64 %g, %blocks\n"
        "  br label %block\n"
        f"block:\n  %b = phi i64 [0, %group], [%bn, %block]\n{phis}"
        "  %at = add i64 %g0, %b\n  %byte = mul i64 %at, 320\n"
        "  %wp = getelementptr i8, ptr %w, i64 %byte\n"
        "  %xo = mul i64 %b, 32\n  %xp = getelementptr i8, ptr %x, i64 %xo\n"
        "  %so = mul i64 %b, 8\n  %sp = getelementptr i8, ptr %xs, i64 %so\n"
        "  %sp1 = getelementptr i8, ptr %sp, i64 4\n"
        "  %sx = load float, ptr %sp, align 4\n  %sumx = load float, ptr %sp1, align 4\n"
        f"{spread('sxv', 'sx', 'float', width)}{spread('sumxv', 'sumx', 'float', width)}{block}"
        + "".join(finish(p, kind, half, width) for p in range(parts))
        + "  %bn = add i64 %b, 1\n  %more = icmp slt i64 %bn, %blocks\n"
        "  br i1 %more, label %block, label %next\n"
        f"next:\n  %yo = mul i64 %g, 64\n  %yp = getelementptr i8, ptr %y, i64 %yo\n{stores}"
        "  %gn = add i64 %g, 1\n  %again = icmp slt i64 %gn, %end\n"
        "  br i1 %again, label %group, label %exit\n"
        "exit:\n  ret void\n}\n"
    )


def spread(name: str, scalar: str, kind: str, width: int) -> str:
    vector = f"<{width} x {kind}>"
    return (
        f"  %{name}.0 = insertelement {vector} poison, {kind} %{scalar}, i32 0\n"
        f"  %{name} = shufflevector {vector} %{name}.0, {vector} poison, <{width} x i32> "
        "zeroinitializer\n"
    )


def finish(part: int, kind: str, half: str, width: int) -> str:
    """sum = fma(minimum, sumx, fma(scale * sx, dot, acc)) for one part of the 16 rows."""
    p, fma = part, f"@llvm.fma.v{width}f32"
    loads = "".join(
        f"  %{name}p{p} = getelementptr i8, ptr %wp, i64 {start + 2 * width * p}\n"
        f"  %{name}h{p} = load {half}, ptr %{name}p{p}, align 16\n"
        f"  %{name}{p} = fpext {half} %{name}h{p} to {kind}\n"
        for name, start in (("scale", 0), ("low", 32))
    )
    return (
        f"{loads}  %df{p} = sitofp <{width} x i32> %dot{p} to {kind}\n"
        f"  %ss{p} = fmul {kind} %scale{p}, %sxv\n"
        f"  %mid{p} = call {kind} {fma}({kind} %ss{p}, {kind} %df{p}, {kind} %acc{p})\n"
        f"  %sum{p} = call {kind} {fma}({kind} %low{p}, {kind} %sumxv, {kind} %mid{p})\n"
    )


def nibbles(tag: str, offset: int, width: int) -> str:
    """Load one word of each row and split it: %lo{tag} and %hi{tag} as bytes."""
    byte, short = f"<{4 * width} x i8>", f"<{2 * width} x i16>"
    return (
        f"  %p{tag} = getelementptr i8, ptr %wp, i64 {offset}\n"
        f"  %v{tag} = load {byte}, ptr %p{tag}, align 32\n"
        f"  %lo{tag} = and {byte} %v{tag}, splat (i8 15)\n"
        f"  %s{tag} = bitcast {byte} %v{tag} to {short}\n"
        f"  %t{tag} = lshr {short} %s{tag}, splat (i16 4)\n"
        f"  %u{tag} = bitcast {short} %t{tag} to {byte}\n"
        f"  %hi{tag} = and {byte} %u{tag}, splat (i8 15)\n"
    )


def four_columns(tag: str, number: int, width: int) -> str:
    """%x{tag}: four bytes of x, the same for every row."""
    return (
        f"  %xa{tag} = getelementptr i32, ptr %xp, i64 {number}\n"
        f"  %xw{tag} = load i32, ptr %xa{tag}, align 4\n"
        f"{spread(f'xb{tag}', f'xw{tag}', 'i32', width)}"
        f"  %x{tag} = bitcast <{width} x i32> %xb{tag} to <{4 * width} x i8>\n"
    )


def vnni_block() -> str:
    text, acc = "", "zeroinitializer"
    for j in range(4):
        text += nibbles(str(j), 64 + 64 * j, 16)
        for half, name in enumerate(("lo", "hi")):
            tag = str(2 * j + half)
            text += four_columns(tag, 2 * j + half, 16)
            made = "%dot0" if tag == "7" else f"%d{tag}"
            text += f"  {made} = call <16 x i32> @{VPDPBUSD}(<16 x i32> {acc}, "
            text += f"<64 x i8> %{name}{j}, <64 x i8> %x{tag})\n"
            acc = made
    return text


def maddubs_block(part: int) -> str:
    """Eight rows. A pair product is at most 2 * 15 * 128 and a block adds eight of them: below
    2**15, so pairs are added as 16-bit numbers and widened once."""
    text, acc = "", ""
    for j in range(4):
        text += nibbles(f"{part}{j}", 64 + 64 * j + 32 * part, 8)
        for half, name in enumerate(("lo", "hi")):
            tag = f"{part}{2 * j + half}"
            text += four_columns(tag, 2 * j + half, 8)
            text += f"  %m{tag} = call <16 x i16> @{MADDUBS}("
            text += f"<32 x i8> %{name}{part}{j}, <32 x i8> %x{tag})\n"
            if acc:
                text += f"  %a{tag} = add <16 x i16> {acc}, %m{tag}\n"
            acc = f"%a{tag}" if acc else f"%m{tag}"
    return (
        text
        + f"  %dot{part} = call <8 x i32> @{MADDWD}(<16 x i16> {acc}, <16 x i16> splat (i16 1))\n"
    )


VPDPBUSD = "llvm.x86.avx512.vpdpbusd.512"
MADDUBS, MADDWD = "llvm.x86.avx2.pmadd.ub.sw", "llvm.x86.avx2.pmadd.wd"
DECLARATIONS = {
    1: f"declare <16 x i32> @{VPDPBUSD}(<16 x i32>, <64 x i8>, <64 x i8>)\n",
    2: f"declare <16 x i16> @{MADDUBS}(<32 x i8>, <32 x i8>)\n"
    f"declare <8 x i32> @{MADDWD}(<16 x i16>, <16 x i16>)\n",
}
