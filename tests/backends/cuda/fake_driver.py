"""A libcuda without a device: the functions that the back end calls, in Python.

It remembers every call, refuses what a driver would refuse in the order of calls, in addresses and
in sizes, and runs the PTX it was given on the simulator. So it shows that we call what the manual
asks for with arguments that fit the text. It shows nothing of a real driver: whether that takes our
calls as the manual says has never been tried here.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from typing import Any

import numpy as np

from tests.backends.cuda.simulator import simulate
from tetrad.backends.cuda.parse import PtxModule, parse_ptx

NAMES = {
    1: b"CUDA_ERROR_INVALID_VALUE", 2: b"CUDA_ERROR_OUT_OF_MEMORY",
    3: b"CUDA_ERROR_NOT_INITIALIZED", 100: b"CUDA_ERROR_NO_DEVICE",
    201: b"CUDA_ERROR_INVALID_CONTEXT", 218: b"CUDA_ERROR_INVALID_PTX",
    500: b"CUDA_ERROR_NOT_FOUND", 700: b"CUDA_ERROR_ILLEGAL_ADDRESS",
}  # fmt: skip
FIRST, STEP = 0x7F0000000000, 1 << 24
ATTRIBUTES = {16: 4, 97: 232_448}


class FakeCuda:
    """One device. `fail` maps the name of a function to the result it gives."""

    def __init__(
        self, capability: tuple[int, int] = (9, 0), devices: int = 1, fail: Mapping[str, int] = {}
    ) -> None:
        self.capability, self.devices, self.fail = capability, devices, dict(fail)
        self.calls: list[str] = []
        self.memory: dict[int, bytearray] = {}
        self.modules: dict[int, tuple[str, PtxModule]] = {}
        self.functions: dict[int, int] = {}
        self.dynamic: dict[int, int] = {}
        self.launches: list[tuple[tuple[int, ...], int, list[int]]] = []
        self.is_ready = self.is_current = self.is_synchronised = False

    def __getattribute__(self, name: str) -> Any:
        if not name.startswith("cu") or name.startswith("cuGetError"):
            return object.__getattribute__(self, name)

        def call(*operands: Any) -> int:
            self.calls.append(name)
            if name in self.fail:
                return self.fail[name]
            if name != "cuInit" and not self.is_ready:
                return 3
            return int(object.__getattribute__(self, name)(*operands) or 0)

        return call

    # -- devices -----------------------------------------------------------------------------------

    def cuInit(self, flags: Any) -> None:
        assert flags.value == 0
        self.is_ready = True

    def cuDeviceGetCount(self, count: Any) -> None:
        count._obj.value = self.devices

    def cuDeviceGet(self, device: Any, ordinal: Any) -> int:
        device._obj.value = ordinal.value
        return 0 if ordinal.value < self.devices else 100

    def cuDeviceGetAttribute(self, value: Any, attribute: Any, device: Any) -> None:
        known = {75: self.capability[0], 76: self.capability[1], **ATTRIBUTES}
        value._obj.value = known[attribute.value]

    def cuDevicePrimaryCtxRetain(self, context: Any, device: Any) -> None:
        context._obj.value = 0xC0

    def cuCtxSetCurrent(self, context: Any) -> int:
        self.is_current = context.value == 0xC0
        return 0 if self.is_current else 201

    def cuCtxSynchronize(self) -> None:
        self.is_synchronised = True

    def cuGetErrorName(self, status: Any, name: Any) -> None:
        name._obj.value = NAMES[status.value]

    def cuGetErrorString(self, status: Any, text: Any) -> None:
        text._obj.value = b"words of the driver"

    # -- code --------------------------------------------------------------------------------------

    def cuModuleLoadDataEx(
        self, module: Any, image: Any, count: Any, names: Any, values: Any
    ) -> int:
        if not self.is_current:
            return 201
        text = image.value.decode()
        log = (ctypes.c_char * values[1]).from_address(values[0])
        assert list(names) == [5, 6] and count.value == 2
        if ".visible .entry" not in text:
            log.value = b"no entry"
            return 218
        module._obj.value = 0xA0 + len(self.modules)
        self.modules[module._obj.value] = text, parse_ptx(text)
        return 0

    def cuModuleGetFunction(self, function: Any, module: Any, name: Any) -> int:
        if self.modules[module.value][1].entry != name.value.decode():
            return 500
        function._obj.value = 0xF000 + module.value
        self.functions[function._obj.value] = module.value
        return 0

    def cuFuncSetAttribute(self, function: Any, attribute: Any, value: Any) -> int:
        assert attribute.value == 8
        self.dynamic[function.value] = value.value
        return 0 if value.value <= ATTRIBUTES[97] else 1

    # -- memory ------------------------------------------------------------------------------------

    def cuMemAlloc_v2(self, place: Any, size: Any) -> int:
        if not self.is_current:
            return 201
        if size.value < 1:
            return 1
        place._obj.value = FIRST + STEP * len(self.calls)
        self.memory[place._obj.value] = bytearray(b"\xcd" * size.value)
        return 0

    def cuMemFree_v2(self, place: Any) -> int:
        return 0 if self.memory.pop(place.value, None) is not None else 1

    def cuMemsetD8_v2(self, place: Any, byte: Any, size: Any) -> int:
        return self.put(place.value, bytes([byte.value]) * size.value)

    def cuMemcpyHtoD_v2(self, place: Any, data: Any, size: Any) -> int:
        given = ctypes.string_at(data, size.value)
        return self.put(place.value, given)

    def put(self, place: int, data: bytes) -> int:
        if place not in self.memory or len(self.memory[place]) < len(data):
            return 1
        self.memory[place][: len(data)] = data
        return 0

    def cuMemcpyDtoH_v2(self, held: Any, place: Any, size: Any) -> int:
        assert self.is_synchronised
        ctypes.memmove(held, bytes(self.memory[place.value]), size.value)
        return 0

    # -- launches ----------------------------------------------------------------------------------

    def cuLaunchKernel(self, function: Any, *operands: Any) -> int:
        *sizes, shared, stream, places, _ = operands
        numbers = tuple(size.value for size in sizes)
        text, module = self.modules[self.functions[function.value]]
        assert numbers[3:] == module.bounds and min(numbers) >= 1 and not stream.value
        assert shared.value <= max(self.dynamic.get(function.value, 0), 48 << 10)
        words = [ctypes.c_uint64.from_address(places[i]).value for i in range(len(module.params))]
        self.launches.append((numbers, shared.value, words))
        self.is_synchronised = False
        self.run(text, module, numbers[:3], shared.value, words)
        return 0

    def run(
        self,
        text: str,
        module: PtxModule,
        grid: tuple[int, ...],
        shared: int,
        words: list[int],
    ) -> None:
        given = dict(zip(module.params, words, strict=True))
        buffers = {
            name: np.frombuffer(bytes(self.memory[word]), np.uint8)
            for name, word in given.items()
            if word in self.memory
        }
        numbers = {name: word for name, word in given.items() if name not in buffers}
        x, y, z = grid
        for name, after in simulate(text, buffers, numbers, (x, y, z), shared).items():
            self.memory[given[name]][:] = after.tobytes()
