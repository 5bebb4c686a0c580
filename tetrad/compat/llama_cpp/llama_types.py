"""`llama_cpp.llama_types`."""

# ruff: noqa: F403

from tetrad.compat.wire_types import *
