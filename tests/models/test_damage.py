"""Models that give no numbers: every way to ask them says so, and names the tensor and the
position."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

import tetrad as td
from tests.models.tiny import tiny_model
from tetrad.cli.main import main
from tetrad.core.errors import LogitsError
from tetrad.formats import gguf
from tetrad.models.model import Model

TOKENS = [17, 114, 211, 8]


def damaged(folder: Path, arch: str, name: str, value: float, row: int | None = None) -> Path:
    metadata, tensors = tiny_model(arch)
    tensors[name].reshape(-1)[3] = value
    if row is not None:
        tensors[name][...] = tiny_model(arch)[1][name]
        tensors[name][row] = value
    path = folder / "damaged.gguf"
    gguf.write(path, metadata, tensors)
    return path


def ask(model: Model, how: str) -> object:
    match how:
        case "logits":
            return model.logits(TOKENS)
        case "last":
            return model.logits(TOKENS, last=True)
        case "generate":
            return model.generate(TOKENS, max_tokens=2)
        case "embed":
            return model.embed([TOKENS])
    raise ValueError(how)


@pytest.mark.parametrize("how", ["logits", "last", "generate", "embed"])
@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.parametrize(
    ("arch", "name"),
    [
        ("llama", "blk.1.ffn_down.weight"),
        ("llama", "blk.0.attn_norm.weight"),
        ("mixtral", "blk.1.ffn_gate_inp.weight"),
    ],
)
def test_a_damaged_tensor_is_named(
    tmp_path: Path, arch: str, name: str, value: float, how: str
) -> None:
    model = td.load(damaged(tmp_path, arch, name, value), context=64)
    with pytest.raises(LogitsError, match=rf"at position \d+: tensor {name} holds NaN or infinity"):
        ask(model, how)


@pytest.mark.parametrize("how", ["logits", "last", "generate", "embed"])
def test_a_router_names_the_position(tmp_path: Path, how: str) -> None:
    """The row of the third token is damaged: the first two are answered."""
    model = td.load(
        damaged(tmp_path, "mixtral", "token_embd.weight", np.nan, row=TOKENS[2]), context=64
    )
    with pytest.raises(
        LogitsError, match=r"likelihood of expert 0 at position 2: tensor token_embd.weight holds"
    ):
        ask(model, how)
    assert np.isfinite(model.logits(TOKENS[:2])).all()


@pytest.mark.parametrize("command", ["embed", "perplexity", "run"])
def test_commands_end_with_an_error(tmp_path: Path, command: str) -> None:
    path = damaged(tmp_path, "llama", "blk.1.ffn_down.weight", np.nan)
    text = tmp_path / "text.txt"
    text.write_text("some words " * 20)
    more = {
        "embed": ["-p", "x"],
        "perplexity": ["-f", str(text), "-c", "16"],
        "run": ["-p", "x", "-n", "1"],
    }[command]
    result = CliRunner().invoke(
        main, [command, "-m", str(path), *more], prog_name="tetrad", input=""
    )
    assert result.exit_code == 1 and "blk.1.ffn_down.weight holds NaN" in result.output
    assert "nan" not in result.stdout.lower()


def test_large_vectors_keep_their_direction(tmp_path: Path) -> None:
    metadata, tensors = tiny_model("llama")
    gguf.write(tmp_path / "a.gguf", metadata, tensors)
    tensors["output_norm.weight"] *= np.float32(1e25)
    gguf.write(tmp_path / "b.gguf", metadata, tensors)
    one, other = (
        td.load(tmp_path / name, context=64).embed([TOKENS]) for name in ("a.gguf", "b.gguf")
    )
    np.testing.assert_allclose(other, one, rtol=1e-5, atol=1e-6)
