"""A processor this machine is not: that of the emulator Bochs, inside this process and on its
memory.

`Processor(model).call(address, ...)` runs the machine code at an address as a call of a C function
would, but every instruction is carried out in software; one the model lacks ends the call with an
error. Memory is not copied: an address of the emulated processor is that address of this process.
Needs Linux and the package `bochscpu-python` 0.4.0.
"""

from __future__ import annotations

import ctypes
import threading
from functools import cache
from pathlib import Path

from tests.emulated.bochs import bochscpu, native
from tetrad.backends.cpu.isa.x86_64 import BASELINE
from tetrad.backends.cpu.llvm import Library, compile_object, load_object
from tetrad.backends.llvm.binding import llvm

# bytes of a page of memory, and of a window: what one entry of our tables maps
PAGE, WINDOW = 1 << 12, 1 << 30
STACK_PAGES = 2048
# bits of a table's entry: may be read, written and run; maps a window
PRESENT, LARGE = 0x007, 0x080
INTEGER_ARGUMENTS = ("rdi", "rsi", "rdx", "rcx", "r8", "r9")  # System V ABI for AMD64, 3.2.3
# code in 64-bit mode; data
SEGMENTS = {"cs": 0x209B, "ss": 0xC93, "ds": 0xC93, "es": 0xC93, "fs": 0xC93, "gs": 0xC93}
HALT, EVEX = 0xF4, 0x62
# opcodes; those from 0xA0 on are scatters
GATHERS = (0x90, 0x91, 0x92, 0x93, 0xA0, 0xA1, 0xA2, 0xA3)
# the system call arch_prctl, and its request for where a thread's own variables are
GET_FS = (158, 0x1003)
EXCEPTIONS = {
    0: "divides by zero",
    6: "has an instruction this processor lacks",
    13: "breaks a rule of protection",
}

# LLVM's name of a processor -> the number of Bochs's model, and the signature by which that model
# knows itself. Zen 4 is none of them; code for it runs on one that has all its vector instructions
# and some more.
MODELS = {
    "haswell": (24, 0x306C3),
    "skylake-avx512": (26, 0x50654),
    "icelake-client": (28, 0x706E5),
    "sapphirerapids": (30, 0x806F8),
    "znver4": (30, 0x806F8),
    "arrowlake": (31, 0xC0662),
}
LACKING = {"znver4": ("avx512fp16", "avxvnni")}  # what the model has and the processor has not

CPUID = """
define void @cpuid(i32 %leaf, i32 %part, ptr %out) nounwind {
  %r = call { i32, i32, i32, i32 } asm "cpuid",
    "={ax},={bx},={cx},={dx},{ax},{cx}"(i32 %leaf, i32 %part)
  store { i32, i32, i32, i32 } %r, ptr %out
  ret void
}
"""
# (leaf, part, register): {bit: LLVM's name}. Intel 64 and IA-32 manual, volume 2A, CPUID.
FEATURE_BITS: dict[tuple[int, int, int], dict[int, str]] = {
    (1, 0, 2): {
        0: "sse3", 1: "pclmul", 9: "ssse3", 12: "fma", 13: "cx16", 19: "sse4.1", 20: "sse4.2",
        22: "movbe",
        23: "popcnt", 25: "aes", 26: "xsave", 28: "avx", 29: "f16c", 30: "rdrnd",
    },
    (7, 0, 1): {
        0: "fsgsbase", 3: "bmi", 5: "avx2", 8: "bmi2", 16: "avx512f", 17: "avx512dq", 18: "rdseed",
        19: "adx",
        21: "avx512ifma", 23: "clflushopt", 24: "clwb", 28: "avx512cd", 29: "sha", 30: "avx512bw",
        31: "avx512vl",
    },
    (7, 0, 2): {
        1: "avx512vbmi", 6: "avx512vbmi2", 8: "gfni", 9: "vaes", 10: "vpclmulqdq", 11: "avx512vnni",
        12: "avx512bitalg", 14: "avx512vpopcntdq",
    },
    (7, 0, 3): {8: "avx512vp2intersect", 22: "amx-bf16", 23: "avx512fp16", 24: "amx-tile",
    25: "amx-int8"},
    (7, 1, 0): {4: "avxvnni", 5: "avx512bf16"},
    (0x80000001, 0, 2): {0: "sahf", 5: "lzcnt", 6: "sse4a"},
}  # fmt: skip

libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype, libc.mmap.argtypes = (
    ctypes.c_void_p,
    [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 4],
)
libc.mincore.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p]


class EmulationError(Exception):
    """What ended an emulated call early."""


