"""Hugging Face folders: the numbers of the models' own code, whatever the shards and types; what is
wrong with a folder is said with file and field."""

from __future__ import annotations

import json
import os
from functools import cache
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tetrad as td
from tests.formats.folder_mutants import campaign
from tests.models.folders import (
    golden,
    golden_folder,
    names,
    tensors_of,
    weight,
    wordpiece,
    write_folder,
)
from tetrad import quant
from tetrad.cli import options
from tetrad.core.errors import (
    ContextError,
    FileFormatError,
    SettingError,
    TextError,
    UnsupportedError,
)
from tetrad.models.folder.quantize import MIXES, QuantizedFile, more_bits
from tetrad.models.load import open_model
from tetrad.models.model import Model
from tetrad.models.weights import read_floats

RANKING = [name for name in names() if name.endswith("-rank")]
DECODERS = [name for name in names() if "logits" in golden(name)["cases"][0]]
ENCODERS = [name for name in names() if name not in (*RANKING, *DECODERS)]


@pytest.fixture(scope="module")
def loaded(tmp_path_factory: pytest.TempPathFactory) -> Any:
    root = tmp_path_factory.mktemp("folders")
    made = cache(lambda name: golden_folder(root / name, name))
    return cache(lambda name, context=0: td.load(made(name), kv="f32", context=context))


# -- numbers ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ENCODERS)
def test_vectors_are_those_of_transformers(loaded: Any, name: str) -> None:
    model: Model = loaded(name)
    cases = golden(name)["cases"]
    texts = [case["tokens"] for case in cases]
    for pooling, key in (("mean", "mean"), ("cls", "first")):
        found = model.embed(texts, normalize=False, pooling=pooling)
        expected = np.array([case[key] for case in cases])
        assert np.abs(found - expected).max() < 1e-5


@pytest.mark.parametrize("name", RANKING)
def test_scores_are_those_of_transformers(loaded: Any, name: str) -> None:
    model: Model = loaded(name)
    cases = golden(name)["cases"]
    pairs = [(case["tokens"], case["types"]) for case in cases]
    found = model.scores(pairs)
    expected = 1 / (1 + np.exp(-np.array([case["score"] for case in cases])))
    assert np.abs(found - expected).max() < 1e-6
    for pair, score in zip(pairs, found, strict=True):  # the same bits in any company
        assert model.scores([pair])[0] == score


@pytest.mark.parametrize("name", DECODERS)
def test_logits_are_those_of_transformers(loaded: Any, name: str) -> None:
    for case in golden(name)["cases"]:
        # phi3 chooses its rope by the length of the text there, by the context here
        context = 32 if name == "phi3" and len(case["tokens"]) <= 32 else 0
        model: Model = loaded(name, context)
        expected = np.array(case["logits"])
        assert np.abs(model.logits(case["tokens"])[-1] - expected).max() < 3e-5 * expected.std()


@pytest.mark.parametrize("name", ["bert", "llama"])
@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16], ids=["f16", "bf16"])
def test_halves_and_shards_are_read_where_they_lie(tmp_path: Path, name: str, dtype: Any) -> None:
    halves = {key: x.astype(dtype) for key, x in tensors_of(name).items()}
    config = golden(name)["config"]
    whole = td.load(write_folder(tmp_path / "one", config, halves), kv="f32")
    wide = {key: x.astype(np.float32) for key, x in halves.items()}
    same = td.load(write_folder(tmp_path / "two", config, wide), kv="f32")
    split = td.load(write_folder(tmp_path / "cut", config, halves, shard_bytes=20_000), kv="f32")
    assert len(list((tmp_path / "cut").glob("model-*.safetensors"))) > 2
    texts = [case["tokens"] for case in golden(name)["cases"]]
    first, second, third = (m.embed(texts, normalize=False) for m in (whole, same, split))
    np.testing.assert_array_equal(first, third)
    assert np.abs(first - second).max() < 1e-5


def test_texts_have_the_same_bits_in_any_company(loaded: Any) -> None:
    model: Model = loaded("roberta")
    texts = ["the cat sat", "a dog", "", "the slow dog ran on the mat " * 3]
    together = model.embed(texts)
    for text, vector in zip(texts, together, strict=True):
        np.testing.assert_array_equal(model.embed(text), vector)
    np.testing.assert_array_equal(model.embed(texts[::-1])[::-1], together)


