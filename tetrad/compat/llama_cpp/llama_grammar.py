"""`llama_cpp.llama_grammar`."""

from tetrad.compat.grammars import JSON_GBNF, LlamaGrammar

__all__ = ["JSON_GBNF", "LlamaGrammar"]
