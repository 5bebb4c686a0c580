"""CUDA back end, the driver: the functions of libcuda that we call, by ctypes, and their errors.

A library in, devices, modules and memory out. Numbers are those of cuda.h. A library is anything
with the functions as attributes, so that tests can put one of their own in its place.
"""

from __future__ import annotations

import ctypes
import hashlib
from collections.abc import Sequence
from ctypes import byref, c_char_p, c_int, c_size_t, c_uint, c_void_p
from functools import cache
from threading import Lock
from typing import Any

from tetrad.core.backend import COMPILING, MEMORY, RUNNING, UNSUPPORTED
from tetrad.core.errors import BackendError

LIBRARIES = ("libcuda.so.1", "libcuda.so", "nvcuda.dll")
# CUdevice_attribute
MULTIPROCESSORS, MAJOR, MINOR, SHARED_BYTES = 16, 75, 76, 97
# CUfunction_attribute, CUjit_option
DYNAMIC_SHARED = 8
ERROR_LOG, ERROR_LOG_BYTES = 5, 6
LOG_BYTES = 4096
# CUresult: codes of our own for some, and what to do
CODES = {2: MEMORY, 218: COMPILING, 222: COMPILING, 209: UNSUPPORTED}
REMEDIES = {
    2: "free memory of the device, or dispatch less at once",
    222: "the driver is older than the PTX; update it",
    209: "the device takes no code for this architecture",
    700: "the kernel reached memory that is not its own; the process must start anew",
}


class Driver:
    """One library. Every call that fails raises an error with the driver's own name for it."""

    def __init__(self, library: Any) -> None:
        self.library = library
        self.call("cuInit", c_uint(0))

    def call(self, function: str, *operands: Any, code: str = RUNNING) -> None:
        status = int(getattr(self.library, function)(*operands))
        if status:
            name, text = self.error_name(status)
            raise BackendError(
                f"cuda: {function} failed: {name} ({status}): {text}",
                code=CODES.get(status, code),
                hint=REMEDIES.get(status),
            )

    def error_name(self, status: int) -> tuple[str, str]:
        name, text = c_char_p(), c_char_p()
        self.library.cuGetErrorName(c_int(status), byref(name))
        self.library.cuGetErrorString(c_int(status), byref(text))
        return ((name.value or b"unknown").decode(), (text.value or b"unknown error").decode())

    def device_count(self) -> int:
        count = c_int()
        self.call("cuDeviceGetCount", byref(count))
        return count.value

    def device(self, ordinal: int = 0) -> Device:
        return Device(self, ordinal)


class Device:
    """A GPU with its primary context, and the modules that were loaded into it."""

    def __init__(self, driver: Driver, ordinal: int) -> None:
        self.driver, self.handle = driver, c_int()
        driver.call("cuDeviceGet", byref(self.handle), c_int(ordinal))
        self.context = c_void_p()
        self.modules: dict[tuple[str, str], c_void_p] = {}
        self.lock = Lock()

    def attribute(self, number: int) -> int:
        value = c_int()
        self.driver.call("cuDeviceGetAttribute", byref(value), c_int(number), self.handle)
        return value.value

    @property
    def capability(self) -> tuple[int, int]:
        return self.attribute(MAJOR), self.attribute(MINOR)

    @property
    def shared_bytes(self) -> int:
        """Workgroup memory that a block can ask for."""
        return self.attribute(SHARED_BYTES)

    def enter(self) -> None:
        """The context of this thread; made once, for all of the process."""
        with self.lock:
            if not self.context:
                self.driver.call(
                    "cuDevicePrimaryCtxRetain", byref(self.context), self.handle, code=MEMORY
                )
        self.driver.call("cuCtxSetCurrent", self.context)

    # -- code --------------------------------------------------------------------------------------

    def function(self, text: str, target: str, name: str) -> c_void_p:
        """An entry of a module, which is loaded once for each text and target."""
        key = hashlib.sha256(text.encode()).hexdigest(), target
        with self.lock:
            if key not in self.modules:
                self.modules[key] = self.load(text)
        found = c_void_p()
        module = self.modules[key]
        self.driver.call("cuModuleGetFunction", byref(found), module, c_char_p(name.encode()))
        return found

    def load(self, text: str) -> c_void_p:
        module, log = c_void_p(), ctypes.create_string_buffer(LOG_BYTES)
        names = (c_int * 2)(ERROR_LOG, ERROR_LOG_BYTES)
        values = (c_void_p * 2)(ctypes.addressof(log), LOG_BYTES)
        image = c_char_p(text.encode())
        try:
            self.driver.call(
                "cuModuleLoadDataEx", byref(module), image, c_uint(2), names, values, code=COMPILING
            )
        except BackendError as error:
            told = log.value.decode(errors="replace").strip()
            message = f"{error.message}\n{told}" if told else error.message
            raise BackendError(message, code=error.code, hint=error.hint) from None
        return module

    # -- memory ------------------------------------------------------------------------------------

    def allocate(self, nbytes: int) -> int:
        """Addresses have no zero bytes: the least is one."""
        place = c_void_p()
        self.driver.call("cuMemAlloc_v2", byref(place), c_size_t(max(nbytes, 1)), code=MEMORY)
        return place.value or 0

    def free(self, address: int) -> None:
        self.driver.call("cuMemFree_v2", c_void_p(address))

    def clear(self, address: int, nbytes: int) -> None:
        if nbytes:
            self.driver.call(
                "cuMemsetD8_v2", c_void_p(address), ctypes.c_ubyte(0), c_size_t(nbytes)
            )

    def write(self, address: int, data: bytes) -> None:
        if data:
            self.driver.call(
                "cuMemcpyHtoD_v2", c_void_p(address), c_char_p(data), c_size_t(len(data))
            )

    def read(self, address: int, nbytes: int) -> bytes:
        if not nbytes:
            return b""
        held = ctypes.create_string_buffer(nbytes)
        self.driver.call("cuMemcpyDtoH_v2", held, c_void_p(address), c_size_t(nbytes))
        return held.raw

    # -- launches ----------------------------------------------------------------------------------

    def launch(
        self,
        function: c_void_p,
        grid: tuple[int, int, int],
        block: tuple[int, int, int],
        shared: int,
        parameters: Sequence[int],
    ) -> None:
        """Run an entry, all of whose parameters have 64 bits, to its end."""
        if shared:
            self.driver.call("cuFuncSetAttribute", function, c_int(DYNAMIC_SHARED), c_int(shared))
        words = [ctypes.c_uint64(number & (1 << 64) - 1) for number in parameters]
        places = (c_void_p * max(len(words), 1))(*(ctypes.addressof(word) for word in words))
        sizes = [c_uint(size) for size in (*grid, *block, shared)]
        stream, extra = c_void_p(), c_void_p()
        self.driver.call("cuLaunchKernel", function, *sizes, stream, places, extra)
        self.driver.call("cuCtxSynchronize")


@cache
def system_library() -> Any:
    """libcuda, or the error that the system gave for it."""
    failure: OSError | None = None
    for name in LIBRARIES:
        try:
            return ctypes.CDLL(name)
        except OSError as error:
            failure = failure or error
    return failure
