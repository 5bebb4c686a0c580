"""The names of llama-cpp-python: `from tetrad.compat.llama_cpp import Llama`.

Every module here shows names of `tetrad.compat` and defines none: a program that puts this package
in the place of `llama_cpp` (`sys.modules["llama_cpp"] = tetrad.compat.llama_cpp`) loads the modules
a second time under those names, and still gets the same classes.
"""

# ruff: noqa: F401, F403

from tetrad.compat.c_names import *
from tetrad.compat.c_names import absent as __getattr__
from tetrad.compat.llama_cpp import (
    llama,
    llama_cache,
    llama_chat_format,
    llama_cpp,
    llama_grammar,
    llama_speculative,
    llama_tokenizer,
    llama_types,
)
from tetrad.compat.llama_cpp.llama import *
from tetrad.core.version import __version__
