"""One decoding step as plain data: it is JSON, and its parts agree with each other."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.models.loaded import write_model
from tetrad.explain.inside import decode_step, inside
from tetrad.hub.describe import describe


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    path = tmp_path_factory.mktemp("inside") / "tiny.gguf"
    write_model(str(path), "llama", "q8_0")
    found: dict[str, Any] = inside(describe(str(path)), decode_step(path), 256)
    return found


def test_it_is_json_as_it_stands(data: dict[str, Any]) -> None:
    assert json.loads(json.dumps(data)) == data


def test_launches_bytes_and_times_of_kernels_add_up_to_the_step(data: dict[str, Any]) -> None:
    kernels = data["kernels"]
    assert sum(kernel["launches"] for kernel in kernels) == data["step"]["launches"]
    assert sum(kernel["bytes"] for kernel in kernels) == data["step"]["bytes"]
    for number, kernel in enumerate(kernels):
        assert sum(ns for which, ns in data["sequence"] if which == number) == kernel["ns"]
        assert kernel["least_ns"] <= kernel["ns"]


def test_every_kernel_of_a_group_is_at_some_node_of_a_graph(data: dict[str, Any]) -> None:
    shown = {node["kernel"] for graph in data["graphs"] for node in graph["nodes"]} - {None}
    assert shown and shown <= set(range(len(data["kernels"])))
    heavy = next(n for n, kernel in enumerate(data["kernels"]) if kernel["name"] == "matmul")
    assert heavy in shown


def test_boxes_and_lines_lie_within_the_drawing(data: dict[str, Any]) -> None:
    for graph in data["graphs"]:
        points = [point for edge in graph["edges"] for point in edge]
        points += [[node["x"], node["y"]] for node in graph["nodes"]]
        assert all(0 <= x <= graph["width"] and 0 <= y <= graph["height"] for x, y in points)


def test_buffers_lie_within_the_arena(data: dict[str, Any]) -> None:
    arena = data["arena"]
    assert arena["buffers"] and arena["bytes"] <= arena["unshared"]
    for buffer in arena["buffers"]:
        assert buffer["offset"] + buffer["bytes"] <= arena["bytes"]
        assert 0 <= buffer["first"] <= buffer["last"] < arena["steps"]