# -- the folder's own word -------------------------------------------------------------------------


def with_modules(folder: Path, pooling: dict[str, Any] | None, normalize: bool) -> Path:
    kinds = [
        "Transformer",
        *(["Pooling"] if pooling else []),
        *(["Normalize"] if normalize else []),
    ]
    modules = [
        {"idx": i, "name": str(i), "path": f"{i}_{kind}" if i else "", "type": f"a.b.{kind}"}
        for i, kind in enumerate(kinds)
    ]
    (folder / "modules.json").write_text(json.dumps(modules))
    if pooling:
        (folder / "1_Pooling").mkdir()
        (folder / "1_Pooling" / "config.json").write_text(json.dumps(pooling))
    return folder


@pytest.mark.parametrize(
    ("pooling", "expected"),
    [
        ({"pooling_mode_mean_tokens": True, "pooling_mode_cls_token": False}, "mean"),
        ({"pooling_mode_cls_token": True}, "cls"),
        ({"pooling_mode": "lasttoken"}, "last"),
    ],
)
@pytest.mark.parametrize("normalize", [True, False])
def test_pooling_and_length_are_those_of_the_folder(
    tmp_path: Path, pooling: dict[str, Any], expected: str, normalize: bool
) -> None:
    model = td.load(with_modules(golden_folder(tmp_path, "bert"), pooling, normalize))
    text = "the cat sat"
    found = model.embed(text)
    np.testing.assert_array_equal(found, model.embed(text, normalize=normalize, pooling=expected))
    assert (abs(np.linalg.norm(found) - 1) < 1e-6) == normalize


def test_long_texts_are_cut_where_that_is_asked_for(tmp_path: Path) -> None:
    folder = golden_folder(tmp_path, "bert")
    (folder / "sentence_bert_config.json").write_text('{"max_seq_length": 7}')
    model, text = td.load(folder), "cat " * 80
    with pytest.raises(ContextError, match=r"(?s)82 tokens.*64.*truncate=True cuts texts"):
        model.embed(text)
    np.testing.assert_array_equal(model.embed(text, truncate=True), model.embed("cat " * 5))
    np.testing.assert_array_equal(model.embed("the cat", truncate=True), model.embed("the cat"))


def test_ranking_texts(tmp_path: Path, loaded: Any) -> None:
    model, query = loaded("bert-rank"), "the cat"
    texts = ["a dog ran", "", "the cat sat on a mat", "a b c d e f"]
    found = model.rerank(query, texts)
    pairs = [model.tokenizer.encode_pair(query, text) for text in texts]
    np.testing.assert_array_equal(found, model.scores(pairs))
    np.testing.assert_array_equal(found[::-1], model.rerank(query, texts[::-1]))
    assert model.rerank(query, []).shape == (0,) and ((found > 0) & (found < 1)).all()
    config = golden("bert-rank")["config"]
    config |= {"sentence_transformers": {"activation_fn": "torch.nn.modules.linear.Identity"}}
    plain = td.load(write_folder(tmp_path / "m", config, tensors_of("bert-rank")))
    logits = plain.rerank(query, texts)
    assert np.abs(1 / (1 + np.exp(-logits)) - found).max() < 1e-6


def test_long_pairs_are_cut_where_that_is_asked_for(loaded: Any) -> None:
    model: Model = loaded("bert-rank")
    with pytest.raises(ContextError, match=r"query and text are too long: 84 tokens"):
        model.rerank("the", ["cat " * 80])
    cut = model.rerank("the", ["cat " * 80], truncate=True)
    np.testing.assert_array_equal(cut, model.rerank("the", ["cat " * 60]))


def test_what_has_no_ranks_says_so(loaded: Any) -> None:
    with pytest.raises(UnsupportedError, match="has nothing that ranks texts"):
        loaded("bert").rerank("a", ["b"])
    with pytest.raises(TextError, match="expected a list of texts, got str"):
        loaded("bert-rank").rerank("a", "b")


