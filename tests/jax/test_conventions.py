"""The conventions of JAX: 64 bits on request, indices out of range, strict functions of lax."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

import tetrad as td
import tetrad.jax as jax
import tetrad.jax.numpy as jnp
from tests.modules import ROOT

lax = jax.lax
X = np.arange(10, dtype=np.float32)


def test_64_bits_become_32() -> None:
    assert jnp.asarray(np.ones(2)).dtype == np.float32
    assert jnp.zeros(2, dtype=np.int64).dtype == np.int32
    assert (jnp.ones(2) * np.ones(2)).dtype == np.float32
    assert jax.jit(lambda x: x)(np.ones(2)).dtype == np.float32
    assert jax.dtypes.canonicalize_dtype(np.float64) == np.float32


def test_64_bits_on_request() -> None:
    with jax.enable_x64(True):
        assert jnp.asarray(np.ones(2)).dtype == np.float64
        assert jnp.zeros(2).dtype == np.float64
        assert jax.config.jax_enable_x64
    jax.config.update("jax_enable_x64", True)
    try:
        assert jnp.arange(3).dtype == np.int64
    finally:
        jax.config.update("jax_enable_x64", False)
    assert not jax.config.x64_enabled


@pytest.mark.parametrize("place", [11, -11, [11, -11, 3], 5])
@pytest.mark.parametrize("how", ["now", "jit"])
def test_an_index_out_of_range_takes_the_nearest(place: object, how: str) -> None:
    index = np.asarray(place)
    nearest = X[np.clip(np.where(index < 0, index + 10, index), 0, 9)]
    read = (lambda x, i: x[i]) if how == "now" else jax.jit(lambda x, i: x[i])
    np.testing.assert_array_equal(read(jnp.asarray(X), jnp.asarray(index)), nearest)


def test_a_write_out_of_range_is_left_out() -> None:
    x = jnp.asarray(X)
    np.testing.assert_array_equal(x.at[jnp.asarray([11, 2])].add(5.0), X + 5 * (X == 2))
    np.testing.assert_array_equal(x.at[-11].set(1.0), X)


def test_conventions_of_td_come_back() -> None:
    jax.conventions.leave()
    with pytest.raises(td.errors.BoundsError):
        _ = td.arange(3)[7]
    assert td.asarray(np.ones(2)).dtype == np.float64


def test_importing_td_loads_no_shell() -> None:
    code = "import sys, tetrad as td; td.jit(td.sin)(1.0); print('tetrad.jax' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, cwd=ROOT, text=True)
    assert done.stdout.strip() == "False", done.stderr


@pytest.mark.parametrize(
    "call",
    [
        lambda: lax.max(jnp.ones(3), 1),
        lambda: lax.add(jnp.ones(3, jnp.bfloat16), 1.0),
        lambda: lax.add(jnp.ones(3), jnp.ones((2, 3))),
        lambda: lax.exp(1),
        lambda: lax.clamp(0, jnp.ones(3), 1),
        lambda: lax.pad(jnp.ones(3), 0, [(1, 1, 1)]),
        lambda: jnp.sum([1, 2]),
        lambda: jnp.sin([1.0]),
    ],
)
def test_what_jax_refuses_is_a_type_error(call: object) -> None:
    with pytest.raises(TypeError):
        call()  # type: ignore[operator]


def test_strict_functions_compute() -> None:
    x = jnp.asarray([1.0, 2.0])
    assert lax.add(x, 1.0).tolist() == [2.0, 3.0]
    assert lax.div(jnp.asarray([-5, 5]), jnp.asarray([2, 0])).tolist() == [-2, -1]
    assert lax.rem(jnp.asarray([-5]), 3).tolist() == [-2]
    assert lax.round(jnp.asarray([0.5, 1.5, -0.5])).tolist() == [1.0, 2.0, -1.0]
    assert lax.pad(x, 0.0, [(1, 0, 1)]).tolist() == [0.0, 1.0, 0.0, 2.0]
    assert lax.select(jnp.asarray([True, False]), x, -x).tolist() == [1.0, -2.0]


def test_settings_that_ask_for_what_is_not_here() -> None:
    with pytest.raises(AttributeError):
        jax.config.update("jax_no_such_setting", 1)
    with pytest.raises(td.errors.UnsupportedError):
        jax.config.update("jax_threefry_partitionable", False)
    jax.config.update("jax_platform_name", "cpu")
    assert jax.config.read("jax_platform_name") == "cpu"
    jax.config.update("jax_platform_name", None)


def test_arrays_are_put_where_shardings_say() -> None:
    mesh = jax.make_mesh((1,), ("x",))
    place = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("x"))
    put = jax.device_put({"a": X, "b": X}, {"a": place, "b": jax.devices()[0]}, may_alias=False)
    assert put["a"].sharding == put["b"].sharding == jax.sharding.SingleDeviceSharding()
    with pytest.raises(RuntimeError, match="no back end 'gpu'"):
        jax.devices("gpu")
