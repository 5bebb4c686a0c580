"""Settings: for the process, for one block of one thread, and as part of what chooses a program."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

import tetrad as td
from tetrad.core.config import SETTINGS, Setting, config, declare, standard
from tetrad.core.errors import SettingError, UnknownSettingError

KINDS = {"float": 1.5, "int": 3, "complex": 2j}


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    yield
    for setting in SETTINGS.values():
        config.update(setting.name, setting.default)


def on_another_thread(what: object) -> object:
    found: list[object] = []
    thread = threading.Thread(target=lambda: found.append(what()))  # type: ignore[operator]
    thread.start()
    thread.join()
    return found[0]


def test_defaults_are_32_bits() -> None:
    assert (config.default_float, config.default_int) == (td.float32, td.int32)
    assert "default_float=f32, default_int=i32" in repr(config)


@pytest.mark.parametrize("spelling", ["float64", td.float64, "f64", "<f8"])
def test_a_dtype_may_be_spelt_as_elsewhere(spelling: object) -> None:
    with config.context(default_float=spelling):
        assert config.default_float is td.float64


def test_what_is_no_setting_is_said() -> None:
    with pytest.raises(SettingError, match="default_float: expected 'float32' or 'float64', got"):
        config.update("default_float", "int8")
    with pytest.raises(UnknownSettingError, match="there is no setting 'default_floot'"):
        config.update("default_floot", "float64")
    with pytest.raises(AttributeError, match="there is no setting 'default_floot'"):
        config.default_floot  # noqa: B018
    with pytest.raises(UnknownSettingError), config.context(precision=1):
        pass


def test_a_context_is_of_its_thread_and_ends() -> None:
    with config.context(default_float="float64"):
        assert on_another_thread(lambda: config.default_float) is td.float32
        with config.context(default_int="int64"):
            assert (config.default_float, config.default_int) == (td.float64, td.int64)
        assert (config.default_float, config.default_int) == (td.float64, td.int32)
    assert config.default_float is td.float32


def test_a_context_ends_with_an_error() -> None:
    with pytest.raises(KeyError), config.context(default_float="float64"):
        raise KeyError
    assert config.default_float is td.float32


def test_the_process_is_seen_by_all_threads_but_inside_their_contexts() -> None:
    with config.context(default_float="float32"):
        config.update("default_float", "float64")
        config.default_int = "int64"
        assert (config.default_float, config.default_int) == (td.float32, td.int64)
        assert on_another_thread(lambda: config.default_float) is td.float64
    assert config.default_float is td.float64


def test_equal_values_have_one_key() -> None:
    before = config.key
    with config.context(default_float="float64"):
        inside = config.key
        with standard():
            assert config.key == before
    config.update("default_float", "float64")
    assert before == 0 != inside == config.key


def test_a_setting_may_be_declared_later() -> None:
    with config.context(default_float="float64"):
        key = config.key
        declare(Setting("tried", 1, int, "only here", changes_programs=True))
        try:
            assert config.tried == 1
            assert config.key == key
            with config.context(tried=2):
                assert config.key != key
            with pytest.raises(ValueError, match="declared twice"):
                declare(Setting("tried", 1, int, "again"))
        finally:
            del SETTINGS["tried"]


@pytest.mark.parametrize("number", KINDS.values(), ids=KINDS)
def test_numbers_take_the_defaults(number: complex) -> None:
    with config.context(default_float="float64", default_int="int64"):
        wide = {"f": td.float64, "i": td.int64, "c": td.complex128}
        for made in (td.asarray(number), td.asarray([number]), td.full(2, number)):
            assert made.dtype is wide[made.dtype.kind]
            assert td.jit(lambda x: x)(number).dtype is made.dtype


def test_functions_take_the_defaults() -> None:
    with config.context(default_float="float64", default_int="int64"):
        key = td.random.key(0)
        floats = (
            td.zeros(2), td.ones(2), td.eye(2), td.linspace(0, 1, 3), td.arange(2.0),
            td.asarray([]), td.arange(3) / 2, td.mean(td.arange(3)), td.sqrt(td.asarray(True)),
            td.arange(3) + 1.5,
            td.random.normal(key, (2,)), td.random.uniform(key), td.fft.fftfreq(3),
            td.nn.one_hot(td.asarray([1]), 2), td.astype(td.arange(2), float),
        )  # fmt: skip
        assert {x.dtype for x in floats} == {td.float64}
        integers = (
            td.arange(3), td.sum(td.asarray([True])), td.argmax(td.ones(2)), td.asarray(1),
            td.random.randint(key, (2,), 0, 5), td.astype(td.ones(2), int),
        )  # fmt: skip
        assert {x.dtype for x in integers} == {td.int64}
        assert td.sum(td.asarray([1], dtype=td.uint8)).dtype is td.uint64


def test_arrays_keep_their_dtype() -> None:
    x = td.ones(3)
    with config.context(default_float="float64"):
        assert (x + 1.5).dtype is td.float32
        assert td.jit(lambda x: x * 2.0)(x).dtype is td.float32


def test_programs_under_other_settings_are_others() -> None:
    @td.jit
    def f(x: td.Array) -> td.Array:
        return x + 1.5

    outer = td.jit(lambda x: f(x) * 2)
    x = td.arange(3)
    for _ in range(2):
        assert f(x).dtype is outer(x).dtype is td.float32
        with config.context(default_float="float64"):
            assert f(x).dtype is outer(x).dtype is td.float64
    assert f.compiles == outer.compiles == 2


def test_derivatives_and_batches_take_the_defaults() -> None:
    with config.context(default_float="float64"):
        assert td.grad(lambda x: td.sin(x))(2.0).dtype is td.float64
        assert td.vmap(lambda x: x / 3)(td.arange(3)).dtype is td.float64
        assert td.scan(lambda c, x: (c + x, c), 0.5, td.arange(3))[0].dtype is td.float64