class Processor:
    """One emulated processor; a process has one, because Bochs has."""

    def __init__(self, model: str) -> None:
        self.name, (number, signature) = model, MODELS[model]
        choose_model(number)
        self.session = bochscpu.Session()
        self.session.missing_page_handler = self.bring_page
        self.hook = bochscpu.Hook()
        self.hook.exception, self.hook.hlt = self.excepted, lambda session, cpu: session.stop()
        self.memory = Windows()
        self.stack = new_pages(STACK_PAGES) + (STACK_PAGES - 1) * PAGE
        self.home = new_pages(1)  # where calls return to
        ctypes.memset(self.home, HALT, PAGE)
        self.state = self.ready_state()
        self.lock, self.error = threading.RLock(), ""
        self.calls, self.detours = 0, dict[int, int]()
        if self.cpuid(1, 0)[0] != signature:
            raise EmulationError(
                f"model {number} of this release of Bochs is not {model}: {self.cpuid(1, 0)[0]:#x}"
            )

    def ready_state(self) -> bochscpu.State:
        """64-bit mode, flat segments, the floating-point state of a new process, all vector
        registers enabled."""
        state = bochscpu.State()
        bochscpu.cpu.set_long_mode(state)
        state.cr4 = state.cr4 | 1 << 9 | 1 << 10 | 1 << 18  # OSFXSR, OSXMMEXCPT, OSXSAVE
        state.cr3, state.xcr0, state.rflags = self.memory.root, 0xE7, 2
        state.mxcsr, state.mxcsr_mask, state.fpcw, state.fptw = 0x1F80, 0xFFFF, 0x37F, 0xFFFF
        for name, attributes in SEGMENTS.items():
            setattr(state, name, segment(attributes, 0))
        return state

    def call(self, address: int, *arguments: int) -> int:
        """The function at an address, with up to six integers or addresses; its result as a 64-bit
        word."""
        with self.lock:
            self.memory.map_everything()
            state, top = self.state, self.stack - 8
            ctypes.c_uint64.from_address(top).value = self.home
            state.rip, state.rsp, state.fs = address, top, segment(SEGMENTS["fs"], own_variables())
            for register, value in zip(INTEGER_ARGUMENTS, arguments, strict=False):
                setattr(state, register, value & (1 << 64) - 1)
            self.session.cpu.state = state
            self.calls += 1
            self.run()
            return int(self.session.cpu.rax)

    def run(self) -> None:
        """Until the next halt."""
        self.error = ""
        self.session.run([self.hook])
        while self.error and (detour := self.detour(self.session.cpu.rip)):
            self.error, self.session.cpu.rip = "", detour
            self.session.run([self.hook])
        if self.error:
            raise EmulationError(self.error)

    def detour(self, end: int) -> int | None:
        """Code that does what a gather Bochs refused should have done, and goes on behind it; None:
        it was none."""
        if end not in self.detours and (code := detour_of(end)):
            self.detours[end] = new_pages(1)
            ctypes.memmove(self.detours[end], code, len(code))
        return self.detours.get(end)

    def bring_page(self, place: int) -> None:
        """Bochs asks for a page it has not seen: it is the one of this process."""
        page = self.memory.host_address(place) & -PAGE
        if libc.mincore(page, PAGE, ctypes.create_string_buffer(1)):
            self.error = f"touches memory at {page:#x}, where this process has none"
            page = new_pages(1)
            self.session.stop()
        bochscpu.memory.page_insert(place & -PAGE, page)

    def excepted(self, session: bochscpu.Session, cpu: int, vector: int, code: int) -> None:
        what = EXCEPTIONS.get(vector, f"raises exception {vector} ({code:#x})")
        where = session.cpu.rip
        self.error = (
            f"{what}, at {where:#x}: {ctypes.string_at(where - 16, 24).hex(' ')}, memory "
            f"{session.cpu.cr2:#x}"
        )
        session.stop()

    def cpuid(self, leaf: int, part: int) -> list[int]:
        words = (ctypes.c_uint32 * 4)()
        self.call(identification().address["cpuid"], leaf, part, ctypes.addressof(words))
        return list(words)

    def features(self) -> dict[str, bool]:
        """What CPUID says, by LLVM's names."""
        rows = (
            (self.cpuid(leaf, part)[register], bits)
            for (leaf, part, register), bits in FEATURE_BITS.items()
        )
        found = {name: bool(word >> bit & 1) for word, bits in rows for bit, name in bits.items()}
        return found | dict.fromkeys(LACKING.get(self.name, ()), False)


