"""Names of NumPy and JAX that are not ours: the error says what is, and that exists."""

from __future__ import annotations

import re
from operator import attrgetter

import pytest

import tetrad as td
from tetrad.arrays.suggestions import CHANGES, EXPRESSIONS, INSIDE, METHODS, NAMES, SPACES


@pytest.mark.parametrize("name", [*NAMES, *EXPRESSIONS])
def test_what_is_named_instead_exists(name: str) -> None:
    with pytest.raises(
        AttributeError, match=f"tetrad has no function '{name}'; here it is "
    ) as caught:
        getattr(td, name)
    for found in re.findall(r"td\.([\w.]*\w)", str(caught.value)):
        attrgetter(found)(td)


def test_a_name_that_is_spelt_alike() -> None:
    with pytest.raises(AttributeError, match=r"no function 'fori_lop'; there is td\.fori_loop$"):
        td.fori_lop  # type: ignore[attr-defined]  # noqa: B018
    with pytest.raises(AttributeError, match=r"no function 'something_else'$"):
        td.something_else  # type: ignore[attr-defined]  # noqa: B018
    with pytest.raises(AttributeError, match=r"no function 'Sum'; there is td\.sum$"):
        td.Sum  # type: ignore[attr-defined]  # noqa: B018
    assert not hasattr(td, "__wrapped__")


def test_a_name_of_a_namespace_is_found_there() -> None:
    for name, home in (
        ("softmax", "nn"),
        ("inv", "linalg"),
        ("normal", "random"),
        ("rfft", "fft"),
        ("adam", "optim"),
    ):
        with pytest.raises(
            AttributeError, match=rf"no function '{name}'; here it is td\.{home}\.{name}$"
        ):
            getattr(td, name)
    with pytest.raises(AttributeError, match=r"no function 'softmx'; there is td\.nn\.softmax$"):
        td.softmx  # type: ignore[attr-defined]  # noqa: B018


@pytest.mark.parametrize("space", SPACES)
def test_namespaces_list_what_they_have(space: str) -> None:
    module = getattr(td, space)
    assert dir(module) == sorted(module.__all__) and all(
        hasattr(module, name) for name in module.__all__
    )


@pytest.mark.parametrize("space", ["errors", "kernel", "quant", "tree"])
def test_other_namespaces_list_public_names_only(space: str) -> None:
    module = getattr(td, space)
    assert dir(module) == sorted(module.__all__)
    assert all(hasattr(module, name) for name in module.__all__)


def test_the_package_lists_public_names_only() -> None:
    names = dir(td)
    assert len(set(names)) == len(names)
    assert {"jit", "sum", "tanh", "linalg", "quant", "load", "__version__"} <= set(names)
    helpers = {
        "Any",
        "SPACES",
        "annotations",
        "f32",
        "functions",
        "getitem",
        "importlib",
        "is_operand",
    }
    assert not helpers & set(names)
    assert all(hasattr(td, name) for name in names if name != "load")
    for name in ("np", "REGISTRY", "record", "inspect"):
        assert not hasattr(td, name)


@pytest.mark.parametrize(
    ("space", "name"), [(space, name) for space, names in INSIDE.items() for name in names]
)
def test_what_a_namespace_names_instead_exists(space: str, name: str) -> None:
    with pytest.raises(
        AttributeError, match=rf"tetrad\.{space} has no function '{name}'; here it is "
    ) as caught:
        getattr(getattr(td, space), name)
    for found in re.findall(r"td\.([\w.]*\w)", str(caught.value)):
        attrgetter(found)(td)


@pytest.mark.parametrize(
    ("space", "wrong", "right"), [("linalg", "chol", ""), ("linalg", "choleski", "cholesky")]
)
def test_names_spelt_alike_in_a_namespace(space: str, wrong: str, right: str) -> None:
    with pytest.raises(AttributeError) as caught:
        getattr(getattr(td, space), wrong)
    told = f"; there is td.{space}.{right}" if right else ""
    assert str(caught.value) == f"tetrad.{space} has no function '{wrong}'{told}"
    for other in SPACES:
        assert not hasattr(getattr(td, other), "__wrapped__")


@pytest.mark.parametrize("name", [*METHODS, "flip", "isfinite", "einsum"])
def test_methods_of_other_arrays(name: str) -> None:
    x = td.ones((2, 3))
    with pytest.raises(
        AttributeError, match=f"an array has no attribute '{name}'; here it is "
    ) as caught:
        getattr(x, name)
    for found in re.findall(r"td\.([\w.]*\w)", str(caught.value)):
        attrgetter(found)(td)
    for found in re.findall(r"\bx\.(\w+)", str(caught.value)):
        assert hasattr(x, found)


def test_attributes_that_nobody_has() -> None:
    with pytest.raises(
        AttributeError, match=r"an array has no attribute 'flip'; here it is td\.flip"
    ):
        td.jit(lambda x: x.flip())(td.ones(3))
    with pytest.raises(AttributeError, match=r"an array has no attribute 'shpe'$"):
        td.ones(3).shpe  # type: ignore[attr-defined]  # noqa: B018
    assert not hasattr(td.ones(3), "__array_interface__")


@pytest.mark.parametrize(
    ("wrong", "right"), [*CHANGES.items(), ("ad", "add"), ("substract", "subtract")]
)
def test_changes_that_nobody_has(wrong: str, right: str) -> None:
    with pytest.raises(
        AttributeError, match=rf"^x\.at\[index\] has no method '{wrong}'; there are {right},"
    ) as caught:
        getattr(td.ones(3).at[0], wrong)
    listed = str(caught.value).split("there are ")[1].split(", ")
    assert sorted(listed) == [
        "add",
        "apply",
        "divide",
        "get",
        "max",
        "min",
        "multiply",
        "power",
        "set",
        "subtract",
    ]


def test_changes_without_an_index() -> None:
    with pytest.raises(
        AttributeError,
        match=r"x.at has no attribute 'set'; an index comes first: x\.at\[index\].set",
    ):
        td.ones(3).at.set(1.0)
    with pytest.raises(AttributeError, match=r"^x\.at has no attribute 'size'$"):
        td.jit(lambda x: x.at.size)(td.ones(3))
    assert not hasattr(td.ones(3).at[0], "__array__") and not hasattr(td.ones(3).at, "__array__")