def test_the_tokeniser_neither_cuts_nor_fills_up(loaded: Any) -> None:
    tokenizer = loaded("bert").tokenizer
    ids = tokenizer.encode("The cats sat on a mat, fast")
    assert ids == [2, 4, 6, 14, 8, 10, 5, 11, 1, 12, 3]
    assert tokenizer.encode("the cat", add_special=False) == [4, 6]
    assert tokenizer.decode(ids[:8], skip_special=True) == "the cats sat on a mat"
    assert tokenizer.encode_pair("the cat", "a dog") == (
        [2, 4, 6, 3, 5, 7, 3],
        [0, 0, 0, 0, 1, 1, 1],
    )


def test_control_tokens_in_a_text_are_control_tokens_where_that_is_wanted(loaded: Any) -> None:
    tokenizer = loaded("bert").tokenizer
    assert tokenizer.encode("cat [SEP] dog", add_special=False) == [6, 3, 7]
    assert 3 not in tokenizer.encode("cat [SEP] dog", add_special=False, parse_special=False)
    guard = "\ufdd0"
    guarded = f"[SEP] {tokenizer.guarded('cat [SEP]', guard)}"
    assert tokenizer.encode(guarded, add_special=False, guard=guard).count(3) == 1


def test_an_answer_from_a_folder(tmp_path: Path) -> None:
    folder = golden_folder(tmp_path, "llama")
    template = "{% for m in messages %}{{ m.content }} {{ eos_token }}{% endfor %}"
    roles = json.loads((folder / "tokenizer_config.json").read_text())
    (folder / "tokenizer_config.json").write_text(
        json.dumps(roles | {"eos_token": {"content": "[SEP]"}, "chat_template": template})
    )
    model = td.load(folder)
    assert model.tokenizer.eos == 3 and model.tokenizer.stop_ids == {3}
    messages = [{"role": "user", "content": "the [SEP] cat"}]
    assert model.chat_tokens(messages)[-1] == 3 and model.chat_tokens(messages).count(3) == 1
    assert len(model.generate("the cat", max_tokens=4, ignore_eos=True).tokens) == 4
    (folder / "chat_template.jinja").write_text("hello")
    assert td.load(folder).template.source == "hello"


# -- what is wrong is said -------------------------------------------------------------------------


