"""explain: the report and the page tell what was compiled, moved and timed, and why it was
compiled."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tetrad as td
from tests.explain.programs import arrays, loops, mix, mix_arguments, softmax
from tetrad.core.op import REGISTRY
from tetrad.explain.recompile import parts_of, why_compiled
from tetrad.explain.roofs import Roofs, measure_roofs
from tetrad.explain.story import best_times, explain
from tetrad.passes import plan_loop


def test_the_report_tells_kernels_memory_and_stages() -> None:
    story = td.explain(mix)(*mix_arguments())
    text = str(story)
    assert text.startswith(
        "mix(x: f32[5,8], w: f32[8,6], v: f32[8,6])\n  compiled now: first call\n"
    )
    for kernel in story.kernels:
        assert kernel.ns > 0 and kernel.nbytes > 0 and kernel.threads == 1
        assert kernel.name[:40] in text
    for word in (
        "optimised graph",
        "groups",
        "arena",
        "time per stage",
        "trace",
        "steps of the pipeline: inline_custom ",
        "roofs of this machine",
    ):
        assert word in text
    assert story.arena_bytes <= story.intermediate_bytes + 64 * len(story.lives)
    assert story.kernels[0].nbytes == 4 * (5 * 8 + 8 * 6 + 5 * 6)
    assert (
        story.origins.get("compiled", 0)
        + story.origins.get("disk", 0)
        + story.origins.get("process", 0)
        > 0
    )


def test_a_branch_that_is_not_taken_has_no_rates(tmp_path: Path) -> None:
    story = td.explain(lambda x: td.cond(x[0] > 0, td.cumulative_sum, td.sort, x))(td.ones(64))
    (idle,) = (k for k in story.kernels if k.name == "sort")
    assert idle.ns == 0 and idle.rates == ("-", "-") and idle.nbytes > 0
    (line,) = (line for line in str(story).splitlines() if "/sort " in line)
    assert line.endswith("0 ns       -       -  not run, or too short to time")
    assert "not run, or too short to time" in story.html(tmp_path / "page.html").read_text()


def test_reductions_are_told_with_their_operations_and_the_bytes_they_touch() -> None:
    exps = td.explain(lambda x: td.sum(td.exp(x), axis=1))(np.ones((4, 8), np.float32)).kernels
    assert [k.flops for k in exps] == [4 * 8 * (1 + REGISTRY["exp"].cost)]
    chunks, join = td.explain(lambda x: td.sum(x))(np.ones(1 << 16, np.float32)).kernels
    assert (chunks.flops, chunks.nbytes) == (1 << 16, (4 << 16) + 16 * 4)
    assert (join.flops, join.nbytes) == (16, 16 * 4 + 4)


def test_scratch_is_told_for_each_thread() -> None:
    """Chains and sums that wait between blocks of k are the most of it; whatever the sizes, a few
    megabytes."""
    story = td.explain(lambda a, b: a @ b)(
        np.zeros((1040, 2050), np.float32), np.zeros((2050, 520), np.float32)
    )
    assert 1 << 16 < story.scratch_bytes < 6 << 20
    assert "\n  scratch " in str(story) and " for each thread\n" in str(story)


def test_every_computed_node_has_a_group() -> None:
    (part,) = td.explain(mix)(*mix_arguments()).parts
    leaves = ("parameter", "constant")
    assert all(node in part.computed for node in part.graph.nodes() if node.op.name not in leaves)
    assert all(part.groups[g] is not None for owners in part.computed.values() for g in owners)


def test_a_second_call_is_not_new_and_a_third_says_what_changed() -> None:
    f = td.jit(softmax)
    assert explain(f)(*arrays((4, 30))).is_new
    again = explain(f)(*arrays((4, 30)))
    assert (
        not again.is_new
        and "already compiled in this process" in str(again)
        and "trace" not in again.stages
    )
    other = explain(f)(*arrays((4, 31)))
    assert (
        other.is_new
        and other.why[0] == "x is f32[4,31], it was f32[4,30]"
        and "only sizes differ" in other.why[1]
    )
    wide = explain(f)(arrays((4, 31))[0].astype(np.float64))
    assert wide.why == ("x is f64[4,31], it was f32[4,31]",)


def test_calls_are_told_with_their_path() -> None:
    layer = td.jit(softmax)
    story = explain(lambda x: layer(layer(x)) + 1)(*arrays((4, 8)))
    assert [k.path for k in story.kernels] == [("softmax",), ("softmax",), ()]
    assert story.programs == 2 and len(story.parts) == 2
    assert "groups of softmax" in str(story)


def test_methods_donation_and_empty_arrays() -> None:
    class Model:
        @td.jit(static_argnums=0)
        def double(self, x: Any) -> Any:
            return x * 2

    x = td.ones(3)
    assert explain(Model().double)(x).kernels[0].name == "multiply"
    assert explain(td.jit(lambda x: x + 1, donate_argnums=0))(x).kernels and not x.is_deleted
    assert explain(lambda x: x + 1)(td.zeros(0)).kernels == ()
    assert "0 kernels" in str(explain(lambda x: x)(x))


def test_kernels_in_loops_count_as_often_as_they_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan_loop, "is_small", lambda *bodies: False)  # else it is one kernel
    story = explain(loops)(*arrays((6,), (5, 6)))
    inner = [kernel for kernel in story.kernels if kernel.path]
    assert inner[0].nbytes % 5 == 0 and "reduce_max" in inner[0].name
    assert "scan" in str(story.steps[0].name)


def test_explain_is_a_function_and_a_folder() -> None:
    from tetrad.explain.page import write_page

    assert callable(td.explain) and td.explain.page.write_page is write_page
    assert {"explain", "bisect"} <= set(dir(td))


@pytest.mark.parametrize(
    ("earlier", "now", "told"),
    [
        ("(x: f32[2])", "(x: f32[2,1])", ["x is f32[2,1], it was f32[2]"]),
        ("(x: f32[2], n=1)", "(x: f32[2], n=2)", ["n is 2, it was 1"]),
        ("(x: f32[2])", "(x: f32[2], y: f32[2])", ["y is new: f32[2]"]),
        ("(x: f32[2], y: f32[2])", "(x: f32[2])", ["y is gone"]),
        ("(p['a, b']: f32[2])", "(p['a, b']: i32[2])", ["p['a, b'] is i32[2], it was f32[2]"]),
    ],
)
def test_what_changed_since_the_nearest_signature(earlier: str, now: str, told: list[str]) -> None:
    assert why_compiled(["(z: i8[9,9,9], w: i8[1])", earlier, now], now) == told


def test_signatures_come_apart_at_the_right_commas() -> None:
    text = "(p['w']: f32[2,3], how=('a', ('b', \"c,\")), s='x: y', f=<function g at 0x1, 2>)"
    assert list(parts_of(text)) == ["p['w']", "how", "s", "f"]


# roofs


def test_roofs_are_measured_once_and_ordered() -> None:
    roofs = measure_roofs(1)
    assert measure_roofs(1) is roofs and roofs.threads == 1
    assert 0.5 < roofs.memory <= roofs.cache < 2000 and 0.1 < roofs.flops < 2000


def test_the_roof_over_a_kernel_is_that_of_its_working_set() -> None:
    roofs = Roofs(1, {64: 100.0, 1000: 50.0, 9000: 10.0}, 1.0)
    assert [roofs.bandwidth_for(n) for n in (1, 64, 999, 1000, 10**9)] == [100, 100, 100, 50, 10]


# the page


class Checker(HTMLParser):
    """Tags that are opened and not closed, and what the page would load."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.loads: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.loads += [value or "" for name, value in attrs if name in ("src", "href")]
        if tag != "meta":
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        pass

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_the_page_is_one_well_formed_file(tmp_path: Path) -> None:
    def tower(x: Any, w: Any) -> Any:
        for _ in range(40):
            x = softmax(x @ w) + x
        return x

    story = explain(tower)(*arrays((4, 8), (8, 8)))
    assert len(story.graph.nodes()) > 300
    path = story.html(tmp_path / "page.html")
    text = path.read_text()
    checker = Checker()
    checker.feed(text)
    assert checker.open == [] and checker.loads == []
    assert text.count("<tr class=kernel") == len(story.kernels) and text.count("class=edge") > 300
    assert not re.search(
        r"\b(?:nan|inf)\b", " ".join(re.findall(r'(?:d|x|y|width|height|points)="([^"]*)"', text))
    )


