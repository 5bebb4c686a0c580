"""`llama_cpp.llama`."""

from tetrad.compat.drafts import LlamaDraftModel, LlamaPromptLookupDecoding
from tetrad.compat.grammars import LlamaGrammar
from tetrad.compat.llama import Llama
from tetrad.compat.processors import (
    LogitsProcessor,
    LogitsProcessorList,
    MinTokensLogitsProcessor,
    StoppingCriteria,
    StoppingCriteriaList,
)
from tetrad.compat.states import (
    BaseLlamaCache,
    LlamaCache,
    LlamaDiskCache,
    LlamaRAMCache,
    LlamaState,
)
from tetrad.compat.tokenizers import BaseLlamaTokenizer, LlamaTokenizer

__all__ = [
    "BaseLlamaCache", "BaseLlamaTokenizer", "Llama", "LlamaCache", "LlamaDiskCache",
    "LlamaDraftModel", "LlamaGrammar", "LlamaPromptLookupDecoding", "LlamaRAMCache", "LlamaState",
    "LlamaTokenizer", "LogitsProcessor", "LogitsProcessorList", "MinTokensLogitsProcessor",
    "StoppingCriteria", "StoppingCriteriaList",
]  # fmt: skip
