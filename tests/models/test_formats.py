"""Models in every low-bit format, alone and in the mixes of files: the logits of the reference, and
equal bits."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.cli.test_main import tetrad
from tests.models.eight_bit import activations_in_eight_bits
from tests.models.loaded import MIXES, loaded, write_model
from tests.models.tiny import prompt
from tetrad.core.errors import UnsupportedError
from tetrad.formats import gguf
from tetrad.models.load import load_parts
from tetrad.quant.lanes import LANES

TOKENS = prompt(20)
EIGHT_BITS = [name for name, lanes in LANES.items() if lanes.format.bits == 8]
CASES = [("llama", mix) for mix in MIXES] + [
    ("qwen3moe", mix) for mix in ("Q2_K", "IQ4_XS", "MXFP4_MOE")
]


def close(arch: str, kind: str, head: str) -> None:
    """As `test_architectures` has it: equal to f32 rounding until the order of a sum tips a code
    over."""
    model = loaded(arch, kind)
    with activations_in_eight_bits(head):
        apart = []
        for part in np.split(TOKENS, 5):
            expected = model.expected(part)
            apart.append(np.abs(model.run(model.caches(), part) - expected).max() / expected.std())
    assert sorted(apart)[2] < (1 / 127**2 if head == "q8_0" else 1e-5)
    assert max(apart) < 0.3


@pytest.mark.parametrize("format", LANES)
def test_a_model_of_one_format(format: str) -> None:
    close("llama", format, "q8_0" if format in EIGHT_BITS else format)


@pytest.mark.parametrize(("arch", "mix"), CASES)
def test_a_mix_of_formats(arch: str, mix: str) -> None:
    formats = MIXES[mix]
    tensors = loaded(arch, mix).tensors
    head = "output" if "output.weight" in tensors else "token_embd"
    close(arch, mix, formats.get(head, formats[""]))


@pytest.mark.parametrize("mix", ["Q2_K", "IQ4_XS"])
def test_chunks_do_not_change_a_bit(mix: str) -> None:
    model = loaded("llama", mix)
    whole, caches = model.run(model.caches(), TOKENS), model.caches()
    parts = [model.run(caches, TOKENS[a:b], a) for a, b in ((0, 1), (1, 18), (18, 20))]
    np.testing.assert_array_equal(np.concatenate(parts), whole)


@pytest.mark.parametrize("word", ["inspect", "show"])
def test_the_commands_name_the_formats(tmp_path: Path, word: str) -> None:
    path = tmp_path / "tiny.gguf"
    write_model(str(path), "llama", "iq4_nl")
    code, out, _ = tetrad(word, str(path))
    assert code == 0 and "iq4_nl" in out.lower()


def test_a_format_that_is_not_known_is_named_with_those_that_are(tmp_path: Path) -> None:
    path = tmp_path / "tiny.gguf"
    metadata, tensors = write_model(str(path), "llama", "f32", width=256, head_size=64, hidden=256)
    raw = gguf.Raw("iq2_xxs", (300, 256), np.zeros(300 * 66, np.uint8))
    gguf.write(str(path), metadata, {**tensors, "output.weight": raw})
    with pytest.raises(
        UnsupportedError,
        match=r"output\.weight has the format iq2_xxs(.|\n)*iq4_nl, iq4_xs, mxfp4, ",
    ):
        load_parts(path)
