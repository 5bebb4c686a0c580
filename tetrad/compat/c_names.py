"""Compat, names of the C library: the constants that programs pass on, and the few functions of it
that mean something without it.

Their numbers are those of llama.cpp's headers: files and arguments carry them.
"""

from __future__ import annotations

import platform
import time
from collections.abc import Callable
from typing import Any, TypeVar

from tetrad.core.limits import available_threads

F = TypeVar("F", bound=Callable[..., Any])

LLAMA_DEFAULT_SEED = 0xFFFFFFFF
LLAMA_TOKEN_NULL = -1
LLAMA_MAX_DEVICES = 1
LLAMA_FILE_MAGIC_GGLA, LLAMA_FILE_MAGIC_GGSN, LLAMA_FILE_MAGIC_GGSQ = (
    int.from_bytes(word) for word in (b"ggla", b"ggsn", b"ggsq")
)
LLAMA_SESSION_MAGIC, LLAMA_STATE_SEQ_MAGIC = LLAMA_FILE_MAGIC_GGSN, LLAMA_FILE_MAGIC_GGSQ

GGML_TYPE_F32, GGML_TYPE_F16, GGML_TYPE_Q4_0, GGML_TYPE_Q4_1 = range(4)
GGML_TYPE_Q5_0, GGML_TYPE_Q5_1, GGML_TYPE_Q8_0, GGML_TYPE_Q8_1 = range(6, 10)
(
    GGML_TYPE_Q2_K, GGML_TYPE_Q3_K, GGML_TYPE_Q4_K, GGML_TYPE_Q5_K, GGML_TYPE_Q6_K, GGML_TYPE_Q8_K,
    GGML_TYPE_IQ2_XXS, GGML_TYPE_IQ2_XS, GGML_TYPE_IQ3_XXS, GGML_TYPE_IQ1_S, GGML_TYPE_IQ4_NL,
    GGML_TYPE_IQ3_S, GGML_TYPE_IQ2_S, GGML_TYPE_IQ4_XS, GGML_TYPE_I8, GGML_TYPE_I16, GGML_TYPE_I32,
    GGML_TYPE_I64, GGML_TYPE_F64, GGML_TYPE_IQ1_M, GGML_TYPE_BF16,
) = range(10, 31)  # fmt: skip
GGML_TYPE_MXFP4, GGML_TYPE_NVFP4 = 39, 40

(
    LLAMA_VOCAB_TYPE_NONE, LLAMA_VOCAB_TYPE_SPM, LLAMA_VOCAB_TYPE_BPE, LLAMA_VOCAB_TYPE_WPM,
    LLAMA_VOCAB_TYPE_UGM, LLAMA_VOCAB_TYPE_RWKV, LLAMA_VOCAB_TYPE_PLAMO2,
) = range(7)  # fmt: skip
(
    LLAMA_TOKEN_TYPE_UNDEFINED, LLAMA_TOKEN_TYPE_NORMAL, LLAMA_TOKEN_TYPE_UNKNOWN,
    LLAMA_TOKEN_TYPE_CONTROL, LLAMA_TOKEN_TYPE_USER_DEFINED, LLAMA_TOKEN_TYPE_UNUSED,
    LLAMA_TOKEN_TYPE_BYTE,
) = range(7)  # fmt: skip
LLAMA_TOKEN_ATTR_UNDEFINED = 0
(
    LLAMA_TOKEN_ATTR_UNKNOWN, LLAMA_TOKEN_ATTR_UNUSED, LLAMA_TOKEN_ATTR_NORMAL,
    LLAMA_TOKEN_ATTR_CONTROL, LLAMA_TOKEN_ATTR_USER_DEFINED, LLAMA_TOKEN_ATTR_BYTE,
    LLAMA_TOKEN_ATTR_NORMALIZED, LLAMA_TOKEN_ATTR_LSTRIP, LLAMA_TOKEN_ATTR_RSTRIP,
    LLAMA_TOKEN_ATTR_SINGLE_WORD,
) = (1 << bit for bit in range(10))  # fmt: skip

