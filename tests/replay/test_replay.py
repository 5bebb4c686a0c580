"""The replay itself: names and order do not count, everything else does."""

from __future__ import annotations

import pytest

import tetrad as td
from tests.replay.canonical import canonical_kernel, canonical_llvm
from tests.replay.capture import LEVELS, PROCESSORS, captured
from tests.replay.compare import differences, report
from tests.replay.programs import BENCHED

KERNEL = """kernel "first"
workgroup 16 1 1
args n
buffer x: f32 read
buffer y: f32 write
body:
  %0: index = arg("n")
  region "loop":
    %1: f32 = load(x, %0)
    store(y, %0, %1)"""

LLVM = """declare float @llvm.fabs.f32(float)
define void @k1(ptr %x) {
entry:
  %t1 = load float, ptr %x
  %t2 = call float @llvm.fabs.f32(float %t1)
  br label %entry
}"""


def renamed(text: str, *pairs: tuple[str, str]) -> str:
    for old, new in pairs:
        assert old in text
        text = text.replace(old, new)
    return text


def test_names_do_not_count() -> None:
    kernel = renamed(
        KERNEL, ("first", "second"), ("args n", "args m"), ('"n"', '"m"'), ("loop", "steps")
    )
    kernel = renamed(kernel, ("buffer x", "buffer read_me"), ("load(x", "load(read_me"))
    llvm = renamed(LLVM, ("@k1", "@other"), ("%x", "%p.x"), ("%t1", "%v9"), ("entry", "start"))
    assert canonical_kernel(kernel) == canonical_kernel(KERNEL)
    assert canonical_llvm(llvm) == canonical_llvm(LLVM)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("load(x", "load(y"),
        ("store(y, %0", "store(y, %1"),
        ("f32 read", "f16 read"),
        ("16 1 1", "8 1 1"),
    ],
)
def test_the_rest_of_a_kernel_counts(old: str, new: str) -> None:
    assert canonical_kernel(renamed(KERNEL, (old, new))) != canonical_kernel(KERNEL)


@pytest.mark.parametrize(
    ("old", "new"), [("fabs", "sqrt"), ("(float %t1)", "(float %t2)"), ("load float", "load i32")]
)
def test_the_rest_of_a_module_counts(old: str, new: str) -> None:
    assert canonical_llvm(renamed(LLVM, (old, new))) != canonical_llvm(LLVM)


def test_a_program_is_captured_as_itself_and_a_change_is_seen() -> None:
    function, *operands = BENCHED["layer norm"]
    target = LEVELS[PROCESSORS[0]]
    before, again = (captured("norm", td.trace(function)(*operands), target) for _ in range(2))
    other = captured("norm", td.trace(lambda *a: function(*a) * 2)(*operands), target)
    assert report({"norm": before}, {"norm": again}) == ""
    assert [name for name, _ in differences({"norm": before}, {"norm": other})] == ["norm"]
    assert report({"norm": before}, {"norm": {**before, "kernels": ["other"]}}, ("llvm",)) == ""
    assert "only before" in report({"norm": before, "gone": before}, {"norm": before})


def test_order_of_kernels_does_not_count() -> None:
    made = {"kernels": ["a", "b"], "llvm": ["c", "d"], "schedule": ["1", "2"]}
    turned = {**made, "kernels": ["b", "a", "e"]}
    [(_, diff)] = differences({"p": made}, {"p": turned})
    assert diff.count("\n  +e") == 1 and "-a" not in diff and "+b" not in diff