def detour_of(end: int) -> bytes | None:
    """The gather or scatter that ends at an address, if its index lies in zmm16 to zmm31, with the
    index elsewhere.

    Bochs takes the high bit of such an index for an operand that the instruction has no room for,
    and refuses it. The index is copied to zmm0 or zmm1, which is saved before and restored after;
    no flag changes.
    """
    # the mode of the address says how long its constant is
    for length, mode in ((7, 0), (8, 1), (11, 2)):
        code = bytearray(ctypes.string_at(end - length, length))
        if (
            code[0] == EVEX
            and code[4] in GATHERS
            and code[5] >> 6 == mode
            and code[5] & 7 == 4
            and not code[3] & 8
        ):
            # not the register of the data, whatever its high bits are
            spare = 0 if code[5] >> 3 & 7 else 1
            index = code[6] >> 3 & 7
            copy = bytes(
                [EVEX, 0x91 | (code[1] & 0x40) >> 1, 0xFD, 0x48, 0x6F, 0xC0 | spare << 3 | index]
            )
            code[1], code[3], code[6] = code[1] | 0x40, code[3] | 8, code[6] & 0xC7 | spare << 3
            save, load = (
                bytes([EVEX, 0xF1, 0xFE, 0x48, opcode, spare << 3 | 5]) for opcode in (0x7F, 0x6F)
            )
            # jump to the address that follows
            back = bytes.fromhex("ff2500000000") + end.to_bytes(8, "little")
            # of the second half; the saved register lies in the page's middle
            start = 10 + len(copy) + len(code)
            return save + room(10) + copy + bytes(code) + load + room(start + 10) + back
    return None


def room(end: int) -> bytes:
    """How far the middle of the page is from the end of an instruction."""
    return (PAGE // 2 - end).to_bytes(4, "little")


class Windows:
    """Page tables that give every window of this process in use a place in Bochs's smaller physical
    memory."""

    def __init__(self) -> None:
        self.tables: dict[int, int] = {}  # place -> address
        # number of a window of this process -> of one of Bochs; 0 is for tables
        self.windows: dict[int, int] = {}
        self.hosts = [0]
        self.lines: set[bytes] = set()  # of the list of this process's memory, when last seen
        self.root = self.new_table()

    def map_everything(self) -> None:
        """Memory may have come since the last call."""
        lines = set(Path("/proc/self/maps").read_bytes().splitlines())
        for line in lines - self.lines:
            start, end = (int(word, 16) for word in line.split(b" ", 1)[0].split(b"-"))
            for window in range(start // WINDOW, (end - 1) // WINDOW + 1):
                if window not in self.windows and window < 1 << 17:  # above is the kernel's
                    self.map_window(window)
        self.lines = lines

    def map_window(self, window: int) -> None:
        self.windows[window] = len(self.hosts)
        self.hosts.append(window)
        table = self.entry(self.root, window >> 9)
        table.value = table.value or self.new_table() | PRESENT
        self.entry(table.value & -PAGE, window & 511).value = (
            self.windows[window] * WINDOW | PRESENT | LARGE
        )

    def host_address(self, place: int) -> int:
        return self.hosts[place // WINDOW] * WINDOW + place % WINDOW

    def entry(self, table: int, number: int) -> ctypes.c_uint64:
        return ctypes.c_uint64.from_address(self.tables[table] + 8 * number)

    def new_table(self) -> int:
        place = (len(self.tables) + 1) * PAGE
        self.tables[place] = new_pages(1)
        bochscpu.memory.page_insert(place, self.tables[place])
        return place


def choose_model(number: int) -> None:
    """The package always makes the same processor; the parameter it makes it from can be set before
    that."""
    library = ctypes.CDLL(native.__file__)
    find, change = (
        library._ZN13bx_real_sim_c14get_param_enumEPKcP10bx_param_c,
        library._ZN15bx_param_enum_c3setEl,
    )
    find.restype, find.argtypes = (
        ctypes.c_void_p,
        [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p],
    )
    change.restype, change.argtypes = None, [ctypes.c_void_p, ctypes.c_long]
    change(find(ctypes.c_void_p.in_dll(library, "SIM"), b"cpu.model", None), number)


@cache
def identification() -> Library:
    llvm().InitializeNativeAsmParser()
    return load_object(compile_object(CPUID, BASELINE), ("cpuid",))


def segment(attributes: int, base: int) -> bochscpu.Segment:
    made = bochscpu.Segment()
    made.present, made.selector, made.limit = True, 0x10, 0xFFFFFFFF
    made.attr, made.base = attributes, base
    return made


def own_variables() -> int:
    """Where the variables of the calling thread are; compiled C code looks there for its stack
    protector."""
    found = ctypes.c_uint64()
    libc.syscall(*GET_FS, ctypes.byref(found))
    return found.value


def new_pages(count: int) -> int:
    # read, write, run; private, anonymous
    return int(libc.mmap(None, count * PAGE, 7, 0x22, -1, 0))
