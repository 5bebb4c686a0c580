"""The hub, stores: models that other programs hold on this machine, used where they lie.

Each file knows one program: where its folder is, how it names models. What they say is hostile
input like any other; nothing is written to them and nothing deleted from them.
"""

from __future__ import annotations

from collections.abc import Iterator

from tetrad.hub.stored import StoredModel
from tetrad.hub.stores.hub_cache import hub_cache_models
from tetrad.hub.stores.llama_cpp import llama_cpp_models
from tetrad.hub.stores.lm_studio import lm_studio_models
from tetrad.hub.stores.ollama import ollama_models

# how a model is deleted where it is held; {} is its name
WAYS_TO_DELETE = {
    "Hugging Face": "`hf cache rm`, or delete the file",
    "ollama": "`ollama rm {}`",
    "LM Studio": "its page My Models, or delete the file",
    "llama.cpp": "delete the file",
}


def others_models() -> Iterator[StoredModel]:
    """What other programs hold, one program after the other, each by name."""
    for models in (hub_cache_models, ollama_models, lm_studio_models, llama_cpp_models):
        yield from sorted(models(), key=lambda model: model.name.lower())
