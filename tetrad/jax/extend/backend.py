"""JAX's names: `jax.extend.backend`."""

from __future__ import annotations

from typing import Any

from tetrad.jax._shell.tables import td


class OnlyBackend:
    """The one back end there is."""

    platform = "cpu"
    platform_version = "tetrad"

    def devices(self) -> list[Any]:
        return td.devices()  # type: ignore[no-any-return]

    local_devices = devices


def get_backend(platform: str | None = None) -> OnlyBackend:
    return OnlyBackend()


def backends() -> dict[str, OnlyBackend]:
    return {"cpu": OnlyBackend()}
