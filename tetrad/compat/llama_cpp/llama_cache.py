"""`llama_cpp.llama_cache`."""

from tetrad.compat.states import BaseLlamaCache, LlamaCache, LlamaDiskCache, LlamaRAMCache

__all__ = ["BaseLlamaCache", "LlamaCache", "LlamaDiskCache", "LlamaRAMCache"]
