"""`llama_cpp.llama_cpp`: constants of the C library, and what little of it means something here."""

# ruff: noqa: F401, F403

from tetrad.compat.c_names import *
from tetrad.compat.c_names import absent as __getattr__
