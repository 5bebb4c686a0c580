"""Functions of `jax.numpy` and its neighbours whose conventions are JAX's; answers are JAX's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tetrad.jax as jax
import tetrad.jax.numpy as jnp
from tetrad.core.errors import ShapeError, UnsupportedError

M = np.arange(12, dtype=np.float32).reshape(3, 4)
FAR = np.asarray([1, 7, -9])


def each_way(f: Callable[..., Any], *args: Any) -> list[Any]:
    return [f(*args), jax.jit(f)(*args)]


def test_trace_is_a_sum_here() -> None:
    for found in each_way(lambda x: jnp.trace(x, 1), jnp.asarray(M)):
        assert found.tolist() == 18
    assert jnp.trace(jnp.ones((2, 3, 3)), axis1=1, axis2=2).tolist() == [3, 3]


def test_an_element_that_is_not_there_is_filled() -> None:
    for found in each_way(lambda x: jnp.take(x, FAR), jnp.asarray(M[0])):
        np.testing.assert_array_equal(found, [1, np.nan, np.nan])
    assert jnp.take(jnp.arange(3), FAR).tolist() == [1, -(2**31), -(2**31)]
    assert jnp.take(jnp.arange(3), FAR, mode="clip").tolist() == [1, 2, 0]
    assert jnp.take(jnp.arange(3), FAR, fill_value=5).tolist() == [1, 5, 5]
    rows = jnp.take_along_axis(jnp.asarray(M), jnp.asarray([[0], [9], [-1]]), axis=1)
    np.testing.assert_array_equal(rows, [[0], [np.nan], [11]])
    bits = jnp.take_along_axis(jnp.arange(3, dtype="uint8"), FAR, axis=None)
    assert bits.tolist() == [1, 255, 255]


def test_counts_of_a_histogram_are_floats() -> None:
    counts, edges = jnp.histogram(jnp.asarray([0.0, 1.0, 1.5, 4.0]), bins=2)
    assert (counts.dtype, counts.tolist(), edges.tolist()) == ("float32", [3, 1], [0, 2, 4])


def test_types_of_python_give_way() -> None:
    assert jnp.result_type(float, jnp.float16) == jnp.float16
    assert jnp.result_type(int, jnp.int8) == jnp.int8
    assert jnp.result_type(float, jnp.int8) == jnp.float32
    assert jnp.result_type(float) == jnp.float32 and jnp.result_type(bool, int) == jnp.int32
    assert jnp.promote_types(float, jnp.bfloat16) == jnp.bfloat16
    assert jnp.promote_types("uint8", int) == jnp.uint8
    assert jnp.promote_types("int8", "uint8") == jnp.int16


def test_singular_values_alone() -> None:
    alone = jnp.linalg.svd(jnp.asarray([[3.0, 0.0], [0.0, 4.0]]), compute_uv=False)
    assert alone.tolist() == [4, 3]


def test_quotient_and_remainder_together() -> None:
    for found in each_way(lambda x: divmod(x, 4), jnp.asarray([7, -7])):
        assert [part.tolist() for part in found] == [[1, -2], [3, 1]]
    assert [part.tolist() for part in divmod(7, jnp.asarray([2, -2]))] == [[3, -4], [1, -1]]


BITS = [
    (np.float32([1.0, -0.0]), "int32", [1065353216, -(2**31)]),
    (np.int32([1065353216]), "float32", [1.0]),
    (np.int8([-1]), "uint8", [255]),
    (np.uint32([1065353216]), "uint8", [[0, 0, 128, 63]]),
    (np.uint8([[0, 0, 128, 63]]), "float32", [1.0]),
    (np.float32([1.0]), "uint16", [[0, 16256]]),
    (np.uint16([16256]), "bfloat16", [1.0]),
]


@pytest.mark.parametrize(("given", "to", "wanted"), BITS)
def test_bits_as_another_type(given: np.ndarray, to: str, wanted: list[Any]) -> None:
    for found in each_way(lambda x: jax.lax.bitcast_convert_type(x, to), jnp.asarray(given)):
        assert found.dtype == jnp.dtype(to) and found.tolist() == wanted
    back = jax.lax.bitcast_convert_type(found, given.dtype)
    assert back.tolist() == given.tolist()


def test_bits_that_make_no_element() -> None:
    with pytest.raises(ShapeError, match=r"4 elements of u8 make one of 32 bits, got u8\[3\]"):
        jax.lax.bitcast_convert_type(jnp.zeros(3, "uint8"), "float32")
    with pytest.raises(UnsupportedError, match=r"not for f16(.|\n)*bfloat16, float32"):
        jax.lax.bitcast_convert_type(jnp.zeros(3, "float16"), "int16")


def test_counts_of_bits_have_the_dtype_of_the_numbers() -> None:
    found = jax.lax.population_count(jnp.asarray([7, -1]))
    assert (found.dtype, found.tolist()) == ("int32", [3, 32])
    assert jax.lax.clz(jnp.asarray([7, -1, 0])).tolist() == [29, 0, 32]


def test_cosine_transforms() -> None:
    fft, x = jax.scipy.fft, np.float32([1, 2, 4, 7, 5])
    np.testing.assert_allclose(fft.dct(x), [38, -13.486305, -3.854102, 4.808283, -2.854102], 1e-5)
    unit = [8.497058, -4.264745, -1.218774, 1.520513, -0.902546]
    np.testing.assert_allclose(fft.dct(x, norm="ortho"), unit, rtol=1e-5)
    for norm in (None, "ortho"):
        for back in each_way(lambda x, n=norm: fft.idct(fft.dct(x, norm=n), norm=n), x):
            np.testing.assert_allclose(back, x, rtol=1e-5)
        twice = fft.idctn(fft.dctn(M, norm=norm), norm=norm)
        np.testing.assert_allclose(twice, M, atol=1e-5)
    assert fft.dct(M, n=3, axis=1).shape == (3, 3) and fft.dct(M, n=5, axis=0).shape == (5, 4)
    with pytest.raises(UnsupportedError, match="dct: type 1"):
        fft.dct(x, type=1)


def kept(policy: Any) -> str:
    name = jax.ad_checkpoint.checkpoint_name

    def f(w: Any, x: Any) -> Any:
        for i in range(2):
            x = name(jnp.sin(w[i] @ x), f"wave{i}")
        return x

    return jax.checkpoint(f, policy=policy)  # type: ignore[no-any-return]


def test_values_with_names_are_kept(capsys: pytest.CaptureFixture[str]) -> None:
    policies, counts = jax.checkpoint_policies, []
    offload = policies.save_and_offload_only_these_names(
        names_which_can_be_saved=["wave0"], names_which_can_be_offloaded=["wave1"],
        offload_src="device", offload_dst="pinned_host",
    )  # fmt: skip
    both = policies.save_from_both_policies(
        policies.save_only_these_names("wave0"), policies.save_only_these_names("wave1")
    )
    for policy in (
        policies.nothing_saveable, policies.save_only_these_names("wave0"), offload, both,
        policies.save_any_names_but_these("wave1"),
    ):  # fmt: skip
        arguments = np.ones((2, 3, 3), np.float32), np.ones(3, np.float32)
        jax.ad_checkpoint.print_saved_residuals(kept(policy), *arguments)
        counts.append(capsys.readouterr().out.count("f32[3] kept"))
    assert counts == [1, 2, 2, 2, 2]
    with pytest.raises(UnsupportedError, match="together are no policy"):
        policies.save_from_both_policies(policies.save_only_these_names("a"), "dots_saveable")


def test_derivatives_that_are_not_there_are_errors_as_in_jax() -> None:
    f = jax.custom_vjp(lambda x: x)
    f.defvjp(lambda x: (x, None), lambda r, g: (g,))
    with pytest.raises(TypeError, match="custom vjp"):
        jax.jvp(f, (1.0,), (1.0,))
    with pytest.raises(ValueError, match="no reverse derivative"):
        jax.grad(lambda x: jax.lax.while_loop(lambda y: y < 9.0, lambda y: y * x, x))(2.0)
