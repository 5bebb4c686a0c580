"""Loading: what a file says is checked against what it holds before anything is allocated."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tetrad as td
from tests.compiler.caches import empty_cache
from tests.models.tiny import TINY, tiny_model
from tests.modules import ROOT
from tetrad.compiler import program_cache as recall
from tetrad.compiler.program_cache import program_key
from tetrad.core.errors import (
    FileFormatError,
    SettingError,
    TetradError,
    TraceError,
    UnsupportedError,
)
from tetrad.core.jobs import JOBS
from tetrad.core.record import replace
from tetrad.formats import gguf
from tetrad.graph.nodes import Literal
from tetrad.models import weights
from tetrad.models.decoder import Experts, pre_norm_block
from tetrad.models.engine import Engine
from tetrad.models.load import ModelParts, load_parts
from tetrad.models.steps import Programs, Step
from tetrad.passes.inline_custom import inline_custom
from tetrad.tracing.array import Array


def load_changed(
    folder: Path,
    arch: str = "llama",
    keys: dict[str, Any] | None = None,
    tensors: dict[str, Any] | None = None,
) -> ModelParts:
    """A tiny model with other metadata and tensors; None takes one away."""
    metadata, made = tiny_model(arch)
    metadata, made = metadata | (keys or {}), made | (tensors or {})
    path = folder / "model.gguf"
    gguf.write(
        path,
        {key: value for key, value in metadata.items() if value is not None},
        {name: tensor for name, tensor in made.items() if tensor is not None},
    )
    return load_parts(path)


def test_the_parts_are_those_of_the_file(tmp_path: Path) -> None:
    parts = load_changed(tmp_path, "qwen3moe")
    assert parts.path == str(tmp_path / "model.gguf")
    assert parts.metadata["general.name"] == "tiny-qwen3moe"
    assert parts.config.feed_forward == Experts(8, 3, 96, is_normalised=True)
    assert parts.tokenizer.decode(parts.tokenizer.encode("the world")) == "the world"
    assert "<|im_start|>user\nHi<|im_end|>" in parts.template.render(
        [{"role": "user", "content": "Hi"}]
    )


WIDE = {"width": 1152, "head_size": 288, "layers": 1}  # a vector of this width is a large constant


@pytest.mark.parametrize("arch, settings", [("llama", {}), ("qwen3moe", WIDE), ("gemma2", {})])
def test_a_second_start_compiles_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arch: str, settings: dict[str, int]
) -> None:
    empty_cache(monkeypatch, tmp_path)
    path = tmp_path / "model.gguf"
    gguf.write(path, *tiny_model(arch, **settings))
    first, second = (first_logits(load_parts(path).programs) for _ in range(2))
    assert second == first
    monkeypatch.setattr(recall, "compile_fully", None)
    assert first_logits(load_parts(path).programs) == first


@pytest.mark.parametrize(
    "arch, settings", [("llama", {}), ("llama", WIDE), ("qwen3moe", WIDE), ("gemma3", {})]
)
def test_a_second_start_traces_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arch: str, settings: dict[str, int]
) -> None:
    empty_cache(monkeypatch, tmp_path)
    gguf.write(tmp_path / "model.gguf", *tiny_model(arch, **settings))
    want = engine_logits(load_parts(tmp_path / "model.gguf").programs)
    programs = load_parts(tmp_path / "model.gguf").programs
    monkeypatch.setattr(programs.step, "step", traced)
    assert engine_logits(programs) == want
    with pytest.raises(TraceError, match="traced"):
        engine_logits(programs, context=300)  # caches of another size are another program


LOGITS = """
import numpy as np
from tetrad.models.engine import Engine
from tetrad.models.load import load_parts
engine = Engine(load_parts(sys.argv[1]).programs, context=64)
engine.step([(engine.start(np.arange(5)), np.arange(5))])
"""
TEXT = """
import tetrad as td
td.load(sys.argv[1], context=64).generate("a b", max_tokens=3, logprobs=1)
"""


@pytest.mark.parametrize("script", [LOGITS, TEXT], ids=["logits", "text"])
def test_a_second_start_loads_no_compiler(tmp_path: Path, script: str) -> None:
    """Neither the ops, nor tracing, nor what knows bf16: half of the time of a start went into
    loading them."""
    gguf.write(tmp_path / "model.gguf", *tiny_model("llama"))
    kept = {name: value for name, value in os.environ.items() if name != "TETRAD_CHECK"}
    settings = {"cwd": ROOT, "env": kept | {"TETRAD_CACHE_DIR": str(tmp_path / "cache")}}
    whole = f"import sys\n{script}\nprint(*sorted(sys.modules))"
    command = [sys.executable, "-c", whole, str(tmp_path / "model.gguf")]
    first, second = (
        set(
            subprocess.run(
                command, capture_output=True, text=True, check=True, **settings
            ).stdout.split()
        )
        for _ in range(2)
    )
    heavy = {
        "tetrad.ops",
        "tetrad.compiler.jit",
        "tetrad.models.layers",
        "tetrad.kernel.build",
        "tetrad.arrays.functions",
    }
    assert heavy <= first and not (heavy | {"ml_dtypes", "llvmlite.binding"}) & second


def traced(*arguments: Any) -> Any:
    raise TraceError("traced")


def test_programs_of_others_have_no_name(tmp_path: Path) -> None:
    """The source of their functions is not in the key."""

    class Mine(Step):
        pass

    def block(*given: Any) -> Any:
        return pre_norm_block(*given)

    programs = load_changed(tmp_path).programs
    step = programs.step
    rest = (step.config, step.outer, step.layers)
    assert step.name() == Step(step.arch, *rest).name() is not None
    assert step.name() != programs.without_head().step.name()
    assert Mine(step.arch, *rest).name() is None
    assert Step(replace(step.arch, block=block), *rest).name() is None


@pytest.mark.parametrize("arch", sorted(TINY))
def test_a_step_does_not_depend_on_what_is_in_large_weights(tmp_path: Path, arch: str) -> None:
    """Their content is not in the key under which its program is kept."""
    graphs = []
    for factor in (1.0, 0.5):
        metadata, tensors = tiny_model(arch, **WIDE)
        scaled = {
            n: (t * factor).astype(t.dtype) if t.nbytes > Literal.SMALL else t
            for n, t in tensors.items()
        }
        gguf.write(tmp_path / f"{factor}.gguf", metadata, scaled)
        programs = load_parts(tmp_path / f"{factor}.gguf").programs
        tokens = [td.Spec((5,), td.int32)] * 4
        graphs.append(
            programs.chunk.trace(
                *tokens, *(td.Spec(c.shape, c.dtype) for c in programs.state(1, 256))
            ).graph
        )
    assert len({program_key(inline_custom(graph), ()) for graph in graphs} - {None}) == 1


def engine_logits(programs: Programs, context: int = 64) -> list[bytes]:
    engine = Engine(programs, context=context)
    sequence = engine.start(np.arange(5))
    return [engine.step([(sequence, tokens)]).tobytes() for tokens in (np.arange(5), [7])]


def first_logits(programs: Programs) -> list[bytes]:
    """Of five tokens at once, and of one more."""
    caches, found = programs.state(1, 64), []
    for start, count in ((0, 5), (5, 1)):
        positions = np.arange(start, start + count)
        places = [
            np.asarray(a, np.int32) for a in (positions, 0 * positions, positions, [count - 1])
        ]
        logits, *caches = (programs.single if count == 1 else programs.chunk)(*places, *caches)
        found.append(np.asarray(logits).tobytes())
    return found


def test_a_tokeniser_that_cannot_be_made_is_said_as_ever(tmp_path: Path) -> None:
    for keys in ({"tokenizer.ggml.model": "abacus"}, {"tokenizer.ggml.tokens": ["a"] * 5000}):
        with pytest.raises((FileFormatError, UnsupportedError), match=r"abacus|token"):
            load_changed(tmp_path, keys=keys)
    assert not JOBS.begun and not JOBS.waiting


def test_a_key_of_the_vocabulary_is_refused_with_the_name_of_its_file(tmp_path: Path) -> None:
    with pytest.raises(FileFormatError, match=r"\.gguf, general\.name: expected .* str") as caught:
        load_changed(tmp_path, keys={"general.name": ["a", "b"]})
    assert caught.value.file.startswith(str(tmp_path)) and caught.value.part == "general.name"


def test_a_second_process_loads_neither_compiler_nor_templates(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    gguf.write(path, *tiny_model("llama"))
    lines = [
        "import sys",
        "from tests.models.test_load import first_logits, load_parts",
        f"print(first_logits(load_parts({str(path)!r}).programs)[0].hex())",
        "print([m for m in ('tetrad.lower.lower', 'jinja2') if m in sys.modules])",
        "print('libllvmlite' in open('/proc/self/maps').read())",
    ]
    environment = {
        **os.environ,
        "TETRAD_CACHE_DIR": str(tmp_path / "cache"),
        "PYTHONPATH": str(ROOT),
    }
    environment.pop("TETRAD_CHECK", None)
    command = [sys.executable, "-c", "\n".join(lines)]
    cold, warm = (
        subprocess.run(
            command, env=environment, capture_output=True, text=True, check=True
        ).stdout.splitlines()
        for _ in range(2)
    )
    assert warm[0] == cold[0]
    assert warm[1] == "[]" != cold[1]
    assert warm[2] == "False" != cold[2]


def test_a_broken_chat_template_does_not_keep_the_model_from_loading(tmp_path: Path) -> None:
    parts = load_changed(tmp_path, keys={"tokenizer.chat_template": "{% for"})
    assert parts.config.layers == 2


def test_large_float_weights_stay_in_the_file_and_small_ones_do_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(weights, "COPIED", 1 << 14)
    programs = load_changed(tmp_path, "qwen2", keys={"general.alignment": 64}).programs
    assert is_mapped(programs.layers[0]["ffn_down.weight"]) and not is_mapped(
        programs.layers[0]["attn_norm.weight"]
    )
    assert [file.path for file in programs.files] == [str(tmp_path / "model.gguf")]


def is_mapped(weight: Array) -> bool:
    base = np.asarray(weight)
    while isinstance(base.base, np.ndarray):
        base = base.base
    return type(base.base).__name__ in ("mmap", "memoryview")


# -- what is wrong is named ------------------------------------------------------------------------


def test_unknown_architecture(tmp_path: Path) -> None:
    known = "bert, distilbert, gemma2, gemma3, llama, modernbert, mpnet, nomic-bert, phi3, qwen2"
    with pytest.raises(UnsupportedError, match=rf"'mamba' is not known\n.*{known}"):
        load_changed(tmp_path, keys={"general.architecture": "mamba"})
    with pytest.raises(UnsupportedError, match="None is not known"):
        load_changed(tmp_path, keys={"general.architecture": None})


@pytest.mark.parametrize(
    ("arch", "name"),
    [
        ("llama", "blk.1.attn_v.weight"),
        ("llama", "output_norm.weight"),
        ("llama", "token_embd.weight"),
        ("mixtral", "blk.0.ffn_gate_inp.weight"),
        ("qwen2", "blk.0.attn_k.bias"),
        ("qwen3", "blk.2.attn_q_norm.weight"),
        ("qwen3moe", "blk.1.ffn_up_exps.weight"),
        ("phi3", "blk.0.attn_qkv.weight"),
        ("gemma2", "blk.1.post_ffw_norm.weight"),
        ("gemma3", "blk.6.attn_k_norm.weight"),
    ],
)
def test_a_missing_tensor(tmp_path: Path, arch: str, name: str) -> None:
    with pytest.raises(FileFormatError, match=name):
        load_changed(tmp_path, arch, tensors={name: None})


@pytest.mark.parametrize(
    ("arch", "name", "shape"),
    [
        ("llama", "blk.1.attn_q.weight", (64, 32)),
        ("llama", "output.weight", (299, 64)),
        ("phi3", "blk.0.ffn_up.weight", (160, 64)),
        ("qwen3moe", "blk.0.ffn_down_exps.weight", (8, 96, 64)),
        ("gemma3", "blk.3.post_attention_norm.weight", (64, 1)),
    ],
)
def test_a_tensor_of_another_shape(
    tmp_path: Path, arch: str, name: str, shape: tuple[int, ...]
) -> None:
    with pytest.raises(
        FileFormatError, match=rf"tensor {name}, byte \d+: expected shape .* got \[{shape[0]}, "
    ):
        load_changed(tmp_path, arch, tensors={name: np.zeros(shape, np.float32)})


def test_a_tensor_nobody_would_use(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedError, match=r"blk\.0\.attn_sinks\.weight"):
        load_changed(tmp_path, tensors={"blk.0.attn_sinks.weight": np.zeros(4, np.float32)})


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("block_count", None),
        ("block_count", "two"),
        ("block_count", 1 << 31),
        ("block_count", 3),
        ("embedding_length", 1 << 31),
        ("embedding_length", 0),
        ("attention.head_count", 3),
        ("attention.head_count", 1 << 24),
        ("attention.head_count_kv", 3),
        ("attention.key_length", 1 << 30),
        ("attention.key_length", 17),
        ("rope.dimension_count", 1 << 30),
        ("rope.dimension_count", 18),
        ("rope.freq_base", float("nan")),
        ("rope.freq_base", 0.0),
        ("rope.freq_base", -1.0),
        ("rope.scaling.factor", 0.0),
        ("rope.scaling.type", "fast"),
        ("rope.scaling.type", [0, 0]),
        ("context_length", 1 << 31),
        ("context_length", 2.5),
        ("feed_forward_length", 1 << 31),
        ("attention.layer_norm_rms_epsilon", None),
        ("attention.layer_norm_rms_epsilon", -1.0),
        ("expert_count", 1 << 31),
    ],
)
def test_wrong_numbers_fail_before_anything_is_allocated(
    tmp_path: Path, key: str, value: object
) -> None:
    tracemalloc.start()
    try:
        with pytest.raises((FileFormatError, UnsupportedError), match=r"llama|tensor"):
            load_changed(tmp_path, keys={f"llama.{key}": value})
        assert tracemalloc.get_traced_memory()[1] < 20 << 20
    finally:
        tracemalloc.stop()


def test_more_experts_wanted_than_there_are(tmp_path: Path) -> None:
    with pytest.raises(FileFormatError, match="9 experts a token, but there are only 8"):
        load_changed(tmp_path, "qwen3moe", keys={"qwen3moe.expert_used_count": 9})


def test_more_tokens_than_rows(tmp_path: Path) -> None:
    short = {
        name: np.zeros((290, 64), np.float32) for name in ("token_embd.weight", "output.weight")
    }
    with pytest.raises(FileFormatError, match=r"tokenizer\.ggml\.tokens"):
        load_changed(tmp_path, tensors=short)


@pytest.mark.parametrize("factors", [np.ones(7), np.zeros(8), np.full(8, np.nan)])
def test_rope_factors_that_do_not_fit(tmp_path: Path, factors: np.ndarray) -> None:
    with pytest.raises(FileFormatError, match="expected 8 numbers above 0, got"):
        load_changed(tmp_path, tensors={"rope_freqs.weight": factors.astype(np.float32)})


@pytest.mark.parametrize("name", ["rope_freqs.weight", "blk.0.ffn_norm.weight"])
def test_lists_in_a_low_bit_format(tmp_path: Path, name: str) -> None:
    raw = gguf.Raw("q8_0", (64,), np.zeros(68, np.uint8))
    with pytest.raises(FileFormatError, match=rf"tensor {name}, byte \d+: expected .*, got q8_0"):
        load_changed(tmp_path, tensors={name: raw})


def test_an_endless_list_of_rope_factors(tmp_path: Path) -> None:
    with pytest.raises(FileFormatError, match="expected a short list of floats"):
        load_changed(tmp_path, tensors={"rope_freqs.weight": np.ones(1 << 20, np.float32)})


VALUES = st.one_of(
    st.integers(-(1 << 31), (1 << 31) - 1),
    st.sampled_from([0, 1, 2, 3, 16, 24, 32, 64, 96, 128]),
    st.floats(width=32),
    st.booleans(),
    st.text(max_size=8),
    st.lists(st.integers(0, 1000), min_size=1, max_size=4),
    st.none(),
)


@given(st.sampled_from(sorted(TINY)), st.data())
def test_whatever_the_metadata_say_a_file_loads_or_is_refused(
    arch: str, data: st.DataObject
) -> None:
    own = [
        key
        for key in tiny_model(arch)[0]
        if not key.startswith(("tokenizer.", "general.name", "general.file"))
    ]
    changed = data.draw(st.dictionaries(st.sampled_from(own), VALUES, min_size=1, max_size=3))
    with tempfile.TemporaryDirectory() as folder:
        try:
            parts = load_changed(Path(folder), arch, keys=changed)
        except TetradError as error:
            assert str(error)
        else:
            assert parts.config.layers == len(parts.programs.layers)


def test_overrides_take_the_place_of_metadata(tmp_path: Path) -> None:
    path = tmp_path / "tiny.gguf"
    gguf.write(path, *tiny_model("llama"))
    plain, other = (
        load_parts(path),
        load_parts(path, overrides={"rope.freq_base": 5e5, "general.name": "other"}),
    )
    assert other.config.rope != plain.config.rope and other.metadata["general.name"] == "other"
    assert (
        other.config.rope == load_parts(path, overrides={"llama.rope.freq_base": 5e5}).config.rope
    )
    with pytest.raises(SettingError, match=r"keys other than general\.architecture"):
        load_parts(path, overrides={"general.architecture": "qwen2"})
    with pytest.raises(SettingError, match="keys with numbers, texts, True or False"):
        load_parts(path, overrides={"llama.block_count": [2]})
    with pytest.raises(FileFormatError, match=r"llama\.rope\.freq_base"):
        load_parts(path, overrides={"rope.freq_base": "x"})