def test_names_on_the_page_are_escaped(tmp_path: Path) -> None:
    def f(x: Any) -> Any:
        return x + 1

    f.__name__ = "<script>alert(1)</script>"
    assert "<script>alert" not in explain(f)(td.ones(3)).html(tmp_path / "page.html").read_text()


def test_no_kernel_is_above_the_roof_on_a_busy_machine() -> None:
    others = [
        subprocess.Popen([sys.executable, "-c", "while True: pass"])
        for _ in os.sched_getaffinity(0)
    ]
    try:
        stories = [
            explain(lambda x, w: softmax(softmax(x @ w) @ w))(*arrays((96, 200), (200, 200)))
            for _ in range(3)
        ]
    finally:
        for other in others:
            other.kill()
            other.wait()
    assert all(0 < kernel.share <= 1 for story in stories for kernel in story.kernels)
    assert all(kernel.ns > 300 for story in stories for kernel in story.kernels)
    assert any(story.is_busy for story in stories)
    assert all(
        ("other programs took processors" in str(story)) == story.is_busy for story in stories
    )


def test_a_run_that_was_held_up_does_not_count() -> None:
    usual = [[100, 50], [110, 52], [105, 51], [101, 49]]
    assert best_times([*usual, [400, 3], *usual]) == [100, 49]
