"""The CUDA back end: what `core.backend` asks, answered by the files beside this one.

Nothing is loaded before it is asked for: neither the driver nor what makes PTX.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tetrad.core import lazy
from tetrad.core.backend import UNSUPPORTED, BufferContent, Unavailable
from tetrad.core.errors import BackendError
from tetrad.core.machine import Machine

if TYPE_CHECKING:
    from tetrad.backends.cuda import driver
    from tetrad.backends.cuda import launch as launches
    from tetrad.backends.cuda import targets as architectures
    from tetrad.kernel.nodes import Buffer, Program
else:
    driver = lazy.later("tetrad.backends.cuda.driver")
    launches = lazy.later("tetrad.backends.cuda.launch")
    architectures = lazy.later("tetrad.backends.cuda.targets")

REMEDY = "install the driver of an NVIDIA GPU; td.kernel.ptx writes the code without one"
SCHEDULES = (
    "schedules do not run on this back end: it dispatches single kernels (td.dispatch) and writes "
    "their code (td.kernel.ptx)"
)


class CudaBackend:
    """The first GPU that the driver finds. `library` takes the place of the system's."""

    name = "cuda"
    targets: tuple[str, ...] = ()  # TETRAD_TARGET names processors

    def __init__(self, library: Any = None) -> None:
        self.library = library
        self._device: driver.Device | None = None
        self._lacking: Unavailable | None = None

    def available(self) -> Unavailable | None:
        """Asked once for good: a driver does not come and go."""
        if self._device is None and self._lacking is None:
            self._lacking = self.open()
        return self._lacking

    def open(self) -> Unavailable | None:
        """Find a device; what is lacking if there is none."""
        found = driver.system_library() if self.library is None else self.library
        if isinstance(found, OSError):
            return Unavailable(f"there is no CUDA driver: {found}", REMEDY)
        try:
            opened = driver.Driver(found)
            count = opened.device_count()
            device = opened.device() if count else None
        except BackendError as error:
            return Unavailable(f"the CUDA driver does not start: {error.message}", REMEDY)
        if device is None:
            return Unavailable("the CUDA driver finds no device", REMEDY)
        if architectures.newest_for(*device.capability) is None:
            major, minor = device.capability
            oldest = next(iter(architectures.ARCHITECTURES))
            return Unavailable(
                f"the device has compute capability {major}.{minor}, code is made for {oldest} "
                "and later",
                "use another device",
            )
        self._device = device
        return None

    @property
    def device(self) -> driver.Device:
        lacking = self.available()
        if lacking is not None or self._device is None:
            reason = "no device" if lacking is None else lacking.reason
            raise BackendError(f"cuda: {reason}", code=UNSUPPORTED, hint=REMEDY)
        return self._device

    @property
    def architecture(self) -> architectures.GpuArchitecture:
        """That of the device, as far as we know it."""
        found = architectures.newest_for(*self.device.capability)
        if found is None:
            raise BackendError("cuda: the device is too old", code=UNSUPPORTED)
        return found

    @property
    def machine(self) -> Machine:
        return self.architecture.machine

    def prepare(self) -> None:
        """Nothing can be got ready beside a compilation."""

    def begin(self, program: Any) -> None:
        raise BackendError(f"cuda: {SCHEDULES}", code=UNSUPPORTED)

    def compile(self, schedule: Any) -> Any:
        raise BackendError(f"cuda: {SCHEDULES}", code=UNSUPPORTED)

    def launch(
        self,
        program: Program,
        contents: Mapping[Buffer, BufferContent],
        args: Mapping[str, int],
        grid: tuple[int, int, int],
    ) -> list[bytes]:
        return launches.launch(self.device, self.architecture, program, contents, args, grid)

    def bind(
        self,
        program: Program,
        counts: tuple[int, ...],
        args: Mapping[str, int],
        grid: tuple[int, int, int],
        cleared: tuple[bool, ...],
    ) -> Callable[[Sequence[launches.DeviceMemory]], None]:
        there = (self.device, self.architecture)
        return launches.bound(*there, program, counts, args, grid, cleared)

    def resident(self, array: np.ndarray) -> launches.DeviceMemory:
        return launches.resident(self.device, array)

    def storage(self, array: np.ndarray) -> Any:
        raise BackendError(f"cuda: {SCHEDULES}", code=UNSUPPORTED)


CUDA = CudaBackend()