(
    LLAMA_FTYPE_ALL_F32, LLAMA_FTYPE_MOSTLY_F16, LLAMA_FTYPE_MOSTLY_Q4_0, LLAMA_FTYPE_MOSTLY_Q4_1,
) = range(4)  # fmt: skip
(
    LLAMA_FTYPE_MOSTLY_Q8_0, LLAMA_FTYPE_MOSTLY_Q5_0, LLAMA_FTYPE_MOSTLY_Q5_1,
    LLAMA_FTYPE_MOSTLY_Q2_K, LLAMA_FTYPE_MOSTLY_Q3_K_S, LLAMA_FTYPE_MOSTLY_Q3_K_M,
    LLAMA_FTYPE_MOSTLY_Q3_K_L, LLAMA_FTYPE_MOSTLY_Q4_K_S, LLAMA_FTYPE_MOSTLY_Q4_K_M,
    LLAMA_FTYPE_MOSTLY_Q5_K_S, LLAMA_FTYPE_MOSTLY_Q5_K_M, LLAMA_FTYPE_MOSTLY_Q6_K,
    LLAMA_FTYPE_MOSTLY_IQ2_XXS, LLAMA_FTYPE_MOSTLY_IQ2_XS, LLAMA_FTYPE_MOSTLY_Q2_K_S,
    LLAMA_FTYPE_MOSTLY_IQ3_XS, LLAMA_FTYPE_MOSTLY_IQ3_XXS, LLAMA_FTYPE_MOSTLY_IQ1_S,
    LLAMA_FTYPE_MOSTLY_IQ4_NL, LLAMA_FTYPE_MOSTLY_IQ3_S, LLAMA_FTYPE_MOSTLY_IQ3_M,
    LLAMA_FTYPE_MOSTLY_IQ2_S, LLAMA_FTYPE_MOSTLY_IQ2_M, LLAMA_FTYPE_MOSTLY_IQ4_XS,
    LLAMA_FTYPE_MOSTLY_IQ1_M, LLAMA_FTYPE_MOSTLY_BF16,
) = range(7, 33)  # fmt: skip
LLAMA_FTYPE_MOSTLY_TQ1_0, LLAMA_FTYPE_MOSTLY_TQ2_0, LLAMA_FTYPE_MOSTLY_MXFP4_MOE = range(36, 39)
LLAMA_FTYPE_GUESSED = 1024

LLAMA_ROPE_TYPE_NONE, LLAMA_ROPE_TYPE_NORM = -1, 0
LLAMA_ROPE_TYPE_NEOX, LLAMA_ROPE_TYPE_MROPE, LLAMA_ROPE_TYPE_VISION = 2, 8, 24
(
    LLAMA_ROPE_SCALING_TYPE_UNSPECIFIED, LLAMA_ROPE_SCALING_TYPE_NONE,
    LLAMA_ROPE_SCALING_TYPE_LINEAR, LLAMA_ROPE_SCALING_TYPE_YARN, LLAMA_ROPE_SCALING_TYPE_LONGROPE,
) = range(-1, 4)  # fmt: skip
LLAMA_ROPE_SCALING_TYPE_MAX_VALUE = LLAMA_ROPE_SCALING_TYPE_LONGROPE
(
    LLAMA_POOLING_TYPE_UNSPECIFIED, LLAMA_POOLING_TYPE_NONE, LLAMA_POOLING_TYPE_MEAN,
    LLAMA_POOLING_TYPE_CLS, LLAMA_POOLING_TYPE_LAST, LLAMA_POOLING_TYPE_RANK,
) = range(-1, 5)  # fmt: skip
(
    LLAMA_ATTENTION_TYPE_UNSPECIFIED, LLAMA_ATTENTION_TYPE_CAUSAL, LLAMA_ATTENTION_TYPE_NON_CAUSAL,
) = range(-1, 2)  # fmt: skip
(
    LLAMA_FLASH_ATTN_TYPE_AUTO, LLAMA_FLASH_ATTN_TYPE_DISABLED, LLAMA_FLASH_ATTN_TYPE_ENABLED,
) = range(-1, 2)  # fmt: skip
(
    LLAMA_SPLIT_MODE_NONE, LLAMA_SPLIT_MODE_LAYER, LLAMA_SPLIT_MODE_ROW, LLAMA_SPLIT_MODE_TENSOR,
) = range(4)  # fmt: skip
(
    LLAMA_KV_OVERRIDE_TYPE_INT, LLAMA_KV_OVERRIDE_TYPE_FLOAT, LLAMA_KV_OVERRIDE_TYPE_BOOL,
    LLAMA_KV_OVERRIDE_TYPE_STR,
) = range(4)  # fmt: skip
(
    GGML_NUMA_STRATEGY_DISABLED, GGML_NUMA_STRATEGY_DISTRIBUTE, GGML_NUMA_STRATEGY_ISOLATE,
    GGML_NUMA_STRATEGY_NUMACTL, GGML_NUMA_STRATEGY_MIRROR, GGML_NUMA_STRATEGY_COUNT,
) = range(6)  # fmt: skip

# -- functions -------------------------------------------------------------------------------------


def llama_backend_init(*_: object) -> None:
    """There is nothing to begin with."""


def llama_backend_free() -> None:
    """Nor to end."""


def llama_log_callback(function: F) -> F:
    """A function of level, text and data, for `llama_log_set`."""
    return function


def llama_log_set(callback: object = None, user_data: object = None) -> None:
    """Nothing is printed here: there is nothing to be sent elsewhere."""


def llama_supports_gpu_offload() -> bool:
    return False


def llama_supports_mmap() -> bool:
    return True


def llama_supports_mlock() -> bool:
    return False


def llama_max_devices() -> int:
    return LLAMA_MAX_DEVICES


def llama_time_us() -> int:
    return time.monotonic_ns() // 1000


def llama_print_system_info() -> bytes:
    return f"Tetrad: {available_threads()} threads, {platform.machine()}".encode()


def absent(name: str) -> Any:
    """`__getattr__` of the modules that show these names: what to do without a function of C."""
    said = f"tetrad.compat.llama_cpp has no {name!r}"
    if name.startswith(("llama_", "ggml_", "mtmd_", "llava_", "clip_")):
        said += ": there is no C library below it; Llama has methods for what it does"
    raise AttributeError(said)
