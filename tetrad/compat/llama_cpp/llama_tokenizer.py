"""`llama_cpp.llama_tokenizer`."""

from tetrad.compat.tokenizers import BaseLlamaTokenizer, LlamaHFTokenizer, LlamaTokenizer

__all__ = ["BaseLlamaTokenizer", "LlamaHFTokenizer", "LlamaTokenizer"]
