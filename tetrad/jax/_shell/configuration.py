"""JAX's names: `jax.config`, and the settings that are context managers.

Receives JAX's names of settings. Those with a meaning here become settings of `td.config`; those
about devices, XLA and its compile cache are kept and change nothing (`WITHOUT_EFFECT`); a value
that would ask for something that is not here is an error.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

from tetrad.core.errors import UnsupportedError
from tetrad.jax import conventions
from tetrad.jax._shell.tables import td
from tetrad.tracing.array import fail

WITHOUT_EFFECT: dict[str, Any] = {
    "jax_platform_name": None, "jax_platforms": None, "jax_log_compiles": False,
    "jax_default_matmul_precision": None, "jax_traceback_filtering": None,
    "jax_compilation_cache_dir": None, "jax_persistent_cache_min_compile_time_secs": 1.0,
    "jax_persistent_cache_min_entry_size_bytes": 0, "jax_default_device": None,
    "jax_check_tracer_leaks": False, "jax_enable_checks": False, "jax_threefry_partitionable": True,
    "jax_numpy_rank_promotion": "allow", "jax_numpy_dtype_promotion": "standard",
    "jax_debug_key_reuse": False, "jax_enable_custom_prng": False,
    "jax_explain_cache_misses": False,
    "jax_transfer_guard": None, "jax_num_cpu_devices": 1, "jax_legacy_prng_key": "allow",
    "jax_enable_compilation_cache": True, "jax_softmax_custom_jvp": True,
    "jax_cpu_enable_async_dispatch": True, "jax_use_shardy_partitioner": True,
    "jax_raise_persistent_cache_errors": False, "jax_xla_backend": "",
    "jax_captured_constants_warn_bytes": -1, "jax_use_direct_linearize": True,
    "jax_custom_vjp_disable_shape_check": False, "jax_include_full_tracebacks_in_locations": True,
    "jax_hlo_source_file_canonicalization_regex": None, "jax_no_tracing": False,
    "jax_remove_size_one_mesh_axis_from_type": False, "jax_enable_pgle": False,
    "jax_error_checking_behavior_nan": "ignore", "jax_distributed_debug": False,
    "xla_force_host_platform_device_count": 1, "jax_compiler_enable_remat_pass": True,
    "jax_dynamic_shapes": False, "jax_random_seed_offset": 0, "jax_memory_fitting_level": None,
    "jax_optimization_level": None, "jax_cpu_collectives_implementation": None,
}  # fmt: skip
ONLY = {  # settings of which one value is offered
    "jax_numpy_rank_promotion": ("allow", "warn"),
    "jax_numpy_dtype_promotion": ("standard",),
    "jax_threefry_partitionable": (True, 1),
}


class JaxConfig:
    """`jax.config`: settings by JAX's names, as attributes and through `update`."""

    def __init__(self) -> None:
        self.__dict__["kept"] = dict(WITHOUT_EFFECT)

    @property
    def values(self) -> dict[str, Any]:
        """All settings by name."""
        return {**self.__dict__["kept"], **{name: read() for name, (read, _) in EFFECTIVE.items()}}

    def __getattr__(self, name: str) -> Any:
        if name == "x64_enabled":
            return conventions.has_x64()
        if name in EFFECTIVE:
            return EFFECTIVE[name][0]()
        if name not in self.__dict__.get("kept", ()):
            raise AttributeError(f"there is no setting {name!r}", name=name, obj=self)
        return self.__dict__["kept"][name]

    def __setattr__(self, name: str, value: Any) -> None:
        self.update(name, value)

    def read(self, name: str) -> Any:
        return getattr(self, name)

    def update(self, name: str, value: Any) -> None:
        """Set one setting for the process."""
        if name in EFFECTIVE:
            EFFECTIVE[name][1](value)
            return
        if name not in self.__dict__["kept"]:
            raise AttributeError(f"Unrecognized config option: {name}", name=name, obj=self)
        check_offered(name, value)
        self.__dict__["kept"][name] = value

    def parse_flags_with_absl(self) -> None:
        """Flags are parsed by absl; there are none of ours."""

    config_with_absl = parse_flags_with_absl


def check_offered(name: str, value: Any) -> None:
    if name in ONLY and value not in ONLY[name]:
        fail(
            UnsupportedError,
            f"jax.config: {name} = {value!r} is not offered",
            f"it is {' or '.join(map(repr, ONLY[name]))}",
        )


def prng_impl() -> str:
    """The generator that keys are made for."""
    return "threefry2x32" if td.config.random_bits == "threefry" else "philox"


def set_prng_impl(name: str) -> None:
    td.config.update("random_bits", generator_named(name))


def generator_named(name: Any) -> str:
    """The generator of `td.random` by JAX's name of it."""
    word = str(getattr(name, "name", name))
    if word in ("threefry2x32", "fry", "threefry"):
        return "threefry"
    if word == "philox":
        return "philox"
    fail(
        UnsupportedError,
        f"jax.random: there is no generator {name!r}",
        "threefry2x32 (JAX's bits), or philox",
    )


def setting_of_ours(name: str) -> tuple[Callable[[], bool], Callable[[Any], None]]:
    """How a setting of `td.config` that is on or off is read and set."""
    return (
        lambda: bool(getattr(td.config, name)),
        lambda value: td.config.update(name, bool(value)),
    )


# JAX's name -> how it is read here, and set
EFFECTIVE: dict[str, tuple[Callable[[], Any], Callable[[Any], None]]] = {
    "jax_enable_x64": (conventions.has_x64, lambda v: conventions.enable_x64(bool(v))),
    "jax_default_prng_impl": (prng_impl, set_prng_impl),
    "jax_debug_nans": setting_of_ours("debug_nans"),
    "jax_debug_infs": setting_of_ours("debug_infs"),
    "jax_disable_jit": setting_of_ours("disable_jit"),
}
config = JaxConfig()


# -- settings as context managers ------------------------------------------------------------------


def enable_x64(new_val: bool = True) -> AbstractContextManager[None]:
    """64-bit types until the block ends."""
    return conventions.x64_context(new_val)


def disable_x64() -> AbstractContextManager[None]:
    return conventions.x64_context(False)


def default_prng_impl(name: str) -> AbstractContextManager[None]:
    """Keys of this generator until the block ends."""
    return td.config.context(random_bits=generator_named(name))  # type: ignore[no-any-return]


def debug_nans(new_val: bool = True) -> AbstractContextManager[None]:
    """A nan in a result is an error, until the block ends."""
    return td.config.context(debug_nans=bool(new_val))  # type: ignore[no-any-return]


def debug_infs(new_val: bool = True) -> AbstractContextManager[None]:
    return td.config.context(debug_infs=bool(new_val))  # type: ignore[no-any-return]


@contextmanager
def kept_setting(name: str, value: Any) -> Iterator[None]:
    """A setting that changes nothing, until the block ends."""
    before = config.read(name)
    config.update(name, value)
    try:
        yield
    finally:
        config.update(name, before)


def without_effect(name: str) -> Callable[..., AbstractContextManager[None]]:
    """A context manager for a setting that changes nothing here."""

    def setting(*values: Any, **_: Any) -> AbstractContextManager[None]:
        return kept_setting(name, values[0]) if values and name in WITHOUT_EFFECT else nullcontext()

    setting.__name__ = name.removeprefix("jax_")
    return setting