def changed(config: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {key: value for key, value in {**config, **fields}.items() if value != "gone"}


@pytest.mark.parametrize(
    ("name", "fields", "part", "message"),
    [
        ("bert", {"hidden_size": "64"}, "hidden_size", "expected a number, got '64'"),
        ("bert", {"hidden_size": "gone"}, "hidden_size", "expected a number, got nothing"),
        ("bert", {"hidden_size": True}, "hidden_size", "expected a number"),
        ("bert", {"num_hidden_layers": 0}, "num_hidden_layers", "whole number from 1"),
        ("bert", {"num_hidden_layers": 2.5}, "num_hidden_layers", "whole number"),
        ("bert", {"num_hidden_layers": 10**30}, "num_hidden_layers", "whole number"),
        ("bert", {"layer_norm_eps": -1}, "layer_norm_eps", "above 0"),
        ("bert", {"layer_norm_eps": float("nan")}, "layer_norm_eps", "expected a number"),
        ("bert", {"hidden_act": "relu"}, "hidden_act", "'relu' is not supported; known: gelu"),
        ("bert", {"hidden_act": 3}, "hidden_act", "3 is not supported"),
        ("bert", {"model_type": "gone"}, "model_type", "expected a name"),
        ("llama", {"rope_parameters": [1]}, "rope_parameters", "expected an object"),
        ("llama", {"rope_parameters": {"rope_type": "x"}}, "rope_parameters.rope_type", "known"),
        ("llama3", {"rope_parameters": {"rope_type": "llama3"}}, "rope_parameters.low", "nothing"),
        ("qwen2", {"use_sliding_window": True}, "use_sliding_window", "expected false"),
        ("qwen2", {"use_sliding_window": 1}, "use_sliding_window", "true or false"),
        ("gemma3", {"layer_types": ["full_attention"] * 6 + ["x"]}, "layer_types", "equal dist"),
        ("roberta", {"max_position_embeddings": 2}, "max_position_embeddings", "0 rows are left"),
    ],
)
def test_a_wrong_field_is_named(
    tmp_path: Path, name: str, fields: dict[str, Any], part: str, message: str
) -> None:
    config = changed(golden(name)["config"], **fields)
    folder = write_folder(tmp_path / "m", config, tensors_of(name))
    with pytest.raises(FileFormatError, match=message) as caught:
        td.load(folder)
    assert caught.value.file == str(folder / "config.json")
    assert caught.value.part.startswith(f"field {part}")


def test_damaged_folders_are_models_or_refused(tmp_path: Path) -> None:
    """Words of any file changed; `make test-slow` tries many more."""
    outcomes = campaign(first=0, count=300, folder=tmp_path, every=100)
    assert sum(outcomes.values()) == 300 and outcomes["a model"] and outcomes["FileFormatError"]


def test_an_unknown_kind_of_model_is_said(tmp_path: Path) -> None:
    config = golden("bert")["config"] | {"model_type": "t5"}
    with pytest.raises(UnsupportedError, match=r"'t5' is not known\n  hint: known: .*bert"):
        td.load(write_folder(tmp_path / "m", config, tensors_of("bert")))


def test_tensors_that_do_not_fit_are_named(tmp_path: Path) -> None:
    config, tensors = golden("bert")["config"], tensors_of("bert")
    key = "encoder.layer.1.output.dense.weight"
    without = {name: x for name, x in tensors.items() if name != key}
    with pytest.raises(FileFormatError, match=r"tensor blk\.1\.ffn_down\.weight is missing"):
        td.load(write_folder(tmp_path / "a", config, without))
    with pytest.raises(FileFormatError, match=r"expected shape \[64, 96\].*got \[96, 64\]"):
        td.load(write_folder(tmp_path / "b", config, tensors | {key: tensors[key].T}))
    with pytest.raises(UnsupportedError, match=r"not part of this architecture.*what\.is\.it"):
        td.load(write_folder(tmp_path / "c", config, tensors | {"what.is.it": tensors[key]}))
    with pytest.raises(UnsupportedError, match=r"has the type I32"):
        td.load(write_folder(tmp_path / "d", config, tensors | {key: tensors[key].astype("i4")}))
    twice = {"encoder.layer.1.output.LayerNorm.gamma": tensors["embeddings.LayerNorm.bias"]}
    with pytest.raises(FileFormatError, match="the same as"):
        td.load(write_folder(tmp_path / "e", config, tensors | twice))
    folder = golden_folder(tmp_path / "f", "bert")
    data = (folder / "model.safetensors").read_bytes()
    (folder / "model.safetensors").write_bytes(data[:-1])
    with pytest.raises(FileFormatError, match=r"model\.safetensors.*the file ends at"):
        td.load(folder)


def test_old_names_of_norms_are_known(tmp_path: Path, loaded: Any) -> None:
    ends = {"LayerNorm.weight": "LayerNorm.gamma", "LayerNorm.bias": "LayerNorm.beta"}

    def old(name: str) -> str:
        stem, _, end = name.rpartition(".")
        last = f"{stem.rpartition('.')[2]}.{end}"
        return name.removesuffix(last) + ends.get(last, last)

    tensors = {old(name): x for name, x in tensors_of("bert").items()}
    assert any(name.endswith("gamma") for name in tensors)
    model = td.load(write_folder(tmp_path / "m", golden("bert")["config"], tensors))
    np.testing.assert_array_equal(model.embed("the cat"), loaded("bert").embed("the cat"))


@pytest.mark.parametrize(
    ("file", "text", "message"),
    [
        ("config.json", None, "there is no config.json"),
        ("config.json", "{", "not JSON"),
        ("config.json", "[]", "expected an object, got list"),
        ("config.json", '{"a": 1, "a": 2}', "occurs twice"),
        ("config.json", "[" * 100000, "nested too deep|not JSON"),
        ("config.json", '{"a": ' + "9" * 5000 + "}", "a number of 5000 digits"),
        ("tokenizer.json", None, "there is no tokenizer.json"),
        ("tokenizer.json", "{}", "no tokeniser"),
        ("tokenizer.json", '{"model": 3}', "no tokeniser"),
        ("tokenizer_config.json", '{"eos_token": 3}', "expected a token, got 3"),
        ("tokenizer_config.json", '{"chat_template": 3}', "a text or a list of named ones"),
        ("generation_config.json", '{"eos_token_id": "x"}', "expected ids of tokens"),
        ("model.safetensors", None, "neither model.safetensors nor"),
        ("modules.json", "{}", "expected a list of modules"),
        ("modules.json", '[{"type": 3}]', "expected the name of a class"),
        ("modules.json", '[{"type": "a.Pooling", "path": "../x"}]', "a folder inside"),
        ("modules.json", '[{"type": "a.Pooling", "path": "1_Pooling"}]', "the file is missing"),
        ("sentence_bert_config.json", '{"max_seq_length": 0}', "whole number from 1"),
    ],
)
def test_a_wrong_file_is_named(tmp_path: Path, file: str, text: str | None, message: str) -> None:
    folder = golden_folder(tmp_path / "m", "bert")
    (folder / file).unlink(missing_ok=True)
    if text is not None:
        (folder / file).write_text(text)
    with pytest.raises(FileFormatError, match=message) as caught:
        td.load(folder)
    assert caught.value.file.startswith(str(folder))


@pytest.mark.parametrize("kind", ["single", "pair"])
def test_a_template_with_unknown_tokens_is_refused(tmp_path: Path, kind: str) -> None:
    """The library panics when it meets one: no `Exception`, and not before the first text."""
    whole = wordpiece()
    whole["post_processor"][kind][-1]["SpecialToken"]["id"] = "[UNKNOWN]"
    folder = write_folder(tmp_path, golden("bert")["config"], tensors_of("bert"), whole)
    with pytest.raises(FileFormatError, match="post_processor") as caught:
        td.load(folder)
    assert caught.value.file == str(folder / "tokenizer.json")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes with names")
@pytest.mark.parametrize(
    "file", ["config.json", "tokenizer.json", "modules.json", "chat_template.jinja"]
)
def test_a_pipe_in_place_of_a_file_is_refused_and_does_not_hang(tmp_path: Path, file: str) -> None:
    folder = golden_folder(tmp_path / "m", "bert")
    (folder / file).unlink(missing_ok=True)
    os.mkfifo(folder / file)
    with pytest.raises(FileFormatError, match="not a regular file"):
        td.load(folder)
    (folder / file).unlink()
    (folder / file).mkdir()
    with pytest.raises(FileFormatError, match="not a regular file"):
        td.load(folder)


def test_a_module_that_is_not_known_is_said(tmp_path: Path) -> None:
    folder = golden_folder(tmp_path / "m", "bert")
    (folder / "modules.json").write_text('[{"type": "a.Dense", "path": "2_Dense"}]')
    with pytest.raises(UnsupportedError, match="a module 'Dense'"):
        td.load(folder)
    with_modules(folder, {"pooling_mode_max_tokens": True}, False)
    with pytest.raises(FileFormatError, match="max is not supported; known: mean, cls, lasttoken"):
        td.load(folder)


def test_more_tokens_than_rows_are_refused(tmp_path: Path) -> None:
    tensors = tensors_of("bert")
    key = "embeddings.word_embeddings.weight"
    with pytest.raises(FileFormatError, match="64 tokens, the model has rows for 60"):
        td.load(
            write_folder(tmp_path, golden("bert")["config"], tensors | {key: tensors[key][:60]})
        )


def test_an_unknown_pooling_is_said(loaded: Any) -> None:
    with pytest.raises(SettingError, match="pooling: expected mean, cls or last, got 'max'"):
        loaded("bert").embed("x", pooling="max")


# -- fewer bits ------------------------------------------------------------------------------------


def wide_llama(tied: bool) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """A llama with rows of 256, and one matrix with shorter rows."""
    sizes = {"hidden_size": 256, "intermediate_size": 320, "head_dim": 64, "num_hidden_layers": 8}
    config = golden("llama")["config"] | sizes | {"tie_word_embeddings": tied}
    rows = {"q_proj": 256, "k_proj": 128, "v_proj": 128, "o_proj": 256, "gate_proj": 320,
            "up_proj": 320, "down_proj": 256, "layernorm": 256}  # fmt: skip

    def shape(name: str) -> list[int]:
        short = name.split(".")[-2]
        if short.endswith("norm"):
            return [256]
        return [rows.get(short, 64), 320 if short == "down_proj" else 256]

    block = [name for name in golden("llama")["tensors"] if ".layers.0." in name]
    names = [name.replace(".0.", f".{i}.") for i in range(8) for name in block]
    outer = [name for name in golden("llama")["tensors"] if ".layers." not in name]
    chosen = [*names, *(name for name in outer if not (tied and name.startswith("lm_head")))]
    return config, {name: weight(name, shape(name)) for name in chosen}


@pytest.mark.parametrize("tied", [False, True])
def test_a_mix_of_fewer_bits(tmp_path: Path, tied: bool) -> None:
    config, tensors = wide_llama(tied)
    folder = write_folder(tmp_path / "m", config, tensors)
    found = td.load(folder, quantize="q4_k_m")
    outer, blocks = found.parts.programs.outer, found.parts.programs.layers
    kinds = {name: str(w.dtype) for name, w in outer.items()}
    assert kinds["token_embd.weight"].startswith("q6_k" if tied else "q4_k")
    assert tied or kinds["output.weight"].startswith("q6_k")
    values = [str(block["attn_v.weight"].dtype)[:4] for block in blocks]
    assert values == ["q6_k" if more_bits(i, 8) else "q4_k" for i in range(8)]
    assert {"q4_k", "q6_k"} == set(values)
    assert {str(b["attn_q.weight"].dtype)[:4] for b in blocks} == {"q4_k"}
    # rows of 320 are no blocks of 256
    assert {str(b["ffn_down.weight"].dtype)[:4] for b in blocks} == {"q5_0", "q8_0"}
    # against a model of the numbers that were packed: only activations are rounded besides
    rounded = td.load(write_folder(tmp_path / "r", config, tensors | unpacked(folder)))
    tokens = [5, 9, 11, 30, 7]
    wanted, exact = rounded.logits(tokens), td.load(folder).logits(tokens)
    apart = np.sqrt(((found.logits(tokens) - wanted) ** 2).mean()) / wanted.std()
    assert 1e-4 < apart < 0.1 and np.abs(exact - wanted).max() > 10 * apart


def unpacked(folder: Path) -> dict[str, np.ndarray]:
    """The tensors of a folder by their own names, as a mix rounds them."""
    with open_model(folder) as file:
        mixed, made = QuantizedFile(file, "q4_k_m", 8), {}
        for name, tensor in mixed.tensors.items():
            if tensor.format != "f32":
                values = quant.unpack(mixed.data(name), tensor.format, tensor.shape)
                made[file.sources[name]] = values  # type: ignore[attr-defined]
        return made


def test_packed_numbers_are_those_of_the_format(tmp_path: Path) -> None:
    config, tensors = wide_llama(True)
    folder = write_folder(tmp_path / "m", config, tensors)
    with open_model(folder) as file:
        quantized = QuantizedFile(file, "q4_k_m", 8)
        for name in ("blk.3.attn_q.weight", "blk.0.ffn_down.weight", "token_embd.weight"):
            tensor, values = quantized.tensors[name], read_floats(file, name)
            found = quant.unpack(quantized.data(name), tensor.format, tensor.shape)
            np.testing.assert_array_equal(
                found,
                quant.unpack(quant.pack(values, tensor.format), tensor.format, tensor.shape),
            )
            assert np.abs(found - values).max() < 0.1 * np.abs(values).max()


def test_what_cannot_be_packed_is_said(tmp_path: Path) -> None:
    with pytest.raises(SettingError, match=r"quantize: expected one of q4_k_m.*got 'q3'"):
        td.load(golden_folder(tmp_path / "a", "llama"), quantize="q3")
    with pytest.raises(SettingError, match="a model that generates"):
        td.load(golden_folder(tmp_path / "b", "bert"), quantize="q8_0")


def test_the_command_line_knows_the_mixes() -> None:
    assert tuple(MIXES) == options.MIXES
