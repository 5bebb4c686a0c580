"""`llama_cpp.llama_speculative`."""

from tetrad.compat.drafts import LlamaDraftModel, LlamaPromptLookupDecoding

__all__ = ["LlamaDraftModel", "LlamaPromptLookupDecoding"]
