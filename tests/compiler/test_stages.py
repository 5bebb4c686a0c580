"""A call in stages: traced, lowered, compiled, with the names of JAX."""

from __future__ import annotations

from typing import Any

import pytest

import tetrad as td
from tetrad.core.errors import TraceError, UnsupportedError

X = td.asarray([1.0, 2.0, 3.0])


def layer(params: dict[str, Any], x: Any, power: int = 1) -> dict[str, Any]:
    return {"y": params["w"] * x**power, "total": td.sum(x)}


def test_a_call_is_traced_lowered_and_compiled() -> None:
    f = td.jit(layer, static_argnames="power")
    params = {"w": td.asarray(2.0)}
    traced = f.trace(params, X, power=2)
    assert traced.fun_name == "layer" and "layer" in repr(traced)
    assert str(traced) == str(traced.graph) == str(traced.jaxpr)
    assert traced.out_info["y"] == td.Spec((3,)) and traced.out_info["total"] == td.Spec(())
    lowered = traced.lower()
    assert lowered.as_text() == str(traced.graph)
    assert lowered.in_tree == td.tree.structure(((params, X), {}))
    assert lowered.out_tree == td.tree.structure({"y": 0, "total": 0})
    assert lowered.args_info[0][1] == td.Spec((3,))
    compiled = lowered.compile()
    assert f.compiles == 1
    assert compiled(params, X)["y"].tolist() == [2, 8, 18]
    assert f(params, X, power=2)["y"].tolist() == [2, 8, 18]
    assert f.compiles == 1


def test_a_function_is_traced_once_on_the_way() -> None:
    times = []

    def f(x: Any) -> Any:
        times.append(1)
        return x + 1

    compiled = td.jit(f).lower(td.Spec((3,))).compile()
    assert compiled(X).tolist() == [2, 3, 4]
    assert len(times) == 1


def test_a_compiled_call_takes_its_types_alone() -> None:
    compiled = td.jit(layer, static_argnums=2).lower({"w": X}, X, 2).compile()
    for wrong, message in (
        (({"w": X}, td.ones(4)), r"layer was compiled for x: f32\[3\], called with f32\[4\]"),
        (({"w": X}, td.ones(3, dtype=td.int32)), r"called with i32\[3\]"),
        (({"w": X}, 1.0), r"called with a Python float"),
        (({"v": X}, X), r"compiled for arguments \(\({'w': \*}, \*\), {}\), called with"),
        (({"w": X}, X, 2), r"static arguments are part of the program"),
    ):
        with pytest.raises(TypeError, match=message):
            compiled(*wrong)
    number = td.jit(lambda x: x + 1).lower(1.0).compile()
    assert float(number(2.0)) == 3
    with pytest.raises(TraceError, match="compiled for x: a Python float, called with f32"):
        number(X)


def test_what_a_call_costs() -> None:
    x = td.ones((16, 32))
    compiled = td.jit(lambda x: td.tanh(x @ x.T)).lower(x).compile()
    costs = compiled.cost_analysis()
    assert costs["flops"] >= 2 * 16 * 16 * 32
    assert costs["bytes accessed"] >= 4 * (16 * 32 + 16 * 16)
    memory = compiled.memory_analysis()
    assert memory.argument_size_in_bytes == 4 * 16 * 32
    assert memory.output_size_in_bytes == 4 * 16 * 16
    assert memory.alias_size_in_bytes == 0 and memory.temp_size_in_bytes >= 0
    assert td.jit(lambda x: td.tanh(x @ x.T)).lower(x).cost_analysis() == costs
    assert "schedule" in compiled.as_text()


def test_shapes_without_running_and_a_cache_that_is_cleared() -> None:
    f = td.jit(lambda x: (x @ x.T, {"n": 3}))
    assert f.eval_shape(td.Spec((2, 5)))[0] == td.Spec((2, 2))
    f(td.ones((2, 5)))
    f.clear_cache()
    assert f(td.ones((2, 5)))[0].shape == (2, 2)
    assert f.compiles == 2


def test_settings_of_jax_are_taken() -> None:
    f = td.jit(
        lambda x: x + 1, keep_unused=True, inline=True, device=None, backend="cpu",
        in_shardings=None, out_shardings=None, compiler_options=None,
    )  # fmt: skip
    assert f(X).tolist() == [2, 3, 4]
    assert td.jit(lambda x: x, device=td.devices()[0])(X).tolist() == [1, 2, 3]
    with pytest.raises(UnsupportedError, match="backend='gpu' is not supported"):
        td.jit(lambda x: x, backend="gpu")
    with pytest.raises(TypeError, match="unexpected keyword argument 'statics'"):
        td.jit(lambda x: x, statics=1)
    with pytest.raises(TraceError, match="no compiler options"):
        td.jit(lambda x: x).lower(X).compile({"xla": 1})
